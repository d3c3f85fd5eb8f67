"""The keys that a stream of json or msgpack messages has shown, and the kinds of values each had.

Kinds only ever become more, and a column's type follows from them alone: so it does not matter in which order, or in how many
runs, messages are seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

BARE = "bare"  # the label of a message that is not a map: its column is `value`
FLOATS = frozenset({"int", "float"})
WHOLE = frozenset({"int", "long"})
LARGE = frozenset({"int", "long", "large"})
SIMPLE: dict[frozenset[str], pa.DataType] = {
    frozenset({"bool"}): pa.bool_(),
    frozenset({"text"}): pa.string(),
    frozenset({"bytes"}): pa.binary(),
    frozenset({"time"}): pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class Key:
    """One key. label: its kind and text, as keys need not be text; name: its column's; kinds: of the values it had.

    Kinds: bool, text, bytes, time, float, int (a float holds it exactly), long (64 bits do), large (38 digits do), other; and
    `list` with the kinds of the elements as `list:int`.
    """

    label: str
    name: str
    kinds: frozenset[str]

    @property
    def type(self) -> pa.DataType:
        """The narrowest type that holds every value exactly; text where there is none. null: there was none yet."""
        return resolve(self.kinds)


Keys = tuple[Key, ...]


def canonical(kinds: frozenset[str]) -> frozenset[str]:
    """Kinds without those that can no longer matter: a column with floats has the same type with whole numbers that a float holds."""
    return kinds - {kind[:-5] + "int" for kind in kinds if kind.endswith("float")}


def resolve(kinds: frozenset[str]) -> pa.DataType:
    """The type of a column whose values had these kinds."""
    if not kinds:
        return pa.null()
    found = _scalar(kinds)
    if found is not None:
        return found
    if all(kind.startswith("list") for kind in kinds):
        inner = frozenset(kind[5:] for kind in kinds if kind != "list")
        item = _scalar(inner) if inner else pa.float64()
        if item is not None:
            return pa.list_(item)
    return pa.string()


def _scalar(kinds: frozenset[str]) -> pa.DataType | None:
    if kinds in SIMPLE:
        return SIMPLE[kinds]
    if kinds <= WHOLE:
        return pa.int64()
    if kinds <= FLOATS:
        return pa.float64()
    return pa.decimal128(38, 0) if kinds <= LARGE else None


def keys_to_json(keys: Keys) -> list[Any]:
    """Keys as JSON-ready data."""
    return [[key.label, key.name, sorted(key.kinds)] for key in keys]


def keys_from_json(found: list[Any]) -> Keys:
    """Keys from `keys_to_json`."""
    return tuple(Key(label, name, canonical(frozenset(kinds))) for label, name, kinds in found)
