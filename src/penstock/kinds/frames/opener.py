"""`frames:` channels: large arrays passed by reference. A frame that a reader holds is never overwritten.

A pool of buffers of one shape. The publication fills a free one in place. Subscriptions lease the buffers that they read, and the lease
lasts as long as the array does. Nothing is copied on the way.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy import ndarray

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import awaiting, files, handles, opening
from penstock.channels.channel import Channel
from penstock.channels.checks import counted, flag, manual_clock, seconds
from penstock.channels.handles import NativePublication, NativeSubscription, Origin
from penstock.channels.kind import Kind, Layout
from penstock.channels.value import ChannelValue
from penstock.codecs import Codec, values
from penstock.errors import Closed, EndOfStream, Invalid, NotFound, TimedOut, Unsupported
from penstock.kinds.frames.frame import Frame, FrameKind, OpenFrame
from penstock.kinds.frames.options import FrameOptions, frame_dtype_name, frame_shape
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_NAP = 0.002
NEVER, ALWAYS, WITH_OTHERS, WHERE_OPENED = range(4)  # whether publications wait for a subscription: frame_layout.hpp


def _format(options: FrameOptions, _: Codec, fd: int) -> None:
    _native.format_frames(
        fd=fd,
        capacity=options.notes_capacity,
        slots=options.max_members,
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
    about |= {"shape": tuple(spec["shape"]), "dtype": spec["dtype"]}
    totals, frame = about["totals"], about["frame_bytes"]  # the ring below counts the bytes of its notes
    totals |= {f"bytes_{way}": totals[f"messages_{way}"] * frame for way in ("sent", "received", "lost")}
    for member in about["members"]:
        member |= {"bytes": member["messages"] * frame, "bytes_lost": member["messages_lost"] * frame}
    return about


class FramePublication(NativePublication):
    """A handle that publishes frames. Thread-safe; a context manager; pickles to a child process as a new publication.

    >>> with penstock.publish("frames:doc", shape=(2, 2), dtype="u1") as pub, penstock.subscribe("frames:doc") as sub:
    ...     with pub.acquire() as frame:
    ...         frame.array[...] = 7
    ...         frame.meta["exposure"] = 3
    ...     frame = sub.recv(timeout=1)
    ...     int(frame.array.sum()), frame.meta
    (28, {'exposure': 3})
    """

    def __init__(self, writer: _native.WriterEnd, origin: Origin) -> None:
        super().__init__(writer, origin)
        self._kind = FrameKind(origin.codec, str(origin.channel))

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

        Waits while readers lease every buffer, or have yet to receive its frame and asked for `when_slow="wait"`; `TimedOut` after
        `timeout` seconds, with the process that holds most. Buffers without a lease are reused, the oldest
        frame first, the newest last. `claim` gives the same buffer as bytes; `acquire` gives it as an array, with the fields.
        """
        return OpenFrame(_native.claim_frame(self, timeout), self._kind)

    async def acquire_async(self, timeout: float | None = None) -> OpenFrame:
        """A free buffer as `acquire` gives it, awaited in the running event loop."""
        return await awaiting.room(self, self.try_acquire, timeout, self._no_room)

    def try_acquire(self) -> OpenFrame | None:
        """A free buffer, or None if there is none. Never blocks."""
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
        """Copies an array (or its bytes) into a free buffer and publishes it. Returns the stream position after its note."""
        pixels = self._fitting(data)
        if self._kind.plain and pixels.flags.c_contiguous and not (meta or start_ns or end_ns) and id is None:
            buffer: Any = pixels
            return super().send(buffer, timeout)
        return self._publish(self.acquire(timeout), pixels, id, start_ns, end_ns, meta)

    async def send_async(
        self,
        data: Any,
        timeout: float | None = None,
        *,
        id: int | None = None,
        start_ns: int = 0,
        end_ns: int = 0,
        meta: dict[str, Any] | None = None,
    ) -> int:
        """Sends a frame as `send` does, and waits for a free buffer in the running event loop."""
        pixels = self._fitting(data)
        return self._publish(await self.acquire_async(timeout), pixels, id, start_ns, end_ns, meta)

    def offer(self, data: Any) -> int | None:
        """Sends a frame, or returns None if no buffer is free. Never blocks."""
        try:
            return self.send(data, 0)
        except TimedOut:
            return None

    def offer_many(self, messages: Any) -> int:
        """Publishes arrays in order until no buffer is free. Returns how many."""
        count = 0
        arrays = [self._fitting(data) for data in self._each(codecs.several(self.channel, messages))]
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
    ) -> int:
        """Fills the frame and publishes it; the position after it. Gives the buffer back if that fails."""
        frame.id, frame.start_ns, frame.end_ns, frame.meta = id, start_ns, end_ns, meta or {}
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
            data = codecs.buffer_of(self.channel, data)
            if memoryview(data).nbytes != self.max_payload:
                raise Invalid(f"{self.channel}: a frame has {self.max_payload} bytes, not {memoryview(data).nbytes}")
            return kind.array(data)
        if type(data) is not ndarray or (data.dtype is not kind.dtype and data.dtype != kind.dtype):
            try:
                array = values.fitted(data, kind.dtype)
            except Invalid as error:
                raise codecs.unsendable(self.channel, error) from error.__cause__
        if array.shape != kind.shape:
            raise Invalid(f"{self.channel}: frames have the shape {self.shape}, not {array.shape}")
        return array


class FrameSubscription(NativeSubscription):
    """A handle that reads frames. Thread-safe: each frame goes to one caller. Each message is a `Frame`."""

    _attributes: dict[str, Any] | None = None

    def __init__(self, reader: _native.ReaderEnd, origin: Origin, spin: float, until_end: bool = False) -> None:
        super().__init__(reader, origin, spin, until_end)
        self._kind = FrameKind(origin.codec, str(origin.channel))

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
        """The stream's attributes, given when the channel was made."""
        if self._attributes is None:
            self._attributes = codecs.attributes(opening.about_opened(self._origin.kind, self)["metadata"])
        return self._attributes

    @property
    def leases(self) -> int:
        """How many buffers this subscription leases."""
        return _native.leases(self)

    def recv(self, timeout: float | None = None) -> Frame:  # type: ignore[override]
        """The next frame; waits for it. `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits)."""
        return Frame(_native.take_frame(self, timeout), self._kind)

    def try_recv(self) -> Frame | None:  # type: ignore[override]
        """The next frame, or None if there is none yet. Never blocks."""
        lease = _native.try_take_frame(self)
        return None if lease is None else Frame(lease, self._kind)

    def latest(self) -> Frame | None:
        """The newest frame, whether or not it was received before; None if there is none. The subscription's position does not change."""
        lease = _native.newest_frame(self)
        return None if lease is None else Frame(lease, self._kind)

    def poll(self, limit: int = 1000) -> list[Frame]:
        """The frames that are there now, at most `limit` frames. Never blocks."""
        limit = counted(limit, "poll", "limit", self)
        found: list[Frame] = []
        try:
            while len(found) < limit and (frame := self.try_recv()) is not None:
                found.append(frame)
        except EndOfStream:
            if not found:
                raise  # else the next call says so
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
        schema = handles.to_batch(_native.poll_arrow(self, 0, 1)).schema
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        room = max(1, max_bytes // self._kind.bytes)
        for frame in self.poll(min(limit, room)):
            with frame:
                row = (frame.position, frame._lease.session, frame.array.tobytes(), frame.time_ns)
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


def open_publication(
    channel: Channel,
    *,
    when_slow: str | None = None,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> FramePublication:
    """The publication, on a channel made now if there is none. `Busy` while another one lives.

    when_slow: "skip": it waits for the subscriptions that ask for it. "wait": for all that read every frame, recorders too.
    """
    stamps, waits = manual_clock(clock), _waits(channel, when_slow)
    writer, found = opening.open_end(
        channel.kind,
        channel,
        _asked(channel, codec, options),
        None,
        lambda fd, path: _native.frames_writer(fd, path, stamps, waits),
    )
    return FramePublication(writer, Origin(channel.kind, channel, found, open_publication, {"when_slow": when_slow}))


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    conflate: bool | None = None,
    when_slow: str | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    connect_timeout: float | None = 0,
    pixels: bool = False,
    **options: Any,
) -> FrameSubscription:
    """A subscription. Waits up to `connect_timeout` seconds for the channel unless `shape` says how to make it.

    when_slow: "skip": publications go on, and what it cannot lease in time is lost. "wait": they wait until it has received each frame.
    None: those wait that were opened with when_slow="wait", if it reads every frame.
    pixels: for a recorder that keeps them; positions and lags then count the bytes of a recording.
    """
    return _subscription(
        channel,
        WHERE_OPENED,
        start,
        last,
        conflate,
        when_slow,
        spin,
        until_end,
        codec,
        connect_timeout,
        pixels,
        options,
    )


def open_tap(
    channel: Channel, *, when_slow: str | None = None, pixels: bool = False, **options: Any
) -> FrameSubscription:
    """A recorder's subscription. Unless `when_slow` says otherwise, a publication that waits for anybody waits for it too."""
    return _subscription(
        channel, WITH_OTHERS, options.pop("start", "newest"), None, False, when_slow, 0, False, None, 0, pixels, options
    )


def _subscription(
    channel: Channel,
    unasked: int,
    start: str | int,
    last: int | None,
    conflate: bool | None,
    when_slow: str | None,
    spin: float,
    until_end: bool,
    codec: Any,
    connect_timeout: float | None,
    pixels: bool,
    options: dict[str, Any],
) -> FrameSubscription:
    """unasked: whether publications wait for one that reads every frame and has no `when_slow`."""
    asked = _asked(channel, codec, options)
    name, position = opening.start_of(start, ("newest",), last)
    looking, ends = seconds(spin, "spin"), flag(until_end, "until_end")
    waits, recorded = _waits(channel, when_slow), flag(pixels, "pixels")
    newest = not waits and last is None if conflate is None else flag(conflate, "conflate")
    opening.refuse_last(newest, last)
    if newest and waits:
        raise Invalid(
            f"{channel}: when_slow='wait' is for every frame, conflate=True for the newest one: give one of them"
        )
    level = ALWAYS if waits else NEVER if newest or when_slow is not None else unasked
    patience = math.inf if connect_timeout is None else seconds(connect_timeout, "connect_timeout")
    deadline = time.monotonic() + patience
    while True:
        try:
            reader, found = opening.open_end(
                channel.kind,
                channel,
                asked,
                None,
                lambda fd, path: _native.frames_reader(fd, path, name, position, newest, level, recorded),
            )
            break
        except NotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(CONNECT_NAP)
    arguments = {"start": start, "conflate": newest, "when_slow": when_slow, "spin": spin, "until_end": ends}
    return FrameSubscription(reader, Origin(channel.kind, channel, found, open_subscription, arguments), looking, ends)


def _waits(channel: Channel, when_slow: str | None) -> bool:
    """Whether `when_slow` asks publications to wait."""
    if when_slow in ("drop", "fail"):
        raise Unsupported(
            f"{channel}: when_slow={when_slow!r} is for other kinds: here a slow reader skips, or writers wait"
        )
    if when_slow not in (None, "skip", "wait"):
        raise Invalid(f"{channel}: when_slow is {when_slow!r}: it must be 'skip' or 'wait'")
    return when_slow == "wait"


def _asked(channel: Channel, codec: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options as the channel stores them. A codec says shape and dtype: `penstock.array(dtype, shape)`."""
    asked = {name: value for name, value in options.items() if value is not None}
    if codec is not None:
        spec = codecs.resolve(codec).spec
        if spec["kind"] != "array" or -1 in spec["shape"]:
            raise Unsupported(
                f"{channel}: frames are arrays of one shape: give shape= and dtype=, or codec=penstock.array(dtype, shape)"
            )
        told = {"shape": frame_shape(spec["shape"]), "dtype": frame_dtype_name(spec["dtype"])}
        for name, check in (("shape", frame_shape), ("dtype", frame_dtype_name)):
            if name in asked and check(asked[name]) != told[name]:
                raise Invalid(
                    f"{channel}: codec says {name}={told[name]!r}, and {name}= {asked[name]!r}: give one of them"
                )
        asked = {**asked, **told}
    if "shape" in asked:
        asked["shape"] = frame_shape(asked["shape"])
    if "dtype" in asked:
        asked["dtype"] = frame_dtype_name(asked["dtype"])
    return asked


@dataclass(frozen=True, repr=False)
class Frames(ChannelValue["Frame"]):
    """A `frames:` channel: large arrays of one shape, passed by reference.

    shape, dtype: of every frame; dtype is "u1" unless chosen. buffers: frames that exist at once, 2 to 1024. max_members: subscriptions at
    once, 1 to 1024. attributes: what else is to be known of the stream, plain JSON; kept in the channel. Frames have no codec.
    """

    _prefix: ClassVar[str] = "frames:"

    codec: None = None
    _: KW_ONLY
    shape: tuple[int, ...] | int | None = None
    dtype: Any = None
    buffers: int | None = None
    max_members: int | None = None
    attributes: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.codec is not None:
            raise Invalid(f"{self.uri}: frames have no codec: give shape= and dtype=")
        if self.shape is not None:
            object.__setattr__(self, "shape", frame_shape(self.shape))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", frame_dtype_name(self.dtype))
        super().__post_init__()


KIND = Kind(
    name="frames",
    written="frames:NAME",
    options=FrameOptions,
    value_options=Frames.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    tap=open_tap,
    memory=Layout(format=_format, inspect=_inspect, details=("buffers", "leased")),
    lossy=True,
    by_reference=True,
)
