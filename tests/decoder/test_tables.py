"""Any messages through recording and pipeline: in steps and at once, the same table, and each row has what was sent."""

import datetime
import json
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import LONG
from decoder import generate, oracle
from decoder.rows import both

import penstock
from penstock import codecs, columns
from penstock._native import core
from penstock.record.read import rows as making
from penstock.spark import books, pipeline, tables, tasks

ROUNDS = 200 if LONG else 12


def send(channel, codec, payloads, archive):
    """Records raw bytes on a channel with a codec, as a foreign writer would send them."""
    with penstock.publish(channel, codec=codec, term_length=1 << 16) as pub, archive.record(channel, extend=True):
        for payload in payloads:
            core.Publication.send(pub, payload)


def in_order(out, stream):
    """A stream's rows by position, columns by name."""
    table = both(out, stream)
    return table.select(sorted(table.column_names))


def check_rows(table, codec, payloads):
    """Each row against the oracle; how many."""
    kind = codec["kind"]
    assert table["payload"].to_pylist() == payloads
    rows = table.to_pylist()
    if kind in ("json", "msgpack"):
        own = columns.schema(codec, columns.learn(codec, (), pa.array(payloads, pa.binary())))
        for field in own:
            assert pa.types.is_null(field.type) or field.type == table.schema.field(field.name).type
        for data, row in zip(payloads, rows, strict=True):
            oracle.check_objects(kind, data, {name: row.get(name) for name in own.names}, own, row["decode_error"])
    elif kind == "struct":
        dtype = codecs.dtypes.dtype_of(codec["dtype"])
        names = columns.schema(codec).names
        for data, row in zip(payloads, rows, strict=True):
            oracle.check_record(dtype, data, [row[name] for name in names], row["decode_error"])
    return len(rows)


def make(rng):
    """(codec, messages) of a random stream."""
    kind = rng.choice(["json", "msgpack", "struct", "bytes"])
    count = rng.randrange(1, 120)
    if kind == "struct":
        dtype = generate.record_dtype(rng)
        while dtype.itemsize == 0 or len(json.dumps(codecs.resolve(dtype).spec)) > 1000:
            dtype = generate.record_dtype(rng)
        return codecs.resolve(dtype), generate.records(rng, dtype, count)
    codec = codecs.resolve(kind)
    if kind == "bytes":
        return codec, [rng.randbytes(rng.randrange(50)) for _ in range(count)]
    return codec, getattr(generate, f"{kind}_messages")(rng, count)


def test_in_steps_and_at_once_the_table_is_the_same(rng, tmp_path, tally, monkeypatch):
    for number in range(ROUNDS):
        monkeypatch.setattr(making, "BATCH_ROWS", rng.choice([1, 3, 17, 65536]))
        monkeypatch.setattr(books, "SAMPLE", rng.choice([1, 5, 2000]))
        size = rng.choice([256, 2048, 1 << 20])
        archive = penstock.Archive(tmp_path / f"archive{number}")
        codec, payloads = make(rng)
        channel = f"log:s{number}"
        cuts = sorted(rng.sample(range(1, len(payloads)), min(len(payloads) - 1, rng.randrange(4))))
        steps, once = tmp_path / f"steps{number}", tmp_path / f"once{number}"
        for low, high in zip([0, *cuts], [*cuts, len(payloads)], strict=True):
            send(channel, codec, payloads[low:high], archive)
            pipeline.run(None, archive.path, steps, range_bytes=size)
        again = pipeline.run(None, archive.path, steps)
        assert (again.rows, again.total_rows) == (0, len(payloads))
        pipeline.run(None, archive.path, once, range_bytes=rng.choice([256, 1 << 20]))
        one, other = (in_order(out, channel) for out in (steps, once))
        assert one.schema == other.schema
        assert repr(one.to_pylist()) == repr(other.to_pylist())
        tally("rows compared", 2 * check_rows(other, codec.spec, payloads))
        tally("tables read back", 4)
        penstock.remove(channel)


def names_and_types(out, stream):
    return {field.name: str(field.type) for field in tables.read(out, stream).schema[6:]}


def steps_of(archive, out, *runs, **options):
    """A run of the pipeline after each group of json messages; the rows at the end."""
    for messages in runs:
        send("log:j", "json", [json.dumps(message).encode() for message in messages], archive)
        pipeline.run(None, archive.path, out, **options)
    return both(out, "log:j")


def test_columns_come_and_widen_later(archive, tmp_path):
    rows = steps_of(
        archive,
        tmp_path / "t",
        [{"speed": 1, "gps": None, "never": None}],
        [{"speed": 0.5, "gps": 3.25, "new": [1]}],
        [{"speed": 2, "id": 2**63, "new": [0.5]}],
        [{"id": "text", "new": "text"}],
        retain=0,
    )
    assert rows["speed"].to_pylist() == [1.0, 0.5, 2.0, None]
    assert rows["gps"].to_pylist() == [None, 3.25, None, None]
    assert "never" not in rows.column_names, "a key has a column once it had a value"
    assert rows["id"].to_pylist() == [None, None, str(2**63), "text"]
    assert rows["new"].to_pylist() == [None, "[1]", "[0.5]", "text"]
    assert rows["decode_error"].null_count == 4
    for name in ("messages", "log:j"):
        files = tables.uris(tmp_path / "t", name)
        assert len(files) == 4
        assert {str(path) for path in Path(files[0]).parent.glob("*.parquet")} == set(files), (
            "what was replaced is gone"
        )


def test_one_poison_message_stops_nothing(archive, tmp_path):
    poison = [
        b'{"a":' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"a":18446744073709551616}',
        b"{",
        b'{"bytes":1,"a b":2,"a-b":3}',
    ]
    send("log:bad", "json", [b'{"a":1}', *poison, b'{"a":2}'], archive)
    send("log:good", "json", [b'{"a":1}'] * 10, archive)
    done = pipeline.run(None, archive.path, tmp_path / "t")
    assert done.total_rows == 16
    bad = both(tmp_path / "t", "log:bad")
    assert bad["a"].to_pylist() == [1, None, 2**64, None, None, 2]
    assert bad["decode_error"].is_valid().to_pylist() == [False, True, False, True, False, False]
    assert (bad["bytes_"][4].as_py(), bad["a_b"][4].as_py(), bad["a_b_"][4].as_py()) == (1, 2, 3)


def test_a_codec_may_change_and_columns_hold_both(archive, tmp_path):
    first = np.dtype([("v", "i4"), ("w", "i8"), ("b", "S2")])
    second = np.dtype([("v", "f8"), ("w", "f8"), ("b", "f4"), ("z", "i1")])
    for dtype, value in ((first, (1, 2**60 + 1, b"\1\2")), (second, (0.5, 0.25, 1.5, 7))):
        with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
            pub.send(value)
        penstock.remove("log:s")
    pipeline.run(None, archive.path, tmp_path / "t")
    rows = both(tmp_path / "t", "log:s").sort_by("time")
    assert rows["v"].to_pylist() == [1.0, 0.5]
    assert rows["w"].to_pylist() == [str(2**60 + 1), "0.25"]
    assert rows["b"].to_pylist() == ["0102", "1.5"]
    assert rows["z"].to_pylist() == [None, 7]


def test_a_message_in_progress_at_a_recordings_end_is_kept(tmp_path):
    for attempt in range(20):  # until the recorder stops in the middle of the message, however fast the two are
        archive, out = penstock.Archive(tmp_path / f"archive{attempt}"), tmp_path / f"t{attempt}"
        if stopped_in_a_message(archive, out, f"log:l{attempt}"):
            return
    raise AssertionError("the recorder never stopped in the middle of a message")


def stopped_in_a_message(archive, out, channel):
    """Whether it came about."""
    with penstock.publish(channel, term_length=1 << 16) as pub, penstock.publish(channel) as other:
        track = archive._opener.open(channel, "newest", False, 1 << 20, None)
        pub.send(b"first")
        track.turn()
        big = bytes(range(256)) * 400  # longer than the window, and short enough to be kept until the recorder goes on
        thread = threading.Thread(target=pub.send, args=(big, 60))
        thread.start()
        while archive.find(channel).end_position < 1 << 15:
            track.turn()
        track.finish()
        if pipeline.run(None, archive.path, out).total_rows == 2:
            thread.join()
            return False
        assert pipeline.run(None, archive.path, out).rows == 0
        track = archive._opener.open(channel, "newest", True, 1 << 20, None)
        while thread.is_alive() or track.turn() > 0:
            track.turn()
        thread.join()
        other.send(b"last")
        while track.turn() > 0:
            pass
        track.finish()
    pipeline.run(None, archive.path, out)
    rows = tables.read(out, "messages").sort_by("position")
    assert rows["payload"].to_pylist() == [b"first", big, b"last"]
    raw = tables.read(out, "raw").sort_by("position")
    assert len(set(raw["position"].to_pylist())) == raw.num_rows, "each frame once"
    assert pipeline.run(None, archive.path, out).ranges == 0
    return True


def test_one_damaged_stream_stops_no_other(archive, tmp_path):
    for name in ("log:a", "log:bad", "log:z"):
        send(name, "json", [b'{"v":%d}' % i for i in range(100)], archive)
    folder = next(folder for folder in archive.folders() if folder.describe().channel == "log:bad")
    segment = folder.segments()[0]
    good = segment.data.read_bytes()
    segment.data.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(penstock.Corrupt, match="log:bad"):
        pipeline.run(None, archive.path, tmp_path / "t")
    for name in ("log:a", "log:z"):
        rows = both(tmp_path / "t", name)
        assert rows["v"].to_pylist() == list(range(100))
    segment.data.write_bytes(good)
    assert pipeline.run(None, archive.path, tmp_path / "t").rows == 0, "the tables have the range, with a gap"
    assert pipeline.run(None, archive.path, tmp_path / "fresh").rows == 300


def test_a_stream_whose_task_fails_stops_no_other(archive, tmp_path, monkeypatch):
    for name in ("log:a", "log:bad", "log:z"):
        send(name, "json", [b'{"v":%d}' % i for i in range(100)], archive)
    plain = tasks._write_range

    def fail(task):
        if task["stream"] == "log:bad":
            raise penstock.Corrupt("log:bad: an error of this stream alone")
        return plain(task)

    monkeypatch.setattr(tasks, "_write_range", fail)
    with pytest.raises(penstock.Corrupt, match="log:bad"):
        pipeline.run(None, archive.path, tmp_path / "t")
    for name in ("log:a", "log:z"):
        assert both(tmp_path / "t", name)["v"].to_pylist() == list(range(100))
    monkeypatch.undo()
    assert pipeline.run(None, archive.path, tmp_path / "t").rows == 100


def test_files_of_others_are_never_read_or_deleted(archive, tmp_path):
    out, lake = tmp_path / "t", tmp_path / "lake"
    mine = [out / "messages" / "mine.parquet", out / "raw" / "2025" / "mine.parquet", out / "stats" / "m.parquet.1.new"]
    send("log:j", "json", [b'{"a":1}'], archive)
    pipeline.run(None, archive.path, out)
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    send("log:j", "json", [b'{"a":2.5}'], archive)
    done = pipeline.run(None, archive.path, out, window=0.5, retain=0)
    assert (done.total_rows, done.files_removed) == (2, 1), "a file of log:j was replaced"
    assert all(path.read_bytes() == b"mine" for path in mine)
    assert not {str(path) for path in mine} & {path for name in tables.names(out) for path in tables.uris(out, name)}
    (lake / "raw").mkdir(parents=True)
    (lake / "raw" / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(penstock.Invalid, match="other files"):
        pipeline.run(None, archive.path, lake)
    assert [path.name for path in lake.rglob("*") if path.is_file()] == ["mine.parquet"]


def test_uris_are_paths_or_refused(archive, tmp_path):
    send("log:j", "json", [b'{"a":1}'], archive)
    for out in ("s3:/", "hdfs://host/x"):
        with pytest.raises(penstock.Invalid, match=r"is a URI of hdfs|name a bucket"):
            pipeline.run(None, archive.path, out)
    for odd in ("s3:/", "hdfs://host/x"):
        with pytest.raises(penstock.Invalid, match=r"is a URI of hdfs|name a bucket"):
            pipeline.run(None, odd, tmp_path / "t")
    assert pipeline.run(None, archive.path.as_uri(), (tmp_path / "a b").as_uri()).rows == 1
    assert tables.read(tmp_path / "a b", "messages").num_rows == 1


def test_tables_may_be_asked_for_later(archive, tmp_path):
    out, fresh = tmp_path / "t", tmp_path / "fresh"
    for step in range(3):
        send("log:j", "json", [b'{"a":%d}' % step] * 50, archive)
        done = pipeline.run(None, archive.path, out, tables=(("messages",), ("messages", "raw"), tables.RECORDED)[step])
        assert (done.rows, done.total_rows) == (50, 50 * (step + 1))
        assert tables.names(out) == [["messages"], ["raw", "messages"], ["raw", "messages", "streams/log_j"]][step]
    pipeline.run(None, archive.path, fresh)
    for name in tables.names(out):
        one, other = (tables.read(each, name) for each in (out, fresh))
        assert one.sort_by("position").to_pylist() == other.sort_by("position").to_pylist(), name
    assert pipeline.run(None, archive.path, out).ranges == 0
    # A table that was left out for a while is brought up to date again.
    send("log:j", "json", [b'{"a":9}'] * 50, archive)
    pipeline.run(None, archive.path, out, tables=("messages",))
    assert tables.read(out, "raw").num_rows == 150
    assert pipeline.run(None, archive.path, out).rows == 0
    assert [tables.read(out, name).num_rows for name in ("raw", "messages", "log:j")] == [200] * 3


def test_options_that_are_wrong(archive, tmp_path):
    for wrong in (
        {"window": 0},
        {"window": 1e-10},
        {"window": float("inf")},
        {"window": 1e300},
        {"compression": "rar"},
        {"tables": ("raw",)},
        {"tables": ("messages", "stats")},
    ):
        with pytest.raises(penstock.Invalid):
            pipeline.run(None, archive.path, tmp_path / "u", **wrong)
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.SystemFailure, match="cannot hold tables"):
        pipeline.run(None, archive.path, tmp_path / "file")


def test_the_drives_columns_are_what_numpy_reads(drive, archive, tmp_path, tally):
    from penstock.cli.demo import checks
    from penstock.cli.demo.sources import drive_records, drive_streams

    streams = drive_streams(drive)
    pubs = {name: penstock.publish(f"log:{name}", codec=drive_records(drive, name)[0].dtype) for name in streams}
    with archive.record([f"log:{name}" for name in streams]):
        for name, pub in pubs.items():
            for record in drive_records(drive, name)[0]:
                pub.send(record)
            pub.close()
    pipeline.run(None, archive.path, tmp_path / "t")
    total = 0
    for name in streams:
        records = drive_records(drive, name)[0]
        rows = both(tmp_path / "t", f"log:{name}")
        for field in records.dtype.names:
            expected = records[field].reshape(len(records), -1) if records[field].ndim > 1 else records[field]
            found = np.array(rows[field].to_pylist(), expected.dtype)
            assert np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f"), (name, field)
        assert rows["decode_error"].null_count == rows.num_rows == len(records)
        total += len(records)
    tally("rows compared", total)
    channels = {name: f"log:{name}" for name in streams}
    assert checks.compare_drive(drive, tmp_path / "t", channels) == total


def test_times_beyond_what_readers_show_are_errors(archive, tmp_path):
    dtype = np.dtype([("t", "M8[s]"), ("v", "i4")])
    with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
        pub.send((np.datetime64(2**61, "s"), 1))
        pub.send((datetime.datetime(2026, 1, 1), 2))
    pipeline.run(None, archive.path, tmp_path / "t")
    rows = both(tmp_path / "t", "log:s")
    assert rows["t"].to_pylist() == [None, datetime.datetime(2026, 1, 1)]
    assert "only the payload" in rows["decode_error"][0].as_py()
    assert rows["v"].to_pylist() == [1, 2]
