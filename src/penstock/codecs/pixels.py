"""Encodings of recorded pixels: zstd, PNG, JPEG. Knows arrays and bytes; no channel and no file.

Packages are imported when they are first needed: pyarrow for zstd, Pillow for PNG and JPEG. Both encode without the GIL.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Invalid
from penstock.util.extras import check_installed, explain_missing

if TYPE_CHECKING:
    import numpy as np

# How the bytes behind a recorded frame's note are encoded. The note says it: formats of files, never renumber them.
RAW, ZSTD, PNG, JPEG = 0, 1, 2, 3
NAMES = ("raw", "zstd", "png", "jpeg")
NUMBERS = {name: number for number, name in enumerate(NAMES)}
# Of each encoding with one, its level where none is given, and the levels that there are. Of JPEG it is the quality.
LEVELS = {"zstd": (3, 1, 19), "png": (1, 0, 9), "jpeg": (90, 1, 100)}
CHOICE = "True, 'raw', 'zstd', 'zstd:LEVEL', 'png', 'png:LEVEL', 'jpeg' or 'jpeg:QUALITY', or False"
# The arrays that PNG and JPEG hold: dtype and channels. Three channels are red, green and blue.
PICTURES = {PNG: {("|u1", 1), ("|u1", 3), ("|u1", 4), ("<u2", 1)}, JPEG: {("|u1", 1), ("|u1", 3)}}
SIDE_MAX = {PNG: (1 << 31) - 1, JPEG: 65_500}  # lines and columns
ENCODED_MAX = (1 << 31) - (1 << 20)  # bytes, of a recorded message


class Encoding(NamedTuple):
    """An encoding and its level, or of JPEG its quality."""

    number: int
    level: int

    def __str__(self) -> str:
        return f"{NAMES[self.number]}:{self.level}"


def encoding_of(asked: Any) -> Encoding | None:
    """The encoding that `pixels=` of `record` asks for; None for pixels as they are. `Invalid` for anything else."""
    if asked is True or (isinstance(asked, str) and asked == "raw"):
        return None
    name, colon, level = asked.partition(":") if isinstance(asked, str) else ("", "", "")
    if name not in LEVELS or (colon and not (level.isascii() and level.isdigit())):
        raise Invalid(f"pixels is {asked!r}: it must be {CHOICE}")
    usual, least, most = LEVELS[name]
    number = int(level) if colon else usual
    if not least <= number <= most:
        raise Invalid(f"pixels is {asked!r}: {name} has levels from {least} to {most}")
    return Encoding(NUMBERS[name], number)


def check_package(encoding: Encoding) -> None:
    """`MissingPackage` if the package that encodes is not installed: names the extra."""
    package, extra = ("pyarrow", None) if encoding.number == ZSTD else ("PIL", "frames")
    check_installed(package, what=f"pixels={str(encoding)!r}", extra=extra)


def holds(number: int, shape: tuple[int, ...], dtype: str | None) -> bool:
    """Whether an encoding has arrays of this shape and dtype, which is as `dtype.str` has it."""
    if 0 in shape:
        return False
    if number not in PICTURES:
        return True
    if len(shape) not in (2, 3) or max(shape[:2]) > SIDE_MAX[number]:
        return False
    return (dtype, 1 if len(shape) == 2 else shape[2]) in PICTURES[number]


def encode(array: np.ndarray[Any, Any], encoding: Encoding) -> tuple[int, Any]:
    """(how it is encoded, the bytes). An array that the encoding does not have, and one that zstd makes no smaller, is raw."""
    if holds(encoding.number, array.shape, array.dtype.str):
        data = _zstd(array, encoding) if encoding.number == ZSTD else _picture(array, encoding)
        if len(data) < (array.nbytes if encoding.number == ZSTD else ENCODED_MAX):
            return encoding.number, data
    return RAW, array.reshape(-1).view("u1").data


def _zstd(array: np.ndarray[Any, Any], encoding: Encoding) -> bytes:
    with explain_missing("pixels='zstd'"):
        import pyarrow as pa
    made: bytes = pa.Codec("zstd", encoding.level).compress(array.reshape(-1).view("u1"), asbytes=True)
    return made


def _picture(array: np.ndarray[Any, Any], encoding: Encoding) -> memoryview:
    with explain_missing("pixels='png'", extra="frames"):
        from PIL import Image
    made = io.BytesIO()
    picture = Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    if encoding.number == PNG:
        picture.save(made, "PNG", compress_level=encoding.level)
    else:
        picture.save(made, "JPEG", quality=encoding.level)
    return made.getbuffer()


def decode(number: int, data: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The bytes of the array that was encoded. ValueError, with the reason, for bytes that are not such an array."""
    if number == RAW:
        return data
    if number not in range(len(NAMES)):
        raise ValueError(f"its pixels have encoding {number}, which this version does not know")
    return (
        _unzstd(data, math.prod(shape) * dtype.itemsize) if number == ZSTD else _unpicture(number, data, shape, dtype)
    )


def _unzstd(data: memoryview, size: int) -> Any:
    with explain_missing("a frame in zstd"):
        import pyarrow as pa
    try:
        return memoryview(pa.decompress(data, decompressed_size=size, codec="zstd", asbytes=True))
    except OSError as error:
        raise ValueError(f"its pixels are not {size} bytes in zstd: {error}") from error


def _unpicture(number: int, data: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    with explain_missing(f"a frame in {NAMES[number].upper()}", extra="frames"):
        from PIL import JpegImagePlugin, PngImagePlugin
    import numpy as np

    wrong = f"its pixels are not a picture of {shape} in {NAMES[number].upper()}"
    try:
        # Not by Image.open, which refuses large pictures: here the channel says how large one may be.
        kind: Any = PngImagePlugin.PngImageFile if number == PNG else JpegImagePlugin.JpegImageFile
        with kind(io.BytesIO(data)) as picture:
            if (picture.height, picture.width) != shape[:2]:
                raise ValueError(f"it has {picture.height} lines of {picture.width}")
            array = np.asarray(picture)
    except Exception as error:  # Pillow raises whatever its readers raise
        raise ValueError(f"{wrong}: {error or type(error).__name__}") from error
    if array.dtype != dtype or array.size != math.prod(shape):
        raise ValueError(f"{wrong}: it has {array.shape} of {array.dtype}")
    return np.ascontiguousarray(array).reshape(-1).view("u1").data
