"""The sockets of commaai/msgq over rings: `import penstock.compat.msgq as msgq`.

An endpoint `NAME` is the channel `ring:NAME`. What differs from the original is listed in docs/porting-from-msgq.md.
"""

from __future__ import annotations

import contextlib

import penstock
from penstock.compat.msgq_events import (
    Event,
    SocketEventHandle,
    delete_fake_prefix,
    fake_event_handle,
    get_fake_prefix,
    set_fake_prefix,
    step,
    toggle_fake_events,
    using_fake_events,
    wait_for_one_event,
)

DEFAULT_SEGMENT_SIZE = 10 * 1024 * 1024
SMALLEST, LARGEST = 1 << 16, 1 << 30


class IpcError(Exception):
    """Something went wrong in the channel; the text says what."""


class MultiplePublishersError(IpcError):
    """Another process publishes on this endpoint."""


class Context:
    """Sockets are connected with one; it holds nothing."""


def _capacity(segment_size: int) -> int:
    """The ring for a segment of so many bytes: the next power of two."""
    wanted = segment_size or DEFAULT_SEGMENT_SIZE
    if not 0 < wanted <= LARGEST:
        raise IpcError(f"segment_size is {segment_size}: it must be from 0 (the default) to {LARGEST} bytes")
    return max(SMALLEST, 1 << (wanted - 1).bit_length())


def _make(endpoint: str, segment_size: int) -> str:
    """The endpoint's channel, made now if there is none. Whoever comes first chooses its size."""
    name, capacity = f"ring:{endpoint}", _capacity(segment_size)
    try:
        penstock.inspect(name)
    except penstock.NotFound:
        with contextlib.suppress(penstock.Mismatch):  # somebody else was faster
            penstock.subscribe(name, capacity=capacity).close()
    return name


class PubSocket:
    """The one publisher of an endpoint. Thread-safe."""

    def __init__(self) -> None:
        self._publication: penstock.Publication | None = None

    def connect(self, context: Context, endpoint: str, segment_size: int = 0) -> None:
        """Begins to publish. `MultiplePublishersError` while another publisher lives; a dead one is succeeded."""
        try:
            self._publication = penstock.publish(_make(endpoint, segment_size))
        except penstock.Busy as error:
            raise MultiplePublishersError(str(error)) from error
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    def _connected(self) -> penstock.Publication:
        if self._publication is None:
            raise IpcError("this socket is not connected: call connect first")
        return self._publication

    def send(self, data: bytes) -> None:
        """Sends one message; never blocks."""
        try:
            self._connected().send(data)
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    def all_readers_updated(self) -> bool:
        """Whether every living reader has read all that was sent."""
        return self._connected().all_read


class SubSocket:
    """A reader of an endpoint. Thread-safe: each message goes to one caller."""

    def __init__(self) -> None:
        self._subscription: penstock.Subscription | None = None
        self._timeout: float | None = None
        self._endpoint = ""

    def connect(
        self,
        context: Context,
        endpoint: str,
        address: bytes | str = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
    ) -> None:
        """Begins to read what is sent from now on; with `conflate` only ever the newest. `address` is for networks only."""
        self._endpoint = endpoint
        try:
            self._subscription = penstock.subscribe(_make(endpoint, segment_size), conflate=conflate)
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error

    @property
    def subscription(self) -> penstock.Subscription:
        """What this socket reads: its `lost_messages` and the other counters are there."""
        if self._subscription is None:
            raise IpcError("this socket is not connected: call connect first")
        return self._subscription

    def setTimeout(self, timeout: int) -> None:  # noqa: N802 (msgq's name)
        """Milliseconds that receive waits at most; below 0 for ever."""
        self._timeout = None if timeout < 0 else timeout / 1000

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """The next message; None when there is none (`non_blocking`) or none came within the timeout."""
        subscription = self.subscription
        step(self._endpoint)
        try:
            if non_blocking:
                message: bytes | None = subscription.try_recv()
                return message
            return subscription.recv(self._timeout)
        except TimeoutError:
            return None
        except penstock.PenstockError as error:
            raise IpcError(str(error)) from error


class Poller:
    """Waits on any number of sockets at once."""

    def __init__(self) -> None:
        self.sockets: list[SubSocket] = []

    def registerSocket(self, socket: SubSocket) -> None:  # noqa: N802 (msgq's name)
        """From now on poll looks at this one too."""
        self.sockets.append(socket)

    def poll(self, timeout: int) -> list[SubSocket]:
        """The sockets that have a message, after at most `timeout` milliseconds (below 0: for ever). With fake events: all."""
        if using_fake_events():
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
    """Everything that is there; with `wait_for_one` at least one message, unless the socket's timeout passes."""
    messages: list[bytes] = []
    while (data := sock.receive(non_blocking=not (wait_for_one and not messages))) is not None:
        messages.append(data)
    return messages


__all__ = [
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
