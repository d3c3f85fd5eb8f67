"""The rows of a stream as a dataset of Arrow: DuckDB and Polars ask it for columns and conditions, and it reads only the parts that may
have such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from penstock.columns.contract import Contract
from penstock.tables.lake.parts import SOURCE_NAMES, Asked, Part


class StreamScanner:
    """As Arrow's scanner, in the thread that reads. Arrow's own reads ahead in other threads, which need Python's lock: a program that ended
    before it had read everything would wait for them for ever."""

    def __init__(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], columns: Any, filter: ds.Expression | None
    ) -> None:
        self._batches, self._columns, self._filter = batches, columns, filter
        self.dataset_schema = schema
        self.projected_schema = self._chosen(schema.empty_table()).schema

    def _chosen(self, table: pa.Table) -> pa.Table:
        if self._filter is not None:
            table = table.filter(self._filter)
        if self._columns is None:
            return table
        if isinstance(self._columns, Mapping):
            return ds.Scanner.from_batches(table.to_batches(), schema=table.schema, columns=self._columns).to_table()
        return table.select(self._columns)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            yield from self._chosen(pa.Table.from_batches([batch])).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._rows())

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time."""
        return iter(self.to_reader())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows."""
        batches, count = [], 0
        for batch in self.to_reader():
            batches.append(batch)
            count += batch.num_rows
            if count >= num_rows:
                break
        return pa.Table.from_batches(batches, schema=self.projected_schema).slice(0, num_rows)

    def count_rows(self) -> int:
        """How many there are."""
        return sum(batch.num_rows for batch in self._rows())


class StreamDataset(ds.Dataset):  # type: ignore[misc]
    """Rows that are read when they are asked for. Any thread."""

    def __init__(
        self, schema: pa.Schema, contract: Contract, parts: Sequence[Part], erased: Sequence[tuple[int, int]]
    ) -> None:
        self._schema, self._contract, self._parts, self._erased = schema, contract, parts, erased
        # Arrow's own pruning, over files that there are not: a part that a condition excludes is no fragment.
        self._pruning = ds.FileSystemDataset.from_paths(
            [str(number) for number in range(len(parts))],
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=pafs.LocalFileSystem(),
            partitions=[part.bounds() for part in parts],
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return self._schema

    def scanner(self, columns: Any = None, filter: ds.Expression | None = None, **options: Any) -> StreamScanner:
        """The rows that meet a condition. columns: names, or names and expressions; None for all. Other options of Arrow's have no effect."""
        asked = self._asked(columns, filter)
        return StreamScanner(asked.schema, self._read(asked, filter), columns, filter)

    def _asked(self, columns: Any, filter: ds.Expression | None) -> Asked:
        source = pa.schema([field for field in self._schema if field.name in SOURCE_NAMES])
        cheap = isinstance(columns, list) and SOURCE_NAMES.issuperset(columns)
        if cheap and filter is not None:
            try:
                source.empty_table().filter(filter)
            except pa.ArrowInvalid:  # it names a column of the messages
                cheap = False
        return Asked(source if cheap else self._schema, self._contract, self._erased, not cheap)

    def _read(self, asked: Asked, filter: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        for part in self._chosen(filter):
            yield from part.read(asked)

    def _chosen(self, filter: ds.Expression | None) -> Iterable[Part]:
        if filter is None or not self._parts:
            return self._parts
        return [self._parts[int(one.path)] for one in self._pruning.get_fragments(filter=filter)]
