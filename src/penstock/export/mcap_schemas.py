"""How messages of each codec are written in an MCAP file: their encoding, and a schema that other tools read. Knows codecs.

A structured dtype's bytes are those of a ROS 1 message of the same fields: packed, little-endian, arrays of fixed lengths. So they are
copied as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import codecs, protobufs

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
    the codec has one. has_envelope: a recorded message is a body behind a header, and the body is written."""

    message_encoding: str
    schema: tuple[str, bytes] | None = None
    name: str | None = None
    has_envelope: bool = False


def form_of(codec: dict[str, Any], samples: Sequence[bytes]) -> Form | None:
    """How messages of a codec are written; None if they cannot be. samples: some messages."""
    kind = codec["kind"]
    if kind == "frame":
        return None
    if (body := codecs.body_spec(codec)) is not None:
        inner = form_of(body, samples)
        return None if inner is None else replace(inner, has_envelope=True)
    if kind == "json":
        return Form("json", ("jsonschema", json_schema(samples)))
    if kind == "msgpack":
        return Form("msgpack")
    if kind == "protobuf" and (description := protobufs.description(codec)) is not None:
        return Form("protobuf", ("protobuf", description), codec["message"])
    if kind == "struct" and (text := ros_definition(codec["dtype"])) is not None:
        return Form("ros1", ("ros1msg", text.encode()))
    return Form(OPAQUE if kind == "bytes" else f"x-penstock-{kind}")


# ---- structured dtypes as ROS 1 messages ----


def ros_definition(dtype: Any) -> str | None:
    """The definition of a ROS 1 message whose bytes are those of a record; None if there is none, as for big-endian fields."""
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
            if found is None or own in taken:
                return False
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


def json_schema(samples: Sequence[bytes]) -> bytes:
    """A JSON Schema of what some messages have. Later ones may have more, so nothing is required or forbidden."""
    found: dict[str, Any] | None = None
    for sample in samples:
        try:
            one = _of_value(json.loads(sample))
        except (ValueError, RecursionError):
            continue  # it does not decode, for any reader
        found = one if found is None else _joined(found, one)
    return json.dumps({"type": "object"} if found is None else found).encode()


def _of_value(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _of_value(one) for name, one in value.items()}}
    if isinstance(value, list):
        items: dict[str, Any] | None = None
        for one in value:
            items = _of_value(one) if items is None else _joined(items, _of_value(one))
        return {"type": "array", **({"items": items} if items else {})}
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return {"type": name}
    return {"type": "null"}


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The schema of two values together. Without a type it is anything."""
    kinds = {one.get("type"), other.get("type")} - {"null"}
    if kinds == {"integer", "number"}:
        return {"type": "number"}
    if len(kinds) > 1 or None in kinds:
        return {}
    if not kinds:
        return one
    if kinds == {"object"}:
        first, second = one.get("properties", {}), other.get("properties", {})
        both = {name: _joined(first[name], second[name]) for name in first if name in second}
        return {"type": "object", "properties": {**first, **second, **both}}
    if kinds == {"array"}:
        items = [found["items"] for found in (one, other) if "items" in found]
        joined = _joined(*items) if len(items) == 2 else items[0] if items else {}
        return {"type": "array", **({"items": joined} if joined else {})}
    return {"type": kinds.pop()}
