"""The columns that tables have of themselves; a stream's table has the columns of its contract behind them."""

from __future__ import annotations

import pyarrow as pa

from penstock.columns.contract import Contract, to_schema
from penstock.columns.contract.types import UTC

# (stream, epoch, position) is the key of every table.
KEY = [("stream", pa.string()), ("epoch", pa.int64()), ("position", pa.int64())]
SOURCE = [
    ("recording", pa.int64()),
    ("session", pa.int32()),
    ("time", UTC),
    ("timestamp_ns", pa.int64()),
    ("recorded_ns", pa.int64()),
    ("ingested_at", UTC),
]
COMMENTS = {
    "stream": "the channel; with epoch and position the key",
    "epoch": "of the channel's positions: with stream and position the key",
    "position": "in the stream, in bytes: with stream and epoch the key",
    "recording": "the archive's recording that the message was read from",
    "session": "of the publication",
    "time": "when it was sent, in microseconds",
    "timestamp_ns": "when it was sent, in nanoseconds since 1970",
    "recorded_ns": "when the recorder took it, in nanoseconds since 1970",
    "ingested_at": "when this row was written",
    "bytes": "of the message; of a loss: negative if another recording brought them later",
    "decode_error": "why the message could not be decoded",
    "_rescued": "JSON of what the message has and the columns do not hold, by key",
}


def _schema(columns: list[tuple[str, pa.DataType]]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, kind, metadata={"comment": COMMENTS[name]} if name in COMMENTS else None)
            for name, kind in columns
        ]
    )


MESSAGES = _schema([*KEY, *SOURCE, ("bytes", pa.int32()), ("payload", pa.binary()), ("decode_error", pa.string())])
STREAM = _schema([*KEY, *SOURCE, ("decode_error", pa.string()), ("_rescued", pa.string())])
# Bytes that no recording has, [position, end). Where another recording brings some of them later, a row takes them back.
LOSSES = _schema(
    [*KEY, ("end", pa.int64()), ("bytes", pa.int64()), ("time", UTC), ("noted_ns", pa.int64()), ("ingested_at", UTC)]
)


def of_stream(contract: Contract, about: str) -> pa.Schema:
    """All columns of a stream's table. about: its codec, for the comments."""
    return pa.schema([*STREAM, *to_schema(contract, about)])


def recording_key(epoch: int, recording: int) -> str:
    """A recording among those of several archives: each counts its own from 1."""
    return f"{signed(epoch)}/{recording}"


def signed(number: int) -> int:
    """An epoch as a 64-bit number with a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number
