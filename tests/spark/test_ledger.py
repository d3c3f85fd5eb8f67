"""The ledger of a long recording: it says what the indexes say, at any moment, and a recording that is cut back has none."""

import functools
import json
import os
import struct

import numpy as np
import pytest

import penstock
from penstock._native import core
from penstock.record.format import segment_totals
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import SEGMENT_TOTALS, Description, RecordingFolder
from penstock.record.format.sync_marker import SyncMarker


def by_indexes(folder):
    found = coverage_of(folder, folder.describe().start_position)
    return {name: getattr(found, name) for name in NAMES}


NAMES = (
    "end_position",
    "messages",
    "bytes",
    "time_min",
    "time_max",
    "gaps",
    "lost_bytes",
    "segments",
    "sealed",
    "damage",
)


def by_ledger(folder, monkeypatch, long=1):
    monkeypatch.setattr(segment_totals, "LONG", long)
    found = segment_totals.summarize(folder, folder.describe().start_position)
    return None if found is None else {name: getattr(found, name) for name in NAMES}


def with_bytes(folder):
    """How many segments the ledger has: an extension writes an empty last one again."""
    return sum(segment.data.stat().st_size > 0 for segment in folder.segments())


def fill(pub, recorder, rng, count):
    """Messages until the recorder has begun so many segments more."""
    folder = penstock.Archive(recorder, create=False).folders()[0]
    before = len(folder.segments())
    while len(folder.segments()) < before + count:
        for _ in range(20):
            pub.send(rng.randbytes(rng.randrange(5000)))


def test_it_says_what_the_indexes_say(archive, rng, monkeypatch):
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        for extend in (False, True, True):
            with archive.record("log:a", segment_length=1 << 16, extend=extend):
                fill(pub, archive.path, rng, 3)
            folder = archive.folders()[0]
            assert (folder.path / SEGMENT_TOTALS).stat().st_size == with_bytes(folder) * segment_totals.LENGTH
            assert by_ledger(folder, monkeypatch) == by_indexes(folder)
        with archive.record("log:a", segment_length=1 << 16, extend=True) as recorder:
            fill(pub, archive.path, rng, 2)
            assert archive.list()[0].state == "live"
            recorder.stop()
    info = archive.list()[0]
    assert (info.state, info.messages) == ("closed", by_indexes(folder)["messages"])
    assert info == next(archive._layouts(None))[0]


def test_gaps_are_in_it(archive, monkeypatch):
    with penstock.publish("ring:r", capacity=1 << 16) as pub:
        writer = archive._opener.open("ring:r", "newest", False, 1 << 16, None)
        for burst in (100, 3000, 5, 400, 2000, 20):  # some are longer than the ring
            for i in range(burst):
                pub.send(bytes(i % 300))
            while writer.turn() > 0:
                pass
        writer.finish()
    folder = archive.folders()[0]
    assert by_ledger(folder, monkeypatch) == by_indexes(folder)
    assert by_indexes(folder)["gaps"] > 1


@pytest.mark.parametrize("cut", ["truncate", "repair"])
def test_it_follows_a_recording_that_is_cut_back_and_goes_on(archive, rng, monkeypatch, cut):
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        with archive.record("log:a", segment_length=1 << 16):
            fill(pub, archive.path, rng, 4)
        folder = archive.folders()[0]
        assert by_ledger(folder, monkeypatch) == by_indexes(folder)
        if cut == "truncate":
            archive.truncate(1, folder.segments()[2].base)
        else:
            folder.segments()[2].data.write_bytes(b"")
            archive.repair()
        if cut == "truncate":
            assert (folder.path / SEGMENT_TOTALS).stat().st_size == 2 * segment_totals.LENGTH
        assert by_ledger(folder, monkeypatch) == by_indexes(folder)


def test_a_recorder_that_died_is_made_up_for(archive, rng, monkeypatch):
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        with archive.record("log:a", segment_length=1 << 16):
            fill(pub, archive.path, rng, 3)
        folder = archive.folders()[0]
        last = folder.segments()[-1]
        last.index.write_bytes(last.index.read_bytes()[:-64])  # no seal, and nothing noted about it
        os.truncate(folder.path / SEGMENT_TOTALS, segment_totals.LENGTH)
        folder.write_mark(SyncMarker(last.base))
        assert by_ledger(folder, monkeypatch) == by_indexes(folder)
        with archive.record("log:a", segment_length=1 << 16, extend=True):
            fill(pub, archive.path, rng, 2)
    assert (folder.path / SEGMENT_TOTALS).stat().st_size == with_bytes(folder) * segment_totals.LENGTH
    assert by_ledger(folder, monkeypatch) == by_indexes(folder)


def test_a_torn_or_stale_one_is_not_trusted_too_far(archive, rng, monkeypatch):
    with penstock.publish("log:a", term_length=1 << 16) as pub, archive.record("log:a", segment_length=1 << 16):
        fill(pub, archive.path, rng, 5)
    folder = archive.folders()[0]
    path, truth = folder.path / SEGMENT_TOTALS, by_indexes(folder)
    raw = path.read_bytes()
    for length in range(segment_totals.LENGTH, len(raw), 41):  # as a power cut may leave it
        path.write_bytes(raw[:length])
        assert by_ledger(folder, monkeypatch) == truth
    at = len(raw) - 1 - rng.randrange(segment_totals.LENGTH)
    path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    assert by_ledger(folder, monkeypatch) is None
    path.write_bytes(raw)
    assert by_ledger(folder, monkeypatch, long=1000) is None
    folder.segments()[-1].index.unlink()
    assert by_ledger(folder, monkeypatch) == truth  # list tells so much; verify tells of every index
    assert archive.verify()


def test_a_disk_without_room_for_it_stops_no_recorder(archive, rng, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_totals, "open_private", full)
    with penstock.publish("log:a", term_length=1 << 16) as pub, archive.record("log:a", segment_length=1 << 16):
        fill(pub, archive.path, rng, 2)
    assert not (archive.folders()[0].path / SEGMENT_TOTALS).exists()
    assert archive.verify() == []


@functools.cache
def simulated(segments, number):
    """A recording's ledger of so many segments of 128 MiB."""
    step = np.arange(1, segments + 1)
    columns = [(step - 1) << 27, step << 27, step, step * 1000, step << 27, 0 * step, 0 * step]
    columns += [0 * step + 5, 5 + step, 0 * step, 0 * step + 1]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    fields = [segment_totals.FIELDS.pack(*row) for row in rows]
    return b"".join(one + struct.pack("<I", core.crc32c(one + number.to_bytes(8, "little"))) for one in fields)


def simulate(archive, number, segments):
    """A closed recording of so many segments, of which there is the ledger only: what `list` looks at."""
    folder, lock = RecordingFolder.create(
        archive.path / "recordings" / f"{number:08d}",
        Description(number, f"log:s{number}", 7, 0, 1 << 26, 0, 0, 1, format=2),
    )
    RecordingFolder.unlock(lock)
    (folder.path / SEGMENT_TOTALS).write_bytes(simulated(segments, number))
    folder.write_mark(SyncMarker(segments << 27, closed=True))


@pytest.mark.slow
def test_a_million_segments(archive, tally, monkeypatch):
    """Of a thousand recordings: each is told from its ledger's last record, and no index is opened."""
    for number in range(1, 1001):
        simulate(archive, number, 1000)
    monkeypatch.setattr(core, "read_index", None)
    infos = penstock.Archive(archive.path, create=False).list()
    assert sum(info.segments for info in infos) == 1_000_000
    assert {(info.messages, info.bytes, info.state, info.end_position) for info in infos} == {
        (1_000_000, 1000 << 27, "closed", 1000 << 27)
    }
    tally("segments listed", 1_000_000)


def test_recordings_of_the_command_tell_them(archive, capfd):
    from penstock.cli import run

    simulate(archive, 1, 1000)
    assert run(["recordings", str(archive.path), "--json"]) == 0
    (told,) = json.loads(capfd.readouterr().out)
    assert (told["segments"], told["messages"]) == (1000, 1_000_000)
