"""Sockets whose partner leaves, is killed, is stopped, or comes again."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conformance.sockets import Meeting, Role
from conformance.subjects import PATIENCE

import penstock

spawn = multiprocessing.get_context("spawn")


def _attend(role: Role, uri: str, sends: bool, there: Any) -> None:
    """The partner of `role` in a process of its own: it says something, and waits for its end."""
    with penstock.join(uri, role=role.partner, **role.options) as other:
        other.wait_for_readers(1, timeout=PATIENCE)
        if sends:
            other.send(b"last")
        there.set()
        threading.Event().wait()


@contextlib.contextmanager
def _partner(meeting: Meeting, *, sends: bool) -> Iterator[Any]:
    there = spawn.Event()
    child = spawn.Process(target=_attend, args=(meeting.role, meeting.uri, sends, there))
    child.start()
    try:
        assert there.wait(PATIENCE)
        yield child
    finally:
        child.kill()
        child.join()


def _sending(socket: Any) -> list[Any]:
    """Every way in which a pair or a dealer sends."""
    return [
        lambda: socket.send(b"", timeout=PATIENCE),
        lambda: socket.offer(b""),
        lambda: socket.offer_many([b""]),
        lambda: socket.claim(1, timeout=PATIENCE),
        lambda: asyncio.run(socket.send_async(b"", timeout=PATIENCE)),
        lambda: asyncio.run(socket.claim_async(1, timeout=PATIENCE)),
    ]


def _receiving(socket: Any) -> list[Any]:
    """Every way in which it receives. Each that waits would wait for ever."""
    return [
        socket.recv,
        socket.try_recv,
        socket.poll,
        socket.poll_arrow,
        lambda: socket.borrow().__enter__(),
        lambda: asyncio.run(socket.recv_async()),
        lambda: asyncio.run(socket.borrow_async()),
    ]


def _see_the_end(meeting: Meeting, socket: Any) -> None:
    for call in _receiving(socket):
        with pytest.raises(penstock.EndOfStream, match=f"^{meeting.pattern}: .*left, and all was read"):
            call()
    assert list(socket) == []
    assert penstock.wait([socket], PATIENCE) == [socket]
    assert socket.readers == 0
    for call in _sending(socket):
        with pytest.raises(penstock.Disconnected, match=f"^{meeting.pattern}: .*left or died"):
            call()


def test_socket_ends_when_its_partner_leaves(meeting):
    """When the last peer that could send to a pair or a dealer has left, it gets what is there. Then every call that receives raises `EndOfStream`, iteration ends, and every call that sends raises `Disconnected`."""
    one, other = meeting.two()
    for body in (b"1", b"2", b"3"):
        meeting.give(other, body)
    other.close()
    assert meeting.body(one.recv()) == b"1"
    assert [meeting.body(message) for message in one.poll()] == [b"2", b"3"]
    _see_the_end(meeting, one)


def test_socket_ends_when_its_partner_is_killed(meeting):
    """The same when it was killed, also for a call that waits already."""
    one = meeting.join(meeting.role.name)
    with _partner(meeting, sends=meeting.role.name == "pair") as child:
        one.wait_for_readers(1, timeout=PATIENCE)
        if meeting.role.name == "pair":
            assert one.recv(timeout=PATIENCE) == b"last"
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.extend(one))
        waiting.start()
        child.kill()
        child.join()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert found == []
        _see_the_end(meeting, one)


def test_socket_that_sends_first_learns_of_a_kill(meeting):
    """A pair or a dealer that only sends hears of the death too: at most the messages of some milliseconds are lost, and counted."""
    one = meeting.join(meeting.role.name)
    with _partner(meeting, sends=False) as child:
        one.send(b"first", timeout=PATIENCE)
        child.kill()
        child.join()
        sent = 1
        with pytest.raises(penstock.Disconnected, match=meeting.pattern):
            while True:
                one.send(b"more", timeout=PATIENCE)
                sent += 1
        totals = penstock.inspect(meeting.uri).totals
        assert totals.messages_sent == sent
        assert totals.messages_lost == sent


def test_socket_stopped_partner_is_there(meeting):
    """A partner that is stopped is alive: nothing ends. When it goes on, its messages arrive."""
    one = meeting.join(meeting.role.name)
    with _partner(meeting, sends=meeting.role.name == "pair") as child:
        one.wait_for_readers(1, timeout=PATIENCE)
        if meeting.role.name == "pair":
            assert one.recv(timeout=PATIENCE) == b"last"
        os.kill(child.pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                with pytest.raises(penstock.TimedOut):
                    one.recv(timeout=0.05)
            assert one.readers == 1
            assert one.send(b"1", timeout=PATIENCE)
        finally:
            os.kill(child.pid, signal.SIGCONT)


def test_socket_partner_that_was_never_there_is_awaited(meeting):
    """Before the first partner has come, calls wait for it: sockets start in any order."""
    one = meeting.join(meeting.role.name)
    with pytest.raises(penstock.TimedOut):
        one.recv(timeout=0.05)
    assert one.try_recv() is None
    assert one.offer(b"") is None
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(one.recv(timeout=PATIENCE)))
    waiting.start()
    other = meeting.join(meeting.role.partner)
    other.wait_for_readers(1, timeout=PATIENCE)
    meeting.give(other, b"1")
    waiting.join(PATIENCE)
    assert got == [b"1"]


def test_socket_goes_on_with_the_next_partner(meeting):
    """A partner that comes after the end ends it: both go on, and only messages of the new one arrive."""
    one, other = meeting.two()
    one.send(b"for the first, which never reads it", timeout=PATIENCE)
    other.close()
    with pytest.raises(penstock.EndOfStream):
        one.recv(timeout=PATIENCE)
    again = meeting.join(meeting.role.partner)
    one.wait_for_readers(1, timeout=PATIENCE)
    assert one.send(b"1", timeout=PATIENCE)
    assert meeting.body(again.recv(timeout=PATIENCE)) == b"1"
    meeting.give(again, b"2")
    assert one.recv(timeout=PATIENCE) == b"2"
    again.close()
    _see_the_end(meeting, one)


def test_socket_server_waits_for_the_next_client(meeting):
    """A server outlives its clients: when all have left or died, a router, a replier, a pusher and a puller wait for the next one."""
    one, other = meeting.two()
    other.close()
    if meeting.role.name != "push":
        with pytest.raises(penstock.TimedOut):
            one.recv(timeout=0.05)
    else:  # a message for the connection that ends would be lost with it
        deadline = time.monotonic() + PATIENCE
        while one.readers:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    again = meeting.join(meeting.role.partner, name="the next")
    again.wait_for_readers(1, timeout=PATIENCE)
    if meeting.role.name == "push":
        one.wait_for_readers(1, timeout=PATIENCE)
        one.send(b"1", timeout=PATIENCE)
        assert again.recv(timeout=PATIENCE) == b"1"
    else:
        meeting.give(again, b"1")
        assert meeting.body(one.recv(timeout=PATIENCE)) == b"1"


def test_socket_request_ends_with_its_server(meeting):
    """A requester never waits for servers that have all left or died: `Disconnected`, also without a timeout. With retries and a timeout it waits for the next server."""
    one, other = meeting.two()
    pending = one.submit(b"1", timeout=PATIENCE)
    again = one.submit(b"2", timeout=PATIENCE, retries=1)
    other.close()
    for request in (pending, again):
        with pytest.raises(penstock.Disconnected, match=meeting.pattern):
            request.result()
    calls = [one.request, one.submit]
    calls += [lambda body, call=call: asyncio.run(call(body)) for call in (one.request_async, one.submit_async)]
    for call in calls:
        with pytest.raises(penstock.Disconnected, match=f"^{meeting.pattern}: .*left or died"):
            call(b"")
    found: list[Any] = []
    asks = [
        lambda: found.append(one.request(b"3", timeout=PATIENCE, retries=1)),
        lambda: found.append(asyncio.run(one.request_async(b"3", timeout=PATIENCE, retries=1))),
        lambda: found.append(one.submit(b"3", timeout=PATIENCE, retries=1).result(timeout=PATIENCE)),
    ]
    waiting = [threading.Thread(target=ask) for ask in asks]
    for thread in waiting:
        thread.start()
    server = meeting.join("reply", name="the next")
    server.serve(lambda body: b"re " + body, count=3)
    for thread in waiting:
        thread.join(PATIENCE)
    assert found == [b"re 3"] * 3


def test_socket_request_ends_with_its_killed_server(meeting):
    """The same when the only server was killed."""
    one = meeting.join("request")
    with _partner(meeting, sends=False) as child:
        pending = one.submit(b"1", timeout=PATIENCE)
        child.kill()
        with pytest.raises(penstock.Disconnected, match=meeting.pattern):
            pending.result()
        with pytest.raises(penstock.Disconnected, match=meeting.pattern):
            one.request(b"2")
