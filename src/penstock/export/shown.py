"""How a channel's messages are shown in Foxglove: as they are where it reads their encoding, otherwise as JSON. Knows codecs and schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from penstock import codecs
from penstock.export import mcap_schemas
from penstock.export.mcap_schemas import schema_name

VALUES_MAX = 10_000  # of an array that is shown as numbers; a longer one as its bytes
_DATA = {"data": {"type": "string", "contentEncoding": "base64"}}
_SIZE = {"size": {"type": "integer"}}
_DTYPE = {"dtype": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer"}}, "values": {}}
_PROPERTIES = {"bytes": {**_SIZE, **_DATA}, "array": {**_DTYPE, **_SIZE, **_DATA}}


@dataclass(frozen=True)
class Shown:
    """encoding: of the messages. schema: (name, encoding, data). convert: from a message's bytes to the shown bytes; None: they are the same."""

    encoding: str
    schema: tuple[str, str, bytes]
    convert: Callable[[bytes], bytes] | None = None


def display_of(channel: str, spec: dict[str, Any], samples: Sequence[bytes] = ()) -> Shown:
    """How messages of a codec are shown. samples: some of the channel's messages."""
    if spec["kind"] != "frame":
        form = mcap_schemas.form_of(spec, samples)
        assert form is not None
        if form.schema is not None:
            return Shown(form.message_encoding, (form.name or schema_name(channel, form.schema[1]), *form.schema))
    schema = {"type": "object", "properties": _PROPERTIES.get("array" if spec["kind"] == "frame" else spec["kind"], {})}
    codec = codecs.from_spec(spec)

    def convert(body: bytes) -> bytes:
        try:
            return as_json(codec.parse(body))
        except Exception as error:  # the codec's library may raise any error: the viewer sees it
            return msgspec.json.encode({"error": f"this is not {codec.kind}: {error}", **_bytes(body)})

    data = json.dumps(schema).encode()
    return Shown("json", (schema_name(channel, data), "jsonschema", data), convert)


def as_json(value: Any) -> bytes:
    """A decoded message as a JSON object. Bytes become base64, numbers that JSON does not have null."""
    if isinstance(value, bytes):
        value = _bytes(value)
    elif isinstance(value, np.ndarray) and value.dtype.names is None:
        value = _array(value)
    elif isinstance(value, np.void) and value.dtype.names is not None:
        value = _plain(value)
    elif not isinstance(value, dict):
        value = {"value": value}
    return msgspec.json.encode(value, enc_hook=_plain)


def _bytes(body: bytes) -> dict[str, Any]:
    return {"size": len(body), "data": base64.b64encode(body).decode()}


def _array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    about = {"dtype": array.dtype.str, "shape": array.shape}
    return {**about, "values": array} if array.size <= VALUES_MAX else {**about, **_bytes(array.tobytes())}


def _plain(value: Any) -> Any:
    """A value that JSON does not have, as one that JSON has."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.names is None else list(value)
    if isinstance(value, np.void):
        return {name: value[name] for name in value.dtype.names} if value.dtype.names else value.tobytes()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, complex):
        return [value.real, value.imag]
    return str(value)
