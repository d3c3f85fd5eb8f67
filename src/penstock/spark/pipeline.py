"""The pipeline on Spark: an archive's tables, and tables of the user's own.

The tables are `penstock.tables`' own; Spark does the tasks. Runs as `penstock pipeline`, from Python by `run` or `follow`, or with
`spark-submit` on this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from penstock.errors import Invalid
from penstock.spark import own_tables
from penstock.spark.engine import SparkEngine
from penstock.spark.parsing import definitions
from penstock.spark.runtime.failures import unlogged
from penstock.tables import following, pipeline
from penstock.tables.options import Given, Options, Outcome
from penstock.tables.work.engine import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Outcome", "Pipeline", "follow", "main", "run"]


class Pipeline(pipeline.Pipeline):
    """As `penstock.tables.pipeline.Pipeline`, by a Spark session, and with tables of the user's own behind the built-in ones."""

    def __init__(
        self,
        spark: SparkSession | None,
        archive: str | Path,
        out: str | Path,
        options: Options | None = None,
        *,
        own: Sequence[str | Path] = (),
        progress: Progress | None = None,
        engine: str = "spark",
    ) -> None:
        does = None if spark is None else SparkEngine(spark, engine)
        super().__init__(archive, out, options, engine=does, progress=progress)
        self.spark = spark
        self._ordered: own_tables.Plan = ()
        if own:
            if spark is None:
                raise Invalid("tables of your own are SQL: give a Spark session")
            channels = {info.channel for info in self.archive.list()}
            self._ordered = own_tables.plan(spark, definitions.load(own), channels)

    def step(self) -> Outcome:
        """One pass, and then the user's tables."""
        outcome = super().step()
        if not self._ordered or self.spark is None:
            return outcome
        made = own_tables.bring(
            self.spark, self.place, self._ordered, compression=self.options.compression, progress=self.progress
        )
        return replace(outcome, own=tuple(made))


def run(
    spark: SparkSession | None,
    archive: str | Path,
    out: str | Path,
    *,
    own: Sequence[str | Path] = (),
    progress: Progress | None = None,
    **options: Unpack[Given],
) -> Outcome:
    """Brings the tables in `out` up to date with an archive, once.

    spark: the session that does the work; None: this machine does it, without a JVM. own: files that define the user's tables, which
    are SQL; see docs/tables/spark.md. Other options, and errors, as of `penstock.tables.run`.
    """
    with Pipeline(spark, archive, out, Options.given(options), own=own, progress=progress) as made:
        outcome = made.step()
    made.check()
    return outcome


def follow(
    spark: SparkSession | None,
    archive: str | Path,
    out: str | Path,
    *,
    every: float | None = None,
    until: Callable[[float], bool] | None = None,
    on_step: Callable[[Outcome], None] | None = None,
    own: Sequence[str | Path] = (),
    progress: Progress | None = None,
    **options: Unpack[Given],
) -> Outcome:
    """Brings the tables up to date, and continues as messages arrive; see `penstock.tables.follow`."""
    following.check_follow(every, until, on_step)
    with unlogged(), Pipeline(spark, archive, out, Options.given(options), own=own, progress=progress) as made:
        outcome = following.follow(made, every=every, until=until, on_step=on_step)
    made.check()
    return outcome


def main(arguments: list[str] | None = None) -> None:
    """For spark-submit: `pipeline.py --archive DIR --out DIR`. The session comes from spark-submit's settings."""
    import argparse

    from penstock.spark import session

    parser = argparse.ArgumentParser(description="Builds tables from an archive.")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--out", required=True)
    given = parser.parse_args(arguments)
    spark = session("penstock-pipeline")
    outcome = run(spark, given.archive, given.out)
    print(
        f"{outcome.rows} new messages, {outcome.total_rows} in all, of {len(outcome.streams)} streams, in {outcome.seconds:.1f} s"
    )
    spark.stop()


if __name__ == "__main__":
    main()
