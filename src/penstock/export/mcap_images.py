"""Frames with their pixels as `foxglove.RawImage`, and those in PNG or JPEG as `foxglove.CompressedImage`, which MCAP's tools show as pictures.

Knows the messages' bytes, not the package protobuf.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.codecs import packing
from penstock.codecs.pixels import NAMES, NUMBERS, PICTURES

if TYPE_CHECKING:
    import numpy as np

NAME, COMPRESSED = "foxglove.RawImage", "foxglove.CompressedImage"
QUALITY = 80  # of JPEG pictures
JPEG = ("mono8", "rgb8")  # encodings that it has
# Foxglove's names for pixels, by dtype and channels. Three of them are red, green and blue.
ENCODINGS = {("u1", 1): "mono8", ("u1", 3): "rgb8", ("u1", 4): "rgba8", ("u2", 1): "mono16", ("f4", 1): "32FC1"}
# Of each message a FileDescriptorSet with google.protobuf.Timestamp, packed.
DESCRIPTION = (
    "eNqFkE1OwzAQhZW2+RuQkEYITDagrlglEmyQOEG3VvfIrR3HUmNHjSEchytxI9JJHSQ27OZ782b8xjDAvXZOH1TVHZ13u/e68qZV"
    "vRdtV5KEV5OhDIb1K+Tb4EEGaa/2zsqeRQ/R45IHxGuIrbCuZ4tRj/kEu4TWPMPXAm5r96kP7kNVXAybVujzG5iFRvFfuPV3BFmY"
    "xhfI5z6luXgqyj/pyzk6/zXjHWT1UbTqzUiWjoM5T4k38nTGYKRv6IyUT4A3kDTK6MazJclnwgIyZfdOGqvZihbNjAir3quOxTRB"
    "9UmTwguWjNolpzp80Q+K23zq"
)


COMPRESSED_DESCRIPTION = (
    "eNqFkM1Kw0AUhZmkf7mKhVEkdlGlK1cJ1I3gLi5KcRNCQXAjk2YyFDO5IRP/HsAX8BFc+mQ+gjttJj+VbNzNufOdw7kXfgicCkSRcDfLscDwMXaLjeSqYDJz"
    "9IiOK8BpgNkVWKuGoTYMFV9jGimbnJFzM2gkPYJ+ylJUtrGd94NKeG8EDtconU6od9BG+uXIJ3fzGhGYsFQ4mIs/HV8zrtyHFJ/TXd8s/CbkwzAXvvdpTBeV"
    "268tzi1PkpvSsCq94UBnXcAXgWmMLyLBJ+5eo8xyrhSPlpKJuh0dNf+T/241eycw7oTQS7BaTN9obz7pru+02wc7mJ7AKM6Z5PebyO5tjVYw1HoZUQq9iBVM"
    "33Y/0G96DIMYc8kK29RwrZpVfwHg5KR4"
)


def encoding(shape: Sequence[int], dtype: str) -> str | None:
    """Foxglove's name for pixels of this shape and dtype; None if they are not a picture."""
    if len(shape) not in (2, 3) or dtype.startswith(">"):
        return None
    return ENCODINGS.get((dtype[1:], 1 if len(shape) == 2 else shape[2]))


def is_picture(frame: Any, *, compressed: bool) -> bool:
    """Whether a frame is a picture, as JPEG if compressed: where frames vary, one may be empty, or have other channels."""
    form = encoding(frame.shape, frame.dtype.str)
    return form is not None and 0 not in frame.shape and (form in JPEG or not compressed)


def encoding_of(codec: dict[str, Any]) -> str | None:
    """The name of a recording's pixels; None if it has none, or if such pixels are not a picture."""
    return encoding(codec.get("shape", ()), str(codec.get("dtype", ""))) if codec.get("pixels") else None


def is_compressed(codec: dict[str, Any]) -> bool:
    """Whether a recording's pixels are pictures in PNG or JPEG."""
    return NUMBERS.get(str(codec.get("encoding", "")).partition(":")[0]) in PICTURES


def image_codec(*, compressed: bool = False) -> dict[str, Any]:
    """The codec of the images."""
    name, description = (COMPRESSED, COMPRESSED_DESCRIPTION) if compressed else (NAME, DESCRIPTION)
    return {"kind": "protobuf", "message": name, "files": description}


def description(*, compressed: bool = False) -> bytes:
    """The message's FileDescriptorSet."""
    return packing.unpack(COMPRESSED_DESCRIPTION if compressed else DESCRIPTION)


def encode(pixels: Any, encoding: str, time_ns: int, frame_id: str) -> bytes:
    """One image. time_ns: at least 0."""
    height, width = pixels.shape[:2]
    return b"".join(
        [
            _stamp(time_ns),
            struct.pack("<BIBI", 2 << 3 | 5, width, 3 << 3 | 5, height),
            _field(4, encoding.encode()),
            struct.pack("<BI", 5 << 3 | 5, pixels.nbytes // max(1, height)),
            _field(6, pixels.tobytes()),
            _field(7, frame_id.encode()),
        ]
    )


def wrap(stored: Any, number: int, time_ns: int, frame_id: str) -> bytes:
    """One image that is encoded already, as it is. number: of its encoding, PNG or JPEG. time_ns: at least 0."""
    return b"".join(
        [_stamp(time_ns), _field(2, stored), _field(3, NAMES[number].encode()), _field(4, frame_id.encode())]
    )


def _stamp(time_ns: int) -> bytes:
    seconds, nanos = divmod(time_ns, 10**9)
    return _field(1, b"\x08" + _varint(seconds) + b"\x10" + _varint(nanos))


def _field(number: int, data: Any) -> bytes:
    return b"".join((bytes([number << 3 | 2]), _varint(len(data)), data))


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
