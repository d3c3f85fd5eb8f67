"""Messages to typed Arrow columns, by the stream's codec. Column-wise where the codec has fixed width.

A message that does not fit gets nulls and a `decode_error`; its payload is kept, so nothing is lost and nothing is
silently wrong.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import codecs

RESERVED = (
    "stream",
    "session",
    "position",
    "time",
    "timestamp_ns",
    "recorded_ns",
    "interval_ns",
    "lost",
    "payload",
    "decode_error",
)
SAMPLE = 2000
# Of frames: the publisher's number and exposure, its own fields as JSON, and the pixels where they were recorded.
FRAME = pa.schema(
    [
        ("frame_id", pa.decimal128(20, 0)),
        ("exposure_start_ns", pa.int64()),
        ("exposure_end_ns", pa.int64()),
        ("meta", pa.string()),
        ("pixels", pa.binary()),
    ]
)


def column_name(key: str) -> str:
    """A field's column: its own name, unless that is taken or no column's."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", key) or "_"
    return f"{clean}_" if clean in RESERVED else clean


def typed_schema(codec: dict[str, Any], sample: Iterable[bytes]) -> pa.Schema:
    """The typed columns of a stream. For json and msgpack they come from a sample of its messages."""
    kind = codec["kind"]
    if kind == "struct":
        return pa.schema(_struct_fields(codecs._dtype(codec["dtype"])))
    if kind == "array":
        return pa.schema([pa.field("value", pa.list_(_arrow_type(np.dtype(codec["dtype"]))))])
    if kind == "sync":
        return pa.schema([("sender", pa.string()), ("type", pa.string()), ("body", pa.binary())])
    if kind == "pipe":
        return _pipe_schema(codec["of"], sample)
    if kind == "frame":
        return FRAME if codec.get("pixels") else pa.schema([field for field in FRAME if field.name != "pixels"])
    if kind in ("json", "msgpack"):
        return _sampled_schema(codec, sample)
    return pa.schema([])


def decode(codec: dict[str, Any], schema: pa.Schema, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    """The typed columns for a column of payloads, and a column of error texts (null where all is well)."""
    kind, rows = codec["kind"], len(payload)
    if len(schema) == 0:
        return [], pa.nulls(rows, pa.string())
    if kind in ("struct", "array"):
        return _decode_fixed(codec, schema, payload)
    if kind == "frame":
        return _decode_frames(schema, payload)
    if kind == "sync":
        return _decode_sync(payload)
    if kind == "pipe":
        return _decode_pipe(codec["of"], schema, payload)
    return _decode_objects(codec, schema, payload)


# ---- fixed width ----


def _arrow_type(dtype: np.dtype[Any]) -> pa.DataType:
    if dtype.kind == "S":
        return pa.binary()
    if dtype.kind == "U":
        return pa.string()
    if dtype.kind == "M":
        unit = np.datetime_data(dtype)[0]
        return pa.timestamp(unit if unit in ("s", "ms", "us") else "us")
    if dtype.kind == "m":
        return pa.int64()
    if dtype == np.float16:
        return pa.float32()
    if dtype.kind == "u":  # Parquet readers such as Spark know signed integers only: the next wider one holds the value
        wider: dict[int, pa.DataType] = {1: pa.int16(), 2: pa.int32(), 4: pa.int64()}
        return wider.get(dtype.itemsize, pa.decimal128(20, 0))
    if dtype.kind in "bif":
        return pa.from_numpy_dtype(dtype.newbyteorder("="))
    return pa.binary()


def _struct_fields(dtype: np.dtype[Any], prefix: str = "") -> list[pa.Field]:
    fields = []
    for name in dtype.names or ():
        part = dtype[name]
        if part.names:
            fields += _struct_fields(part, f"{prefix}{name}_")
        elif part.subdtype:
            fields.append(pa.field(column_name(prefix + name), pa.list_(_arrow_type(part.subdtype[0]))))
        else:
            fields.append(pa.field(column_name(prefix + name), _arrow_type(part)))
    return fields


def _leaves(records: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    found: list[np.ndarray[Any, Any]] = []
    for name in records.dtype.names or ():
        column = records[name]
        found += _leaves(column) if column.dtype.names else [column]
    return found


def _to_arrow(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    """One column of a dtype as Arrow; a second dimension becomes a list."""
    if values.ndim > 1:
        flat = values.reshape(len(values), -1)
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(flat.shape[1])
        return pa.ListArray.from_arrays(
            pa.array(offsets), _to_arrow(np.ascontiguousarray(flat).reshape(-1), kind.value_type)
        )
    values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if values.dtype.kind == "m":
        values = values.astype(np.int64)
    if values.dtype.kind == "V":
        return pa.array([v.tobytes() for v in values], pa.binary())
    if values.dtype == np.uint64:
        return pa.array([int(v) for v in values], kind)
    return pa.array(values).cast(kind)


def _decode_frames(schema: pa.Schema, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    header = struct.Struct(codecs.FRAME_NOTE)
    columns: list[list[Any]] = [[] for _ in schema]
    errors: list[str | None] = []
    for value in payload:
        data = memoryview(value.as_buffer())
        row: list[Any] = [None] * len(FRAME)
        error = None
        try:
            _, length, number, start, end = header.unpack_from(data)
            fields = bytes(data[header.size : header.size + length])
            if len(fields) != length:
                raise ValueError(f"its fields should have {length} bytes")
            row = [number, start, end, fields.decode() or None, bytes(data[header.size + length :])]
        except (struct.error, ValueError) as wrong:
            error = f"no frame's note: {wrong}"[:200]
        for column, item in zip(columns, row, strict=False):
            column.append(item)
        errors.append(error)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return arrays, pa.array(errors, pa.string())


def _decode_sync(payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    columns: tuple[list[Any], ...] = ([], [], [])
    errors: list[str | None] = []
    decode_one = codecs.from_spec({"kind": "sync"}).decode
    for value in payload:
        row: list[Any] = [None, None, None]
        error = None
        try:
            found = decode_one(value.as_buffer())
            names = [
                found[key].encode("utf-8", "surrogateescape").decode("utf-8", "replace") for key in ("sender", "type")
            ]
            row = [*names, found["body"]]
        except (struct.error, ValueError) as wrong:
            error = f"no message of a sync queue: {wrong}"[:200]
        for column, item in zip(columns, row, strict=True):
            column.append(item)
        errors.append(error)
    kinds = (pa.string(), pa.string(), pa.binary())
    return [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], pa.array(errors, pa.string())


# ---- pipes: who sent it, in which role, the columns of the channel's codec, and the body itself where that has none ----


def _pipe_schema(codec: dict[str, Any], sample: Iterable[bytes]) -> pa.Schema:
    bodies = []
    for payload in sample:
        try:
            _, _, begin, kind = codecs.pipe_parts(payload)
        except (struct.error, ValueError):
            continue
        if not kind & codecs.PARTS:
            bodies.append(payload[begin:])
    taken = {"sender", "type", "body", "parts"}
    inner = [
        field.with_name(f"{field.name}_") if field.name in taken else field for field in typed_schema(codec, bodies)
    ]
    outer = [("sender", pa.string()), ("type", pa.string()), ("body", pa.binary()), ("parts", pa.list_(pa.binary()))]
    return pa.schema([*(pa.field(*field) for field in outer), *inner])


def _decode_pipe(codec: dict[str, Any], schema: pa.Schema, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    columns: tuple[list[Any], ...] = ([], [], [], [])
    errors: list[str | None] = []
    whole: list[bool] = []
    for value in payload:
        data: bytes = value.as_py()
        row: list[Any] = [None, None, None, None]
        error = None
        try:
            sender, role, begin, kind = codecs.pipe_parts(data)
            names = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in (sender, role)]
            several = bool(kind & codecs.PARTS)
            row = [*names, None if several else data[begin:], codecs.split_parts(data[begin:]) if several else None]
        except (struct.error, ValueError) as wrong:
            error = f"no message of a pipe: {wrong}"[:200]
        for column, item in zip(columns, row, strict=True):
            column.append(item)
        errors.append(error)
        whole.append(row[2] is not None)
    kinds = (pa.string(), pa.string(), pa.binary(), pa.list_(pa.binary()))
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    inner = pa.schema(list(schema)[len(kinds) :])
    if len(inner) == 0:
        return arrays, pa.array(errors, pa.string())
    there = np.array(whole, bool)
    typed, misfits = decode(codec, inner, arrays[2].filter(pa.array(there)))
    known = pa.array(errors, pa.string())
    return [*arrays, *(_scatter(column, there) for column in typed)], pc.coalesce(known, _scatter(misfits, there))


def _payload_bytes(payload: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(all bytes of the column, offsets of each message in them)."""
    _, offsets, data = payload.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return content, starts


def _decode_fixed(codec: dict[str, Any], schema: pa.Schema, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    content, starts = _payload_bytes(payload)
    sizes = np.diff(starts)
    dtype = codecs._dtype(codec["dtype"])
    if codec["kind"] == "array":
        return _decode_arrays(dtype, tuple(codec["shape"]), schema, content, starts, sizes)
    fits = sizes == dtype.itemsize
    if fits.all():
        records = content[starts[0] : starts[-1]].view(dtype) if len(sizes) else np.zeros(0, dtype)
        return [_to_arrow(leaf, field.type) for leaf, field in zip(_leaves(records), schema, strict=True)], pa.nulls(
            len(sizes), pa.string()
        )
    pieces = [content[starts[i] : starts[i + 1]] for i in np.flatnonzero(fits)]
    records = np.concatenate(pieces).view(dtype) if pieces else np.zeros(0, dtype)
    columns = [
        _scatter(_to_arrow(leaf, field.type), fits) for leaf, field in zip(_leaves(records), schema, strict=True)
    ]
    return columns, _errors(fits, [f"{size} bytes, not the {dtype.itemsize} of the dtype" for size in sizes])


def _decode_arrays(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    schema: pa.Schema,
    content: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    sizes: np.ndarray[Any, Any],
) -> tuple[list[pa.Array], pa.Array]:
    fixed = int(np.prod([size for size in shape if size >= 0], dtype=np.int64)) * dtype.itemsize
    fits = (sizes % fixed == 0) if -1 in shape else (sizes == fixed)
    kept = (
        [content[starts[i] : starts[i + 1]] for i in np.flatnonzero(fits)]
        if not fits.all()
        else [content[starts[0] : starts[-1]]]
    )
    flat = np.concatenate(kept).view(dtype) if len(sizes) and kept else np.zeros(0, dtype)
    counts = np.where(fits, sizes // dtype.itemsize, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = _to_arrow(flat, schema.field(0).type.value_type)
    column = pa.ListArray.from_arrays(pa.array(offsets, mask=np.append(~fits, False)), values)
    return [column], _errors(
        fits,
        [f"{size} bytes do not make an array of {dtype} and shape {shape}" for size in sizes] if not fits.all() else [],
    )


def _scatter(values: pa.Array, where: np.ndarray[Any, Any]) -> pa.Array:
    """`values` at the true places, null elsewhere."""
    indices = np.cumsum(where) - 1
    return values.take(pa.array(indices, mask=~where))


def _errors(fits: np.ndarray[Any, Any], texts: list[str]) -> pa.Array:
    if fits.all():
        return pa.nulls(len(fits), pa.string())
    return pa.array([None if fine else text for fine, text in zip(fits, texts, strict=True)], pa.string())


# ---- objects ----


def _sampled_schema(codec: dict[str, Any], sample: Iterable[bytes]) -> pa.Schema:
    decoder = codecs.from_spec(codec).decode
    kinds: dict[str, pa.DataType] = {}
    for payload in sample:
        try:
            value = decoder(payload)
        except ValueError:
            continue
        for key, item in (value if isinstance(value, dict) else {"value": value}).items():
            kinds[str(key)] = _wider(kinds.get(str(key)), _type_of(item))
    return pa.schema(
        [
            pa.field(column_name(key), pa.string() if pa.types.is_null(kind) else kind, metadata={"key": key})
            for key, kind in kinds.items()
        ]
    )


def _type_of(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, bytes):
        return pa.binary()
    if isinstance(value, list | tuple) and all(
        isinstance(item, int | float) and not isinstance(item, bool) for item in value
    ):
        return pa.list_(pa.float64())
    return pa.string()  # text as it is; anything nested as JSON


def _wider(one: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    if one is None or pa.types.is_null(one) or one == other:
        return other if one is None or pa.types.is_null(one) else one
    if pa.types.is_null(other):
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def _fit(value: Any, kind: pa.DataType) -> Any:
    """The value as the column's type; raises if it would be changed by that."""
    if value is None:
        return None
    if kind == pa.string():
        return value if isinstance(value, str) else codecs.from_spec({"kind": "json"}).encode(value).decode()
    found = _type_of(value)
    if found == kind:
        return [float(item) for item in value] if pa.types.is_list(kind) else value
    if kind == pa.float64() and found == pa.int64():
        return float(value)
    raise ValueError(f"{value!r:.40} is not {kind}")


def _decode_objects(codec: dict[str, Any], schema: pa.Schema, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    decoder = codecs.from_spec(codec).decode
    keys = [(field.metadata or {}).get(b"key", field.name.encode()).decode() for field in schema]
    columns: list[list[Any]] = [[] for _ in keys]
    errors: list[str | None] = []
    known = set(keys)
    for data in payload:
        values: list[Any] = [None] * len(keys)
        error = None
        try:
            value = decoder(data.as_buffer())
            row = value if isinstance(value, dict) else {"value": value}
            values = [_fit(row.get(key), field.type) for key, field in zip(keys, schema, strict=True)]
            more = [str(key) for key in row if str(key) not in known]
            error = f"further keys: {', '.join(sorted(more))[:200]}" if more else None
        except ValueError as wrong:
            error = str(wrong)[:200]
        for column, item in zip(columns, values, strict=True):
            column.append(item)
        errors.append(error)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return arrays, pa.array(errors, pa.string())
