"""The configuration of a black box: TOML, checked completely before anything is watched. Errors name the key, and the line where TOML is wrong.

Knows no channel that exists.
"""

from __future__ import annotations

import errno
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from penstock.channels.uri.channel import parse
from penstock.channels.uri.wildcards import check_patterns, is_pattern, may_match
from penstock.errors import Invalid, NotFound, PenstockError, SystemFailure, text_of
from penstock.util import units
from penstock.util.files import storage, user_files
from penstock.watch.blackbox import toml_words
from penstock.watch.blackbox.expressions import Condition

ANY = "any"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")
WATCHES = ("message", "rate", "latency", "silence", "death", "call")
OTHERS = {  # what a trigger may have beside its own key
    "message": {"when", "block"},
    "rate": {"above", "below", "over"},
    "latency": {"above", "quantile", "over"},
    "silence": {"longer"},
    "death": set(),
    "call": set(),
}
NEEDED = {"message": {"when"}, "latency": {"above"}, "silence": {"longer"}}
Span = str | int | float
LONGEST_SECONDS = 300.0
EXAMPLES = {  # a good value of each key, as TOML has it
    "archive": '"/var/log/robot"',
    "channels": '["robot/*"]',
    "before": '"30s"',
    "after": '"10s"',
    "max_bytes": '"20GB"',
    "cool_down": '"60s"',
    "longest": '"5m"',
    "drop_after": "0.5",
    "pixels": "true",
    "signal": "true",
    "trigger": "[[trigger]], in a line of its own, and its keys below",
    "name": '"hard brake"',
    "message": '"log:robot/imu"',
    "when": '"speed > 3 and not parked"',
    "block": "true",
    "rate": '"log:robot/imu"',
    "latency": '"log:robot/imu"',
    "silence": '"log:robot/imu"',
    "death": '"any"',
    "call": '"help"',
    "above": '20, or "5ms" of a latency',
    "below": "20",
    "over": '"2s"',
    "longer": '"2s"',
    "quantile": "0.99",
}


class Trigger(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """One reason for a snapshot. One of message, rate, latency, silence, death and call says what is watched."""

    name: str = ""
    message: str | None = None
    when: str | None = None
    block: bool | None = None
    rate: str | None = None
    latency: str | None = None
    silence: str | None = None
    death: str | None = None
    call: str | None = None
    above: Span | None = None
    below: Span | None = None
    over: Span | None = None
    longer: Span | None = None
    quantile: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None

    @property
    def watch(self) -> str:
        """What is watched: one of `WATCHES`. `Invalid` if nothing is."""
        for word in WATCHES:
            if getattr(self, word) is not None:
                return word
        raise Invalid(f"a trigger has none of {', '.join(WATCHES)}: give one of them")

    @property
    def target(self) -> str:
        """The channel, the process or the name of a call that is watched."""
        found: str = getattr(self, self.watch)
        return found


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A black box. Times are seconds or texts as "30s"; sizes are bytes or texts as "20GB". longest: of one snapshot; None: 5 minutes, or
    `after` if that is more."""

    archive: str
    channels: list[str]
    before: Span = "30s"
    after: Span = "10s"
    max_bytes: str | int = "10GB"
    cool_down: Span = "60s"
    longest: Span | None = None
    drop_after: Annotated[float, msgspec.Meta(ge=0)] | None = None
    pixels: bool = True
    signal: bool = True
    trigger: list[Trigger] = []

    def seconds(self, name: str) -> float:
        """A span of time by its key."""
        if name == "longest" and self.longest is None:
            return max(LONGEST_SECONDS, self.seconds("after"))
        return units.seconds(getattr(self, name), name, zero=True)


def load(path: str | os.PathLike[str]) -> Config:
    """The configuration in a file. `Invalid` if it has a mistake or is no regular file, `NotFound` if there is none."""
    try:
        raw = user_files.read_bytes(path)
    except FileNotFoundError as error:
        raise NotFound(error.errno, f"there is no configuration {path}") from None
    except OSError as error:
        raise SystemFailure(error.errno or 0, f"cannot read {path}: {error.strerror}") from error
    return read(raw, str(path))


def read(raw: bytes, place: str) -> Config:
    """The configuration in these bytes. place: their file, for errors."""
    if not isinstance(raw, bytes | bytearray):
        raise Invalid(f"{place}: {text_of(raw, repr):.200} is not the bytes of a configuration")
    try:
        found = tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise Invalid(f"{place}: byte {error.start} is not UTF-8, which TOML is written in") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{place} is not TOML: {error or 'it is nested too deeply'}") from None
    config = _convert(found, place)
    if not config.trigger and not config.signal:  # a program has `fire`
        raise Invalid(f"{place}: there is no trigger, and signal is false: nothing could begin a snapshot")
    return config


def check(config: Any) -> Config:
    """A configuration that a program has made, checked as `read` checks one. `Invalid` if it has a mistake, or is something else."""
    if not isinstance(config, Config):
        raise Invalid(f"config is {text_of(config, repr):.200}: it must be a Config, as load(path) returns one")
    found = msgspec.structs.asdict(config)
    if isinstance(config.trigger, list | tuple):
        found["trigger"] = [msgspec.structs.asdict(one) if isinstance(one, Trigger) else one for one in config.trigger]
    return _convert(found, "config")


def _convert(found: dict[str, Any], place: str) -> Config:
    try:
        config = msgspec.convert(found, Config)
    except msgspec.ValidationError as error:
        raise Invalid(f"{place}: {_plain(str(error))}") from None
    try:
        _check(config)
    except PenstockError as error:
        raise Invalid(f"{place}: {error}") from None
    return config


def _plain(text: str) -> str:
    """msgspec's words for people."""
    unknown = re.search(r"unknown field `([^`]*)`", text)
    if unknown is None:
        return toml_words.explain(text, EXAMPLES)
    import difflib

    in_trigger = re.search(r"at `\$\.trigger\[(\d+)\]", text)
    known = (Trigger if in_trigger else Config).__struct_fields__
    place = f"trigger {int(in_trigger[1]) + 1}: " if in_trigger else ""
    near = difflib.get_close_matches(unknown[1], known, 1)
    advice = f"is {near[0]} meant?" if near else f"the keys are {', '.join(sorted(known))}"
    return f"{place}there is no key {unknown[1]}: {advice}"


def _check(config: Config) -> None:
    if not config.archive or "://" in config.archive:
        raise Invalid(f"archive is {config.archive!r}: it must be a folder of this machine")
    try:
        _check_writable(Path(storage.where(config.archive, "archive").path))
    except OSError as error:
        raise Invalid(f"archive is {config.archive!r:.200}: {error.strerror}") from None
    if not config.channels:
        raise Invalid('channels is empty: name channels or patterns, as ["robot/*"]')
    for name in config.channels:
        _check_channel(name, "channels", pattern=True)
    for name in ("before", "after", "cool_down"):
        units.seconds(getattr(config, name), name, zero=name != "before")
    if config.longest is not None and units.seconds(config.longest, "longest") < config.seconds("after"):
        raise Invalid(
            f"longest is {config.longest!r} and after is {config.after!r}: no snapshot may take less than after; give a longer longest, "
            "or leave it out"
        )
    units.size(config.max_bytes, "max_bytes")
    seen: set[str] = set()
    for number, trigger in enumerate(config.trigger, 1):
        try:
            _check_trigger(trigger)
        except PenstockError as error:
            raise Invalid(f"trigger {number}: {error}") from None
        name = name_of(trigger)
        if name in seen:
            raise Invalid(f"trigger {number}: another trigger is called {name!r}: give each a name of its own")
        seen.add(name)


def _check_writable(archive: Path) -> None:
    """`Invalid` if the archive could not be written when a trigger fires."""
    there = next(folder for folder in (archive, *archive.absolute().parents) if folder.exists())
    if max(len(os.fsencode(part)) for part in archive.absolute().parts) > os.pathconf(there, "PC_NAME_MAX"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if not there.is_dir():
        raise Invalid(f"archive: {there} is no folder: name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Invalid(f"archive: {there} cannot be written: mount it writable, or name another folder")


def name_of(trigger: Trigger) -> str:
    """A trigger's name, or what it watches."""
    return trigger.name or f"{trigger.watch} {trigger.target}"


def _check_trigger(trigger: Trigger) -> None:
    asked = [word for word in WATCHES if getattr(trigger, word) is not None]
    if len(asked) != 1:
        raise Invalid(f"it has {' and '.join(asked) or 'none'} of {', '.join(WATCHES)}: give one of them")
    watch = asked[0]
    given = {name for name in OTHERS_ALL if getattr(trigger, name) is not None}
    if wrong := sorted(given - OTHERS[watch]):
        raise Invalid(
            f"{wrong[0]} has no effect with {watch}: it takes {', '.join(sorted(OTHERS[watch])) or 'no other key'}"
        )
    if missing := sorted(NEEDED.get(watch, set()) - given):
        raise Invalid(f"{watch} needs {missing[0]}")
    if trigger.name and not NAME.fullmatch(trigger.name):
        raise Invalid(f"name is {trigger.name!r}: use 1 to 64 letters, digits, spaces and . _ -")
    if watch in ("message", "rate", "latency", "silence"):
        _check_channel(trigger.target, watch, pattern=False)
    if watch == "message":
        _check_message(trigger)
    if watch == "rate":
        _check_rate(trigger)
    if trigger.latency is not None and trigger.above is not None:
        units.seconds(trigger.above, "above")
    if trigger.longer is not None:
        units.seconds(trigger.longer, "longer")
    if trigger.over is not None:
        units.seconds(trigger.over, "over")
    if watch in ("death", "call") and not trigger.target.strip():
        raise Invalid(
            f"{watch} is empty: " + ("name a process, or write 'any'" if watch == "death" else "name the call")
        )


OTHERS_ALL = frozenset().union(*OTHERS.values())


def _check_message(trigger: Trigger) -> None:
    kind = parse(trigger.target).kind
    if kind.one_reader:
        raise Invalid(
            f"message is {trigger.target}: each of its messages goes to one reader, and the black box would take it"
        )
    if trigger.block and kind.lossy:
        raise Invalid(f"block has no effect with {trigger.target}: its writer waits for nobody")
    assert trigger.when is not None
    try:
        Condition(trigger.when)
    except Invalid as error:
        raise Invalid(f"when: {error}") from None


def _check_rate(trigger: Trigger) -> None:
    if trigger.above is None and trigger.below is None:
        raise Invalid("rate needs above or below: messages per second")
    for key, value in (("above", trigger.above), ("below", trigger.below)):
        if value is not None and (isinstance(value, str) or not 0 <= value < 1e15):
            raise Invalid(f"{key} is {value!r}: with rate it must be a number of messages per second, from 0 on")
    if None not in (trigger.above, trigger.below) and float(trigger.above or 0) <= float(trigger.below or 0):
        raise Invalid(f"above is {trigger.above} and below is {trigger.below}: every rate would be a reason")


def _check_channel(name: str, key: str, *, pattern: bool) -> None:
    try:
        if pattern and is_pattern(name):
            check_patterns([name])
            if not may_match(name):
                raise Invalid("no channel in shared memory matches it: nothing of the others is kept here")
            return
        if is_pattern(name):
            raise Invalid("it must be one channel, not a pattern")
        parsed = parse(name)
        if parsed.kind.memory is None or parsed.fake:
            raise Invalid("it is not in shared memory: nothing of it is kept here")
    except PenstockError as error:
        raise Invalid(f"{key} is {name!r}: {error}") from None


def as_dict(config: Config) -> dict[str, Any]:
    """The configuration as plain values."""
    found: dict[str, Any] = msgspec.to_builtins(config)
    return found
