"""Files that this user may not read are no damage. A place where the user may not write is named before anything is waited for.
The commands run without the rights that a superuser has."""

import os
import shutil
from pathlib import Path

import forks
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


def without_rights(*commands):
    """The status and the output of each of some commands, whose user has no more rights than others."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("a superuser may read and write everything, and there is no setpriv")
    before = WITHOUT_RIGHTS if os.geteuid() == 0 else []
    programs = [(Path.cwd(), f"sys.exit(run({[str(word) for word in words]!r}))") for words in commands]
    done = forks.run_each(programs, "from penstock.cli import run", before=before)
    assert not [error for _, _, error in done if "Traceback" in error]
    return [(status, said + error) for status, said, error in done]


def contents(archive):
    return {path: path.stat().st_size for path in sorted(archive.path.rglob("*"))}


@pytest.mark.parametrize("pattern", ["*.seg", "*.idx", "recording.*"])
def test_a_file_that_may_not_be_read_is_no_damage(held, tmp_path, pattern):
    before = contents(held)
    files = list((held.path / "recordings" / "00000002").glob(pattern))
    for file in files:
        file.chmod(0)
    (status, said), _ = without_rights(("verify", held.path), ("repair", held.path))
    assert status == 1
    assert "Permission denied" in said
    assert "1 recording cannot be read, which is not damage" in said
    assert "repair" not in said
    for file in files:
        file.chmod(0o600)
    assert contents(held) == before, "nothing was moved, cut or written again"
    assert held.verify() == []


def test_an_unreadable_export_is_refused_and_not_called_damaged(held, tmp_path):
    (file,) = (held.path / "recordings" / "00000002").glob("*.seg")
    file.chmod(0)
    ((status, said),) = without_rights(("export", held.path, tmp_path / "out", "--csv"))
    assert status == 1
    assert str(file) in said
    assert "Permission denied" in said
    assert "damage" not in said
    assert not (tmp_path / "out").exists()


def test_an_unreadable_recording_is_not_reported_missing(held):
    folder = held.path / "recordings" / "00000002"
    folder.chmod(0)
    ((status, said),) = without_rights(("replay", held.path, "log:b"))
    folder.chmod(0o700)
    assert status == 1
    assert "The channel of 2 cannot be read" in " ".join(said.split())


def test_a_recorder_says_at_once_that_it_may_not_write(held):
    """Without waiting for a first message, which may never come."""
    recordings = held.path / "recordings"
    recordings.chmod(0o500)
    ((status, said),) = without_rights(("record", held.path, "log:never"))
    recordings.chmod(0o700)
    assert status == 1
    assert f"{recordings} cannot be written" in said
    assert "waiting" not in said


def test_a_recorder_reports_at_once_an_archive_it_cannot_make(tmp_path):
    (tmp_path / "others").mkdir(mode=0o500)
    ((status, said),) = without_rights(("record", tmp_path / "others" / "new", "log:never"))
    assert status == 1
    assert "cannot make an archive" in said


@pytest.mark.slow
def test_a_reader_needs_no_right_to_write(held):
    for path in [held.path, *held.path.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    commands = ("verify", held.path), ("recordings", held.path), ("replay", held.path, "log:a")
    for status, said in without_rights(*commands):
        assert status == 0, said
    assert penstock.Archive(held.path).verify() == []
