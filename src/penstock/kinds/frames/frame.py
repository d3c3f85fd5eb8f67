"""A frame as Python sees it: one that was received, and one that is being filled. Knows leases and claims; opens nothing."""

from __future__ import annotations

import contextlib
import math
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from numpy import frombuffer

from penstock import codecs
from penstock._native import core as _native
from penstock.codecs import Codec, buffers, values
from penstock.errors import Closed, Invalid

_NUMPY = tuple(int(part) for part in np.__version__.split(".")[:2])  # 2.1 has DLPack's read-only capsules
COPIED_AT_ONCE = 64 << 10  # bytes; longer frames are copied without the GIL


class FrameKind:
    """The shape and dtype of a channel's frames. channel: its URI, for errors."""

    __slots__ = ("bytes", "channel", "dtype", "flat", "plain", "shape")

    def __init__(self, codec: Codec, channel: str) -> None:
        self.channel = channel
        self.shape, self.dtype = tuple(codec.spec["shape"]), codecs.frame_dtype(codec)
        self.bytes = math.prod(self.shape) * self.dtype.itemsize
        self.flat = len(self.shape) == 1
        self.plain = self.bytes <= COPIED_AT_ONCE and self.dtype.kind not in "mM"  # times export no buffer

    def array(self, buffer: Any) -> np.ndarray[Any, Any]:
        """The array in these bytes, without a copy; as writable as they are."""
        array = frombuffer(buffer, self.dtype)  # it holds the buffer: `ndarray(..., buffer)` would not
        return array if self.flat else array.reshape(self.shape)


class Frame:
    """A frame received. `array` is read-only and does not change while it, or an array made from it, exists.

    Others may read the same bytes, so no code can write to them here. `copy()` gives an array to write to. A library that does so
    all the same, through a pointer, ends its process with SIGSEGV: torch has no read-only tensors, so copy before an operation in
    place.

    The publication cannot reuse the buffers of frames that are kept: release or copy frames. `release()` ends the lease at once; so
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
        with contextlib.suppress(BufferError):  # an array is still in use: the lease ends with it
            self.release()

    def copy(self) -> np.ndarray[Any, Any]:
        """The pixels as a private array, which may be written to."""
        return self.array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy:
            return self.array.astype(self._kind.dtype if dtype is None else dtype)
        if dtype is None or dtype == self._kind.dtype:
            return self.array
        if copy is not None:
            raise ValueError(f"{self._kind.channel}: frames are {self._kind.dtype}, and {dtype} needs a copy")
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
        return f"<Frame {self.sequence} id={self.id} {self._kind.shape} {self._kind.dtype}>"


class OpenFrame:
    """A buffer of the publication, to be filled. As a context manager it is published at the end of the block, and given
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
            try:
                self._array = self._kind.array(self._claim)
            except (BufferError, ValueError):
                if not self._claim.ended:
                    raise
                why = f"{self._kind.channel}: this frame was published or released; acquire another one"
                raise Closed(why) from None
        array: np.ndarray[Any, Any] = self._array
        return array

    def commit(self) -> int:
        """Publishes the frame. Returns the stream position after its note. `Invalid` if `meta` is not plain JSON: then the frame is released."""
        if self.meta or self.id is not None or self.start_ns or self.end_ns:
            self._describe()
        array = self._array
        if array is not None:
            array.setflags(False)  # it was handed out for writing
            self._array = None
        return self._claim.commit()

    def _describe(self) -> None:
        """The note sent with the pixels. If it cannot be sent, the buffer is released."""
        try:
            fields = values.to_json(self.meta).decode() if self.meta else ""
            _native.describe_frame(self._claim, self.id, self.start_ns, self.end_ns, fields)
        except TypeError as error:
            self.abort()
            why = f"{self._kind.channel}: the frame's id, start_ns, end_ns or meta cannot be sent: {error}"
            raise Invalid(why.split("\n")[0]) from error
        except Invalid as error:
            self.abort()
            raise buffers.unsendable(self._kind.channel, error) from error.__cause__
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
