"""delta-rs optimizes, deletes from and vacuums a table of the pipeline; the pipeline goes on; five readers agree.

python shared_tables.py [spark]    with Spark as the pipeline's engine and as one of the readers
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars

import penstock
from penstock import tables

READING = {"n": 0, "volts": 0.5}
Figures = tuple[int, int, float]  # rows, the sum of n, the sum of volts


def send(archive: penstock.Archive, numbers: range) -> None:
    with (
        archive.record("log:battery", start="earliest", extend=True),
        penstock.publish("log:battery", codec="json") as pub,
    ):
        for n in numbers:
            pub.send({"n": n, "volts": n / 2})
    penstock.remove("log:battery")


def bring(archive: penstock.Archive, out: Path, spark: Any) -> None:
    if spark is None:
        done = tables.run(archive.path, out)
    else:
        from penstock.spark import pipeline

        done = pipeline.run(spark, archive.path, out)
    print(f"pipeline: {done.rows} new messages")


def readers(out: Path, spark: Any) -> dict[str, Callable[[], Figures]]:
    folder, columns = str(out / "streams" / "log_battery"), ["n", "volts"]

    def by_polars() -> Figures:
        found = polars.scan_delta(folder).select(polars.len(), polars.col("n").sum(), polars.col("volts").sum())
        return found.collect().row(0)

    def by_duckdb() -> Figures:
        query = "select count(*), sum(n)::bigint, sum(volts) from read_parquet(?, union_by_name = true, hive_partitioning = false)"
        return duckdb.execute(query, [tables.uris(out, "log:battery")]).fetchall()[0]

    def by_pandas() -> Figures:
        found = deltalake.DeltaTable(folder).to_pandas(columns=columns)
        return len(found), int(found.n.sum()), float(found.volts.sum())

    def by_arrow() -> Figures:
        found = tables.read(out, "log:battery", columns=columns).to_pydict()
        return len(found["n"]), sum(found["n"]), sum(found["volts"])

    def by_spark() -> Figures:
        from penstock.spark import table

        found = table(spark, out, "log:battery").selectExpr("count(*)", "sum(n)", "sum(volts)")
        return tuple(found.collect()[0])

    found = {"polars": by_polars, "duckdb": by_duckdb, "pandas, by delta-rs": by_pandas, "penstock": by_arrow}
    return found if spark is None else found | {"spark": by_spark}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spark = None
        if sys.argv[1:] == ["spark"]:
            import penstock.spark

            spark = penstock.spark.session()
        archive, out = penstock.Archive(Path(folder) / "archive"), Path(folder) / "tables"
        for begin in (0, 1000, 2000):
            send(archive, range(begin, begin + 1000))
            bring(archive, out, spark)

        table = deltalake.DeltaTable(out / "streams" / "log_battery")
        print(f"delta-rs: {table.optimize.compact()['numFilesRemoved']} files are one")
        print(f"delta-rs: {table.delete('n % 10 = 0')['num_deleted_rows']} rows deleted")
        gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        print(f"delta-rs: {len(gone)} files vacuumed")

        send(archive, range(3000, 4000))
        bring(archive, out, spark)
        bring(archive, out, spark)
        for name, read in readers(out, spark).items():
            print(f"{name}: {read()}")
        left = [n for n in range(4000) if n >= 3000 or n % 10]
        print(f"expected: {(len(left), sum(left), sum(left) / 2)}")
        if spark is not None:
            spark.stop()
