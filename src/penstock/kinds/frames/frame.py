"""A frame as Python sees it: one that was received, and one that is being filled. Knows leases and claims; opens nothing."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy import frombuffer

from penstock._native import core as _native
from penstock.channels.checks import whole
from penstock.codecs import Codec, buffers, encoding, values
from penstock.codecs.frames import FrameFormat, dtype_name, plain_header
from penstock.errors import Corrupt, Invalid

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


class Frame(_native.ReceivedFrame):
    """A frame received. `array` is read-only and does not change while it, or an array made from it, exists.

    Others may read the same bytes, so no code can write to them here. `copy()` gives an array to write to. A library that does so
    all the same, through a pointer, ends its process with SIGSEGV: torch has no read-only tensors, so copy before an operation in
    place.

    The publication cannot reuse the buffers of frames that are kept: release or copy frames. `release()` ends the lease at once; so
    does the end of a `with` block. Not to be shared between processes: a forked child's frames are its parent's.
    """

    __slots__ = ()

    def _refuse_note(self) -> None:
        try:
            self._kind.own_shape(self._sizes, self._number, self._length)
        except ValueError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> Corrupt:
        return Corrupt(f"{self._kind.channel}: the note of frame {self.sequence} is damaged: {error}")

    @property
    def header(self) -> Any:
        """The publisher's struct, a record of the dtype `header` of the channel; None if the channel has none."""
        try:
            return self._kind.read_header(self._fields)
        except ValueError as error:
            raise self._damaged(error) from error

    @property
    def meta(self) -> dict[str, Any]:
        """The publisher's own fields."""
        meta: Any = self._meta
        if meta is None:
            fields = self._fields[self._kind.header_bytes :]
            try:
                self._meta = meta = msgspec.json.decode(fields, type=dict[str, Any]) if fields else {}
            except msgspec.MsgspecError as error:
                raise self._damaged(error) from error
        found: dict[str, Any] = meta
        return found

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

    def copy(self) -> np.ndarray[Any, Any]:
        """The pixels as a private array, which may be written to."""
        copied: np.ndarray[Any, Any] = self.array.copy()
        return copied

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


class OpenFrame(_native.OpenedFrame):
    """A buffer of the publication, to be filled. As a context manager it is published at the end of the block, and given
    back unpublished if the block raises.

    `array` is writable until then. `id` (default: the frame's sequence), `start_ns`, `end_ns`, the dictionary `meta` (plain
    JSON values) and, where the channel has one, the record `header` go with it.
    """

    __slots__ = ()

    @property
    def channel(self) -> str:
        """The channel's URI."""
        channel: str = self._kind.channel
        return channel

    def _zero_header(self) -> Any:
        """What `header` is until it is set."""
        header = self._kind.header
        return None if header is None else np.zeros((), header)

    def _describe(self) -> None:
        """The note sent with the pixels. If it cannot be sent, the buffer is released."""
        kind: FrameKind = self._kind
        try:
            id = self.id if self.id is None else whole(self.id, "id", most=(1 << 64) - 1)
            begun, ended = (whole(getattr(self, name), name, -(1 << 63)) for name in ("start_ns", "end_ns"))
            header = b"" if kind.header is None else _one_record(self.header, kind.header)
            if not isinstance(self.meta, dict):
                raise Invalid(f"meta is {self.meta!r}: it must be a dictionary")
            fields = header + (encoding.to_json(self.meta) if self.meta else b"")
            sizes = kind.sizes_of(self.shape, self._number)
            length = math.prod(self.shape) * kind.dtypes[self._number].itemsize
            _native.describe_frame(self, id, begun, ended, fields, sizes, length)
        except Invalid as error:
            self.abort()
            raise buffers.unsendable(kind.channel, error) from error.__cause__
        except BaseException:
            self.abort()
            raise


def factory_of(kind: FrameKind) -> _native.FrameFactory:
    """What makes the frames of a channel."""
    return _native.FrameFactory(kind, Frame, OpenFrame, np.ndarray)


def _one_record(header: Any, dtype: np.dtype[Any]) -> bytes:
    """A frame's header as bytes. `Invalid` if the value does not fit."""
    found = values.fitted(header, dtype)
    if found.size != 1:
        raise Invalid(f"a frame has one header, not {found.size}")
    return found.tobytes()
