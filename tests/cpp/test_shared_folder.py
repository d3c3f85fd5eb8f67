"""Folders that a group shares, from C++: the same folders and files are used as in Python, and the same ones are refused."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from people import ANNA, BEN, ROBOT, Person, as_command, as_user, require_users

import penstock

KINDS = ("log", "ring", "pipe", "sync")


@pytest.fixture
def shared(channel_folder: Path) -> Path:
    """A folder of a group, in which root is too."""
    require_users()
    os.chown(channel_folder, 0, ROBOT)
    channel_folder.chmod(0o2770)
    return channel_folder


def start(ends: Path, user: int, folder: Path, *words: object, share: str | None = "group") -> subprocess.Popen[str]:
    """An end in C++, of a user whose umask leaves others nothing."""
    return subprocess.Popen(
        as_command(user, [str(ends), *map(str, words)]),
        env=as_user(folder, share),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_another_users_python_reads_what_cpp_writes(ends: Path, shared: Path, kind: str) -> None:
    """The file that C++ made has the group's mode."""
    writer = start(ends, ANNA, shared, "send", f"{kind}:a", 3, "send", "hang=1")
    ben = Person(BEN, shared)
    try:
        ben.do(f"end = penstock.subscribe('{kind}:a')")
        got = [ben.value("bytes(end.recv(timeout=60))") for _ in range(3)]
        assert got == [b"0", b"1", b"2"]
        about = (shared / f"a.{kind}").stat()
        assert (stat.S_IMODE(about.st_mode), about.st_gid) == (0o660, ROBOT)
    finally:
        writer.kill()
        writer.communicate()
        ben.stop()


@pytest.mark.parametrize("umask", [0o022, 0o777])
def test_cpp_makes_a_folder_for_the_group(ends: Path, shared: Path, umask: int) -> None:
    """With its mode at once, whatever the umask, and with its parent's group."""
    folder = shared / "below"
    command = as_command(ANNA, [str(ends), "recv", "log:a", "1", "recv", "ready=1"], umask=umask)
    reader = subprocess.Popen(command, env=as_user(folder), stdout=subprocess.PIPE, text=True)
    ben = Person(BEN, folder)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_gid) == (0o2770, ROBOT)
        assert stat.S_IMODE((folder / "a.log").stat().st_mode) == 0o660
        ben.do("end = penstock.publish('log:a'); end.wait_for_readers(timeout=60); end.send(b'7')")
        assert reader.stdout.readline() == "all 7 lost 0 redelivered 0\n"
    finally:
        reader.kill()
        reader.communicate()
        ben.stop()


@pytest.mark.parametrize(
    ("mode", "group", "share", "text"),
    [
        (0o2777, ROBOT, "group", "has a mode other than 2770"),
        (0o1777, ROBOT, "group", "has a mode other than 2770"),
        (0o770, ROBOT, "group", "has a mode other than 2770"),
        (0o2777, 61009, "group", "belongs to group 61009, which this process is not in"),
        (0o2770, ROBOT, None, "belongs to user 0, not to you (61001): set PENSTOCK_SHARE=group"),
        (0o2770, ROBOT, "all", "PENSTOCK_SHARE is 'all': the only value is group"),
    ],
)
def test_a_wrong_folder_is_refused_by_cpp(
    ends: Path, shared: Path, mode: int, group: int, share: str | None, text: str
) -> None:
    """In one line, and nothing is made."""
    os.chown(shared, 0, group)
    shared.chmod(mode)
    reader = start(ends, ANNA, shared, "recv", "log:a", 1, "recv", share=share)
    _, said = reader.communicate()
    assert reader.returncode != 0
    assert text in said
    assert said.count("\n") == 1
    assert os.listdir(shared) == []


@pytest.mark.parametrize(
    ("mode", "group", "text"),
    [
        (0o666, ROBOT, "others than the group may open it"),
        (0o660, BEN, "it belongs to group 61002, not to that of its folder"),
    ],
)
def test_a_wrong_file_is_refused_by_cpp(ends: Path, shared: Path, mode: int, group: int, text: str) -> None:
    anna = Person(ANNA, shared)
    anna.do("penstock.publish('log:a', term_length=1 << 16).close()")
    anna.stop()
    os.chown(shared / "a.log", ANNA, group)
    (shared / "a.log").chmod(mode)
    reader = start(ends, ANNA, shared, "recv", "log:a", 1, "recv")
    assert text in reader.communicate()[1]


def test_the_variable_without_a_folder_is_refused_by_cpp(ends: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    monkeypatch.delenv("PENSTOCK_DIR")
    done = subprocess.run([ends, "recv", "log:a", "1", "recv"], capture_output=True, text=True, check=False)
    assert "PENSTOCK_SHARE=group without PENSTOCK_DIR" in done.stderr
    with pytest.raises(penstock.Invalid, match="PENSTOCK_SHARE=group without PENSTOCK_DIR"):
        penstock.subscribe("log:a")
