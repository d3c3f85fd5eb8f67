"""Files that this user may not read are no damage. A place where the user may not write is named before anything is waited for.
The commands run without the rights that a superuser has."""

import os
import shutil
import subprocess
import sys

import pytest

import penstock

WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@pytest.fixture
def held(archive):
    for channel in ("log:a", "log:b"):
        archive.append(channel, [b"x" * 100] * 50)
    yield archive
    for folder, _, files in os.walk(archive.path, onerror=lambda error: os.chmod(error.filename, 0o700)):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o600)


def without_rights(*words):
    """The status and the output of a command whose user has no more rights than others."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("a superuser may read and write everything, and there is no setpriv")
    before = WITHOUT_RIGHTS if os.geteuid() == 0 else []
    command = [*before, sys.executable, "-m", "penstock", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def contents(archive):
    return {path: path.stat().st_size for path in sorted(archive.path.rglob("*"))}


@pytest.mark.parametrize("pattern", ["*.seg", "*.idx", "recording.*"])
def test_a_file_that_may_not_be_read_is_no_damage(held, tmp_path, pattern):
    before = contents(held)
    files = list((held.path / "recordings" / "00000002").glob(pattern))
    for file in files:
        file.chmod(0)
    status, said = without_rights("verify", held.path)
    assert status == 1
    assert "Permission denied" in said
    assert "1 recording cannot be read, which is not damage" in said
    assert "repair" not in said
    status, said = without_rights("repair", held.path)
    for file in files:
        file.chmod(0o600)
    assert contents(held) == before, "nothing was moved, cut or written again"
    assert held.verify() == []


def test_an_unreadable_export_is_refused_and_not_called_damaged(held, tmp_path):
    (file,) = (held.path / "recordings" / "00000002").glob("*.seg")
    file.chmod(0)
    status, said = without_rights("export", held.path, tmp_path / "out", "--csv")
    assert status == 1
    assert str(file) in said
    assert "Permission denied" in said
    assert "damage" not in said
    assert not (tmp_path / "out").exists()


def test_an_unreadable_recording_is_not_reported_missing(held):
    folder = held.path / "recordings" / "00000002"
    folder.chmod(0)
    status, said = without_rights("replay", held.path, "log:b")
    folder.chmod(0o700)
    assert status == 1
    assert "The channel of 2 cannot be read" in " ".join(said.split())


def test_a_recorder_says_at_once_that_it_may_not_write(held):
    """Without waiting for a first message, which may never come."""
    recordings = held.path / "recordings"
    recordings.chmod(0o500)
    status, said = without_rights("record", held.path, "log:never")
    recordings.chmod(0o700)
    assert status == 1
    assert f"{recordings} cannot be written" in said
    assert "waiting" not in said


def test_a_recorder_reports_at_once_an_archive_it_cannot_make(tmp_path):
    (tmp_path / "others").mkdir(mode=0o500)
    status, said = without_rights("record", tmp_path / "others" / "new", "log:never")
    assert status == 1
    assert "cannot make an archive" in said


def test_a_reader_needs_no_right_to_write(held):
    for path in [held.path, *held.path.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    for words in (["verify"], ["recordings"], ["replay", "log:a"]):
        status, said = without_rights(words[0], held.path, *words[1:])
        assert status == 0, said
    assert penstock.Archive(held.path).verify() == []
