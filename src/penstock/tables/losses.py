"""Losses as rows: positions that recorders missed and that no recording has. Where another recording brings them later, a row with
negative bytes takes them back: so the sum is exact at any time, and no row is ever changed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.columns.parts import Writer
from penstock.record import ReadPlanner, intervals
from penstock.record.format.intervals import Interval
from penstock.tables.delta.files import Added, describe_file
from penstock.tables.folder import Folder
from penstock.tables.folder.state import Key, Row, Stored
from penstock.tables.schemas import LOSSES, signed

MICROSECONDS = 1000


def bring(folder: Folder, survey: ReadPlanner, damage: list[Row], compression: str) -> int:
    """Adds what is new. damage: what reading met, as {channel, epoch, start, end}; it is never taken back. How many rows."""
    stored, now = folder.losses, time.time_ns()
    fresh = [{**row, "noted_ns": now, "damage": True} for row in damage]
    fresh += [
        {"channel": gap.channel, "epoch": gap.epoch, "start": gap.start, "end": gap.end, "noted_ns": gap.noted_ns}
        for gap in survey.lost()
    ]
    known = by_stream(stored.state.told)
    rows, told = list[Row](), list[Row]()
    for row in fresh:
        for part in intervals.without([(row["start"], row["end"])], intervals.union(known.get(_key(row), []))):
            known.setdefault(_key(row), []).append(part)
            rows.append(_row(row, part, now, 1))
            told.append({**row, "start": part[0], "end": part[1]})
    held = survey.held(None) if stored.state.told else {}
    for row in stored.state.told:
        there = [] if row.get("damage") else intervals.union(held.get(_key(row), []))
        back = intervals.common([(row["start"], row["end"])], there)
        rows += [_row(row, part, now, -1) for part in back]
        left = intervals.without([(row["start"], row["end"])], back)
        told += [{**row, "start": low, "end": high} for low, high in left]
    if not rows:
        if stored.table is None:
            stored.commit()
        return 0
    stored.state.told = told
    token = folder.begin_batch([stored.folder])
    stored.commit([_write_rows(stored, token, rows, compression)])
    folder.end_batch(token)
    return len(rows)


def told_by_rows(stored: Stored, told: list[Row], *, is_all: bool) -> list[Row]:
    """The losses that a table tells which was set back, by its rows. told: what it told before. is_all: those that it has no more count too."""
    there: list[Row] = []
    back: list[Row] = []
    for file in stored.table.files() if stored.table is not None else ():
        with stored.place.fs.open_input_file(stored.place.file(file.path)) as source:
            columns = ["stream", "epoch", "position", "end", "bytes", "noted_ns"]
            found = pq.read_table(source, columns=columns, partitioning=None)
        for row in found.to_pylist():
            side = there if row["bytes"] > 0 else back
            epoch, noted = row["epoch"] % (1 << 64), row["noted_ns"]
            side.append(
                {
                    "channel": row["stream"],
                    "epoch": epoch,
                    "start": row["position"],
                    "end": row["end"],
                    "noted_ns": noted,
                }
            )
    taken, left = by_stream(back), by_stream(there)
    left = {key: intervals.without(parts, taken.get(key, [])) for key, parts in left.items()}
    kept = list(told) if is_all else _parts_of(told, left)
    known = by_stream(told)
    return kept + _parts_of(there, {key: intervals.without(parts, known.get(key, [])) for key, parts in left.items()})


def _parts_of(rows: list[Row], wanted: Mapping[Key, list[Interval]]) -> list[Row]:
    """The parts of losses at some positions, each once."""
    made: list[Row] = []
    rest = {key: list(parts) for key, parts in wanted.items()}
    for row in rows:
        parts = intervals.common([(row["start"], row["end"])], rest.get(_key(row), []))
        made += [{**row, "start": low, "end": high} for low, high in parts]
        rest[_key(row)] = intervals.without(rest.get(_key(row), []), parts)
    return made


def by_stream(rows: Iterable[Row]) -> dict[Key, list[Interval]]:
    """The positions of losses."""
    found: dict[Key, list[Interval]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append((row["start"], row["end"]))
    return {key: intervals.union(parts) for key, parts in found.items()}


def _key(row: Row) -> Key:
    return row["channel"], row["epoch"]


def _row(row: Row, part: Interval, now: int, sign: int) -> Row:
    return {
        "stream": row["channel"],
        "epoch": signed(row["epoch"]),
        "position": part[0],
        "end": part[1],
        "bytes": sign * (part[1] - part[0]),
        "time": row["noted_ns"] // MICROSECONDS,
        "noted_ns": row["noted_ns"],
        "ingested_at": now // MICROSECONDS,
    }


def _write_rows(stored: Stored, token: str, rows: list[Row], compression: str) -> Added:
    columns: list[Any] = [pa.array([row[field.name] for row in rows], field.type) for field in LOSSES]
    stored.place.make()
    writer = Writer(stored.place, f"losses-{token}-{secrets.token_hex(6)}", "parquet", compression)
    writer.write(pa.RecordBatch.from_arrays(columns, schema=LOSSES))
    part = writer.close()
    assert part is not None
    return describe_file(stored.place, part.path)


__all__ = ["bring", "by_stream", "told_by_rows"]
