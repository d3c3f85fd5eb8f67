"""The demo: the whole job on real data. Publishing processes, subscribing processes, a recorder, Spark, a report.

Knows the order of the steps; what flows is in `sources`, what is drawn in `report`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import penstock
from penstock.cli import output
from penstock.cli.demo import report, workers
from penstock.cli.demo.sources import DRIVE_STREAMS, TELEMETRY, drive_channels
from penstock.cli.output import console

SUBSCRIBERS = 2


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """Channels of the demo live in a folder of their own, gone afterwards, whatever happens."""
    before = os.environ.get("PENSTOCK_DIR")
    parent = before or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    if before:
        os.makedirs(before, mode=0o700, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="penstock-demo-", dir=parent)
    os.environ["PENSTOCK_DIR"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["PENSTOCK_DIR"]
        else:
            os.environ["PENSTOCK_DIR"] = before


class _Steps:
    """Says what goes on, with the time each step took."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        begun = time.monotonic()
        with Progress(*columns, console=output.errors, transient=True, disable=self.quiet) as bar:
            bar.add_task(text, total=None)
            yield
        if not self.quiet:
            output.errors.print(f"[green]✓[/] {text} [dim]{time.monotonic() - begun:.1f} s[/]")


def run(*, seconds: float, data: Path | None, out: Path, as_json: bool) -> None:
    """The demo, from nothing to the report. Raises `PenstockError` if a message was lost or changed."""
    if seconds <= 0:
        raise penstock.Invalid(f"--seconds is {seconds}: it must be more than 0")
    if data is not None and not drive_channels(data):
        raise penstock.NotFound(f"{data} holds none of the drive's streams ({', '.join(DRIVE_STREAMS)})")
    _clear(out)
    steps = _Steps(as_json)
    archive = out / "archive"
    with _own_folder():
        channels = (
            drive_channels(data) if data is not None else [name for names in TELEMETRY.values() for name in names]
        )
        what = "this drive's minute" if data is not None else f"{seconds:g} s of this host's telemetry"
        with steps.step(f"published {what} on {len(channels)} channels to {SUBSCRIBERS} subscribers, and recorded it"):
            measured = _flow(channels, seconds, data, archive)
    with steps.step("verified the recordings, byte by byte"):
        opened = penstock.Archive(archive)
        damage = opened.verify()
        if damage:
            raise penstock.Corrupt(f"{damage[0].path}: {damage[0].what}")
        recorded = opened.list()
    with steps.step("ran the Spark pipeline: tables raw, messages and stats"):
        outcome = _tables(archive, out / "tables")
    checked = None
    if data is not None:
        with steps.step("compared every payload in the table messages with the drive's files"):
            checked = workers.compare_drive(data, out / "tables")
    rows = _summary(recorded, measured, out / "tables")
    page = out / "report.html"
    with steps.step("drew the report"):
        report.write(page, rows, measured, out / "tables", "a drive" if data is not None else "this host")
    _finish(rows, recorded, outcome, checked, page, as_json)


def _clear(out: Path) -> None:
    for name in ("archive", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)


def _flow(channels: list[str], seconds: float, data: Path | None, archive: Path) -> dict[str, Any]:
    """Publishers and subscribers as processes, the recorder as one more; what the subscribers measured."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    done = context.Event()
    for channel in channels:
        workers.make_channel(channel, data)
    ready = [context.Event() for _ in range(SUBSCRIBERS)]
    readers = [
        context.Process(target=workers.subscribe, args=(number, channels, ready[number], done, results))
        for number in range(SUBSCRIBERS)
    ]
    groups = [channels] if data is not None else list(TELEMETRY.values())
    writers = [
        context.Process(target=workers.publish, args=(group, seconds, str(data) if data else None)) for group in groups
    ]
    with penstock.Archive(archive).record(channels, start="earliest", process=True):
        try:
            for process in readers:
                process.start()
            for event in ready:
                if not event.wait(60):
                    raise penstock.SystemFailure(0, "a subscriber's process did not start within 60 seconds")
            for process in writers:
                process.start()
            for process in writers:
                process.join()
            sent = {channel: penstock.inspect(channel).totals.messages_sent for channel in channels}
            done.set()
            measured: dict[str, Any] = {"sent": sent, "subscribers": [results.get() for _ in readers]}
            for process in readers:
                process.join()
        finally:
            for process in [*readers, *writers]:
                if process.is_alive():
                    process.terminate()
    failed = [p.name for p in [*readers, *writers] if p.exitcode != 0]
    if failed:
        raise penstock.SystemFailure(1, f"{', '.join(failed)} failed; see above")
    return measured


def _tables(archive: Path, out: Path) -> Any:
    from penstock.spark import pipeline, session

    spark = session("penstock-demo")
    try:
        return pipeline.run(spark, archive, out)
    finally:
        spark.stop()


def _summary(recorded: list[Any], measured: dict[str, Any], tables: Path) -> list[dict[str, Any]]:
    """One row per stream: how much flowed, how fast, what is missing anywhere."""
    import numpy as np

    in_table = workers.rows_in_table(tables)
    rows = []
    for info in recorded:
        sent = measured["sent"][info.channel]
        received = [result[info.channel]["messages"] for result in measured["subscribers"]]
        latency = np.concatenate([result[info.channel]["latency_ns"] for result in measured["subscribers"]])
        lost = sum(sent - count for count in received) + (sent - info.messages) + (sent - in_table.get(info.channel, 0))
        span = max(info.seconds, 1e-9)
        rows.append(
            {
                "stream": info.channel,
                "messages": sent,
                "rate": sent / span if sent > 1 else 0.0,
                "bytes": sum(result[info.channel]["bytes"] for result in measured["subscribers"])
                // max(len(received), 1),
                "latency_p50_ns": float(np.percentile(latency, 50)) if len(latency) else None,
                "latency_p99_ns": float(np.percentile(latency, 99)) if len(latency) else None,
                "lost": lost,
            }
        )
    return rows


def _finish(
    rows: list[dict[str, Any]], recorded: list[Any], outcome: Any, checked: int | None, page: Path, as_json: bool
) -> None:
    total, lost = sum(row["messages"] for row in rows), sum(row["lost"] for row in rows)
    if as_json:
        print(
            output.as_json(
                {"streams": rows, "messages": total, "lost": lost, "payloads_equal": checked, "report": page}
            )
        )
    else:
        right = ("messages", "rate/s", "bytes", "latency p50", "p99", "lost")
        shown = output.table(None, "stream", *right, right=right)
        for row in rows:
            shown.add_row(
                row["stream"].removeprefix("log:"),
                output.count(row["messages"]),
                output.count(row["rate"]),
                output.size(row["bytes"]),
                output.duration(row["latency_p50_ns"]),
                output.duration(row["latency_p99_ns"]),
                output.count(row["lost"]),
            )
        console.print()
        console.print(shown)
        console.print(
            f"\n{total:,} messages to {SUBSCRIBERS} subscribers and the recorder; {outcome.total_rows:,} in the table messages; {lost:,} lost."
        )
        if checked is not None:
            console.print(f"{checked:,} payloads compared with the files: all equal.")
        console.print(f"Report: {page}")
    if lost:
        raise penstock.PenstockError(f"{lost} messages were lost on the way")
    sys.stdout.flush()
