"""Archives on object storage: pushed in steps, killed and resumed, cut back, damaged; read by ranges, exactly as they are here."""

import io
import json
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from dying import exit_status

import penstock
from penstock.cli import run
from penstock.errors import Invalid, NotFound, Unsupported
from penstock.export import export
from penstock.record import COLUMNS, Consumer, ReadPlanner, intervals, plan
from penstock.record.format import remote
from penstock.util.files.storage import where

ALL = sorted(COLUMNS)


def record(archive, channel="log:a", count=300, size=2000, **options):
    """Messages of up to 3 · `size` bytes, some in fragments, in segments of 64 KiB."""
    with (
        penstock.publish(channel, term_length=1 << 16) as pub,
        archive.record(channel, segment_length=1 << 16, **options),
    ):
        for i in range(count):
            pub.send(bytes([i % 251]) * (i * 7919 % (3 * size)))


def same(one, other, **options):
    """Each recording of both archives: every column of every row."""
    infos = one.list()
    assert [info.id for info in infos] == [info.id for info in other.list()]
    for info in infos:
        here = one.read(info.id, columns=ALL, **options)
        there = other.read(info.id, columns=ALL, **options)
        assert here.equals(there)
    return sum(info.messages for info in infos)


def objects(uri):
    place = where(uri)
    found = place.fs.get_file_info(pyarrow.fs.FileSelector(place.path, recursive=True))
    return {info.path.removeprefix(place.path + "/"): (info.size, info.mtime_ns) for info in found if info.is_file}


@pytest.mark.slow
def test_an_archive_there_is_read_as_it_is_here(archive, bucket):
    record(archive, count=100)
    record(archive, "log:b", 10, 30_000)
    uri = f"{bucket}/deep/er"
    done = archive.push(uri)
    assert [one.error for one in done] == ["", ""]
    assert all(one.segments > 2 for one in done)
    assert set(objects(uri)) == {
        str(path.relative_to(archive.path))
        for path in (archive.path / "recordings").rglob("*")
        # the ledger: a reader there has the indexes; the copy: a damaged description is pushed again
        if path.is_file() and path.name not in ("segments", "recording.copy")
    } | {"id"}
    there = penstock.Archive(uri)
    assert same(archive, there) == 110
    for info, far in zip(archive.list(), there.list(), strict=True):
        assert (info.messages, info.bytes, info.end_position, info.state) == (
            far.messages,
            far.bytes,
            far.end_position,
            "closed",
        )
        assert str(far.path).startswith(uri)
    middle = archive.read("log:a", columns=["position"])["position"][50].as_py()
    same(archive, there, start=middle)
    same(archive, there, since=archive.list()[0].time_max - 1000)
    assert [m.data for m in there.replay("log:b")] == [m.data for m in archive.replay("log:b")]
    assert [m.data for m in there.follow("log:b")] == [m.data for m in archive.replay("log:b")]
    assert there.verify() == []


@pytest.mark.slow
def test_tasks_read_their_ranges_from_there(archive, bucket):
    record(archive, count=400)
    archive.push(bucket + "/x")
    there = penstock.Archive(bucket + "/x")
    here, far = plan(archive, range_bytes=50_000), plan(there, range_bytes=50_000)
    assert len(far) > 5
    assert [(one.start, one.end, one.segments) for one in here] == [(one.start, one.end, one.segments) for one in far]
    for one, other in zip(here, far, strict=True):
        sent = type(other)(**json.loads(json.dumps(other.__dict__)))  # as a task gets it
        assert pa.Table.from_batches(one.rows(ALL)).equals(pa.Table.from_batches(sent.rows(ALL)))
        assert one.time_before() == sent.time_before()


def test_a_message_may_end_in_segments_outside_its_range(archive, bucket):
    with penstock.publish("log:a", term_length=1 << 16) as pub, archive.record("log:a", segment_length=1 << 16):
        for size in (50_000, 150_000, 3):
            pub.send(bytes(size))
    archive.push(bucket + "/x")
    far = plan(penstock.Archive(bucket + "/x"), range_bytes=1 << 16)
    assert all(len(one.segments) <= 3 for one in far)
    found = [row for one in far for batch in one.scan(["payload"]) for row in batch.column("payload").to_pylist()]
    assert [len(payload) for payload in found] == [50_000, 150_000, 3]


@pytest.mark.slow
def test_a_second_plan_there_is_the_same_as_a_first(archive, bucket):
    uri = bucket + "/x"
    record(archive)
    archive.push(uri)
    there = penstock.Archive(uri)
    assert plan(there, range_bytes=50_000)
    with penstock.publish("log:c", term_length=1 << 16) as pub:
        for step in range(4):
            with archive.record("log:c", segment_length=1 << 16, extend=step > 0):
                for i in range(200):
                    pub.send(bytes(i * 5))
            archive.push(uri)
            assert plan(there, range_bytes=50_000) == plan(penstock.Archive(uri), range_bytes=50_000)
            assert sum(one.messages for one in plan(there)) == 300 + (step + 1) * 200
        archive.truncate("log:c", archive.find("log:c").end_position // 2)
    archive.push(uri, replace=True)
    assert plan(there, range_bytes=50_000) == plan(penstock.Archive(uri), range_bytes=50_000)
    assert [(one.start, one.end) for one in plan(there)] == [(one.start, one.end) for one in plan(archive)]


@pytest.mark.slow
def test_a_plan_of_what_did_not_change_there_reads_no_index(archive, bucket, monkeypatch):
    record(archive)
    archive.push(bucket + "/x")
    there = penstock.Archive(bucket + "/x")
    monkeypatch.setattr(remote, "STABLE_NS", -(1 << 62))  # as if the push had been long ago
    first, read = plan(there), []
    fetched = remote.fetch
    monkeypatch.setattr(remote, "fetch", lambda path: read.append(str(path)) or fetched(path))
    assert plan(there) == first
    assert read == []
    assert plan(penstock.Archive(bucket + "/x")) == first
    assert read


def test_a_second_push_copies_only_what_is_new(archive, bucket):
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        with archive.record("log:a", segment_length=1 << 16):
            for i in range(200):
                pub.send(bytes(i * 5))
        (first,) = archive.push(bucket + "/x")
        before = objects(bucket + "/x")
        (again,) = archive.push(bucket + "/x")
        assert (again.segments, again.bytes, again.there) == (0, 0, first.segments)
        assert objects(bucket + "/x") == before
        with archive.record("log:a", segment_length=1 << 16, extend=True):
            for i in range(200):
                pub.send(bytes(i * 5))
            (live,) = archive.push(bucket + "/x")
            recorder_end = archive.find("log:a").end_position
            far = penstock.Archive(bucket + "/x").find("log:a")
            assert far.state == "partial"
            assert far.end_position <= recorder_end
            assert live.there == first.segments
            rows = penstock.Archive(bucket + "/x").read("log:a", columns=ALL)
            assert rows.equals(archive.read("log:a", columns=ALL).slice(0, len(rows)))
            assert len(rows) >= 200
    archive.push(bucket + "/x")
    assert penstock.Archive(bucket + "/x").find("log:a").state == "closed"
    same(archive, penstock.Archive(bucket + "/x"))
    assert {name: at for name, at in objects(bucket + "/x").items() if name in before and name.endswith(".seg")} == {
        name: at for name, at in before.items() if name.endswith(".seg")
    }


@pytest.mark.slow
def test_a_recording_that_is_not_sealed_waits_for_its_seal(archive, bucket):
    record(archive)
    folder = archive.folders()[0]
    last = folder.segments()[-1]
    with open(last.index, "r+b") as file:  # as a recorder leaves it that is killed
        file.truncate(last.index.stat().st_size - 64)
    folder.write_mark(type(folder.mark())(0))
    (done,) = archive.push(bucket + "/x")
    assert done.waiting > 0
    far = penstock.Archive(bucket + "/x").find("log:a")
    assert far.state == "partial"
    assert far.end_position == last.base
    archive.repair()
    (done,) = archive.push(bucket + "/x")
    assert (done.segments, done.waiting) == (1, 0)
    same(archive, penstock.Archive(bucket + "/x"))


def test_cut_back_means_told_to_replace(archive, bucket):
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        with archive.record("log:a", segment_length=1 << 16):
            for i in range(300):
                pub.send(bytes([1]) * (i * 5))
        archive.push(bucket + "/x")
        before = objects(bucket + "/x")
        middle = archive.read("log:a", columns=["position"])["position"][150].as_py()
        archive.truncate("log:a", middle)
        (done,) = archive.push(bucket + "/x")
        assert "was cut back" in done.error
        assert objects(bucket + "/x") == before
        (done,) = archive.push(bucket + "/x", replace=True)
        assert done.error == ""
        same(archive, penstock.Archive(bucket + "/x"))
        assert ReadPlanner(penstock.Archive(bucket + "/x")).cuts[0][1] == ReadPlanner(archive).cuts[0][1]
        (done,) = archive.push(bucket + "/x")
        assert done.segments == 0


@pytest.mark.slow
def test_a_reader_that_follows_sees_what_is_pushed_later(archive, bucket, monkeypatch):
    uri = f"{bucket}/x"
    record(archive, count=100)
    archive.push(uri)
    there = penstock.Archive(uri)
    assert there.id == archive.id
    watch, read = there.watch(), []
    fetched = remote.fetch
    monkeypatch.setattr(remote, "fetch", lambda path: read.append(str(path)) or fetched(path))
    watch.refresh()
    assert read
    done, known = watch.fresh({}), len(read)
    assert sum(watch.bytes_and_messages(done)) > 100
    assert watch.removed() == {}
    assert not watch.refresh()
    assert watch.fresh(done) == {}
    record(archive, count=50, extend=False)
    record(archive, "log:b", 10)
    archive.push(uri)
    assert watch.refresh()
    fresh = watch.fresh(done)
    assert {channel for channel, _ in fresh} == {"log:a", "log:b"}
    rows = sum(len(b) for one in watch.plan(fresh, range_bytes=1 << 20, reported={}) for b in one.scan(["position"]))
    assert rows == 60
    assert len([path for path in read[known:] if "/00000001/" in path]) == 0, (
        "indexes that were read are not read again"
    )
    done = {
        stream: intervals.union(done.get(stream, []), fresh.get(stream, [])) for stream in done.keys() | fresh.keys()
    }
    with penstock.publish("log:c", term_length=1 << 16) as pub, archive.record("log:c", segment_length=1 << 16):
        for step in range(3):  # a recording that goes on: its sealed segments come one after another
            for _ in range(100):
                pub.send(bytes(2000))
            end = pub.position
            while archive.find("log:c").end_position < end:
                pass
            archive.push(uri)
            assert watch.refresh()
            fresh = watch.fresh(done)
            found = [
                p
                for one in watch.plan(fresh, range_bytes=1 << 20, reported={})
                for b in one.scan(["position"])
                for p in b["position"].to_pylist()
            ]
            assert len(found) >= 60
            assert len(set(found)) == len(found)
            done = {one: intervals.union(done.get(one, []), fresh.get(one, [])) for one in done.keys() | fresh.keys()}
            assert len([info for info in watch.recordings if info.channel == "log:c"]) == 1, step
    archive.push(uri)
    watch.refresh()
    done = {one: intervals.union(done.get(one, []), parts) for one, parts in watch.fresh(done).items()} | done
    (state,) = [info.state for info in watch.recordings if info.channel == "log:c"]
    assert state == "closed"
    assert there.consumers() == []
    for call in (lambda: there.note_consumer(Consumer("x", None, 1, {})), lambda: there.forget_consumer("x")):
        with pytest.raises(Unsupported, match="object storage"):
            call()


def test_a_reader_that_follows_reads_what_was_cut_back_again(archive, bucket):
    record(archive, count=100)
    archive.push(f"{bucket}/x")
    watch = penstock.Archive(f"{bucket}/x").watch()
    watch.refresh()
    (stream,) = watch.held()
    end = intervals.end_of(watch.held()[stream])
    middle = archive.read("log:a", columns=["position"])["position"][50].as_py()
    archive.truncate("log:a", middle)
    archive.push(f"{bucket}/x", replace=True)
    assert watch.refresh()
    assert intervals.end_of(watch.held()[stream]) <= middle < end
    (cut,) = [cut for _, cut in watch.cuts]
    assert cut.position <= middle


def push(archive, uri, left):
    """A push that is killed at one of its steps."""
    from penstock.record.keep import push as module

    def counted(made):
        def method(self, *given):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return made(self, *given)

        return method

    for name in ("_copy", "_upload", "_segment", "_mark"):
        setattr(module._Push, name, counted(getattr(module._Push, name)))
    penstock.Archive(archive).push(uri)


@pytest.mark.slow
def test_a_killed_push_leaves_what_can_be_read_and_goes_on(archive, bucket):
    record(archive, count=100)
    record(archive, "log:b", 30)
    whole = {info.id: archive.read(info.id, columns=ALL) for info in archive.list()}
    step = 0
    while True:
        status = exit_status(push, archive.path, f"{bucket}/x", step)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        step = min(step + 3, 30)
        try:
            there = penstock.Archive(f"{bucket}/x")
        except NotFound:
            continue
        for info in there.list():
            assert info.damage == ""
            rows = there.read(info.id, columns=ALL)
            assert rows.equals(whole[info.id].slice(0, len(rows)))
    assert step > 3
    same(archive, penstock.Archive(f"{bucket}/x"))


def test_damage_here_is_not_pushed_and_others_are(archive, bucket):
    record(archive, count=100)
    record(archive, "log:b", 100)
    path = archive.folders()[0].segments()[1].data
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 4
    path.write_bytes(raw)
    one, other = archive.push(f"{bucket}/x")
    assert "byte 1000" in one.error
    assert other.error == ""
    there = penstock.Archive(f"{bucket}/x")
    assert [info.channel for info in there.list()] == ["log:b"]
    assert there.read("log:b", columns=ALL).equals(archive.read("log:b", columns=ALL))


@pytest.mark.slow
def test_damage_there_is_found_by_readers_and_by_verify(archive, bucket, caplog):
    record(archive, count=100)
    archive.push(f"{bucket}/x")
    there = penstock.Archive(f"{bucket}/x")
    before = there.read("log:a", columns=["position", "payload"]).to_pylist()
    segment = there.folders()[0].segments()[1]
    raw = bytearray(segment.data.read_bytes())
    raw[1000] ^= 4
    with segment.data.place.fs.open_output_stream(segment.data.place.path) as stream:
        stream.write(bytes(raw))
    (found,) = there.verify()
    assert (str(found.path), found.offset, found.length) == (str(segment.data), 1000, 1)
    entries, at = there.folders()[0].index(segment)[0], segment.base + 1000
    (low, high) = next((p, p + n) for p, n in entries[["position", "length"]].tolist() if p <= at < p + n)
    ends = [row["position"] for row in before[1:]] + [there.find("log:a").end_position]
    kept = [row for row, end in zip(before, ends, strict=True) if end <= low or row["position"] >= high]
    behind = next(row["position"] for row in kept if row["position"] >= high)
    found = there.read("log:a", columns=["position", "payload", "lost"]).to_pylist()
    assert len(kept) < len(before)
    assert found == [{**row, "lost": high - low if row["position"] == behind else 0} for row in kept]
    (said,) = [r.getMessage() for r in caplog.records if str(segment.data) in r.getMessage()]
    assert "byte 1000 alone explains it" in said
    assert f"{high - low} bytes from position {low} on are left out" in said
    segment.data.place.fs.delete_file(segment.data.place.path)
    with pytest.raises(penstock.SystemFailure, match="the object does not exist"):  # it can be pushed again
        there.read("log:a")
    assert "the segment is missing" in there.verify()[0].what
    segment.data.place.fs.delete_file(segment.index.place.path)
    assert there.find("log:a").state == "damaged"


def test_another_archive_is_refused_and_a_place_is_checked(archive, bucket, tmp_path, caplog):
    record(archive, count=10)
    other = penstock.Archive(tmp_path / "other")
    record(other, count=10)
    archive.push(f"{bucket}/x")
    (done,) = other.push(f"{bucket}/x")
    assert "another recording" in done.error
    there = penstock.Archive(f"{bucket}/x")
    same(archive, there)
    for call in (lambda: there.record("log:a"), there.repair, lambda: there.purge(1), lambda: there.truncate(1, 0)):
        with pytest.raises(Unsupported, match="object storage"):
            call()
    with pytest.raises(NotFound, match="no archive at"):
        penstock.Archive(f"{bucket}/none")
    for wrong, what in (
        ("s3://key:secret@bucket/x", "credentials"),
        ("s3://bucket/x?region=y", "options"),
        ("s3://", "bucket"),
        (str(tmp_path), "not an object storage"),
        ("ftp://a/b", "URI of ftp"),
    ):
        with pytest.raises(Invalid, match=what) as caught:
            archive.push(wrong)
        assert "secret" not in str(caught.value)
    assert "not-to-be-logged" not in caplog.text


@pytest.mark.slow
def test_the_command(archive, bucket, capfd, tmp_path):
    record(archive, count=100)
    assert run(["archive", "push", str(archive.path), f"{bucket}/x"]) == 0
    assert "log:a" in capfd.readouterr().out
    assert run(["archive", "push", str(archive.path), f"{bucket}/x", "--json"]) == 0
    (told,) = json.loads(capfd.readouterr().out)
    assert (told["segments"], told["error"]) == (0, "")
    assert run(["recordings", f"{bucket}/x", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["messages"] == 100
    assert run(["verify", f"{bucket}/x"]) == 0
    capfd.readouterr()
    assert run(["replay", f"{bucket}/x", "log:a", "-n", "1"]) == 0
    assert run(["export", f"{bucket}/x", str(tmp_path / "o")]) == 0
    assert run(["repair", f"{bucket}/x"]) == 1
    told = capfd.readouterr()
    assert "can only be read" in told.err
    assert "not-to-be-logged" not in told.err + told.out
    path = archive.folders()[0].segments()[0].data
    assert path.stat().st_size > 0
    os.truncate(path, 10)
    assert run(["archive", "push", str(archive.path), f"{bucket}/y"]) == 1
    assert "recording 1 of log:a" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "delta"])
def test_export_from_there_to_there(archive, bucket, form, tmp_path):
    dtype = np.dtype([("t", "f8"), ("tag", "S4")])
    with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
        for i in range(1000):
            pub.send((i / 3, b"a\0b"))
    archive.push(f"{bucket}/x")
    done = export(f"{bucket}/x", f"{bucket}/out", form=form)
    assert done.rows == 1000
    place = where(f"{bucket}/out")
    names = [name for name in objects(f"{bucket}/out") if name.startswith("log_s/part-")]
    assert len(names) == 1
    with place.fs.open_input_file(f"{place.path}/{names[0]}") as file:
        raw = file.read()
    if form == "delta":
        deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
        from penstock.util.files.storage import delta_options

        table = deltalake.DeltaTable(f"{bucket}/out/log_s", storage_options=delta_options(place))
        assert len(table.file_uris()) == 1
    if form in ("delta", "parquet"):
        import pyarrow.parquet as pq

        rows = pq.read_table(io.BytesIO(raw))
    elif form == "arrow":
        rows = pa.ipc.open_file(raw).read_all()
    else:
        assert raw.count(b"\n") == 1001
        return
    assert rows["t"].to_pylist() == [i / 3 for i in range(1000)]
    assert set(rows["tag"].to_pylist()) == {b"a\0b"}
    with pytest.raises(Invalid, match="holds objects already"):
        export(f"{bucket}/x", f"{bucket}/out")
