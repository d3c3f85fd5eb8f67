"""`penstock.open_dataset`: a training set as rows, by number or one after the other, in this process or in workers.

Knows the files of a training set; knows no archive. Nothing is open in a process that has read no row, and a child opens its own files.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.util.extras import explain_missing

with explain_missing("penstock.open_dataset", extra="datasets"):
    import pyarrow as pa
    import pyarrow.parquet as pq

from penstock.channels.checks import texts, whole
from penstock.codecs.frames import dtype_of_text
from penstock.errors import Corrupt, Invalid, NotFound, Unsupported
from penstock.export.datasets.building import CERTIFICATE, FORMAT, VERSION
from penstock.export.datasets.workers import Share, worker
from penstock.util.files.durable import own_errors
from penstock.util.files.storage import local
from penstock.util.strict import Strict, near

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

CACHED = 8  # groups of rows that a process keeps
PLAIN = ("index", "episode_index", "frame_index", "timestamp")
ORIGIN = ("recording", "position", "time", "lost")

Row = dict[str, Any]


class _Files:
    """The open files of one process."""

    def __init__(self, folder: Path, names: Sequence[str], columns: list[str]) -> None:
        self.process, self._folder, self._names, self._columns = os.getpid(), folder, names, columns
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._groups: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()

    def group(self, file: int, number: int) -> pa.Table:
        """A group of rows, with the columns that were asked for."""
        found = self._groups.get((file, number))
        if found is None:
            if file not in self._open:
                path = self._folder / self._names[file]
                if not path.exists():
                    raise NotFound(f"{path} is not there: the training set was changed; build it again")
                self._open[file] = pq.ParquetFile(path, pre_buffer=False)
                if len(self._open) > CACHED:
                    self._open.popitem(last=False)[1].close()
            # Without threads: a forked child has none of its parent's.
            found = self._open[file].read_row_group(number, columns=self._columns, use_threads=False)
            self._groups[file, number] = found
            if len(self._groups) > CACHED:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end((file, number))
        return found


class Dataset(Strict, Sequence[Row]):
    """The rows of a training set. Made by `penstock.open_dataset`. One thread at a time.

    A row is a dictionary: numbers, texts, and NumPy arrays of its own, which may be changed; None where there is no value. It pickles by its folder: each worker opens the
    files itself. A `DataLoader` of torch takes it as it is, and shuffles it; iterated within a worker, it yields that worker's rows only.
    """

    def __init__(self, folder: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> None:
        self._folder = local(folder, "the training set").absolute()
        self._certificate = _read_certificate(self._folder)
        self._share = Share()
        self._names = [str(one["path"]) for one in self._certificate["files"]]
        self._values: dict[str, dict[str, Any]] = {}
        for stream in self._certificate["streams"]:
            self._values |= stream.get("values", {})
        self._every = self._all_columns()
        self._columns = self._default() if columns is None else self._chosen(columns)
        self._given = columns is not None
        for name in self._columns:
            if name not in self._every:
                raise NotFound(
                    f"{self._folder} has no column {name!r}{near(name, self._every)}; it has {', '.join(self._every)}"
                )
        if not self._columns:
            raise Invalid("columns is empty: name at least one column")
        self._groups: list[tuple[int, int, int]] | None = None  # (file, group, first row)
        self._files: _Files | None = None

    def _all_columns(self) -> list[str]:
        found = [*PLAIN]
        for stream in self._certificate["streams"]:
            if "values" in stream:
                found += [f"{stream['column']}_{end}" for end in ORIGIN]
                found += stream["values"]
        return found

    def _chosen(self, columns: Sequence[str]) -> list[str]:
        """The names that were asked for. A message's name stands for its fields."""
        found: list[str] = []
        for name in texts(columns, "columns", "names of columns"):
            inside = [] if name in self._every else [one for one in self._values if one.startswith(f"{name}.")]
            found += inside or [name]
        return list(dict.fromkeys(found))

    def _default(self) -> list[str]:
        """All values but those that no row has, and the rows' own numbers."""
        rows = self._certificate["rows"]
        return [*PLAIN, *(name for name, one in self._values.items() if one["nulls"] < rows or not rows)]

    # ---- what it is ----

    @property
    def certificate(self) -> dict[str, Any]:
        """What `penstock.dataset` wrote about it: where it is from, what was lost, its episodes and files."""
        return self._certificate

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in each row."""
        return tuple(self._columns)

    @property
    def all_columns(self) -> tuple[str, ...]:
        """All names that `columns=` takes: also `STREAM_recording`, `STREAM_position`, `STREAM_time` and `STREAM_lost`, where a row is from."""
        return tuple(self._every)

    @property
    def episodes(self) -> list[range]:
        """The rows of each episode, by its index. Of the whole set, also in a shard of it."""
        found = [one for one in self._certificate["episodes"] if one["rows"]]
        return [range(one["first_row"], one["first_row"] + one["rows"]) for one in found]

    def __repr__(self) -> str:
        return f"<Dataset {self._folder}: {len(self):,} rows>"

    # ---- rows ----

    def __len__(self) -> int:
        rows, index, count = int(self._certificate["rows"]), self._share.index, self._share.count
        return (rows - index + count - 1) // count if rows > index else 0

    def __getitem__(self, row: Any) -> Any:
        """A row by its number, from the end if it is below 0; a list of rows for a slice. IndexError if there is none."""
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        at = operator.index(row)
        at = at + len(self) if at < 0 else at
        if not 0 <= at < len(self):
            raise IndexError(f"{self._folder} has {len(self)} rows, and none with the number {operator.index(row)}")
        return self._read(at * self._share.count + self._share.index)

    def __iter__(self) -> Iterator[Row]:
        mine = worker().within(self._share)
        for at in range(mine.index, int(self._certificate["rows"]), mine.count):
            yield self._read(at)

    def shard(self, index: int, count: int) -> Dataset:
        """The part `index` of `count`: every row is in one part alone. For processes that share the work, as the ranks of a training."""
        count = whole(count, "count", 1)
        made = Dataset(self._folder, columns=self._columns if self._given else None)
        made._check_same(self._certificate["id"])
        made._share = Share(whole(index, "index", 0, count - 1), count).within(self._share)
        return made

    def torch(self) -> IterableDataset[Row]:
        """The same rows as torch's IterableDataset: each worker of a DataLoader yields its own. Needs `pip install torch`.

        `Invalid` for columns with rows that have no value, which torch cannot put into a batch.
        """
        empty = [name for name in self._columns if self._values.get(name, {}).get("nulls")]
        if empty and len(self):
            raise Invalid(
                f"{empty[0]} has no value in {self._values[empty[0]]['nulls']:,} rows, and torch makes no batch of such: leave it out by columns=, or build the set "
                "with drop_incomplete=True (--drop-incomplete)"
            )
        from penstock.export.datasets.torching import stream_of

        return stream_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self._columns if self._given else None
        return _reopen, (str(self._folder), columns, (self._share.index, self._share.count), self._certificate["id"])

    def _check_same(self, identity: str) -> None:
        if self._certificate["id"] != identity:
            raise NotFound(f"{self._folder} is another training set than the one that was opened: it was built again")

    def _read(self, at: int) -> Row:
        if self._files is None or self._files.process != os.getpid():
            self._files = _Files(self._folder, self._names, self._read_columns())
        if self._groups is None:
            self._groups = _groups_of(self._folder, self._certificate)
        file, group, first = self._groups[bisect_right(self._groups, at, key=lambda one: one[2]) - 1]
        table = self._files.group(file, group)
        return {name: self._value(table, name, at - first) for name in self._columns}

    def _read_columns(self) -> list[str]:
        """The columns that are read: beside arrays of their own shape, what says it."""
        varied = [name for name in self._columns if self._values.get(name, {}).get("varies")]
        beside = [f"{name.partition('.')[0]}.{end}" for name in varied for end in ("shape", "dtype")]
        return list(dict.fromkeys([*self._columns, *beside]))

    def _value(self, table: pa.Table, name: str, at: int) -> Any:
        about = self._values.get(name)
        if about is None:
            return table.column(name)[at].as_py()
        stream, _, leaf = name.partition(".")
        found = table.column(stream)[at]
        if leaf:
            if not found.is_valid:
                return None
            if about.get("varies"):
                return _frame(found, leaf)
            found = found[leaf]
        return _plain(found, about) if found.is_valid else None


def _frame(row: Any, leaf: str) -> Any:
    """A frame's pixels in its own shape and dtype, or the path of its file; None if the row has none."""
    value = row[leaf]
    if not value.is_valid or not pa.types.is_binary(value.type):
        return value.as_py()
    return np.frombuffer(value.as_buffer(), dtype_of_text(row["dtype"].as_py())).reshape(row["shape"].as_py()).copy()


def _plain(value: Any, about: dict[str, Any]) -> Any:
    """A value as Python and NumPy have it, in memory of its own."""
    kind, dtype, shape = value.type, about["dtype"], about["shape"]
    if dtype is not None and pa.types.is_binary(kind):
        return np.frombuffer(value.as_buffer(), dtype).reshape(shape).copy()
    if pa.types.is_list(kind):
        inner = kind.value_type
        if pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner):
            found = value.values
            if found.null_count == 0:
                made = np.array(found.to_numpy(zero_copy_only=False))
                return made if dtype is None else made.astype(dtype, copy=False).reshape(shape)
            return value.as_py()
        return _nested(value.as_py())
    found = value.as_py()
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return int(found)
    if dtype is not None and np.dtype(dtype).kind == "f":
        return float(found)
    return found


def _nested(value: list[Any]) -> Any:
    """Lists of lists of numbers as an array, if they are equally long; else as they are."""
    try:
        made = np.array(value)
    except ValueError:
        return value
    return made if made.dtype.kind in "biuf" else value


def _groups_of(folder: Path, certificate: dict[str, Any]) -> list[tuple[int, int, int]]:
    found, row = [], 0
    for number, one in enumerate(certificate["files"]):
        path = folder / one["path"]
        if not path.exists():
            raise NotFound(f"{path} is not there: the training set was changed; build it again")
        about = pq.read_metadata(path)
        for group in range(about.num_row_groups):
            found.append((number, group, row))
            row += about.row_group(group).num_rows
    if row != certificate["rows"]:
        raise Corrupt(f"{folder} has {row} rows, and its certificate says {certificate['rows']}: build it again")
    return found


def _read_certificate(folder: Path) -> dict[str, Any]:
    path = folder / CERTIFICATE
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{folder} is no training set: it has no {CERTIFICATE}; penstock dataset makes one") from None
    except msgspec.DecodeError as error:
        raise Corrupt(f"{path}: {error}; build the training set again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Invalid(f"{path} is no certificate of a training set")
    if found.get("version") != VERSION:
        raise Unsupported(
            f"{path} has version {found.get('version')}, and this Penstock reads {VERSION}: update Penstock"
        )
    return found


def _reopen(folder: str, columns: list[str] | None, share: tuple[int, int], identity: str) -> Dataset:
    made = Dataset(folder, columns=columns)
    made._check_same(identity)
    made._share = Share(*share)
    return made


@own_errors
def open_dataset(folder: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> Dataset:
    """The rows of a training set that `penstock.dataset` wrote.

    columns: the names in each row: values as `imu.gyro`, or `imu` of a stream that has no names, the rows' own numbers `index`, `episode_index`, `frame_index` and `timestamp`
    (seconds since the episode's first row), and `imu_recording`, `imu_position`, `imu_time` (nanoseconds), `imu_lost`. By default, the
    numbers and all values that some row has. `NotFound` for a folder that is none, and for other names.
    """
    return Dataset(folder, columns=columns)


__all__ = ["Dataset", "Row", "open_dataset"]
