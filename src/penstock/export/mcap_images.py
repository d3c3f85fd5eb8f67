"""Frames with their pixels as `foxglove.RawImage`, which MCAP's tools show as pictures. Knows the message's bytes, not the package protobuf."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.codecs import packing

if TYPE_CHECKING:
    import numpy as np

NAME = "foxglove.RawImage"
QUALITY = 80  # of JPEG pictures
JPEG = ("mono8", "rgb8")  # encodings that it has
# Foxglove's names for pixels, by dtype and channels. Three of them are red, green and blue.
ENCODINGS = {("u1", 1): "mono8", ("u1", 3): "rgb8", ("u1", 4): "rgba8", ("u2", 1): "mono16", ("f4", 1): "32FC1"}
# A FileDescriptorSet of the message and of google.protobuf.Timestamp, packed.
DESCRIPTION = (
    "eNqFkE1OwzAQhZW2+RuQkEYITDagrlglEmyQOEG3VvfIrR3HUmNHjSEchytxI9JJHSQ27OZ782b8xjDAvXZOH1TVHZ13u/e68qZV"
    "vRdtV5KEV5OhDIb1K+Tb4EEGaa/2zsqeRQ/R45IHxGuIrbCuZ4tRj/kEu4TWPMPXAm5r96kP7kNVXAybVujzG5iFRvFfuPV3BFmY"
    "xhfI5z6luXgqyj/pyzk6/zXjHWT1UbTqzUiWjoM5T4k38nTGYKRv6IyUT4A3kDTK6MazJclnwgIyZfdOGqvZihbNjAir3quOxTRB"
    "9UmTwguWjNolpzp80Q+K23zq"
)


def encoding(shape: Sequence[int], dtype: str) -> str | None:
    """Foxglove's name for pixels of this shape and dtype; None if they are not a picture."""
    if len(shape) not in (2, 3) or dtype.startswith(">"):
        return None
    return ENCODINGS.get((dtype[1:], 1 if len(shape) == 2 else shape[2]))


def encoding_of(codec: dict[str, Any]) -> str | None:
    """The name of a recording's pixels; None if it has none, or if such pixels are not a picture."""
    return encoding(codec.get("shape", ()), str(codec.get("dtype", ""))) if codec.get("pixels") else None


def image_codec() -> dict[str, Any]:
    """The codec of the images."""
    return {"kind": "protobuf", "message": NAME, "files": DESCRIPTION}


def description() -> bytes:
    """The message's FileDescriptorSet."""
    return packing.unpack(DESCRIPTION)


def encode(pixels: Any, encoding: str, time_ns: int, frame_id: str) -> bytes:
    """One image. time_ns: at least 0."""
    height, width = pixels.shape[:2]
    seconds, nanos = divmod(time_ns, 10**9)
    stamp = b"\x08" + _varint(seconds) + b"\x10" + _varint(nanos)
    return b"".join(
        [
            _field(1, stamp),
            struct.pack("<BIBI", 2 << 3 | 5, width, 3 << 3 | 5, height),
            _field(4, encoding.encode()),
            struct.pack("<BI", 5 << 3 | 5, pixels.nbytes // max(1, height)),
            _field(6, pixels.tobytes()),
            _field(7, frame_id.encode()),
        ]
    )


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def pillow() -> Any:
    """Pillow's module of images; None without it."""
    try:
        import PIL.Image
    except ImportError:
        return None
    return PIL.Image


def jpeg(array: np.ndarray[Any, Any]) -> bytes:
    """A picture whose encoding is one of `JPEG`, as a JPEG file."""
    made = io.BytesIO()
    pixels = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    pillow().fromarray(pixels).save(made, "JPEG", quality=QUALITY)
    return made.getvalue()
