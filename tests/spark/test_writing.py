"""Writing from Spark: rows become messages on a channel or in an archive; each batch of a query once, whenever its publisher dies."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONG

import penstock
from penstock import codecs

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
import pyarrow as pa  # noqa: E402

from penstock.spark.source.staging import Encoding  # noqa: E402
from penstock.spark.source.writing import Target  # noqa: E402

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# ---- options and rows, without Spark ----

WRONG = [
    ({}, "name the channel"),
    ({"channel": "log:o", "chanel": "x"}, "no option chanel for writing; there are channel, archive"),
    ({"channel": "frames:o"}, "shared memory"),
    ({"channel": "log:o", "archive": "a", "path": "b"}, "the same option"),
    ({"channel": "log:o", "archive": "s3://b/a"}, "a folder of this machine"),
    ({"channel": "log:o", "timeColumn": "t"}, "timeColumn is for archives"),
    ({"channel": "log:o", "whenUnknown": "perhaps"}, "whenUnknown is 'perhaps'"),
    ({"channel": "log:o", "timeout": "soon"}, "timeout is 'soon'"),
    ({"channel": "log:o", "txnAppId": "me", "outbox": "o"}, "go together"),
    ({"channel": "log:o", "txnAppId": "me", "txnVersion": "-1", "outbox": "o"}, "txnVersion is '-1'"),
    ({"channel": "log:o", "txnAppId": "me", "txnVersion": "1"}, "txnAppId needs the option outbox"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_options_are_errors(options, text):
    with pytest.raises(penstock.PenstockError, match=text) as caught:
        Target.of(options, streaming=False, overwrite=False)
    assert "\n" not in str(caught.value)


def test_a_query_needs_a_folder_for_its_ledger(tmp_path):
    for options in ({}, {"checkpointLocation": "s3://b/c"}):
        with pytest.raises(penstock.Invalid, match="needs the option outbox"):
            Target.of({"channel": "log:o", **options}, streaming=True, overwrite=False)
    options = {"channel": "log:o", "checkpointLocation": f"file://{tmp_path}"}
    assert Target.of(options, streaming=True, overwrite=False).outbox == f"{tmp_path}/outbox"
    with pytest.raises(penstock.Invalid, match="mode append"):
        Target.of({"channel": "log:o"}, streaming=False, overwrite=True)


def messages(columns, rows, codec=None, time=None):
    found = Encoding.of(columns, codec, time).encode(rows)
    return found.column("payload").to_pylist(), found.column("time_ns").to_pylist()


def test_rows_become_messages():
    rows = pa.RecordBatch.from_pydict({"payload": [b"a", b"\xff"], "n": [1, 2]})
    assert messages({"payload": "binary", "n": "bigint"}, rows) == ([b"a", b"\xff"], [None, None])
    text = pa.RecordBatch.from_pydict({"payload": ["ä"]})
    assert messages({"payload": "string"}, text, "json") == (["ä".encode()], [None])
    columns = {"n": "bigint", "ok": "boolean", "at": "timestamp", "list": "array<int>", "map": "map<string,int>"}
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    values = {"n": [1], "ok": [None], "at": [at], "list": [[1, 2]], "map": [[("k", 3)]]}
    kinds = [pa.int64(), pa.bool_(), pa.timestamp("us", "UTC"), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())]
    whole = pa.RecordBatch.from_arrays(
        [pa.array(v, k) for v, k in zip(values.values(), kinds, strict=True)], list(values)
    )
    (found,), _ = messages(columns, whole)
    assert json.loads(found) == {"n": 1, "ok": None, "at": "2026-01-31T12:00:00Z", "list": [1, 2], "map": {"k": 3}}
    bodies, times = messages(columns, whole, "msgpack", "at")
    assert len(bodies) == 1
    assert times == [int(at.timestamp()) * 10**9]


def test_rows_become_records():
    columns = {"n": "bigint", "x": "float", "ok": "boolean", "name": "string"}
    rows = pa.RecordBatch.from_pydict(
        {"n": [1, 2], "x": pa.array([0.5, 1.5], pa.float32()), "ok": [True, False], "name": ["a", "bc"]}
    )
    numbers = {name: columns[name] for name in ("n", "x", "ok")}
    found, _ = messages(numbers, rows.select(list(numbers)), "struct")
    codec = codecs.resolve(Encoding.of(numbers, "struct", None).codec)
    assert [tuple(codec.decode(one)) for one in found] == [(1, 0.5, True), (2, 1.5, False)]
    fields = '[["name", "S2"], ["n", "<u1"]]'
    codec = codecs.resolve(Encoding.of(columns, fields, None).codec)
    assert [tuple(codec.decode(one)) for one in messages(columns, rows, fields)[0]] == [(b"a", 1), (b"bc", 2)]
    too_large = pa.RecordBatch.from_pydict({"name": ["abc"], "n": [1]})
    with pytest.raises(penstock.Invalid, match="abc"):
        messages(columns, too_large, fields)


@pytest.mark.parametrize(
    ("columns", "codec", "time", "text"),
    [
        ({"payload": "bigint"}, None, None, "payload is bigint"),
        ({"n": "bigint"}, "bytes", None, "come from a column payload"),
        ({"name": "string"}, "struct", None, "no fixed width"),
        ({"n": "bigint"}, "avro", None, "codec is 'avro'"),
        ({"n": "bigint"}, '[["m", "<i8"]]', None, "names m, which is no column"),
        ({"n": "bigint"}, "json", "when", "timeColumn is 'when'"),
        ({"n": "string"}, "json", "n", "must name a column of type"),
    ],
)
def test_columns_that_make_no_messages_are_errors(columns, codec, time, text):
    with pytest.raises(penstock.Invalid, match=text) as caught:
        Encoding.of(columns, codec, time)
    assert "\n" not in str(caught.value)


def test_nulls_that_make_no_messages_are_errors():
    with pytest.raises(penstock.Invalid, match="payload is null"):
        messages({"payload": "binary"}, pa.RecordBatch.from_pydict({"payload": [b"", None]}))
    with pytest.raises(penstock.Invalid, match="column n is null"):
        messages({"n": "bigint"}, pa.RecordBatch.from_pydict({"n": [1, None]}), "struct")
    with pytest.raises(penstock.Invalid, match="column t is null"):
        rows = pa.RecordBatch.from_pydict({"n": [1], "t": pa.array([None], pa.int64())})
        messages({"n": "bigint", "t": "bigint"}, rows, "json", "t")


# ---- with Spark ----


@pytest.fixture
def numbers(archive):
    """`numbers(count)` records so many messages of log:in, and returns their payloads."""
    pub = penstock.publish("log:in", codec="json")

    def record(count):
        with archive.record("log:in", extend=True):
            for number in range(count):
                pub.send({"n": number})
        return [message.data for message in archive.replay("log:in", decode=False)]

    yield record
    pub.close()


@pytest.mark.slow
def test_a_frame_goes_onto_a_channel(spark, channels, tmp_path):
    with penstock.subscribe("log:out") as sub, penstock.subscribe("log:two") as two:
        frame = spark.range(100).repartition(3)
        frame.write.format("penstock").option("channel", "log:out").option("codec", "struct").mode("append").save()
        assert sorted(int(one["id"]) for one in sub.poll()) == list(range(100))
        once = {"channel": "log:two", "txnAppId": "me", "outbox": str(tmp_path / "outbox")}
        for version in (0, 0, 1):
            row = spark.range(1).selectExpr(f"{version} as x")
            row.write.format("penstock").options(**once, txnVersion=version).mode("append").save()
        assert [one["x"] for one in two.poll()] == [0, 1]


def test_a_frame_goes_into_an_archive(spark, tmp_path):
    frame = spark.range(1000).selectExpr("id", "id * 1000000000 as t")
    for _ in range(2):
        options = {"channel": "log:out", "timeColumn": "t", "txnAppId": "me", "txnVersion": 1}
        frame.write.format("penstock").options(**options).mode("append").save(str(tmp_path / "new"))
    archive = penstock.Archive(tmp_path / "new")
    found = sorted(archive.replay("log:out"), key=lambda one: one.time_ns)
    assert [(one.data, one.time_ns) for one in found] == [({"id": n}, n * 10**9) for n in range(1000)]
    read = penstock.spark.load(spark, tmp_path / "new", columns=["payload", "lost"])
    assert (read.count(), read.agg({"lost": "sum"}).first()[0]) == (1000, 0)
    assert not archive.verify()


def test_errors_are_ours_and_leave_nothing(spark, channels, tmp_path):
    from penstock.spark.runtime.failures import failure

    for options, text in (
        ({"channel": "log:out", "sinse": "1"}, "there is no option sinse for writing"),
        ({"channel": "log:out", "codec": "struct"}, "has no fixed width"),
        ({"channel": "log:out", "archive": str(tmp_path / "a")}, "x is nan, and JSON has no such number"),
    ):
        frame = spark.range(3).selectExpr("'x' as name", "cast('nan' as double) as x")
        with pytest.raises(pyspark.errors.PySparkException) as caught:
            frame.write.format("penstock").options(**options).mode("append").save()
        assert text in str(failure(caught.value))
    assert penstock.list_channels("out") == []


def dying(steps):
    """A data source that dies in its commit: at the first of the steps in a file, which it takes out of it."""
    from penstock.spark.source.data_source import PenstockDataSource

    class Dying(PenstockDataSource):
        @classmethod
        def name(cls):
            return "dying"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            import json
            import signal

            from penstock.record.write import append, outbox

            writer = super().streamWriter(schema, overwrite)
            with open(steps) as file:
                left = json.load(file)
            step = left[0] if left else None

            def die():
                with open(steps, "w") as file:
                    json.dump(left[1:], file)
                os.kill(os.getpid(), signal.SIGKILL)

            def mortal(call, at, after):
                count = [0]

                def called(*given, **named):
                    count[0] += 1
                    if count[0] == at and not after:
                        die()
                    result = call(*given, **named)
                    if count[0] == at and after:
                        die()
                    return result

                return called

            def commit(messages, batch):
                places = {
                    "sending": (outbox, "send_encoded"),
                    "ledger": (outbox.Outbox, "_write"),
                    "entry": (append.batch_files, "write"),
                    "named": (append.segment_totals, "update"),
                }
                if step is not None:
                    what, at, after = step
                    if what == "before commit":
                        die()
                    if what in places:
                        owner, name = places[what]
                        setattr(owner, name, mortal(getattr(owner, name), at, after))
                type(writer).commit(writer, messages, batch)
                if step is not None and step[0] == "after commit":
                    die()

            writer.commit = commit
            return writer

    return Dying


# All of them with PENSTOCK_LONG=1. tests/record/test_append.py and test_outbox.py die at every moment, without a JVM.
CHANNEL_STEPS = [
    ("before commit", 0, False),
    ("ledger", 1, False),
    ("ledger", 1, True),
    ("sending", 20, False),
    ("sending", 20, True),
    ("ledger", 2, False),
    ("ledger", 2, True),
    ("after commit", 0, False),
]
ARCHIVE_STEPS = [
    ("before commit", 0, False),
    ("entry", 1, False),
    ("entry", 1, True),
    ("named", 1, False),
    ("named", 1, True),
    ("after commit", 0, False),
]


if not LONG:
    CHANNEL_STEPS, ARCHIVE_STEPS = CHANNEL_STEPS[2:7:2], ARCHIVE_STEPS[2:5:2]


def run_until_done(spark, archive, tmp_path, steps, options):
    """Starts the query again after each death. How many deaths there were."""
    path = tmp_path / "steps"
    path.write_text(json.dumps(steps))
    spark.dataSource.register(dying(str(path)))
    deaths = 0
    while True:
        frame = spark.readStream.format("penstock").option("maxMessagesPerTrigger", 100).load(str(archive.path))
        writer = frame.where("position % 3 = 0").writeStream.format("dying").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except pyspark.errors.PySparkException:
            deaths += 1
            assert deaths <= len(steps)
            continue
        return deaths


def thirds(archive):
    return [one.data for one in archive.replay("log:in", decode=False) if one.position % 3 == 0]


@pytest.mark.slow
def test_a_killed_publisher_doubles_and_loses_nothing(spark, channels, archive, numbers, tmp_path):
    """The process that publishes dies at each step of a batch. A subscriber hears each message once, in order."""
    numbers(1200 if LONG else 500)
    options = {"channel": "log:out", "codec": "json"}
    with penstock.subscribe("log:out") as sub:
        assert run_until_done(spark, archive, tmp_path, CHANNEL_STEPS, options) == len(CHANNEL_STEPS)
        heard = sub.poll_arrow().column("payload").to_pylist()
    assert heard == thirds(archive)
    assert not list((tmp_path / "c" / "outbox").rglob("*.arrow"))


@pytest.mark.slow
def test_a_killed_appender_doubles_and_loses_nothing(spark, archive, numbers, tmp_path):
    """The same into an archive."""
    numbers(1200 if LONG else 500)
    options = {"channel": "log:out", "archive": str(tmp_path / "to")}
    assert run_until_done(spark, archive, tmp_path, ARCHIVE_STEPS, options) == len(ARCHIVE_STEPS)
    to = penstock.Archive(tmp_path / "to")
    assert [one.data for one in to.replay("log:out", decode=False)] == thirds(archive)
    assert not to.verify()
    assert not list(to.path.rglob("*.arrow"))


@pytest.mark.slow
def test_the_example(channels, tmp_path):
    """examples/spark_stream.py, in a process and a JVM of its own."""
    path = Path(__file__).parents[2] / "examples" / "spark_stream.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "80 {'number': 46, 'speed': 46} {'number': 999, 'speed': 49}"
    assert len(path.read_text().splitlines()) <= 32
