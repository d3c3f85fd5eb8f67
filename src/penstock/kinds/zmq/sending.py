"""Sending over ZeroMQ: encoding, parts, room, claims. Knows no pattern: subclasses define the parts in front of a message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock.channels.checks import counted, seconds
from penstock.channels.interfaces.patterns import decoded
from penstock.codecs import buffers
from penstock.errors import Closed, Disconnected, Invalid, SystemFailure, TimedOut, TooLarge
from penstock.kinds.zmq.socket.handle import ZmqHandle


class ZmqClaim:
    """Memory for one message. As a context manager it gives a writable memoryview. The end of the block sends a copy of it.

    An exception in the block gives the message up. `BufferError` while an array or another view of the memory is in use: nothing
    is sent then.
    """

    def __init__(self, channel: str, length: int, send: Callable[[Any], int]) -> None:
        self._channel, self._send = channel, send
        try:
            self._room = bytearray(length + 1)
        except (MemoryError, OverflowError):
            raise TooLarge(f"{channel}: claim(): there is no memory for a message of {length} bytes") from None
        self._view = memoryview(self._room)[:length]
        self._ended = False

    def __enter__(self) -> memoryview:
        return self._view

    def __exit__(self, kind: object | None, *_: object) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def commit(self) -> int:
        """Sends the message. Returns the handle's position after it, in bytes."""
        if self._ended:
            raise Closed(f"{self._channel}: this claim was committed or aborted already")
        self._ended = True
        self._view.release()
        try:
            self._room.pop()  # refused while another object uses the memory
        except BufferError:
            raise BufferError(
                f"{self._channel}: an array or view made from the claim is still in use, so the message was not sent: fill the view, or "
                f"delete the array before the block ends"
            ) from None
        return self._send(self._room)

    def abort(self) -> None:
        """Gives the message up. Nothing is sent."""
        self._ended = True


class ZmqSending(ZmqHandle):
    """A handle that sends. Positions are bytes that it has sent, with the parts in front of its messages."""

    _room_mask = 0  # events to wait for when there was no room; 0: any event

    def _prepare(self, socket: Any) -> None:
        # pyzmq's own `send` spends half of its time on options that are never given here.
        self._put: Callable[[Any, int], Any] = super(self._zmq.Socket, socket).send  # type: ignore[misc]

    @property
    def max_payload(self) -> int:
        """The largest message, in bytes. ZeroMQ has no limit but memory."""
        return sys.maxsize

    def _no_room(self) -> str:
        """Why a message could not be sent within the timeout."""
        return f"no peer took the message within the timeout{self._explain_wait()}"

    def _body(self, data: Any) -> list[Any]:
        """The parts of a message, without the parts in front of it."""
        if not self._plain:
            try:
                return [memoryview(self._codec.encode(data))]
            except Invalid as error:
                raise buffers.unsendable(self.channel, error) from error.__cause__
        if not isinstance(data, list | tuple):
            return [buffers.buffer_of(self.channel, data)]
        parts = [buffers.buffer_of(self.channel, part) for part in data]
        if not parts:
            raise Invalid(f"{self.channel}: a message has at least one part")
        return parts

    def _try(self, frames: list[Any]) -> int | None:
        """The position after the message, or None if there is no room.

        A send looks once a millisecond at what the io threads reported (`max_command_delay`): a peer that has just connected or
        made room is not seen. Reading EVENTS looks at once.
        """
        with self._lock:
            socket, zmq = self._open(), self._zmq
            try:
                taken = self._offer(socket, frames)
                if not taken:
                    socket.getsockopt(zmq.EVENTS)
                    taken = self._offer(socket, frames)
            except zmq.ZMQError as error:
                if error.errno == zmq.EHOSTUNREACH:
                    raise Disconnected(f"{self.channel}: no peer called {decoded(frames[0])!r} is connected") from error
                raise SystemFailure(error.errno, f"{self.channel}: cannot send: {error.strerror}") from error
            finally:
                self._refresh()
            if not taken:
                return None
            self._sent += 1
            self._written += sum(memoryview(frame).nbytes for frame in frames)
            return self._written

    def _offer(self, socket: Any, frames: list[Any]) -> bool:
        """Whether the socket took the message."""
        try:
            if len(frames) == 1:
                self._put(frames[0], self._noblock)
            else:
                socket.send_multipart(frames, self._noblock)
        except self._zmq.Again:
            return False
        return True

    def _try_all(self, messages: Sequence[Any], frames_of: Callable[[Any], list[Any]]) -> int:
        """How many messages there was room for, in order. All frames are made first: nothing is sent if one cannot be.

        Each is copied before the next message is asked for: the sequence may make all of them in one buffer.
        """
        count = 0
        for frames in [list(map(bytes, frames_of(message))) for message in buffers.several(self.channel, messages)]:
            if self._try(frames) is None:
                break
            count += 1
        return count

    def _send_blocking(self, frames: list[Any], timeout: float | None) -> int:
        position = self._until(lambda: self._try(frames), self._room_mask, timeout, self._tell_room)
        if position is None:
            raise TimedOut(f"{self.channel}: {self._no_room()}")
        return position

    async def _send_blocking_async(self, frames: list[Any], timeout: float | None) -> int:
        position = await self._until_async(lambda: self._try(frames), self._room_mask, timeout, self._tell_room)
        if position is None:
            raise TimedOut(f"{self.channel}: {self._no_room()}")
        return position

    def _create_claim(self, length: int, front: list[Any], timeout: float | None) -> ZmqClaim:
        size, codec = counted(length, "claim", "length", self), self._codec
        if timeout is not None:
            seconds(timeout, "timeout", self)
        if not self._plain and codec.size is None:
            raise Invalid(
                f"{self.channel}: claim writes bytes as they are, and messages here are {codec.kind}: use send or offer"
            )
        if not self._plain and size != codec.size:
            raise Invalid(f"{self.channel}: a message here has {codec.size} bytes, not {length}: claim {codec.size}")
        with self._lock:
            self._open()
        return ZmqClaim(self.channel, size, lambda room: self._send_blocking([*front, room], timeout))
