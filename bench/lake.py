"""What does one query over memory, recordings and tables cost, against DuckDB on the Parquet files alone and a bridge written by hand; and how
old is the newest row that it has? The same query on Spark, against Spark on the table alone, and on Sail, where these are installed."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
import penstock.tables
from bench.ipc import own_channels, tried
from bench.report import Report
from evidence.bounded import Failed, bounded

URI = "log:lake"
DTYPE = np.dtype([("sent", "i8"), ("x", "f8"), ("y", "f4"), ("id", "i4")])
FULL, RECENT, LIVE = (
    "a scan of the whole stream",
    "a query over its last second",
    "the newest row, at 50,000 messages/s",
)
LAKE, PARQUET, BY_HAND = "penstock.lake", "DuckDB, Parquet alone", "subscribe, read and union by hand"
SPARK, ON_SPARK, ON_SAIL = "Spark, the table alone", "penstock.lake, on Spark", "penstock.lake, on Sail"
QUERY = "select count(*), avg(x), max(sent), sum(id) from {}"
RATE, BURST = 50_000, 500


def run(report: Report) -> None:
    """A table of a day, a recording behind it, a channel that goes on."""
    rows, rounds = report.sized(4_000_000, quick=20_000, short=1_000_000), report.sized(15, quick=2, short=15)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm"))
    try:
        with own_channels():
            found = tried(report, LAKE, FULL, "its queries", _measure, folder, rows, rounds) or {}
            if found:
                found |= _by_engines(report, folder, rounds)
                found |= tried(report, LAKE, LIVE, "its newest rows", _freshness, folder, rounds * 5) or {}
            for (case, who, metric, unit), values in found.items():
                report.add(case, who, metric, values, unit)
    finally:
        shutil.rmtree(folder)
    aims(report)


def aims(report: Report) -> None:
    """As fast as the files alone, nearly; at once for the newest rows; and never old."""
    report.at_most(FULL, "processor time, of DuckDB's on the Parquet alone", 1.3, "×", _ratio(report))
    report.at_most(RECENT, "time", 50, "ms", report.get(RECENT, LAKE, "time"))
    behind = "behind the channel as the query began, most"
    report.at_most(LIVE, behind, 0, "ms", report.get(LIVE, LAKE, behind))
    report.at_most(LIVE, "age as the query began, p99", 20, "ms", report.get(LIVE, LAKE, "age as the query began, p99"))


def _ratio(report: Report) -> float | None:
    mine, theirs = (report.get(FULL, who, "processor time") for who in (LAKE, PARQUET))
    return None if not mine or not theirs else mine / theirs


def _has_sail(report: Report) -> bool:
    from penstock.spark.runtime import sail

    try:
        sail.check("Sail")
    except penstock.Unsupported as error:
        report.missing["sail"] = str(error)
        return False
    return True


def _by_engines(report: Report, folder: Path, rounds: int) -> dict[tuple[str, str, str, str], list[float]]:
    engines = [name for name, is_here in (("spark", report.has_spark()), ("sail", _has_sail(report))) if is_here]
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for name in engines:
        try:
            found |= bounded(600, "its queries", _on_engine, name, folder, min(rounds, 5))
        except Failed as error:
            report.failed(ON_SPARK if name == "spark" else ON_SAIL, FULL, error)
    return found


def _measure(folder: Path, count: int, rounds: int) -> dict[tuple[str, str, str, str], list[float]]:
    import duckdb

    archive, tables = penstock.Archive(folder / "archive"), folder / "tables"
    found: dict[tuple[str, str, str, str], list[float]] = {}
    with penstock.publish(URI, codec=DTYPE) as publication, archive.record(URI):
        _send(publication, count)
        while archive.list()[0].messages < count:
            time.sleep(0.01)
        penstock.tables.run(archive.path, tables)
        lake = penstock.lake(tables, archive)
        files = penstock.tables.uris(tables, URI)
        alone = duckdb.connect()
        parquet = QUERY.format(f"read_parquet({files!r}, union_by_name = true)")
        _send(publication, 1000)
        last = "time > now() - interval 1 second"
        for _ in range(rounds):
            _timed(found, FULL, PARQUET, lambda: alone.sql(parquet).fetchall())
            _timed(found, FULL, LAKE, lambda: lake.sql(QUERY.format(f"'{URI}'")))
            _timed(found, FULL, BY_HAND, lambda: _by_hand(alone, archive, files))
            _send(publication, 100)
            _timed(found, RECENT, LAKE, lambda: lake.sql(f"{QUERY.format(repr(URI))} where {last}"))
            _timed(found, RECENT, BY_HAND, lambda: _by_hand(alone, archive, files, last))
    return found


def _on_engine(name: str, folder: Path, rounds: int) -> dict[tuple[str, str, str, str], list[float]]:
    """Times only: most of the work is in other processes."""
    from penstock.cli.tables.engines import session
    from penstock.spark import lake as lakes
    from penstock.spark import table

    found: dict[Any, list[float]] = {}
    lake = penstock.lake(folder / "tables", folder / "archive")
    with session(name, "bench", None) as spark:
        alone = table(spark, folder / "tables", URI)
        asks: dict[str, Callable[[], Any]] = {
            ON_SPARK if name == "spark" else ON_SAIL: lambda: lakes.answer(spark, lake, QUERY.format(f"'{URI}'"))
        }
        if name == "spark":
            asks[SPARK] = lambda: spark.sql(QUERY.format("{alone}"), alone=alone).collect()
        for number in range(rounds + 1):
            for who, ask in asks.items():
                begun = time.perf_counter()
                ask()
                if number:  # the first of each compiles
                    found.setdefault((FULL, who, "time", "ms"), []).append((time.perf_counter() - begun) * 1e3)
    return found


def _send(publication: Any, count: int) -> None:
    made = np.zeros(count, DTYPE)
    made["sent"], made["x"], made["id"] = time.time_ns(), np.arange(count) / 7, np.arange(count) % 1000
    done = 0
    while done < count:
        done += publication.offer_many(made[done : done + 10_000])


def _timed(found: dict[Any, list[float]], case: str, who: str, ask: Callable[[], Any]) -> None:
    begun, worked = time.perf_counter(), time.process_time()
    ask()
    found.setdefault((case, who, "time", "ms"), []).append((time.perf_counter() - begun) * 1e3)
    found.setdefault((case, who, "processor time", "ms"), []).append((time.process_time() - worked) * 1e3)


def _by_hand(connection: Any, archive: penstock.Archive, files: list[str], where: str = "true") -> Any:
    """A user's own bridge: what the recording has beyond the files, and a subscription for the rest, whose writers wait for it."""
    end = connection.sql(f"select max(position) from read_parquet({files!r}, union_by_name = true)").fetchall()[0][0]
    recorded = archive.read(URI, columns=["time", "position", "payload"], decode=True, start=end + 64)
    names = ("time", "sent", "x", "id")
    start = recorded["position"][-1].as_py() + 64 if recorded.num_rows else end + 64
    with penstock.subscribe(URI, start=start) as subscription:
        found = subscription.poll_arrow()
    rows = np.frombuffer(b"".join(found["payload"].to_pylist()), DTYPE)
    time_sent = found["time"].cast(pa.timestamp("us", "UTC"), safe=False)
    connection.register("live", pa.table({"time": time_sent, **{name: rows[name] for name in names[1:]}}))
    connection.register("recorded", recorded.select(list(names)))
    listed = ", ".join(names)
    sql = f"(select {listed} from read_parquet({files!r}, union_by_name = true) union all select * from recorded union all select * from live)"
    return connection.sql(f"{QUERY.format(sql)} where {where}").fetchall()


def _publish(until: float, last: Any) -> None:
    with penstock.publish(URI, codec=DTYPE) as publication:
        begun, sent = time.monotonic(), 0
        while time.monotonic() < until:
            made = np.zeros(BURST, DTYPE)
            made["sent"] = time.time_ns()
            if publication.offer_many(made) == BURST:
                last.value = int(made["sent"][0])
            sent += BURST
            time.sleep(max(0.0, begun + sent / RATE - time.monotonic()))


def _freshness(folder: Path, count: int) -> dict[tuple[str, str, str, str], list[float]]:
    """Ages of the newest row, while no commit is made."""
    lake = penstock.lake(folder / "tables", folder / "archive")
    seconds = 3 + count * 0.1
    context = get_context("spawn")
    last = context.Value("q", 0)
    writer = context.Process(target=_publish, args=(time.monotonic() + seconds, last))
    writer.start()
    behind, began, ended = list[float](), list[float](), list[float]()
    newest = f"select max(sent) from '{URI}' where time > now() - interval 2 seconds"
    while writer.is_alive() and len(began) < count:
        asked, sent = time.time_ns(), last.value
        (found,) = lake.sql(newest).to_pylist()[0].values()
        answered = time.time_ns()
        if sent and found is not None:  # the writer has begun
            behind.append(max(0, sent - found) / 1e6)
            began.append(max(0, asked - found) / 1e6)
            ended.append((answered - found) / 1e6)
    writer.terminate()
    writer.join()
    if len(began) < 2:
        return {}
    return {
        (LIVE, LAKE, "behind the channel as the query began, most", "ms"): [max(behind)],
        (LIVE, LAKE, "age as the query began, p50", "ms"): [statistics.median(began)],
        (LIVE, LAKE, "age as the query began, p99", "ms"): [statistics.quantiles(began, n=100)[-1]],
        (LIVE, LAKE, "age as the answer came, p50", "ms"): [statistics.median(ended)],
    }
