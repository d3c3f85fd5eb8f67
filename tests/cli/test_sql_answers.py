"""`penstock sql QUERY`: names, times and numbers of rows in every form of an answer, and calls that are refused."""

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from penstock.cli import run
from penstock.cli.tables import answers, live
from penstock.cli.terminal.fitting import fit_table

duckdb = pytest.importorskip("duckdb")

TWICE = "select * from (select 1 as id, 'a' as name) x join (select 1 as id, 'b' as name) y on x.id = y.id"


@pytest.fixture
def ask(capsys):
    def asked(*words):
        capsys.readouterr()
        status = run(["sql", *words])
        return status, *capsys.readouterr()

    return asked


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
