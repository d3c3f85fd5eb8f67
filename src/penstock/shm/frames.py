"""`frames:` channels: large arrays handed over by reference. A frame that somebody holds is never written to.

A pool of buffers of one shape. The publication fills a free one in place; subscriptions lease what they read, and the lease
lasts as long as the array does. Nothing is copied on the way.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from numpy import frombuffer

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Closed, Invalid, NotFound, TimedOut
from penstock.options import FrameOptions, frame_dtype_name, frame_shape, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription

CONNECT_NAP = 0.002


def _format(options: FrameOptions, _: Codec, fd: int) -> None:
    _native.format_frames(
        fd=fd,
        capacity=options.capacity,
        slots=options.slots,
        buffers=options.buffers,
        frame_bytes=options.frame_bytes,
        start_position=options.start_position,
        start_sequence=options.start_sequence,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codecs.frame(options.dtype, options.shape or ()), options.attributes),
        boot_id=files.boot_id(),
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    about = _native.inspect_frames(fd, path)
    spec = codecs.from_metadata(about["metadata"], path).spec
    about["shape"], about["dtype"] = tuple(spec["shape"]), spec["dtype"]
    return about


KIND = opening.Kind(FrameOptions, _format, _inspect)


class FrameKind:
    """The shape and dtype of a channel's frames."""

    __slots__ = ("bytes", "dtype", "shape")

    def __init__(self, codec: Codec) -> None:
        self.shape, self.dtype = tuple(codec.spec["shape"]), codecs.frame_dtype(codec)
        self.bytes = math.prod(self.shape) * self.dtype.itemsize

    def array(self, buffer: Any) -> np.ndarray[Any, Any]:
        """The array in these bytes, without a copy; as writable as they are."""
        return frombuffer(buffer, self.dtype).reshape(self.shape)


class Frame:
    """A frame received. `array` is read-only and stays as it is for as long as it, or anything made from it, lives.

    Whoever keeps frames keeps their buffers from the publication: let go of them, or copy. `release()` lets go at once; so
    does the end of a `with` block. Not to be shared between processes: a forked child's frames are its parent's.
    """

    __slots__ = ("_array", "_kind", "_lease", "_meta")

    def __init__(self, lease: _native.Lease, kind: FrameKind) -> None:
        self._lease, self._kind = lease, kind
        self._array: Any = None
        self._meta: dict[str, Any] | None = None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The pixels: a read-only NumPy array of the channel's shape and dtype, without a copy."""
        if self._array is None:
            self._array = self._kind.array(self._lease)
        array: np.ndarray[Any, Any] = self._array
        return array

    @property
    def meta(self) -> dict[str, Any]:
        """The publisher's own fields."""
        if self._meta is None:
            fields = self._lease.fields
            self._meta = msgspec.json.decode(fields) if fields else {}
        return self._meta

    @property
    def id(self) -> int:
        """The publisher's number for this frame; its sequence unless it gave one."""
        return self._lease.id

    @property
    def sequence(self) -> int:
        """How many frames were published on this channel before this one."""
        return self._lease.sequence

    @property
    def position(self) -> int:
        """Where the frame's note stands in the channel's stream, in bytes."""
        return self._lease.position

    @property
    def time_ns(self) -> int:
        """When it was published, nanoseconds since the epoch."""
        return self._lease.time_ns

    @property
    def start_ns(self) -> int:
        """When the exposure began, nanoseconds in the publisher's clock; 0 if it did not say."""
        return self._lease.start_ns

    @property
    def end_ns(self) -> int:
        """When the exposure ended, as `start_ns`."""
        return self._lease.end_ns

    def summary(self) -> dict[str, Any]:
        """Everything but the pixels, as plain values."""
        return {
            **{name: getattr(self, name) for name in ("sequence", "id", "time_ns", "start_ns", "end_ns")},
            "shape": list(self._kind.shape),
            "dtype": self._kind.dtype.str,
            "meta": self.meta,
        }

    def release(self) -> None:
        """Gives the lease back now. BufferError while an array made from this frame is still in use."""
        self._array = None
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BufferError):  # somebody keeps an array: the lease ends with it
            self.release()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype=dtype, copy=bool(copy)) if copy or dtype is not None else self.array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<Frame {self.sequence} id={self.id} {self._kind.shape} {self._kind.dtype}>"


class OpenFrame:
    """A buffer of the publication to be filled: as a context manager it is published at the end of the block, and given
    back unpublished if the block raises.

    `array` is writable until then. `id` (default: the frame's sequence), `start_ns`, `end_ns` and the dictionary `meta` (plain
    JSON values) go with it.
    """

    __slots__ = ("_array", "_claim", "_kind", "end_ns", "id", "meta", "start_ns")

    def __init__(self, claim: _native.Claim, kind: FrameKind) -> None:
        self._claim, self._kind = claim, kind
        self._array: Any = None
        self.id: int | None = None
        self.start_ns = self.end_ns = 0
        self.meta: dict[str, Any] = {}

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The buffer, writable until the frame is published."""
        if self._array is None:
            if self._claim.ended:
                raise Closed("this frame was published or given back; acquire another one")
            self._array = self._kind.array(self._claim)
        array: np.ndarray[Any, Any] = self._array
        return array

    def commit(self) -> int:
        """Publishes the frame; the stream position after its note. `Invalid` if `meta` is not plain JSON: then it is given back."""
        try:
            if self.meta or self.id is not None or self.start_ns or self.end_ns:
                fields = msgspec.json.encode(self.meta).decode() if self.meta else ""
                self._claim.describe(self.id, self.start_ns, self.end_ns, fields)
        except TypeError as error:
            self.abort()
            raise Invalid(f"the frame's id, start_ns, end_ns or meta cannot be sent: {error}".split("\n")[0]) from error
        except BaseException:
            self.abort()
            raise
        self._protect()
        return self._claim.commit()

    def abort(self) -> None:
        """Gives the buffer back unpublished."""
        self._protect()
        self._claim.abort()

    def _protect(self) -> None:
        """What was handed out for writing is no longer for writing."""
        if self._array is not None:
            self._array.setflags(write=False)
            self._array = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if not self._claim.ended:
                self.commit()
        else:
            self.abort()


class FramePublication(Publication):
    """A handle that publishes frames. Thread-safe; a context manager; pickles to a child process as a new publication.

    >>> with penstock.publish("frames:doc", shape=(2, 2), dtype="u1") as pub, penstock.subscribe("frames:doc") as sub:
    ...     with pub.acquire() as frame:
    ...         frame.array[...] = 7
    ...         frame.meta["exposure"] = 3
    ...     frame = sub.recv(timeout=1)
    ...     int(frame.array.sum()), frame.meta
    (28, {'exposure': 3})
    """

    def __init__(self, sender: _native.Sender, origin: Origin) -> None:
        super().__init__(sender, origin)
        self._kind = FrameKind(origin.codec)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every frame."""
        return self._kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of every frame."""
        return self._kind.dtype

    def acquire(self, timeout: float | None = None) -> OpenFrame:
        """A free buffer, to be filled in place; see `OpenFrame`. Several may be open at once.

        Waits while readers lease every buffer; TimeoutError after `timeout` seconds. What is not leased is reused, the oldest
        frame first, the newest last.
        """
        return OpenFrame(self.claim(self._kind.bytes, timeout), self._kind)

    def try_acquire(self) -> OpenFrame | None:
        """A free buffer, or None if readers lease every one. Never blocks."""
        try:
            return self.acquire(0)
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
    ) -> int:
        """Copies an array (or the bytes of one) into a free buffer and publishes it. The stream position after its note."""
        pixels = self._fitting(data)
        frame = self.acquire(timeout)
        frame.id, frame.start_ns, frame.end_ns, frame.meta = id, start_ns, end_ns, meta or {}
        with frame:
            frame.array[...] = pixels
        return self.position

    def offer(self, data: Any) -> int | None:
        """The same without ever blocking: None if readers lease every buffer."""
        try:
            return self.send(data, 0)
        except TimedOut:
            return None

    def offer_many(self, messages: Any) -> int:
        """Publishes arrays in order until no buffer is free; how many."""
        count = 0
        for data in messages:
            if self.offer(data) is None:
                break
            count += 1
        return count

    def _fitting(self, data: Any) -> np.ndarray[Any, Any]:
        if isinstance(data, bytes | bytearray | memoryview):
            if memoryview(data).nbytes != self.max_payload:
                raise Invalid(f"{self.channel}: a frame has {self.max_payload} bytes, not {memoryview(data).nbytes}")
            return self._kind.array(data)
        array = np.asarray(data)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise Invalid(
                f"{self.channel}: frames are {self.shape} of {self.dtype}, not {array.shape} of {array.dtype}"
            )
        return array


class FrameSubscription(Subscription):
    """A handle that reads frames. Thread-safe: each frame goes to one caller. Each thing it gives is a `Frame`."""

    _attributes: dict[str, Any] | None = None

    def __init__(self, receiver: _native.Receiver, origin: Origin, spin: float) -> None:
        super().__init__(receiver, origin, spin)
        self._kind = FrameKind(origin.codec)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every frame."""
        return self._kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of every frame."""
        return self._kind.dtype

    @property
    def attributes(self) -> dict[str, Any]:
        """What the channel's maker said of the stream."""
        if self._attributes is None:
            self._attributes = attributes(self._origin.channel)
        return self._attributes

    @property
    def leases(self) -> int:
        """How many buffers this subscription keeps from the publication."""
        return _native.leases(self)

    def recv(self, timeout: float | None = None) -> Frame:  # type: ignore[override]
        """The next frame; waits for it. TimeoutError after `timeout` seconds (None: for ever, 0: now or never)."""
        return Frame(_native.take_frame(self, timeout), self._kind)

    def try_recv(self) -> Frame | None:  # type: ignore[override]
        """The next frame, or None if there is none yet. Never blocks."""
        lease = _native.try_take_frame(self)
        return None if lease is None else Frame(lease, self._kind)

    def latest(self) -> Frame | None:
        """The newest frame there is, whether or not it was received before; None if there is none. Moves nothing."""
        lease = _native.newest_frame(self)
        return None if lease is None else Frame(lease, self._kind)

    def poll(self, limit: int = 1000) -> list[Frame]:
        """What is there now, at most `limit` frames. Never blocks."""
        found: list[Frame] = []
        while len(found) < limit and (frame := self.try_recv()) is not None:
            found.append(frame)
        return found

    @contextlib.contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[memoryview]:  # type: ignore[override]
        """The bytes of the next frame, read-only, for the length of a block."""
        with self.recv(timeout) as frame:
            lease: Any = frame._lease
            yield memoryview(lease)

    async def arecv(self) -> Frame:
        """The next frame; waits in the running event loop. Cancelling it loses nothing."""
        while (frame := self.try_recv()) is None:
            await handles.readable(self.fileno())
        return frame

    def __next__(self) -> Frame:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None


def attributes(channel: Channel) -> dict[str, Any]:
    """What a channel's maker said of it beside shape and dtype."""
    return codecs.attributes(opening.about(KIND, channel)["metadata"])


def open_publication(
    channel: Channel, *, codec: Any = None, clock: _native.ManualClock | None = None, **options: Any
) -> FramePublication:
    """The publication, on a channel made now if there is none. `Busy` while another one lives."""
    _no_codec(codec)
    sender, found = opening.open_end(
        KIND, channel, _asked(options), None, lambda fd, path: _native.frames_sender(fd, path, clock)
    )
    return FramePublication(sender, Origin(KIND, channel, found, open_publication, {}))


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    conflate: bool = True,
    spin: float = 20e-6,
    codec: Any = None,
    connect_timeout: float | None = 0,
    pixels: bool = False,
    **options: Any,
) -> FrameSubscription:
    """A subscription. Waits up to `connect_timeout` seconds for the channel unless `shape` says how to make it.

    pixels: for a recorder that keeps them; positions and lags then count the bytes of a recording.
    """
    _no_codec(codec)
    name, position = opening.start_of(start, ("newest",))
    looking = seconds(spin, "spin")
    patience = math.inf if connect_timeout is None else seconds(connect_timeout, "connect_timeout")
    deadline = time.monotonic() + patience
    while True:
        try:
            receiver, found = opening.open_end(
                KIND,
                channel,
                _asked(options),
                None,
                lambda fd, path: _native.frames_receiver(fd, path, name, position, bool(conflate), pixels),
            )
            break
        except NotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(CONNECT_NAP)
    arguments = {"start": start, "conflate": bool(conflate), "spin": spin}
    return FrameSubscription(receiver, Origin(KIND, channel, found, open_subscription, arguments), looking)


def _no_codec(codec: Any) -> None:
    if codec is not None:
        raise Invalid("frames have a shape and a dtype, no codec")


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """Options in the form in which the channel keeps them."""
    asked = {name: value for name, value in options.items() if value is not None}
    if "shape" in asked:
        asked["shape"] = frame_shape(asked["shape"])
    if "dtype" in asked:
        asked["dtype"] = frame_dtype_name(asked["dtype"])
    return asked
