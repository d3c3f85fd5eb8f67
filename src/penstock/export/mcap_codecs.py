"""The codecs of an MCAP file's topics. Knows codecs and what a file says of a topic; reads no message."""

from __future__ import annotations

import json
from typing import Any

from penstock import codecs
from penstock.codecs import protobufs, ros2, ros2_idl
from penstock.errors import MissingPackage, PenstockError
from penstock.export.mcap_reading.records import Channel
from penstock.export.mcap_schemas import Form, form_of

CODEC = "penstock.codec"  # in a channel's metadata
READ = {("cdr", "ros2msg"), ("cdr", "ros2idl"), ("protobuf", "protobuf")}
PLAIN = ("json", "msgpack")


def written(metadata: dict[str, str]) -> dict[str, Any]:
    """The codec that Penstock wrote."""
    try:
        codec: dict[str, Any] = json.loads(metadata[CODEC])
        codecs.from_spec(codec)
    except (KeyError, ValueError, TypeError, AttributeError, PenstockError):
        return dict(codecs.BYTES.spec)
    return codec if codecs.body_spec(codec) is None and codec["kind"] != "frame" else dict(codecs.BYTES.spec)


def foreign(channel: Channel) -> tuple[dict[str, Any], str]:
    """The codec of another program's topic; and why its messages stay bytes, or cannot be read here: empty if they can."""
    encoding, schema = channel.encoding, channel.schema
    bare = dict(codecs.BYTES.spec)
    if encoding in PLAIN:
        return {"kind": encoding}, ""
    if encoding not in {one for one, _ in READ}:
        return bare, f"its encoding {encoding!r} is unknown here"
    if schema is None or (encoding, schema.encoding) not in READ:
        return (
            bare,
            f"its schema is {schema.encoding!r}, and not {encoding_of(encoding)}" if schema else "it has no schema",
        )
    if encoding == "protobuf":
        try:
            return codecs.from_spec(protobufs.described(schema.name, schema.data)).spec, ""
        except PenstockError as error:  # a description of another message
            return bare, f"its schema has no message {schema.name!r} that can be read: {error.__cause__ or error}"
    try:
        text = schema.data.decode()
        if schema.encoding == "ros2idl":
            return ros2_idl.described(schema.name, text), ""
        try:
            return ros2.described(schema.name, text), ""
        except MissingPackage as error:
            return ros2.unread(schema.name, text), str(error)
    except (PenstockError, UnicodeDecodeError) as error:
        return bare, str(error)


def encoding_of(encoding: str) -> str:
    """The encodings of schemas that this encoding of messages is read by."""
    return " or ".join(sorted(repr(schema) for one, schema in READ if one == encoding))


def is_usual(codec: dict[str, Any], form: Form) -> bool:
    """Whether an export writes such a codec in this form by default."""
    usual = form_of(codec)
    if usual is None or usual.message_encoding != form.message_encoding:
        return False
    if codec["kind"] == "json" and "schema" not in codec:  # a name from the channel, and a schema that forbids nothing
        return form.schema is not None and form.schema[0] == "jsonschema" and (form.name or "").startswith("penstock/")
    return (usual.schema, usual.name) == (form.schema, form.name) or (
        usual.name is None and usual.schema == form.schema
    )
