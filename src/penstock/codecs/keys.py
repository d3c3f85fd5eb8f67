"""Keys of messages: one field of a codec's messages, read from their encoded bytes. For logs that keep the last value of each key.

Knows what each codec's bytes mean; knows no channel. An encoded message has one key, however the program wrote it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.codecs import dtypes, protobufs
from penstock.errors import Invalid, Unsupported, text_of

if TYPE_CHECKING:
    from penstock.codecs import Codec

LONGEST = 128  # bytes of a key in the table; native/core/log/files/last_layout.hpp has the same
NUMBERS_AND_TEXT = "biuSU"  # kinds of a NumPy field that can be a key
Key = str | int | bool


def field_in(metadata: bytes) -> str | None:
    """The field by which a channel keeps last values, from its header."""
    found = json.loads(metadata).get("last")
    return found if isinstance(found, str) else None


def check_field(codec: Codec, field: str) -> None:
    """`Invalid` if messages of a codec have no such field, or none that can be a key. JSON and msgpack without a class may have any."""
    if not isinstance(field, str) or not field:
        raise Invalid(f"last is {field!r}: it must be the name of a field of the messages")
    if codec.kind == "struct":
        _struct_slice(codec, field)
    elif codec.kind == "protobuf":
        _check_protobuf(codec, field)
    elif codec.kind in ("json", "msgpack"):
        if codec.own is not None:
            _check_class(codec, field)
    else:
        raise Invalid(
            f"last={field!r}: messages of the codec {codec.kind} have no fields; last values need json, msgpack, a structured dtype, "
            "a class or protobuf"
        )


def reader(codec: Codec, field: str) -> Callable[[Any], bytes]:
    """A function that gives the key of an encoded message. It raises `Invalid` for a message without it."""
    if codec.kind == "struct":
        find = _struct_reader(codec, field)
    elif codec.kind == "protobuf":
        find = _protobuf_reader(codec, field)
    else:
        find = _field_reader(codec.kind, field)

    def read(body: Any) -> bytes:
        key = find(body)
        if len(key) > LONGEST:
            raise Invalid(
                f"the key {field!r} of this message takes {len(key)} bytes, and last values have keys of up to {LONGEST}"
            )
        return key

    return read


def _missing(field: str, kind: str, reason: str) -> Invalid:
    return Invalid(f"this {kind} message has no key {field!r}, by which the channel keeps last values: {reason}")


def _field_reader(form: str, field: str) -> Callable[[Any], bytes]:
    """Of JSON and msgpack: a decoder that looks at one field and passes over the others."""
    import msgspec

    only = msgspec.defstruct("Message", [("key", Key)], rename={"key": field})
    decoder: Any = msgspec.json.Decoder(only) if form == "json" else msgspec.msgpack.Decoder(only)

    def find(body: Any) -> bytes:
        try:
            key = decoder.decode(body).key
        except msgspec.MsgspecError as error:
            raise _missing(field, form, _reason(text_of(error), field)) from error
        try:
            return msgspec.msgpack.encode(key)
        except OverflowError as error:
            raise _missing(field, form, f"{field!r} is a whole number of more than 64 bits") from error

    return find


_IS = {
    "null": "has no value",
    "None": "has no value",
    "float": "is a number with a fraction",
    "array": "is a list",
    "object": "has fields of its own",
    "bytes": "is bytes",
}


def _reason(text: str, field: str) -> str:
    """What msgspec says of a message without a key, for people who do not know its types."""
    found = re.search(r", got `(\w+)`( - at)?", text)
    if found is None:
        return "it has no such field" if "missing required field" in text else text
    if found[2] is None:
        return "it has no fields"
    return f"{field!r} {_IS.get(found[1], f'is {found[1]}')}; a key is a text, a whole number or a truth value"


def _struct_slice(codec: Codec, field: str) -> slice:
    dtype = dtypes.dtype_of(codec.spec["dtype"])
    if field not in (dtype.names or ()):
        raise Invalid(f"last={field!r}: messages here have no such field; they have {', '.join(dtype.names or ())}")
    kind, offset = dtype.fields[field][:2]
    if kind.kind not in NUMBERS_AND_TEXT or kind.shape:
        raise Invalid(f"last={field!r}: this field is {kind}; a key is a whole number, a truth value or a text")
    if kind.itemsize > LONGEST:
        raise Invalid(f"last={field!r}: this field takes {kind.itemsize} bytes, and a key at most {LONGEST}")
    return slice(offset, offset + kind.itemsize)


def _struct_reader(codec: Codec, field: str) -> Callable[[Any], bytes]:
    part, size = _struct_slice(codec, field), codec.size

    def find(body: Any) -> bytes:
        if len(body) != size:
            raise _missing(field, "struct", f"it has {len(body) // (size or 1)} records; send them one by one")
        return bytes(body[part])

    return find


def _descriptor(codec: Codec) -> Any:
    return codec.own.DESCRIPTOR if codec.own is not None else protobufs.message_class(codec.spec).DESCRIPTOR


def _check_protobuf(codec: Codec, field: str) -> None:
    found = _descriptor(codec).fields_by_name.get(field)
    if found is None:
        names = ", ".join(_descriptor(codec).fields_by_name)
        raise Invalid(f"last={field!r}: messages here have no such field; they have {names}")
    if found.is_repeated or found.cpp_type in (
        found.CPPTYPE_MESSAGE,
        found.CPPTYPE_FLOAT,
        found.CPPTYPE_DOUBLE,
    ):
        raise Invalid(f"last={field!r}: a key is a whole number, a truth value or a text, and one of them")


def _protobuf_reader(codec: Codec, field: str) -> Callable[[Any], bytes]:
    import msgspec

    _check_protobuf(codec, field)
    parse = codec.own.FromString if codec.own is not None else protobufs.message_class(codec.spec).FromString
    optional = _descriptor(codec).fields_by_name[field].has_presence

    def find(body: Any) -> bytes:
        message = parse(bytes(body))
        if optional and not message.HasField(field):
            raise _missing(field, "protobuf", "the field is not set")
        return msgspec.msgpack.encode(getattr(message, field))

    return find


def _check_class(codec: Codec, field: str) -> None:
    fields = _class_fields(codec.own)
    if fields is None:
        raise Invalid(f"last={field!r}: {codec.own.__qualname__} is sent without the names of its fields (array_like)")
    if field not in fields:
        raise Invalid(
            f"last={field!r}: messages of {codec.own.__qualname__} have no such field; they have {', '.join(fields)}"
        )
    if wrong := fields[field]:
        raise Invalid(f"last={field!r}: {codec.own.__qualname__} {wrong}")


_NO_KEYS = (
    "FloatType",
    "ListType",
    "VarTupleType",
    "TupleType",
    "SetType",
    "FrozenSetType",
    "DictType",
    "StructType",
    "DataclassType",
)


@functools.lru_cache(64)
def _class_fields(cls: Any) -> dict[str, str] | None:
    """The fields of a class's messages by the names that they have there, each with the reason why it is no key, if it cannot be one. None: they have
    no names."""
    import msgspec

    try:
        about: Any = msgspec.inspect.type_info(cls)
    except (TypeError, Unsupported) as error:
        raise Invalid(f"{cls!r} has fields that cannot be looked at: {text_of(error)}") from error
    if getattr(about, "array_like", False):
        return None
    config = getattr(cls, "__struct_config__", None)
    leaves_out = config is not None and config.omit_defaults
    return {one.encode_name: _no_key(one, leaves_out=leaves_out) for one in about.fields}


def _no_key(field: Any, *, leaves_out: bool) -> str:
    kinds = {type(one).__name__ for one in getattr(field.type, "types", [field.type])} - {"NoneType"}
    if kinds and kinds.issubset(_NO_KEYS):
        return "has a field of another kind; a key is a whole number, a truth value or a text"
    if leaves_out and not field.required:
        return "leaves this field out where it has its default (omit_defaults): give the field no default"
    return ""


__all__ = ["LONGEST", "check_field", "field_in", "reader"]
