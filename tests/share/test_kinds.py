"""Every kind of channel between the users of a group: messages both ways, files, removal, and `kill -9` of either side, also where each is in
PID, mount and IPC namespaces of its own."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from people import ANNA, BEN, CARL, ROBOT, Person, Refused, until
from ports import free_port


@dataclass(frozen=True)
class Scene:
    """A kind, in programs: how each end is opened, what is sent, and what arrives. more: sends more than the channel holds."""

    uri: str
    write: str
    read: str
    send: str = "end.send(b'hello')"
    receive: str = "bytes(end.recv(timeout=60))"
    arrives: object = b"hello"
    more: str = "[end.send(bytes(100)) for _ in range(2000)]"


SCENES = {
    "log": Scene("log:a/b", "penstock.publish(uri, term_length=1 << 16)", "penstock.subscribe(uri)"),
    "last": Scene(
        "log:last",
        "penstock.publish(uri, term_length=1 << 16, codec='json', last='name')",
        "penstock.subscribe(uri, start='last')",
        "end.send({'name': 'x'})",
        "end.recv(timeout=60)",
        {"name": "x"},
        "[end.send({'name': 'x', 'of': 'x' * 100}) for _ in range(2000)]",
    ),
    "ring": Scene("ring:a", "penstock.publish(uri, capacity=1 << 16)", "penstock.subscribe(uri)"),
    "frames": Scene(
        "frames:a",
        "penstock.publish(uri, shape=(4,), dtype='uint8', buffers=3)",
        "penstock.subscribe(uri)",
        "end.send(bytes([7] * 4))",
        "end.recv(timeout=60).copy().tolist()",
        [7] * 4,
        "[end.send(bytes(4)) for _ in range(2000)]",
    ),
    "pipe": Scene("pipe:a", "penstock.publish(uri)", "penstock.subscribe(uri)", more=""),
    "sync": Scene(
        "sync:a",
        "penstock.join(uri, name='anna' + str(os.getpid()), capacity=1 << 16)",
        "penstock.join(uri, name='ben' + str(time.time_ns()))",
        receive="end.recv(timeout=60).body",
    ),
    "udp": Scene("udp://127.0.0.1:PORT/7", "penstock.publish(uri, linger=0)", "penstock.subscribe(uri)", more=""),
}
WHERE = pytest.mark.parametrize("container", [False, True], ids=["users", "containers"])


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest) -> Scene:
    """One of the kinds."""
    found = SCENES[request.param]
    return replace(found, uri=found.uri.replace("PORT", str(free_port())))


Start = Callable[..., Person]


def opened(one: Person, scene: Scene, how: str) -> Person:
    """The program, with its end of the channel open."""
    one.do(f"uri = {scene.uri!r}")
    one.do(f"end = {how}")
    return one


def members(one: Person) -> int:
    """How many members of the channel live, as a program sees it."""
    return int(one.value("len(penstock.inspect(uri).members)"))


def exchange(writer: Person, reader: Person, scene: Scene) -> None:
    """A message goes from one to the other; over a network, as soon as they have found each other."""
    until(lambda: writer.value("getattr(end, 'readers', 1)"), "no reader is seen")
    writer.do(scene.send)
    assert reader.value(scene.receive) == scene.arrives


@WHERE
def test_a_message_passes_between_users(person: Start, shared: Path, scene: Scene, container: bool) -> None:
    """With a umask that leaves the group nothing. All files have mode 0660 and the group's, and whoever made it, the other uses it."""
    anna = opened(person(ANNA, shared, container=container), scene, scene.write)
    ben = opened(person(BEN, shared, container=container), scene, scene.read)
    exchange(anna, ben, scene)
    made = [path for path in shared.rglob("*") if not path.is_dir()]
    assert made
    for path in made:
        about = path.stat()
        assert (about.st_gid, stat.S_IMODE(about.st_mode), about.st_uid in (ANNA, BEN)) == (ROBOT, 0o660, True), path


@WHERE
def test_a_killed_reader_holds_nobody_up(person: Start, shared: Path, scene: Scene, container: bool) -> None:
    """The writer counts it no more, sends more than the channel holds, and the next reader gets what is sent."""
    anna = opened(person(ANNA, shared, container=container), scene, scene.write)
    alone, readers = members(anna), anna.value("getattr(end, 'readers', 0)")
    ben = opened(person(BEN, shared, container=container), scene, scene.read)
    exchange(anna, ben, scene)
    assert members(anna) > alone
    ben.kill()
    until(lambda: members(anna) == alone, "the dead reader is counted")
    until(lambda: anna.value("getattr(end, 'readers', 0)") == readers, "the dead reader is sent to")
    if scene.more:
        anna.do(scene.more)
        anna.do(scene.send)  # the last value of its key
    again = opened(person(BEN, shared, container=container), scene, scene.read)
    exchange(anna, again, scene)


@WHERE
def test_a_killed_writer_leaves_its_place(person: Start, shared: Path, scene: Scene, container: bool) -> None:
    """Another user writes to the file that the dead one made, and the reader that was there goes on."""
    anna = opened(person(ANNA, shared, container=container), scene, scene.write)
    ben = opened(person(BEN, shared, container=container), scene, scene.read)
    exchange(anna, ben, scene)
    both = members(ben)
    anna.kill()
    until(lambda: members(ben) < both, "the dead writer is counted")
    again = opened(person(BEN, shared, container=container), scene, scene.write)
    exchange(again, ben, scene)


@WHERE
def test_a_claim_of_a_killed_user_is_repaired(person: Start, shared: Path, container: bool) -> None:
    """The reader fills the hole in another user's file, through a mapping that it may write."""
    scene = SCENES["log"]
    anna = opened(person(ANNA, shared, container=container), scene, scene.write)
    ben = opened(person(BEN, shared, container=container), scene, scene.read)
    other = opened(person(BEN, shared), scene, scene.write)
    anna.do("claim = end.claim(100)")
    other.do(scene.send)
    assert ben.value("end.try_recv()") is None
    anna.kill()
    assert ben.value(scene.receive) == scene.arrives
    assert ben.value("penstock.inspect(uri).totals.repaired") == 1


@WHERE
def test_a_socket_changes_hands_between_users(person: Start, shared: Path, container: bool) -> None:
    """The receiver that owned the socket is killed: another user's takes it over, with the images' files."""
    scene = replace(SCENES["udp"], uri=f"udp://127.0.0.1:{free_port()}/7")
    first = opened(person(ANNA, shared, container=container), scene, scene.read)
    second = opened(person(BEN, shared, container=container), scene, scene.read)
    writer = opened(person(ANNA, shared), scene, scene.write)
    exchange(writer, first, scene)
    assert second.value(scene.receive) == scene.arrives
    first.kill()
    writer.do(scene.send)
    assert second.value(scene.receive) == scene.arrives


def test_users_of_the_group_remove_each_others(person: Start, shared: Path, scene: Scene) -> None:
    """By name, while it is open, and once it is unused; dead files are swept."""
    anna = opened(person(ANNA, shared), scene, scene.write)
    ben = person(BEN, shared)
    listed = ben.value("[one.channel for one in penstock.list_channels()]")
    assert listed == [scene.uri]
    anna.kill()
    if not scene.uri.startswith("udp"):
        assert ben.value("penstock.inspect('" + scene.uri + "').members") == ()
    ben.do(f"penstock.remove({scene.uri!r})")
    assert ben.value("penstock.list_channels()") == []
    assert [path for path in shared.iterdir() if not path.name.startswith(".")] == []


def test_a_user_outside_the_group_is_kept_out(person: Start, shared: Path, scene: Scene) -> None:
    """It cannot look, join, or make a channel; and a program that does not ask for sharing is told how."""
    opened(person(ANNA, shared), scene, scene.write)
    carl = person(CARL, shared)
    for call in (f"penstock.subscribe({scene.uri!r})", "penstock.list_channels()", "penstock.publish('log:mine')"):
        with pytest.raises(Refused, match=f"cannot open the channel folder {shared}"):
            carl.value(call)
    with pytest.raises(Refused, match=r"belongs to user 0, not to you .*PENSTOCK_SHARE=group"):
        person(BEN, shared, share=None).value(f"penstock.subscribe({scene.uri!r})")
