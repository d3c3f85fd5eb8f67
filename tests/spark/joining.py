"""A second driver of a session's JVM: a program that is to be killed costs no JVM of its own."""

import os
import sys
from pathlib import Path


def environment_to_join(spark):
    """The environment of a program that calls `joined`."""
    given = spark.sparkContext._gateway.gateway_parameters
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(given.port),
        "PYSPARK_GATEWAY_SECRET": given.auth_token,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def joined():
    """The session of the JVM that the environment names."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    SparkContext(gateway=gateway, jsc=context)
    return SparkSession.builder.getOrCreate()
