"""The tables of a folder: which there are, snapshots of them for any reader, and the lock of the one run that writes them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.columns.parts import table_name
from penstock.errors import Busy, Corrupt, Invalid, NotFound, SystemFailure
from penstock.tables.delta import Table
from penstock.tables.delta_files import File
from penstock.tables.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NAMES", "Place", "locked", "names", "open_table", "read", "streams", "table", "uris"]

log = logging.getLogger("penstock")

RECORDED = ("raw", "messages", "streams")
NAMES = (*RECORDED, "stats")
STREAMS = "streams"
LOCK = ".lock"
Where = str | os.PathLike[str] | Place


@contextlib.contextmanager
def locked(out: Where) -> Iterator[None]:
    """One pipeline at a time per folder. The kernel releases the lock when the process ends. `Invalid` for a folder of something else.

    An object storage has no locks. There, each commit fails with `Busy` if another pipeline's came between.
    """
    place = Place.of(out)
    try:
        place.make()
        there = [str(info.base_name) for info in place.list()]
        others = [name for name in there if not name.startswith(".")]
        if others and LOCK not in there:
            raise Invalid(f"{place} holds other files ({', '.join(others[:3])}): name an empty folder for the tables")
        if not place.is_local:
            place.write(LOCK, b"the tables of penstock pipeline\n")
            yield
            return
        fd = os.open(place.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:  # a SystemFailure too: what file systems say is longer than what happened
        why = os.strerror(error.errno) if error.errno else error.strerror
        raise SystemFailure(error.errno or 0, f"{out} cannot hold tables: {why}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"another pipeline is writing to {place}") from error
        yield
    finally:
        os.close(fd)


def open_table(out: Where, name: str, *, version: int | None = None) -> Table:
    """A snapshot of a table: the newest, or that of a version. `NotFound` if there is no such table.

    name: `raw`, `messages`, `stats`, `streams/NAME`, a table of the user's own, or a stream's channel, for the table of its decoded
    columns.
    """
    place = Place.of(out)
    where = _existing_folder(place, name) if ":" in name else _checked(name)
    found = Table.open(place / where, version)
    if found is None:
        there = names(place)
        raise NotFound(
            f"{place} has no table {name}: it has {', '.join(there)}"
            if there
            else f"{place} holds no tables: run penstock pipeline ARCHIVE --out {place}"
        )
    return found


def names(out: Where) -> list[str]:
    """The tables of a folder."""
    place = Place.of(out)
    found = []
    for folder in ("", STREAMS):
        inside = place / folder if folder else place
        there = [info.base_name for info in inside.list() if (inside / info.base_name / "_delta_log").list()]
        found += [f"{folder}/{name}".lstrip("/") for name in there]
    return sorted(found, key=lambda name: (NAMES.index(name) if name in NAMES else len(NAMES), name))


def streams(out: Where) -> dict[str, str]:
    """The tables of decoded columns: a stream's channel → `streams/NAME`."""
    place = Place.of(out)
    found = {}
    for name in names(place):
        if name.startswith(f"{STREAMS}/"):
            channel = _channel_of(place / name)
            if channel:
                found[channel] = name
    return found


def _channel_of(place: Place) -> str | None:
    """The channel whose decoded columns a table has. None for a table that cannot be read: it stops no other."""
    try:
        table = Table.open(place)
    except Corrupt as error:
        log.warning("%s", error)
        return None
    return None if table is None else table.name


def stream_folder(channel: str) -> str:
    """The folder of a stream's table."""
    return f"{STREAMS}/{table_name(channel)}"


def _checked(name: str) -> str:
    if not re.fullmatch(r"(streams/)?[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise Invalid(
            f"there is no table {name!r}: a table is raw, messages, stats, streams/NAME, or a stream's channel"
        )
    return name


def _existing_folder(place: Place, channel: str) -> str:
    folder = stream_folder(channel)
    if _channel_of(place / folder) != channel:
        raise NotFound(
            f"{place} has no decoded columns of {channel}; it has those of "
            f"{', '.join(sorted(streams(place))) or 'no stream'}. Messages of plain bytes are in the table messages"
        )
    return folder


def _files(table: Table, stream: str | None) -> list[File]:
    """A snapshot's files, or those that may have rows of a stream."""
    return [
        file
        for file in sorted(table.files(), key=lambda file: file.path)
        if stream is None or "stream" not in file.low or file.low["stream"] <= stream <= file.high["stream"]
    ]


def uris(out: Where, name: str, *, stream: str | None = None, version: int | None = None) -> list[str]:
    """The Parquet files of a table as other readers take them; of one stream, or of all."""
    table = open_table(out, name, version=version)
    return [table.place.location(file.path) for file in _files(table, stream)]


def read(
    out: Where,
    name: str,
    *,
    stream: str | None = None,
    columns: list[str] | None = None,
    version: int | None = None,
) -> pa.Table:
    """A table as `pyarrow.Table`, without Spark; see `table`."""
    return read_files(open_table(out, name, version=version), columns, stream)


def read_files(opened: Table, columns: Sequence[str] | None = None, stream: str | None = None) -> pa.Table:
    """A snapshot as `pyarrow.Table`; see `read`."""
    schema = opened.schema if columns is None else pa.schema([opened.schema.field(column) for column in columns])
    made = [_read_file(opened, file, schema, stream) for file in _files(opened, stream)]
    return pa.concat_tables(made) if made else schema.empty_table()


def _read_file(opened: Table, file: File, schema: pa.Schema, stream: str | None) -> pa.Table:
    """A file with the table's columns: those that came later are null."""
    wanted = None if stream is None or "stream" not in opened.schema.names else [("stream", "=", stream)]
    with opened.place.fs.open_input_file(opened.place.file(file.path)) as source:
        there = set(pq.read_schema(source).names)
        found = pq.read_table(
            source,
            columns=[field.name for field in schema if field.name in there],
            filters=wanted,
            partitioning=None,
        )
    arrays = [
        found[field.name].cast(field.type) if field.name in there else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def table(
    spark: SparkSession, out: Where, name: str, *, stream: str | None = None, version: int | None = None
) -> DataFrame:
    """A table's snapshot as a DataFrame. Spark needs no Delta package for it.

    name: as `open_table` takes it: a stream's channel for its decoded columns. stream: only this stream's rows. The DataFrame stays as
    it is when the pipeline goes on; call this again for newer rows.
    """
    opened = open_table(out, name, version=version)
    made = frame(spark, opened, _files(opened, stream))
    if stream is not None and "stream" in opened.schema.names:
        from pyspark.sql import functions

        made = made.where(functions.col("stream") == stream)
    return made


def frame(spark: SparkSession, opened: Table, files: Sequence[File], columns: Sequence[str] | None = None) -> DataFrame:
    """Some files of a snapshot as a DataFrame, with all of its columns or some."""
    fields = [field for field in opened.schema if columns is None or field.name in columns]
    ddl = ", ".join(f"`{field.name.replace('`', '``')}` {spark_type(field.type)}" for field in fields)
    if not files:
        from pyspark.sql.functions import lit
        from pyspark.sql.types import StructType

        # Not createDataFrame: that makes this session the active one for good.
        return spark.range(0).select(*(lit(None).cast(one.dataType).alias(one.name) for one in StructType.fromDDL(ddl)))
    if not opened.place.is_local:
        from penstock.spark.parquet_source import ParquetSource

        spark.dataSource.register(ParquetSource)
        listed = json.dumps([[file.path, file.size] for file in files])
        reader = spark.read.format(ParquetSource.name()).schema(ddl)
        return reader.options(place=str(opened.place), files=listed).load()
    # Spark takes paths for patterns.
    paths = [re.sub(r"([\\\[\]{}*?])", r"\\\1", opened.place.location(file.path)) for file in files]
    return spark.read.schema(ddl).parquet(*paths)


def spark_type(kind: pa.DataType) -> str:
    """A type as Spark's SQL writes it."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {spark_type(field.type)}' for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    known: dict[str, Any] = {
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "bool": "boolean",
        "date32[day]": "date",
    }
    return str(known.get(str(kind), kind))
