"""Tables on disk: Parquet files that a manifest names. What the manifest does not name is not there.

The manifest is replaced atomically, so a killed run leaves stray files that nobody reads; the next one removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from penstock.errors import Busy, Corrupt, Invalid, NotFound
from penstock.record.folder import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("raw", "messages", "stats")
MANIFEST = "manifest.json"
VERSION = 1


@dataclass
class Manifest:
    """What a folder of tables holds. files: table → list of {path, stream, rows, ...}; done: ranges already in."""

    files: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    done: list[dict[str, Any]] = field(default_factory=list)
    schemas: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, out: Path) -> Manifest:
        """The manifest of a folder; an empty one if there is none yet."""
        try:
            content = json.loads((out / MANIFEST).read_text())
            if content.pop("version") != VERSION:
                raise ValueError("it was written by another version")
            return cls(**content)
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{out / MANIFEST} is damaged ({error}): remove {out} and run the pipeline again") from error

    def save(self, out: Path) -> None:
        """Makes this what the folder holds, at once."""
        write_atomically(out / MANIFEST, json.dumps({"version": VERSION, **self.__dict__}, indent=1) + "\n")

    def intervals(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """What is in already, as the planner wants it."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in self.done:
            found.setdefault((row["channel"], row["epoch"]), []).append((row["start"], row["end"]))
        return found

    def remove_strays(self, out: Path) -> int:
        """Deletes files of the tables that this manifest does not name; how many."""
        named = {row["path"] for rows in self.files.values() for row in rows}
        strays = [p for name in NAMES for p in (out / name).rglob("*.parquet*") if str(p.relative_to(out)) not in named]
        for path in strays:
            path.unlink()
        return len(strays)


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """One pipeline at a time per folder; the kernel lets go when the process ends."""
    out.mkdir(parents=True, exist_ok=True)
    fd = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Busy(f"another pipeline is writing to {out}") from error
    finally:
        os.close(fd)


def paths(out: str | os.PathLike[str], table: str, *, stream: str | None = None) -> list[str]:
    """The Parquet files of a table, of one stream or of all."""
    folder = Path(out)
    if table not in NAMES:
        raise Invalid(f"there is no table {table!r}: there are {', '.join(NAMES)}")
    if not (folder / MANIFEST).exists():
        raise NotFound(f"{folder} holds no tables: run penstock pipeline --out {folder}")
    rows = Manifest.load(folder).files[table]
    return [str(folder / row["path"]) for row in rows if stream is None or row["stream"] == stream]


def table(spark: SparkSession, out: str | os.PathLike[str], name: str, *, stream: str | None = None) -> DataFrame:
    """A table as a DataFrame. With `stream`, the columns decoded by its codec are there too; without, those that all
    streams share.
    """
    from penstock.spark.tasks import COMMON

    files = paths(out, name, stream=stream)
    if name == "messages" and stream is None:
        return spark.read.schema(COMMON).parquet(*files) if files else spark.createDataFrame([], COMMON)
    if not files:
        raise NotFound(f"{out} has no {name} of stream {stream}")
    alike = len({tuple(pq.read_schema(path).names) for path in files}) == 1  # a stream's codec may have changed
    return spark.read.option("mergeSchema", not alike).parquet(*files)
