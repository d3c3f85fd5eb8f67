"""Parquet files of a Delta table: what its log says of one, with statistics."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tables.delta.places import Place

TEXT_MAX = 64  # longer texts have no minimum and maximum in the log
COLUMNS_MAX = 32  # statistics are kept of so many columns


@dataclass(frozen=True)
class Added:
    """A Parquet file that is complete, to be added to a table. path: in the table's folder. stats: as the log has them."""

    path: str
    size: int
    rows: int
    stats: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        """For the answer of a task."""
        return [self.path, self.size, self.rows, self.stats]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> Added:
        """From `to_json`."""
        return cls(*found)


@dataclass(frozen=True)
class File:
    """A Parquet file of a snapshot. low, high: the least and the greatest value of columns, where the log has them."""

    path: str
    size: int
    rows: int
    low: dict[str, Any]
    high: dict[str, Any]


def describe_file(place: Place, path: str) -> Added:
    """A Parquet file as the log describes it: rows, and of each column the least and greatest value and how many are null."""
    with place.fs.open_input_file(place.file(path)) as source:
        return Added(path, source.size(), *_statistics(pq.read_metadata(source)))


def _statistics(about: Any) -> tuple[int, dict[str, Any]]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(min(about.num_columns, COLUMNS_MAX)):
        groups = [about.row_group(group).column(number) for group in range(about.num_row_groups)]
        name = about.schema.column(number).path
        if "." in name or not groups:  # a part of a list or a struct
            continue
        found = [group.statistics for group in groups]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        known = [one for one, group in zip(found, groups, strict=True) if one.null_count < group.num_values]
        if known and all(one.has_min_max for one in known):
            try:
                least, most = (
                    _bound(pick(getattr(one, side) for one in known)) for pick, side in ((min, "min"), (max, "max"))
                )
            except (ArithmeticError, ValueError):  # a value that Python has not: the log lacks only its statistics
                continue
            if least is not None and most is not None:
                low[name], high[name] = least, most
    return about.num_rows, {"numRecords": about.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _bound(value: Any) -> Any:
    """A value as the log's JSON has it. None where a reader could draw a wrong conclusion: NaN is no part of floats' statistics."""
    if isinstance(value, bool | float):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else None
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "Z"
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}{zone}"
    return None


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are one in the log: names of a list's items aside."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return len(one) == len(other) and all(
            a.name == b.name and same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """The types directly inside of a type."""
    return [kind.field(number).type for number in range(kind.num_fields)]


def holds_local_times(kind: pa.DataType) -> bool:
    """Whether a type has times without a zone, anywhere inside."""
    return (pa.types.is_timestamp(kind) and kind.tz is None) or any(map(holds_local_times, _parts(kind)))


def holds_local_times_in_maps(kind: pa.DataType) -> bool:
    """The same inside of a map."""
    return (pa.types.is_map(kind) and holds_local_times(kind)) or any(map(holds_local_times_in_maps, _parts(kind)))
