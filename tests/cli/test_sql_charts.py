"""`penstock sql --chart` and `--plot`: what is drawn is what the rows say."""

import datetime
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import numpy as np
import pyarrow as pa
import pytest
from conftest import heed_interrupts

import penstock
from penstock.cli import run
from penstock.cli.tables import charts
from penstock.cli.terminal.screen import join_line

pytest.importorskip("duckdb")
US = pa.timestamp("us", "UTC")
BEGUN = 1_700_000_000_000_000


def rows(times, **columns):
    return pa.table({"time": pa.array(times, pa.int64()).cast(US), **columns})


def drawn(found, width=60, height=16):
    """The picture's lines, and the dots of its middle: [row, column]."""
    lines = [join_line(line) for line in charts.draw(found, width, height)]
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    middle = lines[1:-3]
    left = len(lines[-3]) - len(lines[-3].lstrip()) + 1  # behind the axis
    columns = len(lines[-3]) - left
    dots = np.zeros((len(middle) * 4, columns * 2), bool)
    for row, line in enumerate(middle):
        assert line[left - 1] in "│┤"
        for column, letter in enumerate(line[left:]):
            bits = 0 if letter == " " else ord(letter) - 0x2800
            for y in range(4):
                for x in range(2):
                    dots[row * 4 + y, column * 2 + x] = bits & int(charts.DOTS[y, x]) != 0
    return lines, dots


def test_each_value_has_its_dot(rng):
    """Of random rows in a random order; and the line has no hole between neighbours."""
    for _ in range(50):
        count = rng.randrange(2, 200)
        times = [BEGUN + offset for offset in rng.sample(range(10**9), count)]
        values = [rng.uniform(-5, 3) for _ in range(count)]
        _, dots = drawn(rows(times, v=values))
        tall, wide = dots.shape
        low, high, start, end = min(values), max(values), min(times), max(times)
        for time, value in zip(times, values, strict=True):
            y, x = (high - value) / (high - low) * (tall - 1), (time - start) / (end - start) * (wide - 1)
            assert dots[round(y), round(x)]
        assert dots.any(axis=0).all()
        assert dots.any(axis=1).all()


def test_a_spike_among_many_rows_is_there():
    values = np.zeros(100_000)
    values[77_777] = 1
    _, dots = drawn(rows(range(BEGUN, BEGUN + 100_000), v=values))
    (at,) = np.flatnonzero(dots.sum(axis=0) == len(dots))
    assert at == round(0.77777 * (dots.shape[1] - 1))


def test_a_line_ends_where_a_value_is_missing():
    _, dots = drawn(rows(range(BEGUN, BEGUN + 6), v=[0.0, 1.0, None, float("nan"), 1.0, 0.0]))
    there = np.flatnonzero(dots.any(axis=0))
    (gap,) = np.flatnonzero(np.diff(there) > 1)
    assert (there[gap] / (dots.shape[1] - 1), there[gap + 1] / (dots.shape[1] - 1)) == pytest.approx(
        (0.2, 0.8), abs=0.02
    )


def test_axes_and_names_say_what_is_drawn():
    found = rows([BEGUN, BEGUN + 90_000_000], volts=[11.5, 12.5], n=pa.array([3, 4], pa.int32()), name=["a", "b"])
    lines, _ = drawn(found, 80, 20)
    assert lines[0].split() == ["━━", "volts", "12.5", "━━", "n", "4"]
    assert [line.split()[0] for line in lines[1:-3] if "┤" in line] == ["12", "10", "8", "6", "4"]
    assert lines[-2].split() == ["22:13:20", "22:13:40", "22:14:00", "22:14:20", "22:14:40"]
    assert lines[-1].split() == ["2023-11-14", "UTC,", "2", "rows"]


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([], []),
        ([BEGUN], [1.0]),
        ([BEGUN, BEGUN], [2.0, 2.0]),
        ([BEGUN, BEGUN + 1], [None, None]),
        ([BEGUN, BEGUN + 10**17], [1e299, -1e299]),
        ([BEGUN, BEGUN + 3, BEGUN + 5], [float("inf"), 5e-324, 0.0]),
        ([BEGUN, BEGUN + 1], [1.7e18, 1.7e18 + 256]),
        ([-(10**16), BEGUN], [0.1, 0.1 + 1e-17]),
    ],
)
def test_odd_rows_are_drawn(times, values, tmp_path):
    found = rows(times, v=pa.array(values, pa.float64()))
    for width, height in ((20, 5), (60, 16), (300, 80)):
        drawn(found, width, height)
    charts.write(found, tmp_path / "odd.svg")


def test_a_date_is_a_time():
    days = [datetime.date(2026, 1, 1), datetime.date(2026, 3, 1)]
    lines, _ = drawn(pa.table({"day": days, "v": [1, 2]}), 80)
    assert lines[-1].split()[:3] == ["2026-01-01", "to", "2026-03-01"]


# ---- the command ----


@pytest.fixture
def imu():
    with penstock.publish("log:imu", codec="json") as publication:
        for number in range(50):
            publication.send({"i": number, "name": "a"})
        yield publication


QUERY = "select time, i from imu"


def test_a_chart_is_printed(imu, capsys):
    assert run(["sql", QUERY, "--chart"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("━━ i 49")
    assert out.rstrip().endswith("UTC, 50 rows")
    assert run(["sql", QUERY, "--chart", "--limit", "7"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("UTC, 7 rows")


def test_a_plot_is_written(imu, tmp_path, capsys):
    png, svg = tmp_path / "a.png", tmp_path / "b.SVG"
    assert run(["sql", QUERY, "--plot", str(png)]) == 0
    assert run(["sql", QUERY, "--plot", str(svg)]) == 0
    assert capsys.readouterr() == ("", "")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    text = svg.read_text()
    assert text.rstrip().endswith("</svg>")
    assert ">i</text>" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.SVG"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["select i, time from imu", "--chart"], "first column i is no time, but int64"),
        (["select time, name from imu", "--chart"], "no column behind the query's first one is a number"),
        (["select time from imu", "--plot", "a.png"], "no column behind"),
        (["select timestamptz 'infinity' as at, 1", "--chart"], "outside of the years 1 to 9999"),
        ([QUERY, "--plot", "a.gif"], "--plot a.gif: the name of a picture ends in .png or .svg"),
        ([QUERY, "--plot", "/none/a.png"], "/none/a.png cannot be written: No such file or directory"),
        ([QUERY, "--plot", "a.png", "--chart"], "one of them can be given"),
    ],
)
def test_a_wrong_picture_is_one_line(imu, words, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["sql", *words]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines()), list(tmp_path.iterdir())) == ("", 1, [])
    assert text in err


def test_a_plot_without_matplotlib_says_what_to_install(imu, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["sql", QUERY, "--plot", str(tmp_path / "a.png")]) == 1
    assert capsys.readouterr().err == "penstock: --plot needs matplotlib: pip install 'penstock[report]'\n"


@pytest.mark.slow
def test_a_watched_chart_is_redrawn_in_place(imu):
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 70, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "penstock", "sql", QUERY, "--chart", "--watch", "0.1s"]
    child = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    os.close(slave)
    said = ""
    try:
        while "UTC, 50 rows" not in said:
            said += os.read(master, 65536).decode("utf-8", "replace")
        imu.send({"i": 1000, "name": "a"})
        while not re.search("i 1000.*UTC, 51 rows", said, re.DOTALL):
            said += os.read(master, 65536).decode("utf-8", "replace")
        os.write(master, b"q")
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
        os.close(master)
    assert said.startswith("\x1b[?1049h")
