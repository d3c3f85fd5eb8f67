"""What the demo's processes do: publish, subscribe and measure, compare. Functions that a spawned child can import."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.demo.sources import CODECS, drive, drive_records, telemetry

TERM_LENGTH = 4 << 20


def make_channel(channel: str, data: Path | None) -> None:
    """Makes a channel with the codec of what will flow on it."""
    codec = drive_records(data, channel)[0].dtype if data is not None else CODECS[channel]
    penstock.publish(channel, codec=codec, term_length=TERM_LENGTH).close()


def publish(channels: list[str], seconds: float, data: str | None) -> None:
    """A publishing process."""
    open_channels = {channel: penstock.publish(channel) for channel in channels}
    source = telemetry(channels, seconds) if data is None else drive(Path(data), channels)
    for channel, message in source:
        open_channels[channel].send(message)
    for publication in open_channels.values():
        publication.close()


def subscribe(number: int, channels: list[str], ready: Any, done: Any, results: Any) -> None:
    """A subscribing process: reads everything from the beginning, counts, and measures how long messages took."""
    import pyarrow  # noqa: F401  (loaded before the first message, so that it is not part of its latency)

    subscriptions = {channel: penstock.subscribe(channel, start="earliest") for channel in channels}
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
    for handle in subscriptions.values():
        handle.close()
    empty = [np.zeros(0, np.int64)]
    results.put(
        {
            c: {"messages": f["messages"], "bytes": f["bytes"], "latency_ns": np.concatenate(f["latency"] or empty)}
            for c, f in found.items()
        }
    )


def rows_in_table(tables: Path) -> dict[str, int]:
    """Rows per stream in the table *messages*."""
    from penstock.spark.tables import Manifest

    found: dict[str, int] = {}
    for row in Manifest.load(tables).files["messages"]:
        found[row["stream"]] = found.get(row["stream"], 0) + row["rows"]
    return found


def compare_drive(data: Path, tables: Path) -> int:
    """Compares every payload in the table *messages* with the drive's files, in order; how many. Raises if one differs."""
    import pyarrow.parquet as pq

    from penstock.cli.demo.sources import drive_channels
    from penstock.spark.tables import paths

    total = 0
    for channel in drive_channels(data):
        records, _ = drive_records(data, channel)
        files = sorted(paths(tables, "messages", stream=channel))
        read = [pq.read_table(file, columns=["position", "payload"]) for file in files]
        rows = sorted((batch["position"][0].as_py(), number) for number, batch in enumerate(read))
        payloads = b"".join(b"".join(read[number]["payload"].to_pylist()) for _, number in rows)
        if payloads != records.tobytes():
            raise penstock.Corrupt(f"{channel}: the payloads in the table messages are not those of the file")
        total += len(records)
    return total
