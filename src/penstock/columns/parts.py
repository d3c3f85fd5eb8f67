"""Part files of tables: Parquet, Arrow or CSV, in a folder or on an object storage. A file has its name once it is complete.

For the pipeline and for export. Knows Arrow and file systems; knows no recording and no Spark.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.values import is_far, time_text, to_python
from penstock.errors import Invalid, SystemFailure
from penstock.util.files.durable import fresh_path
from penstock.util.files.storage import Place, reaching

SUFFIX = {"parquet": ".parquet", "arrow": ".arrow", "csv": ".csv"}
COMPRESSIONS = {
    "parquet": ("snappy", "zstd", "lz4", "gzip", "brotli", "none"),
    "arrow": ("none", "zstd", "lz4"),
    "csv": ("none", "gzip"),
}
COPY_BYTES = 16 << 20
LONGEST_NAME = 100  # of a table: metastores take 128
HASHED = re.compile("_[0-9a-f]{8}$")


def table_name(channel: str) -> str:
    """A stream's name wherever a channel cannot be written: its table's folder, its export's folder, a plain word of SQL.

    `log:robot/imu` is log_robot__imu. Small letters, digits and `_` only, so engines that ignore case distinguish two names. No two
    channels share a name: one that the name does not give back (capitals, `.`, `-`, a long one) ends with eight digits of its hash.
    """
    name = re.sub(r"[^a-z0-9_]", "_", channel.replace(":", "_", 1).replace("/", "__").lower())
    again = name.replace("_", ":", 1).replace("__", "/")
    if again == channel and len(name) <= LONGEST_NAME and not HASHED.search(name):
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(channel.encode(errors='surrogateescape')).hexdigest()[:8]}"


def apart(names: Mapping[str, str]) -> dict[str, str]:
    """The names of a query for an engine that ignores case: one of those that differ in it alone. names: name → stream.

    `Invalid` for two such names that mean two streams.
    """
    kept: dict[str, str] = {}
    met: dict[str, str] = {}
    for name, stream in names.items():
        if (before := met.setdefault(name.lower(), name)) == name:
            kept[name] = stream
        elif (other := kept[before]) != stream:
            instead = " and ".join(table_name(one) if ":" in one else one for one in (other, stream))
            raise Invalid(f"{before} and {name} are two streams, and SQL ignores case: write {instead} in their place")
    return kept


def check(form: str, compression: str, name: str = "compression") -> None:
    """`Invalid` for a format or a compression that there is not."""
    if form not in SUFFIX:
        raise Invalid(f"there is no format {form!r}: there are {', '.join(SUFFIX)}")
    if compression not in COMPRESSIONS[form]:
        raise Invalid(f"{name} is {compression!r}: {form} files have {', '.join(COMPRESSIONS[form])}")


@dataclass(frozen=True)
class Part:
    """A file that was written. path: relative to its place. bytes: its length."""

    path: str
    rows: int
    bytes: int


class Unwritten(SystemFailure):
    """The destination takes no more: it is full, or cannot be written. The data to be written may be sound."""


class Writer:
    """Writes one file. The first batch says which columns there are. Without `close` there is no file.

    relative: its path in the place, without the suffix. In a folder, the file is written beside its name and then renamed. For an object
    storage it is written to a temporary file of this machine and then put there whole.
    """

    def __init__(self, place: Place, relative: str, form: str = "parquet", compression: str = "snappy") -> None:
        check(form, compression)
        gz = ".gz" if form == "csv" and compression == "gzip" else ""
        self.place, self.form, self.compression, self.rows = place, form, compression, 0
        self.relative = f"{relative}{SUFFIX[form]}{gz}"
        self._writer: Any = None
        self._sink: Any = None
        self._temporary: Path | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        if self.form == "csv":
            batch = plain(batch)
        with self._removing_on_error():
            if self._writer is None:
                self._begin(batch.schema)
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    @contextlib.contextmanager
    def _removing_on_error(self) -> Iterator[None]:
        """Within it, an error of the disk leaves nothing behind, and names the file."""
        try:
            yield
        except OSError as error:
            self.discard()
            why = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
            raise Unwritten(error.errno or 0, f"{self.place}/{self.relative} cannot be written: {why}") from error

    def _begin(self, schema: pa.Schema) -> None:
        name = Path(self.relative).name
        if self.place.is_local:
            path = Path(self.place.path, self.relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._temporary = fresh_path(path, prefix="")
        else:
            fd, made = tempfile.mkstemp(prefix=f"penstock-{name}.")
            os.close(fd)
            self._temporary = Path(made)
        compression = None if self.compression == "none" else self.compression
        if self.form == "parquet":
            import pyarrow.parquet as pq

            texts = [field.name for field in schema if field.name in ("stream", "sender", "type")]
            self._writer = pq.ParquetWriter(
                self._temporary, schema, compression=compression or "none", use_dictionary=texts, write_statistics=True
            )
        elif self.form == "arrow":
            self._writer = pa.ipc.new_file(
                str(self._temporary), schema, options=pa.ipc.IpcWriteOptions(compression=compression)
            )
        else:
            import pyarrow.csv

            self._sink = pa.CompressedOutputStream(str(self._temporary), "gzip") if compression else None
            self._writer = pyarrow.csv.CSVWriter(self._sink or str(self._temporary), schema)

    def close(self) -> Part | None:
        """Names the file. None if there were no rows: then there is no file."""
        if self._writer is None:
            return None
        with self._removing_on_error():
            self._end()
            assert self._temporary is not None
            size = self._temporary.stat().st_size
            if self.place.is_local:
                os.replace(self._temporary, Path(self.place.path, self.relative))
        if not self.place.is_local:
            with self._removing_on_error():
                put(self._temporary, self.place / self.relative)
            self._temporary.unlink()
        self._writer = None
        return Part(self.relative, self.rows, size)

    def discard(self) -> None:
        """Leaves nothing behind."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._end()
            if self.form == "parquet":
                self._writer.is_open = False  # else pyarrow's writer tries it again when it is collected
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
        self._writer, self._temporary, self.rows = None, None, 0

    def _end(self) -> None:
        self._writer.close()
        if self._sink is not None:
            self._sink.close()


def put(source: Path, target: Place) -> None:
    """Puts a file's bytes onto an object storage, whole."""
    with reaching(), open(source, "rb") as file, target.fs.open_output_stream(target.path) as stream:
        shutil.copyfileobj(file, stream, COPY_BYTES)


# ---- CSV ----


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as CSV has it: bytes as hexadecimal digits, times as ISO 8601, durations as seconds or ISO 8601, lists and structs as JSON
    (bytes and times in them as outside; numbers that JSON lacks as the texts nan, inf and -inf)."""
    arrays = [_plain(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _texts([None if value is None else value.hex() for value in array.to_pylist()])
    if (pa.types.is_timestamp(kind) or pa.types.is_date(kind)) and is_far(array):
        return _texts([time_text(time, "Z") for time in array])
    if pa.types.is_date(kind):
        return pc.strftime(array, format="%Y-%m-%d")
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):
        found = [_jsonable(value) for value in to_python(array)]
        return pa.array(found, pa.float64()) if not any(isinstance(one, str) for one in found) else _texts(found)
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if pa.types.is_timestamp(kind):
        ends = "Z" if kind.tz else ""
        return pc.strftime(array, format=f"%Y-%m-%dT%H:%M:%S{ends}")
    if pa.types.is_nested(kind):
        return _texts([None if value is None else json.dumps(_jsonable(value)) for value in to_python(array, "Z")])
    if pa.types.is_decimal(kind):
        return pc.cast(array, pa.string())
    return array


def _texts(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


__all__ = ["COMPRESSIONS", "SUFFIX", "Part", "Unwritten", "Writer", "check", "plain", "put", "table_name"]
