"""The column `_rescued`: what a message has and its columns do not hold, as a JSON object by the place in the message."""

from __future__ import annotations

import base64
import datetime
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

COLUMN = "_rescued"


class Rescued:
    """The values that did not fit, by row and place."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}

    def __call__(self, row: int, path: str, value: Any) -> None:
        """Notes a value."""
        there = self._rows.setdefault(row, {})
        there[_free(path, there)] = value

    def array(self, count: int) -> pa.Array:
        """The column of that many rows."""
        if not self._rows:
            return pa.nulls(count, pa.string())
        return pa.array([as_json(self._rows[row]) if row in self._rows else None for row in range(count)], pa.string())


def _free(key: str, taken: dict[str, Any]) -> str:
    """A key that is not taken: two may have one text, as 1 and "1"."""
    number, found = 1, key
    while found in taken:
        number += 1
        found = f"{key}#{number}"
    return found


def as_json(value: Any) -> str:
    """A value as JSON. Bytes are text in base64; nan and infinities are text; keys are text; a number keeps all its digits."""
    return msgspec.json.encode(_jsonable(value)).decode("utf-8", "replace")


def _jsonable(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value.encode("utf-8", "replace").decode()
    if value is None or kind is bool or kind is int:
        return msgspec.Raw(str(value).encode()) if kind is int else value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is Decimal:
        return msgspec.Raw(str(value).encode()) if value.is_finite() else str(value)
    if kind is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if kind is dict:
        found: dict[str, Any] = {}
        for key, one in value.items():
            found[_free(key if type(key) is str else _key(key), found)] = _jsonable(one)
        return found
    if kind in (list, tuple):
        return [_jsonable(one) for one in value]
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "data": base64.b64encode(bytes(value.data)).decode()}
    return str(value)


def _key(key: Any) -> str:
    found = _jsonable(key)
    return found if type(found) is str else msgspec.json.encode(found).decode()


__all__ = ["COLUMN", "Rescued", "as_json"]
