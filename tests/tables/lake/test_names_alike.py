"""Streams whose names differ in case only: a query that names both is refused, and no other one gives rows of the wrong one."""

import pytest

import penstock
import penstock.spark.queries
import penstock.tables
from penstock.columns.parts import table_name

HASHED = table_name("log:Imu")
BOTH = 'select (select count(*) from "log:Imu") a, (select count(*) from "log:imu") b'


@pytest.fixture
def archive(tmp_path):
    made = penstock.Archive(tmp_path / "archive")
    made.append("log:Imu", [{"x": 1}] * 3, codec="json", times_ns=[1, 2, 3])
    made.append("log:imu", [{"x": 2}] * 5, codec="json", times_ns=[-1001, -2, -1, 999, 1000])
    return made


def test_a_query_of_both_names_them_apart(archive):
    lake = penstock.lake(archive=archive, live=False)
    with pytest.raises(penstock.Invalid, match=f"SQL ignores case: write {HASHED} and log_imu"):
        lake.sql(BOTH)
    apart = f"select (select count(*) from {HASHED}) a, (select count(*) from log_imu) b"
    assert lake.sql(apart).to_pylist() == [{"a": 3, "b": 5}]
    assert [lake.sql(f"select count(*) n from '{name}'")["n"][0].as_py() for name in ("log:Imu", "log:imu")] == [3, 5]


def test_a_connection_has_each_by_a_name_of_its_own(archive):
    connection = penstock.lake(archive=archive, live=False).duckdb()
    counts = {name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in (HASHED, "log_imu")}
    assert counts == {HASHED: 3, "log_imu": 5}
    there = {row[0].lower() for row in connection.execute("show tables").fetchall()}
    assert "log:imu" not in there


def test_an_alignment_has_the_rows_of_both(archive):
    found = penstock.lake(archive=archive, live=False).align("log:imu", ["log:Imu"])
    assert [(row["x"], row["Imu"] and row["Imu"]["x"]) for row in found.to_pylist()] == [(2, None)] * 3 + [(2, 1)] * 2


def test_a_cut_gives_no_other_stream(archive):
    cut = penstock.lake(archive=archive, live=False).cut("log:imu")
    for ask in (lambda: cut.sql("select * from 'log:Imu'"), lambda: cut.reader("log:Imu")):
        with pytest.raises(penstock.NotFound, match="this cut has no stream log:Imu"):
            ask()
    assert cut.sql("select count(*) n from 'LOG:IMU'")["n"].to_pylist() == [5]


def test_a_query_of_tables_is_refused_alike(archive, tmp_path):
    out = tmp_path / "tables"
    penstock.tables.run(archive.path, out)
    with pytest.raises(penstock.Invalid, match="SQL ignores case"):
        penstock.spark.queries.by_duckdb(str(out), BOTH, None)
    one = penstock.spark.queries.by_duckdb(str(out), 'select count(*) n from "log:Imu"', None)
    assert one["n"].to_pylist() == [3]


def test_times_far_apart_are_no_overflow(archive):
    archive.append("log:far", [{"x": 1}] * 2, codec="json", times_ns=[-9 * 10**18, 9 * 10**18])
    archive.append("log:b", [{"x": 1}] * 2, codec="json", times_ns=[-9 * 10**18, -8 * 10**18])
    found = penstock.lake(archive=archive, live=False).align("log:far", ["log:b"], tolerance="20ms")
    assert [row["b"] is not None for row in found.to_pylist()] == [True, False]


@pytest.mark.parametrize(
    "value", ["timetz '12:00:00+05'", "bitstring '101'", "[timetz '12:00:00+05']", "map{1: bitstring '1'}"]
)
def test_types_that_arrow_has_not_are_refused(archive, value):
    with pytest.raises(penstock.Invalid, match=r"the column t is .*, which Arrow has not"):
        penstock.lake(archive=archive, live=False).sql(f"select {value} t, count(*) from 'log:imu'")


def test_names_within_a_type_are_no_types(archive):
    query = "select {'BIT': 1, 'x': [1]::int[1]} t from 'log:imu' limit 1"
    found = penstock.lake(archive=archive, live=False).sql(query)
    assert found.to_pylist() == [{"t": {"BIT": 1, "x": [1]}}]


def test_rows_without_a_column_are_refused(archive, tmp_path):
    penstock.tables.run(archive.path, tmp_path / "tables")
    with pytest.raises(penstock.Invalid, match="columns is empty"):
        penstock.tables.read(tmp_path / "tables", "log:imu", columns=[])
