"""The source of the pipeline's query: its offsets say what an archive holds. It gives no rows; a batch means that there is news.

Knows indexes only. A stream whose data are damaged does not stop it: the pipeline itself finds out, and leaves that stream out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock import Archive
from penstock.record import ArchiveWatch
from penstock.spark.offsets import positions_to_json
from penstock.spark.workers import in_a_line

Offset = dict[str, Any]


class NewsSource(DataSource):
    """Option `path`: the archive."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock_news"

    def schema(self) -> str:
        """One column, of which there are no values."""
        return "position BIGINT NOT NULL"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of offsets."""
        return NewsReader(self.options["path"])


class NewsReader(DataSourceStreamReader):
    """The methods have the names that Spark gives them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._watch: ArchiveWatch | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_watch": None}

    def initialOffset(self) -> Offset:  # noqa: N802
        """Nothing."""
        return {"archive": "", "cuts": [], "streams": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """All there is."""
        return ReadAllAvailable()

    @in_a_line
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The content of the archive: positions of each stream, and where recordings were cut back."""
        archive = Archive(self.path, create=False)
        if self._watch is None:
            self._watch = archive.watch()
        self._watch.refresh()
        cuts = sorted(cut.token for _, cut in self._watch.cuts)
        return {"archive": archive.id, "cuts": cuts, "streams": positions_to_json(self._watch.held())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One, without rows."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        return iter(())

    def commit(self, end: Offset) -> None:
        """Nothing to note: the tables themselves say what they have."""
