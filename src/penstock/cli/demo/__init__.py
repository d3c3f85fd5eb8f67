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
from penstock.cli.demo import jobs, members, report, workers
from penstock.cli.demo.sources import BURST, DRIVE_STREAMS, TELEMETRY, drive_streams
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


def run(*, seconds: float, data: Path | None, out: Path, as_json: bool, kind: str = "log") -> None:
    """The demo, from nothing to the report. Raises `PenstockError` if a message was changed, or is missing and not counted."""
    if seconds <= 0:
        raise penstock.Invalid(f"--seconds is {seconds}: it must be more than 0")
    if kind in ("sync", "pipe") and data is not None:
        raise penstock.Invalid(
            "--data is for --channels log and ring: here the demo's processes write their own samples"
        )
    if data is not None and not drive_streams(data):
        raise penstock.NotFound(f"{data} holds none of the drive's streams ({', '.join(DRIVE_STREAMS)})")
    _clear(out)
    steps = _Steps(as_json)
    archive = out / "archive"
    with _own_folder():
        groups = [drive_streams(data)] if data is not None else list(TELEMETRY.values())
        if kind == "ring":
            groups.append([BURST])
        if kind == "sync":
            with steps.step(
                f"{len(members.NAMES)} processes wrote and read {seconds:g} s of samples on one queue; one was killed"
            ):
                measured = members.flow(seconds, archive)
            _judge(steps, measured, archive, out, data, kind, as_json)
            return
        if kind == "pipe":
            with steps.step(
                f"{seconds:g} s of jobs for {jobs.WORKERS} workers, one of them killed every {jobs.KILL_EVERY} s"
            ):
                measured = jobs.flow(seconds, archive)
            _judge(steps, measured, archive, out, data, kind, as_json)
            return
        what = "this drive's minute" if data is not None else f"{seconds:g} s of this host's telemetry"
        count = sum(map(len, groups))
        with steps.step(f"published {what} on {count} {kind}s to {SUBSCRIBERS} subscribers, and recorded it"):
            measured = _flow(kind, groups, seconds, data, archive)
    _judge(steps, measured, archive, out, data, kind, as_json)


def _judge(
    steps: _Steps, measured: dict[str, Any], archive: Path, out: Path, data: Path | None, kind: str, as_json: bool
) -> None:
    """From the recordings to the report: everything is compared with what the processes counted."""
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
            incomplete = {info.channel for info in recorded if info.lost_bytes}
            checked = workers.compare_drive(data, out / "tables", kind, incomplete)
    rows = _summary(recorded, measured, out / "tables")
    if kind == "ring":
        with steps.step(
            "compared what each reader counted as lost with what it is missing, and the gaps in Spark with both"
        ):
            _account(recorded, measured, out / "tables")
    if kind == "sync":
        with steps.step("compared senders and types in the table messages with what the members read of each other"):
            found = members.in_table(out / "tables")
            if found != measured["by_type"]:
                raise penstock.PenstockError(f"the table has {found}, the members counted {measured['by_type']}")
    page = out / "report.html"
    with steps.step("drew the report"):
        report.write(page, rows, measured, out / "tables", "a drive" if data is not None else "this host")
    _finish(rows, measured, outcome, checked, page, as_json, lossy=kind == "ring")


def _clear(out: Path) -> None:
    for name in ("archive", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)


def _flow(kind: str, groups: list[list[str]], seconds: float, data: Path | None, archive: Path) -> dict[str, Any]:
    """Publishers and subscribers as processes, the recorder as one more; what the subscribers measured."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    done = context.Event()
    streams = [stream for group in groups for stream in group]
    channels = [f"{kind}:{stream}" for stream in streams]
    for stream in streams:
        workers.make_channel(kind, stream, data)
    ready = [context.Event() for _ in range(SUBSCRIBERS)]
    readers = [
        context.Process(target=workers.subscribe, args=(kind, channels, ready[number], done, results))
        for number in range(SUBSCRIBERS)
    ]
    writers = [
        context.Process(target=workers.publish, args=(kind, group, seconds, str(data) if data else None))
        for group in groups
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
        missing = [*(sent - count for count in received), sent - in_table.get(info.channel, 0)]
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
                "lost": sum(missing),
            }
        )
    return rows


def _account(recorded: list[Any], measured: dict[str, Any], tables: Path) -> None:
    """Every message that a reader did not get it must have counted; the recorder's are the gaps in the table."""
    in_table, gaps = workers.rows_in_table(tables), workers.lost_in_table(tables)
    for info in recorded:
        sent = measured["sent"][info.channel]
        for result in measured["subscribers"]:
            got, lost = result[info.channel]["messages"], result[info.channel]["lost"]
            if got + lost != sent:
                raise penstock.PenstockError(f"{info.channel}: {sent} sent, {got} received, {lost} counted as lost")
        if info.lost_bytes != gaps.get(info.channel, 0):
            raise penstock.PenstockError(
                f"{info.channel}: the recorder lost {info.lost_bytes} bytes, the table has gaps of {gaps.get(info.channel, 0)}"
            )
        if info.messages != in_table.get(info.channel, 0):
            raise penstock.PenstockError(
                f"{info.channel}: {info.messages} recorded, {in_table.get(info.channel, 0)} in the table"
            )


def _finish(
    rows: list[dict[str, Any]],
    measured: dict[str, Any],
    outcome: Any,
    checked: int | None,
    page: Path,
    as_json: bool,
    *,
    lossy: bool,
) -> None:
    total, lost = sum(row["messages"] for row in rows), sum(row["lost"] for row in rows)
    readers, by_type = len(measured["subscribers"]), measured.get("by_type", {})
    if as_json:
        told = {"streams": rows, "messages": total, "lost": lost, "payloads_equal": checked, "report": page}
        if by_type:
            told["senders"] = [{"sender": s, "type": t, "messages": n} for (s, t), n in sorted(by_type.items())]
        print(output.as_json(told))
    else:
        right = ("messages", "rate/s", "bytes", "latency p50", "p99", "lost")
        shown = output.table(None, "stream", *right, right=right)
        for row in rows:
            shown.add_row(
                row["stream"].partition(":")[2],
                output.count(row["messages"]),
                output.count(row["rate"]),
                output.size(row["bytes"]),
                output.duration(row["latency_p50_ns"]),
                output.duration(row["latency_p99_ns"]),
                output.count(row["lost"]),
            )
        console.print()
        console.print(shown)
        if by_type:
            senders = output.table(None, "who", "what", "messages", right=("messages",))
            for (sender, kind), count in sorted(by_type.items()):
                senders.add_row(sender, kind, output.count(count))
            console.print(senders)
        console.print(
            f"\n{total:,} messages to {readers} {measured.get('readers', 'subscribers')} and the recorder; {outcome.total_rows:,} in the table messages; "
            f"{lost:,} lost{', each one counted by the reader that lost it' if lossy and lost else ''}."
        )
        if "said" in measured:
            console.print(measured["said"])
        if checked is not None:
            console.print(f"{checked:,} payloads compared with the files: all equal.")
        console.print(f"Report: {page}")
    if lost and not lossy:
        raise penstock.PenstockError(f"{lost} messages were lost on the way")
    sys.stdout.flush()
