"""What a channel's frames are, and a frame as one message: its note, its header, its fields, its pixels. Knows bytes; no channel."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._native import core as _native
from penstock.codecs import dtypes, pixels
from penstock.errors import Invalid

if TYPE_CHECKING:
    import numpy as np

# Buffer, which dtype, dimensions, length of the rest, id, start, end. The rest: of a frame with a shape of its own its bytes and
# its sizes; the header, if the channel has one; the fields as JSON.
NOTE = struct.Struct(_native.FRAME_NOTE)
WORD = 8  # bytes of a size
ENCODED = struct.Struct("<H")  # in place of a note's buffer, where a recording has encoded pixels: how they are encoded


class Note(NamedTuple):
    """A frame's note, read. rest: header and fields. end: where the pixels begin, in bytes. encoding: of the recorded pixels."""

    id: int
    start_ns: int
    end_ns: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rest: bytes
    end: int
    encoding: int = pixels.RAW


class FrameFormat:
    """The shape, the dtypes and the header of a channel's frames. varies: the shape is the largest one.

    dtype: the first of `dtypes`. bytes: of the largest frame. encoding: the one that a recording was made with; None for raw pixels.
    """

    __slots__ = ("_numpy", "bytes", "dtype", "dtypes", "encoding", "header", "header_bytes", "shape", "varies")

    def __init__(self, spec: dict[str, Any]) -> None:
        import numpy

        self._numpy = numpy  # loaded with the first format, and not looked for again with each frame
        self.shape: tuple[int, ...] = tuple(spec["shape"])
        self.dtypes: tuple[np.dtype[Any], ...] = tuple(map(dtypes.dtype_of, spec.get("dtypes", [spec["dtype"]])))
        self.dtype = self.dtypes[0]
        self.varies = bool(spec.get("varies", False))
        self.header: np.dtype[Any] | None = dtypes.dtype_of(spec["header"]) if "header" in spec else None
        self.encoding: str | None = spec.get("encoding")
        self.header_bytes = 0 if self.header is None else self.header.itemsize
        self.bytes = math.prod(self.shape) * max(dtype.itemsize for dtype in self.dtypes)

    @property
    def fields_bytes(self) -> int:
        """Bytes of header and sizes behind a frame's note, where it has both and no `meta`."""
        sizes = (1 + len(self.shape)) * WORD if self.varies or len(self.dtypes) > 1 else 0
        return self.header_bytes + sizes

    def number_of(self, dtype: np.dtype[Any]) -> int | None:
        """Which of the channel's dtypes this is; None if it is none of them."""
        return next((number for number, one in enumerate(self.dtypes) if one == dtype), None)

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Whether a frame here may have this shape."""
        if not self.varies:
            return shape == self.shape
        return len(shape) == len(self.shape) and all(
            0 <= size <= most for size, most in zip(shape, self.shape, strict=True)
        )

    def sizes_of(self, shape: tuple[int, ...], number: int) -> tuple[int, ...]:
        """The sizes that a note says: none of a frame that has the channel's shape and fills its buffer."""
        return () if shape == self.shape and self.dtypes[number].itemsize * math.prod(shape) == self.bytes else shape

    def own_shape(self, sizes: Iterable[int] | None, number: int, length: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and dtype of a frame of so many bytes, by its note. ValueError if they contradict each other."""
        if number >= len(self.dtypes):
            raise ValueError(f"it says dtype {number}, and the channel has {len(self.dtypes)}")
        shape, dtype = self.shape if sizes is None else tuple(sizes), self.dtypes[number]
        if math.prod(shape) * dtype.itemsize != length or not self.holds(shape):
            raise ValueError(f"it says {shape} of {dtype}, and has {length} bytes")
        return shape, dtype

    def read_header(self, rest: bytes) -> Any:
        """The publisher's struct before the fields, as a record; None if the channel has none. ValueError if it is cut off."""
        return None if self.header is None else self._numpy.frombuffer(rest, self.header, 1)[0].copy()

    def read_note(self, data: Any) -> Note:
        """A recorded message's note. ValueError or `struct.error` for bytes that are none."""
        buffer, number, dimensions, length, id, start, end = NOTE.unpack_from(data)
        rest = bytes(memoryview(data)[NOTE.size : NOTE.size + length])
        words = struct.unpack_from(f"<{1 + dimensions}Q", rest) if dimensions else ()
        if len(rest) != length or length < len(words) * WORD + self.header_bytes:
            raise ValueError(f"its fields should have {length} bytes")
        shape, dtype = self.own_shape(words[1:] or None, number, words[0] if words else self.bytes)
        encoding = pixels.RAW if self.encoding is None else buffer
        return Note(id, start, end, shape, dtype, rest[len(words) * WORD :], NOTE.size + length, encoding)

    def read_pixels(self, data: Any, note: Note) -> memoryview:
        """A recorded message's pixels, decoded. ValueError if there are not as many as the note says, and for damaged ones."""
        found: memoryview = pixels.decode(note.encoding, self.stored_pixels(data, note), note.shape, note.dtype)
        expected = math.prod(note.shape) * note.dtype.itemsize
        if len(found) != expected:
            raise ValueError(f"it says {note.shape} of {note.dtype}, and has {len(found)} bytes of pixels")
        return found

    def stored_pixels(self, data: Any, note: Note) -> memoryview:
        """A recorded message's pixels as they are stored."""
        return memoryview(data)[note.end :]

    def encoded(self, data: bytes, encoding: pixels.Encoding) -> bytes:
        """A recorded message of raw pixels as one of encoded pixels. ValueError or `struct.error` for bytes that are no message."""
        note = self.read_note(data)._replace(encoding=pixels.RAW)
        array = self.array(self.read_pixels(data, note), note.shape, note.dtype)
        number, stored = pixels.encode(array, encoding)
        return b"".join((ENCODED.pack(number), memoryview(data)[ENCODED.size : note.end], stored))

    def decoded(self, data: Any) -> bytes:
        """A recorded message with its pixels as they were. ValueError or `struct.error` for bytes that are no message."""
        note = self.read_note(data)
        if note.encoding == pixels.RAW:
            return bytes(data)
        return b"".join((ENCODED.pack(0), memoryview(data)[ENCODED.size : note.end], self.read_pixels(data, note)))

    def message_of(self, frame: Any) -> bytes:
        """A received frame as one message, as a recording with pixels has it."""
        import msgspec

        array = frame.array
        rest = (b"" if self.header is None else frame.header.tobytes()) + (
            msgspec.json.encode(frame.meta) if frame.meta else b""
        )
        number = self.number_of(array.dtype) or 0
        sizes = self.sizes_of(array.shape, number)
        words = struct.pack(f"<{1 + len(sizes)}Q", array.nbytes, *sizes) if sizes else b""
        note = NOTE.pack(0, number, len(sizes), len(words) + len(rest), frame.id, frame.start_ns, frame.end_ns)
        return b"".join((note, words, rest, array.tobytes()))

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The array in these bytes, without a copy; as writable as they are."""
        count = math.prod(shape)
        if count == 0:
            array = self._numpy.empty(shape, dtype)
            array.setflags(write=not memoryview(buffer).readonly)
            return array
        return self._numpy.frombuffer(buffer, dtype, count).reshape(shape)


def frame_spec(shape: tuple[int, ...], dtype: Any, *, varies: bool = False, header: Any = None) -> dict[str, Any]:
    """The description of a channel's frames. dtype: one as JSON, or a tuple of several."""
    several = dtype if isinstance(dtype, tuple) else (dtype,)
    spec = {"kind": "frame", "dtype": several[0], "shape": list(shape)}
    if len(several) > 1:
        spec["dtypes"] = list(several)
    if varies:
        spec["varies"] = True
    if header is not None:
        spec["header"] = header
    return spec


def unencoded(spec: dict[str, Any]) -> dict[str, Any]:
    """A recording's codec as that of one with raw pixels; the same object for any other."""
    return {name: value for name, value in spec.items() if name != "encoding"} if "encoding" in spec else spec


def frame_options(spec: dict[str, Any]) -> dict[str, Any]:
    """The options of a channel with frames as this description says."""
    several = spec.get("dtypes")
    options = {"shape": tuple(spec["shape"]), "dtype": spec["dtype"] if several is None else tuple(several)}
    if spec.get("varies"):
        options["varies"] = True
    if "header" in spec:
        options["header"] = spec["header"]
    if "attributes" in spec:
        options["attributes"] = spec["attributes"]
    return options


def dtype_name(dtype: Any) -> Any:
    """A dtype as a description keeps it: its name, or its fields. `Invalid` for anything that frames cannot hold."""
    import numpy as np

    try:
        found = dtypes.dtype_of(dtype) if isinstance(dtype, list) else np.dtype(dtype)
    except Invalid as error:  # it has Python's objects
        raise Invalid(f"{dtype!r} cannot be shared: {error}") from error
    except (TypeError, ValueError) as error:
        raise Invalid(f"{dtype!r} is not a dtype") from error
    if found.hasobject or found.subdtype or found.itemsize == 0:
        raise Invalid(f"dtype {found} cannot be shared: frames are arrays of plain numbers, or of structs of them")
    return dtypes.description_of(found) if found.names else str(found.str)


def dtype_names(dtype: Any) -> Any:
    """One dtype, or a tuple of those that a frame may have, each as a description keeps it."""
    is_struct = isinstance(dtype, list) and any(isinstance(one, list | tuple) for one in dtype)
    if is_struct or not isinstance(dtype, list | tuple):
        return dtype_name(dtype)
    names = [dtype_name(one) for one in dtype]
    if not 1 <= len(names) <= 255 or any(name in names[:at] for at, name in enumerate(names)):
        raise Invalid(f"dtype is {dtype!r}: give one dtype, or from 1 to 255 different ones")
    return names[0] if len(names) == 1 else tuple(names)


def header_name(header: Any) -> list[Any]:
    """A frame's header as a description keeps it: the fields of a struct. `Invalid` for anything else."""
    name = dtype_name(header)
    if not isinstance(name, list):
        raise Invalid(f"header is {header!r}: give a structured dtype, as [('gain', 'f4'), ('x', 'u2')]")
    return name


def dtype_text(dtype: Any) -> str:
    """A dtype as a text: its name, or of a struct its fields as JSON. `dtype_of_text` reads it."""
    name = dtype_name(dtype)
    return name if isinstance(name, str) else json.dumps(name)


def dtype_of_text(text: str) -> np.dtype[Any]:
    """The dtype that `dtype_text` wrote."""
    found: np.dtype[Any] = dtypes.dtype_of(json.loads(text) if text.startswith("[") else text)
    return found


def plain_header(header: Any) -> dict[str, Any] | None:
    """A frame's header as plain values by field; None if it has none."""
    if header is None:
        return None
    parts = {name: header[name] for name in header.dtype.names}
    return {
        name: plain_header(part) if getattr(part.dtype, "names", None) and part.ndim == 0 else part.tolist()
        for name, part in parts.items()
    }
