"""Writes rows of a training set as Parquet files, a group of rows at a time, and images as PNG files.

Knows decoded columns and files; chooses no partner. Memory holds one group.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock import codecs
from penstock.codecs.frames import FrameFormat, unencoded
from penstock.codecs.pixels import JPEG, LEVELS, PNG, Encoding, encode, holds
from penstock.columns.contract import key_text
from penstock.columns.contract.decoding import decode
from penstock.columns.names import clean, folded
from penstock.errors import Invalid
from penstock.export.datasets.aligning import Row
from penstock.export.datasets.streams import Stream, payloads
from penstock.record import Merged
from penstock.util.extras import check_installed

GROUP_ROWS, GROUP_BYTES = 256, 4 << 20  # of a group: whoever reads a row reads its group
FILE_BYTES = 256 << 20  # of payloads, about
OWN = pa.schema(
    [("index", pa.int64()), ("episode_index", pa.int64()), ("frame_index", pa.int64()), ("timestamp", pa.float64())]
)
PIXELS, RAW = "o:pixels", "raw"
LOSSLESS = Encoding(PNG, LEVELS["png"][0])
SUFFIXES = {PNG: "png", JPEG: "jpg"}  # of pictures that are files as they were recorded


@dataclass
class Leaf:
    """A value of a stream's messages. label: of its column in the contract. name: in the struct; "" if it is the stream's only value, without a name.

    dtype, shape: of the array, where the codec says it. varies: each row says them beside it. nulls: rows without it.
    """

    label: str
    name: str
    type: pa.DataType
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    varies: bool = False
    nulls: int = 0


@dataclass
class Column:
    """The columns of a stream."""

    stream: Stream
    leaves: list[Leaf]
    images: Path | None = None  # the folder of its PNG files
    last: tuple[int, int] = (-1, -1)  # recording and position of the message that was decoded last

    @property
    def type(self) -> pa.DataType:
        """A struct of the leaves, or the only one's type."""
        if self.leaves[0].name == "":
            return self.leaves[0].type
        return pa.struct([(leaf.name, leaf.type) for leaf in self.leaves])

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns: where the message is from, and the message."""
        name = self.stream.name
        return [
            (f"{name}_recording", pa.int64()),
            (f"{name}_position", pa.int64()),
            (f"{name}_time", pa.int64()),
            (f"{name}_lost", pa.bool_()),
            (name, self.type),
        ]


@dataclass(frozen=True, slots=True)
class Image:
    """An image's file. path: within the training set."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class File:
    """A file with rows. path: within the training set."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass
class Span:
    """The rows of an episode that were written. index: of the episode, among those with rows."""

    index: int
    first: int
    rows: int
    begins_ns: int
    ends_ns: int


class RowWriter:
    """Writes rows into a folder. drop: leave out rows in which a stream has no message, or one that does not decode."""

    def __init__(self, folder: Path, columns: Sequence[Column], *, drop: bool) -> None:
        self._folder, self.columns, self._drop = folder, columns, drop
        self._schema = pa.schema([*OWN, *(one for column in columns for one in column.fields())])
        self._rows: list[Row] = []
        self._bytes = self._file_bytes = 0
        self._codecs: list[Any] = [None] * len(columns)
        self._writer: pq.ParquetWriter | None = None
        self._path = folder
        self._file_rows = 0
        self.files: list[File] = []
        self.images: list[Image] = []
        self.rows = self.dropped = 0
        self.spans: dict[int, Span] = {}
        (folder / "data").mkdir()

    def add(self, row: Row) -> None:
        """Adds a row. It is written with its group."""
        for at, found in enumerate(row.found):
            if found is not None and found.source.codec is not self._codecs[at]:
                if self._rows and self._codecs[at] is not None:
                    self._flush()
                self._codecs[at] = found.source.codec
        previous = self._rows[-1].found if self._rows else ()
        self._bytes += sum(
            len(one.payload)
            for at, one in enumerate(row.found)
            if one is not None and not (previous and one is previous[at])
        )
        self._rows.append(row)
        if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes the rest. There is a file even without rows."""
        self._flush()
        if self._writer is None and not self.files:
            self._begin()
        self._end()

    def discard(self) -> None:
        """Closes the file that is being written; the folder is about to be removed."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        size, self._bytes = self._bytes, 0
        if not rows:
            return
        made, whole = [], np.ones(len(rows), bool)
        for at, column in enumerate(self.columns):
            arrays, has = self._stream_arrays(column, [row.found[at] for row in rows], [row.lost[at] for row in rows])
            made.append(arrays)
            whole &= has
        kept = np.flatnonzero(whole) if self._drop else np.arange(len(rows))
        self.dropped += len(rows) - len(kept)
        if not len(kept):
            return
        own = self._number([rows[at] for at in kept.tolist()])
        chosen = None if len(kept) == len(rows) else pa.array(kept)
        for column, arrays in zip(self.columns, made, strict=True):
            if chosen is not None:
                arrays[:] = [array.take(chosen) for array in arrays]
            self._count_nulls(column, arrays[-1])
        batch = pa.RecordBatch.from_arrays([*own, *(array for arrays in made for array in arrays)], schema=self._schema)
        if self._writer is None:
            self._begin()
        assert self._writer is not None
        self._writer.write_batch(batch, row_group_size=len(kept))
        self._file_rows += len(kept)
        self._file_bytes += size
        if self._file_bytes >= FILE_BYTES:
            self._end()

    def _number(self, rows: Iterable[Row]) -> list[pa.Array]:
        """The rows' own columns: where they are in the set and in their episode."""
        found = []
        for row in rows:
            span = self.spans.get(row.episode)
            if span is None:
                span = self.spans[row.episode] = Span(len(self.spans), self.rows, 0, row.time_ns, row.time_ns)
            found.append((self.rows, span.index, span.rows, (row.time_ns - span.begins_ns) / 1e9))
            span.rows, span.ends_ns = span.rows + 1, row.time_ns
            self.rows += 1
        return [pa.array(values, one.type) for values, one in zip(zip(*found, strict=True), OWN, strict=True)]

    # ---- one stream ----

    def _stream_arrays(
        self, column: Column, found: list[Merged | None], lost: list[bool]
    ) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """(its columns, which rows have a message that decodes). A message that several rows have is decoded once."""
        unique: list[Merged] = []
        places: list[int | None] = []
        known: dict[int, int] = {}
        for one in found:
            if one is None:
                places.append(None)
                continue
            if id(one) not in known:
                known[id(one)] = len(unique)
                unique.append(one)
            places.append(known[id(one)])
        values, sound = self._decode(column, unique)
        column.stream.tally.rows_without += places.count(None)
        where = pa.array(places, pa.int64())
        has = np.array([place is not None and bool(sound[place]) for place in places], bool)
        return [
            pa.array([None if one is None else one.source.recording for one in found], pa.int64()),
            pa.array([None if one is None else one.position for one in found], pa.int64()),
            pa.array([None if one is None else one.time_ns for one in found], pa.int64()),
            pa.array(lost, pa.bool_()),
            values.take(where),
        ], has

    def _decode(self, column: Column, messages: list[Merged]) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """The messages as the stream's column, and which of them decode: the others are null."""
        stream = column.stream
        if not messages:
            return pa.nulls(0, column.type), np.ones(0, bool)
        codec, raw = unencoded(messages[0].source.codec), payloads(messages)
        if column.leaves[0].label == RAW:
            return self._raw(column, raw)
        decoded = decode(codec, stream.contract, raw, "rescue")
        bad = decoded.errors.is_valid()
        sound = ~np.asarray(bad.to_numpy(zero_copy_only=False), bool)
        again = (messages[0].source.recording, messages[0].position) == column.last  # counted with the group before
        column.last = messages[-1].source.recording, messages[-1].position
        stream.tally.undecodable += int((~sound[again:]).sum())
        stream.tally.rescued += len(messages) - again - decoded.rescued.slice(again).null_count
        by_label = dict(zip((one.label for one in stream.contract), decoded.arrays, strict=True))
        arrays = []
        for leaf in column.leaves:
            if leaf.label == PIXELS and column.images is not None:
                array = self._write_images(column, leaf, messages, by_label)
            else:
                array = raw if leaf.label == "" else by_label[leaf.label]
            arrays.append(array if array.type == leaf.type else array.cast(leaf.type))
        if column.leaves[0].name == "":
            return pc.if_else(bad, pa.scalar(None, arrays[0].type), arrays[0]) if not sound.all() else arrays[0], sound
        mask = bad if not sound.all() else None
        return pa.StructArray.from_arrays(arrays, fields=list(column.type), mask=mask), sound

    def _raw(self, column: Column, raw: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """Arrays as their bytes, and which have the right length: the others are null."""
        (leaf,), stream = column.leaves, column.stream
        size = math.prod(leaf.shape or ()) * np.dtype(leaf.dtype).itemsize
        sound = np.asarray(pc.equal(pc.binary_length(raw), size).to_numpy(zero_copy_only=False), bool)
        stream.tally.undecodable += int((~sound).sum())
        return pc.if_else(pa.array(sound), raw, pa.scalar(None, raw.type)), sound

    def _write_images(self, column: Column, leaf: Leaf, messages: list[Merged], found: dict[str, pa.Array]) -> pa.Array:
        """The paths of the messages' PNG files, which are written if they are new."""
        check_installed("PIL", what="a training set with PNG files", extra="datasets")
        assert column.images is not None
        paths: list[str | None] = []
        forms = zip(found["o:shape"].to_pylist(), found["o:dtype"].to_pylist(), strict=True)
        for message, value, (shape, dtype) in zip(messages, found[leaf.label], forms, strict=True):
            if not value.is_valid:
                paths.append(None)
                continue
            key = message.source.recording, message.position
            stored = _stored_picture(message)
            path = column.images / f"{key[0]}-{key[1]:012d}.{'png' if stored is None else stored[0]}"
            relative = str(path.relative_to(self._folder))
            paths.append(relative)
            if path.exists():
                continue
            if stored is not None:
                data: Any = stored[1]
            else:
                if leaf.varies:
                    _check_png(column.stream, dtype, tuple(shape))
                data = encode(np.frombuffer(value.as_buffer(), dtype).reshape(shape), LOSSLESS)[1]
            path.write_bytes(data)
            self.images.append(Image(relative, len(data), hashlib.sha256(data).hexdigest()))
        return pa.array(paths, pa.string())

    def _count_nulls(self, column: Column, values: pa.Array) -> None:
        for at, leaf in enumerate(column.leaves):
            if leaf.name == "":
                leaf.nulls += values.null_count
            else:
                leaf.nulls += pc.struct_field(values, [at]).null_count

    # ---- files ----

    def _begin(self) -> None:
        self._path = self._folder / "data" / f"part-{len(self.files):06d}.parquet"
        self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd", write_statistics=True)

    def _end(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        with open(self._path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        relative = str(self._path.relative_to(self._folder))
        self.files.append(File(relative, self._file_rows, self._path.stat().st_size, digest))
        self._file_rows = self._file_bytes = 0


def _stored_picture(message: Merged) -> tuple[str, memoryview] | None:
    """A recorded frame that is a picture's file already: its suffix and its bytes. None for others."""
    codec = message.source.codec
    if "encoding" not in codec:
        return None
    form = FrameFormat(codec)
    note = form.read_note(message.payload)
    suffix = SUFFIXES.get(note.encoding)
    return None if suffix is None else (suffix, form.stored_pixels(message.payload, note))


def column_of(stream: Stream, folder: Path, images: str) -> Column:
    """The columns of a stream. images: "png" or "columns"."""
    used: set[str] = set()
    leaves = []
    for one in stream.contract:
        name, number = clean(key_text(one.label)), 1
        while folded(name) in used:
            number += 1
            name = f"{clean(key_text(one.label))}_{number}"
        used.add(folded(name))
        leaves.append(Leaf(one.label, name, one.type))
    if not leaves:
        leaves = [Leaf("", "", pa.binary())]
    elif [leaf.label for leaf in leaves] == ["bare"]:
        leaves[0].name = ""
    _describe(leaves, stream.codec)
    if leaves[0].name == "" and len(leaves[0].shape or ()) > 1 and -1 not in (leaves[0].shape or ()):
        leaves[0].label, leaves[0].type = RAW, pa.binary()  # engines have no columns of such arrays
    made = Column(stream, leaves)
    pixels = next((leaf for leaf in leaves if leaf.label == PIXELS), None)
    if images == "png" and pixels is not None:
        if not pixels.varies:
            _check_png(stream, pixels.dtype, pixels.shape or ())
        pixels.name, pixels.type = "file", pa.string()
        made.images = folder / "images" / stream.name
        made.images.mkdir(parents=True)
    return made


def _describe(leaves: list[Leaf], codec: dict[str, Any] | None) -> None:
    """Adds the shapes and dtypes that the codec says."""
    if codec is None:
        return
    if codec["kind"] == "frame" and codec.get("pixels"):
        for leaf in leaves:
            if leaf.label == PIXELS:
                form = FrameFormat(codec)
                leaf.varies = form.varies or len(form.dtypes) > 1 or form.dtype.names is not None
                if not leaf.varies:
                    leaf.dtype, leaf.shape = form.dtype.str, form.shape
    elif codec["kind"] == "array":
        dtype = codecs.dtypes.dtype_of(codec["dtype"])
        if dtype.kind in "biuf":
            leaves[0].dtype, leaves[0].shape = dtype.str, tuple(codec["shape"])
    elif codec["kind"] == "struct":
        fields = codecs.dtypes.dtype_of(codec["dtype"])
        for leaf in leaves:
            key = key_text(leaf.label)
            if key in (fields.names or ()) and fields[key].base.names is None and fields[key].base.kind in "biuf":
                leaf.dtype, leaf.shape = fields[key].base.str, tuple(fields[key].shape)


def _check_png(stream: Stream, dtype: str | None, shape: tuple[int, ...]) -> None:
    """`Invalid` for frames that PNG does not hold as they are."""
    if not holds(PNG, shape, dtype):
        raise Invalid(
            f"{stream.channel} has frames of {dtype} {shape}, which PNG does not hold as they are: leave them in columns (--images columns)"
        )
