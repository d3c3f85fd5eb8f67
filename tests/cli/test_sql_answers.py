"""`penstock sql QUERY`: names, times and numbers of rows in every form of an answer, and calls that are refused."""

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

import penstock
from penstock.cli import run
from penstock.cli.tables import answers, live
from penstock.cli.terminal.fitting import fit_table
from penstock.columns import parts

duckdb = pytest.importorskip("duckdb")

TWICE = "select * from (select 1 as id, 'a' as name) x join (select 1 as id, 'b' as name) y on x.id = y.id"


def watched(*words):
    """Two answers of a query that is asked again and again into a pipe. (standard output, standard error)"""
    command = [sys.executable, "-m", "penstock", "sql", *words, "--watch", "0.05s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = []
        while lines.count("\n") < 2:
            lines.append(child.stdout.readline())
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    return "".join(lines), err


# ---- names ----


def test_columns_of_one_name_stay_two_in_every_form(ask, tmp_path):
    row = {"id": 1, "name": "a", "id_1": 1, "name_1": "b"}
    assert json.loads(ask(TWICE, "--json")[1]) == row
    assert ask(TWICE, "--csv")[1].splitlines() == ['"id","name","id_1","name_1"', '1,"a",1,"b"']
    shown = ask(TWICE)[1].splitlines()
    assert [line.split() for line in shown] == [list(row), ["1", "a", "1", "b"]]
    assert watched(TWICE)[0].splitlines() == [*shown, "", *shown, ""]
    assert ask(TWICE, "--arrow", str(tmp_path / "x.arrow"))[0] == 0
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().to_pylist() == [row]


@pytest.mark.parametrize(
    "names", [["a", "A", "a_1", "a", "A_1"], ["a_1", "a", "a", "A"], ["x", "x", "x_1", "x_1", "x"]]
)
def test_names_are_those_of_a_table_of_duckdb(names):
    found = duckdb.sql("select " + ", ".join(f'1 as "{name}"' for name in names)).to_arrow_table()
    made = duckdb.from_arrow(answers.rename_alike(found))
    assert answers.rename_alike(found).column_names == made.columns == duckdb.from_arrow(found).columns


def test_a_table_fits_by_columns_of_one_name():
    columns, rows = fit_table(["id", "way", "id"], [["1", "ab", "2"]], 6, ["way"], "")
    assert (columns, rows) == (["id", "id"], [["1", "2"]])


# ---- numbers of rows ----


def test_a_watched_table_has_as_many_rows_as_the_limit():
    out, err = watched("from range(300)", "--limit", "1")
    assert out == "range\n    0\n\n" * 2
    assert set(err.splitlines()) == {"the first 1 row; --limit 0 prints all"}
    out, err = watched("from range(101)")
    assert (len(out.splitlines()), err.splitlines()[0]) == (2 * 102, "the first 100 rows; --limit 0 prints all")
    out, err = watched("from range(101)", "--limit", "0")
    assert (len(out.splitlines()), err) == (2 * 103, "")


def test_a_redrawn_table_says_that_there_are_more_rows():
    def drawn(most, height):
        return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in draw(most, height)]

    def draw(most, height):
        return live.draw_table(most, pa.table({"v": [1, 2, 3]}), 80, height)

    assert drawn(3, 4) == ["v", "1", "2", "3"]
    assert drawn(3, 3) == ["v", "1", "the first 1 row"]
    assert drawn(2, 4) == ["v", "1", "2", "the first 2 rows; --limit 0 prints all"]
    assert drawn(None, 1) == ["v", "the first 0 rows"]


# ---- durations ----

DURATIONS = {
    "interval '3 minutes 15.67652 seconds'": (195.67652, "195.67652", "0:03:15.676520"),
    "interval '-1 day'": (-86400.0, "-86400", "-1 day, 0:00:00"),
    "interval '2147483647 days'": (185542587100800.0, "1.855425871008e+14", "1.855425871e+14"),
    "interval '1 month 3 days -2.5 seconds'": ("P1M3DT-2.5S", '"P1M3DT-2.5S"', "P1M3DT-2.5S"),
    "interval '2 years'": ("P24M", '"P24M"', "P24M"),
    "[interval '3 seconds', interval '1 month', null]": (
        [3.0, "P1M", None],
        '"[3.0, ""P1M"", null]"',
        '[3.0, "P1M", null]',
    ),
    "{'a': interval '1 second'}": ({"a": 1.0}, '"{""a"": 1.0}"', '{"a": 1.0}'),
    "map {'a': interval '1 second'}": ([["a", 1.0]], '"[[""a"", 1.0]]"', '[["a", 1.0]]'),
    "union_value(a := interval '1 second')": (1.0, '"1.0"', "0:00:01"),
    "null::interval": (None, "", "–"),
}


@pytest.mark.parametrize("value", DURATIONS)
def test_a_duration_is_seconds_or_iso_8601(ask, value):
    _has_forms(ask, value, *DURATIONS[value])


def _has_forms(ask, value, json_value, csv, shown):
    query = f"select {value} as v"
    status, out, err = ask(query, "--json")
    assert (status, json.loads(out), err) == (0, {"v": json_value}, "")
    assert ask(query, "--csv") == (0, f'"v"\n{csv}\n', "")
    status, out, _ = ask(query)
    assert (status, [line.strip() for line in out.splitlines()]) == (0, ["v", shown])


def test_a_duration_of_spark_is_seconds():
    found = pa.record_batch({"v": pa.array([1_500_000, None], pa.duration("us"))})
    assert parts.plain(found)["v"].to_pylist() == [1.5, None]


# ---- times ----

TIMES = {
    "'infinity'::timestamp": ("infinity", '"infinity"', "infinity"),
    "'-infinity'::timestamptz": ("-infinity", '"-infinity"', "-infinity"),
    "'infinity'::timestamp_s": ("infinity", '"infinity"', "infinity"),
    "'infinity'::date": ("infinity", '"infinity"', "infinity"),
    "'0044-03-15 (BC)'::date": ("-0043-03-15", '"-0043-03-15"', "-0043-03-15"),
    "'0044-03-15 (BC)'::timestamptz": (
        "-0043-03-15T00:00:00.000000+00:00",
        '"-0043-03-15T00:00:00.000000Z"',
        "-0043-03-15T00:00:00.000000+00:00",
    ),
    "'290000-01-01'::timestamp_ms": (
        "290000-01-01T00:00:00.000",
        '"290000-01-01T00:00:00.000"',
        "290000-01-01T00:00:00.000",
    ),
    "'2026-01-31'::date": ("2026-01-31", '"2026-01-31"', "2026-01-31"),
    "'0044-03-15'::timestamp": ("0044-03-15T00:00:00", '"0044-03-15T00:00:00.000000"', "0044-03-15 00:00:00"),
    "['infinity'::date, '2026-01-31', null]": (
        ["infinity", "2026-01-31", None],
        '"[""infinity"", ""2026-01-31"", null]"',
        '["infinity", "2026-01-31", null]',
    ),
    "{'a': ['0044-03-15 (BC)'::timestamptz]}": (
        {"a": ["-0043-03-15T00:00:00.000000+00:00"]},
        '"{""a"": [""-0043-03-15T00:00:00.000000Z""]}"',
        '{"a": ["-0043-03-15T00:00:00.000000+00:00"]}',
    ),
    "[time '12:00:00']": (["12:00:00"], '"[""12:00:00""]"', '["12:00:00"]'),
    "[1.50::decimal(4, 2)]": (["1.50"], '"[""1.50""]"', '["1.50"]'),
}


@pytest.mark.parametrize("value", TIMES)
def test_a_time_has_one_text_in_any_year(ask, value):
    _has_forms(ask, value, *TIMES[value])


def test_times_inside_and_outside_the_years_of_python_mix(ask):
    query = "select unnest(['2026-01-31'::timestamp, 'infinity', null]) as v"
    rows = [json.loads(line)["v"] for line in ask(query, "--json")[1].splitlines()]
    assert rows == ["2026-01-31T00:00:00", "infinity", None]
    assert ask(query, "--csv")[1].splitlines() == ['"v"', '"2026-01-31T00:00:00.000000"', '"infinity"', ""]


@pytest.mark.parametrize("time", ["'infinity'::timestamp", "'infinity'::timestamp_s", "'0044-03-15 (BC)'::date"])
def test_a_chart_refuses_times_of_other_years(ask, time):
    status, out, err = ask(f"select {time} as t, 1 as v", "--chart")
    assert (status, out, "t has times outside of the years 1 to 9999" in err) == (1, "", True)


# ---- calls that are refused ----


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["select 1", "--window", "60"], "--window is for a query of TABLES"),
        (["select 1", "--window", "-5"], "--window is for a query of TABLES"),
        (["select 1", "--engine", ""], "--engine is ''"),
        (["tables", "select 1", "--engine", ""], "--engine is ''"),
        (["tables", "select 1", "--watch", ""], "--watch is for a query without TABLES"),
    ],
)
def test_an_option_without_effect_is_refused(ask, words, text):
    status, out, err = ask(*words)
    assert (status, out, len(err.splitlines()), text in err) == (1, "", 1, True)


@pytest.mark.parametrize("query", ["select \udcff", "select '\udcff'", "select * from 'log:\udcff\x1b'"])
@pytest.mark.parametrize("words", [[], ["--engine", "duckdb"], ["--engine", "spark"], ["--json", "--watch", "1s"]])
def test_a_query_that_is_not_utf_8_is_refused(ask, query, words):
    for given in ([query], ["tables", query]):
        status, out, err = ask(*given, *words)
        assert (status, out, len(err.splitlines())) == (1, "", 1)
        assert "the query is not UTF-8: select" in err
        assert r"\xff" in err
        assert "\x1b" not in err


def test_an_arrow_file_may_have_any_name(ask, tmp_path):
    path = tmp_path / "o\udcff.arrow"
    assert ask("select 1 as a", "--arrow", str(path)) == (0, "", "")
    with open(path, "rb") as file:
        assert pa.ipc.open_file(file).read_all().to_pylist() == [{"a": 1}]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["export", "a", "o.mcap", "--mcap", "--schema", "log:a=\udcff"], r"--schema is log:a=\xff: it is not UTF-8"),
        (["play", "a", "--map", "log:a=log:\udcff"], r"--map is log:a=log:\xff: it is not UTF-8"),
        (["import", "a", "x\udcff.mcap"], r"x\xff.mcap is not UTF-8: give a file whose path is"),
        (["import", "a", ""], "it is empty: give a file"),
        (["verify", "a\udcff"], r"a\xff is not UTF-8: give a folder whose path is"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_refused(words, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    penstock.Archive("a")
    status = run(words)
    assert (status > 0, text in capsys.readouterr().err) == (True, True)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--arrow", ""),
        ("--arrow", "."),
        ("--arrow", ".."),
        ("--arrow", "here"),
        ("--arrow", "link"),
        ("--plot", "x.png"),
    ],
)
@pytest.mark.parametrize("query", ["select now() as t, 1 as a", "wrong"])
def test_a_folder_is_not_written_as_a_file(ask, query, option, name, tmp_path, monkeypatch):
    """It is refused before the query is asked, by the name that was given."""
    pytest.importorskip("matplotlib")
    (tmp_path / "here").mkdir()
    (tmp_path / "x.png").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = name if name in ("", ".", "..") else f"../{name}"
    status, out, err = ask(query, option, given)
    assert (status, out, err) == (1, "", f"penstock: {given or '.'} cannot be written: Is a directory\n")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "link", "x.png"]


def test_a_folder_that_takes_the_place_of_a_file_is_no_fault(tmp_path):
    """The file that was not written yet has gone meanwhile, too."""
    path = tmp_path / "x.arrow"
    with pytest.raises(penstock.SystemFailure, match=r"x\.arrow cannot be written"), answers.writing(path):
        path.mkdir()
    assert list(tmp_path.iterdir()) == [path]
