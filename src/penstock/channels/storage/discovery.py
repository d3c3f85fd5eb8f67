"""Channels of this user: listed, inspected, made, removed; and those that patterns match, as they appear."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.channels.checks import texts
from penstock.channels.status import Channels, ChannelStatus
from penstock.channels.storage import files, inspection, memory, opening
from penstock.channels.uri.channel import FAKE, Channel
from penstock.channels.uri.opener import faked, parse
from penstock.channels.uri.registry import kind_named
from penstock.channels.uri.value import AnyChannel, AnyChannels, shaping_of, tested_of, uris_of
from penstock.channels.uri.wildcards import check_patterns, matches_any
from penstock.errors import Mismatch, NotFound, PenstockError, Unsupported
from penstock.util.clock import SystemClock
from penstock.util.files.durable import is_shortage

_logger = logging.getLogger("penstock")
_warned: set[files.Stranger] = set()
SETTLED_NS = 50_000_000  # a folder changed this long ago: a later change has another time


def in_process() -> list[Channel]:
    """The channels of this process."""
    return [Channel(kind_named(kind), name, fake=True) for kind, name in memory.listing()]


def listing(patterns: Sequence[str]) -> tuple[list[Channel], list[files.Stranger]]:
    """This user's channels that match one of the patterns, and files with names like a channel's that are not channels.

    `fake:` channels of this process are included if a pattern begins with `fake:`, as in `fake:log:*`.
    """
    check_patterns(patterns)
    names, strange = files.listing()
    found = [one for one in names if not faked(one.kind) and matches_any(patterns, str(one))]
    own = [pattern for pattern in patterns if pattern.startswith(f"{FAKE}:")]
    for one in in_process():
        fake = replace(one, uri=f"{FAKE}:{one}")
        if matches_any(own, str(fake)):
            found.append(fake)
        elif faked(one.kind) and matches_any(patterns, str(one)):
            found.append(one)
    return found, strange


class ChannelDiscovery:
    """Finds new channels that match patterns. For one thread at a time."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = list(patterns)
        check_patterns(self._patterns)
        self._seen: set[tuple[str, int]] = set()
        self._state: object = None

    def new(self) -> list[str]:
        """URIs of the channels that are new since the last call; the first call returns all. If nothing changed, a call costs one `stat` of the folder.
        A channel that was removed and created again is new."""
        state = self._changes()
        if state is not None and state == self._state:
            return []
        self._state = state
        there = {(str(one), files.identity(one)) for one in listing(self._patterns)[0]}
        fresh = there - self._seen
        self._seen = there
        return sorted(uri for uri, _ in fresh)

    def _changes(self) -> object:
        """A value that changes whenever a channel is created or removed; None if it may not have changed yet."""
        try:
            found = os.stat(files.folder())
        except OSError:
            return memory.count(), 0, 0
        if SystemClock().now_ns() - found.st_mtime_ns < SETTLED_NS:
            return None
        return memory.count(), found.st_ino, found.st_mtime_ns


def local(channel: AnyChannel) -> Channel:
    """The channel in shared memory that a URI names. `Unsupported` if it is not in shared memory."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(
            f"{channel} is not in shared memory: there is nothing to inspect, to remove or to record here"
        )
    return parsed


def list_channels(patterns: AnyChannels = "*") -> Channels:
    """Every channel of this user with its counters, read without locks.

    patterns: only channels that match one of them: ``log:*`` of a kind, ``robot/*`` of any kind; ``*`` is any text, slashes included. A
    file in the channel folder that is not a channel is left out, and a warning on the logger `penstock` names it once.
    """
    found, strange = survey(patterns)
    for stranger in strange:
        if stranger not in _warned:
            _warned.add(stranger)
            _logger.warning("%s is left out: %s", stranger.path, stranger.why)
    return Channels(found)


def survey(patterns: AnyChannels = "*") -> tuple[list[ChannelStatus], list[files.Stranger]]:
    """Every channel of this user, and every file in the channel folder with a name like a channel's that is not a channel.

    A channel that is removed in the meantime is in neither list.
    """
    given = uris_of(patterns)
    named = [given] if isinstance(given, str) else texts(given, "patterns", "channels and patterns such as 'log:*'")
    there, strange = listing(named)
    found = []
    for channel in there:
        try:
            found.append(inspection.inspect(channel.kind, channel))
        except NotFound:
            continue
        except (PenstockError, OSError, ValueError, RecursionError) as error:  # this file's trouble, and no other's
            if (
                is_shortage(error) or getattr(error, "errno", None) == errno.EROFS
            ):  # the process's or the mount's trouble
                raise
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            strange.append(files.Stranger(opening.where(channel), str(why)))
    return found, sorted(strange, key=lambda stranger: stranger.path)


def inspect(channel: AnyChannel) -> ChannelStatus:
    """One channel's sizes, totals and members. `NotFound` if there is none."""
    parsed = local(channel)
    return inspection.inspect(parsed.kind, parsed)


def remove(channel: AnyChannel) -> None:
    """Removes a channel's name and, once no process has it open, its memory. `NotFound` if there is none."""
    files.unlink(local(channel))


def check_agrees(channel: AnyChannel, *, create: bool = True) -> None:
    """`Mismatch` if a channel in shared memory is not as its value says. With `create`, its first publication has to be, if there was none yet.

    Publications of `udp:` are not compared: each has a codec of its own. Frames without a shape are not, before they exist.
    """
    shaping = dict(shaping_of(channel) or {})
    shaping |= {name: value for name, value in tested_of(channel).items() if name not in ("clock", "prefault")}
    if not shaping or (parsed := parse(channel)).kind.memory is None:
        return
    if not create and not files.identity(parsed):
        return
    codec = shaping.pop("codec", None)
    if parsed.kind.layout.open_slots is not None:
        opening.open_reader(parsed.kind, parsed, shaping, codec, lambda fd, path: None, lambda fd, path: None)
    elif parsed.kind.by_reference:
        with contextlib.suppress(NotFound):
            opening.open_end(parsed.kind, parsed, shaping, codec, lambda fd, path: None)


def codec_of(channel: str) -> dict[str, Any]:
    """The codec of a channel in shared memory, as JSON-ready data. `NotFound` if there is no channel, or if it is still open."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(f"{channel} is not in shared memory: its codec is not known here")
    found: dict[str, Any] = inspection.describe(parsed.kind, parsed)["codec"]
    return found


def make(channel: str, **options: Any) -> None:
    """Creates a channel in shared memory without opening it. An existing channel keeps its options."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(f"{channel} is not in shared memory: its publications and sockets make it")
    with contextlib.suppress(Mismatch):
        opening.open_end(parsed.kind, parsed, options, None, lambda fd, path: None)
