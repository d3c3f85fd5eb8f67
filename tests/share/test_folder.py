"""Which folders and files are used with `PENSTOCK_SHARE=group`, and which are refused, with one line that says what to do and is right."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from people import ANNA, BEN, CARL, ROBOT, Person, Refused, require_users
from ports import free_port

import penstock
from penstock.channels.storage import access, files

Start = Callable[..., Person]
PUBLISH = "penstock.publish('log:a', term_length=1 << 16)"


def refusal(one: Person, call: str = PUBLISH) -> str:
    """The error of a call, without its kind."""
    with pytest.raises(Refused) as caught:
        one.do(f"_ = {call}")
    kind, _, text = str(caught.value).partition(": ")
    assert kind in ("SystemFailure", "Invalid")
    assert "\n" not in text
    return text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def mount(parent: Path) -> Path:
    """A folder that hands its group down, as Kubernetes mounts a volume with fsGroup."""
    require_users()
    made = parent / "mount"
    made.mkdir()
    os.chown(made, 0, ROBOT)
    made.chmod(0o2777)
    return made


# ---- made ----


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_made_folder_is_shared_whatever_the_umask(person: Start, mount: Path, umask: int) -> None:
    """It has its parent's group where that is handed down."""
    folder = mount / "channels"
    anna = person(ANNA, folder, umask=umask)
    anna.do(f"end = {PUBLISH}")
    about = folder.stat()
    assert (mode(folder), about.st_gid, about.st_uid) == (0o2770, ROBOT, ANNA)
    assert mode(folder / "a.log") == 0o660
    person(BEN, folder).do("end = penstock.subscribe('log:a')")
    assert os.listdir(mount) == ["channels"]


def test_a_made_folder_has_the_makers_main_group(person: Start, parent: Path) -> None:
    """In a parent that hands nothing down: `docker run --user 61001:61000`."""
    parent.chmod(0o1777)
    folder = parent / "channels"
    person(ANNA, folder, group=ROBOT).do(f"end = {PUBLISH}")
    assert (mode(folder), folder.stat().st_gid) == (0o2770, ROBOT)
    person(BEN, folder).do("end = penstock.subscribe('log:a')")


def test_nobody_sees_a_folder_half_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many that begin at once make one folder, and each finds it with its mode."""
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    for turn in range(20):
        monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path / f"channels-{turn}"))
        found: list[object] = []

        def begin(found: list[object] = found) -> None:
            try:
                with files.opened_folder(create=True) as at:
                    found.append(stat.S_IMODE(os.fstat(at).st_mode))
            except penstock.PenstockError as error:
                found.append(error)

        threads = [threading.Thread(target=begin) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [0o2770] * 8
    assert len(os.listdir(tmp_path)) == 20


def test_without_the_variable_all_is_private(person: Start, mount: Path) -> None:
    """As ever: the group of the parent is no reason."""
    folder = mount / "channels"
    person(ANNA, folder, share=None, umask=0).do(f"end = {PUBLISH}")
    assert (mode(folder), mode(folder / "a.log")) == (0o700 | stat.S_ISGID, 0o600)
    assert "cannot open the channel folder" in refusal(person(BEN, folder))


# ---- refused folders: (who, what is wrong, what the line says, the advice) ----


def _chmod(to: int) -> Callable[[Path], None]:
    return lambda folder: folder.chmod(to)


def _access_list(folder: Path) -> None:
    """user::rwx, user 61003:rwx, group::rwx, mask::rwx, other::---: what `setfacl -m u:61003:rwx` does."""
    entries = [(1, 7, 0xFFFFFFFF), (2, 7, CARL), (4, 7, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    raw = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in entries
    )
    try:
        os.setxattr(folder, "system.posix_acl_access", raw)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")


def _link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


def _private(folder: Path) -> None:
    os.chown(folder, ANNA, ROBOT)
    folder.chmod(0o700)


REFUSED = {
    "private": (_private, "has mode 700, and PENSTOCK_SHARE=group needs 2770: run chmod 2770"),
    "world": (_chmod(0o2777), "has mode 2777, so that others than a group may enter: set PENSTOCK_DIR to"),
    "readable": (_chmod(0o2775), "has mode 2775, so that others than a group may enter: set PENSTOCK_DIR to"),
    "sticky": (_chmod(0o1777), "has mode 1777, so that others than a group may enter: set PENSTOCK_DIR to"),
    "sticky group": (_chmod(0o3770), "has mode 3770, and PENSTOCK_SHARE=group needs 2770: set PENSTOCK_DIR to"),
    "no setgid": (_chmod(0o770), "has mode 770, and PENSTOCK_SHARE=group needs 2770: run chmod 2770"),
    "read only": (_chmod(0o2750), "has mode 2750, and PENSTOCK_SHARE=group needs 2770: run chmod 2770"),
    "list": (_access_list, "has an access control list, which may let others in: run setfacl -b"),
    "link": (_link, "it is a symbolic link, which channels do not follow: set PENSTOCK_DIR to the folder itself"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_folder_is_refused_in_one_line(person: Start, shared: Path, wrong: str) -> None:
    """Nothing is made in it."""
    spoil, text = REFUSED[wrong]
    spoil(shared)
    anna = person(ANNA, shared)
    for call in (PUBLISH, "penstock.list_channels()", "penstock.counter('a')"):
        assert text in refusal(anna, call)
    assert os.listdir(shared) == []


def test_the_advice_about_a_mode_works(person: Start, shared: Path) -> None:
    shared.chmod(0o770)
    anna = person(ANNA, shared)
    advice = refusal(anna).rpartition(": run ")[2]
    assert advice == f"chmod 2770 {shared}"
    subprocess.run(advice.split(), check=True)
    anna.do(f"end = {PUBLISH}")


def test_the_advice_about_an_open_folder_works(person: Start, mount: Path) -> None:
    """The root of a volume in Kubernetes has mode 2777: a folder below it is made for the group."""
    advice = refusal(person(ANNA, mount)).rpartition("such as ")[2]
    assert advice == f"{mount}/penstock"
    person(ANNA, Path(advice)).do(f"end = {PUBLISH}")
    person(BEN, Path(advice)).do("end = penstock.subscribe('log:a')")


def test_a_folder_of_another_group_is_refused(person: Start, shared: Path) -> None:
    """Root, too, uses only a folder of a group of its own."""
    os.chown(shared, 0, 61009)
    shared.chmod(0o2770)
    text = refusal(person(ANNA, shared))
    assert "Permission denied: it belongs to group 61009, which this process is not in" in text
    assert "--group-add 61009" in text
    with pytest.MonkeyPatch.context() as patched, pytest.raises(penstock.SystemFailure) as caught:
        patched.setenv("PENSTOCK_DIR", str(shared))
        patched.setenv("PENSTOCK_SHARE", "group")
        penstock.list_channels()
    assert "belongs to group 61009, which this process is not in" in str(caught.value)
    assert "--group-add 61009" in str(caught.value)


def test_a_folder_shared_by_mistake_is_one_line(person: Start, shared: Path) -> None:
    """A program that does not ask for sharing refuses a folder with mode 2770, its own one too, and names both ways out."""
    text = refusal(person(ANNA, shared, share=None))
    assert f"belongs to user 0, not to you ({ANNA})" in text
    assert "set PENSTOCK_SHARE=group to use it" in text
    os.chown(shared, ANNA, ROBOT)
    shared.chmod(0o2770)
    text = refusal(person(ANNA, shared, share=None))
    assert "has mode 2770, and must be private: set PENSTOCK_SHARE=group if group 61000 is to share it, else" in text


@pytest.mark.parametrize(
    ("value", "folder", "text"),
    [
        ("all", "there", "PENSTOCK_SHARE is 'all': the only value is 'group'"),
        ("Group", "there", "PENSTOCK_SHARE is 'Group': the only value is 'group'"),
        ("group", None, "PENSTOCK_SHARE=group without PENSTOCK_DIR"),
    ],
)
def test_a_wrong_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, folder: str | None, text: str
) -> None:
    """Nothing is taken and ignored."""
    monkeypatch.setenv("PENSTOCK_SHARE", value)
    if folder is None:
        monkeypatch.delenv("PENSTOCK_DIR")
    else:
        monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path / folder))
    for call in (lambda: penstock.publish("log:a"), penstock.list_channels):
        with pytest.raises(penstock.Invalid, match=text):
            call()
    assert os.listdir(tmp_path) == []


def test_an_empty_variable_means_nothing(monkeypatch: pytest.MonkeyPatch, channel_folder: Path) -> None:
    monkeypatch.setenv("PENSTOCK_SHARE", "")
    penstock.publish("log:a", term_length=1 << 16).close()
    assert mode(channel_folder) == 0o700
    assert mode(channel_folder / "a.log") == 0o600


# ---- refused files ----


def _second_name(path: Path) -> None:
    os.link(path, path.with_name("second"))


def _swap(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


FILES = {
    "world": (lambda path: path.chmod(0o666), "others than the group may open it: run chmod 660 on it"),
    "group": (
        lambda path: os.chown(path, ANNA, 61009),
        "it belongs to group 61009, which this process is not in: run chgrp 61000",
    ),
    "private": (lambda path: path.chmod(0o600), f"it is private to user {ANNA}"),
    "name": (_second_name, "it has a second name"),
    "link": (_swap, "it is a symbolic link"),
}


@pytest.mark.parametrize("wrong", FILES)
def test_a_wrong_file_is_refused_in_one_line(person: Start, shared: Path, wrong: str) -> None:
    spoil, text = FILES[wrong]
    person(ANNA, shared).do(f"{PUBLISH}.close()")
    spoil(shared / "a.log")
    assert text in refusal(person(BEN, shared), "penstock.subscribe('log:a')")


def test_a_file_of_another_group_is_refused(monkeypatch: pytest.MonkeyPatch, channel_folder: Path) -> None:
    """Its group is not the one that the folder promises."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to a group that it is not in")
    channel_folder.chmod(0o2770)
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    penstock.publish("log:a", term_length=1 << 16).close()
    os.chown(channel_folder / "a.log", -1, 61009)
    (channel_folder / "a.log").chmod(0o660)
    with pytest.raises(penstock.SystemFailure, match="it belongs to group 61009, not to that of its folder: run chgrp"):
        penstock.subscribe("log:a")


@pytest.mark.parametrize("way", ["named", "unnamed"])
def test_a_file_has_its_mode_before_its_name(monkeypatch: pytest.MonkeyPatch, channel_folder: Path, way: str) -> None:
    """Also where files must have a temporary name."""
    if way == "named":
        real = os.path.isdir
        monkeypatch.setattr(os.path, "isdir", lambda path: False if path == "/proc/self/fd" else real(path))
    channel_folder.chmod(0o2770)
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    seen = []
    name = access.name_file

    def look(at: int, fd: int, temporary: str | None, to: str) -> None:
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        name(at, fd, temporary, to)

    monkeypatch.setattr(access, "name_file", look)
    penstock.publish("log:a", term_length=1 << 16).close()
    penstock.counter("a").add()
    assert seen == [0o660, 0o660]
    assert sorted(os.listdir(channel_folder)) == [".counters", "a.log"]


def test_files_of_a_serving_thread_have_the_groups_mode(monkeypatch: pytest.MonkeyPatch, channel_folder: Path) -> None:
    """It takes the mode from the folder: the log of a publication, its counts, and the image of its session."""
    channel_folder.chmod(0o2770)
    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri, linger=0) as pub:
        pub.send(b"x")
        assert sub.recv(timeout=60) == b"x"
        made = {path.name.rpartition(".")[2]: mode(path) for path in channel_folder.iterdir()}
    assert made == dict.fromkeys(made, 0o660)
    assert len(made) == 4


def test_a_demos_own_folder_stays_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The demo works where channels are shared, with channels of its own."""
    from penstock.cli.demo.steps import _own_folder

    monkeypatch.setenv("PENSTOCK_SHARE", "group")
    monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path / "channels"))
    with _own_folder():
        penstock.publish("log:a", term_length=1 << 16).close()
        own = files.folder()
        assert own.parent == tmp_path / "channels"
        assert (mode(own) & 0o777, mode(own.parent)) == (0o700, 0o2770)
    assert os.environ["PENSTOCK_SHARE"] == "group"
    assert files.folder() == tmp_path / "channels"
    shutil.rmtree(tmp_path / "channels")
