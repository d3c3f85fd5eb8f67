"""The publication and the subscription of a `frames:` channel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.arrow import to_batch
from penstock.channels.checks import counted
from penstock.channels.handles import NativePublication, NativeSubscription
from penstock.channels.storage import inspection
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.waiting import awaiting
from penstock.codecs import buffers, values
from penstock.errors import Closed, EndOfStream, Invalid, TimedOut
from penstock.kinds.frames.frame import Frame, FrameKind, OpenFrame, factory_of
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import pyarrow as pa


class _Shaped:
    """Has the shape and dtype of its channel's frames."""

    _kind: FrameKind

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of every frame; the largest one, where `varies`."""
        return self._kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every frame; the first one, where there are several."""
        return self._kind.dtype

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The dtypes that a frame may have."""
        return self._kind.dtypes

    @property
    def varies(self) -> bool:
        """Whether frames may be smaller than `shape`."""
        return self._kind.varies

    @property
    def header(self) -> np.dtype[Any] | None:
        """The dtype of each frame's `header`; None if frames have none."""
        return self._kind.header


class FramePublication(_Shaped, NativePublication):
    """A handle that publishes frames. Thread-safe; a context manager; pickles to a child process as a new publication.

    >>> with penstock.publish("frames:doc", shape=(2, 2), dtype="u1") as pub, penstock.subscribe("frames:doc") as sub:
    ...     with pub.acquire() as frame:
    ...         frame.array[...] = 7
    ...         frame.meta["exposure"] = 3
    ...     frame = sub.recv(timeout=1)
    ...     int(frame.array.sum()), frame.meta
    (28, {'exposure': 3})
    """

    def __init__(self, writer: _native.WriterEnd, origin: ReopenArgs) -> None:
        super().__init__(writer, origin)
        self._kind = FrameKind(origin.codec, str(origin.channel))
        self._factory = factory_of(self._kind)

    def acquire(
        self, timeout: float | None = None, *, shape: tuple[int, ...] | int | None = None, dtype: Any = None
    ) -> OpenFrame:
        """A free buffer, to be filled in place; see `OpenFrame`. Several may be open at once.

        shape, dtype: of this frame, where the channel leaves it open; by default the largest one and the first one.

        Waits while readers lease every buffer, or have yet to receive its frame and asked for `when_slow="wait"`; `TimedOut` after
        `timeout` seconds, with the process that holds most. Buffers without a lease are reused, the oldest
        frame first, the newest last. `claim` gives the same buffer as bytes; `acquire` gives it as an array, with the fields.
        """
        frame: OpenFrame = _native.open_frame(self, self._factory, timeout, shape, dtype)
        return frame

    async def acquire_async(
        self, timeout: float | None = None, *, shape: tuple[int, ...] | int | None = None, dtype: Any = None
    ) -> OpenFrame:
        """A free buffer as `acquire` gives it, awaited in the running event loop."""

        def attempt() -> OpenFrame | None:
            return self.try_acquire(shape=shape, dtype=dtype)

        return await awaiting.room(self, attempt, timeout, self._no_room)

    def try_acquire(self, *, shape: tuple[int, ...] | int | None = None, dtype: Any = None) -> OpenFrame | None:
        """A free buffer, or None if there is none. Never blocks."""
        try:
            return self.acquire(0, shape=shape, dtype=dtype)
        except TimedOut:
            return None

    def send(
        self,
        data: Any,
        timeout: float | None = None,
        *,
        id: int | None = None,
        start_ns: int = 0,
        end_ns: int = 0,
        meta: dict[str, Any] | None = None,
        header: Any = None,
    ) -> int:
        """Copies an array (or its bytes) into a free buffer and publishes it. Returns the stream position after its note.

        header: where the channel has one, a record or a tuple of its fields; by default zeros.
        """
        kind, pixels = self._kind, self._fitting(data)
        if kind.plain and pixels.flags.c_contiguous and not (meta or start_ns or end_ns) and id is header is None:
            buffer: Any = pixels
            return super().send(buffer, timeout)
        frame = _native.open_frame(self, self._factory, timeout, pixels.shape, pixels.dtype)
        return self._publish(frame, pixels, id, start_ns, end_ns, meta, header)

    async def send_async(
        self,
        data: Any,
        timeout: float | None = None,
        *,
        id: int | None = None,
        start_ns: int = 0,
        end_ns: int = 0,
        meta: dict[str, Any] | None = None,
        header: Any = None,
    ) -> int:
        """Sends a frame as `send` does, and waits for a free buffer in the running event loop."""
        pixels = self._fitting(data)
        frame = await self.acquire_async(timeout, shape=pixels.shape, dtype=pixels.dtype)
        return self._publish(frame, pixels, id, start_ns, end_ns, meta, header)

    def offer(self, data: Any) -> int | None:
        """Sends a frame, or returns None if no buffer is free. Never blocks."""
        try:
            return self.send(data, 0)
        except TimedOut:
            return None

    def offer_many(self, messages: Any) -> int:
        """Publishes arrays in order until no buffer is free. Returns the number published."""
        count = 0
        arrays = [self._fitting(data) for data in self._each(buffers.several(self.channel, messages))]
        for pixels in arrays:  # nothing was sent if one does not fit
            if self.offer(pixels) is None:
                break
            count += 1
        return count

    @staticmethod
    def _each(messages: Any) -> Iterator[Any]:
        """The frames of a sequence, copied where the sequence may make all of them in one buffer."""
        import copy

        own = isinstance(messages, list | tuple) or hasattr(messages, "__array_interface__")
        return iter(messages) if own else map(copy.copy, messages)

    @staticmethod
    def _publish(
        frame: OpenFrame,
        pixels: np.ndarray[Any, Any],
        id: int | None,
        start_ns: int,
        end_ns: int,
        meta: dict[str, Any] | None,
        header: Any,
    ) -> int:
        """Fills the frame and publishes it; the position after it. Gives the buffer back if that fails."""
        if id is not None or start_ns or end_ns or meta:
            frame.id, frame.start_ns, frame.end_ns, frame.meta = id, start_ns, end_ns, meta
        if header is not None:
            if frame.header is None:
                frame.abort()
                raise Invalid(f"{frame.channel}: frames here have no header: the channel was made without header=")
            frame.header = header
        try:
            frame.array[...] = pixels
        except BaseException:
            frame.abort()
            raise
        return frame.commit()

    def _fitting(self, data: Any) -> np.ndarray[Any, Any]:
        kind = self._kind
        array: np.ndarray[Any, Any] = data
        if type(data) is not ndarray and isinstance(data, bytes | bytearray | memoryview):
            data = buffers.buffer_of(self.channel, data)
            size = memoryview(data).nbytes
            if kind.varies and kind.flat and size <= kind.whole_bytes and size % kind.dtype.itemsize == 0:
                return kind.array(data, (size // kind.dtype.itemsize,), kind.dtype)
            if size != kind.whole_bytes:
                raise Invalid(f"{self.channel}: {kind.bytes_text}, not {size}")
            return kind.whole(data)
        if type(data) is not ndarray or (data.dtype is not kind.dtype and kind.number_of(data.dtype) is None):
            array = self._converted(data)
        if array.shape != kind.shape and not kind.holds(array.shape):
            raise kind.misshapen(array.shape)
        return array

    def _converted(self, data: Any) -> np.ndarray[Any, Any]:
        """An array of the channel's dtype, or of one of them if the value has one."""
        kind, found = self._kind, getattr(data, "dtype", None)
        if isinstance(found, np.dtype) and len(kind.dtypes) > 1 and kind.number_of(found) is None:
            raise Invalid(f"{self.channel}: frames here are of {kind.dtypes_text}, not {found}")
        number = kind.number_of(found) if isinstance(found, np.dtype) else 0
        try:
            return values.fitted(data, kind.dtypes[number or 0])
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__


class FrameSubscription(_Shaped, NativeSubscription):
    """A handle that reads frames. Thread-safe: each frame goes to one caller. Each message is a `Frame`."""

    _attributes: dict[str, Any] | None = None

    def __init__(self, reader: _native.ReaderEnd, origin: ReopenArgs, spin: float, until_end: bool = False) -> None:
        # The compiled class returns frames as encoded bytes.
        super().__init__(reader, origin, codecs.BYTES, spin, until_end)
        self._kind = FrameKind(origin.codec, str(origin.channel))
        self._factory = factory_of(self._kind)

    @property
    def attributes(self) -> dict[str, Any]:
        """The stream's attributes, given when the channel was made."""
        if self._attributes is None:
            self._attributes = codecs.attributes(inspection.about_opened(self._origin.kind, self)["metadata"])
        return self._attributes

    @property
    def leases(self) -> int:
        """How many buffers this subscription leases."""
        return _native.leases(self)

    def recv(self, timeout: float | None = None) -> Frame:  # type: ignore[override]
        """The next frame; waits for it. `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits)."""
        frame: Frame = _native.take_frame(self, self._factory, timeout)
        return frame

    def try_recv(self) -> Frame | None:  # type: ignore[override]
        """The next frame, or None if there is none yet. Never blocks."""
        frame: Frame | None = _native.try_take_frame(self, self._factory)
        return frame

    def latest(self) -> Frame | None:
        """The newest frame, whether or not it was received before; None if there is none. The subscription's position does not change."""
        frame: Frame | None = _native.newest_frame(self, self._factory)
        return frame

    def poll(self, limit: int = 1000) -> list[Frame]:
        """The frames that are there now, at most `limit` frames. Never blocks."""
        limit = counted(limit, "poll", "limit", self)
        found: list[Frame] = []
        try:
            while len(found) < limit and (frame := self.try_recv()) is not None:
                found.append(frame)
        except EndOfStream:
            if not found:
                raise  # else the next call raises it
        return found

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The frames that are there now, as one Arrow batch: position, session, payload, time. Never blocks.

        A row for each frame, at most `limit`; its payload is the frame's bytes, as `borrow` gives them. About `max_bytes` of
        payload at most, unless a single frame is larger. Copies; the frames' buffers are free again afterwards.
        """
        with explain_missing("poll_arrow()"):
            import pyarrow as pa

        limit, max_bytes = (
            counted(limit, "poll_arrow", "limit", self),
            counted(max_bytes, "poll_arrow", "max_bytes", self),
        )
        schema = to_batch(_native.poll_arrow(self, 0, 1)).schema
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        room = max(1, max_bytes // self._kind.bytes)
        for frame in self.poll(min(limit, room)):
            with frame:
                row = (frame.position, frame._session, frame.array.tobytes(), frame.time_ns)
            for column, value in zip(("position", "session", "payload", "time"), row, strict=True):
                columns[column].append(value)
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def borrow(self, timeout: float | None = None) -> AbstractContextManager[memoryview]:  # type: ignore[override]
        """The bytes of the next frame, read-only, for the length of a block. Waits as `recv` does."""
        return _bytes_of(self.recv(timeout))

    async def borrow_async(self, timeout: float | None = None) -> AbstractContextManager[memoryview]:  # type: ignore[override]
        """The bytes of the next frame as `borrow` gives them, awaited in the running event loop."""
        return _bytes_of(await self.recv_async(timeout))

    async def recv_async(self, timeout: float | None = None) -> Frame:
        """The next frame as `recv` gives it, awaited in the running event loop. Cancelling it loses nothing."""
        return await awaiting.message(self, self.try_recv, timeout, f"{self.channel}: no frame within the timeout")

    def __next__(self) -> Frame:
        try:
            return self.recv()
        except (Closed, EndOfStream):
            raise StopIteration from None


@contextlib.contextmanager
def _bytes_of(frame: Frame) -> Iterator[memoryview]:
    with frame:
        lease: Any = frame._lease
        yield memoryview(lease)
