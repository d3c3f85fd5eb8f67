"""Files of a recording that are missing, too short, or another recording's: they are named, and cost what they held."""

import shutil

import pytest
from damage import EVERY, Before, add_every_file, check, copied, flip, two_recordings

import penstock
from penstock.record.format import batches


@pytest.fixture
def made(archive):
    return two_recordings(archive)


@pytest.fixture
def before(made, tmp_path):
    return Before.of(copied(made, tmp_path / "before"))


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("id", "removed")])
def test_a_file_of_another_recording_is_noticed(made, tmp_path, name):
    add_every_file(made)
    made.append("log:third", [b"x"], batch=("w", 9))
    before = Before.of(copied(made, tmp_path / "whole"))
    folders = [folder.path for folder in made.folders()]
    source, target = folders[1] / name, folders[0] / name
    if name == "q.json":
        source, target = made.path / "consumers/r.json", made.path / "consumers/q.json"
    elif name == "batches":
        source, target = (folder / name for folder in folders if (folder / name).exists())
    shutil.copy(source, target)
    assert any(one.path == target for one in made.verify())
    made.repair()
    assert [one.path for one in made.verify()] == ([target] if name == "q.json" else [])  # its query writes that one
    for number in before.messages:
        assert check(before, made, number, []) == 0


def test_a_missing_ledger_of_batches_is_named_and_refused(archive):
    archive.append("log:out", [b"a"], batch=("w", 1))
    path = archive.find("log:out").path / batches.NAME
    path.unlink()
    assert [one.path for one in archive.verify()] == [path]
    with pytest.raises(penstock.Corrupt, match=r"is missing\. Run repair"):
        archive.append("log:out", [b"b"], batch=("w", 2))
    archive.repair()
    assert archive.verify() == []
    archive.append("log:out", [b"b"], batch=("w", 2))
    assert [m.data for info in archive.list() for m in archive.replay(info.id)] == [b"a", b"b"]


def test_a_missing_recording_that_programs_appended_to_is_named(archive):
    info = archive.find(archive.append("log:out", [b"a"]).recording)
    shutil.rmtree(info.path)
    assert [one.path for one in archive.verify()] == [info.path]


@pytest.mark.parametrize("order", [(2, 1, 3), (2, 3, 1), (3, 2, 1), (3, 1, 2)])
def test_recordings_with_each_others_numbers_get_their_own(archive, order):
    for name in ("log:a", "log:b", "log:c"):
        archive.append(name, [name.encode()])
    folders = [folder.path for folder in archive.folders()]
    for path in folders:
        path.rename(path.with_suffix(".x"))
    for path, number in zip(folders, order, strict=True):
        path.with_suffix(".x").rename(archive._files.folder(number).path)
    assert archive.verify()
    archive.repair()
    assert archive.verify() == []
    assert [(info.id, info.channel) for info in archive.list()] == [(1, "log:a"), (2, "log:b"), (3, "log:c")]
    assert [m.data for n in (1, 2, 3) for m in archive.replay(n)] == [b"log:a", b"log:b", b"log:c"]


def test_a_file_in_place_of_the_damaged_folder_is_kept(made, before):
    folder = made._files.folder(1)
    (folder.path / "damaged").write_text("mine")
    flip(folder.segments()[1].index, 100, 3)
    made.repair()
    assert made.verify() == []
    assert (folder.path / "damaged/damaged").read_text() == "mine"
    assert check(before, made, 1) < len(before.messages[1])


def test_frames_that_lose_their_index_stay_and_come_back_with_it(made, before, tmp_path):
    for gone in ([0], [1], [-1], [0, 1], [1, 2, -1]):
        copy = copied(made, tmp_path / "copy")
        segments = copy._files.folder(1).segments()
        chosen = [segments[number] for number in gone]
        whole = {segment.data: segment.data.read_bytes() for segment in chosen}
        for segment in chosen:
            shutil.move(segment.index, tmp_path / segment.index.name)
        copy.repair()
        assert copy.verify() == []
        assert {path: path.read_bytes() for path in whole} == whole
        hurt = [one for segment in chosen for _, _, one in before.places[1][segment.data.name]]
        assert check(before, copy, 1, hurt) > 0
        for segment in chosen:
            shutil.move(tmp_path / segment.index.name, segment.index)
        copy.repair()
        assert copy.verify() == []
        assert check(before, copy, 1, []) == 0
        assert copy.find(1).lost_bytes == 0


def test_a_segment_of_another_recording_is_a_gap(made, before, tmp_path):
    mine, other = (made._files.folder(n).segments() for n in (1, 2))
    common = next(s for s in mine[1:] if s.base in {o.base for o in other})
    shutil.copy(other[0].folder / common.index.name, common.index)
    shutil.copy(other[0].folder / common.data.name, common.data)
    check(before, made, 1)
    assert made.verify(1)
    made.repair()
    assert made.verify() == []
    check(before, made, 1)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_list_counts_frames_that_are_gone(made, number):
    segment, was = made._files.folder(1).segments()[number], made.find(1)
    whole = segment.data.read_bytes()
    for left in (None, 0, len(whole) // 2, len(whole) - 1):
        if left is None:
            segment.data.unlink()
        else:
            segment.data.write_bytes(whole[:left])
        info = made.find(1)
        got = list(made.replay(1))
        assert info.state == "damaged", left
        assert str(segment.data) in info.damage
        assert info.gaps == was.gaps + 1
        assert 0 < info.lost_bytes - was.lost_bytes <= len(whole)
        assert (info.end_position, info.segments) == (was.end_position, was.segments)
        assert len(got) <= info.messages <= was.messages
        segment.data.write_bytes(whole)
    assert made.find(1) == was
