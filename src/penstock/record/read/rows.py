"""The rows of an export, and of tables: a range of a recording as typed Arrow batches, with the time since the message before, the bytes lost in
front of each, and the columns that the channel's codec decodes.

For the pipeline and for export. Knows recordings and columns; writes nothing and knows no Spark.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.contract import Contract, to_schema
from penstock.columns.contract.decoding import decode
from penstock.errors import NotFound
from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import LeftOut, Scanner, described

# The columns that all streams have; those of a stream's codec follow.
COMMON = pa.schema(
    [
        ("stream", pa.string()),
        ("session", pa.int32()),
        ("position", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("timestamp_ns", pa.int64()),
        ("recorded_ns", pa.int64()),
        ("interval_ns", pa.int64()),
        ("lost", pa.int64()),
        ("bytes", pa.int32()),
        ("payload", pa.binary()),
        ("decode_error", pa.string()),
        ("_rescued", pa.string()),
    ]
)
MESSAGE_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "payload")
RAW_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "flags", "payload")
BATCH_ROWS = 65536
WHOLE = 0xC0  # flags of a frame that is a whole message
FRAME_STEP = 32  # positions are multiples of this: the shortest range that holds one message's beginning


class Read(NamedTuple):
    """The content of a range. holes: starts of messages that are not complete yet. damage: its damaged parts, which are left out."""

    frames: list[pa.RecordBatch]
    messages: list[pa.RecordBatch]
    holes: list[int]
    damage: list[LeftOut]

    def damaged(self, channel: str) -> list[str]:
        """A line for each piece of damage."""
        return [f"{channel}: {described(one)}" for one in self.damage]


def read(planned: Range, raw: bool) -> Read:
    """One scan, unless messages are in fragments."""
    frames: list[pa.RecordBatch] = []
    if raw:
        scanner = planned.scan(RAW_COLUMNS, frames=True, batch_rows=BATCH_ROWS)
        frames = list(scanner)
        if all(bool(((batch.column("flags").to_numpy() & WHOLE) == WHOLE).all()) for batch in frames):
            return Read(frames, frames, [], _unplanned(scanner))
    scanner = planned.scan(MESSAGE_COLUMNS, batch_rows=BATCH_ROWS)
    messages = list(scanner)
    return Read(frames, messages, holes(scanner, planned), _unplanned(scanner))


def _unplanned(scanner: Scanner) -> list[LeftOut]:
    """Damage that planning did not know."""
    return [one for one in scanner.left_out if not one.in_index]


def holes(scanner: Scanner, planned: Range) -> list[int]:
    """Starts of messages that are not complete yet: later runs read them again, even if the recording ends. `NotFound` if the recording
    was cut back since the range was planned."""
    found: list[int] = []
    while scanner.resume < planned.end:
        if found and scanner.resume <= found[-1]:  # it ends before: no scan gets further
            raise NotFound(
                f"recording {planned.recording} of {planned.channel} was cut back to position {scanner.resume} while it was read"
            )
        found.append(scanner.resume)
        scanner = planned.scan(["position"], start=found[-1] + FRAME_STEP)
        for _ in scanner:
            pass
    return found


class Ordered:
    """The messages of a range in the order of their positions: a scan returns a message in fragments after others that began
    after it. Computes the time since the previous message of each, and the row that reports each loss."""

    def __init__(self, batches: list[pa.RecordBatch], planned: Range, damage: list[LeftOut]) -> None:
        empty = np.zeros(0, np.int64)
        positions = np.concatenate([empty, *(batch.column("position").to_numpy() for batch in batches)])
        self._times = np.concatenate([empty, *(batch.column("timestamp_ns").to_numpy() for batch in batches)])
        order = np.argsort(positions, kind="stable")
        positions, times = positions[order], self._times[order]
        before = planned.time_before() if len(times) else None
        self._intervals = np.zeros(len(times), np.int64)
        earlier = np.concatenate([times[:1] if before is None else [before], times[:-1]]) if len(times) else times
        apart = times - earlier
        self._intervals[order] = apart
        self._alone = np.zeros(len(times), bool)  # there was no message before it, or a loss, or it is centuries away
        self._alone[order] = (apart < 0) != (times < earlier)
        if len(times) and before is None:
            self._alone[order[0]] = True
        self._lost = np.zeros(len(times), np.int64)
        self.reported: list[tuple[int, int, int]] = []  # (start, end, position of the row that reports it)
        for end, missing in planned.lost:
            at = int(np.searchsorted(positions, end))
            if at < len(positions):
                self._lost[order[at]] += missing
                self.reported.append((end - missing, end, int(positions[at])))
        for one in damage:
            at = int(np.searchsorted(positions, one.end))
            if at < len(positions):
                self._lost[order[at]] += one.end - one.start
                self._alone[order[at]] = True
        self.last = [int(positions[-1]), int(times[-1])] if len(times) else None

    def times(self) -> dict[str, int]:
        """The first and the last send time."""
        return {"time_min": int(self._times.min()), "time_max": int(self._times.max())}

    def enrich(
        self, batch: pa.RecordBatch, at: int, codec: dict[str, Any], contract: Contract
    ) -> tuple[pa.RecordBatch, Contract]:
        """The batch that begins with row `at`, with all columns of an export; the contract, with columns for keys that it lacked."""
        rows = slice(at, at + batch.num_rows)
        made = {
            "interval_ns": pa.array(self._intervals[rows], pa.int64(), mask=self._alone[rows]),
            "lost": pa.array(self._lost[rows], pa.int64()),
            "bytes": pc.binary_length(batch.column("payload")),
        }
        found = decode(codec, contract, batch.column("payload"))
        made |= {"decode_error": found.errors, "_rescued": found.rescued}
        if codec.get("pixels"):  # they have their own column
            made["payload"] = pc.if_else(
                pc.is_null(found.errors), pa.scalar(None, pa.binary()), batch.column("payload")
            )
        made |= dict(zip((column.name for column in found.contract), found.arrays, strict=True))
        wanted = pa.schema([*COMMON, *to_schema(found.contract)])
        arrays = [made[field.name] if field.name in made else batch.column(field.name) for field in wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted), found.contract
