"""Tables on an object storage: the rows of tables here, snapshots, compaction, two writers at once, and writers that are killed."""

import time

import numpy as np
import pyarrow as pa
import pytest
from dying import run_until_commit

import penstock
from penstock import tables
from penstock.errors import Busy, Corrupt, Invalid, NotFound
from penstock.tables import pipeline
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.delta.transactions import APP, STATE

POINT = np.dtype([("t", "f8"), ("tag", "S4")])


def record(archive, count=300, since=0):
    """Two streams: one of columns that never change, one whose messages bring theirs."""
    with (
        penstock.publish("log:p", codec=POINT, term_length=1 << 16) as points,
        penstock.publish("log:j", codec="json", term_length=1 << 16) as notes,
        archive.record(["log:p", "log:j"], segment_length=1 << 16),
    ):
        for i in range(since, since + count):
            points.send((i / 3, b"a\0b"))
            notes.send({"i": i, "text": "x" * (i % 50), f"new{since}": i})


def same(one, other, names=("messages", "log:p", "log:j")):
    """Both hold the same rows with the same columns, but for the order of files."""
    for name in names:
        here, there = (tables.read(out, name).drop_columns(["ingested_at"]) for out in (one, other))
        order = [("timestamp_ns", "ascending"), ("position", "ascending")]
        assert here.sort_by(order).equals(there.sort_by(order)), name
        assert here.num_rows > 0


def objects(uri):
    place = Place.of(uri)
    from pyarrow import fs

    found = place.fs.get_file_info(fs.FileSelector(place.path, recursive=True))
    return {info.path.removeprefix(place.path + "/") for info in found if info.is_file}


@pytest.mark.slow
def test_tables_there_are_those_here(archive, bucket, tmp_path):
    uri = f"{bucket}/deep/tables"
    with pytest.raises(NotFound, match=f"{uri} holds no tables"):
        tables.open_table(uri, "messages")
    for step in range(3):
        record(archive, since=step * 300)
        assert tables.run(archive.path, uri).rows == 600
        tables.run(archive.path, tmp_path / "here")
        same(uri, tmp_path / "here")
    assert tables.run(archive.path, uri).rows == 0
    assert tables.names(uri) == tables.names(tmp_path / "here")
    assert tables.streams(uri) == {"log:j": "streams/log_j", "log:p": "streams/log_p"}
    assert tables.open_table(uri, "messages", version=0).version == 0
    assert tables.read(uri, "messages", version=0).num_rows == 600
    assert all(name.startswith(f"{uri}/streams/log_p/") for name in tables.uris(uri, "log:p"))
    found = tables.read(uri, "log:j")
    assert (found.num_rows, found["new600"].drop_null().to_pylist()[-1:]) == (900, [899])


@pytest.mark.slow
def test_an_archive_there_becomes_tables_there(archive, bucket, tmp_path):
    record(archive)
    archive.push(f"{bucket}/drive")
    tables.run(f"{bucket}/drive", f"{bucket}/tables")
    tables.run(archive.path, tmp_path / "here")
    same(f"{bucket}/tables", tmp_path / "here")


def test_other_readers(archive, bucket, monkeypatch):
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'penstock[spark]'")
    record(archive)
    tables.run(archive.path, f"{bucket}/t")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the server of the tests has no certificate
    found = polars.scan_delta(f"{bucket}/t/streams/log_p").select(polars.len(), polars.col("t").max()).collect()
    assert found.rows() == [(300, 299 / 3)]
    assert len(deltalake.DeltaTable(f"{bucket}/t/messages").file_uris()) == 2


@pytest.mark.slow
def test_small_files_are_joined_and_rows_are_erased(archive, bucket, tmp_path):
    uri = f"{bucket}/t"
    record(archive, 600)
    tables.run(archive.path, uri, range_bytes=1 << 14)
    tables.run(archive.path, tmp_path / "here")
    (Place.of(uri) / "mine").write("mine.parquet", b"not the pipeline's")
    before = objects(uri)
    done = tables.optimize(uri)
    assert done.files_after < done.files_before
    assert before <= objects(uri) | {name for name in before if f"/{STATE}/" in name}, "nothing goes for a week"
    same(uri, tmp_path / "here")
    with pytest.raises(NotFound, match="holds no tables"):
        tables.optimize(f"{bucket}/none")
    times = tables.read(uri, "log:p")["timestamp_ns"].to_pylist()
    for out in (uri, tmp_path / "here"):
        assert tables.erase(out, "log:p", since=sorted(times)[100], until=sorted(times)[199]) == 100
        assert tables.run(archive.path, out).rows == 0
    same(uri, tmp_path / "here")
    assert tables.read(uri, "log:p").num_rows == 500
    left = {name.removeprefix("messages/") for name in objects(uri) if name.startswith("messages/")}
    parquet = {name for name in left if name.endswith(".parquet") and "/" not in name}
    assert parquet == {file.path for file in tables.open_table(uri, "messages").files()}
    assert "mine/mine.parquet" in objects(uri)


@pytest.mark.slow
def test_two_pipelines_at_once_double_nothing(archive, bucket, tmp_path, monkeypatch):
    uri = f"{bucket}/t"
    record(archive, 20)
    tables.run(archive.path, uri)
    record(archive, since=20)
    written = pipeline.Pipeline._write_group

    def meanwhile(self, *given):
        monkeypatch.setattr(pipeline.Pipeline, "_write_group", written)
        tables.run(archive.path, uri)
        return written(self, *given)

    monkeypatch.setattr(pipeline.Pipeline, "_write_group", meanwhile)
    with pytest.raises(Busy, match=r"commit to .* failed"):
        tables.run(archive.path, uri)
    tables.run(archive.path, tmp_path / "here")
    same(uri, tmp_path / "here")
    assert tables.run(archive.path, uri).rows == 0


def test_a_new_table_is_made_by_one_of_two(bucket):
    place = Place.of(f"{bucket}/t/messages")
    schema = pa.schema([("a", pa.int64())])
    Table.create(place, schema, state={"n": 1})
    with pytest.raises(Busy, match="another writer has created"):
        Table.create(place, schema, state={"n": 2})
    one, other = Table.open(place), Table.open(place)
    one.commit(state={"n": 3})
    with pytest.raises(Busy, match="failed"):
        other.commit(state={"n": 4})
    assert Table.open(place).state() == {"n": 3}
    with pytest.raises(Busy, match="another pipeline"):
        Table.open(place, version=0).state()  # deleted with the commit after it
    (place / STATE).delete(f"state-{one.mark(APP)}.json")
    with pytest.raises(Corrupt, match="remove"):
        Table.open(place).state()


def test_a_state_that_may_yet_be_committed_stays(bucket, monkeypatch):
    place = Place.of(f"{bucket}/t/messages")
    table = Table.create(place, pa.schema([("a", pa.int64())]), state={"n": 1})
    (place / STATE).write("state-77.json", b"{}")
    table.tidy()
    assert len((place / STATE).list()) == 2
    later = time.time() + 7200
    monkeypatch.setattr("penstock.tables.delta.table.time.time", lambda: later)
    table.tidy()
    assert [info.base_name for info in (place / STATE).list()] == [f"state-{table.mark(APP)}.json"]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_runs_lose_and_double_nothing(archive, bucket, tmp_path, when):
    uri = f"{bucket}/t"
    record(archive, 100)
    statuses = [run_until_commit(archive.path, uri, left, when, range_bytes=4096) for left in (1, 3, 5)]
    assert statuses[0] == 9
    tables.run(archive.path, uri)
    tables.run(archive.path, tmp_path / "here")
    same(uri, tmp_path / "here")


def test_a_place_is_checked(archive, bucket):
    record(archive, 10)
    Place.of(f"{bucket}/full").write("theirs.txt", b"x")
    with pytest.raises(Invalid, match=r"holds other files \(theirs.txt\)"):
        tables.run(archive.path, f"{bucket}/full")
    assert objects(f"{bucket}/full") == {"theirs.txt"}
    with pytest.raises(Invalid, match="URI of gs"):
        tables.run(archive.path, "gs://bucket/t")
    with pytest.raises(penstock.PenstockError) as caught:
        tables.run(archive.path, "s3://no-such-bucket-at-all/t")
    assert "\n" not in str(caught.value)
    assert "no-such-bucket" in str(caught.value)
