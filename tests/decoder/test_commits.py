"""Commits of tables: a run that dies after any of them loses and doubles nothing, and keeps what it has committed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LONG
from decoder import generate
from decoder.rows import both
from decoder.test_tables import check_rows, in_order, send

import penstock
from penstock import codecs
from penstock.export import export
from penstock.spark import books, compacting, pipeline, tables
from penstock.spark.queries import by_duckdb
from penstock.tables.delta import Table
from penstock.tables.delta_files import written
from penstock.tables.places import Place

DYING = """
import os, sys
from penstock.spark import pipeline
from penstock.tables import delta
left, when = int(sys.argv[3]), sys.argv[4]
def dies(real):
    def commit(*given, **named):
        global left
        left -= 1
        if left < 0 and when == "before":
            os._exit(9)
        made = real(*given, **named)
        if left < 0:
            os._exit(9)
        return made
    return commit
delta.Table.commit, delta.Table.create = dies(delta.Table.commit), dies(delta.Table.create)
pipeline.run(None, sys.argv[1], sys.argv[2], range_bytes=2048, commit_bytes=4096)
"""


def die(archive, out, commits, when):
    """A run of the pipeline that ends before or after its nth commit; whether it got so far."""
    done = subprocess.run([sys.executable, "-c", DYING, archive.path, out, str(commits), when], capture_output=True)
    assert done.returncode in (0, 9), done.stderr
    return done.returncode == 9


def everything(archive, out, made, tally):
    """Each row of each stream against what was sent, and all tables against tables made at once."""
    fresh = out.parent / f"{out.name}-fresh"
    pipeline.run(None, archive.path, fresh)
    assert tables.streams(out).keys() == tables.streams(fresh).keys()
    for channel, (codec, payloads) in made.items():
        one, other = in_order(out, channel), in_order(fresh, channel)
        assert one.schema.names == other.schema.names
        different = [(f, g) for f, g in zip(one.schema, other.schema, strict=True) if f.type != g.type]
        assert not different
        assert repr(one.to_pylist()) == repr(other.to_pylist())
        tally("rows compared", check_rows(one, codecs.resolve(codec).spec, payloads))
    order = [("stream", "ascending"), ("position", "ascending")]
    one, other = (tables.read(each, "raw").sort_by(order) for each in (out, fresh))
    assert one.to_pylist() == other.to_pylist()


def part(archive, made, low, high):
    for channel, (codec, payloads) in made.items():
        count = len(payloads)
        send(channel, codec, payloads[count * low // 4 : count * high // 4], archive)


def test_a_run_that_dies_at_any_commit_loses_and_doubles_nothing(rng, tmp_path, tally):
    plain = np.dtype([("v", "i4"), ("s", "S4"), ("x", ">f4", (2,))])
    made = {
        "log:json": ("json", generate.json_messages(rng, 80)),
        "log:pack": ("msgpack", generate.msgpack_messages(rng, 60)),
        "log:plain": (plain, generate.records(rng, plain, 60)),
        "log:bytes": ("bytes", [rng.randbytes(rng.randrange(300)) for _ in range(60)]),
    }
    archive, out = penstock.Archive(tmp_path / "archive"), tmp_path / "t"
    died = 0
    for step in range(4):  # types widen from step to step, so that files are rewritten, too
        part(archive, made, step, step + 1)
        for number in range(40 if LONG else 2):
            at = number if LONG else rng.randrange(5)  # new messages of four streams take five commits at least
            kept = rows(out)
            alive = not die(archive, out, at, rng.choice(["before", "after"]))
            died += not alive
            assert rows(out) >= kept, "what was committed stays"
            if alive and LONG:
                break
    pipeline.run(None, archive.path, out)
    assert died >= 4
    tally("runs that died at a commit", died)
    everything(archive, out, made, tally)
    assert pipeline.run(None, archive.path, out).rows == 0


def rows(out):
    return tables.read(out, "messages").num_rows if "messages" in (tables.names(out) if out.exists() else ()) else 0


def test_a_killed_run_keeps_what_it_has_committed(archive, tmp_path):
    out = tmp_path / "t"
    for _ in range(10):
        send("log:b", "bytes", [bytes(100)] * 40, archive)
    assert die(archive, out, 12, "after")
    kept = tables.read(out, "messages").num_rows
    assert 0 < kept < 400
    assert pipeline.run(None, archive.path, out).rows == 400 - kept
    assert len(set(tables.read(out, "messages")["position"].to_pylist())) == 400


def test_a_snapshot_stays_as_it_is(archive, tmp_path):
    out = tmp_path / "t"
    for step in range(3):
        send("log:j", "json", [b'{"a":%d}' % step] * 10, archive)
        pipeline.run(None, archive.path, out)
    last = tables.open_table(out, "messages").version
    counts = [tables.read(out, "messages", version=version).num_rows for version in range(last + 1)]
    assert counts == sorted(counts)
    assert {0, 10, 20, 30} == set(counts)
    with pytest.raises(penstock.NotFound, match="no version 99"):
        tables.open_table(out, "messages", version=99)


def test_the_log_says_how_far_each_stream_is(archive, tmp_path):
    send("log:j", "json", [b'{"a":1}'] * 10, archive)
    pipeline.run(None, archive.path, tmp_path / "t")
    info = archive.find("log:j")
    for name in ("raw", "messages", "log:j"):
        app = f"penstock/log:j/{info.epoch}/{info.id}/0"
        assert tables.open_table(tmp_path / "t", name).mark(app) == info.end_position


def test_statistics_are_those_of_the_rows(archive, tmp_path):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"n":%d,"t":"%s","f":%s,"o":null}' % (i, b"x" * i, b"1.5") for i in range(1, 99)], archive)
    send("log:b", "bytes", [b"%d" % i for i in range(7)], archive)
    pipeline.run(None, archive.path, out)
    for name in ("raw", "messages", "log:j"):
        opened = tables.open_table(out, name)
        for file in opened.files():
            found = pq.read_table(opened.place.file(file.path), partitioning=None)
            assert found.num_rows == file.rows
            assert {"position", "timestamp_ns", "time"} <= file.low.keys()
            for column in file.low:
                assert file.low[column] == pa.compute.min(found[column]).as_py(), column
                assert file.high[column] == pa.compute.max(found[column]).as_py(), column
    (file,) = tables.open_table(out, "log:j").files()
    assert (file.low["n"], file.high["n"]) == (1, 98)
    assert not {"t", "f"} & file.low.keys(), "long texts and floats have none"
    log = Path(out / "streams/log_j/_delta_log/00000000000000000000.json").read_text()
    stats = next(json.loads(json.loads(line)["add"]["stats"]) for line in log.splitlines() if '"add"' in line)
    assert stats["nullCount"]["decode_error"] == stats["numRecords"] == 98


def test_a_second_writer_is_refused(archive, tmp_path):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"a":1}'] * 10, archive)
    pipeline.run(None, archive.path, out)
    one, other = (Table.open(Place.of(out) / "messages") for _ in range(2))
    one.commit(state=one.state())
    with pytest.raises(penstock.Busy, match="messages failed"):
        other.commit(state={"done": []})
    assert Table.open(Place.of(out) / "messages").state() == one.state()
    with pytest.raises(penstock.Busy, match="another writer has created"):
        Table.create(Place.of(out) / "messages", pa.schema([("a", pa.int64())]))


def test_a_commit_with_a_mark_is_made_once(tmp_path):
    place = Place.of(tmp_path / "own")
    place.make()
    pq.write_table(pa.table({"a": [1, 2]}), place.file("one.parquet"))
    table = Table.create(place, pa.schema([("a", pa.int64())]))
    for _ in range(3):
        table.commit([written(place, "one.parquet")], marks={"penstock/own/query": 7}, state={"n": 1})
    again = Table.open(place)
    again.commit([written(place, "one.parquet")], marks={"penstock/own/query": 7})
    assert (Table.open(place).version, again.mark("penstock/own/query"), len(again.files())) == (1, 7, 1)
    came, went = again.changes(0)
    assert ([file.path for file in came], went) == (["one.parquet"], [])


def test_a_table_that_another_program_rewrote_is_refused(archive, tmp_path):
    out = tmp_path / "t"
    for step in range(2):
        send("log:j", "json", [b'{"a":%d}' % step] * 10, archive)
        pipeline.run(None, archive.path, out)
    place = Place.of(out) / "messages"
    pq.write_table(tables.read(out, "messages"), place.file("part-0.parquet"))
    table = Table.open(place)
    table.commit([written(place, "part-0.parquet")], [file.path for file in table.files()])
    with pytest.raises(penstock.Invalid, match="another program"):
        pipeline.run(None, archive.path, out)


def test_a_damaged_table_of_one_stream_stops_no_other(archive, tmp_path):
    out = tmp_path / "t"
    for channel in ("log:one", "log:two"):
        send(channel, "json", [b'{"a":1}'] * 10, archive)
    pipeline.run(None, archive.path, out)
    log = out / "streams" / "log_one" / "_delta_log" / "00000000000000000000.json"
    good = log.read_bytes()
    log.write_bytes(b"nonsense")
    for channel in ("log:one", "log:two"):
        send(channel, "json", [b'{"a":0.5}'] * 10, archive)
    with pytest.raises(penstock.Corrupt, match="the table of log:one"):
        pipeline.run(None, archive.path, out)
    assert both(out, "log:two")["a"].to_pylist() == [1] * 10 + [0.5] * 10
    assert tables.read(out, "messages", stream="log:one").num_rows == 20
    log.write_bytes(good)
    assert pipeline.run(None, archive.path, out).rows == 0
    assert both(out, "log:one")["a"].to_pylist() == [1] * 10 + [0.5] * 10


def test_a_state_that_is_gone_is_an_error(archive, tmp_path):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"a":1}'] * 10, archive)
    pipeline.run(None, archive.path, out)
    (state,) = (out / "messages" / "_penstock").iterdir()
    state.unlink()
    with pytest.raises(penstock.Corrupt, match=f"{state} cannot be read"):
        pipeline.run(None, archive.path, out)


def test_names_of_streams_tables_are_safe_and_unique(archive, tmp_path):
    channels = ["log:a.b", "log:a-b", "log:A_B", "log:a_b"]
    for channel in channels:
        send(channel, "json", [b'{"name":"%s"}' % channel.encode()], archive)
    pipeline.run(None, archive.path, tmp_path / "t")
    found = tables.streams(tmp_path / "t")
    assert found.keys() == set(channels)
    assert found["log:a_b"] == "streams/log_a_b"
    assert len({name.lower() for name in found.values()}) == len(channels)
    exported = export(archive.path, tmp_path / "o")
    assert {one.stream: f"streams/{one.folder}" for one in exported.streams} == found
    for channel, name in found.items():
        plain = name.partition("/")[2]
        rows = by_duckdb(tmp_path / "t", f"select name from {plain}", None)
        assert rows["name"].to_pylist() == [channel]
    for channel in channels:
        assert tables.read(tmp_path / "t", channel)["name"].to_pylist() == [channel]


def test_compaction_changes_no_row(rng, archive, tmp_path, tally):
    out = tmp_path / "t"
    sent = [b'{"a":%d,"t":"%s"}' % (i, b"x" * rng.randrange(20)) for i in range(80)]
    made = {"log:json": ("json", sent), "log:bytes": ("bytes", [b"x" * i for i in range(60)])}
    for step in range(4):
        part(archive, made, step, step + 1)
        pipeline.run(None, archive.path, out, range_bytes=1024)
    before = {channel: in_order(out, channel) for channel in made}
    opened, version = tables.uris(out, "messages"), tables.open_table(out, "messages").version
    done = compacting.optimize(None, out)
    joined = tables.open_table(out, "messages")
    assert joined.version > version
    assert (joined.changes(version), joined.has_same_rows(version)) == (([], []), True), "readers of changes do nothing"
    assert (done.files_before >= 15, done.files_after) == (True, 5), "a file per source"
    assert len(tables.uris(out, "messages")) == 2, "a file per recording"
    for channel, rows in before.items():
        assert repr(in_order(out, channel).to_pylist()) == repr(rows.to_pylist())
    assert all(Path(path).exists() for path in opened), "readers may still have them"
    assert pipeline.run(None, archive.path, out).ranges == 0
    again = compacting.optimize(None, out, retain=0)
    assert (again.files_after, again.files_removed >= len(opened)) == (done.files_after, True)
    assert not any(Path(path).exists() for path in opened)
    # Later messages change rows in joined files: types widen, a recording is cut back.
    send("log:json", "json", [b'{"a":0.5}'], archive)
    pipeline.run(None, archive.path, out)
    assert both(out, "log:json")["a"].to_pylist() == [*map(float, range(80)), 0.5]
    archive.truncate("log:json", archive.find("log:json").end_position // 2)
    pipeline.run(None, archive.path, out)
    kept = archive.find("log:json").messages
    assert 0 < kept < 80
    assert both(out, "log:json")["a"].to_pylist() == list(map(float, range(kept)))
    assert tables.read(out, "messages", stream="log:json")["payload"].to_pylist() == sent[:kept]
    came, went = tables.open_table(out, "messages").changes(joined.version)
    assert {file.low["stream"] for file in (*came, *went)} == {"log:json"}
    assert not tables.open_table(out, "messages").has_same_rows(joined.version)
    tally("rows compared", 140 + kept)


def test_changes_need_the_log_since_then(archive, tmp_path):
    out = tmp_path / "t"
    for number in range(3):
        send("log:b", "bytes", [b"%d" % number], archive)
        pipeline.run(None, archive.path, out)
    table = tables.open_table(out, "messages")
    version, newest = table.version - 1, table.version
    assert len(table.changes(version)[0]) == 1
    with pytest.raises(penstock.NotFound, match=f"no version {newest + 1}"):
        table.changes(newest + 1)
    (out / "messages" / "_delta_log" / f"{newest:020d}.json").unlink()
    with pytest.raises(penstock.NotFound, match=f"does not go back to version {version}"):
        table.changes(version)
    assert not table.has_same_rows(version)


def test_an_error_in_a_task_leaves_no_half_commit(archive, tmp_path, monkeypatch):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"a":1}'] * 10, archive)

    def broken(self, do):
        raise RuntimeError("planted")

    monkeypatch.setattr(books.Books, "_check", broken)
    with pytest.raises(RuntimeError, match="planted"):
        pipeline.run(None, archive.path, out)
    monkeypatch.undo()
    assert pipeline.run(None, archive.path, out).total_rows == 10
    assert tables.read(out, "raw").num_rows == 10
    assert os.path.exists(out / ".lock")


def test_other_readers_read_the_tables(archive, tmp_path):
    """The example, as a user would run it, and pandas."""
    for name in ("duckdb", "polars", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    out, example = tmp_path / "t", Path(__file__).parents[2] / "examples" / "read_tables.py"
    for step in range(3):
        send("log:imu", "json", [b'{"speed":%d,"k%d":1}' % (i, step) for i in range(10)], archive)
        pipeline.run(None, archive.path, out)
    done = subprocess.run([sys.executable, example, out, "log:imu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "{'log:imu': 'streams/log_imu'}" in done.stdout
    assert done.stdout.count("30") >= 3, "rows by each reader"
    frame = tables.read(out, "log:imu").to_pandas()
    assert list(frame["speed"]) == [*range(10)] * 3
    assert frame["k2"].notna().sum() == 10


@pytest.mark.parametrize("kib", range(0, 60, 2 if LONG else 10))
def test_a_full_disk_is_told_in_one_line_and_loses_nothing(disk, archive, tmp_path, rng, tally, capfd, kib):
    """Wherever the room ends: in a part file, a state, or a commit. Once there is room, the next run goes on."""
    made = {
        "log:json": ("json", generate.json_messages(rng, 80)),
        "log:bytes": ("bytes", [bytes(i) for i in range(60)]),
    }
    part(archive, made, 0, 4)
    out, filler = disk / "out", disk / "filler"
    there = os.statvfs(disk)
    filler.write_bytes(bytes(there.f_bavail * there.f_frsize - kib * 1024))
    with pytest.raises(penstock.PenstockError, match="No space left on device") as told:
        pipeline.run(None, archive.path, out, range_bytes=2048, commit_bytes=4096)
    assert "\n" not in str(told.value)
    assert str(out) in str(told.value)
    assert not any("Traceback" in text for text in capfd.readouterr())
    assert not [*out.rglob("*.new")]
    filler.unlink()
    pipeline.run(None, archive.path, out, range_bytes=2048, commit_bytes=4096)
    everything(archive, out, made, tally)
