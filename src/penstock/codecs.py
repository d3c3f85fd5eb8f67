"""Codecs: how a channel's messages become Python objects and typed columns.

A codec is described by plain JSON that is kept in the channel and in its recordings, so that readers and Spark decode
without being told. Never pickle: an unpickling receiver runs whatever code the sender likes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Corrupt, Invalid

if TYPE_CHECKING:
    import numpy as np

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec:
    """`encode` gives a buffer, `decode` takes one; `spec` is the codec as JSON-ready data."""

    spec: dict[str, Any]
    encode: Encode
    decode: Decode

    @property
    def kind(self) -> str:
        """bytes, json, msgpack, struct, array, frame, sync or pipe."""
        return str(self.spec["kind"])


def _same(value: Any) -> Any:
    return value


BYTES = Codec({"kind": "bytes"}, _same, _same)


def _struct(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype = _dtype(spec["dtype"])

    def encode(value: Any) -> Any:
        return np.ascontiguousarray(value, dtype=dtype).reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        records = np.frombuffer(data, dtype=dtype)
        return records[0] if len(records) == 1 else records

    return Codec(spec, encode, decode)


def _array(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype, shape = _dtype(spec["dtype"]), tuple(spec["shape"])

    def encode(value: Any) -> Any:
        array = np.ascontiguousarray(value, dtype=dtype)
        if shape.count(-1) == 0 and array.shape != shape:
            raise Invalid(f"this channel carries arrays of shape {shape}, not {array.shape}")
        return array.reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        return np.frombuffer(data, dtype=dtype).reshape(shape)

    return Codec(spec, encode, decode)


FRAME_NOTE = (
    "<IIQqq"  # buffer, length of the fields, id, start, end; the fields follow as JSON, then the pixels if kept
)


def _frame(spec: dict[str, Any]) -> Codec:
    """What is said of a frame, and its pixels where they were kept."""
    import numpy as np

    header = struct.Struct(FRAME_NOTE)
    dtype, shape = _dtype(spec["dtype"]), tuple(spec["shape"])

    def decode(data: Any) -> Any:
        _, length, number, start, end = header.unpack_from(data)
        fields = bytes(memoryview(data)[header.size : header.size + length])
        about = {"id": number, "start_ns": start, "end_ns": end, "meta": msgspec.json.decode(fields) if fields else {}}
        if len(data) > header.size + length:
            about["pixels"] = np.frombuffer(data, dtype, offset=header.size + length).reshape(shape)
        return about

    return Codec(spec, _refuse, decode)


def _refuse(value: Any) -> Any:
    raise Invalid(f"frames and sync queues have their own ways to send, not this one ({type(value).__name__})")


SYNC_HEADER = struct.Struct("<HHI")  # bytes of the sender, of the type, a kind; then the three strings
PARTS = 1 << 30  # in the kind of a pipe's message: its body is several


def sync_parts(data: Any) -> tuple[str, str, int]:
    """A sync queue's message: who sent it, its type, and where its body begins."""
    return pipe_parts(data)[:3]


def pipe_parts(data: Any) -> tuple[str, str, int, int]:
    """A recorded pipe's message: who sent it, in which role, where its body begins, and its kind."""
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
    """What `join_parts` was given. ValueError for what it did not make."""
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
        raise ValueError("a message of several parts says that it is longer than it is")
    return parts


def _sync(data: Any) -> dict[str, Any]:
    sender, kind, begin = sync_parts(data)
    return {"sender": sender, "type": kind, "body": bytes(memoryview(data)[begin:])}


def _pipe(spec: dict[str, Any]) -> Codec:
    """A pipe's message as it is recorded: who sent it, in which role, and what, by the channel's own codec."""
    inner = from_spec(spec["of"])

    def decode(data: Any) -> dict[str, Any]:
        sender, role, begin, kind = pipe_parts(data)
        body = bytes(memoryview(data)[begin:])
        return {"sender": sender, "type": role, "body": split_parts(body) if kind & PARTS else inner.decode(body)}

    return Codec(spec, _refuse, decode)


def frame(dtype: str, shape: tuple[int, ...]) -> Codec:
    """The codec of a frames channel."""
    return from_spec({"kind": "frame", "dtype": dtype, "shape": list(shape)})


def frame_dtype(codec: Codec) -> np.dtype[Any]:
    """The dtype of a channel's frames."""
    dtype: np.dtype[Any] = _dtype(codec.spec["dtype"])
    return dtype


def _dtype(description: Any) -> Any:
    """A NumPy dtype from JSON, refusing object columns (they are pickles)."""
    import numpy as np

    fields = [tuple(map(_tuples, field)) for field in description] if isinstance(description, list) else description
    dtype = np.dtype(fields)
    if dtype.hasobject:
        raise Invalid(f"dtype {dtype} holds Python objects; messages carry plain numbers, strings and arrays of them")
    return dtype


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) and all(isinstance(v, int) for v in value) else value


def from_spec(spec: dict[str, Any]) -> Codec:
    """The codec that a channel's or recording's metadata describes. `Invalid` if it is none of ours."""
    kind = spec.get("kind")
    try:
        if kind == "bytes":
            return BYTES
        if kind == "json":
            return Codec(spec, msgspec.json.encode, msgspec.json.decode)
        if kind == "msgpack":
            return Codec(spec, msgspec.msgpack.encode, msgspec.msgpack.decode)
        if kind == "struct":
            return _struct(spec)
        if kind == "array":
            return _array(spec)
        if kind == "frame":
            return _frame(spec)
        if kind == "sync":
            return Codec(spec, _refuse, _sync)
        if kind == "pipe":
            return _pipe(spec)
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(f"a damaged codec description {spec!r}: {error}") from error
    raise Invalid(
        f"there is no codec {kind!r}: use 'bytes', 'json', 'msgpack', a NumPy structured dtype, or array(dtype, shape)"
    )


def array(dtype: Any, shape: tuple[int, ...] | int = (-1,)) -> Codec:
    """A codec for NumPy arrays of one dtype and shape; one dimension may be -1 (any length)."""
    import numpy as np

    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        raise Invalid(f"shape {sizes}: at most one dimension may be -1")
    return from_spec({"kind": "array", "dtype": np.dtype(dtype).str, "shape": list(sizes)})


def resolve(codec: Any) -> Codec:
    """A codec from what a user writes: None, 'bytes', 'json', 'msgpack', a structured dtype, or a `Codec`."""
    if codec is None:
        return BYTES
    if isinstance(codec, Codec):
        return codec
    if isinstance(codec, str) and codec in ("bytes", "json", "msgpack"):
        return from_spec({"kind": codec})
    if isinstance(codec, dict):
        return from_spec(codec)
    import numpy as np

    try:
        dtype = np.dtype(codec)
    except TypeError as error:
        raise Invalid(
            f"{codec!r} is no codec: use 'bytes', 'json', 'msgpack', a structured dtype, or array(dtype, shape)"
        ) from error
    if dtype.names is None:
        raise Invalid(f"dtype {dtype} has no fields: use penstock.array({dtype.str!r}) for plain arrays")
    return from_spec({"kind": "struct", "dtype": json.loads(json.dumps(dtype.descr))})


def metadata(codec: Codec, attributes: dict[str, Any] | None = None) -> bytes:
    """What a channel's header keeps: how messages are encoded, and what its maker says of it besides."""
    about = {"codec": codec.spec, **({"attributes": attributes} if attributes else {})}
    return json.dumps(about, separators=(",", ":")).encode()


def attributes(data: bytes) -> dict[str, Any]:
    """What the channel's maker said of it, from its header."""
    found = json.loads(data).get("attributes", {})
    return found if isinstance(found, dict) else {}


def from_metadata(data: bytes, where: str) -> Codec:
    """The codec in a channel's header; `Corrupt` if the header holds no such thing."""
    try:
        return from_spec(json.loads(data)["codec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{where}: its metadata is damaged: {error}") from error
