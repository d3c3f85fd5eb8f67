"""The demo: the whole job on real data. Publishing processes, subscribing processes, a recorder, Spark, a report.

Knows the order of the steps. A kind's demo has the differences; `flow` runs it, `checks` compares, `cli.report` draws.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock.channels.storage import access, files
from penstock.cli import report
from penstock.cli.demo import checks
from penstock.cli.demo.flow import Demo, flow
from penstock.cli.demo.network import Networks
from penstock.cli.demo.sources import DRIVE_STREAMS, drive_streams
from penstock.cli.report import sources
from penstock.cli.terminal import output

DEMOS: dict[str, type[Demo]] = {demo.kind: demo for demo in (Demo, Networks)}


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """Channels of the demo are in a separate folder, which is removed in any case."""
    before, share = os.environ.get("PENSTOCK_DIR"), os.environ.get(access.VARIABLE)
    if share:
        with files.opened_folder(create=True):
            pass
    elif before:
        os.makedirs(before, mode=0o700, exist_ok=True)
    parent = before or ("/dev/shm" if os.access("/dev/shm", os.W_OK, effective_ids=True) else None)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=parent, ignore_cleanup_errors=True) as folder:
        os.environ["PENSTOCK_DIR"] = folder
        os.environ.pop(access.VARIABLE, None)
        try:
            yield
        finally:
            del os.environ["PENSTOCK_DIR"]
            os.environ.update({} if before is None else {"PENSTOCK_DIR": before})
            os.environ.update({access.VARIABLE: share} if share else {})


@contextlib.contextmanager
def _step(text: str, quiet: bool) -> Iterator[None]:
    """Prints a step, with the time it took."""
    begun = time.monotonic()
    with output.steps(text, quiet=quiet, counted=False):
        yield
    if not quiet:
        output.note(("✓", "green"), f" {text} ", (f"{time.monotonic() - begun:.1f} s", "dim"))


def run(
    *, seconds: float, data: Path | None, out: Path, as_json: bool, kind: str = "log", own: Sequence[Path] = ()
) -> None:
    """The demo, from nothing to the report. Raises `PenstockError` if a message was changed, or is missing."""
    if seconds <= 0:
        raise penstock.Invalid(f"--seconds is {seconds}: it must be more than 0")
    from penstock.spark.parsing import definitions

    if data is not None and not data.is_dir():
        raise penstock.NotFound(f"--data {output.path(data)}: there is no such folder")
    if data is not None and not drive_streams(data):
        raise penstock.NotFound(f"{data} holds none of the drive's streams ({', '.join(DRIVE_STREAMS)})")
    definitions.load(own)
    _clear(out)
    demo = DEMOS[kind](seconds, data)
    archive, tables, page = out / "archive", out / "tables", out / "report.html"
    with _own_folder(), _step(demo.about, as_json):
        measured = flow(demo, archive)
    with _step("verified the recordings, byte by byte", as_json):
        opened = penstock.Archive(archive)
        damage = opened.verify()
        if damage:
            raise penstock.Corrupt(f"{damage[0].path}: {damage[0].what}")
        recorded = opened.list()
    with _step("ran the Spark pipeline: tables messages, losses, and one per stream", as_json):
        outcome = _tables(archive, tables, own)
    checked = None
    if data is not None:
        what = "compared every payload and every decoded column in the tables with the drive's files"
        with _step(what, as_json):
            by_stream = {demo.name(channel): channel for channel in demo.channels}
            checked = checks.compare_drive(data, tables, by_stream)
    elif measured["copies"]:
        with _step("compared every decoded column in the tables with the messages that the senders kept", as_json):
            by_channel = {channel: options["codec"] for channel, options in demo.channels.items()}
            checked = checks.compare_copies(measured["copies"], by_channel, tables)
    with _step("compared the sent messages with each reader's, and with Spark's tables", as_json):
        checks.every_message_is_accounted_for(recorded, measured, tables)
    rows = _summary(demo, recorded, measured, tables)
    made = [one.name for one in outcome.own]
    with _step("drew the report", as_json):
        _draw(page, rows, measured, tables, "this host" if data is None else "a drive", made)
    _print_outcome(rows, measured, outcome, checked, page, as_json)


def _clear(out: Path) -> None:
    for name in ("archive", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)


def _tables(archive: Path, out: Path, own: Sequence[Path]) -> Any:
    from penstock.spark import pipeline, session
    from penstock.spark.runtime import jvm

    spark = session("penstock-demo")
    try:
        outcome = pipeline.run(spark, archive, out, own=own)
    finally:
        jvm.stop(spark)
    if failed := [one.error for one in outcome.own if one.error]:
        raise penstock.PenstockError(failed[0])
    return outcome


def _summary(demo: Demo, recorded: list[Any], measured: dict[str, Any], tables: Path) -> list[dict[str, Any]]:
    """One row per stream: messages, rate, and losses anywhere."""
    import numpy as np

    in_table = checks.rows_in_table(tables)
    rows = []
    for info in recorded:
        sent = measured["sent"][info.channel]
        received = [result[info.channel]["messages"] for result in measured["subscribers"]]
        latency = np.concatenate([result[info.channel]["latency_ns"] for result in measured["subscribers"]])
        missing = [*(sent - count for count in received), sent - in_table[info.channel]]
        rows.append(
            {
                "stream": info.channel,
                "name": demo.name(info.channel),
                "messages": sent,
                "rate": sent / info.seconds if info.seconds > 0 else 0.0,
                "bytes": sum(result[info.channel]["bytes"] for result in measured["subscribers"])
                // max(len(received), 1),
                "latency_p50_ns": float(np.percentile(latency, 50)) if len(latency) else None,
                "latency_p99_ns": float(np.percentile(latency, 99)) if len(latency) else None,
                "lost": sum(missing),
            }
        )
    return rows


def _draw(
    page: Path, rows: list[dict[str, Any]], measured: dict[str, Any], tables: Path, what: str, own: Sequence[str]
) -> None:
    """The report: times from the table *messages*, latencies as the subscribers measured them."""
    import numpy as np

    times = {stream.channel: stream.times for stream in report.collect(tables)}
    readers = measured["subscribers"]
    streams = [
        report.Stream(
            row["stream"],
            times=times.get(row["stream"], np.zeros(0, np.int64)),
            latencies=np.concatenate([result[row["stream"]]["latency_ns"] for result in readers]),
            bytes=row["bytes"],
            messages=row["messages"],
            lost=row["lost"],
            shown=row["name"],
        )
        for row in rows
    ]
    about = report.About(
        title=what,
        headline="Every message, end to end",
        subtitle=f"Published from {what}, read by {len(readers)} processes, recorded, and turned into tables by Spark.",
        latency="Latency is from the send's time stamp to a subscriber's read, over all subscribers.",
    )
    report.write(page, streams, sources.parts(tables, [one.channel for one in streams if len(one.times)], own), about)


def _print_outcome(
    rows: list[dict[str, Any]],
    measured: dict[str, Any],
    outcome: Any,
    checked: int | None,
    page: Path,
    as_json: bool,
) -> None:
    total, lost = sum(row["messages"] for row in rows), sum(row["lost"] for row in rows)
    readers, by_type = len(measured["subscribers"]), measured.get("by_type")
    if as_json:
        summary = {"streams": rows, "messages": total, "lost": lost, "payloads_equal": checked, "report": page}
        if by_type:
            summary["senders"] = [{"sender": s, "type": t, "messages": n} for (s, t), n in sorted(by_type.items())]
        print(output.as_json(summary))
    else:
        right = ("messages", "rate/s", "bytes", "latency p50", "p99", "lost")
        shown = output.table("stream", *right, right=right)
        for row in rows:
            shown.add_row(
                row["name"],
                output.count(row["messages"]),
                output.count(row["rate"]),
                output.size(row["bytes"]),
                output.duration(row["latency_p50_ns"]),
                output.duration(row["latency_p99_ns"]),
                output.count(row["lost"]),
            )
        output.say()
        output.show(shown)
        if by_type:
            senders = output.table("who", "what", "messages", right=("messages",))
            for (sender, kind), count in sorted(by_type.items()):
                senders.add_row(sender, kind, output.count(count))
            output.show(senders)
        output.say()
        output.say(
            f"{total:,} messages to {readers} subscribers and the recorder; {outcome.total_rows:,} in the table messages; "
            f"{lost:,} lost."
        )
        if "summary" in measured:
            output.say(measured["summary"])
        if checked is not None:
            source = "what was sent" if measured["copies"] else "the files"
            output.say(f"{checked:,} payloads and all their decoded columns compared with {source}: all equal.")
        for one in outcome.own:
            output.say(f"{one.name}: {output.many(one.rows, 'row')}, made of the other tables in {one.seconds:.1f} s.")
        output.say(f"Report: {output.path(page)}")
    sys.stdout.flush()
