"""A frame as Python sees it: one that was received, and one that is being filled. Knows leases and claims; opens nothing."""

from __future__ import annotations

import contextlib
import math
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from numpy import frombuffer

from penstock._native import core as _native
from penstock.codecs import Codec, buffers, values
from penstock.codecs.frames import FrameFormat, dtype_name, plain_header
from penstock.errors import Closed, Corrupt, Invalid

_NUMPY = tuple(int(part) for part in np.__version__.split(".")[:2])  # 2.1 has DLPack's read-only capsules
COPIED_AT_ONCE = 64 << 10  # bytes; longer frames are copied without the GIL


class FrameKind(FrameFormat):
    """What a channel's frames are. channel: its URI, for errors. fixed: all have one shape and one dtype, and no header."""

    __slots__ = ("channel", "fixed", "flat", "plain", "whole_bytes")

    def __init__(self, codec: Codec, channel: str) -> None:
        super().__init__(codec.spec)
        self.channel = channel
        self.flat = len(self.shape) == 1
        self.whole_bytes = math.prod(self.shape) * self.dtype.itemsize  # of the channel's shape and its first dtype
        self.fixed = not self.varies and len(self.dtypes) == 1 and self.header is None
        # Copied at once by the compiled handle; times export no buffer.
        self.plain = self.fixed and self.bytes <= COPIED_AT_ONCE and self.dtype.kind not in "mM"

    def whole(self, buffer: Any) -> np.ndarray[Any, Any]:
        """The array of the channel's shape in these bytes, without a copy; as writable as they are."""
        array = frombuffer(buffer, self.dtype)  # it holds the buffer: `ndarray(..., buffer)` would not
        return array if self.flat else array.reshape(self.shape)

    def checked(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], int]:
        """The shape of a frame to be filled, and which of the channel's dtypes it has. None: the channel's. `Invalid` for any other."""
        if shape is None and dtype is None:
            return self.shape, 0
        number = 0 if dtype is None else self.number_of(np.dtype(dtype))
        if number is None:
            raise Invalid(f"{self.channel}: frames here are of {self.dtypes_text}, not {np.dtype(dtype)}")
        sizes = self.shape if shape is None else values.sizes_of(shape)
        if not self.holds(sizes):
            raise self.misshapen(sizes)
        return sizes, number

    def misshapen(self, shape: tuple[int, ...]) -> Invalid:
        """The error for a frame of a shape that the channel does not have."""
        if self.varies:
            same = "" if len(shape) == len(self.shape) else " in as many dimensions"
            return Invalid(
                f"{self.channel}: frames here have at most the shape {self.shape}{same}, and this one has {shape}"
            )
        return Invalid(
            f"{self.channel}: frames have the shape {self.shape}, not {shape} (a channel made with varies=True takes smaller ones)"
        )

    @property
    def bytes_text(self) -> str:
        """Which bytes without a shape are a frame, for errors."""
        if self.varies and self.flat:
            several = f", a multiple of {self.dtype.itemsize}" if self.dtype.itemsize > 1 else ""
            return f"a frame here has at most {self.whole_bytes} bytes{several}"
        return f"a frame has {self.whole_bytes} bytes"

    @property
    def dtypes_text(self) -> str:
        """The dtypes, for errors."""
        return " or ".join(str(dtype) for dtype in self.dtypes)


class Frame:
    """A frame received. `array` is read-only and does not change while it, or an array made from it, exists.

    Others may read the same bytes, so no code can write to them here. `copy()` gives an array to write to. A library that does so
    all the same, through a pointer, ends its process with SIGSEGV: torch has no read-only tensors, so copy before an operation in
    place.

    The publication cannot reuse the buffers of frames that are kept: release or copy frames. `release()` ends the lease at once; so
    does the end of a `with` block. Not to be shared between processes: a forked child's frames are its parent's.
    """

    __slots__ = ("_array", "_kind", "_lease", "_meta", "_read")

    def __init__(self, lease: _native.Lease, kind: FrameKind) -> None:
        self._lease, self._kind = lease, kind
        self._array: Any = None
        self._meta: dict[str, Any] | None = None
        self._read: tuple[tuple[int, ...], np.dtype[Any]] | None = None  # of its note: shape and dtype

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The pixels: a read-only NumPy array of this frame's shape and dtype, without a copy. `Corrupt` for a damaged note."""
        if self._array is None:
            kind = self._kind
            self._array = kind.whole(self._lease) if kind.fixed else kind.array(self._lease, *self._form())
        array: np.ndarray[Any, Any] = self._array
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape: the channel's, or a smaller one where the channel was made with `varies=True`."""
        return self._kind.shape if self._kind.fixed else self._form()[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's dtype: one of the channel's."""
        return self._kind.dtype if self._kind.fixed else self._form()[1]

    def _form(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        if self._read is None:
            lease = self._lease
            try:
                self._read = self._kind.own_shape(lease.shape, lease.dtype, lease.length)
            except ValueError as error:
                raise self._damaged(error) from error
        return self._read

    def _damaged(self, error: Exception) -> Corrupt:
        return Corrupt(f"{self._kind.channel}: the note of frame {self.sequence} is damaged: {error}")

    @property
    def header(self) -> Any:
        """The publisher's struct, a record of the dtype `header` of the channel; None if the channel has none."""
        try:
            return self._kind.read_header(self._lease.fields)
        except ValueError as error:
            raise self._damaged(error) from error

    @property
    def meta(self) -> dict[str, Any]:
        """The publisher's own fields."""
        if self._meta is None:
            fields = self._lease.fields[self._kind.header_bytes :]
            self._meta = msgspec.json.decode(fields) if fields else {}
        return self._meta

    @property
    def id(self) -> int:
        """The publisher's number for this frame; by default its sequence."""
        return self._lease.id

    @property
    def sequence(self) -> int:
        """The number of frames published on this channel before this one."""
        return self._lease.sequence

    @property
    def position(self) -> int:
        """Position of the frame's note in the channel's stream, in bytes."""
        return self._lease.position

    @property
    def time_ns(self) -> int:
        """When it was published, nanoseconds since the epoch."""
        return self._lease.time_ns

    @property
    def start_ns(self) -> int:
        """When the exposure began, nanoseconds in the publisher's clock; 0 if it was not given."""
        return self._lease.start_ns

    @property
    def end_ns(self) -> int:
        """When the exposure ended, as `start_ns`."""
        return self._lease.end_ns

    def summary(self) -> dict[str, Any]:
        """Everything but the pixels, as plain values."""
        found = {
            **{name: getattr(self, name) for name in ("sequence", "id", "time_ns", "start_ns", "end_ns")},
            "shape": list(self.shape),
            "dtype": dtype_name(self.dtype),
            "meta": self.meta,
        }
        header = plain_header(self.header)
        return found if header is None else {**found, "header": header}

    def release(self) -> None:
        """Gives the lease back now. BufferError while an array made from this frame is still in use."""
        self._array = None
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BufferError):  # an array is still in use: the lease ends with it
            self.release()

    def copy(self) -> np.ndarray[Any, Any]:
        """The pixels as a private array, which may be written to."""
        return self.array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy:
            return self.array.astype(self.dtype if dtype is None else dtype)
        if dtype is None or dtype == self.dtype:
            return self.array
        if copy is not None:
            raise ValueError(f"{self._kind.channel}: the frame is {self.dtype}, and {dtype} needs a copy")
        return self.array.astype(dtype)

    def __dlpack__(
        self, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, **options: Any
    ) -> Any:
        """A DLPack capsule marked read-only; with `copy=True` of a private, writable copy.

        Version 1.0 brought this word. `BufferError` for consumers of older capsules, which would write to the frame.
        """
        if copy:
            given = {"max_version": max_version, **options}  # of which NumPy before 2.1 knows `stream` alone
            return self.copy().__dlpack__(**{name: value for name, value in given.items() if value is not None})
        if max_version is None or max_version[0] < 1 or _NUMPY < (2, 1):
            old = "a consumer of" if _NUMPY >= (2, 1) else f"NumPy {np.__version__}, which makes"
            raise BufferError(
                f"{self._kind.channel}: a frame is read-only, and {old} DLPack capsules before version 1.0 does not know of that: pass "
                f"frame.copy(), or copy=True"
            )
        return self.array.__dlpack__(max_version=max_version, copy=copy, **options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<Frame {self.sequence} id={self.id} {self.shape} {self.dtype}>"


class OpenFrame:
    """A buffer of the publication, to be filled. As a context manager it is published at the end of the block, and given
    back unpublished if the block raises.

    `array` is writable until then. `id` (default: the frame's sequence), `start_ns`, `end_ns`, the dictionary `meta` (plain
    JSON values) and, where the channel has one, the record `header` go with it.
    """

    __slots__ = ("_array", "_claim", "_kind", "_number", "end_ns", "header", "id", "meta", "shape", "start_ns")

    def __init__(
        self, claim: _native.Claim, kind: FrameKind, shape: tuple[int, ...] | None = None, number: int = 0
    ) -> None:
        """number: which of the channel's dtypes it has."""
        self._claim, self._kind, self._number = claim, kind, number
        self.shape = kind.shape if shape is None else shape
        self._array: Any = None
        self.header: Any = None if kind.header is None else np.zeros((), kind.header)
        self.id: int | None = None
        self.start_ns = self.end_ns = 0
        self.meta: dict[str, Any] = {}

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return self._kind.channel

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The buffer, writable until the frame is published."""
        if self._array is None:
            kind = self._kind
            try:
                self._array = (
                    kind.whole(self._claim)
                    if kind.fixed
                    else kind.array(self._claim, self.shape, kind.dtypes[self._number])
                )
            except (BufferError, ValueError):
                if not self._claim.ended:
                    raise
                why = f"{self._kind.channel}: this frame was published or released; acquire another one"
                raise Closed(why) from None
        array: np.ndarray[Any, Any] = self._array
        return array

    def commit(self) -> int:
        """Publishes the frame. Returns the stream position after its note. `Invalid` if `meta` is not plain JSON, or if `header` does not fit: then the frame is released."""
        if self.meta or self.id is not None or self.start_ns or self.end_ns or not self._kind.fixed:
            self._describe()
        array = self._array
        if array is not None:
            array.setflags(False)  # it was handed out for writing
            self._array = None
        return self._claim.commit()

    def _describe(self) -> None:
        """The note sent with the pixels. If it cannot be sent, the buffer is released."""
        kind = self._kind
        try:
            fields = values.to_json(self.meta) if self.meta else b""
            if kind.fixed:
                _native.describe_frame(self._claim, self.id, self.start_ns, self.end_ns, fields)
            else:
                sizes, size = kind.sizes_of(self.shape, self._number), kind.dtypes[self._number].itemsize
                header = b"" if kind.header is None else _one_record(self.header, kind.header)
                _native.describe_frame(
                    self._claim,
                    self.id,
                    self.start_ns,
                    self.end_ns,
                    header + fields,
                    sizes,
                    self._number,
                    math.prod(self.shape) * size,
                )
        except TypeError as error:
            self.abort()
            why = f"{kind.channel}: the frame's id, start_ns, end_ns, header or meta cannot be sent: {error}"
            raise Invalid(why.split("\n")[0]) from error
        except Invalid as error:
            self.abort()
            raise buffers.unsendable(kind.channel, error) from error.__cause__
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Gives the buffer back unpublished."""
        self._protect()
        self._claim.abort()

    def _protect(self) -> None:
        """Arrays that were handed out for writing become read-only."""
        if self._array is not None:
            self._array.setflags(False)
            self._array = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif not self._claim.ended:
            self.commit()


def _one_record(header: Any, dtype: np.dtype[Any]) -> bytes:
    """A frame's header as bytes. `Invalid` if the value does not fit."""
    found = values.fitted(header, dtype)
    if found.size != 1:
        raise Invalid(f"a frame has one header, not {found.size}")
    return found.tobytes()
