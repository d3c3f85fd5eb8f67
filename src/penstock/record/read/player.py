"""Replays the recordings of an archive to channels, all on one clock. Knows planned ranges; channels come from a `Connector`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock import codecs
from penstock.channels.uri.channel import parse
from penstock.errors import Invalid, NotFound
from penstock.record.format.types import Connector
from penstock.record.read import replay
from penstock.record.read.merging import merged
from penstock.record.read.ranges import Range
from penstock.util.clock import Clock

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Played:
    """The result of `Archive.play`. messages: how many of each recorded channel. left_out: a text for each channel that cannot be played."""

    messages: dict[str, int]
    left_out: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Messages in all."""
        return sum(self.messages.values())


@dataclass
class _Target:
    """The channel for the messages of one recording, and their encoding there."""

    publication: Any
    source: replay.Source
    frames: bool
    decode: Callable[[bytes], Any] | None = field(repr=False)


def chosen(there: Collection[str], asked: Collection[str]) -> set[str]:
    """The channels to play: those that are named, and those that match patterns, except channels with one reader per message."""
    return {channel for channel in there if channel in asked or not parse(channel).kind.one_reader}


def renamed(channel: str, onto: str | Mapping[str, str] | None) -> str:
    """The channel that messages of `channel` are played onto. onto: a prefix of the name, or a mapping; None: the same channel."""
    if onto is None:
        return channel
    if not isinstance(onto, str):
        return onto.get(channel, channel)
    parsed = parse(channel)
    written = str(parsed)
    return f"{written.removesuffix(parsed.name)}{onto}{parsed.name}"


def check_onto(onto: str | Mapping[str, str] | None, channels: Collection[str]) -> None:
    """`Invalid` for a prefix that names a channel, and for two channels onto one; `NotFound` for a mapping of a channel that is not played;
    `Unsupported` for a channel that cannot be played onto."""
    if onto is not None and not isinstance(onto, str | Mapping):
        raise Invalid(f"onto is {onto!r}: it must be a prefix for names, such as 'again/', or a mapping of channels")
    if isinstance(onto, str) and (":" in onto or not onto):
        raise Invalid(
            f"onto is {onto!r}: give a prefix for names, such as 'again/', or a mapping of channels to channels"
        )
    if isinstance(onto, Mapping) and (missing := sorted(set(onto) - set(channels))):
        raise NotFound(f"{', '.join(missing)} is not played; {', '.join(sorted(channels)) or 'nothing'} is")
    sources: dict[str, str] = {}
    for channel in sorted(channels):
        target = str(parse(renamed(channel, onto)))
        replay.check_target(target)
        if target in sources:
            raise Invalid(
                f"{sources[target]} and {channel} would both be played to {target}: play them to two channels"
            )
        sources[target] = channel


class Player:
    """One call of `Archive.play`."""

    def __init__(self, connector: Connector, clock: Clock, timeout: float | None) -> None:
        self._connector, self._clock, self._timeout = connector, clock, timeout
        self._open = contextlib.ExitStack()
        self._publications: dict[str, Any] = {}
        self._targets: dict[int, _Target | None] = {}
        self._carries: dict[str, dict[str, Any]] = {}
        self._left_out: list[str] = []

    def run(
        self,
        ranges: list[Range],
        onto: str | Mapping[str, str] | None,
        speed: float | None,
        span: tuple[int, int],
        progress: Progress,
    ) -> Played:
        """Publishes the ranges' messages. Every channel is opened before the first message."""
        counts = dict.fromkeys(sorted({one.channel for one in ranges}), 0)
        with self._open:
            for one in ranges:
                self._find(one, onto)
            playable = [one for one in ranges if self._targets[one.recording] is not None]
            total = sum(one.messages for one in playable)
            for done, message in enumerate(self._in_rhythm(merged(playable, *span, self._left_out.append), speed), 1):
                way = self._targets[message.source.recording]
                assert way is not None
                data = message.payload if way.decode is None else way.decode(message.payload)
                replay.send(way.publication, data, way.source, way.frames, self._timeout)
                counts[message.source.channel] += 1
                progress("playing", done, total)
        return Played({name: count for name, count in counts.items() if count}, tuple(self._left_out))

    def _find(self, one: Range, onto: str | Mapping[str, str] | None) -> None:
        """Opens the channel that a recording is played onto."""
        if one.recording in self._targets:
            return
        target = renamed(one.channel, onto)
        source, frames = replay.Source(one.recording, one.channel, one.codec), replay.holds_frames(target)
        if frames and not replay.holds_frames(one.channel):
            self._leave_out(
                one, f"holds messages of {one.codec['kind']}, and no frames: name another channel than {target}"
            )
            return
        if frames and not one.codec.get("pixels"):
            self._leave_out(one, "has the notes of frames alone: it was recorded with pixels=False (--no-pixels)")
            return
        options = replay.as_recorded(source, frames)
        carries = options if frames else codecs.bare(options["codec"].spec)
        if target not in self._publications:
            self._publications[target] = self._open.enter_context(self._connector.publish(target, **options))
            self._carries[target] = carries
        elif self._carries[target] != carries:
            self._leave_out(one, "has another codec than those before it: play it separately, onto another channel")
            return
        decode = codecs.from_spec(one.codec).parse if frames else None
        self._targets[one.recording] = _Target(self._publications[target], source, frames, decode)

    def _leave_out(self, one: Range, why: str) -> None:
        self._left_out.append(f"{one.channel}: recording {one.recording} {why}")
        self._targets[one.recording] = None

    def _in_rhythm(self, found: Iterator[Any], speed: float | None) -> Iterator[Any]:
        if speed is None:
            yield from found
            return
        begun, first = self._clock.monotonic(), None
        for message in found:
            first = message.time_ns if first is None else first
            ahead = begun + (message.time_ns - first) / 1e9 / speed - self._clock.monotonic()
            if ahead > 0:
                self._clock.sleep(ahead)
            yield message
