"""The messages of the demo: this host's telemetry by psutil, or a folder of recorded sensor streams.

Knows the shapes of messages and their rhythm; opens no channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from penstock.cli.channels.publishing import npz_records

CPU = np.dtype([("core", "u2"), ("user", "f8"), ("system", "f8"), ("idle", "f8"), ("iowait", "f8")])
MEMORY = np.dtype([("total", "u8"), ("available", "u8"), ("used", "u8"), ("cached", "u8"), ("swap_used", "u8")])
NETWORK = np.dtype(
    [("bytes_sent", "u8"), ("bytes_recv", "u8"), ("packets_sent", "u8"), ("packets_recv", "u8"), ("dropped", "u8")]
)
LOAD = np.dtype([("load", "f8", (3,)), ("context_switches", "u8"), ("interrupts", "u8")])

# One publishing process per group.
TELEMETRY = {
    "cores": ["demo.cpu", "demo.load"],
    "memory": ["demo.memory", "demo.network"],
    "tables": ["demo.disk", "demo.process"],
}
DRIVE_STREAMS = (
    "can",
    "accelerometer",
    "gyro",
    "magnetometer",
    "gnss_ublox",
    "gnss_raw_ublox",
    "speed",
    "wheel_speed",
    "steering_angle",
    "radar",
)


def _cpu() -> Iterator[Any]:
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        yield (core, times.user, times.system, times.idle, getattr(times, "iowait", 0.0))


def _load() -> Iterator[Any]:
    stats = psutil.cpu_stats()
    yield (psutil.getloadavg(), stats.ctx_switches, stats.interrupts)


def _memory() -> Iterator[Any]:
    memory = psutil.virtual_memory()
    yield (memory.total, memory.available, memory.used, getattr(memory, "cached", 0), psutil.swap_memory().used)


def _network() -> Iterator[Any]:
    counters = psutil.net_io_counters()
    yield (
        counters.bytes_sent,
        counters.bytes_recv,
        counters.packets_sent,
        counters.packets_recv,
        counters.dropin + counters.dropout,
    )


def _disk() -> Iterator[Any]:
    for name, counters in (psutil.disk_io_counters(perdisk=True) or {}).items():
        yield {
            "device": name,
            "reads": counters.read_count,
            "writes": counters.write_count,
            "read_bytes": counters.read_bytes,
            "write_bytes": counters.write_bytes,
        }
    usage = psutil.disk_usage("/")
    yield {"device": "/", "used": usage.used, "free": usage.free}


def _process() -> Iterator[Any]:
    for process in psutil.process_iter(["pid", "name", "num_threads", "memory_info"]):
        about = process.info
        memory = about["memory_info"]
        yield {
            "pid": about["pid"],
            "name": about["name"],
            "threads": about["num_threads"],
            "rss": memory.rss if memory else None,
        }


# Of each stream: its sampler, samples per second, and its codec. A sample may be several messages.
STREAMS: dict[str, tuple[Callable[[], Iterator[Any]], float, Any]] = {
    "demo.cpu": (_cpu, 2000.0, CPU),
    "demo.load": (_load, 1000.0, LOAD),
    "demo.memory": (_memory, 3000.0, MEMORY),
    "demo.network": (_network, 1000.0, NETWORK),
    "demo.disk": (_disk, 200.0, "json"),
    "demo.process": (_process, 10.0, "msgpack"),
}
CODECS: dict[str, Any] = {stream: codec for stream, (_, _, codec) in STREAMS.items()}


def telemetry(streams: list[str], seconds: float) -> Iterator[tuple[str, Any]]:
    """(stream, message) of some streams, each at its rate, for some time. A late sample is taken at once, not skipped."""
    begun = time.monotonic()
    due = dict.fromkeys(streams, begun)
    while True:
        stream = min(due, key=due.__getitem__)
        now = time.monotonic()
        if now - begun >= seconds:
            return
        if due[stream] > now:
            time.sleep(min(due[stream] - now, seconds))
        for message in STREAMS[stream][0]():
            yield stream, message
        due[stream] = max(due[stream] + 1 / STREAMS[stream][1], time.monotonic() - 0.1)


def drive_streams(data: Path) -> list[str]:
    """The streams of a folder of sensor data: one per file of a known name."""
    return [f"drive.{name}" for name in DRIVE_STREAMS if (data / f"{name}.npz").is_file()]


def drive_records(data: Path, stream: str) -> tuple[Any, Any]:
    """(records, times) of one of the drive's streams."""
    return npz_records(data / f"{stream.removeprefix('drive.')}.npz")


def drive(data: Path, names: list[str]) -> Iterator[tuple[str, Any]]:
    """(stream, record) of all streams, in the order of their times."""
    streams = [drive_records(data, name) for name in names]
    times = np.concatenate([times for _, times in streams])
    which = np.repeat(np.arange(len(streams)), [len(records) for records, _ in streams])
    index = np.concatenate([np.arange(len(records)) for records, _ in streams])
    for at in np.argsort(times, kind="stable"):
        stream = which[at]
        yield names[stream], streams[stream][0][index[at]]
