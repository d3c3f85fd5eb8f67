"""Losses as rows: positions that recorders missed and that no recording has. Where another recording brings them later, a row with
negative bytes takes them back: so the sum is exact at any time, and no row is ever changed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.columns.parts import Writer
from penstock.record import ReadPlanner, intervals
from penstock.record.format.intervals import Interval
from penstock.tables.delta_files import Added, written
from penstock.tables.schemas import LOSSES, signed
from penstock.tables.state import Key, Row, Stored

MICROSECONDS = 1000


def bring(stored: Stored, survey: ReadPlanner, damage: list[Row], compression: str) -> int:
    """Adds what is new. damage: what reading met, as {channel, epoch, start, end}; it is never taken back. How many rows."""
    now = time.time_ns()
    told = {harm: _by_stream(map(_place, rows)) for harm, rows in _parted(stored.state.told).items()}
    fresh = [(_place(row), now, True) for row in damage]
    fresh += [((gap.channel, gap.epoch, gap.start, gap.end), gap.noted_ns, False) for gap in survey.lost()]
    rows: list[Row] = []
    for (channel, epoch, start, end), noted_ns, harm in fresh:
        key = (channel, epoch)
        known = intervals.union(told[True].get(key, []), told[False].get(key, []))
        parts = intervals.without([(start, end)], known)
        rows += [_row(key, part, noted_ns, now, 1) for part in parts]
        told[harm][key] = intervals.union(told[harm].get(key, []), parts)
    held = survey.held(None)
    for key, parts in told[False].items():
        back = intervals.common(parts, intervals.union(held.get(key, [])))
        rows += [_row(key, part, now, now, -1) for part in back]
        told[False][key] = intervals.without(parts, back)
    if not rows:
        if stored.table is None:
            stored.commit()
        return 0
    stored.state.told = [
        {"channel": key[0], "epoch": key[1], "start": low, "end": high, **({"damage": True} if harm else {})}
        for harm, found in told.items()
        for key, parts in sorted(found.items())
        for low, high in parts
    ]
    stored.commit([_written(stored, rows, compression)])
    return len(rows)


def _parted(rows: list[Row]) -> dict[bool, list[Row]]:
    """Rows by whether they are damage."""
    return {harm: [row for row in rows if bool(row.get("damage")) == harm] for harm in (True, False)}


def _place(row: Row) -> tuple[str, int, int, int]:
    return row["channel"], row["epoch"], row["start"], row["end"]


def _by_stream(rows: Iterable[tuple[str, int, int, int]]) -> dict[Key, list[Interval]]:
    found: dict[Key, list[Interval]] = {}
    for channel, epoch, low, high in rows:
        found.setdefault((channel, epoch), []).append((low, high))
    return {key: intervals.union(parts) for key, parts in found.items()}


def _row(key: Key, part: Interval, noted_ns: int, now: int, sign: int) -> Row:
    return {
        "stream": key[0],
        "epoch": signed(key[1]),
        "position": part[0],
        "end": part[1],
        "bytes": sign * (part[1] - part[0]),
        "time": noted_ns // MICROSECONDS,
        "noted_ns": noted_ns,
        "ingested_at": now // MICROSECONDS,
    }


def _written(stored: Stored, rows: list[Row], compression: str) -> Added:
    columns: list[Any] = [pa.array([row[field.name] for row in rows], field.type) for field in LOSSES]
    stored.place.make()
    writer = Writer(stored.place, f"losses-{secrets.token_hex(12)}", "parquet", compression)
    writer.write(pa.RecordBatch.from_arrays(columns, schema=LOSSES))
    part = writer.close()
    assert part is not None
    return written(stored.place, part.path)


__all__ = ["bring"]
