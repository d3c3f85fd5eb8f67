"""What one task of the pipeline does: reads a range of a recording, writes its share of the tables with pyarrow.

Runs on executors. Gets everything in its argument and answers with what it wrote; knows no Spark.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.record.archive import Scanner
from penstock.spark.decode import decode

COMMON = (
    "stream STRING, session INT, position BIGINT, time TIMESTAMP, timestamp_ns BIGINT, recorded_ns BIGINT, "
    "interval_ns BIGINT, lost BIGINT, bytes INT, payload BINARY, decode_error STRING"
)
MESSAGE_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "lost", "payload")
RAW_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "flags", "payload")
BATCH_ROWS = 65536


def file_stem(task: dict[str, Any]) -> str:
    """A name for a range's files: readable, unique, the same in every run."""
    planned = task["range"]
    digest = hashlib.sha256(
        json.dumps([planned["channel"], planned["epoch"], planned["recording"]]).encode()
    ).hexdigest()[:8]
    clean = re.sub(r"[^A-Za-z0-9._-]", "_", planned["channel"])
    return f"{clean}-{digest}-{planned['start']:020d}-{planned['end']:020d}"


class _Writer:
    """A Parquet file that gets its name once it is complete."""

    def __init__(self, out: Path, table: str, stem: str, compression: str) -> None:
        self.relative = f"{table}/{stem}.parquet"
        self.path = out / self.relative
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        self.compression, self.rows = compression, 0
        self.writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.temporary,
                batch.schema,
                compression=self.compression,
                use_dictionary=["stream"],
                write_statistics=True,
            )
        self.writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> dict[str, Any] | None:
        if self.writer is None:
            return None
        self.writer.close()
        os.replace(self.temporary, self.path)
        return {"path": self.relative, "rows": self.rows, "bytes": self.path.stat().st_size}


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Does one task and says what was written."""
    return _write_stats(task) if task["kind"] == "stats" else _write_range(task)


def _write_range(task: dict[str, Any]) -> dict[str, Any]:
    """One range of a recording into *raw* and *messages*."""
    planned, out, stem = task["range"], Path(task["out"]), file_stem(task)
    segments = [tuple(pair) for pair in planned["segments"]]
    span = {"start": planned["start"], "end": planned["end"], "batch_rows": BATCH_ROWS}
    files: dict[str, Any] = {}
    end = planned["end"]
    if "raw" in task["tables"]:
        raw = _Writer(out, "raw", stem, task["compression"])
        for batch in Scanner(segments, planned["channel"], RAW_COLUMNS, frames=True, **span):
            raw.write(batch)
        files["raw"] = raw.close()
    if "messages" in task["tables"]:
        messages = _Writer(out, "messages", stem, task["compression"])
        scanner = Scanner(segments, planned["channel"], MESSAGE_COLUMNS, **span)
        before = planned["before_ns"]
        low, high = (1 << 63) - 1, -(1 << 63)
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(task["schema"])))
        for batch in scanner:
            messages.write(enrich(batch, planned["codec"], schema, before))
            times = batch.column("timestamp_ns").to_numpy()
            before, low, high = int(times[-1]), min(low, int(times.min())), max(high, int(times.max()))
        files["messages"] = messages.close()
        if files["messages"]:
            files["messages"] |= {"time_min": low, "time_max": high}
        if planned["open_end"]:
            end = min(end, scanner.resume)  # a message not complete yet belongs to the next run
    rows = files.get("messages") or files.get("raw") or {"rows": 0}
    return {
        "stream": planned["channel"],
        "rows": rows["rows"],
        "files": {name: entry for name, entry in files.items() if entry is not None},
        "done": {"channel": planned["channel"], "epoch": planned["epoch"], "start": planned["start"], "end": end},
    }


def enrich(batch: pa.RecordBatch, codec: dict[str, Any], schema: pa.Schema, before_ns: int) -> pa.RecordBatch:
    """A batch of messages with the time since the message before, and the columns that the codec gives."""
    times = batch.column("timestamp_ns").to_numpy()
    earlier = np.concatenate([[before_ns if before_ns else times[0]], times[:-1]]) if len(times) else times
    interval = pa.array(times - earlier, pa.int64())
    typed, errors = decode(codec, schema, batch.column("payload"))
    made = {"interval_ns": interval, "decode_error": errors, "bytes": pc.binary_length(batch.column("payload"))}
    if codec.get("pixels"):  # they have a column of their own
        made["payload"] = pc.if_else(pc.is_null(errors), pa.scalar(None, pa.binary()), batch.column("payload"))
    names = [*MESSAGE_COLUMNS[:6], "interval_ns", "lost", "bytes", "payload", "decode_error"]
    arrays = [made[name] if name in made else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays([*arrays, *typed], names=[*names, *schema.names])


# ---- the table stats ----

STATS = pa.schema(
    [
        ("stream", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("rate", pa.float64()),
        ("interval_p50_ns", pa.float64()),
        ("interval_p99_ns", pa.float64()),
        ("latency_p50_ns", pa.float64()),
        ("latency_p99_ns", pa.float64()),
        ("lost_bytes", pa.int64()),
        ("decode_errors", pa.int64()),
    ]
)
STATS_COLUMNS = ["timestamp_ns", "interval_ns", "recorded_ns", "lost", "bytes", "decode_error"]


def _write_stats(task: dict[str, Any]) -> dict[str, Any]:
    """One stream's windows in [since, until): exact counts and percentiles from the table *messages*."""
    out, width = Path(task["out"]), task["window_ns"]
    wanted = [("timestamp_ns", ">=", task["since"]), ("timestamp_ns", "<", task["until"])]
    tables = [pq.read_table(out / path, columns=STATS_COLUMNS, filters=wanted) for path in task["files"]]
    rows = pa.concat_tables(tables)
    writer = _Writer(out, "stats", task["stem"], task["compression"])
    if rows.num_rows:
        writer.write(summarize(task["stream"], rows, width))
    entry = writer.close()
    return {"stream": task["stream"], "rows": 0, "files": {"stats": entry} if entry else {}, "done": None}


def summarize(stream: str, rows: pa.Table, width: int) -> pa.RecordBatch:
    """One row of *stats* per window of `width` nanoseconds that has messages."""
    times = rows["timestamp_ns"].to_numpy()
    order = np.argsort(times // width, kind="stable")
    windows = (times // width)[order]
    starts = np.flatnonzero(np.diff(windows, prepend=windows[0] - 1))
    counts = np.diff(np.append(starts, len(windows)))
    column = {name: rows[name].to_numpy()[order] for name in ("interval_ns", "recorded_ns", "lost", "bytes")}
    failed = rows["decode_error"].is_valid().to_numpy()[order]
    interval = _percentiles(column["interval_ns"], starts)
    latency = _percentiles(column["recorded_ns"] - times[order], starts)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([stream] * len(starts)),
            pa.array(windows[starts] * width // 1000, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(counts, pa.int64()),
            pa.array(np.add.reduceat(column["bytes"].astype(np.int64), starts)),
            pa.array(counts / (width / 1e9)),
            *[pa.array(values) for values in (*interval, *latency)],
            pa.array(np.add.reduceat(column["lost"], starts)),
            pa.array(np.add.reduceat(failed.astype(np.int64), starts)),
        ],
        schema=STATS,
    )


def _percentiles(values: Any, starts: Any) -> tuple[Any, Any]:
    groups = np.split(values, starts[1:])
    both = np.array([np.percentile(group, (50, 99)) for group in groups])
    return both[:, 0], both[:, 1]
