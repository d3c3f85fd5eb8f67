"""The pipeline as a Structured Streaming query: once, every few seconds, or as fast as messages come.

The source's offsets say that there is news. The ranges to read follow from the tables themselves, so a batch that Spark repeats, or a
checkpoint that is lost, doubles nothing.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid
from penstock.spark.engine import Progress
from penstock.spark.failures import failure, unlogged
from penstock.spark.own_tables import isolated
from penstock.spark.pipeline import COMMIT_BYTES, Options, Outcome, Pipeline, log
from penstock.spark.reading import Reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STARTING_SECONDS = 30.0  # so long at most a query that is starting is waited for before it is stopped
CHECKPOINT = ".checkpoint"  # in the folder of tables, by the archive's id
# Spark keeps a query's progress in files. Its usual way starts eight `readlink` and two `chmod` for each of a batch's two files.
FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


class Query:
    """A pipeline that runs until `stop`. Made by `follow`; a context manager that stops at its end."""

    def __init__(self, pipeline: Pipeline, on_step: Callable[[Outcome], None] | None, *, once: bool) -> None:
        self._pipeline, self._on_step = pipeline, on_step
        self._left_to_the_end = 1 if once else 0  # errors of each sort that the end of a run tells, not a warning
        self._running = threading.Lock()
        self._error: BaseException | None = None
        self._told: set[str] = set()
        self._query: Any = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.steps = 0

    def start(self, spark: SparkSession, trigger: dict[str, Any]) -> None:
        """Starts the query."""
        archive = self._pipeline.archive
        from penstock.spark.news import NewsSource

        spark.dataSource.register(NewsSource)
        spark = isolated(spark, FILES)
        checkpoint = self._checkpoint(archive.id)
        try:
            source = spark.readStream.format("penstock_news").load(str(archive.path))
            writer = source.writeStream.queryName(f"penstock pipeline {self._pipeline.folder}").trigger(**trigger)
            self._query = writer.option("checkpointLocation", str(checkpoint)).foreachBatch(self._batch).start()
        except Exception as error:
            raise failure(error) from error

    def _checkpoint(self, archive: str) -> Path:
        """Where Spark keeps the query's offsets. It cannot write to an object storage; a new query begins with a look at all there is."""
        place = self._pipeline.folder
        if place.is_local:
            return Path(place.path, CHECKPOINT, archive)
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-checkpoint-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def step(self) -> Outcome:
        """Brings the tables up to date."""
        with self._running:
            outcome = self._pipeline.step()
        self._tell(outcome)
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        self.steps += 1
        damaged = [f"{text}; all else is in the tables" for text in self._pipeline.left_out()]
        failed = [one.error for one in outcome.own if one.error is not None]
        for text in damaged[self._left_to_the_end :] + failed[self._left_to_the_end :]:
            if text not in self._told:  # once, not with every batch
                log.warning("%s", text)
                self._told.add(text)
        if self._on_step is not None:
            self._on_step(outcome)

    def _batch(self, frame: DataFrame, number: int) -> None:
        if not self._running.acquire(blocking=False):
            return  # stop() has it, and Spark waits for this batch there; the next query begins with a step of its own
        try:
            try:  # in the session that began it: the batch's own would be cloned with every batch
                outcome = self._pipeline.step()
            finally:
                self._running.release()
            self._tell(outcome)
        except BaseException as error:
            self._error = error
            raise

    def ended(self) -> bool:
        """Whether it has ended by itself. Raises the error that ended it."""
        return not self._query.isActive and self.wait()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the query ends by itself, or for so long. Whether it has ended. Raises the error that ended it."""
        try:
            ended: bool = (
                self._query.awaitTermination(*([] if seconds is None else [max(1, int(seconds))])) is not False
            )
        except Exception as error:
            raise (self._error or failure(error)) from error
        return ended

    def stop(self) -> None:
        """Ends the query when its batch is done."""
        if self._query is not None:
            self._begun()
            with self._running:  # Spark's interruption of a running batch would be an error with a trace
                self._query.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _begun(self) -> None:
        """Waits until Spark has the source's Python process, which would die with a trace if the query ended while it starts."""
        limit = time.monotonic() + STARTING_SECONDS
        while (
            self._query.isActive
            and str(self._query.status["message"]).startswith("Initializing")
            and time.monotonic() < limit
        ):
            time.sleep(0.02)


def follow(
    spark: SparkSession,
    archive: str | Path,
    out: str | Path,
    *,
    every: float | None = None,
    until: Callable[[float], bool] | None = None,
    progress: Progress | None = None,
    on_step: Callable[[Outcome], None] | None = None,
    window: float = 1.0,
    compression: str = "snappy",
    tables: Sequence[str] | None = None,
    range_bytes: int = 32 << 20,
    commit_bytes: int = COMMIT_BYTES,
    retain: float = 3600.0,
    own: Sequence[str | Path] = (),
) -> Outcome:
    """Runs the pipeline as a streaming query. The sums of all its steps, and the tables' rows at the end.

    every: seconds between two looks at the archive; 0 for as fast as messages come; None for one step without a
    query, which brings the tables up to date. until: waits for so many seconds at most, and says whether to end. on_step: called after
    each step. Other options as of `penstock.spark.pipeline.run`. Damage to a recording or a stream stops no other: it is logged once,
    and `Corrupt` says so at the end. Interrupt it to stop it.
    """
    if "connect" in type(spark).__module__:
        raise Invalid(
            "a query over Spark Connect cannot write tables: use penstock.spark.pipeline.run, again and again"
        )
    options = Options(
        window=window,
        compression=compression,
        tables=None if tables is None else tuple(tables),
        range_bytes=range_bytes,
        commit_bytes=commit_bytes,
        retain=retain,
        own=own,
    )
    begun = time.monotonic()
    found: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        found.append(outcome)
        if on_step is not None:
            on_step(outcome)

    with unlogged(), Pipeline(spark, archive, out, options, progress) as pipeline:
        pipeline.consumer = Reading(pipeline.archive, str(pipeline.folder))
        query = Query(pipeline, note, once=every is None)
        try:
            # First: Spark takes seconds to begin a query. A killed run may have left something, and tables may be asked for now.
            query.step()
            wanted = every is not None and (until is None or not until(0))
            if wanted:
                query.start(pipeline.session(), {"processingTime": f"{every} seconds"})
            while wanted and not query.ended():
                if query.wait(1) if until is None else until(0.2):
                    break
        finally:
            query.stop()
    pipeline.check()
    return replace(_summed(found), seconds=time.monotonic() - begun)


def _summed(steps: list[Outcome]) -> Outcome:
    """The sums of all steps, and the tables after the last one. A table of the user's own is told as the last step that computed it does."""
    sums = {name: sum(getattr(one, name) for one in steps) for name in ("ranges", "rows", "files_removed")}
    computed = {own.name: own for one in steps for own in one.own if own.is_new}
    own = tuple(one if one.error else computed.get(one.name, one) for one in steps[-1].own)
    return replace(steps[-1], own=own, **sums)
