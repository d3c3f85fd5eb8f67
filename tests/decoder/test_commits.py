"""Commits of tables: a run that dies after any of them loses and doubles nothing, and keeps what it has committed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LONG
from decoder import generate
from decoder.rows import both, check_rows, send
from dying import run_until_commit

import penstock
from penstock import tables
from penstock.export import export
from penstock.tables.delta.files import describe_file
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder.state import CACHE
from penstock.tables.work import tasks


def die(archive, out, commits, when):
    """A run of the pipeline that ends before or after its nth commit; whether it got so far."""
    status = run_until_commit(archive.path, out, commits, when, range_bytes=2048)
    assert status in (0, 9)
    return status == 9


def everything(out, made, tally):
    """Each row of each stream against what was sent."""
    for channel, (codec, payloads) in made.items():
        tally("rows compared", check_rows(both(out, channel), codec, payloads))


def part(archive, made, low, high):
    for channel, (codec, payloads) in made.items():
        count = len(payloads)
        send(channel, codec, payloads[count * low // 4 : count * high // 4], archive)


@pytest.mark.slow
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
    for step in range(4):  # keys come from step to step
        part(archive, made, step, step + 1)
        for number in range(40 if LONG else 2):
            at = number if LONG else rng.randrange(5)  # new messages of four streams take five commits at least
            kept = rows(out)
            alive = not die(archive, out, at, rng.choice(["before", "after"]))
            died += not alive
            assert rows(out) >= kept, "what was committed stays"
            if alive and LONG:
                break
    tables.run(archive.path, out)
    assert died >= 4
    tally("runs that died at a commit", died)
    everything(out, made, tally)
    assert tables.run(archive.path, out).rows == 0


def rows(out):
    return tables.read(out, "messages").num_rows if "messages" in (tables.names(out) if out.exists() else ()) else 0


def test_a_killed_run_keeps_what_it_has_committed(archive, tmp_path):
    out = tmp_path / "t"
    for _ in range(10):
        send("log:b", "bytes", [bytes(100)] * 40, archive)
    assert die(archive, out, 6, "after")
    kept = tables.read(out, "messages").num_rows
    assert 0 < kept < 400
    assert tables.run(archive.path, out).rows == 400 - kept
    assert len(set(tables.read(out, "messages")["position"].to_pylist())) == 400


def test_a_snapshot_stays_as_it_is(archive, tmp_path):
    out = tmp_path / "t"
    for step in range(3):
        send("log:j", "json", [b'{"a":%d}' % step] * 10, archive)
        tables.run(archive.path, out)
    last = tables.open_table(out, "messages").version
    counts = [tables.read(out, "messages", version=version).num_rows for version in range(last + 1)]
    assert counts == sorted(counts)
    assert {10, 20, 30} == set(counts)
    with pytest.raises(penstock.NotFound, match="no version 99"):
        tables.open_table(out, "messages", version=99)


def test_statistics_are_those_of_the_rows(archive, tmp_path):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"n":%d,"t":"%s","f":%s,"o":null}' % (i, b"x" * i, b"1.5") for i in range(1, 99)], archive)
    send("log:b", "bytes", [b"%d" % i for i in range(7)], archive)
    tables.run(archive.path, out)
    for name in ("messages", "log:j"):
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
    tables.run(archive.path, out)
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
        table.commit([describe_file(place, "one.parquet")], marks={"penstock/own/query": 7}, state={"n": 1})
    again = Table.open(place)
    again.commit([describe_file(place, "one.parquet")], marks={"penstock/own/query": 7})
    assert (Table.open(place).version, again.mark("penstock/own/query"), len(again.files())) == (1, 7, 1)


def test_a_damaged_table_of_one_stream_stops_no_other(archive, tmp_path):
    out = tmp_path / "t"
    for channel in ("log:one", "log:two"):
        send(channel, "json", [b'{"a":1}'] * 10, archive)
    tables.run(archive.path, out)
    log = out / "streams" / "log_one" / "_delta_log" / "00000000000000000000.json"
    good = log.read_bytes()
    log.write_bytes(b"nonsense")
    for channel in ("log:one", "log:two"):
        send(channel, "json", [b'{"a":2}'] * 10, archive)
    with pytest.raises(penstock.Corrupt, match="the table streams/log_one: the log of"):
        tables.run(archive.path, out)
    assert both(out, "log:two")["a"].to_pylist() == [1] * 10 + [2] * 10
    assert tables.read(out, "messages", stream="log:one").num_rows == 20
    log.write_bytes(good)
    assert tables.run(archive.path, out).rows == 0
    assert both(out, "log:one")["a"].to_pylist() == [1] * 10 + [2] * 10


def test_a_state_that_is_gone_is_an_error(archive, tmp_path):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"a":1}'] * 10, archive)
    tables.run(archive.path, out)
    (state,) = (out / "messages" / "_penstock").iterdir()
    state.unlink()
    (out / CACHE).unlink()  # without it, states are read
    with pytest.raises(penstock.Corrupt, match=f"{state} cannot be read"):
        tables.run(archive.path, out)


def test_names_of_streams_tables_are_safe_and_unique(archive, tmp_path):
    channels = ["log:a.b", "log:a-b", "log:A_B", "log:a_b"]
    for channel in channels:
        send(channel, "json", [b'{"name":"%s"}' % channel.encode()], archive)
    tables.run(archive.path, tmp_path / "t")
    found = tables.streams(tmp_path / "t")
    assert found.keys() == set(channels)
    assert found["log:a_b"] == "streams/log_a_b"
    assert len({name.lower() for name in found.values()}) == len(channels)
    exported = export(archive.path, tmp_path / "o")
    assert {one.stream: f"streams/{one.folder}" for one in exported.streams} == found
    for channel, name in found.items():
        plain = name.partition("/")[2]
        assert deltalake.DeltaTable(tmp_path / "t" / "streams" / plain).to_pyarrow_table()["name"].to_pylist() == [
            channel
        ]
    for channel in channels:
        assert tables.read(tmp_path / "t", channel)["name"].to_pylist() == [channel]


def test_files_that_delta_rs_wrote_are_read_and_rebuilt_from(archive, tmp_path):
    out, sent = tmp_path / "t", [b'{"a":%d,"t":"x"}' % n for n in range(40)]
    send("log:b", "bytes", [b"other"] * 5, archive)
    for step in range(2):
        send("log:j", "json", sent[step * 20 : step * 20 + 20], archive)
        tables.run(archive.path, out)
    for name in ("messages", "streams/log_j"):
        deltalake.DeltaTable(out / name).optimize.compact()
        deltalake.DeltaTable(out / name).delete("position < 100")
    tables.run(archive.path, out, rebuild=["log:j"])
    left = both(out, "log:j")
    assert 30 < left.num_rows < 40
    check_rows(left, "json", sent[-left.num_rows :])
    assert tables.read(out, "messages", stream="log:j", columns=["payload"]).num_rows == left.num_rows
    assert tables.run(archive.path, out).rows == 0


def test_changes_need_the_log_since_then(archive, tmp_path):
    out = tmp_path / "t"
    for number in range(3):
        send("log:b", "bytes", [b"%d" % number], archive)
        tables.run(archive.path, out)
    table = tables.open_table(out, "messages")
    version, newest = table.version - 1, table.version
    assert not table.has_same_rows(version)
    assert not table.has_same_rows(newest + 1)
    assert table.has_same_rows(newest)
    (out / "messages" / "_delta_log" / f"{newest:020d}.json").unlink()
    assert not table.has_same_rows(version)


def test_an_error_in_a_task_leaves_no_half_commit(archive, tmp_path, monkeypatch):
    out = tmp_path / "t"
    send("log:j", "json", [b'{"a":1}'] * 10, archive)

    def broken(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(tasks, "_write", broken)
    with pytest.raises(RuntimeError, match="planted"):
        tables.run(archive.path, out)
    monkeypatch.undo()
    assert tables.run(archive.path, out).total_rows == 10
    assert os.path.exists(out / ".lock")


@pytest.mark.slow
def test_other_readers_read_the_tables(archive, tmp_path):
    """The example, as a user would run it, and pandas."""
    for name in ("duckdb", "polars", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    out, example = tmp_path / "t", Path(__file__).parents[2] / "examples" / "read_tables.py"
    for step in range(3):
        send("log:imu", "json", [b'{"speed":%d,"k%d":1}' % (i, step) for i in range(10)], archive)
        tables.run(archive.path, out)
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
        tables.run(archive.path, out, range_bytes=2048, commit_bytes=4096)
    assert "\n" not in str(told.value)
    assert str(out) in str(told.value)
    assert not any("Traceback" in text for text in capfd.readouterr())
    assert not [*out.rglob("*.new")]
    filler.unlink()
    tables.run(archive.path, out, range_bytes=2048, commit_bytes=4096)
    everything(out, made, tally)
