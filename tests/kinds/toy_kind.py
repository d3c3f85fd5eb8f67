"""A whole kind of channel in pure Python: `toy:NAME`, queues between the threads of a process. See docs/design/adding_a_kind.md.

Every subscription gets every message; a full queue makes senders wait. It must never know another kind.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock import codecs
from penstock.channels.checks import counted, flag, limit_of, seconds, whole
from penstock.channels.interfaces.publication import Claim, Publication
from penstock.channels.interfaces.subscription import Received, Subscription
from penstock.channels.kind import Kind
from penstock.channels.status import ChannelMember, ChannelStatus, Totals
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting import loops
from penstock.codecs import Codec, buffers
from penstock.errors import Closed, EndOfStream, Mismatch, TimedOut, TooLarge, Unsupported

T = TypeVar("T")
MAX_PAYLOAD = 1 << 16
UNCOUNTED = ("back_pressure", "bytes_lost", "messages_lost")


@dataclass(frozen=True, kw_only=True)
class ToyOptions:
    """How a channel is made. max_messages: messages that may wait for one subscription."""

    max_messages: int = 100

    def __post_init__(self) -> None:
        whole(self.max_messages, "max_messages", 1)


class Place:
    """What the handles of one channel share. Its lock guards everything."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.codec: Codec | None = None  # until the first publication decides it
        self.options = ToyOptions()
        self.position = self.sent = 0
        self.publications: list[ToyPublication] = []
        self.subscriptions: list[ToySubscription] = []


_places: dict[str, Place] = {}
_lock = threading.Lock()


class Handle:
    """What a publication and a subscription have in common: a place, a descriptor that wakes waiters, and an end."""

    position: Any

    def __init__(self, channel: Channel, role: str, members: str) -> None:
        self._channel, self._role = channel, role
        self._closed, self._messages, self._bytes = False, 0, 0
        self._made_ns = time.time_ns()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with _lock:
            self._place = _places.setdefault(channel.name, Place())
            self._members: list[Any] = getattr(self._place, members)

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def fileno(self) -> int:
        """Readable while a waiter should look."""
        return self._event

    def wake(self) -> None:
        """Waiters look again. The caller holds the lock."""
        os.eventfd_write(self._event, 1)

    def calm(self) -> None:
        """There is nothing to look for. The caller holds the lock and has looked."""
        if not self._closed:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)

    def check_open(self) -> None:
        """`Closed` if it is."""
        if self._closed:
            raise Closed(f"{self.channel}: the handle is closed")

    def until(self, attempt: Callable[[], T | None], timeout: float | None, why: str) -> T:
        """The first result of `attempt` that is not None. `TimedOut` says why there was none."""
        limit = limit_of(timeout, self)
        found = loops.wait([self], lambda: [] if (one := attempt()) is None else [one], limit)
        if not found:
            raise TimedOut(f"{self.channel}: {why} within the timeout")
        return found[0]

    async def until_async(self, attempt: Callable[[], T | None], timeout: float | None, why: str) -> T:
        """`until` in the running event loop."""
        limit = limit_of(timeout, self)
        found = await loops.wait_async([self], lambda: [] if (one := attempt()) is None else [one], limit)
        if not found:
            raise TimedOut(f"{self.channel}: {why} within the timeout")
        return found[0]

    def close(self) -> None:
        """Leaves the channel. The last handle takes the channel with it."""
        with _lock, self._place.lock:
            if self._closed:
                return
            self._closed = True
            self._members.remove(self)
            for handle in (self, *self._place.publications, *self._place.subscriptions):
                handle.wake()
            if not self._place.publications and not self._place.subscriptions:
                _places.pop(self._channel.name, None)

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        self.check_open()
        place = self._place
        with place.lock:
            members = [*place.publications, *place.subscriptions]
            totals = Totals(
                messages_sent=place.sent,
                bytes_sent=place.position,
                messages_received=sum(one._messages for one in place.subscriptions),
                bytes_received=sum(one._bytes for one in place.subscriptions),
                **dict.fromkeys(UNCOUNTED, 0),
                **dict.fromkeys(("repaired", "dropped", "reaped"), 0),
            )
            status: dict[str, Any] = dict.fromkeys(("size", "capacity", "max_members"), 0)
            return ChannelStatus(
                channel=self.channel,
                path="",
                kind=self._channel.kind.name,
                state="open" if place.codec is None else "ready",
                codec=None if place.codec is None else place.codec.kind,
                created_ns=min(one._made_ns for one in members),
                position=place.position,
                totals=totals,
                members=tuple(one.member(slot) for slot, one in enumerate(members)),
                details={"max_messages": place.options.max_messages},
                **status,
            )

    def member(self, slot: int) -> ChannelMember:
        """This handle, as a status lists it."""
        counts: dict[str, Any] = {"messages": self._messages, "bytes": self._bytes, **dict.fromkeys(UNCOUNTED, 0)}
        return ChannelMember(slot, self._role, False, os.getpid(), 0, self._made_ns, self.position, **counts)

    def __reduce__(self) -> Any:
        raise Unsupported(f"{self.channel}: a toy channel lives in one process: use log: between processes")

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self._event)


class ToyClaim:
    """Room for one message: its own memory, copied when it is committed."""

    def __init__(self, publication: ToyPublication, length: int, timeout: float | None) -> None:
        self._publication, self._room, self._timeout = publication, bytearray(length), timeout

    def __enter__(self) -> memoryview:
        return memoryview(self._room)

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if kind is None:
            self.commit()

    def commit(self) -> int:
        """Sends the message."""
        return self._publication._send(bytes(self._room), self._timeout)

    def abort(self) -> None:
        """Gives the room up."""


class ToyPublication(Handle, Publication[Any]):
    """Writes to every subscription of the channel."""

    def __init__(self, channel: Channel, codec: Any, asked: ToyOptions | None) -> None:
        wanted = codecs.resolve(codec)
        super().__init__(channel, "publication", "publications")
        place = self._place
        with place.lock:
            agreed = wanted if place.codec is None else codecs.agreed(place.codec, codec)
            if agreed is None or (place.codec is not None and asked not in (None, place.options)):
                raise Mismatch(f"{channel} exists with another codec or other options")
            if place.codec is None:
                place.codec, place.options = agreed, asked or ToyOptions()
            self._codec = agreed
            place.publications.append(self)
            for reader in place.subscriptions:
                reader.wake()

    codec = property(lambda self: self._codec)
    position = property(lambda self: self._place.position)
    readers = property(lambda self: len(self._place.subscriptions))
    max_payload = property(lambda self: MAX_PAYLOAD)

    def _encoded(self, data: Any) -> bytes:
        self.check_open()
        body = codecs.encoded(self._codec, self.channel, data)
        if len(body) > MAX_PAYLOAD:
            raise TooLarge(f"{self.channel}: {len(body)} bytes do not fit: a message has at most {MAX_PAYLOAD}")
        return body

    def _try(self, body: bytes) -> int | None:
        place = self._place
        with place.lock:
            self.check_open()
            if any(len(reader.queue) >= place.options.max_messages for reader in place.subscriptions):
                self.calm()
                return None
            received = Received(place.position, time.time_ns(), 0)
            place.position += len(body)
            place.sent += 1
            self._messages, self._bytes = self._messages + 1, self._bytes + len(body)
            for reader in place.subscriptions:
                reader.queue.append((body, received))
                reader.wake()
            return place.position

    def _send(self, body: bytes, timeout: float | None) -> int:
        return self.until(lambda: self._try(body), timeout, "no room")

    def send(self, data: Any, timeout: float | None = None) -> int:
        return self._send(self._encoded(data), timeout)

    async def send_async(self, data: Any, timeout: float | None = None) -> int:
        body = self._encoded(data)
        return await self.until_async(lambda: self._try(body), timeout, "no room")

    def offer(self, data: Any) -> int | None:
        return self._try(self._encoded(data))

    def offer_many(self, messages: Sequence[Any]) -> int:
        bodies = [self._encoded(one) for one in buffers.several(self.channel, messages)]
        return next((count for count, body in enumerate(bodies) if self._try(body) is None), len(bodies))

    def claim(self, length: int, timeout: float | None = None) -> Claim:
        self.check_open()
        limit_of(timeout, self)
        size = counted(length, "claim", "length", self)
        if self._codec.kind != "bytes":
            codecs.check_claim(self._codec, self.channel, size)
        if size > MAX_PAYLOAD:
            raise TooLarge(f"{self.channel}: {size} bytes do not fit: a message has at most {MAX_PAYLOAD}")
        return ToyClaim(self, size, timeout)

    async def claim_async(self, length: int, timeout: float | None = None) -> Claim:
        return self.claim(length, timeout)

    def _enough(self, count: int) -> Callable[[], bool | None]:
        wanted = counted(count, "wait_for_readers", "count", self)

        def enough() -> bool | None:
            with self._place.lock:
                self.check_open()
                if len(self._place.subscriptions) >= wanted:
                    return True
                self.calm()
                return None

        return enough

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        self.until(self._enough(count), timeout, f"fewer than {count} readers")

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        await self.until_async(self._enough(count), timeout, f"fewer than {count} readers")


class ToySubscription(Handle, Subscription[Any]):
    """Reads every message that was sent since it was opened."""

    receives = True  # so that `penstock.wait` takes it, and asks `fileno` and `ready`

    def __init__(self, channel: Channel, codec: Any, *, until_end: bool) -> None:
        super().__init__(channel, "subscription", "subscriptions")
        self.queue: deque[tuple[bytes, Received]] = deque()
        self._until_end, self._last, self._asked = until_end, Received(0, 0, 0), codec
        with self._place.lock:
            self._had_writer = False
            _ = self.codec
            self._place.subscriptions.append(self)
            for writer in self._place.publications:
                writer.wake()

    @property
    def codec(self) -> Codec | None:
        """The channel's codec, once there was a publication. `Mismatch` if it is another one than was asked for."""
        found = self._place.codec
        if found is None:
            return None
        agreed = codecs.agreed(found, self._asked)
        if agreed is None:
            raise Mismatch(f"{self.channel} exists with another codec, {found.kind}")
        return agreed

    lost = property(lambda self: 0)
    lost_messages = property(lambda self: 0)
    last = property(lambda self: self._last)

    @property
    def position(self) -> int:
        """Where reading continues."""
        with self._place.lock:
            return self.queue[0][1].position if self.queue else self._place.position

    @property
    def lag(self) -> int:
        """Bytes that are not read yet."""
        with self._place.lock:
            return sum(len(body) for body, _ in self.queue)

    def ready(self) -> bool:
        """Whether there is something to read, for `penstock.wait`."""
        with self._place.lock:
            self.check_open()
            if not (found := bool(self.queue) or self._ended()):
                self.calm()
            return found

    def _ended(self) -> bool:
        self._had_writer = self._had_writer or bool(self._place.publications)
        return self._until_end and self._had_writer and not self._place.publications

    def _take(self) -> tuple[bytes, Received] | None:
        place = self._place
        with place.lock:
            self.check_open()
            if not self.queue:
                if self._ended():
                    raise EndOfStream(f"{self.channel}: every publication has closed or died, and all was read")
                self.calm()
                return None
            body, self._last = taken = self.queue.popleft()
            self._messages, self._bytes = self._messages + 1, self._bytes + len(body)
            if not self.queue and not self._ended():
                self.calm()
            for writer in place.publications:
                writer.wake()
            return taken

    def _decoded(self, taken: tuple[bytes, Received]) -> Any:
        body, received = taken
        codec = self.codec
        assert codec is not None
        try:
            return codec.parse(body)
        except Exception as error:
            raise codecs.undecodable(codec, self.channel, received.position, body, error) from error

    def recv(self, timeout: float | None = None) -> Any:
        return self._decoded(self.until(self._take, timeout, "no message"))

    async def recv_async(self, timeout: float | None = None) -> Any:
        return self._decoded(await self.until_async(self._take, timeout, "no message"))

    def try_recv(self) -> Any:
        taken = self._take()
        return None if taken is None else self._decoded(taken)

    def poll(self, limit: int = 1000) -> list[Any]:
        return [self._decoded(taken) for taken in self._several(limit, "poll")]

    def _several(self, limit: int, method: str) -> list[tuple[bytes, Received]]:
        wanted, found = counted(limit, method, "limit", self), []
        self.check_open()
        while len(found) < wanted:
            try:
                taken = self._take()
            except EndOfStream:
                if not found:
                    raise
                break
            if taken is None:
                break
            found.append(taken)
        return found

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        counted(max_bytes, "poll_arrow", "max_bytes", self)
        rows = self._several(limit, "poll_arrow")
        return pa.RecordBatch.from_pydict(
            {
                "position": pa.array([one.position for _, one in rows], pa.int64()),
                "session": pa.array([one.session for _, one in rows], pa.int32()),
                "payload": pa.array([body for body, _ in rows], pa.binary()),
                "time": pa.array([one.time_ns for _, one in rows], pa.timestamp("ns", "UTC")),
            }
        )

    def borrow(self, timeout: float | None = None) -> memoryview:
        return memoryview(self.until(self._take, timeout, "no message")[0])

    async def borrow_async(self, timeout: float | None = None) -> memoryview:
        return memoryview((await self.until_async(self._take, timeout, "no message"))[0])


def open_publication(channel: Channel, *, codec: Any = None, **options: Any) -> ToyPublication:
    """A publication. The first one decides the channel's codec and options."""
    return ToyPublication(channel, codec, ToyOptions(**options) if options else None)


def open_subscription(
    channel: Channel, *, start: str | int = "newest", spin: float = 0, codec: Any = None, until_end: bool = False
) -> ToySubscription:
    """A subscription, which may come before the first publication. spin: is checked, and has no effect."""
    seconds(spin, "spin")
    if start != "newest":
        raise Unsupported(f"{channel}: a toy channel keeps no past: start must be 'newest', not {start!r}")
    codecs.resolve(codec)
    return ToySubscription(channel, codec, until_end=flag(until_end, "until_end"))


KIND = Kind(
    name="toy",
    written="toy:NAME",
    options=ToyOptions,
    publish=open_publication,
    subscribe=open_subscription,
    in_process=False,
)
