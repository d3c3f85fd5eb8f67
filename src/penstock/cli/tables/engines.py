"""Engines of queries over streams and of the pipeline, by the names that `--engine` takes. Knows how each begins and ends; knows no query."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import penstock
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = {"duckdb": "DuckDB", "spark": "Spark", "sail": "Sail"}
MASTER = re.compile(
    r"local|local\[(\*|[0-9]{1,4})(, ?[0-9]{1,4})?\]|local-cluster\[[0-9, ]+\]|yarn|(spark|k8s|sc)://[^\s/].*", re.ASCII
)


def check(engine: str, known: tuple[str, ...], master: str | None, what: str, *needed: str) -> None:
    """One line for an engine that there is not, for a master that is none, and for a package that is not installed. needed: by all engines."""
    if engine not in known:
        raise penstock.Invalid(f"--engine is {engine!r}: there are {', '.join(known)}")
    if master is not None and (engine != "spark" or not MASTER.fullmatch(master)):
        raise penstock.Invalid(
            f"--master is {master!r}: write local[*], local[2] or spark://HOST:PORT, for --engine spark"
        )
    if engine == "spark":
        check_installed("pyarrow", *needed, "pyspark", what=what, extra="spark")
    elif engine == "sail":
        from penstock.spark.runtime import sail

        check_installed("pyarrow", *needed, what=what, extra="sail")
        sail.check(f"{what} --engine sail")
    else:
        check_installed("pyarrow", *needed, what=what, extra="tables")
        if engine == "duckdb":
            check_installed("duckdb", what=what)


@contextlib.contextmanager
def session(engine: str, name: str, master: str | None, conf: dict[str, Any] | None = None) -> Iterator[SparkSession]:
    """A session on Spark or on Sail. conf: settings of Spark."""
    from penstock.spark.runtime import jvm, sail

    if engine == "sail":
        with sail.session() as made:
            yield made
        return
    begun = jvm.build_session(name, master=master, conf=conf or {})
    try:
        jvm.check_interpreter(begun)
        yield begun
    finally:
        jvm.stop(begun)
