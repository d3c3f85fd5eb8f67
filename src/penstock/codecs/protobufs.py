"""Codecs of protobuf messages. Their description travels with the channel, so that readers and tables need no generated code.

Knows protobuf, which is an optional package and imported with the first such codec; knows no channel and no other codec.
"""

from __future__ import annotations

import base64
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import Invalid, MissingPackage
from penstock.util.extras import explain_missing

DESCRIPTION_MAX = 1 << 22  # bytes of a description that another user may have written
KNOWN = "google/protobuf/"  # files whose messages have a special JSON form: times, durations, wrappers
ANY = "google.protobuf.Any"
GROUP = 3  # protobuf's wire type of a group


def is_class(cls: Any) -> bool:
    """Whether it is a generated message class."""
    return isinstance(cls, type) and all(
        hasattr(cls, name) for name in ("DESCRIPTOR", "FromString", "SerializeToString")
    )


def spec(cls: Any) -> dict[str, Any]:
    """The description of a message class that a channel keeps: its name, its own file, and the files that it uses."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name in seen:
            return
        seen.add(file.name)
        for other in file.dependencies:
            add(other)
        file.CopyToProto(files.file.add())

    add(cls.DESCRIPTOR.file)
    return described(cls.DESCRIPTOR.full_name, files.SerializeToString(deterministic=True))


def described(message: str, files: bytes) -> dict[str, Any]:
    """The description of a message by its full name and the bytes of a FileDescriptorSet."""
    return {"kind": "protobuf", "message": message, "files": base64.b64encode(zlib.compress(files, 9)).decode()}


def coders(cls: Any) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How messages of a class are encoded and decoded."""
    name = cls.DESCRIPTOR.full_name

    def encode(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise Invalid(f"this handle carries {name}, not {type(value).__qualname__}")
        try:
            data: bytes = value.SerializeToString()
        except Exception as error:  # a required field is missing: each implementation has its own error class
            raise Invalid(f"this {name} cannot be sent: {error}") from error
        return data

    def parse(data: Any) -> Any:
        return cls.FromString(bytes(data))

    return encode, parse


def plain_coders(about: dict[str, Any]) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """The same for a program that did not name the class: it reads dictionaries, and writes messages of any class of that name.

    Without the package protobuf it cannot read.
    """
    name = about["message"]
    try:
        read = reader(about)
    except MissingPackage as error:  # such a channel is still listed, recorded and removed
        text = str(error)

        def read(data: bytes) -> Any:
            raise MissingPackage(text)

    def encode(value: Any) -> bytes:
        if getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) != name:
            raise Invalid(f"this channel carries {name}, not {type(value).__qualname__}")
        return bytes(value.SerializeToString())

    return encode, lambda data: plain(read(bytes(data)))


def reader(about: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """How bytes become a message of a description. `MissingPackage` without the package protobuf."""
    found: Callable[[bytes], Any] = message_class(about).FromString
    return found


def message_class(about: Mapping[str, Any]) -> Any:
    """The class of a description's messages. `MissingPackage` without the package protobuf."""
    return _message_class(about["message"], about["files"])


@functools.lru_cache(64)
def _message_class(name: str, files: str) -> Any:
    with explain_missing(f"reading messages of protobuf's {name}"):
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        found_files = descriptor_pb2.FileDescriptorSet.FromString(_unpacked(files))
    except DecodeError as error:
        raise ValueError(f"its description is none of protobuf's: {error}") from error
    for file in found_files.file:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def description(about: dict[str, Any]) -> bytes | None:
    """The FileDescriptorSet that a channel keeps, for other programs; None if it is damaged."""
    try:
        return _unpacked(about["files"])
    except (KeyError, TypeError, ValueError, zlib.error):
        return None


def _unpacked(files: str) -> bytes:
    unpack = zlib.decompressobj()
    data = unpack.decompress(base64.b64decode(files, validate=True), DESCRIPTION_MAX)
    if not unpack.eof:
        raise ValueError("its description does not end")
    return data


def plain(message: Any) -> Any:
    """A message as a dictionary by its fields' names. Fields that are not set are None, or the default where the language cannot tell.

    Enumerations are their names, or the number where it has none; bytes stay bytes. Times and durations are text, as in protobuf's JSON.
    """
    if message.DESCRIPTOR.file.name.startswith(KNOWN):
        return json_form(message)
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def json_form(message: Any) -> Any:
    """A message as protobuf's JSON, by its own description alone: classes that this process has loaded change nothing.

    A message without a JSON form is `@type` and `value`, its bytes in base64: an Any of a type that the description lacks, a nan in a Value.
    """
    from google.protobuf import json_format

    try:
        return json_format.MessageToDict(message, descriptor_pool=message.DESCRIPTOR.file.pool)
    except Exception:  # TypeError, ValueError, or an error class of the implementation
        name, data = message.DESCRIPTOR.full_name, message.SerializePartialToString()
        if name == ANY:
            name, data = message.type_url, message.value
        return {"@type": name, "value": base64.b64encode(data).decode()}


def unknown_fields(message: Any) -> dict[str, list[Any]]:
    """What a message has and its description lacks: place → values, as `a.7` for number 7 inside the field `a`.

    Groups are lists of (number, value). Enumerators that a closed enumeration lacks are among them.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet

    found: dict[str, list[Any]] = {}

    def values(fields: Any) -> list[tuple[int, Any]]:
        return [(one.field_number, values(one.data) if one.wire_type == GROUP else one.data) for one in fields]

    def walk(inner: Any, place: str) -> None:
        for number, value in values(UnknownFieldSet(inner)):
            found.setdefault(f"{place}{number}", []).append(value)
        for field, value in inner.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                has_messages = field.message_type.fields_by_name["value"].message_type is not None
                children = value.values() if has_messages else ()
            else:
                children = value if field.is_repeated else (value,)
            for child in children:
                walk(child, f"{place}{field.name}.")

    walk(message, "")
    return found


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {_key(key): _value(inner, one) for key, one in value.items()}
    return [_value(field, one) for one in value] if field.is_repeated else _value(field, value)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
