"""How messages of each codec are written in an MCAP file: their encoding, and a schema that other tools read. Knows codecs.

A structured dtype's bytes are those of a ROS 1 message of the same fields: packed, little-endian, arrays of fixed lengths. So they are
copied as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import codecs
from penstock.codecs import foxglove, multipart, packing, protobufs, ros2
from penstock.errors import PenstockError
from penstock.export import mcap_images
from penstock.record import Range

OPAQUE = "application/octet-stream"
FLAT = {
    "?": "bool",
    **{f"i{size}": f"int{size * 8}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{size * 8}" for size in (1, 2, 4, 8)},
    "f4": "float32",
    "f8": "float64",
    "M8": "int64",
    "m8": "int64",
}


@dataclass(frozen=True)
class Form:
    """message_encoding: of the file's channel. schema: (encoding, data), or None for messages without one. name: the schema's, where
    the codec has one. has_envelope: a recorded message is a header and a body, and the body is written."""

    message_encoding: str
    schema: tuple[str, bytes] | None = None
    name: str | None = None
    has_envelope: bool = False


@dataclass(frozen=True)
class Foreign:
    """The facts that a recording keeps of another program's topic. channel_metadata: of the file's channel. first_sequence: where
    the sequence numbers begin that count its messages; None if they are 0."""

    topic: str
    form: Form
    channel_metadata: dict[str, str]
    first_sequence: int | None = None

    def packed(self) -> dict[str, Any]:
        """It as JSON-ready data, for the codec's description."""
        encoding, data = self.form.schema or (None, b"")
        schema = None if encoding is None else [self.form.name, encoding, packing.pack(data)]
        return {
            "topic": self.topic,
            "encoding": self.form.message_encoding,
            "schema": schema,
            "metadata": self.channel_metadata,
            **({} if self.first_sequence is None else {"first_sequence": self.first_sequence}),
        }


def foreign_of(codec: dict[str, Any]) -> Foreign | None:
    """The topic that a recording was imported from; None for other recordings."""
    about = codec.get("mcap")
    if about is None:
        return None
    try:
        name, encoding, packed = about["schema"] or (None, None, "")
        schema = None if encoding is None else (encoding, packing.unpack(packed))
        return Foreign(
            about["topic"], Form(about["encoding"], schema, name), dict(about["metadata"]), about.get("first_sequence")
        )
    except (KeyError, TypeError, ValueError):  # damaged
        return None


def form_of(codec: dict[str, Any], samples: Sequence[bytes] = ()) -> Form | None:
    """How messages of a codec are written; None if they cannot be. samples: of JSON, messages that may be no objects."""
    kind = codec["kind"]
    if kind == "frame":
        if mcap_images.is_compressed(codec):
            return Form("protobuf", ("protobuf", mcap_images.description(compressed=True)), mcap_images.COMPRESSED)
        if mcap_images.encoding_of(codec) is None:
            return None
        return Form("protobuf", ("protobuf", mcap_images.description()), mcap_images.NAME)
    if (body := codecs.body_spec(codec)) is not None:
        inner = form_of(body, samples)
        return None if inner is None else replace(inner, has_envelope=True)
    if (foreign := foreign_of(codec)) is not None:
        return foreign.form
    if kind == "json":
        name, schema = _read_declared(codec.get("schema"))
        return Form("json", ("jsonschema", schema or json_schema(samples)), name)
    if kind == "msgpack":
        return Form("msgpack")
    if kind == "protobuf" and (description := protobufs.description(codec)) is not None:
        return Form("protobuf", ("protobuf", description), codec["message"])
    if kind == "ros2" and (definition := _ros2_text(codec)) is not None:
        return Form("cdr", ("ros2msg", definition), codec["message"])
    if kind == "struct" and (text := ros_definition(codec["dtype"])) is not None:
        return Form("ros1", ("ros1msg", text.encode()))
    return Form(OPAQUE if kind == "bytes" else f"x-penstock-{kind}")


def _ros2_text(codec: dict[str, Any]) -> bytes | None:
    try:
        return ros2.definition_of(codec).encode()
    except (KeyError, TypeError, ValueError):  # damaged
        return None


def schema_name(channel: str, data: bytes) -> str:
    """A name as ROS has them, package/Type: the channel's. Its end is of the definition, so that two definitions never share a name."""
    name = re.sub(r"[^A-Za-z0-9]", "_", channel.partition(":")[2]).strip("_") or "Message"
    return f"penstock/{name}_{hashlib.sha256(data).hexdigest()[:8]}"


# ---- structured dtypes as ROS 1 messages ----


def ros_definition(dtype: Any) -> str | None:
    """The definition of a ROS 1 message whose bytes are those of a record; None if the record has no such type, as for big-endian fields."""
    lines: list[str] = []
    taken: set[str] = set()
    return "".join(lines) if _fields(dtype, "", lines, taken) else None


def _fields(fields: list[Any], prefix: str, lines: list[str], taken: set[str]) -> bool:
    for name, kind, *shape in fields:
        count = int(np.prod(shape[0])) if shape else 1
        own = f"{prefix}{_clean(name)}"
        if isinstance(kind, list):
            if not all(
                _fields(kind, f"{own}_{number}_" if shape else f"{own}_", lines, taken) for number in range(count)
            ):
                return False
        else:
            found = _plain(np.dtype(kind))
            if found is None:
                return False
            plain, number = own, 2
            while own in taken:
                own, number = f"{plain}_{number}", number + 1
            taken.add(own)
            of, times = found
            total = count * times
            lines.append(f"{of}[{total}] {own}\n" if shape or times != 1 else f"{of} {own}\n")
    return True


def _plain(dtype: np.dtype[Any]) -> tuple[str, int] | None:
    """A ROS type, and how many of them are one value."""
    if dtype.byteorder == ">":
        return None
    if dtype.kind in "iufbMm" and (name := FLAT.get("?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}")):
        return name, 1
    if dtype.kind in "Mm":
        return "int64", 1
    if dtype.kind == "c" and dtype.itemsize in (8, 16):
        return f"float{dtype.itemsize * 4}", 2
    if dtype.kind == "U":
        return "uint32", dtype.itemsize // 4
    return "uint8", dtype.itemsize


def _clean(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return made if re.match("[A-Za-z]", made) else f"f{made}"


# ---- JSON Schema ----


def json_schema(samples: Sequence[bytes] = ()) -> bytes:
    """The JSON Schema of messages without a declared class: it requires and forbids nothing. It states that they are objects, as
    Foxglove wants it, unless one of the samples is another value."""
    made = {"type": "object", "properties": {}} if all(map(is_object, samples)) else {"properties": {}}
    return json.dumps({**made, "additionalProperties": True}).encode()


def json_schema_of(one: Range) -> dict[str, Any] | None:
    """The JSON Schema of a range's messages: the declared one, or that of its first message. None if that cannot be read."""
    body = codecs.body_spec(one.codec)
    declared = _read_declared((body or one.codec).get("schema"))[1]
    if declared is not None:
        found: dict[str, Any] = json.loads(declared)
        return found
    try:
        for batch in one.scan(["payload"], batch_rows=1):
            for payload in batch.column("payload").to_pylist():
                text = payload if body is None else payload[multipart.pipe_parts(payload)[2] :]
                return foxglove.schema_of(json.loads(text))
    except (PenstockError, ValueError):  # damaged: the export will report that
        pass
    return None


def is_object(body: bytes) -> bool:
    """Whether a JSON text is an object."""
    return body.lstrip(b" \t\r\n").startswith(b"{")


def _read_declared(about: Any) -> tuple[str | None, bytes | None]:
    """The name and the JSON Schema that a codec's description has."""
    if not isinstance(about, dict):
        return None, None
    name, packed = about.get("name"), about.get("json")
    try:
        return name, None if packed is None else packing.unpack(packed)
    except ValueError:  # damaged
        return name, None
