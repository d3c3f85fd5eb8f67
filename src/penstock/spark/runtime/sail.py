"""Sail, an engine for Spark's queries without a JVM: its server in a process of its own, a session on it, and what it gives data sources.

`python -m penstock.spark.runtime.sail` is that server. It ends with its standard input, so also when the process that began it is killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PACKAGES = ("pysail", "pyspark", "sqlglot", "pandas", "grpc", "grpc_status", "zstandard")
NEWEST = (4, 2)  # PySpark's version whose settings Sail 0.7 has; it begins no session for a newer one
END_S = 5.0  # in which the server ends by itself
SETTINGS = {"spark.sql.session.timeZone": "UTC"}


def check(what: str) -> None:
    """`MissingPackage`, with the command that installs it, if a package is missing. what: the subject of that sentence."""
    check_installed(*PACKAGES, what=what, extra="sail")


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    """A session of Spark Connect on a server of its own, which ends with it. It listens on this machine's loopback address."""
    check("Sail")
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    with subprocess.Popen(
        [sys.executable, "-m", "penstock.spark.runtime.sail"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C is for the process that asks
        env={"RUST_LOG": "off", **os.environ},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            if not (port := server.stdout.readline().strip()):
                raise PenstockError(f"Sail's server ended with status {server.wait()} before it was ready")
            made: Any = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
            try:
                made.client.set_retry_policies([DefaultPolicy(max_retries=2)])  # it is here, or it has ended
                for name, value in SETTINGS.items():
                    made.conf.set(name, value)
                yield made
            finally:
                made.stop()
        finally:
            server.stdin.close()
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:  # of a query that was interrupted
                server.kill()


def arrow_schema(schema: StructType | pa.Schema) -> pa.Schema:
    """The schema that a reader is given, as Arrow's: Sail gives it so, and takes batches of exactly these types."""
    if isinstance(schema, pa.Schema):
        return schema
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def cast_to(schema: StructType | pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that Spark takes as they are, with the types that Sail wants: its times have the time zone of the session."""
    for batch in batches:
        yield batch.cast(schema) if isinstance(schema, pa.Schema) else batch


def is_server() -> bool:
    """Whether this process serves Sail: there, a data source says its columns as Arrow's."""
    return "pysail._native" in sys.modules


def main() -> None:
    """Serves until standard input ends."""
    import pyspark

    if tuple(map(int, pyspark.__version__.split(".")[:2])) > NEWEST:
        pyspark.__version__ = f"{NEWEST[0]}.{NEWEST[1]}.0"
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    print(server.listening_address[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
