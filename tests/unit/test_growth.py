"""The benchmark of growth: its labels, its lines, and archives without bytes that look like recorded ones."""

import struct

import pytest

import penstock
from bench import growth, sparse
from bench.report import Report
from penstock.recording import plan


@pytest.mark.parametrize("value", [1, 8, 512, 1 << 10, 64 << 10, 1 << 20, 256 << 20, 1 << 30])
def test_a_label_says_its_number(value):
    assert growth.number(growth.label(value)) == value


def test_a_line_adds_metrics_and_an_aim_names_its_dearest_point():
    report = Report("growth", quick=True)
    for point, send, receive in ((1, 1.0, 2.0), (2, 5.0, 4.0), (4, 2.0, 2.0)):
        report.add("log, by readers", str(point), "send", send, "µs")
        report.add("log, by readers", str(point), "receive", receive, "µs")
    assert growth.line(report, "log, by readers", "send", "receive") == {1: 3.0, 2: 9.0, 4: 4.0}
    growth.flat(report, "log", growth.READERS, "send", "receive")
    assert (report.aims[0].value, report.aims[0].met) == (3.0, False)


def test_an_archive_without_bytes_lists_and_plans_as_a_recorded_one(tmp_path):
    sparse.make(tmp_path / "a", 300 << 20)
    archive = penstock.Archive(tmp_path / "a")
    (listed,) = archive.list()
    assert (listed.state, listed.segments, listed.bytes) == ("closed", 3, 300 << 20)
    assert sum(part.bytes for part in plan(archive)) == listed.bytes
    assert sum(part.messages for part in plan(archive)) == listed.messages
    (index, *_) = sorted((tmp_path / "a").glob("recordings/*/*.idx"))
    assert struct.unpack_from("<q", index.read_bytes(), 16) == (0,)
