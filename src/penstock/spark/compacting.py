"""Compaction: many small files of a table as few large ones, with the same rows. `penstock pipeline --optimize`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Corrupt, Invalid
from penstock.spark import tasks as work
from penstock.spark.books import Books
from penstock.spark.engine import Engine, Progress
from penstock.spark.ledger import Ledger, Row, digest, key_of
from penstock.spark.tables import NAMES, locked, names
from penstock.tables.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES = 128 << 20
TASKS = 16  # in one commit: a killed run keeps what it has done


@dataclass(frozen=True)
class Optimized:
    """The result. files_before, files_after: of all tables; files_removed: that no table had any more, for `retain` seconds."""

    files_before: int
    files_after: int
    files_removed: int
    seconds: float


def optimize(
    spark: SparkSession | None,
    out: str | Path,
    *,
    compression: str = "snappy",
    target_bytes: int = TARGET_BYTES,
    retain: float = 3600.0,
    progress: Progress | None = None,
) -> Optimized:
    """Joins small files of *raw*, *messages* and streams' tables, and deletes files that no table has.

    Rows, and snapshots that readers have opened, stay as they are. target_bytes: about how large files become. retain: seconds for
    which files that no table has are kept. Raises `Corrupt` if a file cannot be read; all else is done then.
    """
    begun, damaged = time.monotonic(), list[str]()
    folder = Place.of(out)
    there = names(folder)
    if "messages" not in there:
        raise Invalid(f"{folder} holds no tables of the pipeline: run penstock pipeline ARCHIVE --out {folder}")
    with locked(folder):
        kept = tuple(name for name in NAMES if name in there or name == "streams")
        books = Books(folder, kept, damaged)
        before = sum(len(ledger.files) for ledger in books.all())
        for ledger in books.recorded():
            _join(spark, books, ledger, compression, target_bytes, progress)
        removed = books.sweep(retain)
        after = sum(len(ledger.files) for ledger in books.all())
    if damaged:
        raise Corrupt(f"{damaged[0]}; all else is done")
    return Optimized(before, after, removed, time.monotonic() - begun)


def _join(
    spark: SparkSession | None, books: Books, ledger: Ledger, compression: str, target: int, progress: Progress | None
) -> None:
    if ledger.table is None:
        return
    about = {
        "kind": "join",
        "place": str(ledger.place),
        "columns": work.pack(ledger.table.schema),
        "compression": compression,
    }
    tasks = [
        {**about, "stream": group[0]["channel"], "entries": group, "number": number}
        for number, group in enumerate(groups(ledger, target))
    ]
    engine = Engine(spark, progress or (lambda what, done, count: None))
    for at in range(0, len(tasks), TASKS):
        answers = engine.do("joining", tasks[at : at + TASKS], at, len(tasks))
        books.damaged += [f"{answer['stream']}: {answer['error']}" for answer in answers if "error" in answer]
        ledger.exchange(answers)
        ledger.commit(changes_data=False)


def groups(ledger: Ledger, target: int) -> Iterator[list[Row]]:
    """Files to join: those of one source whose positions follow each other, up to the target together."""
    group: list[Row] = []
    for entry in sorted(ledger.files.values(), key=lambda row: (key_of(row), row["start"], row["end"])):
        alike = group and digest(work.source_in(group[0])) == digest(work.source_in(entry))
        if not alike or sum(row["bytes"] for row in group) + entry["bytes"] > target:
            if len(group) > 1:
                yield group
            group = []
        group.append(entry)
    if len(group) > 1:
        yield group
