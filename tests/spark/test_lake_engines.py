"""One query over memory, recordings and tables, by every engine: the same rows, values and types; the same errors; messages live."""

import collections
import contextlib
import dataclasses
import datetime
import functools
import threading

import msgspec
import numpy as np
import pytest

import penstock
import penstock.tables
from penstock.columns.contract.types import ddl
from penstock.tables.lake import parts

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
ENGINES = ["duckdb", "polars", "spark", "sail"]
ON_SPARK = ["spark", "sail"]
KEY = [("epoch", "ascending"), ("position", "ascending")]
RECORD = np.dtype([("t", "<f8"), ("id", "<u2"), ("gyro", "<f4", (3,)), ("name", "S4")])
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)


class Pose(msgspec.Struct):
    """Columns of a class: a moment, bytes, a map, a list of structs."""

    x: float | None
    at: datetime.datetime
    raw: bytes
    gains: dict[str, int]
    path: list[dict[str, float]]


@dataclasses.dataclass
class Order:
    """A flat one."""

    symbol: str
    size: int


def free(number):
    """A message with a value that fits no column, and with keys that come later than the stream's table."""
    more = {"late": number} if number > 25 else {}
    more |= {"later": {"a b": [number, None]}} if number > 35 else {}
    return {
        "t": "odd" if number % 9 == 4 else number,
        "gyro": [number / 2, 0.5],
        "n": {"a": number},
        "None": None,
        **more,
    }


def pose(number):
    return Pose(
        None if number % 3 else number / 7, MOMENT, b"\xff%d" % number, {"p": number}, [{"x": 1.5}] * (number % 3)
    )


@functools.cache
def protobuf_class():
    """One class for all messages."""
    return pytest.importorskip("poses", reason="needs protobuf").message_class()


def protobuf(number):
    at = protobuf_class()(
        x=number / 3, ticks=2**64 - 1 - number, raw=b"\x00\xff", mode=1, path=[0.5] * (number % 3), gains={"p": 2.0}
    )
    at.at.FromDatetime(MOMENT.replace(tzinfo=None))
    return at


# Of each codec: its channel's option, and the message of a number.
CODECS = {
    "json": ("json", free),
    "msgpack": ("msgpack", lambda number: {**free(number), "raw": b"\xff\x00", "big": 2**64 - 1 - number}),
    "dtype": (RECORD, lambda number: (number / 7, number, (number, 0.5, -1), b"ab")),
    "array": (penstock.array("<i2", (-1, 2)), lambda number: np.full((number % 4, 2), number, "<i2")),
    "struct": (penstock.objects(Pose, "msgpack"), pose),
    "dataclass": (Order, lambda number: Order(f"é{number}", -number)),
    "protobuf": (None, protobuf),
}


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(params=ON_SPARK)
def session(request):
    """A session on Spark, and one on Sail."""
    return opened(request, request.param)


def opened(request, name):
    if name == "spark":
        request.getfixturevalue("channels")
        return request.getfixturevalue("spark")
    return request.getfixturevalue("sail")


@pytest.fixture(scope="module")
def sail_server(tmp_path_factory):
    """A session on a server of Sail's, and the folder of channels that its data sources have."""
    pytest.importorskip("pysail", reason="Sail is not installed: pip install 'penstock[sail]'")
    from penstock.spark.runtime import sail

    folder = tmp_path_factory.mktemp("channels")
    folder.chmod(0o700)
    with contextlib.ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patched:  # its processes have it from their start
            patched.setenv("PENSTOCK_DIR", str(folder))
            made = opened.enter_context(sail.session())
        yield made, folder


@pytest.fixture
def sail(sail_server, monkeypatch):
    """That session, whose channels this test has."""
    made, folder = sail_server
    monkeypatch.setenv("PENSTOCK_DIR", str(folder))
    yield made
    for one in penstock.list_channels():
        penstock.remove(one.channel)


@contextlib.contextmanager
def of_three(tmp_path, codecs):
    """A lake of streams whose rows are in tables, then in a recording, then in memory."""
    archive, tables = penstock.Archive(tmp_path / "archive"), tmp_path / "tables"
    with contextlib.ExitStack() as held:
        streams = {}
        for name, (codec, made) in codecs.items():
            codec = type(made(0)) if codec is None else codec
            streams[held.enter_context(penstock.publish(f"log:lake/{name}", codec=codec))] = made

        def send(first, end):
            for publication, made in streams.items():
                for number in range(first, end):
                    publication.send(made(number))

        for first, end in ((0, 10), (10, 20)):
            with archive.record([str(one.channel) for one in streams], extend=True):
                send(first, end)
            penstock.tables.run(archive.path, tables)
        with archive.record([str(one.channel) for one in streams]):
            send(20, 30)
        send(30, 40)
        yield penstock.lake(tables, archive), archive, tables, send


def ask(name, session, cut, stream):
    """All rows of a stream in the order of their key, by an engine."""
    if name == "polars":
        found = cut.polars(stream).sort("epoch", "position").collect()
        wanted = pytest.importorskip("polars").from_arrow(cut[stream].schema.empty_table()).schema
        assert dict(found.schema) == dict(wanted)
        return found.to_arrow().cast(cut[stream].schema)
    query = f"select * from '{stream}'"
    if name == "duckdb":
        return cut.sql(query).sort_by(KEY)
    from penstock.spark import lake

    return lake.query(session, cut, query).toArrow().sort_by(KEY)


def values(table):
    """Values of a table, NaN as itself, maps as pairs."""
    return [repr(row) for row in table.to_pylist()]


@pytest.mark.slow
def test_engines_have_the_same_values_and_types(request, tmp_path, engine):
    """Of every codec, in every column, of rows from files of two schemas, from a recording and from memory."""
    pytest.importorskip({"spark": "pyspark", "sail": "pysail"}.get(engine, engine))
    session = opened(request, engine) if engine in ON_SPARK else None
    with of_three(tmp_path, CODECS) as (lake, *_):
        cut = lake.cut()
        assert len(cut) == len(CODECS)
        for stream in cut:
            wanted = cut.reader(stream).read_all().sort_by(KEY)
            kinds = collections.Counter(type(part) for part in (*cut[stream].files(), *cut[stream].rest))
            assert {kind: kinds[kind] > 0 for kind in kinds} == dict.fromkeys(
                (parts.FilePart, parts.RangePart, parts.MemoryPart), True
            )
            found = ask(engine, session, cut, stream)
            assert found.column_names == wanted.column_names
            assert {one.name: ddl(one.type) for one in found.schema} == {
                one.name: ddl(one.type) for one in wanted.schema
            }
            assert values(found) == values(wanted), stream
            assert found.num_rows == 40


QUERIES = [
    "select count(*) as n, avg(gyro[1]) as a, min(gyro[-1]) as b from 'log:lake/json' where time > now() - interval 5 hours",
    'select t, n.a as x, gyro[cast(t - 7 as int)] as g, late from "lake/json" where t between 8 and 12 or late is not null order by late desc, t',
    "with few as (select t, gyro from log_lake__json where t < 7) select sum(t) as s, 7 // 2 as d, 7 / 2 as q from few",
    "select p.gains['p'] as p, len(o.symbol) as l, o.size from `log:lake/struct` p join 'log:lake/dataclass' o "
    "on p.gains['p'] = -o.size order by 1 limit 7",
    "select \"log_lake__dtype\".id, '{a}' as braces from log_lake__dtype order by id desc nulls last limit 3",
    "select later['a b'][1] as l from lake_json_ where later is not null order by 1",
]


@pytest.mark.slow
def test_the_same_text_has_the_same_answer(tmp_path, session):
    pytest.importorskip("duckdb")
    from penstock.spark import lake as lakes

    codecs = {name: CODECS[name] for name in ("json", "struct", "dataclass", "dtype")}
    with of_three(tmp_path, codecs) as (lake, *_):
        for query in QUERIES:
            query = query.replace("lake_json_", "log_lake__json")
            cut = lakes.cut_of(lake, query)
            wanted, found = cut.sql(query), lakes.query(session, cut, query).toArrow()
            assert wanted.num_rows
            # Numbers of several types: sums are wider in DuckDB.
            assert found.to_pylist() == wanted.to_pylist(), query


WRONG = [
    ("select * from 'log:lake/jsom'", penstock.NotFound, "there is no stream log:lake/jsom; there is log:lake/json"),
    ("select * from 'log:raw'", penstock.Invalid, "log:raw has messages of plain bytes"),
    ("selec 1", penstock.Invalid, "this is not a query: "),
    ("create table x(a int)", penstock.Invalid, "this is not a query: "),
    ("explain select 1", penstock.Invalid, "this is not a query: "),
    ("select 'x", penstock.Invalid, "this is not a query: "),
    ("select 1; select 2", penstock.Invalid, "this is not one query: write SELECT …"),
    ("", penstock.Invalid, "this is not one query: write SELECT …"),
    ("select nope from 'log:lake/json'", penstock.Invalid, "nope"),
    ("select t + 'x' from 'log:lake/json'", penstock.Invalid, ""),
    ("select no_such_function(t) from 'log:lake/json'", penstock.Invalid, "NO_SUCH_FUNCTION"),
    ("select gyro[0] from 'log:lake/json'", penstock.Invalid, "index 0 is invalid"),
]


def test_a_wrong_query_is_one_line(session, caplog, capfd):
    from penstock.spark import lake as lakes

    with penstock.publish("log:raw") as raw, penstock.publish("log:lake/json", codec="json") as json:
        raw.send(b"1")
        json.send(free(1))
        for query, kind, text in WRONG:
            with pytest.raises(kind) as caught:
                lakes.answer(session, penstock.lake(), query)
            assert text in str(caught.value), query
            assert "\n" not in str(caught.value)
    assert not caplog.records
    assert not [line for line in capfd.readouterr().err.splitlines() if "WARN" not in line]


@pytest.mark.slow
def test_rows_that_do_not_count_are_in_no_engine(tmp_path, session):
    """Rows behind a cut of a recording that the table has not followed, and rows of an erased time, in all three parts."""
    from penstock.spark import lake as lakes

    with of_three(tmp_path, {"json": CODECS["json"]}) as (lake, archive, tables, send):
        query = "select epoch, position, timestamp_ns, t from 'log:lake/json' order by epoch, position"
        before = lake.sql(query)
        penstock.tables.erase(tables, "log:lake/json", until=before["timestamp_ns"][4].as_py())
        second = archive.list()[0]
        archive.truncate(second.id, before["position"][15].as_py(), force=True)
        cut = lakes.cut_of(lake, query)
        assert cut["log:lake/json"].gone
        wanted = cut.sql(query)
        assert 0 < wanted.num_rows < before.num_rows
        assert lakes.query(session, cut, query).toArrow().to_pylist() == wanted.to_pylist()
        send(40, 41)
        assert lakes.query(session, cut, query).toArrow().num_rows == wanted.num_rows, "a cut stays as it is"


def test_a_recording_that_goes_meanwhile_is_an_error(tmp_path, session):
    """As with DuckDB: the task's own error, of which the query may be asked again."""
    from penstock.spark import lake as lakes

    with of_three(tmp_path, {"json": CODECS["json"]}) as (lake, archive, *_):
        query = "select count(*) as n from 'log:lake/json'"
        cut = lakes.cut_of(lake, query)
        for info in archive.list():
            archive.purge(info.id, force=True)
        with pytest.raises(penstock.NotFound) as caught:
            lakes.rows(lakes.query(session, cut, query))
        assert "\n" not in str(caught.value)
        with pytest.raises(penstock.NotFound):
            cut.sql(query)


@pytest.mark.slow
def test_the_command_by_spark_is_as_by_duckdb(tmp_path, channels, spark, monkeypatch, capsys):
    import penstock.spark
    from penstock.cli import run

    pytest.importorskip("duckdb")
    monkeypatch.setattr(penstock.spark, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    told = []
    with of_three(tmp_path, {"json": CODECS["json"]}) as (_, archive, tables, _send):
        places = ["--from", str(archive.path), "--from", str(tables)]
        for query, *options in (
            ("select t, gyro[1] as g, n, time, late from 'log:lake/json' order by position", "--json"),
            ("select count(*) as n from lake_none", "--json"),
            ("select t from log_lake__json order by position", "--limit", "3"),
        ):
            for engine in ("spark", "duckdb"):
                capsys.readouterr()
                status = run(["sql", query, *places, *options, "--engine", engine])
                told.append((status, *capsys.readouterr()))
    assert told[::2] == told[1::2]
    assert [status for status, _, _ in told[::2]] == [0, 1, 0]
    assert len(told[0][1].splitlines()) == 40


@pytest.mark.slow
def test_a_table_is_live(tmp_path, session):
    from penstock.spark import table

    with of_three(tmp_path, {"json": CODECS["json"]}) as (_, archive, tables, send):
        found = table(session, tables, "log:lake/json", live=True, archive=archive)
        send(40, 50)
        penstock.tables.run(archive.path, tables)
        rows = found.toArrow()
        assert rows.num_rows == 40
        assert sorted(rows["n"].to_pylist(), key=lambda n: n["a"]) == [{"a": number} for number in range(40)]
        again = table(session, str(tables), "lake/json", live=True, archive=str(archive.path)).toArrow()
        assert again.num_rows == 50
        assert table(session, tables, "log:lake/json").count() == 30
        with penstock.publish("log:empty", codec="json"):
            assert table(session, tables, "log:empty", live=True).toArrow().num_rows == 0
        for options, text in (
            ({"version": 1, "live": True}, "name its channel alone"),
            ({"live": 1}, "live is 1"),
            ({"archive": archive}, "go with live=True"),
        ):
            with pytest.raises(penstock.Invalid, match=text):
                table(session, tables, "log:lake/json", **options)
        with pytest.raises(penstock.Invalid, match="messages is a table of all"):
            table(session, tables, "messages", live=True)


def read(session, archive, schema="position bigint, payload binary", **options):
    reader = session.read.format("penstock").schema(schema).option("live", "true")
    return reader.options(**options).load(str(archive.path)).toArrow().to_pylist()


@pytest.mark.slow
def test_the_data_source_has_what_only_memory_has(archive, session):
    """Each message once, wherever it is; with the columns that it has when it is recorded."""
    from penstock.spark import load, register

    register(session)
    columns = "stream string, session int, position bigint, time timestamp, timestamp_ns bigint, flags int, lost bigint, payload binary"
    with penstock.publish("log:a", capacity=65536) as a, penstock.publish("log:b", codec="json") as b:
        with archive.record("log:a"):
            for number in range(50):
                a.send(b"%d" % number)
        a.send(bytes(40_000))  # in fragments
        for number in range(50, 60):
            a.send(b"%d" % number)
        b.send({"only": "memory"})
        before = read(session, archive, columns)
        assert len({(row["stream"], row["position"]) for row in before}) == len(before) == 62
        assert sum(row["lost"] for row in before) == 0
        assert load(session, archive.path, live=True, stream="log:a").count() == 61
        with archive.record(["log:a", "log:b"], start="earliest"):
            pass
        after = session.read.format("penstock").schema(columns).load(str(archive.path)).toArrow().to_pylist()
        order = lambda row: (row["stream"], row["position"])  # noqa: E731
        assert sorted(before, key=order) == sorted(after, key=order)
        (first, last) = (sorted(row["position"] for row in after if row["stream"] == "log:a")[at] for at in (45, 54))
        times = {row["position"]: row["timestamp_ns"] for row in after if row["stream"] == "log:a"}
        a.send(b"new")
        within = read(session, archive, start=str(first), end=str(last), stream="log:a")
        assert len(within) == 9
        span = {"since": str(times[first]), "until": str(times[last])}
        wanted = sum(times[first] <= time <= times[last] for time in times.values())
        assert len(read(session, archive, stream="log:a", **span)) == wanted


def test_a_live_read_says_what_is_lost(archive, session):
    """The first message behind it counts what memory had let go of before a recorder had it."""
    from penstock.spark import register

    register(session)
    with penstock.publish("log:a", capacity=65536) as publication:
        with archive.record("log:a"):
            publication.send(b"recorded")
        end = publication.position
        for _ in range(10_000):
            publication.send(b"x" * 20)
        rows = sorted(
            read(session, archive, "position bigint, lost bigint, recorded_ns bigint"), key=lambda row: row["position"]
        )
    assert [row["recorded_ns"] is None for row in rows] == [False, *[True] * (len(rows) - 1)]
    losses = [row["lost"] for row in rows]
    assert losses[1] == rows[1]["position"] - end > 0
    assert sum(losses) == losses[1]


@pytest.mark.slow
def test_live_reads_while_messages_are_sent_and_recorded(archive, session):
    """Each read has all messages from the first on, without a gap, and at least those that were there before it."""
    from penstock.spark import register

    register(session)
    stop, sent = threading.Event(), [0]

    def write(publication):
        while not stop.is_set():
            publication.send(b"%08d" % sent[0])
            sent[0] += 1
            if not sent[0] % 100:  # where reads are slow, they do not get longer and longer
                stop.wait(0.001 if sent[0] < 20_000 else 0.05)

    with penstock.publish("log:a", capacity="1MiB") as publication, archive.record("log:a", start="earliest"):
        writer = threading.Thread(target=write, args=(publication,))
        writer.start()
        try:
            for _ in range(5):
                least = sent[0]
                numbers = sorted(int(row["payload"]) for row in read(session, archive, "payload binary"))
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= least
        finally:
            stop.set()
            writer.join()


WRONG_OPTIONS = [
    ({"live": "maybe"}, "live is 'maybe': it must be true or false"),
    ({"stream": "log:none"}, "memory has a stream log:none"),
    ({"startingOffsets": "earliest"}, "startingOffsets is about recordings alone"),
    ({"nope": "1"}, "there is no option nope"),
    ({"schema": "recorded_ns bigint not null"}, "recorded_ns is null for messages that only memory has"),
    ({"schema": "position string"}, "the column position is bigint, not string"),
]


def test_a_wrong_option_of_a_live_read_is_one_line(archive, session):
    from penstock.spark import register
    from penstock.spark.runtime.failures import failure

    register(session)
    for options, text in WRONG_OPTIONS:
        with pytest.raises(Exception) as caught:  # noqa: PT011  (Spark's, or Sail's)
            read(session, archive, **options)
        told = str(failure(caught.value))
        assert text in told
        assert "\n" not in told
