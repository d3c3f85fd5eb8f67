"""Messages with more than a body: frames' notes, sync queues' messages, recorded pipes' messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock._native import core as _native
from penstock.codecs import multipart
from penstock.codecs.frames import FrameFormat, Note, dtype_text, plain_header
from penstock.codecs.pixels import JPEG, NAMES, PNG, RAW
from penstock.columns.fixed import Array, payload_bytes

PIECE = 4096  # messages that are opened together
HEADER = np.dtype(",".join({"H": "<u2", "I": "<u4"}[code] for code in _native.SYNC_HEADER[1:]))

SYNC = pa.schema([("sender", pa.string()), ("type", pa.string()), ("body", pa.binary())])
PIPE = pa.schema(
    [("sender", pa.string()), ("type", pa.string()), ("body", pa.binary()), ("parts", pa.list_(pa.binary()))]
)
OUTER = {"pipe": PIPE, "sync": SYNC}
# Of frames: the publisher's number and exposure, its own fields as JSON, and the pixels where they were recorded.
FRAME = pa.schema(
    [
        ("frame_id", pa.decimal128(20, 0)),
        ("exposure_start_ns", pa.int64()),
        ("exposure_end_ns", pa.int64()),
        ("meta", pa.string()),
        ("header", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("dtype", pa.string()),
        ("pixels", pa.binary()),
        ("encoding", pa.string()),
    ]
)


def frame_schema(codec: dict[str, Any]) -> pa.Schema:
    """The columns of a recording of frames, made with pixels, encoded ones, or without."""
    left_out = () if "encoding" in codec else ("encoding",) if codec.get("pixels") else ("pixels", "encoding")
    return pa.schema([field for field in FRAME if field.name not in left_out])


def _header_text(header: Any) -> str | None:
    """A frame's header as JSON; None if it has none."""
    return None if header is None else msgspec.json.encode(plain_header(header), enc_hook=str).decode()


def _arrays(schema: pa.Schema, rows: list[list[Any]]) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def _pixels(form: FrameFormat, data: memoryview, note: Note) -> list[Any]:
    """A frame's pixels, and where a recording has encoded ones, how they are in the column: pictures as PNG and JPEG have them, others raw."""
    if form.encoding is None:
        return [bytes(form.read_pixels(data, note))]
    if note.encoding in (PNG, JPEG):
        return [bytes(form.stored_pixels(data, note)), NAMES[note.encoding]]
    return [bytes(form.read_pixels(data, note)), NAMES[RAW]]


def decode_frames(codec: dict[str, Any], payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    """Each frame's note, and its pixels."""
    schema, form = frame_schema(codec), FrameFormat(codec)
    rows: list[list[Any]] = []
    errors: list[str | None] = []
    for value in payload:
        data = memoryview(value.as_buffer())
        row: list[Any] = [None] * len(schema)
        error = None
        try:
            note = form.read_note(data)
            fields, header = note.rest[form.header_bytes :].decode() or None, _header_text(form.read_header(note.rest))
            shape, dtype = list(note.shape), dtype_text(note.dtype)
            pixels = _pixels(form, data, note) if codec.get("pixels") else []
            row = [note.id, note.start_ns, note.end_ns, fields, header, shape, dtype, *pixels]
        except (struct.error, ValueError) as wrong:
            error = f"no frame's note: {wrong}"[:200]
        rows.append(row)
        errors.append(error)
    return _arrays(schema, rows), pa.array(errors, pa.string())


@dataclass(frozen=True)
class Opened:
    """Messages without their envelopes. whole: where the body is one message. inner: those bodies."""

    arrays: list[pa.Array]
    errors: pa.Array
    whole: Array
    inner: pa.Array


def open_envelopes(kind: str, payload: pa.Array) -> Opened:
    """Each message's sender, its type (of a pipe's, the sender's role), and its body; of a pipe's, parts where it has several."""
    starts = range(0, len(payload), PIECE)
    if len(starts) < 2:
        return _open_together(kind, payload) or _one_by_one(kind, payload)
    pieces = [open_envelopes(kind, payload.slice(at, PIECE)) for at in starts]
    return Opened(
        [pa.concat_arrays(column) for column in zip(*(piece.arrays for piece in pieces), strict=True)],
        pa.concat_arrays([piece.errors for piece in pieces]),
        np.concatenate([piece.whole for piece in pieces]),
        pa.concat_arrays([piece.inner for piece in pieces]),
    )


def _open_together(kind: str, payload: pa.Array) -> Opened | None:
    """Messages whose bodies are one each and whose names are text, without a look at single ones. None if there are others."""
    content, starts = payload_bytes(payload)
    sizes = np.diff(starts)
    if payload.null_count or (sizes < HEADER.itemsize).any():
        return None
    at = starts[:-1].astype(np.int64)
    headers = content[at[:, None] + np.arange(HEADER.itemsize)].view(HEADER)[:, 0]
    ends = np.cumsum([at + HEADER.itemsize, headers["f0"], headers["f1"]], axis=0, dtype=np.int64)
    if (ends[2] > starts[1:]).any() or (kind == "pipe" and (headers["f2"] & multipart.PARTS).any()):
        return None
    try:
        names = [_pieces(content, ends[number], ends[number + 1]).cast(pa.string()) for number in range(2)]
    except pa.ArrowInvalid:  # one is not UTF-8
        return None
    bodies = _pieces(content, ends[2], starts[1:].astype(np.int64))
    more = [pa.nulls(len(payload), field.type) for field in list(OUTER[kind])[3:]]
    none = pa.nulls(len(payload), pa.string())
    return Opened([*names, bodies, *more], none, np.ones(len(payload), bool), bodies)


def _pieces(content: Array, begins: Array, ends: Array) -> pa.Array:
    """The bytes from each beginning to its end, which come one after the other."""
    first, last = (int(begins[0]), int(ends[-1])) if len(begins) else (0, 0)
    inside = np.zeros(last - first + 1, np.int8)
    np.add.at(inside, begins - first, 1)
    np.subtract.at(inside, ends - first, 1)
    kept = content[first:last][np.cumsum(inside[:-1], dtype=np.int8) != 0]
    offsets = np.concatenate([[0], np.cumsum(ends - begins)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(kept.tobytes())])


def _one_by_one(kind: str, payload: pa.Array) -> Opened:
    schema = OUTER[kind]
    rows: list[list[Any]] = []
    errors: list[str | None] = []
    for data in payload.to_pylist():
        row, error = _open(data, kind)
        rows.append(row)
        errors.append(error)
    arrays = _arrays(schema, [row[: len(schema)] for row in rows])
    whole = np.array([row[2] is not None for row in rows], bool)
    inner = pa.array([row[2] for row in rows if row[2] is not None], pa.binary())
    return Opened(arrays, pa.array(errors, pa.string()), whole, inner)


def _open(data: bytes, kind: str) -> tuple[list[Any], str | None]:
    """([sender, type, body, parts], error). A name that is not UTF-8 is null and an error: only the payload has it."""
    try:
        sender, role, begin, number = multipart.pipe_parts(data)
        several = kind == "pipe" and bool(number & multipart.PARTS)
        row: list[Any] = [
            sender,
            role,
            None if several else data[begin:],
            multipart.split_parts(data[begin:]) if several else None,
        ]
    except (struct.error, ValueError) as wrong:
        return [None] * 4, f"no message of a {'sync queue' if kind == 'sync' else kind}: {wrong}"[:200]
    error = None
    for at, name in ((0, "sender"), (1, "type")):
        try:
            row[at].encode()
        except UnicodeEncodeError:
            row[at] = None
            error = f"its {name} is not UTF-8"
    return row, error
