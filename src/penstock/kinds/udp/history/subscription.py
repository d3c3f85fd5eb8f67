"""Subscriptions of `udp:` channels that begin in the past: an archive's messages, then the live stream's, joined by position.

While the past is read, live messages are kept aside, up to a limit; those that are dropped are read from the archive, too. So senders do
not wait for a reader of the past. Later, what the network lost for good is read from the archive, where it belongs.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.channels.checks import counted, limit_of
from penstock.channels.interfaces.subscription import Message, Received, Subscription
from penstock.channels.status import ChannelStatus
from penstock.channels.waiting.loops import patiently, readable
from penstock.codecs import Codec
from penstock.errors import Closed, DecodeError, PenstockError, TimedOut, TooSlow, Unsupported
from penstock.kinds.udp.history.losses import Joined, Losses
from penstock.kinds.udp.history.recorded import END, Asking, History, Key, Unread
from penstock.util.descriptors import SharedDescriptor
from penstock.util.patient_calls import ASK_SECONDS

if TYPE_CHECKING:
    from penstock.kinds.udp.handle import Session, UdpSubscription

Given = tuple[Any, Received | None]  # a message or an error, and a message's facts
ASIDE = 65_536  # live messages that are kept while the past is read
NAP_SECONDS, LOOK_SECONDS = 0.02, 0.5  # the second: between two looks for losses, while nothing arrives


class HistorySubscription(Subscription[Message]):
    """Reads an archive's messages of a stream, then the stream itself, in one order for each session, each message once.

    What the network lost for good is read from the archive as well, at its place. `lost` counts only what the archive does not have,
    either. While the archive is away, live messages behind a gap wait for it. `borrow` and `poll_arrow` are `Unsupported`.
    """

    __slots__ = (
        "_after", "_aside", "_begun", "_dropped", "_history", "_joined", "_last", "_live", "_lock", "_looked", "_losses", "_next", "_poller",
        "_read", "_rest", "_signal", "_task", "_unread", "_whole",
    )  # fmt: skip
    receives = True
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, live: UdpSubscription[Message], history: History, *, whole: bool) -> None:
        self._live, self._history = live, history
        self._lock = threading.RLock()
        self._aside: collections.deque[tuple[Any, Received | None]] = collections.deque()
        self._after: dict[Key, int] = {}  # within the last message that was given: its first byte is before that
        self._read: dict[int, int] = {}  # the last live message of a session that was read
        self._begun: set[Key] = set()  # sessions of which a live message was read
        self._joined = Joined(live, history)
        self._dropped: set[Key] = set()
        self._last: Received | None = None
        self._next: tuple[Any, Received | None] | None = None  # read by `ready`
        self._looked, self._losses, self._unread = float("-inf"), Losses(live), Unread(history if whole else None)
        self._rest: dict[Key, int] | None = None  # `_after`, when the archive was asked for the rest
        self._whole = whole
        signal = SharedDescriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._poller = select.epoll()
        self._signal: SharedDescriptor | None = signal  # None: closed
        self._poller.register(live.fileno(), select.EPOLLIN)
        self._poller.register(signal.fd, select.EPOLLIN)
        self._task = Asking(self._everything) if whole else None
        self._tell()

    # ---- reading ----

    def recv(self, timeout: float | None = None) -> Message:
        """The next message: of the archive, or live. `TimedOut` after `timeout` seconds, also while the archive is away."""
        limit = limit_of(timeout, self._live)
        end = None if limit is None else time.monotonic() + limit
        with self._lock:
            while True:
                found = self._step(None if end is None else max(end - time.monotonic(), ASK_SECONDS))
                if found is not None:
                    return self._given(found)
                left = LOOK_SECONDS if end is None else end - time.monotonic()
                if left <= 0:
                    raise self._timed_out(timeout)
                if self._task is None:
                    self._take(min(left, LOOK_SECONDS))
                else:
                    time.sleep(min(left, NAP_SECONDS))

    async def recv_async(self, timeout: float | None = None) -> Message:
        """The next message as `recv` gives it, awaited in the running event loop."""
        limit = limit_of(timeout, self._live)
        end = None if limit is None else time.monotonic() + limit
        while True:
            with self._lock:
                found = self._step()
                if found is not None:
                    return self._given(found)
            left = LOOK_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                raise self._timed_out(timeout)
            if self._task is not None:
                await asyncio.sleep(min(left, NAP_SECONDS))
                continue
            with contextlib.suppress(TimedOut):
                await patiently(readable(self._live.fileno()), min(left, LOOK_SECONDS), "")

    def try_recv(self) -> Message | None:
        """The next message, or None if there is none yet. Never blocks, but for the archive's own disk, and 50 ms for its network."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            found = self._step()
            return None if found is None else self._given(found)
        finally:
            self._lock.release()

    def poll(self, limit: int = 1000) -> list[Any]:
        """The messages that are there now, at most `limit` of them."""
        counted(limit, "poll", "limit", self)
        found: list[Any] = []
        while len(found) < limit:
            try:
                message = self.try_recv()
            except Exception:
                if not found:
                    raise
                break
            if message is None:
                break
            found.append(message)
        return found

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> NoReturn:
        """`Unsupported`."""
        raise Unsupported(
            f"{self.channel}: with archive=, poll_arrow is not there: the archive is a table itself, Archive.read"
        )

    def borrow(self, timeout: float | None = None) -> NoReturn:
        """`Unsupported`."""
        raise Unsupported(f"{self.channel}: with archive=, borrow is not there: recv copies the message")

    async def borrow_async(self, timeout: float | None = None) -> NoReturn:
        self.borrow()

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return self._live.channel

    @property
    def codec(self) -> Codec | None:
        """How live messages are decoded. Those of the archive are decoded by the codec that they were recorded with."""
        return self._live.codec or self._history.codec

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._live.closed

    @property
    def position(self) -> int:
        """Where the live stream is read."""
        return self._live.position

    @property
    def lag(self) -> int:
        """Bytes of the live stream that are not read yet."""
        return self._live.lag

    @property
    def lost(self) -> int:
        """Bytes that were lost on the way, and that the archive does not have."""
        return self._history.lost

    @property
    def lost_messages(self) -> int | None:
        """None: only the bytes are known."""
        return None

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent, and by whom."""
        return self._live.last if self._last is None else self._last

    @property
    def sessions(self) -> list[Session]:
        """The publications that it reads live, by their sessions."""
        return self._live.sessions

    def ready(self) -> bool:
        """Whether a call would give a message, or an error, at once."""
        with self._lock:
            try:
                self._next = self._step()
            except PenstockError:
                return True
            return self._next is not None

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to read."""
        self._live.fileno()  # `Closed`
        return self._poller.fileno()

    def statistics(self) -> ChannelStatus:
        """The channel's counters."""
        return self._live.statistics()

    def close(self) -> None:
        """Leaves the channel."""
        self._live.close()
        if not self._poller.closed:
            self._poller.close()
            self._signal = None  # another thread may be about to write to it

    def __reduce__(self) -> NoReturn:
        raise Unsupported(f"{self.channel}: with archive=, a subscription is not pickled: open it where it is read")

    # ---- joining ----

    def _given(self, found: tuple[Any, Received | None]) -> Message:
        data, last = found
        if last is not None:
            self._last = last
        if isinstance(data, DecodeError):
            raise data
        return data  # type: ignore[no-any-return]

    def _timed_out(self, timeout: float | None) -> TimedOut:
        why = f": it waits for its archive: {self._history.why}" if self._task is not None and self._history.why else ""
        return TimedOut(f"{self.channel}: no message within {timeout} seconds{why}")

    def _step(self, wait: float | None = ASK_SECONDS) -> tuple[Any, Received | None] | None:
        """The next message with its facts; None if there is none now. wait: for another machine's archive; None: as long as it takes."""
        if self._live.closed:
            raise Closed(f"{self.channel} is closed")
        found, self._next = self._next, None
        while found is None:
            if self._task is not None:
                self._keep_aside()
                given: Given | None = self._task.advance(wait)
                if given is not END:
                    return given
                self._task = None
                self._looked = time.monotonic()  # it may have taken long: the next look is later
                self._tell()
            elif self._aside:
                found = self._next_aside()
            elif not self._take(0.0):
                return None
        return found

    def _next_aside(self) -> tuple[Any, Received | None] | None:
        """The first message that was read live. None if it was given before, or if others come first: then there is a task."""
        data, last = self._aside.popleft()
        if last is None:  # not a message: sessions, and the positions that they must have been given up to
            self._begin(self._holes, data)
            return None
        key = self._joined.keys[last.session]
        if key in self._dropped:
            self._dropped.discard(key)
            self._aside.appendleft((data, last))
            self._begin(self._holes, {key: last.position})
            return None
        if last.position < self._after.get(key, 0):
            return None
        self._after[key] = last.position + 1
        return data, last

    def _begin(self, make: Any, *arguments: Any) -> None:
        self._task = Asking(make, *arguments)
        self._tell()

    def _holes(self, goals: Mapping[Key, int | None]) -> Iterator[Any]:
        if self._whole and not goals.keys() <= self._after.keys():  # it may follow others that were not recorded before
            live = set(self._joined.keys.values())
            for key in self._history.sessions():
                if key not in self._after and key not in live:
                    yield from self._filled(key, None)
        for key, goal in goals.items():
            yield from self._filled(key, goal)

    def _everything(self) -> Iterator[Any]:
        """Every recorded session, as far as it is recorded now; then what came before the live stream was joined."""
        while not (keys := self._history.sessions()) and self._history.why:
            yield None
        for key in keys:
            yield from self._filled(key, None)
        for key, joined in self._look().items():
            yield from self._filled(key, joined)

    def _filled(self, key: Key, goal: int | None) -> Iterator[Any]:
        for message in self._history.fill(key, self._after.get(key), goal):
            if message is None:
                yield None
                continue
            self._after[key] = message.position + 1
            if isinstance(message, DecodeError):
                yield message, None
            else:
                yield message.data, Received(message.position, message.time_ns, message.session)
        if goal is not None:  # all before it was given, or is lost
            self._after[key] = max(self._after.get(key, 0), goal)

    def _keep_aside(self) -> None:
        """Reads live messages while the past is read, so that senders go on."""
        for _ in range(256):
            if not self._take(0.0):
                break
        while len(self._aside) > ASIDE:
            data, last = self._aside.popleft()
            self._dropped |= set(data) if last is None else {self._joined.keys[last.session]}

    def _take(self, wait: float) -> bool:
        """Reads one live message, or what is said in place of one. Raises what the live stream does at its end, once nothing is missing."""
        message: Any = None
        try:
            message = self._live.try_recv() if wait <= 0 else self._live.recv(wait)
        except TimedOut:
            pass
        except DecodeError as error:
            message = error
        except TooSlow:  # the archive has what was missed
            return self._has_lost()
        except PenstockError:
            if self._task is not None:  # the past comes first
                return False
            if self._has_lost() or self._may_have_more():
                return True
            raise
        if message is None:
            if self._losses.has_new and self._has_lost():
                return True
            now = time.monotonic()
            if now - self._looked < LOOK_SECONDS:
                return False
            unread = self._unread.look(self._after) - set(self._joined.keys.values()) if self._task is None else set()
            self._looked = now + 10 * (time.monotonic() - now)  # a look at a large archive takes long
            if unread:
                self._aside.append((dict.fromkeys(unread), None))
            return bool(unread) or self._has_lost()
        last = self._live.last
        if isinstance(message, DecodeError):
            last = Received(message.position, 0, last.session)
        session = last.session
        known = session in self._read and last.position > self._read[session]
        self._read[session] = last.position
        if not known or self._losses.has_new:
            self._has_lost({session: last.position})
        key = self._joined.keys[session]
        if self._losses.is_later(key, last.position):
            self._aside.append(({key: last.position}, None))
        self._aside.append((message, last))
        return True

    def _has_lost(self, read: dict[int, int] | None = None) -> bool:
        """Notes the sessions of which something may be missing in front of the next message. read: where that begins."""
        joined = self._look()
        begins = {self._joined.keys[session]: position for session, position in (read or {}).items()}
        first = begins.keys() - self._begun  # where it was joined may be within a message
        self._begun |= first
        goals = (joined | dict.fromkeys(first) if self._whole else {}) | self._losses.goals(begins)
        goals |= {key: position for key, position in begins.items() if key in goals}
        if goals:
            self._aside.append((goals, None))
        return bool(goals)

    def _may_have_more(self) -> bool:
        """At an end: whether to look into the archive for the rest of sessions: one fell silent, its last bytes were lost, or its recorder was
        not done. Not twice, unless something was there."""
        keys = set(self._joined.keys.values()) | self._unread.look(self._after)  # one may have come and gone
        self._rest = None if not keys or self._rest == self._after else dict(self._after)
        if self._rest is None:
            return False
        self._aside.append((dict.fromkeys(keys), None))
        return True

    def _look(self) -> dict[Key, int]:
        """Sessions that are new, and where the live stream was joined."""
        if not self._whole:  # each begins where it was joined
            self._after = {key: joined for key, (joined, _, _) in self._live._reached().items()} | self._after
        return self._joined.look()

    def _tell(self) -> None:
        """Makes the descriptor readable while there is something besides the live stream."""
        signal = self._signal
        if signal is None:  # closed by another thread
            return
        if self._task is not None:
            os.eventfd_write(signal.fd, 1)
        else:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(signal.fd)
