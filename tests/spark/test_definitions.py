"""Files of a user's tables: what is read from them, and errors with file and line. Needs no Spark."""

import re

import pytest

import penstock
from penstock.spark.parsing import definitions
from penstock.spark.parsing.naming import Names, quoted
from penstock.spark.parsing.statements import statements

SQL = """-- a comment; with a semicolon
create table one as select 1 as x; /* a /* nested */ comment; */
CREATE OR REPLACE TABLE `two` COMMENT 'it''s; two' AS
  -- another
  with c as (select ';' as a, "--" as b, `a;b` from one)
  select * from c
;

create temporary view three as (select r'\\' as x from two);
create view four as from two |> where x > 1"""


def test_statements_of_sql():
    found = statements(SQL, "t.sql")
    assert [(one.name, one.line, one.stored, one.comment) for one in found] == [
        ("one", 2, True, ""),
        ("two", 3, True, "it's; two"),
        ("three", 9, False, ""),
        ("four", 10, False, ""),
    ]
    assert found[0].query.strip() == "select 1 as x"
    assert found[1].query.startswith("\n" * 4 + "  with c")
    assert found[1].query.endswith("select * from c")
    assert found[2].query.strip() == r"(select r'\' as x from two)"
    for one in found:  # lines and columns are those of the file
        for number, line in enumerate(one.query.split("\n")):
            assert SQL.split("\n")[number].startswith(line.rstrip(";")) or not line.strip() or line.strip() in SQL


def test_comments_and_white_space_are_no_change():
    one, other = (
        statements(text, "t.sql")[0] for text in ("create table a as select  1 -- x", "create table a as\nselect 1;")
    )
    assert one.said == other.said
    assert statements("create table a as select 2", "t.sql")[0].said != one.said
    assert (
        statements("create table a as select '1  1'", "")[0].said
        != statements("create table a as select '1 1'", "")[0].said
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n\nselect 1", "t.sql:3: 'select 1' begins no definition"),
        ("create table", "t.sql:1: a name must follow TABLE"),
        ("create table x", "t.sql:1: AS and a query must follow the name x"),
        ("create table x as", "t.sql:1: AS and a query must follow the name x"),
        ("create table 5 as select 1", "t.sql:1: a name must follow TABLE"),
        ("create table x as select 1;\ncreate table x as select 'a", "t.sql:2: this text, name or comment has no end"),
        ("create table x as select 1 /* a\n/* b */", "t.sql:1: this text, name or comment has no end"),
        ("create table `x", "t.sql:1: this text, name or comment has no end"),
        ("create table x as select 1;\n\ncreate table X as select 1", "t.sql:3: X is defined at t.sql:1 already"),
        ("create table messages as select 1", "t.sql:1: messages is a built-in table"),
        ("create table `a b` as select 1", "t.sql:1: the name 'a b' is not made of letters"),
        ("create temp table x as select 1", "begins no definition"),
        ("create view x as select 1", "defines no table"),
        ("-- nothing", "defines no table"),
        ("", "defines no table"),
    ],
)
def test_errors_of_sql_have_their_line(tmp_path, text, told):
    (tmp_path / "t.sql").write_text(text)
    with pytest.raises(penstock.Invalid, match=re.escape(told)) as caught:
        definitions.load([tmp_path / "t.sql"])
    assert "\n" not in str(caught.value)


PYTHON = '''"""Tables."""
from dataclasses import dataclass

@dataclass
class _Scale:
    by: float

def _helper(frame):
    return frame

def fast(drive_speed):
    """Fast rows.

    More words."""
    return _helper(drive_speed)

def both(fast, other="log:a.b", *, spark):
    return fast
'''


def test_functions_of_python(tmp_path):
    path = tmp_path / "t.py"
    path.write_text(PYTHON)
    found = definitions.load([path])
    assert [(one.name, one.place, one.comment, one.arguments) for one in found] == [
        ("fast", "t.py:11", "Fast rows.", (("drive_speed", "drive_speed"),)),
        ("both", "t.py:17", "", (("fast", "fast"), ("other", "log:a.b"), ("spark", "spark"))),
    ]
    path.write_text(PYTHON.replace("return frame", "return  frame  # a comment"))
    assert [one.digest for one in definitions.load([path])] == [one.digest for one in found]
    path.write_text(PYTHON.replace("return frame", "return frame.distinct()"))
    assert all(one.digest != other.digest for one, other in zip(definitions.load([path]), found, strict=True))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def a(x):\n  return (", "t.py:2: SyntaxError"),
        ("import os\n\nos.nope", "t.py:3: AttributeError"),
        ("def a(*x):\n  pass", "t.py:1: the parameter *x names no table"),
        ("\ndef a(x=5):\n  pass", "t.py:2: the default of x must be"),
        ("x = 1", "defines no table"),
    ],
)
def test_errors_of_python_have_their_line(tmp_path, text, told):
    (tmp_path / "t.py").write_text(text)
    with pytest.raises(penstock.Invalid, match=re.escape(told)):
        definitions.load([tmp_path / "t.py"])


def test_files_that_are_not_there_or_of_another_kind(tmp_path):
    with pytest.raises(penstock.NotFound, match="there is no file of tables"):
        definitions.load([tmp_path / "none.sql"])
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(penstock.Invalid, match=r"in \.sql or \.py files"):
        definitions.load([tmp_path / "a.txt"])
    (tmp_path / "b.sql").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(penstock.Invalid, match="cannot be read"):
        definitions.load([tmp_path / "b.sql"])
    assert definitions.load([]) == []


def test_streams_are_named_by_channel_and_by_table():
    names = Names(["log:drive/speed", "ring:drive/speed", "log:A.b", "log:a.B", "log:stats"], ["mine"])
    assert names.find("log:drive/speed") == names.find("log_drive__speed") == "log:drive/speed"
    assert names.find("RING_drive__speed") == "ring:drive/speed"
    assert names.find("log:A.b") == "log:A.b"
    assert names.find("MINE") == "mine"
    assert names.find("stats") == "stats"
    assert names.find("log:stats") == names.find("log_stats") == "log:stats"
    assert names.find("nope") is None
    assert names.find("drive__speed") is None
    with pytest.raises(penstock.Invalid, match=r"may be log:A\.b or log:a\.B"):
        names.find("LOG:A.B")
    assert "there is mine" in names.like("min")
    assert dict(names.shown())["log_drive__speed"] == "log:drive/speed"
    assert quoted("log:a`b") == "`log:a``b`"


def test_definitions_are_put_in_order(tmp_path):
    path = tmp_path / "t.sql"

    def order(reads):
        path.write_text("".join(f"create table {name} as select 1;\n" for name in reads))
        names = Names(["log:s"], reads)
        return definitions.ordered(definitions.load([path]), names, lambda one: reads[one.name])

    found = order({"c": ["b", "A"], "b": ["a", "log_s"], "a": ["log_s", "LOG:s", "messages"]})
    assert [(one.name, reads) for one, reads in found] == [
        ("a", ["log:s", "messages"]),
        ("b", ["a", "log:s"]),
        ("c", ["b", "a"]),
    ]
    with pytest.raises(penstock.Invalid, match=r"t\.sql:1: tables read each other in a circle: a → b → c → a"):
        order({"a": ["b"], "b": ["c"], "c": ["a"]})
    with pytest.raises(penstock.Invalid, match=r"t\.sql:2: b reads itself"):
        order({"a": [], "b": ["b"]})
    with pytest.raises(
        penstock.Invalid, match=r"t\.sql:1: a reads messagse, which is no table and no stream; there is messages"
    ):
        order({"a": ["messagse"]})
