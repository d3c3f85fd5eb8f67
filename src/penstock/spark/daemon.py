"""The process that starts Python workers for Spark on this machine: PySpark's own, with the imports done once, before it forks.

PySpark's daemon imports in every worker, and from a zip file, which Python compiles again each time. A session sets
`spark.python.daemon.module` to this module if workers run where the driver does.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

# Those that workers of the data source and of the pipeline need. None of them starts a thread of its own on import that a fork would miss.
AHEAD = ("numpy", "pyarrow.compute", "pyarrow.parquet", "pyarrow.json", "penstock.spark.source", "penstock.spark.tasks")


def unzip(path: list[str]) -> list[str]:
    """The module search path without PySpark's zip files, if the packages beside them are the same ones, unpacked."""
    packages = os.path.dirname(os.path.dirname(os.path.dirname(_zip(path) or "")))
    if os.path.basename(packages) != "pyspark" or not os.path.exists(os.path.join(packages, "__init__.py")):
        return path
    beside = os.path.dirname(packages)
    kept = [part for part in path if os.path.basename(part) != "pyspark.zip"]
    if os.path.isdir(os.path.join(beside, "py4j")):
        kept = [part for part in kept if not os.path.basename(part).startswith("py4j-")]
    return kept if beside in kept else [beside, *kept]


def _zip(path: list[str]) -> str | None:
    return next((part for part in path if os.path.basename(part) == "pyspark.zip"), None)


def main() -> None:
    """Runs PySpark's daemon."""
    sys.path[:] = unzip(sys.path)
    for name in (*AHEAD, *sys.argv[1:2]):
        try:
            importlib.import_module(name)
        except ImportError:  # the worker that needs it says so
            continue
    from pyspark import daemon

    from penstock.spark.workers import quieten

    quieten(daemon)
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
