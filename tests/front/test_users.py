"""Whose channels they are: the effective user's. Symbolic links to the channel folder, and what the errors say to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import penstock
from penstock.channels.storage import files
from penstock.record.write import append

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def _as(real: int, effective: int, code: str) -> str:
    """The output of a program that has these users, and no PENSTOCK_DIR."""
    become = (
        f"import os; os.setgroups([]); os.setresgid({real}, {effective}, 0); os.setresuid({real}, {effective}, 0)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", f"import penstock\nfrom penstock.channels.storage import files\n{become}{code}"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@as_root
@pytest.mark.parametrize(("real", "effective"), [(0, 61234), (61234, 0)])
def test_the_effective_user_decides(real, effective):
    """A program with set-user-id uses its owner's folder, and makes none in the name of the user who runs it."""
    code = "print(files.folder())"
    assert _as(real, effective, code) == f"/dev/shm/penstock-{effective}"


@as_root
def test_a_program_with_set_user_id_locks_nobody_out(tmp_path):
    """A folder of one's own is refused to a program that runs as somebody else, and stays whose it was."""
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    os.chown(mine, 61234, 61234)
    os.chmod(tmp_path, 0o755)
    code = f"""
os.environ["PENSTOCK_DIR"] = {str(mine)!r}
try:
    penstock.publish("log:a")
except penstock.SystemFailure as error:
    print(error.strerror)
"""
    assert "belongs to user 61234, not to you (0)" in _as(61234, 0, code)
    assert os.stat(mine).st_uid == 61234
    assert os.listdir(mine) == []


def test_a_symbolic_link_is_said_to_be_one(tmp_path, monkeypatch):
    """The advice, followed, works: PENSTOCK_DIR names the folder that the link names."""
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir(mode=0o700)
    link.symlink_to(folder)
    monkeypatch.setenv("PENSTOCK_DIR", str(link))
    for call in (lambda: penstock.publish("log:a"), penstock.list_channels):
        with pytest.raises(penstock.SystemFailure, match="it is a symbolic link") as caught:
            call()
    advised = str(caught.value).rpartition("the folder itself, ")[2]
    monkeypatch.setenv("PENSTOCK_DIR", advised)
    with penstock.publish("log:a"):
        assert [status.channel for status in penstock.list_channels()] == ["log:a"]
    assert files.folder() == folder


def test_no_part_of_a_name_begins_with_a_dot():
    """Such files are hidden: `ls` and `record("*")` would leave their channels out."""
    for name in (".hidden", "a/.b", ".", "..", "a/..", ".a/b", "...", "a/./b"):
        for kind in ("log", "ring", "sync", "pipe", "frames", "fake:log"):
            with pytest.raises(penstock.Invalid, match="begins with a dot"):
                penstock.subscribe(f"{kind}:{name}")
    for name in ("a.b", "a/b.c", "a..b", "a.", "-a", "_a"):
        with penstock.publish(f"log:{name}"):
            assert [status.channel for status in penstock.list_channels()] == [f"log:{name}"]
        penstock.remove(f"log:{name}")


def test_an_archive_has_no_hidden_names(archive):
    """Nor do recordings that programs write."""
    with pytest.raises(penstock.Invalid, match="begins with a dot"):
        archive.append("log:.a", [b"x"])
    with pytest.raises(penstock.Invalid, match="begins with a dot"):
        archive.record("log:.a")
    assert archive.list() == []


def test_an_error_counts_members_as_the_option_does():
    """`max_members=3` of a sync queue are three members, each of which takes two slots."""
    members = [penstock.join("sync:a", name=f"m{i}", max_members=3) for i in range(3)]
    with pytest.raises(penstock.Busy, match=r"sync:a: it has 3 members, and takes no more \(max_members=3\)"):
        penstock.join("sync:a", name="late")
    members.pop().close()
    with penstock.join("sync:a", name="late"):
        pass
    for member in members:
        member.close()


def test_an_append_that_is_too_large_names_its_channel(archive):
    """Before a byte of it is written."""
    large = bytes((1 << 30) + 1)
    with pytest.raises(penstock.TooLarge, match=r"^log:z: a message of 1073741825 bytes; the largest is 1073741824$"):
        archive.append("log:z", [b"x", large])
    assert archive.list() == []


def test_an_append_that_fails_names_its_channel(archive, monkeypatch):
    """And not the channel within the process that it goes through."""

    def turn(self, subscription, segment):
        raise penstock.Busy(f"{subscription.channel}: it is busy")

    monkeypatch.setattr(append._LogFiller, "turn", turn)
    with pytest.raises(penstock.Busy, match=r"^log:z: it is busy$"):
        archive.append("log:z", [b"x"])
    assert archive.list() == []
