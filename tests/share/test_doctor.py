"""The command doctor in containers, and between users: what is wrong, what to do, and that the advice helps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from people import ANNA, BEN, Person, as_command, as_user, require_users

import penstock
from penstock.channels.storage import files
from penstock.cli.channels.members import member_command
from penstock.cli.machine import containers

Start = Callable[..., Person]
OWN_MEMORY = "mount -t tmpfs -o size={size} tmpfs /dev/shm"
SMALL = OWN_MEMORY.format(size="64m")


def doctor(user: int, environment: dict[str, str], status: int = 0, **how: object) -> dict[str, tuple[str, str]]:
    """What it finds: text → level and advice."""
    require_users()
    done = subprocess.run(
        as_command(user, [sys.executable, "-m", "penstock", "doctor", "--json"], **how),  # type: ignore[arg-type]
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return {one["what"]: (one["level"], one["advice"]) for one in json.loads(done.stdout)}


def one_with(found: dict[str, tuple[str, str]], text: str) -> tuple[str, str]:
    """The level and the advice of the one finding with this text."""
    (what,) = [what for what in found if text in what]
    return found[what]


def at_home() -> dict[str, str]:
    """The environment of a program that names no folder."""
    return {name: value for name, value in as_user(Path("/none"), None).items() if name != "PENSTOCK_DIR"}


def test_the_small_memory_of_a_container_is_noted() -> None:
    """64 MB: it works, and two large logs do not fit. With more, nothing is said."""
    found = doctor(ANNA, at_home(), container=True, before=SMALL)
    level, advice = one_with(found, "67.1 MB free of 67.1 MB")
    assert level == "note"
    for way in ("docker run --shm-size=1g", "shm_size: 1g", "emptyDir with medium: Memory"):
        assert way in advice
    assert any("it has the size that a container gets by default" in what for what in found)
    larger = doctor(ANNA, at_home(), container=True, before=OWN_MEMORY.format(size="1g"))
    assert one_with(larger, "shared memory at") == ("good", "")


def test_a_full_memory_of_a_container_is_bad() -> None:
    """A log does not fit any more."""
    found = doctor(ANNA, at_home(), 1, container=True, before=f"{SMALL}\nhead -c 50M /dev/zero > /dev/shm/full")
    level, advice = one_with(found, "shared memory at")
    assert level == "bad"
    assert "penstock rm --unused" in advice
    assert "--shm-size=1g" in advice


def test_a_container_with_its_own_memory_is_noted() -> None:
    """Nobody outside sees its channels, unless they share its /dev/shm; a mounted folder is no trouble."""
    found = doctor(ANNA, at_home(), container=True, before=SMALL)
    level, advice = one_with(found, "a container whose IPC namespace")
    assert level == "note"
    for way in ("docker run --ipc=container:NAME", "ipc: service:NAME", "set PENSTOCK_DIR"):
        assert way in advice
    mounted = "mount -t tmpfs tmpfs /media\nmkdir -m 777 /media/channels\nmount -t tmpfs tmpfs /media/channels"
    environment = {**at_home(), "PENSTOCK_DIR": "/media/channels/mine"}
    found = doctor(ANNA, environment, container=True, before=mounted)
    assert one_with(found, "a container with channels in /media/channels") == ("good", "")


def test_channels_of_another_container_are_named(person: Start, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has the same name in both, and is not the same one. With the advice, it is."""
    monkeypatch.setenv("PENSTOCK_DIR", str(shared))
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    monkeypatch.setattr(containers, "SHOWN", 1000)  # programs of other tests are in containers, too
    apart = f"mount -t tmpfs tmpfs {shared}\nchown 0:61000 {shared}\nchmod 2770 {shared}"
    anna = person(ANNA, shared, container=True, before=apart)
    anna.do("end = penstock.publish('log:a', term_length=1 << 16)")
    found = containers.check_elsewhere()
    assert found.level == "note"
    assert f"process {anna.pid} (python) in {shared}" in found.what or f"process {anna.pid} in {shared}" in found.what
    assert "docker run --ipc=container:NAME" in found.advice
    anna.kill()
    together = person(ANNA, shared, container=True)
    together.do("end = penstock.publish('log:a', term_length=1 << 16)")
    assert f"process {together.pid} " not in containers.check_elsewhere().what


def test_folders_of_other_users_are_named() -> None:
    """A program of another user has another folder by default, and they never meet."""
    others = f"{SMALL}\nmkdir -m 700 /dev/shm/penstock-{ANNA}\nchown {ANNA} /dev/shm/penstock-{ANNA}"
    found = doctor(BEN, at_home(), container=True, before=others)
    level, advice = one_with(found, f"which user {BEN} does not see: user {ANNA} in /dev/shm/penstock-{ANNA}")
    assert level == "note"
    assert "set PENSTOCK_DIR to one folder and PENSTOCK_SHARE=group in all programs" in advice
    assert one_with(doctor(ANNA, at_home(), container=True, before=others), "channels are private to user") == (
        "good",
        "",
    )


def test_a_folder_of_another_user_is_bad(shared: Path) -> None:
    """One line says so, once, with the way out; which helps."""
    found = doctor(BEN, as_user(shared, None), 1)
    bad = [what for what, (level, _) in found.items() if level == "bad"]
    assert len(bad) == 1
    assert "set PENSTOCK_SHARE=group to use it" in bad[0]
    found = doctor(BEN, as_user(shared))
    assert one_with(found, "channels are shared with group 61000")[0] == "good"


def test_channels_on_a_read_only_mount_are_channels(shared: Path, person: Start) -> None:
    """Nothing says that they are not, nor to remove them. Mounted for writing all is well, as the advice says."""
    person(ANNA, shared).do("penstock.publish('ring:a').close()")
    closed = f"mount --bind {shared} {shared}\nmount -o remount,bind,ro {shared}"
    found = doctor(ANNA, as_user(shared), 1, container=True, before=closed)
    assert not any("are not channels" in what or "is not a channel" in what for what in found)
    bad = [what for what, (level, _) in found.items() if level == "bad"]
    assert any("Read-only file system: mount it for writing" in what for what in bad), bad
    found = doctor(ANNA, as_user(shared), container=True, before=f"{closed}\nmount -o remount,bind,rw {shared}")
    assert one_with(found, "all files in the channel folder")[0] == "good"


def test_a_wrong_variable_is_bad(shared: Path) -> None:
    found = doctor(BEN, as_user(shared, "all"), 1)
    assert one_with(found, "the only value is 'group'")[0] == "bad"


def test_this_machines_own_memory_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of containers, and in one that has the machine's IPC namespace."""
    monkeypatch.setattr(containers, "MARKS", ())
    monkeypatch.setattr(containers, "_namespace", lambda pid, kind: containers.MACHINES_IPC)
    assert containers.check_container().what == "no container: channels are those of this machine"
    monkeypatch.setattr(containers, "MARKS", ("/",))
    assert containers.check_container().level == "good"
    monkeypatch.setattr(containers, "_namespace", lambda pid, kind: "ipc:[1]")
    monkeypatch.setattr(containers, "mounted_at", lambda path: ("/dev/shm", "tmpfs"))
    assert containers.check_container().level == "note"


def test_a_members_command_is_that_of_its_own_process(channel_folder: Path) -> None:
    """Of a process that has a channel open, and of no other with its number."""
    assert member_command(os.getpid(), 1) == ""
    with penstock.publish("log:a", term_length=1 << 16):
        assert "python" in member_command(os.getpid(), 2)
    assert files.folder() == channel_folder
