"""`zmq+tcp:` and `zmq+ipc:` channels: the same handles over ZeroMQ's PUB and SUB, by pyzmq.

The publication binds, subscriptions connect; the other side may be any ZeroMQ program. Messages travel as they are, so what a
full queue (`hwm`) drops nobody counts: these are ZeroMQ's rules.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket as socketlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock import codecs
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Busy, Closed, Invalid, SystemFailure, TimedOut
from penstock.iteration import until_closed_async
from penstock.options import seconds

if TYPE_CHECKING:
    import pyarrow as pa
    import zmq

SLICE_MS = 50
BIND_PATIENCE = 2.0


def _zmq() -> Any:
    """pyzmq, or an error that says how to get it."""
    try:
        import zmq
    except ImportError:
        raise Invalid("channels over ZeroMQ need pyzmq: pip install 'penstock[zmq]'") from None
    return zmq


_contexts: dict[int, Any] = {}


def _context() -> Any:
    """One per process: a forked child makes its own."""
    made = _contexts.get(os.getpid())
    if made is None:
        made = _contexts[os.getpid()] = _zmq().Context()
    return made


class Received(NamedTuple):
    """Where and when the message received last came. position: bytes received before it; time_ns: of its arrival."""

    position: int
    time_ns: int
    session: int


class _Handle:
    """What both ends share. One thread at a time uses the socket."""

    def __init__(self, channel: Channel, kind: str, codec: Codec, hwm: int, arguments: dict[str, Any]) -> None:
        self._zmq = _zmq()
        self._channel, self._codec, self._arguments = channel, codec, arguments
        self._lock = threading.RLock()
        self._closed = False
        self._position = 0
        self._socket: zmq.Socket[bytes] = _context().socket(getattr(self._zmq, kind))
        for option, value in (("LINGER", 1000), ("SNDHWM", hwm), ("RCVHWM", hwm)):
            self._socket.setsockopt(getattr(self._zmq, option), value)

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded: what this end was opened with."""
        return self._codec

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def position(self) -> int:
        """Bytes of messages sent or received by this handle."""
        return self._position

    def _open(self) -> zmq.Socket[bytes]:
        if self._closed:
            raise Closed(f"{self.channel}: the handle is closed")
        return self._socket

    def close(self) -> None:
        """Sends what is on its way for up to a second, then lets go. Safe to call twice."""
        self._closed = True  # whoever waits leaves within a slice
        with self._lock:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class ZmqPublication(_Handle):
    """A PUB end. Thread-safe; a context manager. Sending never blocks; who is slow misses what his queue has no room for."""

    def __init__(self, channel: Channel, codec: Codec, hwm: int) -> None:
        super().__init__(channel, "XPUB", codec, hwm, {"hwm": hwm, "codec": codec.spec})
        self.session = secrets.randbits(31)
        self._readers = 0
        self._socket.setsockopt(self._zmq.XPUB_VERBOSER, 1)
        _bind(self._zmq, self._socket, _endpoint(channel), self.close)

    @property
    def address(self) -> str:
        """Where it is bound: the port that was chosen, if the URI left that open."""
        return self._socket.getsockopt_string(self._zmq.LAST_ENDPOINT)

    def send(self, data: Any, timeout: float | None = None) -> int:
        """Sends one message; the bytes sent by this handle so far."""
        message = memoryview(self._codec.encode(data))
        with self._lock:
            self._open().send(message, copy=True)
            self._position += message.nbytes
            return self._position

    def offer(self, data: Any) -> int:
        """As `send`."""
        return self.send(data)

    def offer_many(self, messages: Any) -> int:
        """Sends them in order; how many."""
        count = 0
        for message in messages:
            self.send(message)
            count += 1
        return count

    @contextlib.contextmanager
    def claim(self, length: int, timeout: float | None = None) -> Iterator[memoryview]:
        """Room for one message, sent at the end of the block and dropped if that raises."""
        if length < 0:
            raise Invalid("claim takes a length from 0 on")
        room = bytearray(length)
        yield memoryview(room)
        with self._lock:
            self._open().send(room)
            self._position += length

    @property
    def readers(self) -> int:
        """Subscriptions that have reached this end."""
        with self._lock:
            socket = self._open()
            while socket.poll(0, self._zmq.POLLIN):
                news = socket.recv()
                self._readers += 1 if news[:1] == b"\1" else -1
            return self._readers

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""
        return self.readers != 0

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until so many subscriptions are there; TimeoutError after `timeout` seconds."""
        for left in _slices(timeout):
            if self.readers >= count:
                return
            with self._lock:
                self._open().poll(left, self._zmq.POLLIN)
        if self.readers < count:
            raise TimedOut(f"{self.channel}: fewer than {count} subscriptions came within the timeout")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (open_publication, self._channel, self._arguments)


class ZmqSubscription(_Handle):
    """A SUB end. Thread-safe: each message goes to one caller; a context manager; pickles to a child as a new subscription."""

    def __init__(self, channel: Channel, codec: Codec, hwm: int, conflate: bool) -> None:
        super().__init__(channel, "SUB", codec, hwm, {"conflate": conflate, "hwm": hwm, "codec": codec.spec})
        self._last = Received(0, 0, 0)
        if conflate:
            self._socket.setsockopt(self._zmq.CONFLATE, 1)
        self._socket.setsockopt(self._zmq.SUBSCRIBE, b"")
        try:
            self._socket.connect(_endpoint(channel))
        except self._zmq.ZMQError as error:
            self.close()
            raise SystemFailure(error.errno, f"cannot connect to {channel}: {error.strerror}") from error

    @property
    def last(self) -> Received:
        """Where and when the message received last came."""
        return self._last

    @property
    def lost(self) -> None:
        """Nobody knows what ZeroMQ dropped, or holds."""
        return

    lost_messages = lag = lost

    def _take(self) -> bytes | None:
        with self._lock:
            try:
                message: bytes = self._open().recv(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return None
            self._last = Received(self._position, time.time_ns(), 0)
            self._position += len(message)
            return message

    def _wait(self, timeout: float | None) -> bytes:
        message = self._take()
        if message is not None:
            return message
        for left in _slices(timeout):
            with self._lock:
                self._open().poll(left)
            message = self._take()
            if message is not None:
                return message
        raise TimedOut(f"{self.channel}: no message within the timeout")

    def recv(self, timeout: float | None = None) -> Any:
        """The next message; TimeoutError after `timeout` seconds (None: for ever, 0: now or never)."""
        return self._codec.decode(self._wait(timeout))

    def try_recv(self) -> Any:
        """The next message, or None if there is none yet. Never blocks."""
        message = self._take()
        return None if message is None else self._codec.decode(message)

    def poll(self, limit: int = 1000) -> list[Any]:
        """What is there now, at most `limit` messages. Never blocks."""
        found: list[Any] = []
        while len(found) < limit and (message := self._take()) is not None:
            found.append(self._codec.decode(message))
        return found

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """What is there now as one Arrow batch: session, position, payload, time of arrival. Never blocks."""
        import pyarrow as pa

        columns: tuple[list[Any], ...] = ([], [], [], [])
        size = 0
        while len(columns[0]) < limit and size < max_bytes and (message := self._take()) is not None:
            size += len(message)
            for column, value in zip(columns, (0, self._last.position, message, self._last.time_ns), strict=True):
                column.append(value)
        kinds = (pa.int32(), pa.int64(), pa.binary(), pa.timestamp("ns", "UTC"))
        names = ("session", "position", "payload", "time")
        schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in zip(names, kinds, strict=True)])
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextlib.contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[memoryview]:
        """The next message's bytes, read-only, for the length of a block."""
        yield memoryview(self._wait(timeout))

    def fileno(self) -> int:
        """ZeroMQ's descriptor, for selectors. Edge-triggered: when it becomes readable, receive until there is nothing."""
        with self._lock:
            descriptor: int = self._open().getsockopt(self._zmq.FD)  # type: ignore[assignment]
            return descriptor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    async def arecv(self) -> Any:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        import asyncio

        while (message := self._take()) is None:
            await asyncio.to_thread(self._rest)
        return self._codec.decode(message)

    def _rest(self) -> None:
        with self._lock:
            self._open().poll(SLICE_MS)

    def __aiter__(self) -> AsyncIterator[Any]:
        return until_closed_async(self.arecv)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (open_subscription, self._channel, self._arguments)


def _reopen(opener: Callable[..., Any], channel: Channel, arguments: dict[str, Any]) -> Any:
    """What a pickled handle becomes."""
    return opener(channel, **arguments)


def _slices(timeout: float | None) -> Iterator[int]:
    """Milliseconds to wait next, at most a slice, until the timeout has passed."""
    left = math.inf if timeout is None else seconds(timeout, "timeout")
    deadline = time.monotonic() + left
    while (left := deadline - time.monotonic()) > 0:
        yield math.ceil(min(SLICE_MS, left * 1000))


def _endpoint(channel: Channel) -> str:
    """ZeroMQ's own name of it."""
    return f"{channel.kind.removeprefix('zmq+')}://{channel.name}"


def _bind(module: Any, socket: Any, endpoint: str, give_up: Callable[[], None]) -> None:
    """Binds; a predecessor that has just closed may hold the address a moment longer."""
    deadline = time.monotonic() + BIND_PATIENCE
    while True:
        try:
            if _listens(endpoint):
                raise module.ZMQError(module.EADDRINUSE)
            socket.bind(endpoint)
            return
        except module.ZMQError as error:
            if error.errno == module.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            give_up()
            kind = Busy if error.errno == module.EADDRINUSE else SystemFailure
            raise kind(error.errno, f"cannot publish at {endpoint}: {error.strerror}") from error


def _listens(endpoint: str) -> bool:
    """Whether somebody is at a path already: ZeroMQ itself would take it away from him without a word."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint or path.startswith("@"):
        return False
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _hwm(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Invalid(f"hwm is {value!r}: it must be a number of messages from 0 (no limit) on")
    return value


def open_publication(channel: Channel, *, codec: Any = None, clock: Any = None, hwm: int = 1000) -> ZmqPublication:
    """The publication, bound to the address. `Busy` if somebody else is."""
    return ZmqPublication(channel, codecs.resolve(codec), _hwm(hwm))


def open_subscription(
    channel: Channel,
    *,
    start: str = "newest",
    conflate: bool = False,
    spin: float = 0,
    codec: Any = None,
    hwm: int = 1000,
) -> ZmqSubscription:
    """A subscription, connected to the address or trying to be."""
    if start != "newest":
        raise Invalid(f"start is {start!r}: ZeroMQ keeps no past; it must be 'newest'")
    return ZmqSubscription(channel, codecs.resolve(codec), _hwm(hwm), bool(conflate))


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Those that have something to read, some of which are ZeroMQ's. See `penstock.wait`."""
    slices = _slices(timeout)
    left: int | None = 0
    while left is not None:
        # A descriptor of shared memory says "perhaps" until it is asked for again.
        watched = [s._open() if isinstance(s, ZmqSubscription) else s.fileno() for s in subscriptions]
        poller = _zmq().Poller()
        for one in watched:
            poller.register(one, _zmq().POLLIN)
        found = dict(poller.poll(left))
        ready = [s for s, one in zip(subscriptions, watched, strict=True) if one in found]
        if ready:
            return ready
        left = next(slices, None)
    return []
