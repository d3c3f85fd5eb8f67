"""Follow: a recording from a position on, then its channel live, without a gap or a duplicate, until its recorder ends.

The hand-over: read what is recorded, then subscribe at the position where reading stopped. If the channel keeps that
position, every later message is received live; if not, more was recorded in the meantime: it continues to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

from penstock import codecs
from penstock.channels.uri.channel import parse
from penstock.errors import Busy, Closed, DecodeError, Invalid, NotFound, PenstockError, TimedOut
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import RecordingFolder
from penstock.record.format.served import look_at
from penstock.record.format.types import Connector, Recorded, RecordingInfo
from penstock.record.read.replay import messages
from penstock.record.read.scan import Scanner
from penstock.util.clock import Clock
from penstock.util.files.durable import system_failure
from penstock.util.patient_calls import ASK_SECONDS, Attempt, Unfinished, in_time, within

log = logging.getLogger("penstock")

NAP_SECONDS = 0.01
CHECK_SECONDS = 0.1  # between checks that the recorder is still there, and between looks at another machine
Find = Callable[[int], tuple[RecordingInfo, RecordingFolder]]


def follow(
    scan: Callable[[RecordingFolder, int], Scanner],
    connector: Connector,
    clock: Clock,
    find: Find,
    recording: int,
    start: int | None,
    timeout: float | None,
) -> Generator[Recorded | DecodeError, None, None]:
    """See `Archive.follow`. Continues in the next recording if a recorder with limits divided its recordings."""
    following: int | None = recording
    try:
        while following is not None:
            with in_time(timeout, f"recording {following}"):
                info, folder = find(following)
            begin = info.start_position if start is None else start
            following = yield from _follow(scan, connector, clock, find, info, folder, begin, timeout)
            start = None
    except PenstockError:
        raise
    except OSError as error:
        raise system_failure(error) from error


def _follow(
    scan: Callable[[RecordingFolder, int], Scanner],
    connector: Connector,
    clock: Clock,
    find: Find,
    info: RecordingInfo,
    folder: RecordingFolder,
    start: int,
    timeout: float | None,
) -> Generator[Recorded | DecodeError, None, int | None]:
    """One recording. Returns the one in which its recorder continued, if that is still to be read."""
    codec = codecs.from_spec(info.codec)
    position = start
    given: set[int] = set()  # positions at or after `position` that were yielded already: messages between fragments
    quiet_since = clock.monotonic()
    while True:
        left = None if timeout is None else timeout - (clock.monotonic() - quiet_since)
        with in_time(left, info.channel):
            looked = look_at(folder)
            live = grows(looked)  # before the scan, which then sees everything that a finished recorder wrote
            scanner = scan(looked, position)
            batches = iter(scanner)
        while True:
            with in_time(left, info.channel):
                batch = next(batches, None)
            if batch is None:
                break
            for message in messages(batch, codec, info.channel):
                if message.position not in given:
                    given.add(message.position)
                    yield message
            quiet_since = clock.monotonic()
            given = {p for p in given if p >= scanner.resume}
        position = max(position, scanner.resume)
        if not live:
            _log_end(folder, info)
            return folder.following()
        subscription = _join(connector, info, position)
        if subscription is not None:
            last = yield from _live(subscription, folder, clock, find, given, timeout)
            _log_end(last, info)
            return None
        if timeout is not None and clock.monotonic() - quiet_since > timeout:
            raise TimedOut(f"{info.channel}: nothing was recorded for {timeout} seconds")
        clock.sleep(NAP_SECONDS if folder.opener is None else CHECK_SECONDS)


def grows(folder: RecordingFolder) -> bool:
    """Whether a recorder writes the recording, or it is a copy of which the rest is yet to come."""
    return folder.is_live() or folder.ended(sealed=True) == "partial"


def _join(connector: Connector, info: RecordingInfo, position: int) -> Any:
    """A subscription at `position` of the very channel that was recorded; None if it cannot be had, or not yet.

    A channel that keeps no messages is read from its recording only: a subscription that is lapped would have a gap that the
    recording does not have.
    """
    if not parse(info.channel).kind.keeps:
        return None
    try:
        if connector.describe(info.channel)["epoch"] != info.epoch:
            return None
        subscription = connector.subscribe(info.channel, start=position)
    except (NotFound, Invalid, Busy):
        return None
    try:  # the name may have been given to another channel in between
        if connector.describe_opened(subscription)["epoch"] == info.epoch:
            return subscription
    except NotFound:
        pass
    subscription.close()
    return None


def _live(
    subscription: Any, folder: RecordingFolder, clock: Clock, find: Find, given: set[int], timeout: float | None
) -> Generator[Recorded | DecodeError, None, RecordingFolder]:
    """Messages as they are published, until no recorder writes the recording, or one that follows it, any more; then the rest of the
    recording. Returns the last recording."""
    attempt = Attempt()
    with subscription:
        looked = quiet_since = clock.monotonic()
        while True:
            try:
                data = subscription.recv(CHECK_SECONDS if timeout is None else min(CHECK_SECONDS, timeout))
            except Closed:
                return folder
            except TimedOut:
                looked = float("-inf")
                if timeout is not None and clock.monotonic() - quiet_since >= timeout:
                    folder, live = _last(folder, find, attempt)
                    if not live:
                        return folder
                    raise
            except DecodeError as error:
                if error.position not in given:
                    yield error
                quiet_since = clock.monotonic()
            else:
                last = subscription.last
                if last.position not in given:
                    yield Recorded(data, last.position, last.time_ns, last.session)
                quiet_since = clock.monotonic()
            if clock.monotonic() - looked >= CHECK_SECONDS:
                looked = clock.monotonic()
                folder, live = _last(folder, find, attempt)
                if not live:
                    with in_time(timeout, subscription.channel):
                        end = _end_of(folder)
                    yield from _remaining(subscription, end, given)
                    return folder


def _last(folder: RecordingFolder, find: Find, attempt: Attempt) -> tuple[RecordingFolder, bool]:
    """The live recording that continues a given one, and whether it is live. A machine that does not answer at once has not said that it ended."""
    try:
        with within(ASK_SECONDS, attempt):
            while not grows(folder) and (following := folder.following()) is not None:
                _, folder = find(following)
            return folder, grows(folder)
    except NotFound:  # purged
        return folder, False
    except Unfinished:
        return folder, True


def _end_of(folder: RecordingFolder) -> int:
    """Where a recording ends; 0 if it was purged."""
    try:
        return coverage_of(folder, folder.describe().start_position).end_position
    except NotFound:
        return 0


def _remaining(subscription: Any, end: int, given: set[int]) -> Generator[Recorded | DecodeError, None, None]:
    """The rest of the recording. The channel still keeps it, since it waits for this subscription."""
    while subscription.position < end:
        try:
            data = subscription.try_recv()
        except DecodeError as error:
            if error.position < end and error.position not in given:
                yield error
            continue
        if data is None:
            return
        last = subscription.last
        if last.position < end and last.position not in given:
            yield Recorded(data, last.position, last.time_ns, last.session)


def _log_end(folder: RecordingFolder, info: RecordingInfo) -> None:
    try:
        sealed = coverage_of(folder, folder.describe().start_position).sealed
    except (NotFound, OSError):
        return
    if not sealed and not folder.is_live():
        log.warning("recording %d of %s ends here because its recorder died", int(folder.path.name), info.channel)
