"""Reports of tables: what they show, that no cut window looks like a drop, and that the page stands alone."""

import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from cli.running import here

import penstock
from penstock.spark import pipeline

pytest.importorskip("matplotlib")

from penstock.cli import report
from penstock.cli.report import drawing

NAME = "log:a<b"


@pytest.fixture
def tables(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish("log:imu", codec="json") as imu,
        penstock.publish("log:raw") as raw,
        archive.record(["log:imu", "log:raw"]),
    ):
        for number in range(50):
            imu.send({"gyro": number / 2, "temperature_deg": 20, "mode": "<run>"})
            raw.send(b"12345678")
    pipeline.run(None, archive.path, tmp_path / "tables")
    return tmp_path / "tables"


class Page(HTMLParser):
    """Its rows of cells, its texts, and everything that it would load."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.loads, self.open = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        about = dict(attrs)
        self.loads += [about[name] for name in ("src", "href", "xlink:href") if name in about]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        about = dict(attrs)
        self.loads += [about[name] for name in ("src", "href", "xlink:href") if name in about]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_it_shows_transport_and_data_of_any_tables(tables, tmp_path):
    done = here("report", tables.name, folder=tmp_path)
    assert (done.status, done.out) == (0, f"Report: {tables.name}/report.html\n")
    text = (tables / "report.html").read_text()
    page = Page(text)
    head, imu, raw = page.rows
    assert head == ["stream", "messages", "rate/s", "bytes", "each", "p50", "p99", "p99.9", "max", "lost"]
    assert (imu[0], imu[1], imu[-1]) == ("imu", "50", "0 B")
    assert (raw[0], raw[1], raw[3], raw[4]) == ("raw", "50", "400 B", "8 B")
    assert "<h2>imu</h2><p>50 rows.</p>" in text
    assert "gyro" in text
    assert "temperature" in text
    assert "<h2>raw</h2>" not in text  # bytes have no columns
    assert f"{os.cpu_count()} cores" in text
    assert os.uname().release in text


def test_it_stands_alone_in_two_widths_and_two_colours(tables, tmp_path):
    assert here("report", tables.name, "page.html", "--json", folder=tmp_path).status == 0
    text = (tmp_path / "page.html").read_text()
    assert all(place.startswith("#") for place in Page(text).loads)
    assert text.count('<div class="wide">') == text.count('<div class="narrow">') > 4
    assert "prefers-color-scheme: dark" in text
    ids = re.findall(r'<clipPath id="(\w+)"', text)
    assert len(ids) == len(set(ids))
    for color in (drawing.LINE, drawing.GRID, drawing.TEXT):
        assert f"stroke: {color}" in report.PAGE.read_text()  # the style that makes them dark


def test_the_folder_of_a_demo_is_taken_too(tables, tmp_path):
    done = here("report", ".", "--json", folder=tmp_path)
    assert json.loads(done.out) == {"report": "tables/report.html", "streams": 2, "messages": 100}


def test_no_tables_is_one_line(tmp_path):
    done = here("report", ".", folder=tmp_path)
    assert done.status == 1
    assert "holds no tables" in done.err


def test_a_cut_window_is_no_drop():
    """1,000 a second from 0.25 s to 3.55 s: each whole second has 1,000, and the two cut ones are not there."""
    times = (np.arange(0.25, 3.55, 0.001) * 1e9).astype(np.int64)
    at, rate = drawing.windows(times, 0, 1.0)
    assert at.tolist() == [1.0, 2.0]
    assert np.abs(rate - 1000).max() <= 1
    for few in (times[:0], times[:1], times[:20]):
        assert len(drawing.windows(few, 0, 1.0)[0]) == 0
    silent = np.concatenate([times[times < 1.2e9], times[times > 3.2e9]])
    assert drawing.windows(silent, 0, 0.5)[1].tolist().count(0) == 3  # silence within a stream is there


def test_the_table_has_the_slowest_message_and_losses():
    stream = report.Stream(
        NAME, times=np.arange(1000) * 10**6, latencies=np.arange(1, 1001) * 1000, bytes=5000, messages=1000, lost=3
    )
    head, row = Page(report._table([stream])).rows
    found = dict(zip(head, row, strict=True))
    assert (found["stream"], found["max"], found["p99.9"], found["lost"]) == ("a<b", "1.0 ms", "999 µs", "3")
    assert found["rate/s"] == "1,000"
    assert "3 of a<b" in report._silence([stream])
