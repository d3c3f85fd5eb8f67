"""What the demo publishes: this host's telemetry by psutil, or a folder of recorded sensor streams.

Knows the shapes of messages and their rhythm; opens no channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.cli.channels import npz_records

CPU = np.dtype([("core", "u2"), ("user", "f8"), ("system", "f8"), ("idle", "f8"), ("iowait", "f8")])
MEMORY = np.dtype([("total", "u8"), ("available", "u8"), ("used", "u8"), ("cached", "u8"), ("swap_used", "u8")])
NETWORK = np.dtype(
    [("bytes_sent", "u8"), ("bytes_recv", "u8"), ("packets_sent", "u8"), ("packets_recv", "u8"), ("dropped", "u8")]
)
LOAD = np.dtype([("load", "f8", (3,)), ("context_switches", "u8"), ("interrupts", "u8")])

# One publishing process per group; the rate is in samples per second, and a sample may be several messages.
TELEMETRY = {
    "cores": ["log:demo.cpu", "log:demo.load"],
    "memory": ["log:demo.memory", "log:demo.network"],
    "tables": ["log:demo.disk", "log:demo.process"],
}
RATES = {
    "log:demo.cpu": 2000.0,
    "log:demo.load": 1000.0,
    "log:demo.memory": 3000.0,
    "log:demo.network": 1000.0,
    "log:demo.disk": 200.0,
    "log:demo.process": 10.0,
}
CODECS: dict[str, Any] = {
    "log:demo.cpu": CPU,
    "log:demo.load": LOAD,
    "log:demo.memory": MEMORY,
    "log:demo.network": NETWORK,
    "log:demo.disk": "json",
    "log:demo.process": "msgpack",
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
    import psutil

    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        yield (core, times.user, times.system, times.idle, getattr(times, "iowait", 0.0))


def _load() -> Iterator[Any]:
    import psutil

    stats = psutil.cpu_stats()
    yield (psutil.getloadavg(), stats.ctx_switches, stats.interrupts)


def _memory() -> Iterator[Any]:
    import psutil

    memory = psutil.virtual_memory()
    yield (memory.total, memory.available, memory.used, getattr(memory, "cached", 0), psutil.swap_memory().used)


def _network() -> Iterator[Any]:
    import psutil

    counters = psutil.net_io_counters()
    yield (
        counters.bytes_sent,
        counters.bytes_recv,
        counters.packets_sent,
        counters.packets_recv,
        counters.dropin + counters.dropout,
    )


def _disk() -> Iterator[Any]:
    import psutil

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
    import psutil

    for process in psutil.process_iter(["pid", "name", "num_threads", "memory_info"]):
        about = process.info
        memory = about["memory_info"]
        yield {
            "pid": about["pid"],
            "name": about["name"],
            "threads": about["num_threads"],
            "rss": memory.rss if memory else None,
        }


SAMPLERS: dict[str, Callable[[], Iterator[Any]]] = {
    "log:demo.cpu": _cpu,
    "log:demo.load": _load,
    "log:demo.memory": _memory,
    "log:demo.network": _network,
    "log:demo.disk": _disk,
    "log:demo.process": _process,
}


def telemetry(channels: list[str], seconds: float) -> Iterator[tuple[str, Any]]:
    """(channel, message) of some channels, each at its rate, for some time. A late sample is taken at once, not skipped."""
    begun = time.monotonic()
    due = dict.fromkeys(channels, begun)
    while True:
        channel = min(due, key=due.__getitem__)
        now = time.monotonic()
        if now - begun >= seconds:
            return
        if due[channel] > now:
            time.sleep(min(due[channel] - now, seconds))
        for message in SAMPLERS[channel]():
            yield channel, message
        due[channel] = max(due[channel] + 1 / RATES[channel], time.monotonic() - 0.1)


def drive_channels(data: Path) -> list[str]:
    """The channels for a folder of sensor streams: one per file of a known name."""
    return [f"log:drive.{name}" for name in DRIVE_STREAMS if (data / f"{name}.npz").is_file()]


def drive_records(data: Path, channel: str) -> tuple[Any, Any]:
    """(records, times) of one of the drive's streams."""
    return npz_records(data / f"{channel.removeprefix('log:drive.')}.npz")


def drive(data: Path, channels: list[str]) -> Iterator[tuple[str, Any]]:
    """(channel, record) of all streams, in the order of their times."""
    streams = [drive_records(data, channel) for channel in channels]
    times = np.concatenate([times for _, times in streams])
    which = np.repeat(np.arange(len(streams)), [len(records) for records, _ in streams])
    index = np.concatenate([np.arange(len(records)) for records, _ in streams])
    for at in np.argsort(times, kind="stable"):
        stream = which[at]
        yield channels[stream], streams[stream][0][index[at]]
