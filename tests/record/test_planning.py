"""Planning large archives: linear in segments, little memory, and incremental; the same ranges as from the beginning."""

import os
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from conftest import LONG

import penstock
from penstock._native import core
from penstock.errors import NotFound
from penstock.record import Range
from penstock.record.format import layout as layouts
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import ENTRY, Description
from penstock.record.read import rows
from penstock.record.read.planning.plan import ReadPlanner, plan


def settle(folder):
    """Makes a folder look as if nothing had changed in it for long."""
    os.utime(folder, ns=(1, time.time_ns() - 10 * 10**9))


def rows_of(ranges):
    tables = [pa.Table.from_batches(list(one.scan(["position", "payload"]))) for one in ranges if one.messages]
    return pa.concat_tables(tables).sort_by("position").to_pylist() if tables else []


def test_a_range_that_was_cut_since_is_told(archive):
    with penstock.publish("log:cut") as pub, archive.record("log:cut"):
        for number in range(1000):
            pub.send(b"%d" % number)
    (planned,) = plan(archive)
    archive.truncate("log:cut", 0, force=True)
    with pytest.raises(NotFound, match=r"was cut back to position \d+ while it was read"):
        rows.read(planned, False)


@pytest.mark.slow
def test_a_second_look_is_the_same_as_a_first(archive, rng):
    made, looked, ends = [], penstock.Archive(archive.path), 0
    for step in range(12):
        with (
            penstock.publish("log:grows", term_length=1 << 16) as pub,
            archive.record("log:grows", extend=step != 8 and rng.random() < 0.7, segment_length=1 << 16),
        ):
            for _ in range(rng.randrange(300)):
                made.append(rng.randbytes(rng.choice([10, 500, 30_000])))
                pub.send(made[-1])
            live = plan(looked)
            assert all(one.path for one in live)
        if rng.random() < 0.5:
            for folder in looked.folders():
                settle(folder.path)
        if step == 7:
            archive.truncate("log:grows", archive.find("log:grows").end_position // 2)
        for size in (1 << 14, 1 << 20):
            assert plan(looked, range_bytes=size) == plan(penstock.Archive(archive.path), range_bytes=size)
        ends += sum(one.messages for one in plan(looked))
        assert rows_of(plan(looked, range_bytes=1 << 15)) == rows_of(plan(archive, range_bytes=1 << 30))
    assert ends


def test_a_look_at_an_unchanged_archive_reads_no_index(archive, monkeypatch):
    with penstock.publish("log:calm") as pub, archive.record("log:calm", segment_length=1 << 16):
        for _ in range(3000):
            pub.send(bytes(100))
    for folder in archive.folders():
        settle(folder.path)
    first, read = plan(archive), []
    monkeypatch.setattr(core, "read_index", lambda path: read.append(path))
    assert plan(archive) == first
    assert read == []


def test_a_message_may_end_in_segments_that_came_later(archive):
    with (
        penstock.publish("log:long", term_length=1 << 16) as pub,
        archive.record("log:long", segment_length=1 << 16),
    ):
        pub.send(bytes(50_000))
        pub.send(b"x" * 150_000)
        pub.send(b"end")
    ranges = plan(archive, range_bytes=1 << 16)
    assert all(len(one.segments) <= 3 for one in ranges)
    assert [len(row["payload"]) for row in rows_of(ranges)] == [50_000, 150_000, 3]


def entries_of(base, rng, count, *, sealed=True):
    """Index entries of a segment, made at once: blocks of 256 KiB."""
    made = np.zeros(count + sealed, ENTRY)
    made["length"][:count] = 256 << 10
    made["position"] = base + np.arange(count + sealed) * (256 << 10)
    made["begins"][:count] = 1000
    made["time_min"][:count] = made["position"][:count]
    made["time_max"][:count] = made["position"][:count] + (256 << 10) - 1
    if sealed:
        made["kind"][count] = core.ENTRY_SEAL
    return made


def simulated(path, recordings, segments, monkeypatch):
    """An archive of many segments of 128 MiB. Their indexes are made when they are read: with checksums, writing them takes too long."""
    files = ArchiveFolder(path, create=True)
    for number in range(1, recordings + 1):
        about = Description(number, f"log:big{number}", 0, 0, 1 << 24, 0, 0, 1)
        folder, _, lock = files.begin(about)
        folder.unlock(lock)
        for at in range(segments):
            (folder.path / f"{at << 27:020d}.idx").touch()
    template = entries_of(0, None, 512)

    def read_index(name, recording=0):
        base = int(name[-24:-4])
        entries = template.copy()
        for field in ("position", "time_min", "time_max"):
            entries[field] += base
        about = {
            "base": base,
            "data_length": 1 << 27,
            "sealed": True,
            "problems": [],
            "other": False,
            "end": base + (1 << 27),
        }
        return {**about, "entries": entries.tobytes()}

    monkeypatch.setattr(core, "read_index", read_index)
    return penstock.Archive(path)


@pytest.mark.slow
def test_a_large_archive_is_planned_cheaply_and_again_at_once(tmp_path, monkeypatch, tally):
    recordings, segments = (10, 7500) if LONG else (3, 500)  # 10 TB
    archive = simulated(tmp_path / "large", recordings, segments, monkeypatch)
    tracemalloc.start()
    begun = time.process_time()
    survey = ReadPlanner(archive)
    ranges = survey.plan(range_bytes=256 << 20)
    took, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tally("segments planned", recordings * segments)
    print(f"{recordings * segments} segments: {took:.1f} s of work, {peak >> 20} MiB")
    assert sum(one.bytes for one in ranges) == recordings * segments << 27
    assert sum(one.messages for one in ranges) == recordings * segments * 512_000
    assert max(len(one.segments) for one in ranges) <= 4
    assert peak < recordings * segments * 12_000 + (16 << 20), "the indexes alone are 32 KiB each"
    part = survey.plan(start=(5 << 27) + 1000, end=(5 << 27) + 300_000)
    assert [(one.start, one.end, one.bytes) for one in part] == [
        ((5 << 27) + 1000, (5 << 27) + 300_000, 512 << 10)
    ] * recordings
    fine = survey.plan(range_bytes=1 << 20, end=1 << 28)
    assert {one.bytes for one in fine} == {1 << 20}
    hour = survey.plan(since=(7 << 27) + 5, until=(7 << 27) + 6, range_bytes=64 << 20)
    assert len(hour) == recordings


def test_grains_hold_what_their_blocks_do(rng):
    count = 512
    blocks = np.zeros(count, ENTRY)
    lengths = np.array([rng.randrange(1, 8000) * 32 for _ in range(count)])
    blocks["length"], blocks["position"] = lengths, 4096 + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    blocks["begins"] = [rng.randrange(3) for _ in range(count)]
    blocks["time_min"] = [rng.randrange(10**9) for _ in range(count)]
    blocks["time_max"] = blocks["time_min"] + 5
    made = layouts.grains_of(blocks, 4096, int(lengths.sum()))
    assert len(made) < 70
    assert made["length"].sum() == lengths.sum()
    assert made["begins"].sum() == blocks["begins"].sum()
    assert (made["position"][1:] == made["position"][:-1] + made["length"][:-1]).all()
    for grain in made:
        inside = (blocks["position"] >= grain["position"]) & (blocks["position"] < grain["position"] + grain["length"])
        assert grain["time_min"] == blocks["time_min"][inside].min()
        assert grain["time_max"] == blocks["time_max"][inside].max()


def test_a_range_reads_its_own_segments_only(archive, monkeypatch):
    with penstock.publish("log:own", term_length=1 << 16) as pub, archive.record("log:own", segment_length=1 << 16):
        for number in range(3000):
            pub.send(b"%d" % number * 80)
    one = plan(archive, range_bytes=1 << 16)[2]
    assert isinstance(one, Range)
    monkeypatch.setattr(
        penstock.record.format.folder.RecordingFolder, "segments", lambda self: pytest.fail("lists a folder")
    )
    assert sum(batch.num_rows for batch in one.scan(["position"])) == one.messages
    assert one.time_before() is not None
