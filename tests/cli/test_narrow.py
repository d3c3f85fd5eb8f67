"""On terminals of 40 and 60 columns no line is broken, no two channels look the same, and a row that does not fit is a block."""

import re
import time

import pytest
from cli.running import here

import penstock
from penstock.cli.channels import top
from penstock.cli.terminal import fitting, screen
from penstock.watch.rates import Rates

ALIKE = (
    "log:robot/front_left/camera/depth/image/info",
    "log:robot/front_left/camera/depth/image/data",
    "log:robot/front_right/camera/depth/image/info",
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def alike():
    with penstock.publish(ALIKE[0]), penstock.publish(ALIKE[1]), penstock.publish(ALIKE[2]):
        yield


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """A function that calls the command on a terminal of so many columns, and gives its lines."""

    def call(columns, *arguments):
        monkeypatch.setenv("COLUMNS", str(columns))
        done = here(*arguments, folder=tmp_path, stdout="terminal")
        assert done.status == 0, done.err
        return [line.rstrip() for line in STYLE.sub("", done.out).splitlines()]

    return call


def names(lines, at=0):
    return [line.split()[at] for line in lines[1:]]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_ls_tells_channels_apart_in_whole_lines(alike, shown, columns):
    lines = shown(columns, "ls")
    assert len(lines) == 4
    assert max(map(len, lines)) <= columns
    assert len(set(names(lines))) == 3
    title = lines[0].split()
    assert {"channel", "lag", "lost"} <= set(title)
    assert ("codec" in title) == (columns >= 80)
    if columns == 120:
        assert sorted(names(lines)) == sorted(ALIKE)


def test_ls_without_a_terminal_has_whole_names_and_columns(alike, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = here("ls", folder=tmp_path).out.splitlines()
    assert sorted(names(lines)) == sorted(ALIKE)
    assert "holds" in lines[0]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_recordings_are_told_apart_in_whole_lines(alike, shown, tmp_path, columns):
    archive = penstock.Archive(tmp_path / "drive")
    for channel in ALIKE:
        archive.append(channel, [b"x"], times_ns=[1])
    lines = shown(columns, "recordings", "drive")
    assert len(lines) == 4
    assert max(map(len, lines)) <= columns
    assert len(set(names(lines, 1))) == 3
    assert {"id", "channel", "messages"} <= set(lines[0].split())


def test_top_gives_names_room_before_anything_else(alike):
    rates = Rates(time.monotonic)
    rates.update(penstock.list_channels())
    found = rates.update(penstock.list_channels())
    for columns, titles in ((60, {"bytes/s", "lag"}), (40, set())):
        lines = [screen.join_line(line) for line in top.draw(top.View(rates=found), columns)]
        assert {"channel", "messages/s", "lost/s"} | titles == set(lines[1].split())
        assert all(len(name) >= 16 for name in names(lines[1:]))
        assert len(set(names(lines[1:]))) == 3
    assert max(map(len, top.KEYS[1:])) <= 60
    assert screen.join_line(top.draw(top.View(rates=found, deadlocks=1), 40)[0]).endswith("1 deadlock: penstock why")


def test_counts_of_several_channels_are_in_columns(shown):
    with penstock.publish("log:a") as short, penstock.publish(ALIKE[0]) as long:
        short.send(b"x")
        long.send(b"x")
        lines = shown(40, "sub", "log:a", ALIKE[0], "--hz", "--start", "earliest", "-n", "2")
    assert max(map(len, lines)) <= 40
    assert len({line.index(" messages/s") for line in lines}) == 1


def test_an_answer_that_is_too_wide_is_a_block_for_each_row(shown):
    pytest.importorskip("duckdb")
    with penstock.publish("log:q", codec="json") as pub:
        pub.send({"speed": 1.5})
        pub.send({"speed": 2.5})
        lines = shown(60, "sql", "select * from 'log:q'")
        assert [line.split() for line in lines if line.startswith("speed ")] == [["speed", "1.5"], ["speed", "2.5"]]
        assert lines.count("") == 2
        assert shown(60, "sql", "select speed from 'log:q'")[0] == "speed"


def test_a_long_line_is_broken_between_words_below_its_first():
    assert fitting.wrap("  a1 waits for log:robot/imu, 3.0 s", 20) == [
        "  a1 waits for",
        "    log:robot/imu,",
        "    3.0 s",
    ]
    assert fitting.wrap("", 20) == [""]
    assert fitting.wrap("a  b", 20) == ["a  b"]


def test_a_table_loses_columns_only_for_readable_names():
    columns, rows = ("name", "a", "b"), [["x" * 30, "1" * 9, "2" * 9], ["y", "1", "2"]]
    assert fitting.fit_table(columns, rows, 100, ("b", "a"), "name") == (list(columns), rows)
    made = fitting.fit_table(columns, rows, 40, ("b", "a"), "name")
    assert made == (["name", "a"], [[fitting.shortened(["x" * 30], 29)["x" * 30], "1" * 9], ["y", "1"]])
    assert fitting.table_width(*made) == 40
    assert fitting.fit_table(columns, rows, 40, (), "")[1] == rows, "nothing may be left out"
