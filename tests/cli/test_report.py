"""Reports of tables: what they show, that no cut window looks like a drop, and that the page stands alone."""

import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from cli.running import here

import penstock
from penstock.tables import pipeline

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
    pipeline.run(archive.path, tmp_path / "tables")
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
    assert head == ["stream", "kind", "messages", "rate/s", "bytes", "each", "p50", "p99", "p99.9", "max", "lost"]
    assert (imu[0], imu[1], imu[2], imu[-1]) == ("imu", "log", "50", "0 B")
    assert (raw[0], raw[2], raw[4], raw[5]) == ("raw", "50", "400 B", "8 B")
    assert "<h2>imu</h2><p>50 rows.</p>" in text
    assert "gyro" in text
    assert "temperature" in text
    assert "<h2>raw</h2>" not in text  # bytes have no columns
    assert f"{os.cpu_count()} cores" in text
    assert os.uname().release in text


@pytest.mark.slow
def test_vectors_and_parts_of_messages_are_drawn(tmp_path):
    """A sensor's message is a time and a vector: each number of it is a line. Ragged and long lists, and empty columns, are none."""
    pose = np.dtype(
        [("t", "f8"), ("value", "f8", (3,)), ("scan", "f4", (360,)), ("dead", "f8", (2,)), ("at", [("x", "f8")])]
    )
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish("log:gyro", codec=pose) as gyro,
        penstock.publish("log:car", codec="json") as car,
        penstock.publish("log:gnss", codec="json") as gnss,
        archive.record(["log:gyro", "log:car", "log:gnss"]),
    ):
        for number in range(20):
            gyro.send((number, (number, 1, -number), np.zeros(360), (np.nan, np.nan), (number,)))
            car.send({"hits": [1] * (number % 3), "brake": [number]})
            gnss.send({"fix": [37.7 + number / 100, 1.5e12 + number]})
    pipeline.run(archive.path, tmp_path / "tables")
    assert here("report", "tables", folder=tmp_path).status == 0
    wide = [
        part.split("</div>")[0]
        for part in (tmp_path / "tables" / "report.html").read_text().split('<div class="wide">')
    ]
    drawn = [sorted(set(re.findall(r">((?:value|scan|dead|at|hits|brake|fix)[^<]*)<", part))) for part in wide[-3:]]
    assert drawn == [["brake"], ["fix[0]", "fix[1]"], ["at x", "value[0]", "value[1]", "value[2]"]]
    assert wide[-2].count("fix[") == wide[-2].count('<g id="axes_'), "their sizes are far apart, so each has a panel"


@pytest.mark.parametrize(("low", "high"), [(2.9e6, 3.9e6), (1e3, 8e3), (200, 90e6), (1, 1e10), (995.0, 1005.0)])
def test_an_axis_of_durations_has_a_few_round_ticks(low, high):
    ticks = drawing.duration_ticks(low, high, 5)
    assert 2 <= len(ticks) <= 8
    assert low <= min(ticks) < max(ticks) <= high


def test_short_recordings_and_large_rates_are_readable(tmp_path):
    times = np.arange(2000) * 1000
    stream = report.Stream(NAME, times=times, latencies=times % 900 + 3_000_000, bytes=1, messages=2000)
    with drawing.styled():
        plots = drawing.plots([stream])
    assert "milliseconds" in plots["rates"]
    assert "e+0" not in plots["rates"]
    assert "3.0 ms" in plots["tail"], "its slow messages took 3 ms, and the axis says so"
    assert {name: value for value, name in report._cards([stream], stream.latencies)}["of traffic"] == "2.0 ms"


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
    assert "holds no recordings and no tables: record channels" in done.err
    done = here("report", "nowhere", folder=tmp_path)
    assert (done.status, "there is no folder nowhere" in done.err) == (1, True)
    penstock.Archive(tmp_path / "new")
    done = here("report", "new", folder=tmp_path)
    assert (done.status, "new holds no recordings and no tables" in done.err) == (1, True)


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


@pytest.mark.slow
def test_an_archive_needs_no_tables_and_its_page_is_the_same(tables, tmp_path):
    """The same streams, counts and columns as from tables; without delta-rs."""
    assert here("report", "archive", "from_archive.html", "--json", folder=tmp_path).status == 0
    assert here("report", "tables", "from_tables.html", "--json", folder=tmp_path).status == 0
    one, other = ((tmp_path / f"from_{name}.html").read_text() for name in ("archive", "tables"))
    assert Page(one).rows == Page(other).rows
    assert "From the archive archive." in one
    for text in ("<h2>imu</h2><p>50 rows.</p>", "gyro", "temperature"):
        assert text in one
    assert "<h2>raw</h2>" not in one
    assert here("report", "archive", folder=tmp_path).out == "Report: archive/report.html\n"
    assert penstock.Archive(tmp_path / "archive").verify() == []


@pytest.mark.slow
def test_an_archive_of_another_machine_has_a_page_here(tables, tmp_path):
    pytest.importorskip("pyarrow.flight")
    with penstock.Archive(tmp_path / "archive").serve("127.0.0.1:0") as server:
        assert here("report", "archive", "one.html", folder=tmp_path).status == 0
        assert here("report", server.uri, "other.html", folder=tmp_path).status == 0
        refused = here("report", server.uri, folder=tmp_path)
    assert (refused.status, f"{server.uri} is no folder of this machine: name the page" in refused.err) == (1, True)
    one, other = ((tmp_path / f"{name}.html").read_text() for name in ("one", "other"))
    assert Page(one).rows == Page(other).rows
    assert f"From the archive {server.uri}." in other


def test_an_archive_of_frames_pipes_and_changed_codecs(tmp_path):
    """No pixels are read. A channel that was made again with another codec has a section for each."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("frames:cam", shape=(4, 4)) as cam, archive.record("frames:cam", when_slow="wait"):
        for number in range(12):
            cam.send(np.full((4, 4), number, "u1"))
    archive.append("log:x", [{"speed": 1.5 + n} for n in range(20)], codec="json", times_ns=range(1, 21))
    archive.append("log:y", [{"a": n} for n in range(20)], codec="json", times_ns=range(1, 21))
    archive.append("log:y", [(n,) for n in range(20)], codec=np.dtype([("b", "f8")]), times_ns=range(30, 50))
    assert here("report", "archive", folder=tmp_path).status == 0
    text = (tmp_path / "archive" / "report.html").read_text()
    rows = {row[0]: row for row in Page(text).rows if row}
    assert (rows["cam"][2], rows["x"][2], rows["y"][2]) == ("12", "20", "40")
    assert rows["cam"][-1] == "0 B"
    assert (text.count("<h2>x</h2>"), text.count("<h2>y</h2>"), text.count("<h2>cam</h2>")) == (1, 2, 0)


def test_a_damaged_archive_has_a_report_and_says_so(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    archive.append("log:x", [{"speed": 1.5 + n} for n in range(20)], codec="json", times_ns=range(1, 21))
    archive.append("log:bad", [b"x" * 100 for _ in range(20)], times_ns=range(1, 21))
    (segment,) = (archive.path / "recordings" / "00000002").glob("*.seg")
    with open(segment, "r+b") as file:
        file.seek(-300, 2)
        file.write(b"?" * 200)
    done = here("report", "archive", "--json", folder=tmp_path)
    assert done.status == 1
    warning, error = done.err.splitlines()
    assert warning.startswith(f"warning: {segment}")
    assert error == (
        "penstock: 1 part of the archive is damaged and left out; everything else is in archive/report.html"
    )
    assert json.loads(done.out)["streams"] == 2
