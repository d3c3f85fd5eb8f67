"""One damaged block costs that block: readers, tables and exports leave it out as a counted gap, and repair writes the gap down."""

import contextlib
import fcntl
import logging
import os
import random
import shutil

import pytest
from damage import EVERY, Before, add_every_file, check, copied, flip, two_recordings
from damage import SEGMENT as T

import penstock
from penstock.record import merged, plan
from penstock.record.format import batches, segment_totals, truncations
from penstock.record.format.folder import HOLE, RecordingFolder


@pytest.fixture
def made(archive):
    return two_recordings(archive)


@pytest.fixture
def before(made, tmp_path):
    return Before.of(copied(made, tmp_path / "before"))


def files_of(archive, number=1):
    folder = archive._files.folder(number)
    return [path for segment in folder.segments() for path in (segment.data, segment.index)]


def test_a_wrong_byte_costs_its_block_and_nothing_else(made, before, tmp_path, tally):
    rng = random.Random(5)
    for _ in range(60):
        path = rng.choice(files_of(made))
        offset, change = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
        hurt = before.hurt(1, path.name, offset)
        flip(path, offset, change)
        check(before, made, 1, hurt)
        assert check(before, made, 2, []) == 0
        assert any(one.path == path for one in made.verify(1))
        flip(path, offset, change)
    assert made.verify() == []
    tally("wrong bytes in recordings, read", 60)


def test_repair_writes_the_gap_down_and_moves_no_sound_segment(made, before, tmp_path):
    rng = random.Random(6)
    for attempt in range(20):
        copy = copied(made, tmp_path / "copy")
        hurt, data = [], {path.name: path.read_bytes() for path in files_of(copy) if path.suffix == ".seg"}
        for _ in range(rng.randrange(1, 4)):
            path = rng.choice(files_of(copy))
            offset = rng.randrange(path.stat().st_size)
            hurt += before.hurt(1, path.name, offset)
            flip(path, offset, rng.randrange(1, 256))
            if path.suffix == ".seg":
                data[path.name] = path.read_bytes()
        missing = check(before, copy, 1, hurt)
        assert copy.repair()
        assert copy.verify() == [], attempt
        assert check(before, copy, 1, hurt) == missing
        assert {path.name: path.read_bytes() for path in files_of(copy) if path.suffix == ".seg"} == data
        assert copy.repair() == []
        info = copy.find(1)
        assert info.state == "closed"
        assert info.end_position == made.find(1).end_position
        assert (info.lost_bytes > 0) == bool(hurt)


def test_a_repaired_gap_is_a_gap_like_any_other(made, before):
    damaged = made._files.folder(1).segments()[1]
    flip(damaged.data, 100)
    made.repair()
    entries, _ = made._files.folder(1).index(damaged)
    assert (entries["kind"] == HOLE).sum() == 1
    lost = [m.lost for m in made.replay("log:a") if m.lost]
    assert lost == [made.find(1).lost_bytes]
    assert sum(one.messages for one in plan(made, channels={"log:a"})) == made.find(1).messages


@pytest.mark.parametrize("size", [1 << 12, 1 << 15, 1 << 30])
def test_tables_and_exports_have_all_that_is_sound(made, before, tmp_path, size):
    pytest.importorskip("deltalake")
    import pyarrow.parquet as pq

    from penstock import tables
    from penstock.export import export

    folder = made._files.folder(1)
    entries, _ = folder.index(folder.segments()[2])
    hurt = before.hurt(1, folder.segments()[2].data.name, int(entries["length"][0]) + 5)
    flip(folder.segments()[2].data, int(entries["length"][0]) + 5)
    missing = check(before, made, 1, hurt)
    assert missing
    said = []
    done = export(made.path, tmp_path / "out", on_skip=said.append, range_bytes=size, processes=1)
    assert done.rows == len(before.messages[1]) + len(before.messages[2]) - missing
    assert len(said) == 1
    assert folder.segments()[2].data.name in said[0]
    rows = pq.read_table(tmp_path / "out/log_a").to_pylist() if (tmp_path / "out/log_a").exists() else None
    if rows is not None:
        assert sum(row["lost"] for row in rows) == hurt[0][1] - hurt[0][0]
    with pytest.raises(penstock.Corrupt, match="all else is in the tables"):
        tables.run(made.path, tmp_path / "tables", range_bytes=size)
    found = tables.read(tmp_path / "tables", "messages")
    assert found.num_rows == done.rows
    lost = sum(tables.read(tmp_path / "tables", "losses")["bytes"].to_pylist())
    assert lost == hurt[0][1] - hurt[0][0]
    made.repair()
    for _ in range(2):
        after = tables.run(made.path, tmp_path / "tables", range_bytes=size)
        assert (after.rows, after.total_rows) == (0, done.rows)
        assert sum(tables.read(tmp_path / "tables", "losses")["bytes"].to_pylist()) == lost


def test_merged_and_played_recordings_name_what_is_damaged(made, before, caplog):
    folder = made._files.folder(1)
    flip(folder.segments()[2].data, 50)
    said = []
    found = list(merged(plan(made), on_skip=said.append))
    missing = check(before, made, 1)
    assert len(found) == len(before.messages[1]) + len(before.messages[2]) - missing
    assert len(said) == 1
    played = made.play(onto="again/", speed=None)
    assert sum(played.messages.values()) == len(found)
    assert len(played.left_out) == 1
    assert "log:a" in played.left_out[0]


def test_following_passes_damage_and_says_it_once(made, before, caplog):
    flip(made._files.folder(1).segments()[2].data, 50)
    missing = check(before, made, 1)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = list(made.follow("log:a", timeout=5))
    assert len(found) == len(before.messages[1]) - missing
    assert sum(m.lost for m in found) > 0
    assert len([r for r in caplog.records if "checksum" in r.message]) == 1


def test_an_archive_of_an_earlier_repair_is_fully_restored(made, before, tmp_path):
    """It moved each segment behind the damage aside, and cut the damaged one."""
    folder = made._files.folder(1)
    segments = folder.segments()
    entries, _ = folder.index(segments[1])
    place = int(entries["length"][0]) + 7
    hurt = before.hurt(1, segments[1].data.name, place)
    flip(segments[1].data, place)
    aside = folder.path / "damaged"
    aside.mkdir()
    for segment in segments[2:]:
        for path in (segment.data, segment.index):
            path.rename(aside / path.name)
    for path, end in ((segments[1].data, int(entries["length"][0])), (segments[1].index, 128)):
        raw = path.read_bytes()
        (aside / f"{path.name}.from-{end}").write_bytes(raw[end:])
        path.write_bytes(raw[:end])
    end = segments[1].base + int(entries["length"][0])
    from penstock.record.format.sync_marker import SyncMarker
    from penstock.record.keep import repair

    truncations.note(folder.path, end)
    segment_totals.truncate(folder.path, end)
    repair.seal(folder, segments[1])
    folder.write_mark(SyncMarker(end, closed=True))
    assert len(list(made.replay(1))) < len(before.messages[1]) // 2
    said = [one.what for one in made.repair(1)]
    assert sum("brought back" in what for what in said) == len(segments) - 1
    assert made.verify() == []
    check(before, made, 1, hurt)
    assert not any(p.name.endswith(".seg") or ".from-" in p.name for p in aside.iterdir())
    assert made.repair() == []


def test_restored_segments_do_not_replace_later_ones(made, before):
    """The recording was extended after the repair: the positions are taken."""
    folder = made._files.folder(1)
    segments = folder.segments()
    aside = folder.path / "damaged"
    aside.mkdir()
    for path in (segments[-1].data, segments[-1].index):
        shutil.copy(path, aside / path.name)
    assert made.repair() == []
    assert {p.name for p in aside.iterdir()} == {segments[-1].data.name, segments[-1].index.name}
    made.truncate(1, segments[-1].base)
    made.repair()
    assert made.find(1).end_position == segments[-1].base, "what was truncated does not come back"


# ---- every file of the format ----


@pytest.fixture(scope="module")
def every_file(tmp_path_factory):
    """An archive with each small file. Tests copy it."""
    made = two_recordings(penstock.Archive(tmp_path_factory.mktemp("every") / "archive"))
    add_every_file(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_each_byte_of_each_small_file_counts(every_file, tmp_path, name, tally):
    """Of two that were recorded, one is tried."""
    copy = copied(every_file, tmp_path / "copy")
    paths = sorted(path for path in copy.path.rglob(name) if path.is_file())
    assert paths
    paths = paths[-2:]
    harmless = 0
    for path in paths:
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            if not copy.verify():
                harmless += 1
                assert name in ("batches", "removed", "q.json"), (path, at)  # JSON: a space may be another white space
                assert _meaning(copy) == _meaning(every_file), (path, at)
            tally("wrong bytes in the files of archives, verified", 1)
        path.write_bytes(whole)
    assert copy.verify() == []


def _meaning(archive):
    read = [batches.read(folder.path).writers for folder in archive.folders()]
    return read, archive.consumers(), archive.watch().removed()


@pytest.mark.parametrize(
    "name", ["recording.json", "recording.copy", "synced", "cuts", "next", "segments", "id", "removed"]
)
def test_no_small_file_costs_a_message_and_repair_makes_it_right(every_file, tmp_path, name):
    before, made = Before.of(every_file), copied(every_file, tmp_path / "copy")
    path = sorted(path for path in made.path.rglob(name) if path.is_file())[0]
    whole = path.read_bytes()
    for harm in (lambda: flip(path, path.stat().st_size // 2), lambda: os.truncate(path, path.stat().st_size // 2)):
        path.write_bytes(whole)
        harm()
        for number in before.messages:
            assert check(before, made, number, []) == 0
        made.repair()
        assert made.verify() == []
        for number in before.messages:
            assert check(before, made, number, []) == 0


def test_truncating_one_recording_accuses_no_other(archive):
    for channel in ("log:app", "log:app", "log:other"):
        archive.append(channel, [b"x"] * 40)
    last = archive.list()[-1]
    archive.truncate(last.id, last.end_position)
    assert archive.verify() == []
    archive.truncate(last.id, 0)
    assert archive.verify() == []
    archive.purge(last.id)
    assert archive.verify() == []


# ---- outages, and archives that change while they are read ----


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe", "frames"])
def test_extending_after_an_outage_begins_with_a_counted_gap(archive, kind):
    uri = f"{kind}:out"
    options = {"frames": {"shape": (8, 8), "dtype": "uint8"}, "log": {"term_length": T}, "pipe": {}}.get(
        kind, {"capacity": T}
    )
    with contextlib.ExitStack() as stack:
        pub = stack.enter_context(penstock.publish(uri, **options))
        if kind == "pipe":
            reader = stack.enter_context(penstock.subscribe(uri))

        def send(i):
            if kind == "frames":
                pub.send(__import__("numpy").full((8, 8), i % 256, "uint8"))
            else:
                pub.send(b"%06d" % i + bytes(1000))
            if kind == "pipe":
                reader.recv(timeout=5)

        with archive.record(uri):
            for i in range(3):
                send(i)
        for i in range(3, 1000):
            send(i)
        with archive.record(uri, extend=True):
            for i in range(1000, 1003):
                send(i)
        (info,) = archive.list()
        if kind == "frames" and not info.gaps:
            assert info.messages == 1003  # it kept all of their notes
        else:
            assert info.lost_bytes > 0
            assert info.messages >= 6
        assert archive.verify() == []
        assert sum(m.lost for m in archive.replay(uri, decode=False)) == info.lost_bytes


@pytest.mark.parametrize("how", ["truncate", "purge"])
@pytest.mark.parametrize("read", ["replay", "scan", "follow", "range"])
def test_a_reader_of_a_recording_that_goes_is_told_so(archive, read, how):
    made = archive
    with penstock.publish("log:a", term_length=T) as pub, made.record("log:a", segment_length=T):
        for i in range(20_000):
            pub.send(b"%06d" % i)
    if read == "range":
        (one, *_) = plan(made, channels={"log:a"})
        found = iter(one.scan(["position"], batch_rows=10))
    elif read == "scan":
        found = iter(made.scan("log:a", batch_rows=10))
    else:
        found = iter(getattr(made, read)("log:a"))
    next(found)
    before = made.find("log:a")
    if how == "truncate":
        made.truncate(1, before.end_position // 2)
        wanted = f"cut back to position {made.find(1).end_position}"
    else:
        made.purge(1)
        wanted = "purged"
    with pytest.raises(penstock.NotFound, match=wanted):
        list(found)


def test_a_reader_of_a_purged_recording_hears_what_is_left(archive):
    for _ in range(4):
        archive.append("log:app", [b"%06d" % i + bytes(50) for i in range(9000)], recording_length=1_000_000)
    found = iter(archive.replay(1))
    next(found)
    archive.purge(1)
    with pytest.raises(penstock.NotFound, match=f"is 2, from position {archive.find(2).start_position} on"):
        list(found)


def test_ledgers_of_long_recordings_survive_repair(archive):
    for i in range(70):
        archive.append("log:long", [b"%06d" % i] * 5)
    folder = archive.folders()[0]
    flip(folder.segments()[30].data, 40)
    archive.repair()
    assert archive.verify() == []
    assert segment_totals.summarize(folder, 0).lost_bytes == archive.find(1).lost_bytes > 0
    assert archive.find(1).messages == len(list(archive.replay(1)))
    assert RecordingFolder(folder.path).describe().channel == "log:long"


# ---- advice: each test follows an error's text, and nothing is lost ----


def test_advice_to_repair_before_appending_is_right(archive):
    for i in range(3):
        archive.append("log:app", [b"%d" % i] * 10)
    flip(archive.folders()[0].segments()[1].index, 70)
    with pytest.raises(penstock.Corrupt, match="Run repair before appending"):
        archive.append("log:app", [b"3"])
    archive.repair()
    archive.append("log:app", [b"3"])
    assert [m.data for m in archive.replay("log:app")] == [b"0"] * 10 + [b"2"] * 10 + [b"3"]
    assert archive.verify() == []


def test_advice_to_repair_before_extending_is_right(archive):
    with penstock.publish("log:ext", term_length=T) as pub:
        for first in (0, 10):
            with archive.record("log:ext", extend=True):
                for i in range(first, first + 10):
                    pub.send(b"%d" % i)
        flip(archive.folders()[0].segments()[-1].data, 40)
        with pytest.raises(penstock.Corrupt, match="Run repair before extending"):
            archive.record("log:ext", extend=True)
        archive.repair()
        with archive.record("log:ext", extend=True):
            pub.send(b"20")
    assert [int(m.data) for m in archive.replay("log:ext")][:10] == list(range(10))
    assert [int(m.data) for m in archive.replay("log:ext")][-1] == 20
    assert archive.find("log:ext").lost_bytes > 0
    assert archive.verify() == []


def test_advice_about_a_ledger_of_batches_is_right(archive):
    archive.append("log:app", [b"0"] * 10, batch=("w", 0))
    path = archive.folders()[0].path / "batches"
    flip(path, path.read_bytes().index(b"10") + 1)
    with pytest.raises(penstock.Corrupt, match="Run repair, which moves it aside"):
        archive.append("log:app", [b"1"], batch=("w", 1))
    archive.repair()
    archive.append("log:app", [b"1"], batch=("w", 1))
    assert [m.payload for m in merged(plan(archive))] == [b"0"] * 10 + [b"1"]
    assert archive.verify() == []


def test_advice_about_a_consumers_ledger_is_right(archive):
    archive.append("log:app", [b"0"] * 10)
    row = penstock.record.Consumer("q", None, 1, {})
    archive.note_consumer(row)
    flip(archive.path / "consumers/q.json", 30)
    with pytest.raises(penstock.Corrupt, match="--forget q"):
        archive.purge(1)
    archive.note_consumer(row)  # as the query's next run does
    with pytest.raises(penstock.Busy):
        archive.purge(1)
    flip(archive.path / "consumers/q.json", 30)
    archive.forget_consumer("q")
    assert archive.verify() == []
    assert len(list(archive.replay(1))) == 10


def test_advice_about_an_archives_name_is_right(archive):
    archive.append("log:app", [b"0"] * 10)
    name, path = archive.id, archive.path / "id"
    for at in range(0, len(path.read_bytes()), 5):
        flip(path, at)
        assert archive.id == name
        assert archive.verify()
        assert path in [one.path for one in archive.repair()]
    flip(path, 3)
    flip(path, 45)
    with pytest.raises(penstock.Corrupt, match="Remove it"):
        _ = archive.id
    path.unlink()
    assert archive.id != name
    assert len(list(archive.replay(1))) == 10
    assert archive.verify() == []


def test_advice_about_a_missing_file_is_right(made):
    """A file that goes while it is read, though nobody purged or truncated: the error says to verify, and verify names it."""
    found = iter(made.scan("log:a", batch_rows=10))
    next(found)
    gone = made._files.folder(1).segments()[-1]
    gone.index.unlink()
    with pytest.raises(penstock.NotFound, match="Run verify"):
        list(found)
    assert any("missing" in one.what or "without an index" in one.what for one in made.verify(1))


def test_an_append_reads_its_messages_before_it_locks(archive, tmp_path):
    """So they may come from code that appends itself, and from more messages than memory should hold."""

    def nested():
        with open(archive.path / ".appending", "ab") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # BlockingIOError if the append that asks for this holds it
        yield b"1"
        archive.append("log:inner", [b"inner"])
        yield bytes(20 << 20)

    archive.append("log:outer", nested())
    assert [len(m.data) for m in archive.replay("log:outer")] == [1, 20 << 20]
    assert [m.data for m in archive.replay("log:inner")] == [b"inner"]
    with pytest.raises(penstock.Invalid, match="times_ns has 1 times"):
        archive.append("log:outer", [b"1", b"2"], times_ns=[5])
    with pytest.raises(ZeroDivisionError):
        archive.append("log:outer", (1 // (1 - i) and b"x" for i in range(2)))
    assert archive.find("log:outer").messages == 2
    never = iter([b"y"])
    archive.append("log:outer", [b"x"], batch=("w", 1))
    assert not archive.append("log:outer", never, batch=("w", 1)).is_new
    assert list(never) == [b"y"], "a batch that is there is not read again"


def test_an_append_looks_at_its_own_channel_only(archive, monkeypatch):
    for i in range(30):
        archive.append(f"log:c{i}", [b"x"])
    os.utime(archive.path / "recordings", ns=(1, 1))
    archive.append("log:c3", [b"x"])
    described = []
    plain = RecordingFolder.describe
    monkeypatch.setattr(RecordingFolder, "describe", lambda self: described.append(self.path.name) or plain(self))
    archive.append("log:c3", [b"x"])
    assert set(described) == {"00000004"}
