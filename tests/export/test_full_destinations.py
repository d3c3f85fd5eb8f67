"""A destination that takes no more ends an export, an import or an append with an error that names it. It is no damage of the archive."""

import errno
import os
import subprocess
import sys

import pytest

import penstock
from penstock import errors
from penstock.columns import parts
from penstock.export import export
from penstock.export.mcap import export_mcap, import_mcap

FORMS = ["parquet", "arrow", "csv", "delta", "mcap"]
KIB = 1024


@pytest.fixture
def held(archive):
    """Two channels, each with more than fits beside the filler."""
    for channel in ("log:a", "log:b"):
        archive.append(channel, [os.urandom(1000) for _ in range(400)])
    return archive


def leave(disk, kib):
    there = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(there.f_bavail * there.f_frsize - kib * KIB))


def exported(archive, out, form, **options):
    if form == "mcap":
        return export_mcap(archive.path, out, compression="none", **options)
    return export(archive.path, out, form=form, compression="none", **options)


@pytest.mark.parametrize("kib", [0, 8, 300])
@pytest.mark.parametrize("form", FORMS)
def test_an_export_onto_a_full_disk_names_it_and_leaves_nothing(disk, held, form, kib):
    leave(disk, kib)
    said = []
    with pytest.raises(errors.SystemFailure, match=f"{disk}/out.*No space left on device") as caught:
        exported(held, disk / "out", form, on_skip=said.append)
    assert caught.value.errno == errno.ENOSPC
    assert ".new" not in str(caught.value)
    assert said == []
    assert os.listdir(disk) == ["filler"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_each_process_of_the_pool_says_it_so(disk, held, form, processes):
    leave(disk, 100)
    with pytest.raises(errors.SystemFailure, match=f"{disk}/out.*No space left"):
        exported(held, disk / "out", form, processes=processes, range_bytes=64 * KIB)
    assert os.listdir(disk) == ["filler"]


@pytest.mark.parametrize("form", FORMS)
def test_the_command_says_it_in_one_line(disk, held, form):
    leave(disk, 100)
    command = [sys.executable, "-m", "penstock", "export", str(held.path), str(disk / "out"), f"--{form}"]
    done = subprocess.run([*command, "--compression=none"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"{disk}/out" in done.stderr
    assert "No space left on device" in done.stderr
    assert "damage" not in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EROFS])
def test_whatever_the_reason_it_is_the_destinations(held, tmp_path, monkeypatch, number):
    def fails(self, batch):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(parts.pa.ipc.RecordBatchFileWriter, "write_batch", fails)
    with pytest.raises(errors.SystemFailure, match=os.strerror(number)) as caught:
        exported(held, tmp_path / "out", "arrow", on_skip=lambda text: None)
    assert caught.value.errno == number
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_destination_that_may_not_be_made_is_named(held, tmp_path, form):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.SystemFailure, match=f"{tmp_path}/file/out.*(Not a directory|File exists)"):
        exported(held, tmp_path / "file" / "out", form)


def test_damage_of_the_source_is_still_left_out(held, tmp_path):
    segment = next((held.path / "recordings" / "00000001").glob("*.seg"))
    with open(segment, "r+b") as file:
        file.seek(5000)
        file.write(b"\xff")
    said = []
    outcome = exported(held, tmp_path / "out", "parquet", on_skip=said.append)
    assert said
    assert outcome.rows >= 400


def test_an_append_without_room_names_the_archive(disk):
    archive = penstock.Archive(disk / "a")
    with pytest.raises(errors.SystemFailure, match=f"{disk}/a.*No space left"):
        archive.append("log:big", [bytes(1000)] * 40_000)  # its spool is a file
    with pytest.raises(errors.SystemFailure, match=f"{disk}/a.*No space left"):
        archive.append("log:big", [bytes(1000)] * 4_000)
    assert archive.verify() == []
    assert archive.append("log:big", [b"x"]).messages == 1


def test_an_import_names_the_archive(disk, held, tmp_path):
    exported(held, tmp_path / "f.mcap", "mcap")
    leave(disk, 300)
    with pytest.raises(errors.SystemFailure, match=f"{disk}/a.*No space left"):
        import_mcap(disk / "a", tmp_path / "f.mcap")
    assert penstock.Archive(disk / "a", create=False).verify() == []
