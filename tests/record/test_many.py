"""An archive of many recordings: what a call about one of them does is no more than with few. Calls are counted, not time."""

import fcntl
import multiprocessing
import os
import shutil

import pytest

import penstock
from penstock.record import Consumer
from penstock.record.format import removed
from penstock.record.format.archive_folder import PURGED, ArchiveFolder
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.keep import consumers


@pytest.fixture
def calls(monkeypatch):
    """calls(place, name): a list that gets an entry for each call of place.name."""

    def count(place, name):
        found, original = [], getattr(place, name)

        def call(*arguments, **options):
            found.append(arguments)
            return original(*arguments, **options)

        monkeypatch.setattr(place, name, call)
        return found

    return count


def record(archive, *channels):
    for channel in channels:
        with penstock.publish(channel) as pub:
            pub.send(b"x")
    archive.record(channels, start="earliest").stop()


def marks(archive):
    return sorted(path.name for path in (archive.path / "recordings").glob(f"{PURGED}*"))


def names(count):
    return [f"log:many{number}" for number in range(count)]


def test_a_recorder_of_many_channels_lists_the_archive_once(archive, calls):
    listed = calls(ArchiveFolder, "last_number")
    record(archive, *names(12))
    assert [info.id for info in archive.list()] == list(range(1, 13))
    assert len(listed) == 1


@pytest.mark.parametrize("tick", [False, True])
def test_a_number_that_another_purged_meanwhile_is_not_given(archive, tick):
    """tick: all of it within one tick of the clock that a folder's time has."""
    record(archive, "log:a")
    other, folder = penstock.Archive(archive.path), archive.path / "recordings"
    before = folder.stat()
    for number in (2, 3):
        record(other, "log:b")
        other.purge(number)
    if tick:
        os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    record(archive, "log:a")
    assert [info.id for info in archive.list()] == [1, 4]


def begin_and_purge(path, numbers):
    files = ArchiveFolder(path, create=False)
    given = []
    for _ in range(60):
        folder, description, lock = files.begin(Description(0, "log:x", 1, 0, 65536, 0, 1, 1))
        given.append(description.id)
        os.close(lock)
        files.purge(folder, lambda _: None)
    numbers.put(given)


def test_recorders_at_once_get_each_number_once(archive):
    context = multiprocessing.get_context("fork")
    numbers = context.Queue()
    recorders = [context.Process(target=begin_and_purge, args=(archive.path, numbers)) for _ in range(3)]
    for recorder in recorders:
        recorder.start()
    given = [number for _ in recorders for number in numbers.get(timeout=60)]
    for recorder in recorders:
        recorder.join()
    assert len(given) == len(set(given)) == 180


def test_a_recorder_stopped_as_it_begins_holds_up_no_other(archive, monkeypatch):
    monkeypatch.setattr("penstock.record.format.archive_folder.ALONE_S", 0.05)
    record(archive, "log:a")
    stopped = os.open(archive.path / "recordings", os.O_RDONLY)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    record(archive, "log:a")
    os.close(stopped)
    record(archive, "log:a")
    assert [info.id for info in archive.list()] == [1, 2, 3]


def test_an_archive_that_is_made_anew_is_another(archive):
    record(archive, "log:old")
    archive.append("log:old", [b"1"])
    shutil.rmtree(archive.path)
    record(penstock.Archive(archive.path), "log:new")
    assert archive.find("log:new").channel == "log:new"
    assert [folder.describe().channel for folder in archive._files.of_channel("log:new")] == ["log:new"]
    with pytest.raises(penstock.NotFound, match="it has log:new"):
        archive.find("log:old")


def test_purges_list_the_archive_once_and_leave_one_mark(archive, calls):
    record(archive, *names(8))
    other = penstock.Archive(archive.path)
    other.purge(1)
    looked = calls(type(archive.path), "glob")
    for number in (2, 4, 3, 5, 8):
        archive.purge(number)
    assert len([given for given in looked if given[1:] == (f"{PURGED}*",)]) == 1
    assert marks(archive) == [f"{PURGED}00000008"]
    record(archive, "log:later")
    assert [info.id for info in archive.list()] == [6, 7, 9]


def test_a_channels_newest_recording_is_found_without_the_others(archive, calls):
    record(archive, *names(9))
    read = calls(RecordingFolder, "description_in")
    archive.find("log:many8")
    with_nine = len(read)
    record(archive, *names(9))
    read.clear()
    assert penstock.Archive(archive.path).find("log:many8").id == 18
    assert len(read) == with_nine


def test_a_long_list_of_removed_positions_is_seldom_rewritten(tmp_path, monkeypatch, calls):
    monkeypatch.setattr(removed, "LONG", 1 << 10)
    again = calls(removed, "_write_again")
    for number in range(200):
        removed.note(tmp_path, f"log:{number}", number, [(0, 64)])
    assert len(removed.read(tmp_path)) == 200
    assert 1 <= len(again) <= 8  # its length doubles so often
    for number in range(1000):
        removed.note(tmp_path, "log:0", 0, [(64 * number, 64 * number + 64)])
    assert removed.read(tmp_path)["log:0", 0] == [(0, 64_000)]
    assert (tmp_path / removed.NAME).stat().st_size < 1 << 16


def test_purges_read_a_consumers_progress_once(archive, calls):
    record(archive, *names(4))
    done = {(info.channel, info.epoch): [(0, info.end_position)] for info in archive.list()}
    archive.note_consumer(Consumer("query", None, 0, done))
    read = calls(consumers, "read_one")
    for number in (1, 2, 3):
        archive.purge(number)
    assert len(read) == 1
    archive.note_consumer(Consumer("query", None, 0, {}))
    with pytest.raises(penstock.Busy, match="query has yet to read recording 4"):
        archive.purge(4)
