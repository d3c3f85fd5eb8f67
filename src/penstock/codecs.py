"""Codecs: how a channel's messages become Python objects and typed columns.

A codec is described by plain JSON that is kept in the channel and in its recordings, so that readers and Spark decode
without being told. Never pickle: an unpickling receiver runs whatever code the sender likes.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from penstock import classes, protobufs, values
from penstock._native import core as _native
from penstock.errors import Corrupt, DecodeError, Invalid

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13

CHOICE = (
    "'bytes', 'json', 'msgpack', a NumPy structured dtype, array(dtype, shape), a dataclass, a msgspec.Struct type, "
    "or a protobuf message class"
)
Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec(Generic[Message]):
    """`encode` gives a buffer, `decode` takes one; `spec` is the codec as JSON-ready data.

    parse: `decode` with the errors of whichever library decodes, for callers that add the message's position. size: where any
    bytes of one length are a message, and no others, that length. own: the class of this program's messages, where it named one;
    the channel does not keep it. Pickles.
    """

    spec: dict[str, Any]
    encode: Encode
    parse: Decode
    size: int | None = None
    own: Any = None

    def decode(self, data: Any) -> Message:
        """The value that was encoded. `DecodeError` for bytes that are no message of this codec."""
        try:
            message: Message = self.parse(data)
        except Exception as error:
            raise DecodeError(f"{len(data)} bytes are no {self.kind}: {error}") from error
        return message

    @property
    def kind(self) -> str:
        """bytes, json, msgpack, protobuf, struct, array, frame, sync or pipe."""
        return str(self.spec["kind"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.spec, self.own)


def _again(spec: dict[str, Any], own: Any) -> Codec:
    """A pickled codec."""
    return from_spec(spec) if own is None else _of_class(own, spec)


def undecodable(codec: Codec, channel: str, position: int, message: bytes, error: Exception) -> DecodeError:
    """The `DecodeError` for a message that a codec could not decode; error: the decoder's."""
    return DecodeError(
        f"{channel}: the message at position {position} ({len(message)} bytes) is no {codec.kind}: {error}. The next call continues behind it",
        position,
    )


def unsendable(channel: str, error: Invalid) -> Invalid:
    """The error of a value that a codec cannot carry, with the channel's URI."""
    return Invalid(f"{channel}: {error}")


def no_message(channel: str, given: Any) -> TypeError:
    """The error of a value that is no message of bytes, as compiled methods raise it."""
    return TypeError(f"{channel}: a message is bytes or another bytes-like object, not {type(given).__name__}")


def several(channel: str, messages: Iterable[Message]) -> Iterable[Message]:
    """The messages given to `offer_many`. TypeError, with the channel's URI, for anything that is no list of them."""
    if not isinstance(messages, Iterable):
        raise TypeError(f"{channel}: offer_many takes a list of messages, not {type(messages).__name__}")
    return messages


def encoded_all(codec: Codec, channel: str, messages: Iterable[Any]) -> list[bytes]:
    """Messages as a codec encodes them. `Invalid`, with the channel's URI, for a value that it cannot carry."""
    encode, found = codec.encode, []
    for message in several(channel, messages):
        try:
            found.append(copied(encode(message)))
        except Invalid as error:
            raise unsendable(channel, error) from error.__cause__
    return found


def copied(data: Any) -> bytes:
    """The bytes of a buffer. TypeError for anything else: of a number, `bytes` would make so many zeros."""
    return data if type(data) is bytes else bytes(memoryview(data))


def check_claim(codec: Codec, channel: str, length: int) -> None:
    """`Invalid` for a claim where not any bytes of that length are a message."""
    if codec.size is None:
        raise Invalid(
            f"{channel}: claim writes bytes as they are, and messages here are {codec.kind}: use send or offer"
        )
    if length != codec.size:
        raise Invalid(f"{channel}: a message here has {codec.size} bytes, not {length}: claim so many")


def _same(value: Any) -> Any:
    return value


BYTES = Codec({"kind": "bytes"}, _same, _same)


def _struct(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype = _dtype(spec["dtype"])

    def encode(value: Any) -> Any:
        return values.fitted(value, dtype).reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        records = np.frombuffer(data, dtype=dtype)
        return records[0] if len(records) == 1 else records

    return Codec(spec, encode, decode, dtype.itemsize)


def _array(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype, shape = _dtype(spec["dtype"]), tuple(spec["shape"])

    def encode(value: Any) -> Any:
        array = values.fitted(value, dtype)
        if not _has_shape(array.shape, shape):
            raise Invalid(f"this channel carries arrays of shape {shape}, not {array.shape}")
        return array.reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        return np.frombuffer(data, dtype=dtype).reshape(shape)

    return Codec(spec, encode, decode, None if -1 in shape else math.prod(shape) * dtype.itemsize)


def _has_shape(found: tuple[int, ...], asked: tuple[int, ...]) -> bool:
    """Whether an array of the first shape is read back as it is from a channel of the second."""
    return len(found) == len(asked) and all(size in (-1, there) for there, size in zip(found, asked, strict=True))


def _frame(spec: dict[str, Any]) -> Codec:
    """A frame's note, and its pixels where they were recorded."""
    import numpy as np

    # Buffer, length of the fields, id, start, end; the fields follow as JSON, then the pixels if they were kept.
    header = struct.Struct(_native.FRAME_NOTE)
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
    raise Invalid(
        f"a recording's codec only decodes: this is how frames, pipes and sync queues are recorded ({type(value).__name__})"
    )


SYNC_HEADER = struct.Struct(_native.SYNC_HEADER)  # bytes of the sender, of the type, a kind; then the three strings
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


def body_spec(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The codec of the bodies, where a recorded message is a body behind a header (`pipe_parts` finds it); None elsewhere."""
    return spec.get("of", BYTES.spec) if spec.get("kind") in ("sync", "pipe") else None


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
        raise ValueError("a message of several parts says that it is longer than it is")
    return parts


def _sync(spec: dict[str, Any]) -> Codec:
    """A sync queue's message as it is recorded: its sender, its type, and its body by the queue's own codec."""
    inner = from_spec(spec.get("of", BYTES.spec))

    def decode(data: Any) -> dict[str, Any]:
        sender, kind, begin = sync_parts(data)
        return {"sender": sender, "type": kind, "body": inner.parse(bytes(memoryview(data)[begin:]))}

    return Codec(spec, _refuse, decode)


def _pipe(spec: dict[str, Any]) -> Codec:
    """A pipe's message as it is recorded: who sent it, in which role, and what, by the channel's own codec."""
    inner = from_spec(spec["of"])

    def decode(data: Any) -> dict[str, Any]:
        sender, role, begin, kind = pipe_parts(data)
        body = bytes(memoryview(data)[begin:])
        return {"sender": sender, "type": role, "body": split_parts(body) if kind & PARTS else inner.parse(body)}

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

    dtype = np.dtype(_fields(description))
    if dtype.hasobject:
        raise Invalid(f"dtype {dtype} holds Python objects; messages carry plain numbers, strings and arrays of them")
    return dtype


def _fields(description: Any) -> Any:
    """A dtype's description from JSON, which has lists for its tuples: [[name, type or fields, shape], ...]."""
    if not isinstance(description, list):
        return description
    return [(name, _fields(kind), *(tuple(size) for size in shape)) for name, kind, *shape in description]


def _description(dtype: Any) -> Any:
    """A dtype as JSON-ready data: its fields one after the other, without the gaps that an aligned one has."""
    found = []
    for name in dtype.names:
        base, shape = dtype[name].base, list(dtype[name].shape)
        found.append([name, _description(base) if base.names else base.str, *([shape] if shape else [])])
    return found


def from_spec(spec: dict[str, Any]) -> Codec:
    """The codec that a channel's or recording's metadata describes. `Invalid` if it is none of ours."""
    kind = spec.get("kind")
    try:
        if kind == "bytes":
            return BYTES
        if kind == "json":
            return Codec(spec, values.to_json, msgspec.json.decode)
        if kind == "msgpack":
            return Codec(spec, values.to_msgpack, msgspec.msgpack.decode)
        if kind == "protobuf":
            return Codec(spec, *protobufs.plain_coders(spec))
        if kind == "struct":
            return _struct(spec)
        if kind == "array":
            return _array(spec)
        if kind == "frame":
            return _frame(spec)
        if kind == "sync":
            return _sync(spec)
        if kind == "pipe":
            return _pipe(spec)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise Invalid(f"a damaged codec description {spec!r}: {error}") from error
    raise Invalid(f"there is no codec {kind!r}: use {CHOICE}")


def array(dtype: Any, shape: tuple[int, ...] | int = (-1,)) -> Codec:
    """A codec for NumPy arrays of one dtype and shape; one dimension may be -1 (any length)."""
    import numpy as np

    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        raise Invalid(f"shape {sizes}: at most one dimension may be -1")
    return from_spec({"kind": "array", "dtype": np.dtype(dtype).str, "shape": list(sizes)})


def objects(cls: type[Message], form: str = "json") -> Codec[Message]:
    """A codec for objects of one class: a dataclass or a `msgspec.Struct` type. form: "json" or "msgpack".

    `codec=cls` means `codec=objects(cls)`. `Invalid` for a class with fields that msgspec cannot decode.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Pose:
    ...     x: float
    ...     y: float
    >>> codec = penstock.objects(Pose, "msgpack")
    >>> codec.decode(codec.encode(Pose(1.5, 2.0)))
    Pose(x=1.5, y=2.0)
    """
    if form not in classes.FORMS:
        raise Invalid(f"form is {form!r}: it must be 'json' or 'msgpack'")
    if not classes.is_class(cls):
        raise Invalid(f"{cls!r} is neither a dataclass nor a msgspec.Struct type")
    return _of_class(cls, {"kind": form})


def _of_class(own: Any, spec: dict[str, Any]) -> Codec:
    """The codec of this program's own class, on a channel that keeps `spec`."""
    made = protobufs.coders(own) if spec["kind"] == "protobuf" else classes.coders(own, spec["kind"])
    return Codec(spec, *made, own=own)


def named(codec: Any) -> dict[str, Any]:
    """The argument with which a handle is opened again, if its codec is more than the channel knows: a class of this program's."""
    found = BYTES if codec is None else resolve(codec)
    return {} if found.own is None else {"codec": found}


def agreed(found: Codec, asked: Any) -> Codec | None:
    """The codec of a handle: the channel's, with the class that the program asked for. None if the channel has another codec."""
    wanted = found if asked is None else resolve(asked)
    if _form(wanted.spec) != _form(found.spec):
        return None
    return found if wanted.own is None else _of_class(wanted.own, found.spec)


def _form(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a description that has to be equal. A protobuf message may have got more fields."""
    return {name: value for name, value in spec.items() if name != "files"}


def resolve(codec: Any) -> Codec:
    """A codec from what a user writes: None, 'bytes', 'json', 'msgpack', a structured dtype, a class, or a `Codec`."""
    if codec is None:
        return BYTES
    if isinstance(codec, Codec):
        return codec
    if isinstance(codec, str) and codec in ("bytes", "json", "msgpack"):
        return from_spec({"kind": codec})
    if isinstance(codec, dict):
        return from_spec(codec)
    if classes.is_class(codec):
        return objects(codec)
    if protobufs.is_class(codec):
        return _of_class(codec, protobufs.spec(codec))
    import numpy as np

    try:
        dtype = np.dtype(codec)
    except TypeError as error:
        raise Invalid(f"{codec!r} is no codec: use {CHOICE}") from error
    if isinstance(codec, type) and dtype.hasobject:  # of any class NumPy makes a column of objects
        raise Invalid(f"the class {codec.__qualname__} is no codec: use {CHOICE}")
    if dtype.names is None:
        raise Invalid(f"dtype {dtype} has no fields: use penstock.array({dtype.str!r}) for plain arrays")
    if dtype.itemsize == 0:
        raise Invalid(f"dtype {dtype} has no bytes: there is nothing to send")
    if dtype.hasobject:
        raise Invalid(f"dtype {dtype} holds Python objects; messages carry plain numbers, strings and arrays of them")
    return from_spec({"kind": "struct", "dtype": _description(dtype)})


def metadata(codec: Codec, attributes: dict[str, Any] | None = None) -> bytes:
    """The metadata in a channel's header: its codec, and its maker's attributes."""
    about = {"codec": codec.spec, **({"attributes": attributes} if attributes else {})}
    return json.dumps(about, separators=(",", ":")).encode()


def attributes(data: bytes) -> dict[str, Any]:
    """The attributes that the channel's maker gave it, from its header."""
    found = json.loads(data).get("attributes", {})
    return found if isinstance(found, dict) else {}


def from_metadata(data: bytes, where: str) -> Codec:
    """The codec in a channel's header; `Corrupt` if the header has none."""
    try:
        return from_spec(json.loads(data)["codec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{where}: its metadata is damaged: {error}") from error
