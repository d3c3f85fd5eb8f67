"""Arrow values as Python objects, also those that Python has no type for: times outside the years 1 to 9999, and intervals.

Knows Arrow; knows no format.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST, LAST = -719162, 2932896  # the years 1 to 9999, in days since 1970
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # a second
SECOND = 1_000_000_000  # an interval has nanoseconds
DAY = 86400 * SECOND
DAYS_MAX = datetime.timedelta.max.days
UTC = "+00:00"


def to_python(array: pa.Array | pa.ChunkedArray, zone: str = UTC) -> list[Any]:
    """The values as `to_pylist` has them. An interval is a `timedelta`, or the text of a duration of ISO 8601 if it has months. A time that
    Python cannot hold is a text: `infinity`, `-infinity`, or ISO 8601, which ends with `zone` if the column has a zone."""
    if not _holds(array.type, pa.types.is_interval):
        try:
            return list(array.to_pylist())
        except (OverflowError, ValueError):  # a time outside Python's years, or one of nanoseconds without pandas
            pass
    return [_value(one, zone) for one in array]


def is_far(times: pa.Array | pa.ChunkedArray) -> bool:
    """Whether dates or timestamps are outside the years 1 to 9999."""
    kind = times.type
    numbers = times.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    day = 1 if pa.types.is_date32(kind) else 86400 * UNITS["ms" if pa.types.is_date64(kind) else kind.unit]
    low, high = pc.min_max(numbers).as_py().values()
    return low is not None and (low < FIRST * day or high >= (LAST + 1) * day)


def time_text(time: Any, zone: str) -> str | None:
    """A scalar of a date or timestamp in ISO 8601, whatever its year. `infinity` and `-infinity` are DuckDB's, the ends of the type."""
    if not time.is_valid:
        return None
    is_date = pa.types.is_date32(time.type)
    end = int(np.iinfo("i4" if is_date else "i8").max)
    if abs(time.value) >= end:
        return "infinity" if time.value > 0 else "-infinity"
    unit: Any = "D" if is_date else "ms" if pa.types.is_date64(time.type) else time.type.unit
    text = str(np.datetime_as_string(np.datetime64(time.value, unit)))
    text = re.sub("^-0*([0-9]+)", lambda year: f"-{year[1]:0>4}", text)  # NumPy writes the year 44 BC as -043
    if pa.types.is_timestamp(time.type):
        return text + (zone if time.type.tz else "")
    return text.partition("T")[0]


def _holds(kind: pa.DataType, is_kind: Any) -> bool:
    """Whether a type is of a kind, or has values of it inside."""
    return is_kind(kind) or any(_holds(kind.field(number).type, is_kind) for number in range(kind.num_fields))


def _value(one: Any, zone: str) -> Any:
    kind = one.type
    if not one.is_valid:
        return None
    if pa.types.is_map(kind):
        return [(_value(pair["key"], zone), _value(pair["value"], zone)) for pair in one.values]
    if pa.types.is_struct(kind):
        return {field.name: _value(one[number], zone) for number, field in enumerate(kind)}
    if pa.types.is_union(kind):
        return _value(one.value, zone)
    if pa.types.is_nested(kind):
        return [_value(item, zone) for item in one.values]
    if pa.types.is_interval(kind):
        return _interval(one.as_py())
    try:
        return one.as_py()
    except (OverflowError, ValueError):
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise
        return time_text(one, zone)


def _interval(value: pa.MonthDayNano) -> Any:
    months, days, nanoseconds = value
    if not months:
        days, nanoseconds = divmod(days * DAY + nanoseconds, DAY)
        if abs(days) < DAYS_MAX:
            return datetime.timedelta(days, microseconds=nanoseconds / 1000)
        return (days * DAY + nanoseconds) / SECOND
    whole, part = divmod(abs(nanoseconds), SECOND)
    seconds = f"{'-' * (nanoseconds < 0)}{whole}{f'.{part:09}'.rstrip('0') if part else ''}"
    return f"P{months}M" + (f"{days}D" if days else "") + (f"T{seconds}S" if nanoseconds else "")
