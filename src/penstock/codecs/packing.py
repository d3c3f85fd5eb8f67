"""Bytes as short text, for descriptions that are JSON."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13


def pack(data: bytes) -> str:
    """Bytes as short text, for descriptions."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def unpack(text: str, most: int = 1 << 24) -> bytes:
    """The bytes that `pack` was given. ValueError for anything else."""
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b64decode(text, validate=True), most)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    if not reader.eof:
        raise ValueError("it is cut off, or too long")
    return data
