"""Writes a DataFrame as Parquet files that no table has yet: a private data sink. Each task writes files of its own with Arrow, and the
driver gets their list. Knows no table's log and commits nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.columns.parts import Writer
from penstock.errors import Invalid
from penstock.spark.runtime.workers import in_a_line
from penstock.tables.delta.files import Added, describe_file
from penstock.tables.delta.places import Place
from penstock.tables.delta.transactions import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_BYTES = 256 << 20  # of Arrow data in one file


def save(frame: DataFrame, place: Place, stem: str, compression: str) -> tuple[list[Added], pa.Schema]:
    """Runs a query; its rows are in these files then, with this schema. Files of attempts that failed are in none of the lists.
    Raises Spark's errors as they are.

    The session's time zone must be UTC, and it must know `FileSink`. stem: the files' names begin with it. `Invalid` for a column of a type that tables do not have.
    """
    names = [name.lower() for name in frame.columns]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise Invalid(f"there are two columns {frame.columns[at]}: give one of them another name with AS")
    frame = frame.select(*(_storable(field.name, field.dataType) for field in frame.schema.fields))
    schema, token = _schema(frame), secrets.token_hex(8)
    options = {"place": str(place), "stem": stem, "compression": compression, "token": token}
    place.make()
    frame.write.format(FileSink.name()).options(**options).mode("append").save()
    inside = place / STATE
    found = json.loads(inside.read(_answer(token)))
    inside.delete(_answer(token))
    return [Added.from_json(one) for one in found], schema


def _answer(token: str) -> str:
    return f"answer-{token}.json"


def _storable(name: str, kind: Any) -> Any:
    """A column as a table can have it."""
    from pyspark.sql import functions, types

    column = functions.col("`" + name.replace("`", "``") + "`")
    if isinstance(kind, types.NullType):
        return column.cast("string").alias(name)
    if isinstance(kind, types.CharType | types.VarcharType):
        return column.cast("string").alias(name)
    if _odd(kind):
        raise Invalid(
            f"the column {name} is of type {kind.simpleString()}, which tables do not have: cast it to another"
        )
    return column


def _odd(kind: Any) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return _odd(kind.elementType)
    if isinstance(kind, types.MapType):
        return _odd(kind.keyType) or _odd(kind.valueType)
    if isinstance(kind, types.StructType):
        return any(_odd(field.dataType) for field in kind.fields)
    plain = (types.NumericType, types.StringType, types.BinaryType, types.BooleanType, types.DateType)
    return not isinstance(kind, (*plain, types.TimestampType, types.TimestampNTZType))


def _schema(frame: DataFrame) -> pa.Schema:
    """A DataFrame's columns, each of which may be null."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([pa.field(field.name, field.type) for field in to_arrow_schema(frame.schema, timezone="UTC")])


class FileSink(DataSource):
    """Options: place, stem, compression, token (of the list of files)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock_files"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of batches."""
        return FileWriter(dict(self.options))


@dataclass
class Files(WriterCommitMessage):
    """The files of one task."""

    files: list[Any]


class FileWriter(DataSourceArrowWriter):
    """Tasks write; the driver keeps the list."""

    def __init__(self, options: dict[str, str]) -> None:
        self.place, self.stem = options["place"], options["stem"]
        self.compression, self.token = options["compression"], options["token"]

    @in_a_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Files:
        """Files of one partition, each with a name that no other attempt has."""
        place, files = Place.of(self.place), list[Any]()
        writer: Writer | None = None
        size = 0
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                if writer is None:
                    writer, size = Writer(place, f"{self.stem}-{secrets.token_hex(8)}", "parquet", self.compression), 0
                writer.write(batch)
                size += batch.nbytes
                if size >= FILE_BYTES:
                    files.append(_closed(writer, place))
                    writer = None
            if writer is not None:
                files.append(_closed(writer, place))
        except BaseException:
            if writer is not None:
                writer.discard()
            for file in files:
                place.delete(file[0])
            raise
        return Files(files)

    @in_a_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        found = [file for message in messages if isinstance(message, Files) for file in message.files]
        (Place.of(self.place) / STATE).write(_answer(self.token), json.dumps(found).encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Files of tasks that were done are deleted."""
        place = Place.of(self.place)
        for message in messages:
            for file in message.files if isinstance(message, Files) else ():
                place.delete(file[0])


def _closed(writer: Writer, place: Place) -> list[Any]:
    part = writer.close()
    assert part is not None
    return describe_file(place, part.path).to_json()
