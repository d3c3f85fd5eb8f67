"""One query over memory, recordings and tables. `penstock.lake` opens it. Needs `pip install 'penstock[tables]'`, and DuckDB for SQL."""

from __future__ import annotations

import os

from penstock.record.archive import Archive
from penstock.tables.lake.cut import Missing, StreamCut
from penstock.tables.lake.queries import Cut, Lake

__all__ = ["Cut", "Lake", "Missing", "StreamCut", "lake"]


def lake(
    tables: str | os.PathLike[str] | None = None,
    archive: str | os.PathLike[str] | Archive | None = None,
    *,
    live: bool = True,
    strict: bool = False,
) -> Lake:
    """Streams of this machine's shared memory, of an archive and of tables, to be queried as one. Any of the three may be absent.

    tables: a folder that `penstock pipeline` made, or s3://BUCKET/FOLDER. archive: an archive, or its place. live: whether channels of shared
    memory are there. strict: a query that lacks messages, since memory had let go of them before they were recorded, is `Busy`; without
    it they are in `Cut.missing`, and logged.

    >>> penstock.lake().sql("select count(*) from 'log:imu'")
    """
    return Lake(tables, archive, live=live, strict=strict)
