"""What the demo's processes do: publish, subscribe and measure, compare. Functions that a spawned child can import."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.demo.sources import BURST, CODECS, burst, drive, drive_records, telemetry

# Per kind: how a stream's channel is made, and where readers begin. The burst's ring is small, so that it is lapped.
OPTIONS: dict[str, dict[str, Any]] = {"log": {"term_length": 4 << 20}, "ring": {"capacity": 4 << 20}}
START = {"log": "earliest", "ring": "newest"}
BURST_CAPACITY = 1 << 18


def make_channel(kind: str, stream: str, data: Path | None) -> None:
    """Makes a channel with the codec of what will flow on it."""
    codec = CODECS[stream] if stream in CODECS else drive_records(data, stream)[0].dtype  # type: ignore[arg-type]
    options = {"capacity": BURST_CAPACITY} if stream == BURST else OPTIONS[kind]
    penstock.publish(f"{kind}:{stream}", codec=codec, **options).close()


def publish(kind: str, streams: list[str], seconds: float, data: str | None) -> None:
    """A publishing process."""
    open_channels = {stream: penstock.publish(f"{kind}:{stream}") for stream in streams}
    if streams == [BURST]:
        for batch in burst():
            open_channels[BURST].offer_many(batch)
        source: Any = ()
    else:
        source = telemetry(streams, seconds) if data is None else drive(Path(data), streams)
    for stream, message in source:
        open_channels[stream].send(message)
    for publication in open_channels.values():
        publication.close()


def subscribe(kind: str, channels: list[str], ready: Any, done: Any, results: Any) -> None:
    """A subscribing process: reads everything from the beginning, counts, and measures how long messages took."""
    import pyarrow  # noqa: F401  (loaded before the first message, so that it is not part of its latency)

    subscriptions = {channel: penstock.subscribe(channel, start=START[kind]) for channel in channels}
    by_handle = {id(handle): channel for channel, handle in subscriptions.items()}
    found: dict[str, dict[str, Any]] = {channel: {"messages": 0, "bytes": 0, "latency": []} for channel in channels}
    ready.set()
    while True:
        last_look = done.is_set()
        with_data = penstock.wait(list(subscriptions.values()), 0.05)
        for handle in with_data:
            batch = handle.poll_arrow(10_000)
            now = time.time_ns()
            entry = found[by_handle[id(handle)]]
            entry["messages"] += batch.num_rows
            entry["bytes"] += int(
                np.diff(np.frombuffer(batch.column("payload").buffers()[1], np.int32)[[0, batch.num_rows]])[0]
            )
            entry["latency"].append(now - batch.column("time").cast("int64").to_numpy())
        if last_look and not with_data:
            break
    for channel, handle in subscriptions.items():
        found[channel]["lost"] = handle.lost_messages or 0
        handle.close()
    empty = [np.zeros(0, np.int64)]
    results.put({c: {**f, "latency_ns": np.concatenate(f["latency"] or empty)} for c, f in found.items()})


def rows_in_table(tables: Path) -> dict[str, int]:
    """Rows per stream in the table *messages*."""
    from penstock.spark.tables import Manifest

    found: dict[str, int] = {}
    for row in Manifest.load(tables).files["messages"]:
        found[row["stream"]] = found.get(row["stream"], 0) + row["rows"]
    return found


def lost_in_table(tables: Path) -> dict[str, int]:
    """Bytes that the rows of the table *messages* say are missing right before them, per stream."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from penstock.spark.tables import Manifest

    found: dict[str, int] = {}
    for row in Manifest.load(tables).files["messages"]:
        lost = pc.sum(pq.read_table(tables / row["path"], columns=["lost"])["lost"]).as_py()
        found[row["stream"]] = found.get(row["stream"], 0) + (lost or 0)
    return found


def compare_drive(data: Path, tables: Path, kind: str, incomplete: set[str]) -> int:
    """Compares every payload in the table *messages* with the drive's files, in order; how many. Raises if one differs.

    Channels in `incomplete` have lost messages, which were counted, and are left out.
    """
    import pyarrow.parquet as pq

    from penstock.cli.demo.sources import drive_streams
    from penstock.spark.tables import paths

    total = 0
    for stream in drive_streams(data):
        channel = f"{kind}:{stream}"
        if channel in incomplete:
            continue
        records, _ = drive_records(data, stream)
        files = sorted(paths(tables, "messages", stream=channel))
        read = [pq.read_table(file, columns=["position", "payload"]) for file in files]
        rows = sorted((batch["position"][0].as_py(), number) for number, batch in enumerate(read))
        payloads = b"".join(b"".join(read[number]["payload"].to_pylist()) for _, number in rows)
        if payloads != records.tobytes():
            raise penstock.Corrupt(f"{channel}: the payloads in the table messages are not those of the file")
        total += len(records)
    return total
