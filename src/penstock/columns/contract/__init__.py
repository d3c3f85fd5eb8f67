"""The contract of a stream: the columns of its table, and payloads as those columns.

A column's type never changes. It is declared (by a dtype, a class, protobuf, or the user), or it follows from the first messages. A value
that does not fit is in the column `_rescued`, and a message that cannot be decoded has an error: the row is there. These are the rules of
Databricks' Auto Loader. Knows codecs and Arrow; knows no recording, no file and no Spark.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.columns.contract import types
from penstock.columns.names import RESERVED, folded, free
from penstock.errors import Invalid

COLUMNS_MAX = 1000
KEY = b"key"
FOREIGN = "foreign"  # the label of a column that another tool added begins with it


@dataclass(frozen=True)
class Column:
    """A column. label: where a message has its value: `s:px` is the key px."""

    label: str
    name: str
    type: pa.DataType


Contract = tuple[Column, ...]


def text_label(key: str) -> str:
    """The label of a key that is text."""
    return f"s:{key}"


def add(contract: Contract, more: Iterable[tuple[str, str, pa.DataType]], taken: Iterable[str] = ()) -> Contract:
    """A contract with more columns, each (label, key as text, type). Labels that it has already are left out, and so are those above
    `COLUMNS_MAX`. taken: names of columns in front of these."""
    known = {column.label for column in contract}
    used = {*RESERVED, *map(folded, taken), *(folded(column.name) for column in contract)}
    found = list(contract)
    for label, key, kind in more:
        if label not in known and len(found) < COLUMNS_MAX:
            known.add(label)
            found.append(Column(label, free(key, used), kind))
    return tuple(found)


def merged(contract: Contract, more: Contract) -> Contract:
    """A contract with the columns of another one that it lacks."""
    return add(contract, ((column.label, key_text(column.label), column.type) for column in more))


def declare(contract: Contract, wanted: Mapping[str, pa.DataType], where: str) -> Contract:
    """A contract with a user's columns, by key. `Invalid` if it has another type, or no place, for one of them. where: the stream, for the error."""
    for column in contract:
        kind = wanted.get(column.label[2:]) if column.label.startswith("s:") else None
        if kind is not None and kind != column.type:
            raise Invalid(
                f"{where} has the column {column.name} as {types.ddl(column.type)}, and the schema says {types.ddl(kind)}: a column's type "
                "never changes. Leave it out, or build the stream's table anew with --rebuild"
            )
    found = add(contract, ((text_label(key), key, kind) for key, kind in wanted.items()))
    known = {column.label for column in found}
    if left := [key for key in wanted if text_label(key) not in known]:
        raise Invalid(
            f"{where} has {COLUMNS_MAX:,} columns, which is the most: the schema's column {left[0]} has no place"
        )
    return found


def to_schema(contract: Contract, about: str = "") -> pa.Schema:
    """The columns as Arrow's. Each field's metadata has the label, and a comment for people. about: the codec."""
    return pa.schema(
        [
            pa.field(
                column.name,
                column.type,
                metadata={
                    "key": column.label,
                    "comment": f"{shown(column.label)} of {about}" if about else shown(column.label),
                },
            )
            for column in contract
        ]
    )


def from_schema(schema: pa.Schema) -> Contract:
    """The contract in a table's columns: those that have a label, and those that others added, of which no message has a value."""
    found = []
    for field in schema:
        if field.metadata and KEY in field.metadata:
            found.append(Column(field.metadata[KEY].decode(), field.name, field.type))
        elif folded(field.name) not in RESERVED:
            found.append(Column(f"{FOREIGN}:{field.name}", field.name, field.type))
    return tuple(found)


def pack(contract: Contract) -> str:
    """A contract for a task's argument, as text."""
    return base64.b64encode(to_schema(contract).serialize()).decode()


def unpack(text: str) -> Contract:
    """From `pack`."""
    return from_schema(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))


def key_text(label: str) -> str:
    """The text of a label's key, after which its column is named. Bytes are text if they are ASCII."""
    if ":" not in label:
        return "value"
    form, _, text = label.partition(":")
    if form == "x":
        raw = bytes.fromhex(text)
        return raw.decode() if raw.isascii() and raw else text
    return text


def shown(label: str) -> str:
    """A label for people."""
    return f"key {key_text(label)}" if ":" in label else "the message"
