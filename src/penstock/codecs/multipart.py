"""Messages of several parts as one, and the header of a recorded message of a pipe or a sync queue."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from penstock._native import core as _native

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13

SYNC_HEADER = struct.Struct(_native.SYNC_HEADER)  # bytes of the sender, of the type, a kind; then the three strings
PARTS = 1 << 30  # in the kind of a pipe's message: its body is several
REFUSED = 1 << 29  # the same, of a reply: its only part is a text that says why there is no answer


def sync_parts(data: Any) -> tuple[str, str, int]:
    """A sync queue's message: its sender, its type, and the offset of its body."""
    return pipe_parts(data)[:3]


def pipe_parts(data: Any) -> tuple[str, str, int, int]:
    """A recorded pipe's message: its sender, the sender's role, the offset of its body, and its kind."""
    view = memoryview(data)
    sender, kind, number = SYNC_HEADER.unpack_from(view)
    begin = SYNC_HEADER.size
    body = begin + sender + kind
    if body > len(view):
        raise ValueError("its sender and type do not fit")
    parts = bytes(view[begin : begin + sender]), bytes(view[begin + sender : body])
    first, second = (part.decode("utf-8", "surrogateescape") for part in parts)
    return first, second, body, number


def join_parts(parts: list[bytes]) -> bytes:
    """Several bodies as the one that travels."""
    return b"".join([struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)), *parts])


def split_parts(data: bytes) -> list[bytes]:
    """The bodies that `join_parts` joined. ValueError for other bytes."""
    try:
        (count,) = struct.unpack_from("<I", data)
        sizes = struct.unpack_from(f"<{count}I", data, 4) if count <= len(data) // 4 else ()
    except struct.error:
        count, sizes = -1, ()
    at, parts = 4 + 4 * len(sizes), []
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    if len(parts) != count or at != len(data):
        raise ValueError("a message of several parts is shorter than its header states")
    return parts
