"""Spark over archives: the data source `penstock`, and the pipeline that builds tables from recordings.

A guest of the front door. Needs `pyspark>=4.2,<5` and a JVM: `pip install penstock[spark]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def session(name: str = "penstock", *, master: str | None = None, **conf: Any) -> SparkSession:
    """A Spark session set up for Penstock: JVM found, data source registered. See `penstock.spark.jvm`."""
    from penstock.spark.jvm import build_session

    return build_session(name, master=master, conf=conf)


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("penstock")` known to a session, with filters pushed down."""
    from penstock.spark.source import PenstockDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PenstockDataSource)
