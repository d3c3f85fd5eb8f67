"""The base of every handle over ZeroMQ: how its socket is opened, shared with forks, closed, and pickled.

It knows options, the end of the process, and lingering. It must never know the patterns.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from penstock.channels.status import ChannelStatus
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Busy, Closed, PenstockError, SystemFailure, TimedOut
from penstock.kinds.zmq import addresses
from penstock.kinds.zmq.socket import address as zmq_address
from penstock.kinds.zmq.socket import process as zmq_process
from penstock.kinds.zmq.socket import status as zmq_status
from penstock.kinds.zmq.socket import zap
from penstock.kinds.zmq.socket.monitor import Monitor
from penstock.kinds.zmq.socket.options import ZmqOptions
from penstock.kinds.zmq.socket.waiting import ZmqWaiting

if TYPE_CHECKING:
    import zmq

BIND_PATIENCE = 2.0
CLOCK_STEPS = 2  # milliseconds
PEERS_SHOWN = 2  # in an error
LOOK_MASK = 1023  # after 1024 calls it reads ZeroMQ's reports, so that their queues stay short
logger = logging.getLogger("penstock")


class ZmqHandle(ZmqWaiting):
    """A socket of ZeroMQ. Thread-safe: one call at a time uses the socket, and a call that waits does not hold it."""

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
        super().__init__(channel, receives=receives, spin=spin)
        self._noblock = int(self._zmq.NOBLOCK)
        self._kind, self._codec, self._options, self._bind = kind, codec, options, bind
        self._plain = codec.kind == "bytes"
        self._made_ns = time.time_ns()
        self._closed = self._shut = False
        self._domain = b""  # of its list of clients
        self._sent = self._received = self._written = self._read = self._malformed = self._ops = 0
        first = f"{channel.kind.name.removeprefix(addresses.PREFIX)}://{channel.name}"
        self._endpoints = [first, *options.endpoints]
        self._owner = os.getpid()
        self._start(BIND_PATIENCE)
        zmq_process.enlist(self)

    # ---- each pattern overrides these ----

    _role = ""  # as status calls it
    _heartbeat = False  # over TCP: whether a peer that answers no heartbeats is taken for dead
    _complains = True  # close raises if messages are left; a publication may lose them, and only logs it

    def _prepare(self, socket: Any) -> None:
        """Options of the pattern, before the socket is connected or bound."""

    def _inherit(self) -> None:
        """In a forked child, before the socket is created again: forgets the parent's socket, or raises `Busy`."""

    def _read_reports(self) -> Monitor:
        """Reads ZeroMQ's reports, so that their queues stay short. The caller holds the lock."""
        assert self._monitor is not None
        self._monitor.look()
        return self._monitor

    # ---- about it ----

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
        """The address where it is bound or connected, with the port that was chosen if the URI has none. `addresses` has all."""
        return self._endpoints[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses where it is bound or connected: its channel's, and those of `endpoints=`."""
        return tuple(self._endpoints)

    def own_channel(self) -> Channel:
        """The channel by the address that this end has, where its URI leaves the choice to the system."""
        if not self._bind or (not self._channel.name.endswith((":*", ":0")) and self._channel.name != "*"):
            return self._channel
        return replace(self._channel, name=self.address.partition("://")[2], uri="")

    def statistics(self) -> ChannelStatus:
        """This handle's counters and connections at this moment. ZeroMQ knows nothing of other handles."""
        with self._lock:
            self._open().getsockopt(self._zmq.EVENTS)  # a subscription that reconnected subscribes again now
            return zmq_status.of(self, self._read_reports())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:  # the exception that ends the block matters more than unsent messages
            self._close_quietly()

    def _reopening(self, opener: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any, ...]:
        """The pickled form: the opener, the channel and its arguments. `Closed` if the handle is."""
        if self.closed:
            raise Closed(f"{self.channel}: the handle is closed")
        arguments |= {**self._options.arguments, "endpoints": self.addresses[1:]}
        return _reopen, (opener, self.own_channel(), arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"

    # ---- its beginning ----

    def _start(self, patience: float) -> None:
        """Makes the socket, and binds or connects it."""
        module, context = self._zmq, zmq_process.context()
        socket: Any = None
        monitor = None
        doing = f"open a socket at {self.address}"
        try:
            socket = context.socket(getattr(module, self._kind))
            monitor = Monitor(module, context, socket)
            heartbeat = self._heartbeat and any(endpoint.startswith("tcp:") for endpoint in self._endpoints)
            self._options.apply(module, socket, self.channel, bind=self._bind, heartbeat=heartbeat)
            if (keys := self._options.allowed()) is not None:
                self._domain = zap.allow(module, context, socket, keys)
            self._prepare(socket)
            verb = "publish" if self._kind == "XPUB" else "bind" if self._bind else "connect"
            for i, endpoint in enumerate(self._endpoints):
                doing = f"{verb} at {endpoint}"
                self._attach(socket, i, patience)
        except BaseException as error:
            zap.forget(self._domain)
            if monitor is not None:
                monitor.stop(socket)
            if socket is not None:
                socket.close(0)
            if not isinstance(error, module.ZMQError):
                raise
            kind = Busy if error.errno == module.EADDRINUSE else SystemFailure
            raise kind(error.errno, f"{self.channel}: cannot {doing}: {error.strerror}") from error
        self._socket, self._monitor = socket, monitor

    def _attach(self, socket: Any, i: int, patience: float) -> None:
        """Binds or connects the socket to its endpoint of that index."""
        endpoint = self._endpoints[i]
        if {"ipv6", "ipv4only"}.isdisjoint(self._options.options or ()):
            socket.setsockopt(self._zmq.IPV6, int(addresses.needs_ipv6(endpoint, bind=self._bind)))
        if self._bind:
            zmq_address.bind(self._zmq, socket, endpoint, patience)
            self._endpoints[i] = socket.getsockopt_string(self._zmq.LAST_ENDPOINT)
        else:
            zmq_address.check_host(self.channel, endpoint)
            socket.connect(endpoint)

    def _open(self) -> zmq.Socket[bytes]:
        """The socket, with the lock held. In a forked child the first call makes it again."""
        if self._closed:
            zmq_process.park_at_exit(self._lock)
            raise Closed(f"{self.channel}: the handle is closed")
        if self._socket is None:
            self._inherit()
            try:
                self._start(0)
            except Busy as error:
                raise Busy(
                    error.errno,
                    f"{self.channel}: this handle was made by process {self._owner}, which still has {', '.join(self._endpoints)}; a forked "
                    f"child cannot have the same address: open a handle of its own there, at another address or as a peer that "
                    f"connects",
                ) from None
            self._owner = os.getpid()
        self._ops += 1
        if not self._ops & LOOK_MASK:
            self._read_reports()
        return self._socket  # type: ignore[return-value]

    def _tell_wait(self, what: str, seconds: float) -> None:
        from penstock.channels.waiting import reasons

        with contextlib.suppress(PenstockError):
            reasons.tell(f"{what} of {self.channel}", seconds, self._explain_wait().lstrip("; ("))

    def _explain_wait(self) -> str:
        """The end of a timeout's message: who is there, and handshakes that failed. ZeroMQ does not say what a peer does."""
        with self._lock:
            if self._socket is None:
                return ""
            reports = self._read_reports()
            refused, peers = reports.refused, reports.peer_names()
        if refused:
            return f" ({refused} handshakes failed: do both ends have CURVE keys that fit?)"
        more = f", and {len(peers) - PEERS_SHOWN} more" if len(peers) > PEERS_SHOWN else ""
        return f"; connected: {', '.join(peers[:PEERS_SHOWN])}{more}" if peers else "; no peer is connected"

    # ---- its end ----

    def close(self) -> None:
        """Waits up to `linger` seconds until all messages have left, then closes the socket. Safe to call twice.

        Messages unsent by then are lost. `close` raises `TimedOut` with their number; a publication logs it instead.
        """
        message = self._end()
        if message is None:
            return
        if self._complains:
            raise TimedOut(message)
        logger.warning("%s", message)

    def _close_quietly(self) -> None:
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
            zap.forget(self._domain)
            monitor = self._read_reports()
            sent = self._sent if self._has_unsent() else 0
        linger = self._options.linger
        if not sent or linger == 0:
            monitor.stop(socket)
            socket.close(0)
            return None
        monitor.hold()
        deadline = math.inf if linger is None else time.monotonic() + linger
        # ZeroMQ lingers a little longer, as its clock counts whole milliseconds: if it ends before the deadline, all was sent.
        socket.close(-1 if linger is None else math.ceil(linger * 1000) + CLOCK_STEPS)
        if monitor.ended(deadline):
            return None
        which = f"all {sent} messages" if monitor.connections == 0 else f"the last of {sent} messages"
        return f"{self.channel}: no peer took {which} sent here within linger={linger:g} seconds: they are lost"

    def _has_unsent(self) -> bool:
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
            self._monitor.close_duplicates()
        zmq_process.abandon(self._socket, self._monitor)
        self._abandon_watches()
        self._socket = self._monitor = None
        self._deferred.clear()

    def __del__(self) -> None:
        socket, monitor = getattr(self, "_socket", None), getattr(self, "_monitor", None)
        if socket is None or monitor is None:
            return
        if self._sent and self._has_unsent() and self._options.linger != 0:
            warnings.warn(
                f"{self!r} was not closed: nothing will report messages that did not leave",
                ResourceWarning,
                source=self,
            )
        linger = self._options.linger
        zap.forget(self._domain)
        monitor.stop(socket)
        socket.close(-1 if linger is None else math.ceil(linger * 1000))


def _reopen(opener: Callable[..., Any], channel: Channel, arguments: dict[str, Any]) -> Any:
    """Opens a pickled handle again."""
    return opener(channel, **arguments)
