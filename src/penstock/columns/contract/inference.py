"""The type of a column that is not declared, by the first values that it has. Later values must fit it; see `building`."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.columns.contract.messages import Instant
from penstock.columns.contract.types import UTC
from penstock.columns.names import clean, folded

FIELDS_MAX = 100  # an object with more keys is a map
DEPTH = 12  # values that are nested deeper have no column
LARGE = pa.decimal128(38, 0)
KINDS: dict[type, str] = {
    bool: "bool",
    int: "number",
    float: "number",
    Decimal: "number",
    str: "text",
    bytes: "bytes",
    datetime.datetime: "time",
    Instant: "time",
    list: "list",
    dict: "object",
}
SIMPLE = {"bool": pa.bool_(), "text": pa.string(), "bytes": pa.binary(), "time": UTC}


def infer(values: Iterable[Any], depth: int = 0) -> pa.DataType | None:
    """The type that most of these values have; None where they say nothing: all are null or empty, or nested too deep.

    Whole numbers and fractions are numbers of one sort: a double, if there is a fraction.
    """
    groups: dict[str, list[Any]] = {}
    for value in values:
        kind = KINDS.get(type(value))
        if kind is not None:
            groups.setdefault(kind, []).append(value)
    if not groups or depth > DEPTH:
        return None
    kind, found = max(groups.items(), key=lambda group: len(group[1]))  # the first of those that are equally frequent
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind == "number":
        return _number(found)
    if kind == "list":
        inside = infer(itertools.chain.from_iterable(found), depth + 1)
        return None if inside is None else pa.list_(inside)
    return _object(found, depth)


def _number(values: list[Any]) -> pa.DataType:
    if any(type(value) is not int for value in values):
        return pa.float64()
    return pa.int64() if min(values) >= -(1 << 63) and max(values) < 1 << 63 else LARGE


def _object(values: list[dict[Any, Any]], depth: int) -> pa.DataType | None:
    keys = dict.fromkeys(itertools.chain.from_iterable(values))
    if not _are_fields(keys):
        key = infer(keys, depth + 1)
        inside = infer(itertools.chain.from_iterable(value.values() for value in values), depth + 1)
        return None if inside is None or key is None or pa.types.is_nested(key) else pa.map_(key, inside)
    kinds = {key: infer((value.get(key) for value in values), depth + 1) for key in keys}
    fields = [pa.field(key, kind) for key, kind in kinds.items() if kind is not None]
    return pa.struct(fields) if fields else None


def _are_fields(keys: dict[Any, None]) -> bool:
    """Whether keys are names of a struct's fields: text that tables take for a name as it is, and no two alike."""
    if len(keys) > FIELDS_MAX or not all(type(key) is str and clean(key) == key for key in keys):
        return False
    return len({folded(key) for key in keys}) == len(keys)
