"""An archive of many recordings: what a call about one of them does is no more than with few. Calls are counted, not time."""

import pytest

import penstock
from penstock.record import Consumer, plan
from penstock.record.format import removed
from penstock.record.format.archive_folder import PURGED, ArchiveFolder
from penstock.record.format.folder import RecordingFolder
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


def test_a_number_that_another_purged_meanwhile_is_not_given(archive):
    record(archive, "log:a")
    other = penstock.Archive(archive.path)
    for number in (2, 3):
        record(other, "log:b")
        other.purge(number)
    record(archive, "log:a")
    assert [info.id for info in archive.list()] == [1, 4]


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


def test_descriptions_of_other_streams_are_read_once(archive, calls):
    record(archive, *names(9))
    plan(archive, channels={"log:many3"})
    read = calls(RecordingFolder, "description_in")
    (part,) = plan(archive, channels={"log:many3"})
    assert part.recording == 4
    assert {folder.number for folder, _ in read} == {4}


def test_so_many_channels_are_remembered(archive, monkeypatch):
    monkeypatch.setattr("penstock.record.read.lister.CHANNELS_MAX", 2)
    record(archive, *names(5))
    with pytest.raises(penstock.NotFound, match=r"it has log:many0, log:many1, log:many2, log:many3, log:many4$"):
        archive.find("log:other")
    assert len(archive._lister._channels) <= 2


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
