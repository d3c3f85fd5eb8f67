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
import pyarrow.parquet as pq

from penstock.record.archive import Scanner
from penstock.spark.decode import decode

COMMON = (
    "stream STRING, session INT, position BIGINT, time TIMESTAMP, timestamp_ns BIGINT, recorded_ns BIGINT, "
    "interval_ns BIGINT, lost BIGINT, payload BINARY, decode_error STRING"
)
MESSAGE_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "lost", "payload")
RAW_COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "flags", "payload")
BATCH_ROWS = 65536


def file_stem(task: dict[str, Any]) -> str:
    """A name for a range's files: readable, unique, the same in every run."""
    planned = task["range"]
    digest = hashlib.sha256(json.dumps([planned["channel"], planned["epoch"], planned["recording"]]).encode()).hexdigest()[:8]
    clean = re.sub(r"[^A-Za-z0-9._-]", "_", planned["channel"])
    return f"{clean}-{digest}-{planned['start']:020d}-{planned['end']:020d}"


class _Writer:
    """A Parquet file that gets its name once it is complete."""

    def __init__(self, out: Path, table: str, stem: str, compression: str) -> None:
        self.relative = f"{table}/{stem}.parquet"
        self.path = out / self.relative
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        self.compression, self.writer, self.rows = compression, None, 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.temporary, batch.schema, compression=self.compression, use_dictionary=["stream"], write_statistics=True
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
    """Writes one range into *raw* and *messages*; what was written."""
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
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(task["schema"])))
        for batch in scanner:
            messages.write(enrich(batch, planned["codec"], schema, before))
            before = batch.column("timestamp_ns")[-1].as_py()
        files["messages"] = messages.close()
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
    names = [*MESSAGE_COLUMNS[:6], "interval_ns", "lost", "payload", "decode_error"]
    arrays = [interval if n == "interval_ns" else errors if n == "decode_error" else batch.column(n) for n in names]
    return pa.RecordBatch.from_arrays([*arrays, *typed], names=[*names, *schema.names])
