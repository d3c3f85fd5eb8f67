"""Receiving over ZeroMQ: taking messages, decoding, batches, frames in place.

Knows no pattern: its subclasses define the parts in front of a message.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Iterator
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from penstock import codecs
from penstock.channels.checks import counted, seconds
from penstock.channels.interfaces.patterns import decoded
from penstock.channels.interfaces.subscription import Received
from penstock.channels.waiting.iteration import until_closed_async
from penstock.errors import Closed, DecodeError, Invalid, PenstockError, TimedOut, Unsupported
from penstock.kinds.zmq.socket.handle import LOOK_MASK, ZmqHandle
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import pyarrow as pa
    import zmq

# A message: its parts, with the topic, and the values for `last`.
Taken = tuple[list[bytes], tuple[int, int, int, str, str]]


class ZmqReceived(Received):
    """Where and when a message was received.

    position: bytes received before it. time_ns: of its arrival. session: 0: ZeroMQ does not report which publication sent it. sender: the name
    of a router's or replier's peer. topic: its topic, if it has one.
    """

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The message's topic; `type` has it, too."""
        return self.type


class ZmqTaking(ZmqHandle):
    """A handle that takes messages from its socket. Positions are bytes received, with the parts in front of messages."""

    _front: Literal["", "topic", "sender"] = ""  # the meaning of the first of several parts
    _column: Literal["", "topic", "sender"] = ""  # the column that batches have for it

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._last = self._before = (0, 0, 0, "", "")
        super().__init__(*arguments, **options)

    def _take(self) -> Taken | None:
        with self._lock:
            socket = self._socket
            if socket is None or self._deferred:
                socket = self._open()  # or raises `Closed`
                if self._deferred:
                    return self._pop_deferred()
            try:
                parts = self._parts(socket)
            except self._zmq.Again:
                self._open()
                self._refresh()
                return None
            if len(parts) > 1:
                return self._count_message(parts)
            position = self._read
            self._read = position + len(parts[0])
            self._before = self._last
            self._last = last = (position, time_ns(), 0, "", "")
            self._received += 1
            if self._sleepers or self._lent or not self._received & LOOK_MASK:
                self._after()
            return parts, last

    def _count_message(self, parts: list[Any]) -> Taken:
        """Counts a message that was just received. With the lock held."""
        front = decoded(bytes(parts[0])) if len(parts) > 1 and self._front else ""
        sender, topic = (front, "") if self._front == "sender" else ("", front)
        position = self._read
        self._before, self._last = self._last, (position, time_ns(), 0, sender, topic)
        self._read = position + sum(map(len, parts))
        self._received += 1
        self._after()
        return parts, self._last

    def _after(self) -> None:
        if not self._received & LOOK_MASK:
            self._read_reports()
        self._refresh()

    def _pop_deferred(self) -> Taken:
        taken: Taken = self._deferred.popleft()
        self._before, self._last = self._last, taken[1]
        self._refresh()
        return taken

    def _parts(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        """The next message, with all its parts; zmq.Again if there is none."""
        try:
            frame: Any = socket.recv(self._noblock, False)
            if not frame.more:  # the frame has the flag; a query of the socket costs more
                return [frame.bytes]
            return [part.bytes for part in self._receive_rest(frame, socket)]
        except self._zmq.Again:
            raise
        except BaseException:
            self._drop_the_rest(socket)
            raise

    def _receive_uncopied(self, socket: zmq.Socket[bytes]) -> list[Any]:
        """`_parts` as frames: memory of ZeroMQ's, not copied."""
        try:
            return self._receive_rest(socket.recv(self._noblock, False), socket)
        except self._zmq.Again:
            raise
        except BaseException:
            self._drop_the_rest(socket)
            raise

    def _receive_rest(self, frame: Any, socket: zmq.Socket[bytes]) -> list[Any]:
        frames = [frame]
        while frame.more:
            frame = socket.recv(self._noblock, False)
            frames.append(frame)
        return frames

    def _drop_the_rest(self, socket: zmq.Socket[bytes]) -> None:
        """After a signal's handler raised: the remaining parts must not be taken for a message."""
        while socket.getsockopt(self._zmq.RCVMORE):
            socket.recv(self._noblock)

    def _without_front(self, parts: list[Any]) -> list[Any]:
        return parts[1:] if len(parts) > 1 and self._front else parts

    def _convert(self, taken: Taken) -> Any:
        parts, received = taken
        return self._decode_message(parts if len(parts) == 1 else self._without_front(parts), received[0])

    def _decode_message(self, body: list[bytes], position: int) -> Any:
        """A message from its parts, as the user gets it. position: of the message, for errors."""
        if self._plain:
            return body[0] if len(body) == 1 else body
        if len(body) == 1:
            try:
                return self._codec.parse(body[0])
            except Exception as error:
                raise codecs.undecodable(self._codec, self.channel, position, body[0], error) from error
        raise DecodeError(
            f"{self.channel}: the message at position {position} has {len(body)} parts, and codec {self._codec.kind!r} reads one: "
            f"open the handle without a codec to get the parts. The next call continues behind it",
            position,
        )

    def _only_part(self, taken: Taken) -> Any:
        """The body of a message that must have one part. Of several parts it is kept for the next call, and `Invalid` is raised."""
        body = self._without_front(taken[0])
        if len(body) == 1:
            return body[0]
        self._defer(taken)
        raise Invalid(f"{self.channel}: the next message has {len(body)} parts, and there is room for one: use recv")

    def _defer(self, taken: Taken) -> None:
        """Leaves the message taken last for the next call."""
        with self._lock:
            self._deferred.appendleft(([bytes(part) for part in taken[0]], taken[1]))
            self._last = self._before
            self._refresh()

    def _check_taken(self, taken: Taken | None) -> Taken:
        if taken is None:
            raise TimedOut(f"{self.channel}: no message within the timeout{self._explain_wait()}")
        return taken

    def _take_frames(self) -> Taken | None:
        """`_take` without a copy: the parts are ZeroMQ's frames."""
        with self._lock:
            socket = self._open()
            if self._deferred:
                return self._pop_deferred()
            try:
                frames = self._receive_uncopied(socket)
            except self._zmq.Again:
                self._refresh()
                return None
            return self._count_message(frames)


class ZmqReceiving(ZmqTaking):
    """The methods of a handle that receives, whatever its pattern."""

    def _refuse(self, what: str) -> None:
        """Raises `Unsupported` if this role lacks the method. what: its name."""

    @property
    def last(self) -> ZmqReceived:
        """The position, time and topic of the message received last."""
        return ZmqReceived(*self._last)

    @property
    def lag(self) -> int:
        """Raises `Unsupported`: ZeroMQ does not report the content of its queues."""
        self._refuse_unknown("how much waits to be read", "lag")

    @property
    def lost(self) -> int:
        """Raises `Unsupported`: ZeroMQ does not count the messages that a full queue drops."""
        self._refuse_unknown("what a full queue dropped", "lost")

    @property
    def lost_messages(self) -> int | None:
        """Raises `Unsupported`: ZeroMQ does not count the messages that a full queue drops."""
        self._refuse_unknown("what a full queue dropped", "lost_messages")

    def _refuse_unknown(self, what: str, name: str) -> NoReturn:
        raise Unsupported(
            f"{self.channel}: ZeroMQ does not report {what}; {name} is known on log:, ring:, sync: and pipe: channels"
        )

    def recv(self, timeout: float | None = None) -> Any:
        """The next message. Waits for it. `TimedOut` after `timeout` seconds."""
        if timeout is not None:
            seconds(timeout, "timeout", self)
        taken = self._take()
        if taken is None:
            taken = self._check_taken(self._until(self._take, self._zmq.POLLIN, timeout))
        parts = taken[0]
        return parts[0] if self._plain and len(parts) == 1 else self._convert(taken)

    async def recv_async(self, timeout: float | None = None) -> Any:
        """`recv` in the running event loop. Cancelling it loses nothing."""
        return self._convert(self._check_taken(await self._until_async(self._take, self._zmq.POLLIN, timeout)))

    def try_recv(self) -> Any:
        """The next message, or None if there is none yet. Never blocks."""
        taken = self._take()
        if taken is None:
            return None
        parts = taken[0]
        return parts[0] if self._plain and len(parts) == 1 else self._convert(taken)

    def poll(self, limit: int = 1000) -> list[Any]:
        """The messages that are there now, at most `limit` of them. Never blocks.

        Ends before a message that cannot be decoded. The next call raises its error, and the one after that continues behind it.
        """
        limit = counted(limit, "poll", "limit", self)
        found: list[Any] = []
        while len(found) < limit and (taken := self._take()) is not None:
            try:
                found.append(self._convert(taken))
            except PenstockError:
                if not found:
                    raise
                self._defer(taken)
                break
        return found

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now as one Arrow batch: session, position, payload, time. Never blocks.

        With `topics` there is a column `topic`, and for a router a column `sender`. time: of arrival; ZeroMQ does not carry when a
        message was sent. session: 0. A message of several parts ends the batch, and is left for `recv`.
        """
        self._refuse("poll_arrow")
        with explain_missing("poll_arrow()"):
            import pyarrow as pa

        limit, max_bytes = (
            counted(limit, "poll_arrow", "limit", self),
            counted(max_bytes, "poll_arrow", "max_bytes", self),
        )
        columns: tuple[list[Any], ...] = ([], [], [], [], [])
        size = 0
        while len(columns[0]) < limit and size < max_bytes and (taken := self._take()) is not None:
            try:
                body = self._only_part(taken)
            except Invalid:
                if not columns[0]:
                    raise
                break
            size += len(body)
            position, time, session, sender, topic = taken[1]
            row = (session, position, body, time, sender or topic)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        kinds = (pa.int32(), pa.int64(), pa.binary(), pa.timestamp("ns", "UTC"), pa.string())
        names = ("session", "position", "payload", "time", self._column)
        count = 5 if self._column else 4
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(names, kinds, strict=True)][:count]
        columns[4][:] = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in columns[4]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=False)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def borrow(self, timeout: float | None = None) -> contextlib.AbstractContextManager[memoryview]:
        """The bytes of the next message in ZeroMQ's own memory: a context manager that gives a read-only memoryview.

        The view ends with the block; an array made from it keeps the memory. `Invalid` for a message of several parts, which is left for
        `recv`.
        """
        self._refuse("borrow")
        return self._borrow_message(timeout)

    @contextlib.contextmanager
    def _borrow_message(self, timeout: float | None) -> Iterator[memoryview]:
        taken = self._check_taken(self._until(self._take_frames, self._zmq.POLLIN, timeout))
        with _view_body(self._only_part(taken)) as view:
            yield view

    async def borrow_async(self, timeout: float | None = None) -> contextlib.AbstractContextManager[memoryview]:
        """`borrow` in the running event loop: `with await sub.borrow_async() as view`."""
        self._refuse("borrow_async")
        taken = self._check_taken(await self._until_async(self._take_frames, self._zmq.POLLIN, timeout))
        return _view_body(self._only_part(taken))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    def __aiter__(self) -> AsyncIterator[Any]:
        return until_closed_async(self.recv_async)


@contextlib.contextmanager
def _view_body(body: Any) -> Iterator[memoryview]:
    """A frame's or message's bytes for the length of a block. An array made from them keeps the frame."""
    view = memoryview(body).toreadonly()
    # torch.frombuffer keeps the view, but not its buffer: the memory lives as long as the view.
    weakref.finalize(view, id, body).atexit = False
    try:
        yield view
    finally:
        with contextlib.suppress(BufferError):
            view.release()
