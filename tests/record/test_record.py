"""Recording: what flowed is there, can be replayed, followed and extended; damage is found, located and cut off."""

import itertools
import os
import random
import shutil
import sqlite3
import threading

import pytest

import penstock
from penstock.record import plan
from penstock.record.format.folder import RecordingFolder
from penstock.record.read.planning.plan import subtract

T = 1 << 16


@pytest.fixture
def pub():
    with penstock.publish("log:r", term_length=T, codec="json") as publication:
        yield publication


def record(archive, pub, count, *, first=0, size=20, **options):
    with archive.record("log:r", **options) as recorder:
        for i in range(first, first + count):
            pub.send({"i": i, "x": "x" * size})
    return recorder


def numbers(archive, **options):
    return [m.data["i"] for m in archive.replay("log:r", **options)]


def test_all_messages_are_there(archive, pub):
    recorder = record(archive, pub, 5000)
    (info,) = archive.list()
    assert (info.channel, info.state, info.messages, info.gaps) == ("log:r", "closed", 5000, 0)
    assert info.end_position == info.synced_position == pub.position
    assert recorder.progress()[0].messages == 5000
    assert numbers(archive) == list(range(5000))
    assert archive.verify() == []
    assert archive.repair() == []
    table = archive.read("log:r", columns=["stream", "time", "payload", "flags", "lost", "recorded_ns", "timestamp_ns"])
    table.validate(full=True)
    assert table.num_rows == 5000
    assert (table["recorded_ns"].to_numpy() >= table["timestamp_ns"].to_numpy()).all()
    assert archive.read("log:r", start=info.end_position).num_rows == 0


def test_several_channels_and_segments(archive):
    names = [f"log:m{i}" for i in range(3)]
    pubs = [penstock.publish(name, term_length=T) for name in names]
    with archive.record(names, segment_length=1 << 17) as recorder:
        for i in range(6000):
            pubs[i % 3].send(b"%d" % i + b"x" * 100)
    assert set(recorder.recordings) == set(names)
    for k, name in enumerate(names):
        assert [int(m.data.rstrip(b"x")) for m in archive.replay(name)] == list(range(k, 6000, 3))
        assert archive.find(name).segments > 1
    assert archive.verify() == []


def test_messages_in_fragments_are_whole_again(archive):
    with penstock.publish("log:big", term_length=T) as pub:
        data = [os.urandom(n) for n in (10, 100_000, 0, 300_000, 5)]
        with archive.record("log:big", segment_length=1 << 17):
            for message in data:
                pub.send(message)
        assert [m.data for m in archive.replay("log:big")] == data
        raw = archive.read("log:big", columns=["flags", "payload"], frames=True)
        assert raw.num_rows > len(data)
        assert b"".join(raw["payload"].to_pylist()) == b"".join(data)


def test_recording_from_the_earliest(archive, pub):
    for i in range(100):
        pub.send({"i": i})
    record(archive, pub, 100, first=100, start="earliest")
    assert numbers(archive) == list(range(200))


def test_replay_from_a_position_and_a_time(archive, pub):
    record(archive, pub, 1000)
    messages = list(archive.replay("log:r"))
    assert numbers(archive, start=messages[400].position) == list(range(400, 1000))
    assert numbers(archive, end=messages[400].position) == list(range(400))
    times = [m.time_ns for m in messages]
    since, until = times[300], times[700]
    assert numbers(archive, since=since, until=until) == [i for i, t in enumerate(times) if since <= t <= until]


class StillClock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def now_ns(self):
        return int(self.now * 1e9)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_replay_keeps_the_rhythm_at_any_speed(tmp_path):
    stamps = penstock.testing.ManualClock(10**18)
    with (
        penstock.publish(penstock.testing.channel("log:r", clock=stamps), term_length=T) as pub,
        penstock.Archive(tmp_path).record("log:r"),
    ):
        for i in range(10):
            pub.send(b"%d" % i)
            stamps.now_ns += 500_000_000
    clock = StillClock()
    archive = penstock.Archive(tmp_path, clock=clock)
    for speed in (1.0, 4.0):
        begun = clock.now
        arrived = [clock.now - begun for _ in archive.replay("log:r", speed=speed)]
        assert arrived == pytest.approx([i * 0.5 / speed for i in range(10)])
    with pytest.raises(penstock.Invalid):
        next(archive.replay("log:r", speed=0))


def test_replay_onto_a_channel(archive, pub):
    record(archive, pub, 500)
    with penstock.subscribe("log:copy", codec="json") as sub:
        assert archive.replay_onto("log:r", "log:copy") == 500
        assert [m["i"] for m in sub.poll(limit=1000)] == list(range(500))


@pytest.mark.parametrize("limit", [-1, 1 << 63, 2.5])
def test_replay_onto_refuses_a_limit_that_is_no_count(archive, pub, limit):
    record(archive, pub, 5)
    with pytest.raises(penstock.Invalid, match="limit"):
        archive.replay_onto("log:r", "log:copy", limit=limit)


def test_follow_joins_recording_and_live_without_gap(archive, pub):
    got = []
    with archive.record("log:r", sync_interval=0.01, segment_length=1 << 17):
        for i in range(3000):
            pub.send({"i": i, "x": "x" * (i % 90)})
        pub.send({"i": 3000, "x": "x" * 100_000})

        def follow():
            try:
                for message in archive.follow("log:r", timeout=2):
                    got.append(message.data["i"])  # noqa: PERF401
            except TimeoutError:
                pass

        thread = threading.Thread(target=follow)
        thread.start()
        for i in range(3001, 9000):
            pub.send({"i": i, "x": "x" * (i % 90)})
        thread.join(30)
    assert got == list(range(9000))


def test_following_a_closed_recording_of_a_removed_channel_ends(archive, pub):
    record(archive, pub, 100)
    penstock.remove("log:r")
    assert [m.data["i"] for m in archive.follow("log:r")] == list(range(100))


def test_extending_goes_on_where_it_ended(archive, pub):
    record(archive, pub, 100)
    for i in range(100, 200):
        pub.send({"i": i})  # while nobody records: the channel still keeps it
    record(archive, pub, 100, first=200, extend=True)
    assert len(archive.list()) == 1
    assert numbers(archive) == list(range(300))
    assert archive.verify() == []
    record(archive, pub, 10, first=300)
    assert len(archive.list()) == 2


def test_a_recorder_that_rather_loses_notes_the_gap(archive):
    with penstock.publish("log:g", term_length=T) as pub:
        recorder = archive.record("log:g", drop_after=1e-6)
        for i in range(60_000):
            pub.send(b"%064d" % i)
        recorder.stop()
        info = archive.find("log:g")
        got = [int(m.data) for m in archive.replay("log:g")]
        table = archive.read("log:g", columns=["position", "lost", "payload"])
        assert info.lost_bytes == sum(table["lost"].to_pylist()) == recorder.progress()[0].lost_bytes
        jumps = [i for i in range(1, len(got)) if got[i] != got[i - 1] + 1]
        assert [i for i, lost in enumerate(table["lost"].to_pylist()) if lost and i] == jumps
        assert got == sorted(set(got))
        assert archive.verify() == []


def test_a_recorder_in_a_process_of_its_own(archive, pub):
    with archive.record("log:r", process=True) as recorder:
        for i in range(1000):
            pub.send({"i": i})
        assert recorder.progress()[0].channel == "log:r"
        assert recorder.pid != os.getpid()
    assert recorder.progress()[0].messages == 1000
    assert numbers(archive) == list(range(1000))
    with pytest.raises(penstock.Invalid, match="not a channel name"):
        archive.record("log:a//b", process=True)


def test_two_recorders_at_once_and_one_reader_plan(archive, pub):
    with archive.record("log:r"):
        record(archive, pub, 500)
        for i in range(500, 800):
            pub.send({"i": i})
    assert len(archive.list()) == 2
    ranges = plan(archive, range_bytes=4096)
    found = []
    for planned in ranges:
        table = archive.read(planned.recording, start=planned.start, end=planned.end, columns=["position"])
        found += table["position"].to_pylist()
    assert sorted(found) == sorted(set(found))
    assert len(found) == 800


def test_plan_covers_everything_once_and_leaves_out_what_is_done(archive, pub):
    record(archive, pub, 3000)
    info = archive.find("log:r")
    ranges = plan(archive, range_bytes=1)
    assert ranges[0].start == info.start_position
    assert ranges[-1].end == info.end_position
    assert all(a.end == b.start for a, b in itertools.pairwise(ranges))
    assert sum(r.messages for r in ranges) == 3000
    assert plan(archive, done={("log:r", info.epoch): [(0, info.end_position)]}) == []
    middle = ranges[len(ranges) // 2]
    rest = plan(archive, done={("log:r", info.epoch): [(0, middle.start)]}, range_bytes=1)
    assert rest[0].start == middle.start
    assert plan(archive, channels={"log:other"}) == []


def test_planning_reads_each_index_once(archive, pub, monkeypatch):
    for _ in range(3):
        record(archive, pub, 3000, segment_length=1 << 16)
    segments = sum(info.segments for info in archive.list())
    assert segments > 6
    read = []
    real = RecordingFolder.index
    monkeypatch.setattr(RecordingFolder, "index", lambda folder, segment: read.append(segment) or real(folder, segment))
    ranges = plan(archive, range_bytes=1)
    assert len(read) == len(set(read)) == segments
    assert plan(archive, channels={"log:other"}) == []
    assert len(read) == segments
    for planned in ranges:
        assert len(planned.segments) <= 2
        assert planned.segments[0] <= planned.start < planned.end


def test_subtract():
    assert subtract((0, 10), []) == [(0, 10)]
    assert subtract((0, 10), [(3, 5), (4, 7)]) == [(0, 3), (7, 10)]
    assert subtract((0, 10), [(-5, 2), (9, 20)]) == [(2, 9)]
    assert subtract((0, 10), [(0, 10)]) == []
    assert subtract((5, 5), []) == []


def test_errors_name_what_there_is(archive, pub, tmp_path):
    record(archive, pub, 1)
    with pytest.raises(penstock.NotFound, match="log:r"):
        archive.find("log:none")
    with pytest.raises(penstock.NotFound, match="it has 1"):
        archive.find(7)
    with pytest.raises(penstock.NotFound, match="no archive"):
        penstock.Archive(tmp_path / "none", create=False)
    with pytest.raises(penstock.Invalid, match="no columns"):
        archive.scan("log:r", columns=["nope"])
    with pytest.raises(penstock.Invalid):
        archive.record([])
    with pytest.raises(penstock.Invalid):
        archive.record("log:r", segment_length=1)
    with archive.record("log:r") as recorder, pytest.raises(penstock.Busy):
        archive.purge(recorder.recordings["log:r"])
    archive.purge("log:r")
    assert len(archive.list()) == 1


def test_truncate_cuts_at_a_block(archive, pub):
    record(archive, pub, 100)
    record(archive, pub, 100, first=100, extend=True)
    middle = list(archive.replay("log:r"))[100].position
    assert archive.truncate("log:r", middle) == middle
    assert numbers(archive) == list(range(100))


# ---- damage ----


@pytest.fixture
def recorded(archive, pub):
    with archive.record("log:r", segment_length=1 << 16):
        for i in range(1500):
            pub.send({"i": i, "x": "x" * 30})
            if i % 100 == 0:
                threading.Event().wait(0.003)  # several blocks
    return archive


def flip(path, offset, change):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ change]))


def test_every_flipped_byte_is_found_and_located(recorded, rng):
    folder = recorded.folders()[0]
    files = [p for s in folder.segments() for p in (s.data, s.index)] + [folder.path / "recording.json"]
    for _ in range(300):
        path = rng.choice(files)
        offset, change = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
        flip(path, offset, change)
        found = (
            [d for d in recorded.verify("log:r") if d.path == path] if path.suffix != ".json" else recorded.verify(1)
        )
        flip(path, offset, change)
        assert found, f"{path.name} byte {offset} ^ {change}"
        if path.suffix == ".seg":
            assert any((d.offset, d.length) == (offset, 1) for d in found)
        if path.suffix == ".idx":
            assert any(d.offset <= offset < d.offset + d.length for d in found)
    assert recorded.verify() == []


def test_repair_keeps_every_byte(recorded, tmp_path, rng):
    """And every message that no damage touches; tests/record/test_damage.py checks which those are."""
    before = {message.position: message for message in recorded.replay("log:r")}
    about = ("recording.json", "recording.copy", "synced", "cuts", "segments")  # notes beside the data, not the data
    for attempt in range(25):
        copy = penstock.Archive(shutil.copytree(recorded.path, tmp_path / f"copy{attempt}"))
        folder = copy.folders()[0]
        files = [p for s in folder.segments() for p in (s.data, s.index)]
        for _ in range(rng.randrange(1, 4)):
            path = rng.choice(files)
            if rng.random() < 0.7:
                flip(path, rng.randrange(path.stat().st_size), rng.randrange(1, 256))
            else:
                os.truncate(path, rng.randrange(path.stat().st_size))
            if path.stat().st_size == 0:
                break
        left = sum(p.stat().st_size for p in files)
        copy.repair()
        assert copy.verify() == [], "verify is content after repair"
        after = list(copy.replay("log:r"))
        assert [m._replace(lost=0) for m in after] == [before[m.position] for m in after]
        kept = sum(p.stat().st_size for p in folder.path.rglob("*") if p.is_file() and p.name not in about)
        assert left <= kept
        assert copy.repair() == []


def test_reading_damage_gives_no_wrong_data_and_tells_each_gap(recorded, rng):
    before = {message.position: message for message in recorded.replay("log:r")}
    folder = recorded.folders()[0]
    for _ in range(60):
        segment = rng.choice(folder.segments())
        path = rng.choice([segment.data, segment.index])
        offset, change = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
        flip(path, offset, change)
        got = list(recorded.replay("log:r"))
        assert [m._replace(lost=0) for m in got] == [before[m.position] for m in got]
        if len(got) < len(before) and got[-1].position == max(before):
            assert sum(m.lost for m in got) > 0
        assert recorded.verify()
        flip(path, offset, change)


def test_repair_sweeps_what_was_never_born(recorded):
    parent = recorded.path / "recordings"
    dead, living = parent / ".00000009.4194304999.new", parent / f".00000010.{os.getpid()}.new"
    for path in (dead, living):
        path.mkdir()
        (path / ".recording.json.1.new").write_text("{")
    assert recorded.verify() == []
    assert [done.path for done in recorded.repair()] == [dead]
    assert not dead.exists()
    assert living.exists()


def test_a_lost_or_damaged_catalog_is_rebuilt(recorded):
    path = recorded.catalog.path
    before = recorded.list()
    path.write_bytes(b"garbage" * 1000)
    assert any(d.path == path for d in recorded.verify())
    assert recorded.list() == before  # it is only a cache
    recorded.repair()
    assert recorded.list() == before
    path.unlink()
    assert recorded.verify()
    recorded.repair()
    assert recorded.list() == before
    with sqlite3.connect(path) as db:
        db.execute("UPDATE recordings SET channel = 'log:wrong'")
    db.close()
    assert recorded.verify()
    recorded.repair()
    assert recorded.verify() == []


def test_a_recording_without_its_description_is_set_aside_whole(recorded):
    folder = recorded.folders()[0]
    content = (folder.path / "recording.json").read_text()
    (folder.path / "recording.json").write_text(content.replace("log:r", "log:q"))
    (folder.path / "recording.copy").write_text(content.replace("log:r", "log:q"))
    assert recorded.verify()
    (done, *_) = recorded.repair()
    assert "damaged" in str(done.path)
    assert recorded.list() == []
    assert recorded.verify() == []


def test_a_full_disk_ends_the_recording_at_the_last_sync(tmp_path, pub):
    import subprocess

    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        archive = penstock.Archive(place / "archive")
        recorder = archive.record("log:r", sync_interval=0.01)
        i = 0
        while recorder.error is None and i < 100_000:
            pub.send({"i": i, "x": "x" * 1000}, timeout=30)
            i += 1
        with pytest.raises(penstock.SystemFailure, match="No space left"):
            recorder.stop()
        pub.send({"i": i})  # the channel's writers go on
        got = numbers(archive)
        assert len(got) > 100
        assert archive.find("log:r").synced_position <= archive.find("log:r").end_position
        assert archive.verify(1) == []
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_description_is_checked_to_the_byte(recorded):
    folder = RecordingFolder(recorded.folders()[0].path)
    path = folder.path / "recording.json"
    text = path.read_bytes()
    for _ in range(100):
        damaged = bytearray(text)
        damaged[random.Random(len(damaged)).randrange(len(damaged))] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(penstock.Corrupt):
            folder.description_in("recording.json")
        assert folder.describe().channel == "log:r"
    path.write_bytes(text)
    folder.describe()


def test_a_message_ending_behind_the_span_is_read_whole(archive):
    body = bytes(range(256)) * 800
    with penstock.publish("log:big", term_length=T) as big, archive.record("log:big", segment_length=1 << 16):
        big.send(body, timeout=60)
    info = archive.find("log:big")
    assert info.segments >= 3
    first = info.start_position
    for end in (first + 32, first + (1 << 16)):
        table = archive.read("log:big", start=first, end=end, columns=["position", "payload"])
        assert table["payload"].to_pylist() == [body]
    planned = plan(archive, range_bytes=1)[0]
    assert len(planned.segments) == 1
    assert next(planned.scan(["payload"])).column("payload").to_pylist() == [body]


def test_a_plan_grows_with_the_recording_and_not_with_its_square(archive, pub):
    with archive.record("log:r", segment_length=1 << 16):
        for i in range(6000):
            pub.send({"i": i, "filler": "x" * 200})
    ranges = plan(archive, range_bytes=1 << 16)
    segments = archive.find("log:r").segments
    assert segments >= 10
    assert sum(len(planned.segments) for planned in ranges) <= len(ranges) + segments
    rows = [row for planned in ranges for batch in planned.scan(["position"]) for row in batch.column(0).to_pylist()]
    assert rows == archive.read("log:r", columns=["position"])["position"].to_pylist()
    assert len(rows) == 6000
