"""The messages of an archive, each once, as they come: a streaming table of Spark Declarative Pipelines."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession


@pipelines.table  # type: ignore[untyped-decorator]
def frames() -> DataFrame:
    """The messages that were recorded since the run before."""
    spark = SparkSession.active()
    return spark.readStream.format("penstock").load(spark.conf.get("penstock.archive"))
