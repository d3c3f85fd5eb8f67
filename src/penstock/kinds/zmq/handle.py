"""The base of every handle over ZeroMQ: a socket and its lock, options, a descriptor to wait on, counts of connections.

It knows forks, the end of the process, and lingering. It must never know what a pattern does with messages.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.channels import loops
from penstock.channels.channel import Channel
from penstock.channels.checks import limit_of, seconds
from penstock.channels.status import ChannelStatus
from penstock.codecs import Codec
from penstock.errors import Busy, Closed, SystemFailure, TimedOut, Unsupported
from penstock.kinds.zmq import address as zmq_address
from penstock.kinds.zmq import process as zmq_process
from penstock.kinds.zmq import status as zmq_status
from penstock.kinds.zmq.monitor import Monitor
from penstock.kinds.zmq.options import ZmqOptions
from penstock.kinds.zmq.process import pyzmq
from penstock.kinds.zmq.watch import Watch
from penstock.util.strict import Strict

if TYPE_CHECKING:
    import zmq

T = TypeVar("T")
BIND_PATIENCE = 2.0
CLOCK_STEPS = 2  # milliseconds
SLICE = 0.05  # seconds between two looks for what another thread's call on the socket may have taken in
LOOK_MASK = 1023  # after so many calls it looks at what ZeroMQ has reported, so that those queues stay short
logger = logging.getLogger("penstock")


class ZmqHandle(Strict):
    """A socket of ZeroMQ. Thread-safe: one call at a time uses the socket, and a call that waits does not hold it."""

    receives: bool

    def __init__(
        self,
        channel: Channel,
        kind: str,
        codec: Codec,
        options: ZmqOptions,
        *,
        bind: bool,
        receives: bool,
        spin: float = 0,
    ) -> None:
        self._zmq = pyzmq()
        self._noblock = int(self._zmq.NOBLOCK)
        self._channel, self._kind, self._codec, self._options = channel, kind, codec, options
        self._bind, self.receives = bind, receives
        self._spin = seconds(spin, "spin")
        self._plain = codec.kind == "bytes"
        self._made_ns = time.time_ns()
        self._lock = threading.RLock()
        self._closed = self._shut = False
        self._sent = self._received = self._written = self._read = self._ops = 0
        self._watches: dict[int, Watch] = {}
        self._sleepers = 0  # threads that wait on them
        self._trying = False  # whether a waiting call looks for news: what it finds is its own
        self._lent = False  # whether an event loop, or anybody, may
        self._kept: deque[Any] = deque()  # messages that were taken and did not fit: the next call gets them
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._endpoint = f"{channel.kind.name.removeprefix('zmq+')}://{channel.name}"
        self._owner = os.getpid()
        self._start(BIND_PATIENCE)
        zmq_process.enlist(self)

    # ---- each pattern overrides these ----

    _role = ""  # as status calls it
    _complains = True  # close raises if messages are left; a publication may lose them, and only logs it

    def _prepare(self, socket: Any) -> None:
        """Options of the pattern, before the socket is connected or bound."""

    def _inherit(self) -> None:
        """In a forked child, before the socket is made again: forgets what is the parent's, or raises `Busy`."""

    def _attend(self) -> Monitor:
        """Reads ZeroMQ's reports, so that their queues stay short. The caller holds the lock."""
        assert self._monitor is not None
        self._monitor.look()
        return self._monitor

    # ---- about it ----

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded: the codec that this end was opened with. ZeroMQ does not carry it."""
        return self._codec

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def position(self) -> int:
        """Bytes that this handle has received, topics and names included. For a handle that only sends: bytes that it has sent."""
        return self._read if self.receives else self._written

    @property
    def address(self) -> str:
        """The address where it is bound or connected, with the port that was chosen if the URI has none."""
        return self._endpoint

    def own_channel(self) -> Channel:
        """The channel by the address that this end has, where its URI leaves the choice to the system."""
        if not self._bind or (not self._channel.name.endswith((":*", ":0")) and self._channel.name != "*"):
            return self._channel
        return replace(self._channel, name=self._endpoint.partition("://")[2], uri="")

    def statistics(self) -> ChannelStatus:
        """This handle's counters and connections at this moment. ZeroMQ knows nothing of other handles."""
        with self._lock:
            self._open().getsockopt(self._zmq.EVENTS)  # a subscription that reconnected subscribes again now
            return zmq_status.of(self, self._attend())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:  # the exception that ends the block says more than the messages that are left
            self._quietly()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"

    # ---- its beginning ----

    def _start(self, patience: float) -> None:
        """Makes the socket, and binds or connects it."""
        module, context = self._zmq, zmq_process.context()
        socket: Any = None
        monitor = None
        verb = "open a socket"
        try:
            socket = context.socket(getattr(module, self._kind))
            monitor = Monitor(module, context, socket)
            self._options.apply(module, socket, self.channel, bind=self._bind)
            self._prepare(socket)
            verb = "publish" if self._kind == "XPUB" else "bind" if self._bind else "connect"
            if self._bind:
                zmq_address.bind(module, socket, self._endpoint, patience)
                self._endpoint = socket.getsockopt_string(module.LAST_ENDPOINT)
            else:
                socket.connect(self._endpoint)
        except BaseException as error:
            if monitor is not None:
                monitor.stop(socket)
            if socket is not None:
                socket.close(0)
            if not isinstance(error, module.ZMQError):
                raise
            kind = Busy if error.errno == module.EADDRINUSE else SystemFailure
            raise kind(error.errno, f"{self.channel}: cannot {verb} at {self._endpoint}: {error.strerror}") from error
        self._socket, self._monitor = socket, monitor

    def _open(self) -> zmq.Socket[bytes]:
        """The socket, with the lock held. In a forked child the first call makes it again."""
        if self._closed:
            zmq_process.rest_at_the_end(self._lock)
            raise Closed(f"{self.channel}: the handle is closed")
        if self._socket is None:
            self._inherit()
            try:
                self._start(0)
            except Busy as error:
                raise Busy(
                    error.errno,
                    f"{self.channel}: this handle was made by process {self._owner}, which still has {self._endpoint}; a forked "
                    f"child cannot have the same address: open a handle of its own there, at another address or as a peer that "
                    f"connects",
                ) from None
            self._owner = os.getpid()
        self._ops += 1
        if not self._ops & LOOK_MASK:
            self._attend()
        return self._socket  # type: ignore[return-value]

    def _parts(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        """The next message, with all its parts; zmq.Again if there is none."""
        try:
            frame: Any = socket.recv(self._noblock, False)
            if not frame.more:  # a frame knows whether more follow: asking the socket costs more
                return [frame.bytes]
            return [part.bytes for part in self._and_rest(frame, socket)]
        except self._zmq.Again:
            raise
        except BaseException:
            self._drop_the_rest(socket)
            raise

    def _uncopied(self, socket: zmq.Socket[bytes]) -> list[Any]:
        """`_parts` as frames: memory of ZeroMQ's, not copied."""
        try:
            return self._and_rest(socket.recv(self._noblock, False), socket)
        except self._zmq.Again:
            raise
        except BaseException:
            self._drop_the_rest(socket)
            raise

    def _and_rest(self, frame: Any, socket: zmq.Socket[bytes]) -> list[Any]:
        frames = [frame]
        while frame.more:
            frame = socket.recv(self._noblock, False)
            frames.append(frame)
        return frames

    def _drop_the_rest(self, socket: zmq.Socket[bytes]) -> None:
        """After a signal's handler raised: the parts that are left must not look like a message."""
        while socket.getsockopt(self._zmq.RCVMORE):
            socket.recv(self._noblock)

    def _why(self) -> str:
        """The end of a timeout's message: handshakes that failed."""
        with self._lock:
            refused = self._attend().refused if self._socket is not None else 0
        return f" ({refused} handshakes failed: do both ends have CURVE keys that fit?)" if refused else ""

    # ---- waiting ----

    def _refresh(self) -> None:
        """After a call on the socket, with the lock held: descriptors say again whether there may be something."""
        if (self._sleepers or self._lent) and self._socket is not None:
            self._look(not self._trying)

    def _look(self, news: bool) -> None:
        """news: whether the call may have used up what those hear of who wait for news of any kind."""
        if self._socket is not None:
            events: int = self._socket.getsockopt(self._zmq.EVENTS)  # type: ignore[assignment]
            for mask, watch in self._watches.items():
                kept = mask == self._zmq.POLLIN and bool(self._kept)
                watch.say(bool(events & mask) or kept if mask else news)

    def _watch(self, mask: int) -> int:
        """A descriptor that is readable while the socket may be read, or written. mask: 0 for news of any kind."""
        with self._lock:
            socket = self._open()
            if mask not in self._watches:
                news: list[int] = [socket.getsockopt(self._zmq.FD)]  # type: ignore[list-item]
                if not mask and self._monitor is not None:
                    news.append(self._monitor.fileno())
                self._watches[mask] = Watch(*news)
            self._look(bool(mask))
            return self._watches[mask].fileno()

    def _tried(self, attempt: Callable[[], T | None]) -> tuple[int, T | None]:
        """A descriptor that is readable once there is news, and what an attempt gave that took in all the news before."""
        with self._lock:
            descriptor = self._watch(0)
            self._trying = True
            try:
                return descriptor, attempt()
            finally:
                self._trying = False

    def _until(self, attempt: Callable[[], T | None], mask: int, timeout: float | None) -> T | None:
        """The first result of `attempt` that is not None; None after `timeout` seconds. mask: what to wait for; 0: any news."""
        limit = limit_of(timeout, self)
        found = attempt()
        if found is not None or limit == 0:
            return found
        deadline = math.inf if limit is None else time.monotonic() + limit
        if self._spin:
            busy = min(time.monotonic() + self._spin, deadline)
            while found is None and time.monotonic() < busy:
                found = attempt()
            if found is not None:
                return found
        with self._lock:
            self._sleepers += 1
        try:
            return self._slept(attempt, mask, deadline)
        finally:
            with self._lock:
                self._sleepers -= 1

    def _slept(self, attempt: Callable[[], T | None], mask: int, deadline: float) -> T | None:
        found = None
        while found is None and (left := deadline - time.monotonic()) > 0:
            if mask:
                zmq_process.sleep_on(self._watch(mask), left)
                found = attempt()
            else:
                descriptor, found = self._tried(attempt)
                if found is None:
                    zmq_process.sleep_on(descriptor, min(left, SLICE))
        return attempt() if found is None else found

    async def _until_async(self, attempt: Callable[[], T | None], mask: int, timeout: float | None) -> T | None:
        """`_until` in the running event loop. Cancelled, it leaves what `attempt` would have taken."""
        left = limit_of(timeout, self)
        found = attempt()
        if found is not None or left == 0:
            return found
        import asyncio

        try:
            async with asyncio.timeout(left):
                return await self._awaited(attempt, mask)
        except TimedOut:  # of the attempt
            raise
        except TimeoutError:
            return None

    async def _awaited(self, attempt: Callable[[], T | None], mask: int) -> T:
        if not mask:
            return await self._awaited_news(attempt)
        found = None
        while found is None:
            self._lent = True
            await loops.readable(self._watch(mask))
            found = attempt()
        return found

    async def _awaited_news(self, attempt: Callable[[], T | None]) -> T:
        import asyncio

        with self._lock:
            self._sleepers += 1
        try:
            while True:
                descriptor, found = self._tried(attempt)
                if found is not None:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SLICE):
                        await loops.readable(descriptor)
        finally:
            with self._lock:
                self._sleepers -= 1

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to receive. A call that finds nothing makes it unreadable."""
        if not self.receives:
            raise Unsupported(f"{self.channel}: a {type(self).__name__} only sends, so there is nothing to wait for")
        self._lent = True
        return self._watch(self._zmq.POLLIN)

    def ready(self) -> bool:
        """Whether there is something to receive now."""
        with self._lock:
            events: int = self._open().getsockopt(self._zmq.EVENTS)  # type: ignore[assignment]
            self._refresh()
            return bool(events & self._zmq.POLLIN) or bool(self._kept)

    # ---- its end ----

    def close(self) -> None:
        """Waits up to `linger` seconds until all messages have left, then closes the socket. Safe to call twice.

        Messages that are left then are lost. `close` raises `TimedOut` and says how many; a publication logs it instead.
        """
        message = self._end()
        if message is None:
            return
        if self._complains:
            raise TimedOut(message)
        logger.warning("%s", message)

    def _quietly(self) -> None:
        """Closes, and logs messages that were left."""
        message = self._end()
        if message is not None:
            logger.warning("%s", message)

    def _end(self) -> str | None:
        """Closes. Returns a text about messages that were left."""
        self._closed = True
        with self._lock:
            if self._shut:
                return None
            self._shut = True
            for watch in self._watches.values():
                watch.end()  # wakes threads that wait
            socket, self._socket = self._socket, None
            if socket is None:  # inherited through a fork, and never used
                return None
            monitor = self._attend()
            sent = self._sent if self._owes() else 0
        linger = self._options.linger
        if not sent or linger == 0:
            monitor.stop(socket)
            socket.close(0)
            return None
        monitor.hold()
        deadline = math.inf if linger is None else time.monotonic() + linger
        # ZeroMQ lingers a little longer, as its clock counts whole milliseconds: what ends before the deadline has been sent.
        socket.close(-1 if linger is None else math.ceil(linger * 1000) + CLOCK_STEPS)
        if monitor.ended(deadline):
            return None
        which = f"all {sent} messages" if monitor.connections == 0 else f"the last of {sent} messages"
        return f"{self.channel}: no peer took {which} sent here within linger={linger:g} seconds: they are lost"

    def _owes(self) -> bool:
        """Whether sent messages must leave before the end."""
        return True

    # ---- forks and the interpreter's end, by zmq_process ----

    def _before_fork(self) -> None:
        self._lock.acquire()
        if self._monitor is not None and self._socket is not None:
            self._monitor.look()

    def _after_fork_in_parent(self) -> None:
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        """The socket and its threads are the parent's. The child closes its copies of the connections, so that peers notice the parent's end."""
        self._lock = threading.RLock()
        if self._monitor is not None:
            self._monitor.let_go()
        zmq_process.abandon(self._socket, self._monitor)
        for watch in self._watches.values():
            watch.abandon()
        self._socket = self._monitor = None
        self._watches, self._sleepers, self._lent, self._trying = {}, 0, False, False
        self._kept.clear()

    def __del__(self) -> None:
        socket, monitor = getattr(self, "_socket", None), getattr(self, "_monitor", None)
        if socket is None or monitor is None:
            return
        if self._sent and self._owes() and self._options.linger != 0:
            warnings.warn(
                f"{self!r} was not closed: nothing will report messages that did not leave",
                ResourceWarning,
                source=self,
            )
        linger = self._options.linger
        monitor.stop(socket)
        socket.close(-1 if linger is None else math.ceil(linger * 1000))
