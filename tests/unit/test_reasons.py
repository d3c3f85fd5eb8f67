"""Each aim of the benchmarks says, where it is missed, why: in numbers of the run. And the first table of the page names aims that there are."""

import importlib
import inspect

import pytest

from bench import asked, growth
from bench.__main__ import QUESTIONS
from bench.report import Report

WITH_AIMS = [name for name in QUESTIONS if hasattr(importlib.import_module(f"bench.{name}"), "aims")]


class Measured(Report):
    """A run in which everything was measured, and every aim is missed. rivals: whether there are any."""

    def __init__(self, question, value=2.0):
        super().__init__(question, quick=False)
        self.value = value
        if question == "growth":
            axes = [(kind.name, axis) for kind in growth.KINDS for axis in kind.axes(quick=True)]
            for case in [f"{name}, by {axis}" for name, axis in axes]:
                for point in ("1", "64"):
                    for metric in ("send", "receive", growth.COPIES):
                        self.add(case, point, metric, value, "µs")
            for metric in ("open", "list", "plan"):
                for point in ("0.001 GB", "50 GB"):
                    self.add(f"archive, by {growth.RECORDED}", point, metric, value, "ms")

    def get(self, case, who, metric):
        return self.value

    def at_most(self, case, metric, limit, unit, value, why):
        super().at_most(case, metric, -1, unit, value, why)

    def at_least(self, case, metric, limit, unit, value, why):
        super().at_least(case, metric, 1e30, unit, value, why)


def aims_of(question):
    report = Measured(question)
    importlib.import_module(f"bench.{question}").aims(report)
    return report.aims


@pytest.mark.parametrize("question", WITH_AIMS)
def test_a_missed_aim_says_why(question):
    aims = aims_of(question)
    assert aims
    assert [f"{aim.case}: {aim.metric}" for aim in aims if aim.met is False and not aim.why] == []
    assert not [aim for aim in aims if aim.met]


@pytest.mark.parametrize("question", WITH_AIMS)
def test_nothing_measured_is_no_error_and_no_verdict(question):
    report = Report(question, quick=False)
    importlib.import_module(f"bench.{question}").aims(report)
    assert {aim.met for aim in report.aims} <= {None}


def test_a_reason_cannot_be_left_out():
    for method in (Report.at_most, Report.at_least):
        assert inspect.signature(method).parameters["why"].default is inspect.Parameter.empty


@pytest.mark.parametrize("row", asked.ROWS, ids=lambda row: row.what)
def test_the_first_table_names_an_aim_that_there_is(row):
    assert sum(row.asks(aim.case, aim.metric) for aim in aims_of(row.question)) == 1
