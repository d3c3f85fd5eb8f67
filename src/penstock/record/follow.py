"""Follow: a recording from some position, then its channel live, without a gap or a duplicate.

The hand-over: read what is recorded, then subscribe at the position where reading stopped. If the channel keeps that
position, every later message comes live; if not, more was recorded meanwhile: read on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock.channel import parse
from penstock.errors import Busy, Closed, Invalid, NotFound, TimedOut

if TYPE_CHECKING:
    from penstock.record.archive import Archive, Connector, Recorded, RecordingInfo


def follow(
    archive: Archive, connector: Connector, info: RecordingInfo, start: int, timeout: float | None
) -> Iterator[Recorded]:
    """See `Archive.follow`."""
    from penstock.record.archive import _rows

    decode = codecs.from_spec(info.codec).decode
    position = start
    given: set[int] = set()  # positions at or after `position` that went out already: messages between fragments
    quiet_since = archive._clock.monotonic()
    while True:
        scanner = archive.scan(info.id, start=position, batch_rows=4096)
        for batch in scanner:
            for message in _rows(batch, decode):
                if message.position not in given:
                    given.add(message.position)
                    yield message
            quiet_since = archive._clock.monotonic()
            given = {p for p in given if p >= scanner.resume}
        position = max(position, scanner.resume)
        subscription = _join(connector, info, position)
        if subscription is not None:
            yield from _live(subscription, given, timeout)
            return
        now = archive.find(info.id)
        if now.state != "live" and now.end_position <= position:
            return
        if timeout is not None and archive._clock.monotonic() - quiet_since > timeout:
            raise TimedOut(f"{info.channel}: nothing was recorded for {timeout} seconds")
        archive._clock.sleep(0.01)


def _join(connector: Connector, info: RecordingInfo, position: int) -> Any:
    """A subscription at `position` of the very channel that was recorded, or None if that is not to be had (yet).

    A channel that keeps nothing is only ever read from its recording: who is lapped would have a gap that the recording does not
    have.
    """
    if not parse(info.channel).keeps:
        return None
    try:
        if connector.describe(info.channel)["epoch"] != info.epoch:
            return None
        return connector.subscribe(info.channel, start=position)
    except (NotFound, Invalid, Busy):
        return None


def _live(subscription: Any, given: set[int], timeout: float | None) -> Iterator[Recorded]:
    from penstock.record.archive import Recorded

    with subscription:
        while True:
            try:
                data = subscription.recv(timeout)
            except Closed:
                return
            position, time_ns, session = subscription.last
            if position not in given:
                yield Recorded(data, position, time_ns, session)
