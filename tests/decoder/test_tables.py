"""Any messages through recording and pipeline: each row has what was sent, and no odd message or damaged stream stops another."""

import datetime
import json
import threading

import numpy as np
import polars
import pytest
from conftest import sized
from decoder import generate
from decoder.rows import both, check_rows, send

import penstock
from penstock import codecs, tables
from penstock.record.read import rows as making
from penstock.tables import pipeline
from penstock.tables.work import tasks

ROUNDS = sized(4, 16, 200)


def make(rng):
    """(codec, messages) of a random stream."""
    kind = rng.choice(["json", "json", "msgpack", "struct", "bytes"])
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


def test_in_any_steps_each_row_has_what_was_sent(rng, tmp_path, tally, monkeypatch):
    """With ranges, batches and first messages of any size; read by this library and by Polars."""
    for number in range(ROUNDS):
        monkeypatch.setattr(making, "BATCH_ROWS", rng.choice([1, 3, 17, 65536]))
        monkeypatch.setattr(pipeline, "SAMPLE", rng.choice([1, 5, 2000]))
        size = rng.choice([256, 2048, 1 << 20])
        archive = penstock.Archive(tmp_path / f"archive{number}")
        codec, payloads = make(rng)
        channel, out = f"log:s{number}", tmp_path / f"steps{number}"
        cuts = sorted(rng.sample(range(1, len(payloads)), min(len(payloads) - 1, rng.randrange(4))))
        types = {}
        for low, high in zip([0, *cuts], [*cuts, len(payloads)], strict=True):
            send(channel, codec, payloads[low:high], archive)
            tables.run(archive.path, out, range_bytes=size)
            found = both(out, channel)
            now = {field.name: field.type for field in found.schema}
            assert types.items() <= now.items(), "a column's type never changes"
            types = now
        again = tables.run(archive.path, out)
        assert (again.rows, again.total_rows) == (0, len(payloads))
        tally("rows compared", check_rows(found, codec, payloads))
        by_polars = polars.read_delta(str(out / "messages")).sort("position")
        for name in ("position", "payload", "decode_error"):
            assert by_polars[name].to_list() == found[name].to_pylist()
        tally("tables read back", 2)
        penstock.remove(channel)


def test_one_poison_message_stops_nothing(archive, tmp_path):
    poison = [
        b'{"a":' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"a":18446744073709551616}',
        b"{",
        b'{"bytes":1,"a b":2,"a-b":3}',
    ]
    sent = [b'{"a":1}', *poison, b'{"a":2}']
    send("log:bad", "json", sent, archive)
    send("log:good", "json", [b'{"a":1}'] * 10, archive)
    done = tables.run(archive.path, tmp_path / "t")
    assert done.total_rows == 16
    bad = both(tmp_path / "t", "log:bad")
    check_rows(bad, "json", sent)
    assert bad["decode_error"].is_valid().to_pylist() == [False, True, False, True, False, False]
    assert (bad["bytes_"][4].as_py(), bad["a_b"][4].as_py(), bad["a_b_"][4].as_py()) == (1, 2, 3)


def test_a_codec_may_change_and_columns_keep_their_types(archive, tmp_path):
    first = np.dtype([("v", "i4"), ("w", "i8"), ("b", "S2")])
    second = np.dtype([("v", "f8"), ("w", "f8"), ("b", "f4"), ("z", "i1")])
    for dtype, value in ((first, (1, 2**60 + 1, b"\1\2")), (second, (0.5, 3.0, 1.5, 7))):
        with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
            pub.send(value)
        penstock.remove("log:s")
    tables.run(archive.path, tmp_path / "t")
    rows = both(tmp_path / "t", "log:s").sort_by("time")
    assert rows["v"].to_pylist() == [1, None]
    assert rows["w"].to_pylist() == [2**60 + 1, 3]
    assert rows["b"].to_pylist() == [b"\1\2", None]
    assert rows["z"].to_pylist() == [None, 7]
    assert [one and json.loads(one) for one in rows["_rescued"].to_pylist()] == [None, {"v": 0.5, "b": 1.5}]


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
        if tables.run(archive.path, out).total_rows == 2:
            thread.join()
            return False
        assert tables.run(archive.path, out).rows == 0
        track = archive._opener.open(channel, "newest", True, 1 << 20, None)
        while thread.is_alive() or track.turn() > 0:
            track.turn()
        thread.join()
        other.send(b"last")
        while track.turn() > 0:
            pass
        track.finish()
    tables.run(archive.path, out)
    rows = tables.read(out, "messages").sort_by("position")
    assert rows["payload"].to_pylist() == [b"first", big, b"last"]
    assert tables.run(archive.path, out).ranges == 0
    return True


def test_one_damaged_stream_stops_no_other(archive, tmp_path):
    for name in ("log:a", "log:bad", "log:z"):
        send(name, "json", [b'{"v":%d}' % i for i in range(100)], archive)
    folder = next(folder for folder in archive.folders() if folder.describe().channel == "log:bad")
    segment = folder.segments()[0]
    good = segment.data.read_bytes()
    segment.data.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(penstock.Corrupt, match="log:bad"):
        tables.run(archive.path, tmp_path / "t")
    for name in ("log:a", "log:z"):
        rows = both(tmp_path / "t", name)
        assert rows["v"].to_pylist() == list(range(100))
    segment.data.write_bytes(good)
    assert tables.run(archive.path, tmp_path / "t").rows == 0, "the tables have the range, with a gap"
    assert tables.run(archive.path, tmp_path / "fresh").rows == 300


def test_a_stream_whose_task_fails_stops_no_other(archive, tmp_path, monkeypatch):
    for name in ("log:a", "log:bad", "log:z"):
        send(name, "json", [b'{"v":%d}' % i for i in range(100)], archive)
    plain = tasks._write_range

    def fail(task):
        if task["range"]["channel"] == "log:bad":
            raise penstock.Corrupt("log:bad: an error of this stream alone")
        return plain(task)

    monkeypatch.setattr(tasks, "_write_range", fail)
    with pytest.raises(penstock.Corrupt, match="log:bad"):
        tables.run(archive.path, tmp_path / "t")
    for name in ("log:a", "log:z"):
        assert both(tmp_path / "t", name)["v"].to_pylist() == list(range(100))
    monkeypatch.undo()
    assert tables.run(archive.path, tmp_path / "t").rows == 100


def test_files_of_others_are_never_read_or_deleted(archive, tmp_path):
    out, lake = tmp_path / "t", tmp_path / "lake"
    mine = [
        out / "messages" / "mine.parquet",
        out / "streams" / "2025" / "mine.parquet",
        out / "mine" / "m.parquet.1.new",
    ]
    send("log:j", "json", [b'{"a":1}'], archive)
    tables.run(archive.path, out)
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    send("log:j", "json", [b'{"a":2.5}'], archive)
    assert tables.run(archive.path, out, keep="30d").total_rows == 2
    tables.optimize(out)
    assert all(path.read_bytes() == b"mine" for path in mine)
    assert not {str(path) for path in mine} & {path for name in tables.names(out) for path in tables.uris(out, name)}
    (lake / "messages").mkdir(parents=True)
    (lake / "messages" / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(penstock.Invalid, match="other files"):
        tables.run(archive.path, lake)
    assert [path.name for path in lake.rglob("*") if path.is_file()] == ["mine.parquet"]


def test_uris_are_paths_or_refused(archive, tmp_path):
    send("log:j", "json", [b'{"a":1}'], archive)
    for out in ("s3:/", "hdfs://host/x"):
        with pytest.raises(penstock.Invalid, match=r"is a URI of hdfs|name a bucket"):
            tables.run(archive.path, out)
    for odd in ("s3:/", "hdfs://host/x"):
        with pytest.raises(penstock.Invalid, match=r"is a URI of hdfs|name a bucket"):
            tables.run(odd, tmp_path / "t")
    assert tables.run(archive.path.as_uri(), (tmp_path / "a b").as_uri()).rows == 1
    assert tables.read(tmp_path / "a b", "messages").num_rows == 1


def test_options_that_are_wrong(archive, tmp_path):
    for wrong in (
        {"compression": "rar"},
        {"new_keys": "drop"},
        {"restored": "maybe"},
        {"keep": "a while"},
        {"schema": {"log:j": "a number"}},
    ):
        with pytest.raises(penstock.Invalid):
            tables.run(archive.path, tmp_path / "u", **wrong)
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.SystemFailure, match="cannot hold tables"):
        tables.run(archive.path, tmp_path / "file")


@pytest.mark.slow
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
    tables.run(archive.path, tmp_path / "t")
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
    tables.run(archive.path, tmp_path / "t")
    rows = both(tmp_path / "t", "log:s")
    assert rows["t"].to_pylist() == [None, datetime.datetime(2026, 1, 1)]
    assert "only the payload" in rows["decode_error"][0].as_py()
    assert rows["v"].to_pylist() == [1, 2]
