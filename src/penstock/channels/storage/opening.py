"""Opening channels of any kind: decided by the first publication, checked by every later opener.

Knows files and metadata; the kind's `Layout` describes its file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import flag, whole
from penstock.channels.kind import Kind as Kind
from penstock.channels.storage import files, memory
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Corrupt, Invalid, Mismatch, NotFound, SystemFailure, Unsupported


def where(channel: Channel) -> str:
    """The path of a channel's file."""
    if channel.fake:
        return f"{channel} (in process {os.getpid()})"
    return str(files.folder() / files.file_name(channel))


def place_of(channel: Channel) -> str:
    """A channel's URI and path, for errors: errors about a file name both, all others the URI."""
    return where(channel) if channel.fake else f"{channel} ({where(channel)})"


def open_end(
    kind: Kind, channel: Channel, requested: dict[str, Any], codec: Any, end: Callable[[int, str], Any]
) -> tuple[Any, Codec]:
    """The result of `end(descriptor, path)`, and the channel's codec. Creates the channel if it does not exist, and decides an open one.

    For every kind, `requested` may have `prefault`: bring the channel's memory into this process now, not when it is first used.
    """
    requested = dict(requested)
    prefault = flag(requested.pop("prefault", False), "prefault")
    fd, found = _open_or_create(kind, channel, requested, codec)
    try:
        made = end(fd, place_of(channel))
    finally:
        os.close(fd)
    _prepare_end(channel, made, prefault)
    return made, found


def open_reader(
    kind: Kind,
    channel: Channel,
    requested: dict[str, Any],
    codec: Any,
    end: Callable[[int, str], Any],
    early: Callable[[int, str], Any],
    start: tuple[str, int] = ("newest", 0),
) -> tuple[Any, Codec | None]:
    """The same for a handle that only reads: it does not decide the channel, but names options for the decision.

    Without a first publication the channel is open, or is created open: then this returns the result of `early`, and None for the codec.
    """
    requested = dict(requested)
    prefault = flag(requested.pop("prefault", False), "prefault")
    kind.options(**requested)
    while True:
        try:
            fd = files.open_existing(channel)
        except NotFound:
            _create_open(kind, channel, requested, codec)
            continue
        break
    try:
        with _hold_if_open(kind, channel, fd) as hold:
            if hold is None:
                found: Codec | None = _check_agreement(kind, channel, fd, requested, codec)
                made = end(fd, place_of(channel))
            else:
                _add_notes(kind, channel, fd, hold, requested, codec, start)
                made, found = early(fd, place_of(channel)), None
    finally:
        os.close(fd)
    _prepare_end(channel, made, prefault)
    return made, found


def _prepare_end(channel: Channel, made: Any, prefault: bool) -> None:
    if made is None:
        return
    if prefault:
        made.prefault()
    if channel.fake and isinstance(made, _native.ReaderEnd):
        made.lead_through(memory.gate(channel))


def _open_or_create(kind: Kind, channel: Channel, requested: dict[str, Any], codec: Any) -> tuple[int, Codec]:
    wanted = kind.options(**requested)
    while True:
        try:
            fd = files.open_existing(channel)
        except NotFound:
            chosen = codecs.resolve(codec)
            try:
                size = wanted.file_size
            except NotFound as error:
                raise NotFound(error.errno, f"there is no channel {channel}: {error.strerror}") from None
            files.create(channel, size, lambda new, chosen=chosen: kind.layout.format(wanted, chosen, new))  # type: ignore[misc]
            continue
        try:
            with _hold_if_open(kind, channel, fd) as hold:
                if hold is not None:
                    _configure_open(kind, channel, fd, hold, requested, codec)
            return fd, _check_agreement(kind, channel, fd, requested, codec)
        except BaseException:
            os.close(fd)
            raise


# ---- channels without a first publication: docs/design/open_channels.md ----


@contextlib.contextmanager
def _hold_if_open(kind: Kind, channel: Channel, fd: int) -> Iterator[_native.OpenHold | None]:
    """Holds the open byte while the block runs, if the channel is open; None if it is not."""
    path = place_of(channel)
    if kind.layout.open_slots is None or not _native.is_open(fd, path, channel.kind.name):
        yield None
        return
    hold = _native.OpenHold(fd, path)
    try:
        if _native.is_open(fd, path, channel.kind.name):
            yield hold
        else:  # decided in the meantime
            hold.release()
            yield None
    finally:
        hold.release()


def _drop_unset(requested: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in requested.items() if value is not None}


def _create_open(kind: Kind, channel: Channel, requested: dict[str, Any], codec: Any) -> None:
    assert kind.layout.open_slots is not None
    slots, notes = kind.layout.open_slots(kind.options(**requested)), _encode_notes(_drop_unset(requested), codec)
    size = _native.open_file_size(channel.kind.name, slots)
    files.create(
        channel,
        size,
        lambda fd: _native.format_open(
            fd=fd, kind=channel.kind.name, slots=slots, notes=notes, boot_id=files.boot_id()
        ),
    )


def _encode_notes(options: dict[str, Any], codec: Any) -> bytes:
    """The named options and codec, encoded for the file."""
    spec = None if codec is None else codecs.resolve(codec).spec
    return codecs.described({"options": options}, spec, _native.NOTES_MAX)


def _merge_options(
    kind: Kind, channel: Channel, fd: int, requested: dict[str, Any], codec: Any
) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """The options and the codec named by all subscriptions, this one included, and the options that others named."""
    place = place_of(channel)
    try:
        notes = json.loads(_native.read_notes(fd, place, channel.kind.name))
        others, spec = dict(notes["options"]), notes["codec"]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{place}: the options named for it are damaged: {error}") from error
    mine = _drop_unset(requested)
    for name, value in mine.items():
        if name in others and others[name] != value:
            raise Mismatch(
                f"{place} has no publication yet, and a subscription named {name}={others[name]}, not {value}. "
                f"Give {name}={others[name]} or leave {name} out, or {start_over(channel)}"
            )
    if codec is not None and spec is not None and codecs.agreed(codecs.from_spec(spec), codec) is None:
        raise Mismatch(
            f"{place} has no publication yet, and a subscription named the codec {_describe_codec(spec)}, not "
            f"{_describe_codec(codecs.resolve(codec).spec)}. Give that codec or leave codec out, or {start_over(channel)}"
        )
    return {**others, **mine}, spec if codec is None else codec, others


def _add_notes(
    kind: Kind,
    channel: Channel,
    fd: int,
    hold: _native.OpenHold,
    requested: dict[str, Any],
    codec: Any,
    start: tuple[str, int],
) -> None:
    """Adds the options that a subscription names. The caller holds the open byte."""
    assert kind.layout.open_slots is not None
    named, chosen, others = _merge_options(kind, channel, fd, requested, codec)
    options = _check_options(kind, channel, named, others)
    if start[0] == "position" and start[1] not in (0, named.get("start_position", 0)):
        raise Invalid(
            f"{channel}: position {start[1]} is not kept: nothing was published yet; start is 'newest' or 'earliest'"
        )
    if _drop_unset(requested) or codec is not None:
        limited = kind.layout.open_slots(options) if "max_members" in _drop_unset(requested) else None
        _native.write_notes(fd, place_of(channel), channel.kind.name, hold, _encode_notes(named, chosen), limited)


def _configure_open(
    kind: Kind, channel: Channel, fd: int, hold: _native.OpenHold, requested: dict[str, Any], codec: Any
) -> None:
    """Configures an open channel for its first publication. The caller holds the open byte."""
    named, chosen, others = _merge_options(kind, channel, fd, requested, codec)
    options = _check_options(kind, channel, named, others)
    try:
        kind.layout.format(options, codecs.resolve(chosen), fd, hold)
    except SystemFailure as error:
        if error.errno != errno.ENOSPC:
            raise
        raise SystemFailure(errno.ENOSPC, files.no_room(channel, options.file_size, error)) from error


def _check_options(kind: Kind, channel: Channel, named: dict[str, Any], others: dict[str, Any]) -> Any:
    try:
        return kind.options(**named)
    except Invalid as error:
        if not others:
            raise
        listed = ", ".join(f"{name}={value}" for name, value in others.items())
        raise Mismatch(
            f"{channel}: {error}; subscriptions named {listed}. Fit that, or {start_over(channel)}"
        ) from error


def start_over(channel: Channel) -> str:
    """The advice for a mismatch: how to remove the channel."""
    return f"remove the channel first: penstock.remove({str(channel)!r}), or penstock rm {channel} in a shell"


def _describe_codec(spec: dict[str, Any]) -> Any:
    """A codec's description as its user wrote it."""
    spec = codecs.bare(spec)
    return repr(spec["kind"]) if len(spec) == 1 else spec.get("message", spec)


def _check_agreement(kind: Kind, channel: Channel, fd: int, requested: dict[str, Any], codec: Any) -> Codec:
    """The channel's codec, or `Mismatch` if the channel has other options or another codec."""
    place = place_of(channel)
    there = kind.layout.inspect(fd, place)
    for name, value in requested.items():
        if value is not None and name in there and there[name] != value:
            raise Mismatch(
                f"{place} exists with {name}={there[name]}, not {value}. Give {name}={there[name]} or leave {name} out, "
                f"or {start_over(channel)}"
            )
    found = codecs.from_metadata(there["metadata"], place)
    agreed = codecs.agreed(found, codec)
    if agreed is None:
        raise Mismatch(
            f"{place} exists with the codec {_describe_codec(found.spec)}, not {_describe_codec(codecs.resolve(codec).spec)}. "
            f"Give that codec or leave codec out, or {start_over(channel)}"
        )
    return agreed


def start_of(start: Any, names: tuple[str, ...], last: Any = None) -> tuple[str, int]:
    """`start` for the compiled ends: a name and a position, "last" and a number of messages, or "keys" for the last value of each key. `Invalid` for anything else."""
    if last is not None:
        last = whole(last, "last")
        if start != "newest":
            raise Invalid("give either last or start, not both")
        return ("last", last) if last else ("newest", 0)
    wanted = " or ".join([*(repr(name) for name in names), "a position"])
    if isinstance(start, str) and start == "last" and start not in names:
        raise Unsupported(f"start is 'last', and only logs keep the last value of each key: it must be {wanted}")
    if isinstance(start, str) and start in ("newest", "earliest") and start not in names:
        raise Unsupported(
            f"start is {start!r}, and channels of this kind keep nothing to begin with: it must be {wanted}"
        )
    if isinstance(start, bool) or not isinstance(start, str | int) or (isinstance(start, str) and start not in names):
        raise Invalid(f"start is {start!r}: it must be {wanted}")
    if isinstance(start, str):
        return ("keys" if start == "last" else start), 0
    if not 0 <= start < 1 << 63:
        raise Invalid(f"start is {start}: positions are from 0 to below 2**63")
    return "position", start


def refuse_last(conflate: bool, last: Any) -> None:
    """`Invalid` if `conflate` is combined with `last` above 1: the reader would get one message."""
    if conflate and last is not None and whole(last, "last") > 1:
        raise Invalid(
            f"conflate=True reads only the newest message, and last={last} asks for {last} messages: give one of them"
        )
