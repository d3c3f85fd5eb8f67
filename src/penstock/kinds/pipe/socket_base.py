"""Shared by the sockets of a pipe channel: a member that writes and reads, its bodies, its names.

Each has a pipe to and from every other member that its role talks to. Knows no role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.checks import seconds
from penstock.channels.handles import NativeSubscription
from penstock.channels.interfaces.patterns import Body, Made, Receiving, decode, decoded
from penstock.channels.interfaces.subscription import Received
from penstock.channels.status import ChannelStatus
from penstock.channels.storage import memory, reopening
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting import awaiting, loops
from penstock.codecs import Codec, buffers, multipart
from penstock.errors import DecodeError, Invalid, ServerError, TimedOut, TooLarge
from penstock.kinds.pipe import opener as pipe
from penstock.util.strict import Strict

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

# A message as it arrived: its sender, its number, its kind, the body, and the sender's name.
Found = tuple[int, int, int, bytes, bytes]


def pack(channel: str, body: Body) -> tuple[Any, int]:
    """A message's encoded bytes, and the kind of message."""
    if not isinstance(body, list | tuple):
        return body, 0
    return multipart.join_parts([bytes(buffers.buffer_of(channel, part)) for part in body]), multipart.PARTS


def unpack(data: bytes, kind: int) -> bytes | list[bytes]:
    """The fields that `pack` packed. `Invalid` for other bytes."""
    if not kind & multipart.PARTS:
        return data
    try:
        parts = multipart.split_parts(data)
    except ValueError as error:
        raise Invalid(str(error)) from None
    raise_refusal(parts, kind)
    return parts


def raise_refusal(parts: list[bytes], kind: int) -> None:
    """Raises the `ServerError` that a reply carries in place of an answer."""
    if kind & multipart.REFUSED:
        raise ServerError(b" ".join(parts).decode("utf-8", "replace"))


def _reopen_socket(cls: Callable[..., Any], arguments: tuple[Any, ...], opened: reopening.Opened) -> Any:
    """Opens a pickled socket again."""
    reopening.check_same(arguments[0], opened)
    return cls(*arguments)


class Socket(Strict):
    """The base of every pattern's sockets. Thread-safe. A context manager. Pickles to another process as a new member by its name.

    The first socket on a channel decides its codec. On a channel of bytes a message is bytes or any buffer, or a list of those: its
    parts, which arrive together.
    """

    _names_senders = False  # whether Arrow batches have a column `sender`
    _ends = False  # whether reading ends when every peer that could send to it has left

    def __init__(self, channel: Channel, role: str, arguments: dict[str, Any]) -> None:
        self._channel, self._role, self._arguments = channel, role, arguments
        options = dict(arguments)
        self._name, when_full, clock = options.pop("name"), options.pop("when_full"), options.pop("clock", None)
        spin, codec = seconds(options.pop("spin"), "spin"), options.pop("codec", None)
        self._called = pipe.peer_name(self._name)
        peer, self._codec = pipe.open_peer(channel, role, self._called, when_full, clock, codec, options)
        origin = ReopenArgs(channel.kind, channel, self._codec, type(self), {})
        reader = _native.socket_reader(peer, self._names_senders)
        self._gate = memory.gate(channel) if channel.fake else None
        if self._gate is not None:
            reader.lead_through(self._gate)
        self._pub = handles.publication(_native.pipe_writer(peer), origin)
        # Bytes: a message's sender precedes its body.
        self._sub = NativeSubscription(reader, origin, codecs.BYTES, spin, self._ends)
        self._names: dict[int, str] = {}
        self._plain = self._codec.kind == "bytes"
        self._pack: Callable[[Body], tuple[Any, int]] = self._encode_body if self._plain else self._encode
        self._unpack: Callable[[bytes, int], Any] = unpack if self._plain else self._decode

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded; the first socket or publication on the channel decides it."""
        return self._codec

    @property
    def name(self) -> str:
        """The name of this member. If none was given it was drawn, and a forked child has another one."""
        return decoded(self._called.now())

    @property
    def peers(self) -> list[str]:
        """The names of the live members connected to this one."""
        names = (self._name_of(peer) for peer in _native.pipe_others(self._pub))
        return [name for name in names if name]  # a peer that has just left has none

    @property
    def readers(self) -> int:
        """The number of live members that this member sends to."""
        return self._pub.readers

    @property
    def max_payload(self) -> int:
        """The largest message, in bytes."""
        return self._pub.max_payload

    @property
    def unread_messages(self) -> int:
        """Messages sent here that no reader has finished."""
        return _native.pipe_unread(self._pub)

    @property
    def position(self) -> int:
        """Bytes that this socket has read."""
        return self._sub.position

    @property
    def send_position(self) -> int:
        """Bytes that this socket has written, as `send` returns it."""
        return self._pub.position

    @property
    def lag(self) -> int:
        """Bytes that wait for this socket."""
        return self._sub.lag

    @property
    def lost(self) -> int:
        """Bytes of messages to this socket that were dropped: their senders chose that (`when_full="drop_oldest"`)."""
        return self._sub.lost

    @property
    def lost_messages(self) -> int | None:
        """Messages to this socket that were dropped."""
        return self._sub.lost_messages

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent."""
        return self._sub.last

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pub.closed

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment, read without locks."""
        return self._pub.statistics()

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until there are at least `count` members that this one sends to. `TimedOut` after `timeout` seconds."""
        self._pub.wait_for_readers(count, timeout)

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits for members as `wait_for_readers` does, in the running event loop."""
        await self._pub.wait_for_readers_async(count, timeout)

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to read, for selectors and event loops."""
        return self._sub.fileno()

    def close(self) -> None:
        """Leaves the channel. Other peers can still read the messages that were sent. Safe to call twice."""
        self._sub.close()
        self._pub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel} as {self.name!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        reopening.check_open(self)
        kept = {key: value for key, value in self._arguments.items() if key not in ("clock", "codec")}
        arguments = (self._channel, self._role, kept | codecs.named(self._codec))
        return _reopen_socket, (type(self), arguments, reopening.opened_file(self._channel, self._pub))

    def _encode_body(self, body: Body) -> tuple[Any, int]:
        return pack(self.channel, body)

    def _encode(self, body: Body) -> tuple[Any, int]:
        try:
            return self._codec.encode(body), 0
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__

    def _decode(self, data: bytes, kind: int) -> Any:
        if kind & multipart.PARTS:
            if kind & multipart.REFUSED:
                unpack(data, kind)
            position = self._sub.last.position
            raise DecodeError(
                f"{self.channel}: the message at position {position} has several parts, and messages here are "
                f"{self._codec.kind}. The next call continues behind it",
                position,
            )
        return decode(self._codec, self.channel, self._sub.last.position, data)

    def _name_of(self, peer: int) -> str:
        found = self._names.get(peer)  # a member keeps its name, and its number is never reused
        if found is None:
            found = decoded(_native.pipe_name_of(self._pub, peer))
            if len(self._names) >= 1024:
                self._names.clear()
            if found:  # it may have left in the meantime
                self._names[peer] = found
        return found

    def _full(self) -> str:
        waiting, anybody = self.unread_messages, self._pub.readers != 0
        why = f"{waiting} messages wait to be read" if waiting or anybody else "there is no receiver"
        return f"{self.channel}: no room within the timeout: {why}{_native.take_reason(self._pub)}"

    def _send(self, to: int, number: int, body: Body, timeout: float | None) -> int:
        data, kind = self._pack(body)
        position = _native.pipe_send(self._pub, to, number, kind, data, timeout)
        if position is None:
            raise TimedOut(self._full())
        return position

    def _offer(self, to: int, body: Body) -> int | None:
        data, kind = self._pack(body)
        return _native.pipe_send(self._pub, to, 0, kind, data, 0)

    def _offer_many(self, to: int, messages: Sequence[Body]) -> int:
        sent = 0
        packed = [self._pack_checked(message) for message in buffers.several(self.channel, messages)]
        for data, kind in packed:  # nothing was sent if one cannot be
            if _native.pipe_send(self._pub, to, 0, kind, data, 0) is None:
                break
            sent += 1
        return sent

    def _pack_checked(self, message: Body) -> tuple[bytes, int]:
        """A message as it travels, copied and checked: the sequence that it is of may make all of them in one buffer."""
        body, kind = self._pack(message)
        data, most = bytes(buffers.buffer_of(self.channel, body)), self._pub.max_payload
        if len(data) > most:
            why = "create the channel with a larger capacity"
            raise TooLarge(f"{self.channel}: a message of {len(data)} bytes; the largest is {most} here: {why}")
        return data, kind

    async def _send_async(self, to: int, number: int, body: Body, timeout: float | None) -> int:
        data, kind = self._pack(body)
        return await self._room(lambda: _native.pipe_send(self._pub, to, number, kind, data, 0), timeout)

    async def _room(self, attempt: Callable[[], T | None], timeout: float | None) -> T:
        """The first result of `attempt` that is not None. Tries again when there may be room."""
        return await awaiting.room(self._pub, attempt, timeout, self._full)

    def _take(self, timeout: float | None) -> Found | None:
        return _native.pipe_take(self._sub, timeout)

    def _reason_of_wait(self) -> str:
        return _native.take_reason(self._sub)

    async def _in_time(self, awaited: Awaitable[T], limit: float | None) -> T:
        wait = awaiting.NotedWait(self._sub, f"{self.channel}: no message within the timeout", "messages")
        with awaiting.noted(self._sub, timed=limit is not None) as note:
            note.begin()
            return await awaiting.in_time(awaited, limit, wait)

    async def _wait_for_event(self) -> None:
        await loops.readable(self.fileno())


class ReceivingSocket(Socket, Receiving[Found, Made]):
    """A socket that returns the messages that it receives."""

    _last_sender = b""  # of the message received last

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent, and by whom. `sender` is empty for requests that `serve` answered."""
        return self._sub.last._replace(sender=decoded(self._last_sender))

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now as one Arrow batch: position, session, payload, time. Never blocks.

        A router's batch has a column `sender`, too. At most `limit` rows, and about `max_bytes` of payload unless a single message is
        longer. A message of several parts ends the batch, and is left for `recv`: `Invalid` if it is the first.
        """
        self._refuse("poll_arrow")
        batch = self._sub.poll_arrow(limit, max_bytes)
        if batch.num_rows:
            self._last_sender = _native.last_of(self._sub)[3]
        return batch

    def borrow(self, timeout: float | None = None) -> _native.Borrow:
        """The bytes of the next message in place: a context manager that gives a read-only memoryview. Waits as `recv` does.

        The bytes stay as they are until the block has ended and every view of them is gone. `Invalid` for a message of several parts,
        which is left for `recv`.
        """
        self._refuse("borrow")
        return self._record_sender(self._sub.borrow(timeout))

    async def borrow_async(self, timeout: float | None = None) -> _native.Borrow:
        """The next message as `borrow` gives it, awaited in the running event loop: `with await pair.borrow_async() as view`."""
        self._refuse("borrow_async")
        return self._record_sender(await self._sub.borrow_async(timeout))

    def _refuse(self, what: str) -> None:
        """Raises `Unsupported` if this role lacks the method. what: its name."""

    def _record_sender(self, borrowed: _native.Borrow) -> _native.Borrow:
        self._last_sender = borrowed.envelope[0]
        return borrowed

    def _take(self, timeout: float | None) -> Found | None:
        found = _native.pipe_take(self._sub, timeout)
        if found is not None:
            *_, self._last_sender = found
        return found
