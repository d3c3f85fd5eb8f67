"""The tables of a folder for readers: which there are, and snapshots of them as Arrow."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.channels import checks
from penstock.channels.uri.value import AnyChannel, uri_of
from penstock.columns.parts import table_name
from penstock.errors import Corrupt, Invalid, NotFound
from penstock.tables.delta.files import File
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import STREAMS, owner_of, tables_of

__all__ = ["BUILT_IN", "names", "open_table", "read", "streams", "uris"]

log = logging.getLogger("penstock")

BUILT_IN = ("messages", "losses")
Where = str | os.PathLike[str] | Place


def open_table(out: Where, name: AnyChannel, *, version: int | None = None) -> Table:
    """A snapshot of a table: the newest, or that of a version. `NotFound` if there is no such table or version.

    name: `messages`, `losses`, `streams/NAME`, a table of the user's own, or a stream's channel, for the table of its columns.
    """
    place = Place.of(out)
    if version is not None:
        checks.whole(version, "version")
    name = uri_of(name)
    if not isinstance(name, str):
        raise Invalid(f"{name!r} is no name of a table, such as 'messages' or 'log:imu'")
    where = _existing_folder(place, name) if ":" in name else _check_name(name)
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
    return sorted(found, key=lambda name: (BUILT_IN.index(name) if name in BUILT_IN else len(BUILT_IN), name))


def streams(out: Where) -> dict[str, str]:
    """The streams that have a table: channel → `streams/NAME`."""
    place = Place.of(out)
    owner = owner_of(place)
    inside = [name for name in names(place) if "/" in name]
    named = [(name.removeprefix(f"{STREAMS}/"), _channel_of(place / name, owner)) for name in inside]
    found = tables_of((name, channel) for name, channel in named if channel is not None and ":" in channel)
    return {channel: f"{STREAMS}/{name}" for channel, name in found.items()}


def _channel_of(place: Place, owner: str | None) -> str | None:
    """The channel whose columns a table of a pipeline has. None for another's, and for one that cannot be read: it stops no other."""
    try:
        table = Table.open(place)
    except Corrupt as error:
        log.warning("%s", error)
        return None
    return None if table is None or owner is None or not table.is_by(owner) else table.name


def _check_name(name: str) -> str:
    if not re.fullmatch(r"(streams/)?[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise Invalid(f"there is no table {name!r}: a table is messages, losses, streams/NAME, or a stream's channel")
    return name


def _existing_folder(place: Place, channel: str) -> str:
    usual = f"{STREAMS}/{table_name(channel)}"
    if _channel_of(place / usual, owner_of(place)) == channel:
        return usual
    known = streams(place)  # its folder may have any name
    if channel not in known:
        raise NotFound(
            f"{place} has no table of {channel}; it has those of {', '.join(sorted(known)) or 'no stream'}. "
            "Messages of plain bytes are in the table messages"
        )
    return known[channel]


def files_of(table: Table, stream: str | None = None) -> list[File]:
    """A snapshot's files, or those that may have rows of a stream."""
    return [
        file
        for file in sorted(table.files(), key=lambda file: file.path)
        if stream is None or "stream" not in file.low or file.low["stream"] <= stream <= file.high["stream"]
    ]


def uris(out: Where, name: AnyChannel, *, stream: AnyChannel | None = None, version: int | None = None) -> list[str]:
    """The Parquet files of a table as other readers take them; of one stream, or of all."""
    only = stream_of(stream)
    table = open_table(out, name, version=version)
    return [table.place.location(file.path) for file in files_of(table, only)]


def read(
    out: Where,
    name: AnyChannel,
    *,
    stream: AnyChannel | None = None,
    columns: list[str] | None = None,
    version: int | None = None,
) -> pa.Table:
    """A table as `pyarrow.Table`.

    name: as `open_table` takes it. stream: only this stream's rows. columns: only these. version: an earlier one. Files that VACUUM has
    deleted since, and columns that the table lacks, are `NotFound`.
    """
    only = stream_of(stream)
    opened = open_table(out, name, version=version)
    if columns is not None:
        there = opened.schema.names
        if unknown := sorted(set(checks.texts(columns, "columns", "names")) - set(there)):
            raise NotFound(f"{opened.place} has no columns {', '.join(unknown)}; it has {', '.join(there)}")
        if not columns:
            raise Invalid("columns is empty: name one of them at least, as rows without a column are not counted")
    return read_files(opened, columns, only)


def stream_of(stream: AnyChannel | None) -> str | None:
    """The URI of a stream. `Invalid` for what is no channel."""
    found = None if stream is None else uri_of(stream)
    if not isinstance(found, str | None):
        raise Invalid(f"stream is {stream!r}: it must be a channel, such as 'log:imu'")
    return found


def read_files(opened: Table, columns: Sequence[str] | None = None, stream: str | None = None) -> pa.Table:
    """A snapshot as `pyarrow.Table`; see `read`."""
    schema = opened.schema if columns is None else pa.schema([opened.schema.field(column) for column in columns])
    made = [read_file(opened, file, schema, stream) for file in files_of(opened, stream)]
    return pa.concat_tables(made) if made else schema.empty_table()


def read_file(opened: Table, file: File, schema: pa.Schema, stream: str | None = None) -> pa.Table:
    """A file with the table's columns: those that came later are null."""
    wanted = stream is not None and "stream" in opened.schema.names
    try:
        source = opened.place.fs.open_input_file(opened.place.file(file.path))
    except FileNotFoundError as error:
        raise gone(opened, file) from error
    with source:
        there = set(pq.read_schema(source).names)
        names = {field.name for field in schema if field.name in there} | ({"stream"} if wanted else set())
        found = pq.read_table(source, columns=sorted(names), partitioning=None)
    arrays = [
        found[field.name].cast(field.type) if field.name in there else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    made = pa.Table.from_arrays(arrays, schema=schema)
    # Not by the reader: files that others wrote have views of texts, which it neither compares nor takes.
    return made.filter(pc.equal(found["stream"].cast(pa.string()), stream)) if wanted else made


def check_files(opened: Table, files: Sequence[File]) -> None:
    """`NotFound` if a data file is not there. On an object storage whoever reads it finds that."""
    for file in files if opened.place.is_local else ():
        if not os.path.exists(opened.place.file(file.path)):
            raise gone(opened, file)


def gone(opened: Table, file: File) -> NotFound:
    """The error for a data file that a table's log has and the disk has not."""
    again = Table.open(opened.place)
    if again is not None and again.version > opened.version:
        why = "VACUUM or an erasure has deleted it. Read a newer version"
    else:
        why = (
            "it was deleted, and this is the newest version. Put the file back from a backup, or remove the table's folder: the pipeline "
            "builds it again from the archive"
        )
    return NotFound(f"version {opened.version} of {opened.place} lacks its file {file.path}: {why}")
