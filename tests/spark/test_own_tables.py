"""Tables that a user defines: values, what is computed again, failures, kills, and other engines that read the result."""

import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from spark.joining import environment_to_join

import penstock
import penstock.spark
from penstock import tables

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SQL = """
create view odd as select position, i, f from log_j where i % 2 = 1;
create table sums comment 'Sums of one stream' as
select count(*) as n, sum(i) as i, sum(f) as f from odd;
create table joined as
select s.id, j.text, s.tag, s.xyz[1] as y, s.t
from `log:s` s join log_j as j on s.id = j.i where s.id < 10;
create table both as select (select n from sums) as n, (select count(*) from joined) as m, null as nothing, 1Y as tiny;
"""
PYTHON = '''
from pyspark.sql import functions

def doubled(sums, numbers="log:j", *, spark):
    """Twice."""
    return numbers.select((functions.col("i") * 2).alias("twice")).crossJoin(sums.select("n"))
'''


def write(tmp_path, sql=SQL, python=None):
    (tmp_path / "t.sql").write_text(sql)
    found = [tmp_path / "t.sql"]
    if python is not None:
        (tmp_path / "t.py").write_text(python)
        found.append(tmp_path / "t.py")
    return found


def run(spark, archive, out, own, **options):
    from penstock.spark import pipeline

    outcome = pipeline.run(spark, archive.path, out, own=own, **options)
    return {one.name: one for one in outcome.own}


def versions(out, *names):
    return [tables.open_table(out, name).version for name in names]


@pytest.mark.slow
def test_tables_of_sql_and_python(spark, recorded, tmp_path):
    import duckdb
    import polars

    out = tmp_path / "out"
    made = run(spark, recorded, out, write(tmp_path, python=PYTHON))
    assert [(name, one.rows, one.is_new, one.error) for name, one in made.items()] == [
        ("sums", 1, True, None),
        ("joined", 10, True, None),
        ("both", 1, True, None),
        ("doubled", 1000, True, None),
    ]
    odd = range(1, 1000, 2)
    expected = {
        "sums": [{"n": 500, "i": sum(odd), "f": sum(i / 2 for i in odd)}],
        "joined": [{"id": i, "text": f"m{i}", "tag": b"tag", "y": i + 1.0, "t": i / 10} for i in range(10)],
        "both": [{"n": 500, "m": 10, "nothing": None, "tiny": 1}],
        "doubled": [{"twice": 2 * i, "n": 500} for i in range(1000)],
    }
    for name, rows in expected.items():
        order = next(iter(rows[0]))
        uris = tables.uris(out, name)
        readers = {
            "pyarrow": tables.read(out, name),
            "spark": penstock.spark.table(spark, out, name).toArrow(),
            "duckdb": duckdb.sql("select * from read_parquet(?)", params=[uris]).to_arrow_table(),
            "polars": polars.concat([polars.read_parquet(uri) for uri in uris]).to_arrow(),
        }
        for reader, found in readers.items():
            assert found.sort_by(order).to_pylist() == rows, (name, reader)
    assert tables.open_table(out, "sums").description == "Sums of one stream"
    assert tables.names(out).count("both") == 1
    assert "odd" not in tables.names(out)
    assert not spark.catalog.listTables(), "the user's session has no views of ours"


@pytest.mark.slow
def test_only_what_changed_is_computed_again(spark, recorded, tmp_path):
    out, own = tmp_path / "out", write(tmp_path, SQL + "create table other as select count(*) as n from log_v;")
    run(spark, recorded, out, own)
    names = ["sums", "joined", "both", "other"]
    before = versions(out, *names)
    snapshot = penstock.spark.table(spark, out, "sums")
    again = run(spark, recorded, out, own)
    assert not any(one.is_new for one in again.values())
    assert versions(out, *names) == before
    with penstock.publish("log:v") as pub, recorded.record("log:v", extend=True):
        pub.send(np.zeros(1))
    assert [name for name, one in run(spark, recorded, out, own).items() if one.is_new] == ["other"]
    assert tables.read(out, "other").to_pylist() == [{"n": 1001}]
    assert versions(out, *names[:3]) == before[:3]
    with penstock.publish("log:j") as pub, recorded.record("log:j", extend=True):
        pub.send({"i": 1001, "f": 0.5})
    made = run(spark, recorded, out, own)
    assert [name for name, one in made.items() if one.is_new] == ["sums", "joined", "both"]
    assert tables.read(out, "sums").to_pylist()[0]["n"] == 501
    assert snapshot.collect()[0]["n"] == 500, "a reader keeps its snapshot"
    # A comment is no change of a definition; another query is. A view's change is one of the tables that read it.
    own = write(tmp_path, "-- hello\n" + own[0].read_text().replace("i % 2 = 1", "i % 2 =   0"))
    made = run(spark, recorded, out, own)
    assert [name for name, one in made.items() if one.is_new] == ["sums", "both"]
    assert tables.read(out, "sums").to_pylist()[0]["n"] == 500
    before, files = versions(out, *names), len(tables.uris(out, "log:j"))
    tables.optimize(out)
    assert len(tables.uris(out, "log:j")) < files
    assert not any(one.is_new for one in run(spark, recorded, out, own).values()), "joined files have the same rows"
    assert versions(out, *names) == before


def test_another_definition_is_another_schema(spark, recorded, tmp_path):
    out = tmp_path / "out"
    run(
        spark,
        recorded,
        out,
        write(tmp_path, "create table x as select 1 as a, 'x' as b, timestamp_ntz'2026-01-01 00:00:00' c"),
    )
    assert tables.read(out, "x").to_pylist()[0]["b"] == "x"
    run(
        spark,
        recorded,
        out,
        write(tmp_path, "create table x as select 2.5D as a, map('k', array(1)) as d, current_date() e"),
    )
    found = penstock.spark.table(spark, out, "x")
    assert found.columns == ["a", "d", "e"]
    row = found.collect()[0]
    assert (row["a"], row["d"]) == (2.5, {"k": [1]})
    assert tables.read(out, "x").column_names == ["a", "d", "e"]
    made = run(spark, recorded, out, write(tmp_path, "create table x as select 1 as a where false"))
    assert (made["x"].rows, tables.read(out, "x").num_rows) == (0, 0)


@pytest.mark.parametrize(("every", "warned"), [(None, 1), (0, 2)])
def test_a_table_that_fails_is_told_once(spark, recorded, tmp_path, caplog, every, warned):
    """A run that ends by itself leaves the first to the error at its end; one that goes on warns, once for all its batches."""
    from penstock.spark.pipeline import follow

    own = write(tmp_path, "create table bad as select nope from log_j; create table worse as select none from log_j;")
    steps = []
    archive = penstock.Archive(shutil.copytree(recorded.path, tmp_path / "mine"))

    def until(_):
        archive.append("log:more", [b"one"])
        return len(steps) > 1

    outcome = follow(
        spark,
        archive.path,
        tmp_path / "out",
        every=every,
        until=until,
        on_step=steps.append,
        own=own,
    )
    assert [one.name for one in outcome.own if one.error] == ["bad", "worse"]
    told = [record.getMessage() for record in caplog.records if "t.sql" in record.getMessage()]
    assert len(told) == warned
    assert "worse" in told[-1]


def test_a_table_that_fails_stops_no_other(spark, recorded, tmp_path):

    sql = """
create table good as select count(*) as n from log_j;
create table bad as
  select i / (i - 5) as x
  from log_j;
create table behind as select * from bad;
create table nowhere as select nope from log_j;
create table odd as select interval '1' day as x;
create table twice as select 1 as a, 2 as A;
create table plain as select * from log_b;
"""
    python = 'def raises(log_j):\n    return 1\n\ndef worse(log_j):\n    x = 1\n    raise ValueError("no\\nway")\n'
    out, own = tmp_path / "out", write(tmp_path, sql, python)
    made = run(spark, recorded, out, own)
    told = {name: one.error for name, one in made.items() if one.error}
    assert tables.read(out, "good").to_pylist() == [{"n": 1000}]
    assert tables.read(out, "messages").num_rows == 4001
    assert penstock.spark.table(spark, out, "stats").count() >= 4
    assert re.match(r"t\.sql:4: bad: Division by zero", told.pop("bad"))
    assert told.pop("behind") == "t.sql:6: behind: it reads bad, which failed"
    assert re.match(r"t\.sql:7: nowhere: .*`nope` cannot be resolved", told.pop("nowhere"))
    assert re.match(r"t\.sql:8: odd: the column x is of type interval day", told.pop("odd"))
    assert re.match(r"t\.sql:9: twice: there are two columns A", told.pop("twice"))
    assert re.match(r"t\.sql:10: plain: log:b has no table yet", told.pop("plain"))
    assert re.match(r"t\.py:1: raises: raises returned int, not a DataFrame", told.pop("raises"))
    assert told.pop("worse") == "t.py:6: worse: ValueError: no"
    assert not told
    assert all("\n" not in one.error for one in made.values() if one.error)
    made = run(
        spark, recorded, out, write(tmp_path, sql.split("create table nowhere")[0].replace("(i - 5)", "(i + 5)"))
    )
    assert {name: one.is_new for name, one in made.items()} == {"good": False, "bad": True, "behind": True}
    assert all(one.error is None for one in made.values())


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("create table a as select * from nope", "t.sql:1: a reads nope, which is no table and no stream"),
        ("\ncreate table a as\n select i,\n , f from log_j", "t.sql:4: a: Syntax error at or near ','"),
        ("create table a as select * from b_; create table b_ as select * from a", "in a circle: a → b_ → a"),
        ("create table a as drop table j", "t.sql:1: a: Syntax error at or near 'drop'"),
    ],
)
def test_errors_are_reported_before_anything_runs(spark, recorded, tmp_path, sql, told):
    with pytest.raises(penstock.Invalid, match=re.escape(told)) as caught:
        run(spark, recorded, tmp_path / "out", write(tmp_path, sql))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_names_of_a_query_that_are_not_tables(spark):
    from penstock.spark.parsing.relations import relations

    query = """
with c as (select * from t1), t2 as (select * from t2)
select (select max(y) from `t:3.x`) as t9, extract(year from d) from c join t4 as z on true, t2, range(5)
where exists (select 1 from spark_catalog.default.t5) and x in (select q from T6) and a is distinct from t8
union all select * from (select * from t1, lateral (select * from t7))
"""
    assert sorted(relations(spark, query)) == ["T6", "t1", "t2", "t4", "t7", "t:3.x"]
    recursive = "with recursive r as (select 1 as x union all select x + 1 from r where x < 3) select * from r join s"
    assert relations(spark, recursive) == ["s"]


KILLED = """
import os, sys
from penstock.spark import pipeline
from penstock.tables.delta import table as delta
from spark.joining import joined
create, when = delta.Table.create, sys.argv[4]
def dying(place, *given, **named):
    mine = str(place).endswith("/sums")
    if mine and when == "before":
        os._exit(9)
    made = create(place, *given, **named)
    if mine:
        os._exit(9)
    return made
delta.Table.create = dying
pipeline.run(joined(), sys.argv[1], sys.argv[2], own=[sys.argv[3]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_run_commits_once(spark, recorded, tmp_path, when):
    """A kill when all files are there and no commit is, or after the commit: the next run makes it, or sees that it is made."""
    out, own = tmp_path / "out", write(tmp_path)
    killed = [sys.executable, "-c", textwrap.dedent(KILLED), str(recorded.path), str(out), str(own[0]), when]
    done = subprocess.run(killed, capture_output=True, text=True, env=environment_to_join(spark))
    assert done.returncode == 9, done.stderr
    made = run(spark, recorded, out, own)
    assert {name: one.error for name, one in made.items() if one.error} == {}
    assert made["sums"].is_new == (when == "before")
    assert made["both"].is_new
    assert versions(out, "sums") == [0]
    assert tables.read(out, "sums").to_pylist()[0]["n"] == 500
    parts = [path.name for path in (out / "sums").iterdir() if path.is_file()]
    assert len(parts) == 1, "what the killed run wrote is gone"


def test_a_folder_of_something_else_is_left_alone(spark, recorded, tmp_path):
    import deltalake
    import pyarrow as pa

    from penstock.spark import pipeline

    out = tmp_path / "out"
    pipeline.run(spark, recorded.path, out)
    deltalake.write_deltalake(str(out / "sums"), pa.table({"mine": [1]}))
    made = run(spark, recorded, out, write(tmp_path))
    assert "is a table that no file defines" in made["sums"].error
    assert deltalake.DeltaTable(str(out / "sums")).version() == 0
    assert made["joined"].error is None
