"""The sockets of commaai/msgq over rings: `import penstock.compat.msgq as msgq`.

An endpoint `NAME` is the channel `ring:NAME`. With `ZMQ` in the environment, and for addresses of other machines, it is a channel
over ZeroMQ whose port the name decides. Differences from the original are listed in docs/from/msgq.md.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

import penstock
from penstock.compat.msgq_events import (
    Event,
    SocketEventHandle,
    Stepped,
    delete_fake_prefix,
    fake_event_handle,
    get_fake_prefix,
    set_fake_prefix,
    text,
    toggle_fake_events,
    using_fake_events,
    wait_for_one_event,
)
from penstock.util.clock import SystemClock

DEFAULT_SEGMENT_SIZE = 10 * 1024 * 1024
SMALLEST, LARGEST = 1 << 16, 1 << 30
HERE = "127.0.0.1"
PORT_FIRST, PORT_END = 8023, 65535
NO_TRAVERSAL_LIMIT = 2**64 - 1  # for readers of Cap'n Proto messages


class IpcError(Exception):
    """Something went wrong in the channel; the text has the details."""


class MultiplePublishersError(IpcError):
    """Another process publishes on this endpoint."""


class Context:
    """Sockets are connected with one; it holds nothing."""

    def __init__(self) -> None:
        self.terminated = False

    def term(self) -> None:
        """Ends it: no more sockets are connected with it. Connected ones continue."""
        self.terminated = True


def _check(context: Context) -> None:
    """TypeError and `IpcError` for anything but an open context."""
    if not isinstance(context, Context):
        raise TypeError(f"the first argument is a Context, not {type(context).__name__}")
    if context.terminated:
        raise IpcError("this context was terminated: make another one")


def scoped(name: str | bytes) -> str:
    """An endpoint's name in the channel folder: OPENPILOT_PREFIX keeps programs apart, as in the original."""
    prefix = os.environ.get("OPENPILOT_PREFIX")
    return f"{prefix}.{text(name)}" if prefix else text(name)


def over_zmq(address: str = HERE) -> bool:
    """Whether sockets use ZeroMQ: the environment has `ZMQ`, or the address is another machine's."""
    return "ZMQ" in os.environ or address != HERE


def port_of(endpoint: str | bytes) -> int:
    """The TCP port of an endpoint over ZeroMQ, as the original has it: by the FNV-1a hash of its name. Two names may have one port."""
    value = 0xCBF29CE484222325
    for byte in os.fsencode(endpoint):
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return PORT_FIRST + value % (PORT_END - PORT_FIRST)


def _zmq_channel(endpoint: str | bytes, host: str) -> str:
    if os.environ.get("OPENPILOT_PREFIX"):
        raise IpcError(
            f"{text(endpoint)}: OPENPILOT_PREFIX has no effect over ZeroMQ, where the endpoint's name alone decides the port: unset it"
        )
    return f"zmq+tcp://{f'[{host}]' if ':' in host else host}:{port_of(endpoint)}"


def _capacity(segment_size: int) -> int:
    """The ring for a segment of `wanted` bytes: it takes messages of a third of the segment, as the original does."""
    wanted = segment_size or DEFAULT_SEGMENT_SIZE
    if not 0 < wanted <= LARGEST:
        raise IpcError(f"segment_size is {segment_size}: it must be from 0 (the default) to {LARGEST} bytes")
    room = wanted + wanted // 3 + 256  # a ring takes messages of a quarter of it
    return min(LARGEST, max(SMALLEST, 1 << (room - 1).bit_length()))


def _open(opener: Any, endpoint: str | bytes, segment_size: int, **options: Any) -> Any:
    """An end of the endpoint's channel, which is created if it does not exist. The first handle decides the size."""
    name, capacity = f"ring:{scoped(endpoint)}", _capacity(segment_size)
    try:
        return opener(name, capacity=capacity, **options)
    except penstock.Mismatch:
        return opener(name, **options)


class PubSocket:
    """The one publisher of an endpoint. Thread-safe."""

    def __init__(self) -> None:
        self._publication: Any = None

    def connect(self, context: Context, endpoint: str | bytes, segment_size: int = 0) -> None:
        """Begins to publish. `MultiplePublishersError` while another publisher lives; a dead one is succeeded."""
        _check(context)
        try:
            if over_zmq():
                self._publication = penstock.publish(_zmq_channel(endpoint, "*"))
                weakref.finalize(self, self._publication.close)
            else:
                self._publication = _open(penstock.publish, endpoint, segment_size)
        except penstock.Busy as error:
            raise MultiplePublishersError(str(error)) from error
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    def _connect(self) -> Any:
        if self._publication is None:
            raise IpcError("this socket is not connected: call connect first")
        return self._publication

    def send(self, data: bytes) -> None:
        """Sends one message; never blocks."""
        try:
            self._connect().send(data)
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    def all_readers_updated(self) -> bool:
        """Whether there are readers, and every reader has read all messages. Dead readers do not count."""
        publication: Any = self._connect()  # rings have more than the interface of all publications
        if not hasattr(publication, "all_read"):
            raise IpcError(f"{publication.channel}: ZeroMQ does not report what readers have read")
        return publication.readers > 0 and bool(publication.all_read)

    def wait_for_readers(self, timeout: float = 1.0, interval: float = 0.001) -> None:
        """Waits until `all_readers_updated`, and checks every `interval` seconds. TimeoutError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.all_readers_updated():
            left = deadline - time.monotonic()
            if left <= 0:
                channel, readers = self._connect().channel, self._connect().readers
                why = f"{readers} readers have not read all messages" if readers else "it has no reader"
                raise penstock.TimedOut(f"{channel}: {why} after {timeout} seconds")
            SystemClock().sleep(min(interval, left))


class SubSocket:
    """A reader of an endpoint. Thread-safe: each message goes to one caller."""

    def __init__(self) -> None:
        self._subscription: penstock.types.Subscription[bytes] | None = None
        self._timeout: float | None = None
        self._fake = using_fake_events()
        self._stepped: Stepped | None = None

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: bytes | str = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
    ) -> None:
        """Begins to read messages sent from now on; with `conflate` only the newest. `address`: of the publisher's machine."""
        _check(context)
        host = text(address)
        if self._fake:
            self._stepped = Stepped(text(endpoint))
        try:
            if over_zmq(host):
                self._subscription = penstock.subscribe(_zmq_channel(endpoint, host), conflate=conflate)
                weakref.finalize(self, self._subscription.close)
            else:
                self._subscription = _open(penstock.subscribe, endpoint, segment_size, conflate=conflate)
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    @property
    def subscription(self) -> penstock.types.Subscription[bytes]:
        """The subscription behind this socket: it has `lost_messages` and the other counters."""
        if self._subscription is None:
            raise IpcError("this socket is not connected: call connect first")
        return self._subscription

    def setTimeout(self, timeout: int) -> None:  # noqa: N802 (msgq's name)
        """Milliseconds that receive waits at most; below 0 for ever."""
        self._timeout = None if timeout < 0 else timeout / 1000

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """The next message; None if there is none (`non_blocking`), or if none arrived within the timeout."""
        subscription = self.subscription
        if self._stepped is not None:
            self._stepped.step()
        try:
            if non_blocking:
                return subscription.try_recv()
            return subscription.recv(self._timeout)
        except TimeoutError:
            return None
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error


class Poller:
    """Waits on any number of sockets at once."""

    def __init__(self) -> None:
        self.sockets: list[SubSocket] = []
        self._fake = using_fake_events()

    def registerSocket(self, socket: SubSocket) -> None:  # noqa: N802 (msgq's name)
        """From now on poll includes this socket."""
        self.sockets.append(socket)

    def poll(self, timeout: int) -> list[SubSocket]:
        """The sockets that have a message, after at most `timeout` milliseconds (below 0: for ever). A fake one: all."""
        if self._fake:
            return list(self.sockets)
        by_handle = {id(socket.subscription): socket for socket in self.sockets}
        if not by_handle:
            return []
        handles = [socket.subscription for socket in self.sockets]
        ready = penstock.wait(handles, None if timeout < 0 else timeout / 1000)
        return [by_handle[id(handle)] for handle in ready]


context = Context()


def pub_sock(endpoint: str, segment_size: int = 0) -> PubSocket:
    """A connected publisher."""
    socket = PubSocket()
    socket.connect(context, endpoint, segment_size)
    return socket


def sub_sock(
    endpoint: str,
    poller: Poller | None = None,
    addr: str = "127.0.0.1",
    conflate: bool = False,
    timeout: int | None = None,
    segment_size: int = 0,
) -> SubSocket:
    """A connected reader, registered with the poller if there is one. timeout: milliseconds."""
    socket = SubSocket()
    socket.connect(context, endpoint, addr, conflate, segment_size)
    if timeout is not None:
        socket.setTimeout(timeout)
    if poller is not None:
        poller.registerSocket(socket)
    return socket


def drain_sock_raw(sock: SubSocket, wait_for_one: bool = False) -> list[bytes]:
    """All available messages; with `wait_for_one` at least one message, unless the socket's timeout passes."""
    messages: list[bytes] = []
    while (data := sock.receive(non_blocking=not (wait_for_one and not messages))) is not None:
        messages.append(data)
    return messages


__all__ = [
    "NO_TRAVERSAL_LIMIT",
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubSocket",
    "SocketEventHandle",
    "SubSocket",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "fake_event_handle",
    "get_fake_prefix",
    "pub_sock",
    "set_fake_prefix",
    "sub_sock",
    "toggle_fake_events",
    "wait_for_one_event",
]
