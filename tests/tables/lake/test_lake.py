"""`penstock.lake`: names, limits, what is missing, what is erased, dead and slow publications."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import penstock
import penstock.tables
from penstock.tables.delta.places import Place
from penstock.tables.folder import Folder
from penstock.tables.lake import cut, parts
from penstock.tables.lake.snapshots import Snapshots

pytest.importorskip("duckdb")


@pytest.fixture
def imu():
    """A channel with a hundred messages, and nothing else."""
    with penstock.publish("log:robot/imu", codec="json") as publication:
        for number in range(100):
            publication.send({"t": number, "gyro": [number / 2, 0.5]})
        yield publication


@pytest.fixture
def all_three(tmp_path, imu):
    """Thirty messages more in the tables, then twenty in a recording, then ten in memory. (lake, archive, tables)"""
    archive, tables = penstock.Archive(tmp_path / "archive"), tmp_path / "tables"
    with archive.record("log:robot/imu", start="earliest"):
        send(imu, 100, 130)
    penstock.tables.run(archive.path, tables)
    with archive.record("log:robot/imu"):
        send(imu, 130, 150)
    send(imu, 150, 160)
    return penstock.lake(tables, archive), archive, tables


def send(publication, first, end):
    for number in range(first, end):
        publication.send({"t": number, "gyro": [number / 2, 0.5]})


@pytest.mark.parametrize(
    "name", ["'log:robot/imu'", '"log:robot/imu"', "log_robot__imu", '"robot/imu"', "LOG_ROBOT__IMU"]
)
def test_a_stream_has_three_names(imu, name):
    found = penstock.lake().sql(f"select count(*) as n, sum(t) as s, max(gyro[1]) as g from {name}")
    assert found.to_pylist() == [{"n": 100, "s": 4950, "g": 49.5}]


def test_a_name_of_two_streams_is_refused(imu):
    with penstock.publish("ring:robot/imu", codec="json") as ring:
        ring.send({"t": 1})
        with pytest.raises(penstock.Invalid, match="may be log:robot/imu or ring:robot/imu"):
            penstock.lake().sql('select * from "robot/imu"')
        assert penstock.lake().sql("select t from 'ring:robot/imu'").to_pylist() == [{"t": 1}]


@pytest.mark.parametrize(
    ("query", "error", "text"),
    [
        (
            "select * from 'log:robot/imv'",
            penstock.NotFound,
            "there is no stream log:robot/imv; there is log:robot/imu",
        ),
        ("select nope from 'log:robot/imu'", penstock.Invalid, '"nope" not found'),
        ("selec 1", penstock.Invalid, "this is not a query"),
        ("create table x(a int)", penstock.Invalid, "this is not a query"),
        ("select 1; select 2", penstock.Invalid, "not one query"),
        ("", penstock.Invalid, "not one query"),
        ("select * from 'log:raw'", penstock.Invalid, "plain bytes"),
    ],
)
def test_a_wrong_query_is_one_line(imu, query, error, text):
    with penstock.publish("log:raw") as raw:
        raw.send(b"1")
        with pytest.raises(error) as caught:
            penstock.lake().sql(query)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lake_of_nothing_is_refused(tmp_path):
    with pytest.raises(penstock.Invalid, match="without any of them"):
        penstock.lake(live=False)
    with pytest.raises(penstock.NotFound, match="no archive"):
        penstock.lake(archive=tmp_path / "none")


def test_each_row_comes_from_one_of_three(all_three):
    lake, archive, tables = all_three
    rows = lake.sql("select t, recording, ingested_at is null as fresh from log_robot__imu order by t")
    assert rows["t"].to_pylist() == list(range(160))
    assert rows["fresh"].to_pylist() == [False] * 130 + [True] * 30
    assert [number is None for number in rows["recording"].to_pylist()] == [False] * 150 + [True] * 10
    assert lake.tables() == {"log:robot/imu": ("tables", "archive", "memory")}
    for some, count in (
        (penstock.lake(tables, live=False), 130),
        (penstock.lake(archive=archive, live=False), 150),
        (penstock.lake(tables, archive, live=False), 150),
        (penstock.lake(tables), 160),
        (penstock.lake(archive=archive), 160),
    ):
        assert some.sql("select count(*) as n from log_robot__imu")["n"].to_pylist() == [count]


def test_a_commit_changes_no_row_of_a_query(all_three):
    lake, archive, tables = all_three
    query = "select * exclude (recording, recorded_ns, ingested_at) from log_robot__imu order by epoch, position"
    before = lake.sql(query)
    penstock.tables.run(archive.path, tables)
    after = lake.sql(query)
    assert after.schema == before.schema
    assert after.equals(before)


READ_IN_PART = """
import sys, penstock
lake = penstock.lake(sys.argv[1], sys.argv[2], live=False)
if sys.argv[3] == "reader":
    found = lake.reader("log:imu").read_next_batch()
elif sys.argv[3] == "polars":
    found = lake.polars("log:imu").head(3).collect()
else:
    connection = lake.duckdb()
    found = connection.execute('select * from "log:imu"').fetchone()
print("read")
"""


@pytest.mark.slow
def test_a_program_that_reads_in_part_ends(tmp_path):
    """Arrow's own scanner reads ahead in other threads, which would wait for Python's lock at its end."""
    archive = penstock.Archive(tmp_path / "archive")
    for part in range(3):
        messages = [{"n": number, "text": "x" * 2000} for number in range(20_000 * part, 20_000 * (part + 1))]
        archive.append("log:imu", messages, codec="json")
        if part == 0:
            penstock.tables.run(archive.path, tmp_path / "tables")
    for how in ("reader", "polars", "duckdb"):
        command = [sys.executable, "-c", READ_IN_PART, tmp_path / "tables", archive.path, how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", ""), how


def test_a_recording_without_a_message_says_so(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:empty", codec="json"), archive.record("log:empty"):
        pass
    with pytest.raises(penstock.NotFound, match=r"log:empty has no rows: its recordings have no message$"):
        penstock.lake(archive=archive, live=False).sql("select * from 'log:empty'")


def test_a_cut_stays_as_it_is(all_three, imu):
    lake, archive, tables = all_three
    cut = lake.cut("log_robot__imu")
    send(imu, 160, 200)
    penstock.tables.run(archive.path, tables)
    assert cut.sql("select max(t) as t from log_robot__imu")["t"].to_pylist() == [159]
    assert cut.reader("log:robot/imu").read_all().num_rows == 160
    assert lake.sql("select max(t) as t from log_robot__imu")["t"].to_pylist() == [199]


def test_a_reader_takes_columns_and_times(all_three):
    lake, *_ = all_three
    every = lake.reader("robot/imu").read_all()
    times = dict(zip(every["t"].to_pylist(), every["timestamp_ns"].to_pylist(), strict=True))
    found = lake.reader("robot/imu", columns=["gyro", "t"], since=times[125], until=times[154]).read_all()
    assert found.column_names == ["gyro", "t"]
    assert sorted(found["t"].to_pylist()) == [t for t in range(160) if times[125] <= times[t] <= times[154]]
    assert pa.RecordBatchReader.from_stream(lake.reader("robot/imu", columns=["t"])).read_all().num_rows == 160
    with pytest.raises(penstock.NotFound, match="has no column nope"):
        lake.reader("robot/imu", columns=["nope"])


def test_limits_keep_parts_from_being_read(all_three, monkeypatch):
    """The parts that a query's times exclude, and the payloads of those that no column asks for."""
    lake, *_ = all_three
    read, decoded = [], []
    for kind in (parts.FilePart, parts.RangePart, parts.MemoryPart):
        original = kind.read
        monkeypatch.setattr(
            kind, "read", lambda self, asked, original=original: read.append(type(self)) or original(self, asked)
        )
    original_decode = parts.decode
    monkeypatch.setattr(parts, "decode", lambda *given: decoded.append(1) or original_decode(*given))
    times = lake.reader("robot/imu", columns=["timestamp_ns"]).read_all()["timestamp_ns"].to_pylist()
    last = max(times)
    assert set(read) == {parts.FilePart, parts.RangePart, parts.MemoryPart}
    assert not decoded
    read.clear()
    assert lake.reader("robot/imu", since=last).read_all().num_rows == times.count(last)
    assert read == [parts.MemoryPart]
    read.clear()
    query = f"select t from log_robot__imu where time >= make_timestamptz({last // 1000}) and position > 0"
    assert lake.sql(query).num_rows == sum(time >= last // 1000 * 1000 for time in times)
    assert read == [parts.MemoryPart]
    for ns in (sorted(times)[at] for at in (130, 149, 150, 159)):  # the first and the last of a part
        query = f"select t from log_robot__imu where time = make_timestamptz({ns // 1000})"
        assert lake.sql(query).num_rows == sum(time // 1000 == ns // 1000 for time in times)


def test_polars_and_duckdb_have_the_same_rows(all_three):
    polars = pytest.importorskip("polars")
    lake, *_ = all_three
    frame = lake.polars("robot/imu").filter(polars.col("t") >= 140).select("t").collect()
    assert sorted(frame["t"].to_list()) == list(range(140, 160))
    with lake.duckdb() as connection:
        assert connection.sql('select count(*) from "robot/imu" where t >= 140').fetchall() == [(20,)]


def test_what_memory_lets_go_of_is_missing(tmp_path, caplog):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a", codec="json", capacity=65536) as publication:
        with archive.record("log:a"):
            publication.send({"i": -1})
        recorded = publication.position
        for number in range(10_000):
            publication.send({"i": number})
        lake = penstock.lake(archive=archive)
        cut = lake.cut("log:a")
        (missing,) = cut.missing
        rows = cut.sql("select i, position from 'log:a' order by i")
        assert (missing.stream, missing.start) == ("log:a", recorded)
        assert rows["position"].to_pylist()[1] == missing.end
        assert rows["i"].to_pylist() == [-1, *range(10_000 - rows.num_rows + 1, 10_000)]
        assert missing.bytes == (10_000 - rows.num_rows + 1) * 64 + missing.bytes % 64
        lake.sql("select 1 from 'log:a'")
        assert f"{missing.bytes} bytes from position {recorded} on are missing" in caplog.text
        with pytest.raises(penstock.Busy, match="are missing"):
            penstock.lake(archive=archive, strict=True).sql("select * from 'log:a'")
        assert penstock.lake(strict=True).sql("select count(*) as n from 'log:a'")["n"].to_pylist() == [
            rows.num_rows - 1
        ]


def test_a_message_that_a_recorder_has_in_part_is_there_once(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a", codec="json", capacity=65536) as publication:
        with archive.record("log:a"):
            for number in range(5):
                publication.send({"i": number, "long": "x" * 40_000})
        for info in archive.list():  # in the middle of the last message
            archive.truncate(info.id, info.end_position - 16384, force=True)
        found = penstock.lake(archive=archive).sql("select i, length(long) as n from 'log:a' order by i")
        assert found.to_pylist() == [{"i": number, "n": 40_000} for number in range(5)]


@pytest.mark.parametrize("commits", [False, True])
def test_what_is_sent_after_a_cut_has_begun_is_not_in_it(all_three, imu, monkeypatch, commits):
    """Messages that are recorded, or even in the table, when the cut comes to look there."""
    lake, archive, tables = all_three
    original = Snapshots.of

    def of(self, stream):
        monkeypatch.setattr(Snapshots, "of", original)
        with archive.record("log:robot/imu"):
            send(imu, 160, 170)
        if commits:
            penstock.tables.run(archive.path, tables)
        return original(self, stream)

    monkeypatch.setattr(Snapshots, "of", of)
    assert lake.sql("select max(t) as t, count(*) as n from 'log:robot/imu'").to_pylist() == [{"t": 159, "n": 160}]
    assert lake.reader("robot/imu", columns=["t"]).read_all().num_rows == 170


def test_rows_that_go_from_archive_to_table_meanwhile_are_there(all_three, monkeypatch):
    """A commit and a purge come between the look at the table and that at the archive."""
    _, archive, tables = all_three
    lake = penstock.lake(tables, archive, live=False)  # memory would have them, too
    original = cut.ReadPlanner

    def survey(*given):
        monkeypatch.setattr(cut, "ReadPlanner", original)
        penstock.tables.run(archive.path, tables)
        for info in archive.list():
            archive.purge(info.id)
        return original(*given)

    monkeypatch.setattr(cut, "ReadPlanner", survey)
    assert lake.sql("select t from log_robot__imu order by t")["t"].to_pylist() == list(range(150))
    assert not archive.list()


def test_a_message_that_begins_before_its_recorder_is_there(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a", codec="json", capacity=65536) as publication:
        begin = publication.position
        publication.send({"i": 0, "long": "x" * 40_000})
        with archive.record("log:a", start=begin + 16384):
            publication.send({"i": 1})
        publication.send({"i": 2})
        lake = penstock.lake(archive=archive)
        assert lake.sql("select i from 'log:a' order by i")["i"].to_pylist() == [0, 1, 2]


@pytest.mark.slow
def test_streams_of_one_query_have_one_cut():
    """What is sent to the second stream before a message of the first is there, if that message is."""
    stop, counts = threading.Event(), []

    def write(first, second):
        number = 0
        while not stop.is_set():
            second.send({"i": number})
            first.send({"i": number})
            number += 1

    options = {"codec": "json", "capacity": "256KiB"}  # what a query reads does not grow with what was sent
    with penstock.publish("log:a", **options) as first, penstock.publish("log:b", **options) as second:
        first.send({"i": -1})
        second.send({"i": -1})
        writer = threading.Thread(target=write, args=(first, second))
        writer.start()
        try:
            while len(counts) < 20 or counts[-1]["a"] == counts[0]["a"]:  # the writer may be slow to begin
                found = penstock.lake().sql(
                    "select (select max(i) from 'log:a') as a, (select max(i) from 'log:b') as b"
                )
                counts.append(found.to_pylist()[0])
        finally:
            stop.set()
            writer.join()
    assert all(row["b"] >= row["a"] for row in counts)
    assert counts[-1]["a"] > counts[0]["a"]


@pytest.mark.slow
def test_a_query_is_as_new_as_the_channel(imu):
    for number in range(100, 150):
        end = imu.send({"t": number, "gyro": []})
        assert penstock.inspect("log:robot/imu").position == end
        found = penstock.lake().sql("select max(t) as t, count(*) as n from 'log:robot/imu'")
        assert found.to_pylist() == [{"t": number, "n": number + 1}]


KILLED = """
import signal, penstock
with penstock.publish("log:a") as publication:
    view = publication.claim(16)
    print("claimed", flush=True)
    signal.pause()
"""


def test_messages_behind_a_dead_claim_are_there():
    number = np.zeros(1, [("i", "<i8"), ("v", "<f8")])
    with penstock.publish("log:a", codec=number.dtype) as publication:
        publication.send(number[0])
        with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"claimed\n"
            publication.send(number[0])
            waiting = penstock.lake().sql("select count(*) as n from 'log:a'")["n"].to_pylist()
            os.kill(child.pid, signal.SIGKILL)
        assert waiting == [1]  # a reader sees nothing behind a claim of the living
        assert penstock.lake().sql("select count(*) as n from 'log:a'")["n"].to_pylist() == [2]


def test_queries_take_no_slot_and_leave_nothing(channel_folder):
    with (
        penstock.publish("log:a", codec="json", max_members=2) as publication,
        penstock.subscribe("log:a") as subscription,
    ):
        publication.send({"i": 1})
        before = sorted(path.name for path in channel_folder.rglob("*"))
        assert penstock.lake().sql("select i from 'log:a'").to_pylist() == [{"i": 1}]
        assert sorted(path.name for path in channel_folder.rglob("*")) == before
        assert len(penstock.inspect("log:a").members) == 2
        assert subscription.recv(timeout=60) == {"i": 1}


def test_rows_that_were_erased_are_in_no_part(all_three, imu):
    lake, _, tables = all_three
    penstock.tables.erase(tables, "log:robot/imu", until=time.time_ns())
    send(imu, 160, 165)
    assert sorted(lake.reader("robot/imu", columns=["t"]).read_all()["t"].to_pylist()) == list(range(160, 165))


def test_an_erasure_that_the_table_has_not_followed_counts(all_three, imu):
    """One that was killed after it was noted: the table still has the rows."""
    lake, _, tables = all_three
    Folder(Place.of(tables), []).note_erased("log:robot/imu", 0, time.time_ns())
    send(imu, 160, 165)
    assert sorted(lake.reader("robot/imu", columns=["t"]).read_all()["t"].to_pylist()) == list(range(160, 165))
    assert lake.sql("select count(*) as n from 'log:robot/imu'")["n"].to_pylist() == [5]


def test_values_that_fit_no_column_are_as_in_the_table(tmp_path):
    archive, tables = penstock.Archive(tmp_path / "archive"), tmp_path / "tables"
    odd = [{"v": "text"}, {"v": 1.5}, {"v": None}, {"w": [1]}, {"v": 2**70}]
    with penstock.publish("log:a", codec="json") as publication:
        with archive.record("log:a"):
            for _ in range(3):
                publication.send({"v": 1})
        penstock.tables.run(archive.path, tables)
        with archive.record("log:a"):
            for message in odd[:3]:
                publication.send(message)
        for message in odd[3:]:
            publication.send(message)
        lake = penstock.lake(tables, archive)
        query = "select v, w, _rescued, decode_error from 'log:a' order by position"
        before = lake.sql(query)
        with archive.record("log:a", start="earliest"):
            pass
    penstock.tables.run(archive.path, tables)
    after = lake.sql(query)
    assert before.equals(after)
    assert lake.sql("select count(*) as n from 'log:a' where ingested_at is null")["n"].to_pylist() == [0]
    assert before["_rescued"].to_pylist()[3:5] == ['{"v":"text"}', '{"v":1.5}']


@pytest.mark.parametrize("kind", ["ring", "sync"])
def test_other_kinds_are_queried_beside_recorders(tmp_path, kind):
    archive, uri = penstock.Archive(tmp_path / "archive"), f"{kind}:a"
    with penstock.publish(uri, codec="json") as publication:
        publication.send({"i": 0})
        with archive.record(uri):
            for number in range(1, 20):
                publication.send({"i": number})
        publication.send({"i": 20})
        found = penstock.lake(archive=archive).sql(f"select i, recording is null as live from '{uri}' order by i")
    assert found["i"].to_pylist() == list(range(21))
    assert [at for at, live in enumerate(found["live"].to_pylist()) if live] == [0, 20]


def test_kinds_without_a_look_are_there_as_far_as_recorded(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish("pipe:a", codec="json") as pusher,
        penstock.subscribe("pipe:a") as puller,
        archive.record("pipe:a"),
    ):
        for number in range(10):
            pusher.send({"i": number})
            puller.recv(timeout=60)
    lake = penstock.lake(archive=archive)
    assert lake.tables() == {"pipe:a": ("archive",)}
    assert sorted(lake.sql("select i from 'pipe:a'")["i"].to_pylist()) == list(range(10))
