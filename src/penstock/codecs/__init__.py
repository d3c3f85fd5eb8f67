"""Codecs: how a channel's messages become Python objects and typed columns.

A codec is described by plain JSON that is kept in the channel and in its recordings, so that readers and Spark decode
without options. Never pickle: an unpickling receiver runs whatever code the sender likes.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from penstock._native import core as _native
from penstock.codecs import buffers, dtypes, multipart, protobufs, values
from penstock.errors import Corrupt, DecodeError, Invalid, text_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13

CHOICE = (
    "'bytes', 'json' or dict, 'msgpack', a NumPy structured dtype, array(dtype, shape), a dataclass, a msgspec.Struct type, "
    "a TypedDict, a protobuf message class, or ros2msg(name)"
)
# In a description: what MCAP files, Foxglove and tables need to know of the messages.
FOR_OTHERS = ("schema", "mcap", "columns", "last", "attributes")  # the latter two are of bridged channels
Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec(Generic[Message]):
    """`encode` gives a buffer, `decode` takes one; `spec` is the codec as JSON-ready data.

    parse: `decode` with the errors of whichever library decodes, for callers that add the message's position. size: where any
    bytes of one length are a message, and no others, that length. own: the class of this program's messages, where it named one;
    the channel does not keep it. Pickles; codecs of one `spec` and one `own` are equal.
    """

    spec: dict[str, Any] = field(hash=False)
    encode: Encode = field(compare=False, repr=False)
    parse: Decode = field(compare=False, repr=False)
    size: int | None = None
    own: Any = None

    def decode(self, data: Any) -> Message:
        """The value that was encoded. `DecodeError` for bytes that are not a message of this codec."""
        try:
            message: Message = self.parse(data)
        except Exception as error:
            raise DecodeError(f"{len(data)} bytes are not {self.kind}: {text_of(error)}") from error
        return message

    @property
    def kind(self) -> str:
        """bytes, json, msgpack, protobuf, ros2, struct, array, frame, sync or pipe."""
        return str(self.spec["kind"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.spec, self.own)


def _unpickle(spec: dict[str, Any], own: Any) -> Codec:
    """A pickled codec."""
    return from_spec(spec) if own is None else _class_codec(own, spec)


def undecodable(codec: Codec, channel: str, position: int, message: bytes, error: Exception) -> DecodeError:
    """The `DecodeError` for a message that a codec could not decode; error: the decoder's."""
    why = text_of(error).rstrip(".")
    return DecodeError(
        f"{channel}: the message at position {position} ({len(message)} bytes) is not {codec.kind}: {why}. The next call continues behind it",
        position,
    )


def encoded_all(codec: Codec, channel: str, messages: Sequence[Any]) -> list[bytes]:
    """Messages as a codec encodes them. `Invalid`, with the channel's URI, for a value that it cannot carry."""
    return [encoded(codec, channel, message) for message in buffers.several(channel, messages)]


def encoded(codec: Codec, channel: str, message: Any) -> bytes:
    """A message as a codec encodes it. `Invalid`, with the channel's URI, for a value that it cannot carry."""
    try:
        body = codec.encode(message)
    except Invalid as error:
        raise buffers.unsendable(channel, error) from error.__cause__
    return bytes(buffers.buffer_of(channel, body))


def check_claim(codec: Codec, channel: str, length: int) -> None:
    """`Invalid` for a claim where not any bytes of that length are a message."""
    if codec.size is None:
        raise Invalid(
            f"{channel}: claim writes bytes as they are, and messages here are {codec.kind}: use send or offer"
        )
    if length != codec.size:
        raise Invalid(f"{channel}: a message here has {codec.size} bytes, not {length}: claim {codec.size}")


def _same(value: Any) -> Any:
    return value


BYTES = Codec({"kind": "bytes"}, _same, _same)


def _struct(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype = dtypes.dtype_of(spec["dtype"])

    def encode(value: Any) -> Any:
        return values.fitted(value, dtype).reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        records = np.frombuffer(_writable(data), dtype=dtype)
        return records[0] if len(records) == 1 else records

    return Codec(spec, encode, decode, dtype.itemsize)


def _array(spec: dict[str, Any]) -> Codec:
    import numpy as np

    dtype, shape = dtypes.dtype_of(spec["dtype"]), tuple(spec["shape"])

    def encode(value: Any) -> Any:
        array = values.fitted(value, dtype)
        if not _has_shape(array.shape, shape):
            raise Invalid(f"this channel carries arrays of shape {shape}, not {array.shape}")
        return array.reshape(-1).view(np.uint8).data

    def decode(data: Any) -> Any:
        return np.frombuffer(_writable(data), dtype=dtype).reshape(shape)

    return Codec(spec, encode, decode, None if -1 in shape else math.prod(shape) * dtype.itemsize)


def _writable(data: Any) -> Any:
    """Received bytes as memory that their array may change. The bytes of a borrowed message stay as they are."""
    return bytearray(data) if type(data) is bytes else data


def _has_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of the first shape is read back as it is from a channel of the second."""
    return len(found) == len(wanted) and all(size in (-1, there) for there, size in zip(found, wanted, strict=True))


def _frame(spec: dict[str, Any]) -> Codec:
    """A frame's note, and its pixels where they were recorded."""
    import msgspec

    from penstock.codecs.frames import FrameFormat

    form, recorded = FrameFormat(spec), bool(spec.get("pixels"))

    def decode(data: Any) -> Any:
        note = form.read_note(data)
        fields = note.rest[form.header_bytes :]
        about: dict[str, Any] = {"id": note.id, "start_ns": note.start_ns, "end_ns": note.end_ns}
        about["meta"] = msgspec.json.decode(fields) if fields else {}
        if form.header is not None:
            about["header"] = form.read_header(note.rest)
        if recorded or len(data) > note.end:
            pixels = form.array(form.read_pixels(data, note), note.shape, note.dtype)
            about["pixels"] = pixels.copy() if type(data) is bytes else pixels
        return about

    return Codec(spec, _refuse, decode)


def _refuse(value: Any) -> Any:
    raise Invalid(
        f"a recording's codec only decodes: this is how frames, pipes and sync queues are recorded ({type(value).__name__})"
    )


def body_spec(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The codec of the bodies, where a recorded message is a body behind a header (`pipe_parts` finds it); None elsewhere."""
    return spec.get("of", BYTES.spec) if spec.get("kind") in ("sync", "pipe") else None


def _sync(spec: dict[str, Any]) -> Codec:
    """A sync queue's message as it is recorded: its sender, its type, and its body by the queue's own codec."""
    inner = from_spec(spec.get("of", BYTES.spec))

    def decode(data: Any) -> dict[str, Any]:
        sender, kind, begin = multipart.sync_parts(data)
        return {"sender": sender, "type": kind, "body": inner.parse(bytes(memoryview(data)[begin:]))}

    return Codec(spec, _refuse, decode)


def _pipe(spec: dict[str, Any]) -> Codec:
    """A pipe's message as it is recorded: its sender, the sender's role, and the body in the channel's codec."""
    inner = from_spec(spec["of"])

    def decode(data: Any) -> dict[str, Any]:
        sender, role, begin, kind = multipart.pipe_parts(data)
        body = bytes(memoryview(data)[begin:])
        return {
            "sender": sender,
            "type": role,
            "body": multipart.split_parts(body) if kind & multipart.PARTS else inner.parse(body),
        }

    return Codec(spec, _refuse, decode)


def from_spec(spec: dict[str, Any]) -> Codec:
    """The codec that a channel's or recording's metadata describes. `Invalid` if it is none of ours."""
    kind = spec.get("kind")
    try:
        if kind == "bytes":
            return BYTES if spec == BYTES.spec else Codec(spec, _same, _same)
        if kind in ("json", "msgpack"):
            from penstock.codecs import encoding

            return Codec(spec, *encoding.CODERS[kind])
        if kind == "protobuf":
            return Codec(spec, *protobufs.plain_coders(spec))
        if kind == "ros2":
            from penstock.codecs import ros2

            return Codec(spec, *ros2.coders(spec))
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

    sizes = values.sizes_of(shape)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        raise Invalid(f"shape {sizes}: at most one dimension may be -1")
    try:
        made = np.dtype(dtype)
    except TypeError as error:
        raise Invalid(f"{dtype!r} is not a NumPy dtype: give its name, as in 'float32'") from error
    dtypes.refuse_objects(made)
    if made.names:
        raise Invalid(
            f"an array of records has no codec of its own: give the dtype itself, codec=dtype, and send one record a message; "
            f"frames: channels take shape= and dtype=, here the fields {', '.join(made.names)}"
        )
    return from_spec({"kind": "array", "dtype": made.str, "shape": list(sizes)})


def objects(cls: type[Message], form: str = "json", *, schema: str | None = None) -> Codec[Message]:
    """A codec for objects of one class: a dataclass, a `msgspec.Struct` type or a TypedDict. form: "json" or "msgpack".

    schema: of JSON, the name of a schema that other tools know, as "foxglove.LaserScan", for MCAP files and Foxglove; by default the class's own.
    One of Foxglove's must have its fields.

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
    from penstock.codecs import classes, declared

    if form not in classes.FORMS:
        raise Invalid(f"form is {form!r}: it must be 'json' or 'msgpack'")
    if not classes.is_class(cls):
        raise Invalid(f"{cls!r} is not a dataclass, msgspec.Struct type or TypedDict")
    if schema is not None and form != "json":
        raise Invalid(
            f"schema is {schema!r}: only JSON has a schema in other tools; leave it out, or choose form='json'"
        )
    about: dict[str, Any] = {"kind": form}
    if form == "json":
        about["schema"] = classes.stored_schema(cast("Hashable", cls), schema)
    if found := declared.safely(cast("Hashable", cls)):
        about["columns"] = found
    return _class_codec(cls, about)


def _class_codec(own: Any, spec: dict[str, Any]) -> Codec:
    """The codec of this program's own class, on a channel that keeps `spec`."""
    from penstock.codecs import classes

    made = protobufs.coders(own) if spec["kind"] == "protobuf" else classes.coders(own, spec["kind"])
    return Codec(spec, *made, own=own)


def named(codec: Any) -> dict[str, Any]:
    """The argument with which a handle is opened again, if its codec is more than the channel knows: a class of this program's."""
    found = BYTES if codec is None else resolve(codec)
    return {} if found.own is None else {"codec": found}


def agreed(found: Codec, requested: Any) -> Codec | None:
    """The codec of a handle: the channel's, with the class that the program requested. None if the channel has another codec."""
    wanted = found if requested is None else resolve(requested)
    if _form(wanted.spec) != _form(found.spec):
        return None
    return found if wanted.own is None else _class_codec(wanted.own, found.spec)


def _form(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a description that has to be equal. A protobuf message may have got more fields."""
    return {name: value for name, value in bare(spec).items() if name != "files"}


def bare(spec: dict[str, Any]) -> dict[str, Any]:
    """A description without what only other tools need: messages of equal bare descriptions are decoded alike."""
    return {
        name: bare(value) if name == "of" and isinstance(value, dict) else value
        for name, value in spec.items()
        if name not in FOR_OTHERS
    }


def resolve(codec: Any) -> Codec:
    """A codec from what a user writes: None, 'bytes', 'json', 'msgpack', a structured dtype, a class, or a `Codec`. dict is 'json'."""
    if codec is None or codec is bytes:
        return BYTES
    if codec is dict:
        return from_spec({"kind": "json"})
    if isinstance(codec, Codec):
        return codec
    if isinstance(codec, str) and codec in ("bytes", "json", "msgpack"):
        return from_spec({"kind": codec})
    if isinstance(codec, dict):
        return from_spec(codec)
    from penstock.codecs import classes

    if classes.is_class(codec):
        return objects(codec)
    if protobufs.is_class(codec):
        return _class_codec(codec, protobufs.spec(codec))
    import numpy as np

    try:
        dtype = np.dtype(codec)
    except TypeError as error:
        raise Invalid(f"{codec!r} is not a codec: use {CHOICE}") from error
    if isinstance(codec, type) and dtype.hasobject:  # of any class NumPy makes a column of objects
        raise Invalid(f"the class {codec.__qualname__} is not a codec: use {CHOICE}")
    if dtype.names is None:
        raise Invalid(f"dtype {dtype} has no fields: use penstock.array({dtype.str!r}) for plain arrays")
    if dtype.itemsize == 0:
        raise Invalid(f"dtype {dtype} has no bytes: there is nothing to send")
    dtypes.refuse_objects(dtype)
    return from_spec({"kind": "struct", "dtype": dtypes.description_of(dtype)})


def metadata(codec: Codec, attributes: dict[str, Any] | None = None, *, most: int = _native.METADATA_MAX) -> bytes:
    """The metadata in a channel's header: its codec, and its maker's attributes."""
    return described({"attributes": attributes} if attributes else {}, codec.spec, most)


def described(about: dict[str, Any], spec: dict[str, Any] | None, most: int) -> bytes:
    """JSON with a codec's description. It leaves out the parts that only other tools need if it would exceed `most` bytes."""
    data = json.dumps({**about, "codec": spec}, separators=(",", ":")).encode()
    if len(data) > most and spec is not None:
        data = json.dumps({**about, "codec": bare(spec)}, separators=(",", ":")).encode()
    return data


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
