"""Replays the recordings of an archive to channels, all on one clock. Knows planned ranges; channels come from a `Connector`."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock import codecs
from penstock.channels.checks import texts
from penstock.channels.uri.channel import parse
from penstock.channels.uri.value import AnyChannel, AnyChannels, uris_of
from penstock.errors import Invalid, NotFound, Unsupported
from penstock.record.format.types import Connector
from penstock.record.read import late, replay
from penstock.record.read.merging import Merged, merged
from penstock.record.read.pace import Pace, Playhead
from penstock.record.read.planning.plan import ReadPlanner
from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import TIME_MAX
from penstock.util.clock import Clock, ManualClock

Progress = Callable[[str, int, int], None]
Onto = str | Mapping[Any, AnyChannel] | None


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


def check_patterns(channels: AnyChannels) -> list[str]:
    """Channels and patterns, as one text or several."""
    named = uris_of(channels)
    asked = [named] if isinstance(named, str) else texts(named, "channels", "channels and patterns")
    if not asked:
        raise Invalid("channels is empty: name at least one channel, or '*' for all")
    return asked


def chosen(there: Collection[str], asked: Collection[str]) -> set[str]:
    """The channels to play: those that are named, and those that match patterns, except channels with one reader per message."""
    return {channel for channel in there if channel in asked or not parse(channel).kind.one_reader}


def renamed(channel: str, onto: Onto) -> AnyChannel:
    """The channel that messages of `channel` are played onto. onto: a prefix of the name, or a mapping; None: the same channel."""
    if onto is None:
        return channel
    if not isinstance(onto, str):
        return onto.get(channel, channel)
    parsed = parse(channel)
    written = str(parsed)
    return f"{written.removesuffix(parsed.name)}{onto}{parsed.name}"


def begun(ranges: list[Range], span: tuple[int, int], start: float) -> tuple[int, int]:
    """The span that begins so many seconds behind its first message. `Invalid` for anything but a number from 0 on."""
    if isinstance(start, bool) or not isinstance(start, int | float) or not 0 <= start < float("inf"):
        raise Invalid(f"start is {start!r}: give recorded seconds behind the first message, from 0 on")
    if not start or not ranges:
        return span
    first = max(span[0], min(one.time_min for one in ranges))
    return min(first + int(start * 1e9), TIME_MAX), span[1]


def check_clock(clock: AnyChannel | None, onto: Onto, channels: Collection[str]) -> None:
    """`Invalid` for a channel of the clock that messages are played onto, or that cannot have its times."""
    if clock is None:
        return
    parsed = parse(clock)
    replay.check_target(str(parsed))
    if parsed.kind.by_reference or parsed.kind.one_reader:
        raise Invalid(f"clock is {clock}: give it a channel that every reader reads whole, such as log:clock")
    check_not_played("clock", clock, onto, channels)


def check_not_played(name: str, channel: AnyChannel, onto: Onto, channels: Collection[str]) -> None:
    """`Invalid` for a channel beside the playing that messages are played onto. name: of the option."""
    if str(parse(channel)) in {str(parse(renamed(one, onto))) for one in channels}:
        raise Invalid(f"{name} is {channel}, onto which a recording is played: give the {name} a channel of its own")


def check_onto(onto: Onto, channels: Collection[str], *, recorded_times: bool = False) -> Onto:
    """`onto`, with texts for the channels that are played. `Invalid` for a prefix that names a channel, and for two channels onto one; `NotFound` for a mapping of a channel that is not played;
    `Unsupported` for a channel that cannot be played onto, or not with recorded times."""
    if onto is not None and not isinstance(onto, str | Mapping):
        raise Invalid(f"onto is {onto!r}: it must be a prefix for names, such as 'again/', or a mapping of channels")
    if isinstance(onto, str) and (":" in onto or not onto):
        raise Invalid(
            f"onto is {onto!r}: give a prefix for names, such as 'again/', or a mapping of channels to channels"
        )
    if isinstance(onto, Mapping):
        names = texts(uris_of(list(onto)), "onto", "channels, each with the one that it is played onto")
        onto = dict(zip(names, onto.values(), strict=True))
    if isinstance(onto, Mapping) and (missing := sorted(set(onto) - set(channels))):
        raise NotFound(f"{', '.join(missing)} is not played; {', '.join(sorted(channels)) or 'nothing'} is")
    sources: dict[str, str] = {}
    for channel in sorted(channels):
        target = str(parse(renamed(channel, onto)))
        replay.check_target(target)
        if recorded_times and parse(target).kind.name == "udp":
            raise Unsupported(
                f"{target}: a sender's clock paces its datagrams, so messages there have the times at which they are sent: "
                "play it without recorded times, or onto a log:"
            )
        if target in sources:
            raise Invalid(
                f"{sources[target]} and {channel} would both be played to {target}: play them to two channels"
            )
        sources[target] = channel
    return onto


@dataclass(frozen=True)
class Plan:
    """What to play. kept: last values that are in no range, in the order of their times. Those from before the first message of a range are
    published at once."""

    ranges: list[Range]
    kept: list[Merged]
    span: tuple[int, int]


def plan(survey: ReadPlanner, span: tuple[int, int], start: float) -> Plan:
    """The messages of a span, from so many seconds behind its first one on."""
    ranges = survey.plan(since=span[0], until=span[1])
    span = begun(ranges, span, start)
    return Plan(ranges, late.latched(survey, *span), span)


class Player:
    """One call of `Archive.play`. tell: the channel for the recorded time. recorded_times: whether messages have theirs."""

    def __init__(
        self,
        connector: Connector,
        clock: Clock,
        timeout: float | None,
        tell: AnyChannel | None = None,
        *,
        recorded_times: bool = False,
    ) -> None:
        self._tell, self._stamps = tell, ManualClock() if recorded_times else None
        self._connector, self._clock, self._timeout = connector, clock, timeout
        self._open = contextlib.ExitStack()
        self._publications: dict[str, Any] = {}
        self._targets: dict[int, _Target | None] = {}
        self._carries: dict[str, dict[str, Any]] = {}
        self._left_out: list[str] = []

    def run(
        self,
        plan: Plan,
        onto: Onto,
        pace: Pace,
        progress: Progress,
        *,
        loop: bool = False,
    ) -> Played:
        """Publishes the plan's messages, again and again with `loop`. Every channel is opened before the first message."""
        ranges, span = plan.ranges, plan.span
        sources = [*ranges, *(one.source for one in plan.kept)]
        counts = dict.fromkeys(sorted({one.channel for one in sources}), 0)
        with self._open:
            for one in sources:
                self._find(one, onto)
            playable = [one for one in ranges if self._targets[one.recording] is not None]
            kept = [one for one in plan.kept if self._targets[one.source.recording] is not None]
            total = sum(one.messages for one in playable) + len(kept)
            begin = max(span[0], min((one.time_min for one in ranges if one.messages), default=TIME_MAX))
            early = [one for one in kept if one.time_ns < begin]
            moved = self._open_clock() if self._tell is not None else None
            while True:
                head, played = Playhead(pace, self._clock, moved), 0
                own = merged(playable, *span, self._note_damage)
                timed = heapq.merge(kept[len(early) :], own, key=lambda one: one.time_ns)
                for message in itertools.chain(early, head.due(timed)):
                    way = self._targets[message.source.recording]
                    assert way is not None
                    data = message.payload if way.decode is None else way.decode(message.payload)
                    if self._stamps is not None:
                        self._stamps.now_ns = message.time_ns
                    replay.send(way.publication, data, way.source, way.frames, self._timeout)
                    counts[message.source.channel] += 1
                    played += 1
                    progress("playing", played, total)
                if not (loop and played > len(early)) or pace.stopped:
                    break
        return Played({name: count for name, count in counts.items() if count}, tuple(self._left_out))

    def _find(self, one: Range, onto: Onto) -> None:
        """Opens the channel that a recording is played onto."""
        if one.recording in self._targets:
            return
        target = renamed(one.channel, onto)
        name = str(parse(target))
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
        if name not in self._publications:
            if self._stamps is not None:
                options["clock"] = self._stamps
            self._publications[name] = self._open.enter_context(self._connector.publish(target, **options))
            self._carries[name] = carries
        elif self._carries[name] != carries:
            self._leave_out(one, "has another codec than those before it: play it separately, onto another channel")
            return
        decode = codecs.from_spec(one.codec).parse if frames else None
        self._targets[one.recording] = _Target(self._publications[name], source, frames, decode)

    def _leave_out(self, one: Range, why: str) -> None:
        self._left_out.append(f"{one.channel}: recording {one.recording} {why}")
        self._targets[one.recording] = None

    def _note_damage(self, text: str) -> None:
        if text not in self._left_out:  # a loop meets it again
            self._left_out.append(text)

    def _open_clock(self) -> Callable[[int], None]:
        """Opens the channel for the recorded time, and gives the function that sends it there: a message without room is left out."""
        assert self._tell is not None
        publication = self._open.enter_context(self._connector.publish(self._tell, codec="json"))

        def moved(time_ns: int) -> None:
            sec, nanosec = divmod(time_ns, 10**9)
            publication.offer({"clock": {"sec": sec, "nanosec": nanosec}})

        return moved
