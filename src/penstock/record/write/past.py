"""How a recorder joins a channel in its past: at the first message that was sent at some time or later, as far as memory still has it.

Knows kinds, looks and positions; knows no folder.
"""

from __future__ import annotations

from typing import Any

from penstock._native import core as _native
from penstock.channels.storage import inspection
from penstock.channels.storage.looking import look_at
from penstock.channels.uri.channel import Channel
from penstock.errors import Invalid, TooSlow


class Past:
    """The past that a recorder wants: messages sent at `since_ns` or later. One thread at a time.

    about: the reason for it, for the description of each recording.
    """

    def __init__(self, since_ns: int, about: dict[str, Any]) -> None:
        self.since_ns, self.about = since_ns, about
        self._short: dict[int, Any] = {}  # subscriptions of which memory had less than that

    def is_short(self, subscription: Any) -> bool:
        """Whether a part of the wanted past was not in memory any more when this subscription joined."""
        return id(subscription) in self._short

    def join(self, channel: Channel, options: dict[str, Any]) -> Any:
        """A recorder's subscription at the first message of this past. options: of the kind's tap."""
        kind = channel.kind
        assert kind.tap is not None
        if kind.own_positions:  # it keeps no messages that were read
            return kind.tap(channel, **options)
        if kind.by_reference:
            return self._join_frames(channel, options)
        if kind.lossy:
            return self._join_ring(channel, options)
        if kind.left_tap is not None and not any(member.reads for member in inspection.inspect(kind, channel).members):
            return kind.left_tap(channel, **options)
        subscription = kind.tap(channel, start="earliest", **options)
        if not hasattr(subscription, "streams") and _native.decided(subscription):
            first = inspection.about_opened(kind, subscription)["start_position"]
            self.skip_older(subscription, first)
        return subscription

    def skip_older(self, subscription: Any, first: int) -> int:
        """Skips the messages before this past, of a stream that keeps its positions; how many. first: where the stream began."""
        begun = subscription.position
        while True:
            try:
                skipped = _native.pass_older(subscription, self.since_ns)
                break
            except TooSlow:  # writers do not wait for it: it is at the oldest kept message again
                begun = subscription.position
        if not skipped and begun > first:
            self._short[id(subscription)] = subscription
        return skipped

    def _join_ring(self, channel: Channel, options: dict[str, Any]) -> Any:
        assert channel.kind.tap is not None
        look = look_at(channel)
        if look is None:  # it has no first publication
            return channel.kind.tap(channel, start="newest", **options)
        oldest, end = look.oldest(), look.end()
        rows = look.times(oldest, end)
        wanted = [position for position, time_ns in rows if time_ns >= self.since_ns]
        try:
            subscription = channel.kind.tap(channel, start=wanted[0] if wanted else end, **options)
        except Invalid:  # it was lapped in the meantime
            subscription = channel.kind.tap(channel, last=len(wanted), **options)
        first = inspection.about_opened(channel.kind, subscription)["start_position"]
        if len(wanted) == len(rows) and oldest > first:
            self._short[id(subscription)] = subscription
        return subscription

    def _join_frames(self, channel: Channel, options: dict[str, Any]) -> Any:
        kind = channel.kind
        assert kind.tap is not None
        about = inspection.inspect(kind, channel)
        times: list[int] = []
        with kind.subscribe(channel, last=about.details["buffers"], conflate=False, when_slow="skip") as kept:
            while len(times) < about.details["buffers"] and (frame := kept.try_recv()) is not None:
                with frame:  # one at a time: the publication needs the others
                    times.append(frame.time_ns)
        wanted = [time_ns for time_ns in times if time_ns >= self.since_ns]
        subscription = kind.tap(channel, last=len(wanted), **options)
        if len(wanted) == len(times) < about.totals.messages_sent:
            self._short[id(subscription)] = subscription
        return subscription
