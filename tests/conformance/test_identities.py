"""Names of peers: whose they are, and that no two living ones share one."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from typing import Any

import pytest
from conformance.sockets import Role
from conformance.subjects import PATIENCE, Subject

import penstock

spawn = multiprocessing.get_context("spawn")


def _join_and_wait(role: Role, uri: str, there: Any) -> None:
    with penstock.join(uri, role=role.name, name="its own", **role.options):
        there.set()
        threading.Event().wait()


def _publish_and_wait(subject: Subject, uri: str, there: Any) -> None:
    opened = penstock.join if subject.kind == "member" else penstock.publish
    with opened(uri, name="its own", **subject.small):
        there.set()
        threading.Event().wait()


def _exit_by(call: Any) -> int:
    """The status of a forked child that calls `call`: 0 if that returned True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if call() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_socket_drawn_names_are_unique(meeting):
    """A socket without a name has one that no other has, in the same process too. A pickled one draws its own."""
    ones = [meeting.join(meeting.role.name, name=None)]
    others = [meeting.join(meeting.role.partner, name=None)]
    if meeting.role.name != "pair":
        ones += [meeting.join(meeting.role.name, name=None) for _ in range(3)]
        others += [meeting.join(meeting.role.partner, name=None) for _ in range(3)]
        ones.append(pickle.loads(pickle.dumps(ones[0])))
        meeting.handles.append(ones[-1])
    names = {socket.name for socket in [*ones, *others]}
    assert len(names) == len(ones) + len(others)
    assert all(name.startswith(f"{os.getpid()}-") for name in names)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_socket_forked_draws_another_name(meeting):
    """A forked child's inherited socket has a name of its own. The parent's stays."""
    one = meeting.join(meeting.role.name, name=None)
    before = one.name
    other = meeting.join(meeting.role.partner, name=None)
    one.wait_for_readers(1, timeout=PATIENCE)
    if meeting.role.name == "pair":
        other.close()  # a pair has two peers, and the child is one
    assert _exit_by(lambda: one.statistics() and one.name != before and one.name.startswith(f"{os.getpid()}-")) == 0
    assert one.name == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dealers_get_their_own_answers(meeting):
    """Dealers without names get the answers to their own messages: several of one process, and an inherited one."""
    router = meeting.join("router")
    dealers = [meeting.join("dealer", name=None) for _ in range(3)]
    done = threading.Event()

    def answer() -> None:
        while not done.is_set():
            found = router.poll()
            for sender, body in found:
                router.send(b"re " + body, to=sender, timeout=PATIENCE)

    serving = threading.Thread(target=answer)
    serving.start()

    def own(dealer: Any, body: bytes) -> bool:
        dealer.send(body, timeout=PATIENCE)
        return dealer.recv(timeout=PATIENCE) == b"re " + body and dealer.try_recv() is None

    try:
        for number, dealer in enumerate(dealers):
            dealer.send(b"%d" % number, timeout=PATIENCE)
        assert [dealer.recv(timeout=PATIENCE) for dealer in dealers] == [b"re 0", b"re 1", b"re 2"]
        if meeting.role.backend != "zmq":  # there a child that forks beside a thread of ZeroMQ's joins by itself
            assert _exit_by(lambda: own(dealers[0], b"child")) == 0
        assert own(dealers[0], b"parent")
    finally:
        done.set()
        serving.join()


def test_socket_name_belongs_to_one(meeting):
    """A second living socket of the same name is `Busy`, whatever its role. When the first one has left, the name is free."""
    one = meeting.join(meeting.role.name, name="its own")
    for role in (meeting.role.name, meeting.role.partner):
        with pytest.raises(penstock.Busy, match=f"^{meeting.pattern}: .*'its own'"):
            meeting.join(role, name="its own")
    with pytest.raises(penstock.Busy, match="'its own'"):
        pickle.loads(pickle.dumps(one))
    one.close()
    assert meeting.join(meeting.role.partner, name="its own").name == "its own"


def test_socket_name_of_a_dead_one_is_free(meeting):
    """A name of a process that was killed is free again. One that lives elsewhere keeps it."""
    there = spawn.Event()
    child = spawn.Process(target=_join_and_wait, args=(meeting.role, meeting.uri, there))
    child.start()
    try:
        assert there.wait(PATIENCE)
        with pytest.raises(penstock.Busy, match=f"^{meeting.pattern}: .*'its own'"):
            meeting.join(meeting.role.name, name="its own")
    finally:
        child.kill()
        child.join()
    assert meeting.join(meeting.role.name, name="its own").name == "its own"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_socket_name_is_not_inherited(meeting):
    """A forked child cannot use an inherited socket whose name its parent has: `Busy`."""
    one = meeting.join(meeting.role.name, name="its own", **({"bind": False} if meeting.role.backend == "zmq" else {}))

    def refused() -> bool:
        with pytest.raises(penstock.Busy, match=meeting.pattern):
            one.wait_for_readers(1, timeout=0)
        return True

    assert _exit_by(refused) == 0


def test_name_belongs_to_one(place):
    """The name of a publication, a subscription or a member belongs to one that lives: a second one is `Busy`. When its process has died, it is free."""
    there = spawn.Event()
    child = spawn.Process(target=_publish_and_wait, args=(place.subject, place.uri, there))
    child.start()
    try:
        assert there.wait(PATIENCE)
        for opened in (place.publish, *([place.subscribe] if place.subject.kind in ("pipe", "member") else [])):
            with pytest.raises(penstock.Busy, match=f"^{place.pattern}: .*'its own'"):
                opened(name="its own")
    finally:
        child.kill()
        child.join()
    place.publish(name="its own")
    with pytest.raises(penstock.Busy, match="'its own'"):
        place.publish(name="its own")
    place.publish(name="another")
