"""The benchmarks of Spark: a job that takes too long is cancelled and told, and the others are measured."""

import threading

import pytest

from bench import spark_jobs
from bench.bounded import Failed
from bench.report import Report


class Session:
    """A session whose jobs end when they are cancelled, as Spark's do."""

    def __init__(self):
        self.sparkContext, self.cancelled, self.count = self, threading.Event(), 0

    def cancelAllJobs(self):  # noqa: N802
        self.count += 1
        self.cancelled.set()

    def endless(self):
        self.cancelled.wait()
        raise RuntimeError("Job 1 cancelled part of cancelled job group\nwith a trace")


def test_a_job_that_takes_too_long_is_cancelled():
    spark = Session()
    with pytest.raises(Failed, match=r"did not finish within 0\.05 s"):
        spark_jobs.seconds_of(spark, 0.05, spark.endless)
    assert spark.count
    spark.cancelled.set()
    with pytest.raises(Failed, match=r"^Job 1 cancelled part of cancelled job group$"):
        spark_jobs.seconds_of(spark, 60, spark.endless)
    assert spark_jobs.seconds_of(spark, 60, lambda: None) < 60


def test_one_that_fails_costs_no_other():
    spark, done = Session(), []
    spark.cancelled.set()
    report = Report("spark_scan", quick=False)
    jobs = {("a", "penstock"): lambda: done.append(1), ("a", "rival"): spark.endless, ("b", "penstock"): lambda: None}
    found = spark_jobs.in_turn(report, spark, 3, jobs)
    assert {name: len(seconds) for name, seconds in found.items()} == {("a", "penstock"): 3, ("b", "penstock"): 3}
    assert len(done) == 4, "one round warms up"
    assert report.missing == {"rival, a": "Job 1 cancelled part of cancelled job group"}
    assert len(spark_jobs.in_turn(Report("spark_scan", quick=True), spark, 1, jobs)["a", "penstock"]) == 1
