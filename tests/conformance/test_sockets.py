"""Sockets of the patterns."""

from __future__ import annotations

import asyncio
import pickle
import select
import signal
import threading

import numpy as np
import pytest
from conformance.mistakes import write_in_a_child
from conformance.subjects import LENGTH, PATIENCE

import penstock


def test_socket_joins(meeting):
    """`join` with a role returns a socket: it knows its channel and its name, is a context manager and may be closed twice."""
    with meeting.join(meeting.role.name) as socket:
        assert socket.channel == meeting.uri
        assert socket.name == f"a {meeting.role.name}"
        assert not socket.closed
        assert meeting.uri in repr(socket)
    assert socket.closed
    socket.close()
    with pytest.raises(penstock.Closed, match=meeting.pattern):
        socket.wait_for_readers(1, timeout=PATIENCE)


def test_socket_sends(meeting):
    """`send` and `offer` return the bytes that this socket has written."""
    one, other = meeting.two()
    to = meeting.to(meeting.role.name)
    first, second = one.send(b"1", timeout=PATIENCE, **to), one.offer(b"2", **to)
    assert 0 < first < second == one.send_position
    assert one.offer_many([b"3", b"4"], **to) == 2
    assert [meeting.body(other.recv(timeout=PATIENCE)) for _ in range(4)] == [b"1", b"2", b"3", b"4"]


def test_socket_asends(meeting):
    """`send_async` waits for room in the event loop. A cancelled one has sent nothing."""
    one, other = meeting.two(max_messages=1)
    to = meeting.to(meeting.role.name)

    async def work() -> None:
        sent = []
        with pytest.raises(penstock.TimedOut, match=meeting.pattern):
            while len(sent) < 100_000:  # ZeroMQ fills the kernel's buffers, too, in a thread of its own
                await one.send_async(b"%06d" % len(sent) * 100, timeout=0.1, **to)
                sent.append(b"%06d" % len(sent) * 100)
        waiting = [asyncio.ensure_future(one.send_async(body, timeout=PATIENCE, **to)) for body in (b"never", b"last")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        if not waiting[0].cancelled():  # there was room after all
            sent.append(b"never")
        received = [meeting.body(await other.recv_async(timeout=PATIENCE)) for _ in range(len(sent) + 1)]
        assert received == [*sent, b"last"]
        await waiting[1]

    asyncio.run(work())
    assert other.try_recv() is None


def test_socket_offers(meeting):
    """`offer` takes what `send` takes: messages of up to `max_payload` bytes. A longer one is `TooLarge` for both."""
    one, other = meeting.two()
    to = meeting.to(meeting.role.name)
    most = min(one.max_payload, 1 << 20)  # over ZeroMQ only memory limits a message
    for send in (one.send, one.offer, lambda body, **to: one.offer_many([body], **to)):
        assert send(bytes(most), **to)
        assert len(meeting.body(other.recv(timeout=PATIENCE))) == most
        if most == one.max_payload:
            with pytest.raises(penstock.TooLarge, match=meeting.pattern):
                send(bytes(most + 1), **to)


def test_socket_claims(meeting):
    """`claim` gives room to write in place. It commits at the end of the block, and aborts on an exception."""
    one, other = meeting.two()
    to = meeting.to(meeting.role.name)
    with pytest.raises(ZeroDivisionError), one.claim(3, timeout=PATIENCE, **to) as view:
        view[:] = b"not"
        raise ZeroDivisionError
    with one.claim(3, timeout=PATIENCE, **to) as view:
        view[:] = b"yes"
    assert meeting.body(other.recv(timeout=PATIENCE)) == b"yes"


def test_socket_aclaims(meeting):
    """`claim_async` does the same in an event loop."""
    one, other = meeting.two()

    async def work() -> None:
        with await one.claim_async(3, timeout=PATIENCE, **meeting.to(meeting.role.name)) as view:
            view[:] = b"yes"

    asyncio.run(work())
    assert meeting.body(other.recv(timeout=PATIENCE)) == b"yes"


def test_socket_receives(meeting):
    """`recv`, `try_recv` and `poll` return messages in the order in which one peer sent them. None waits longer than it is told."""
    one, other = meeting.two()
    with pytest.raises(penstock.TimedOut, match=meeting.pattern):
        one.recv(timeout=0)
    assert one.try_recv() is None
    assert one.poll() == []
    for i in range(5):
        meeting.give(other, b"%d" % i)
    assert meeting.body(one.recv(timeout=PATIENCE)) == b"0"
    found = []
    while len(found) < 4:
        assert penstock.wait([one], PATIENCE) == [one]
        found += [meeting.body(message) for message in one.poll(3)]
    assert found == [b"1", b"2", b"3", b"4"]


def test_socket_areceives(meeting):
    """`recv_async` and `async for` wait in an event loop. Cancelling `recv_async` loses nothing."""
    one, other = meeting.two()

    async def work() -> list[bytes]:
        with pytest.raises(penstock.TimedOut, match=meeting.pattern):
            await one.recv_async(timeout=0.01)
        given_up = asyncio.ensure_future(one.recv_async())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        for i in range(3):
            meeting.give(other, b"%d" % i)
        found = [meeting.body(await one.recv_async(timeout=PATIENCE))]
        async for message in one:
            found.append(meeting.body(message))
            if len(found) == 3:
                return found
        raise AssertionError("the iteration has ended")

    assert asyncio.run(work()) == [b"0", b"1", b"2"]


def test_socket_iterates(meeting):
    """`for message in socket` waits for messages. It ends when another thread closes the socket."""
    one, other = meeting.two()
    meeting.give(other, b"1")
    found = []
    for message in one:
        found.append(meeting.body(message))
        threading.Thread(target=one.close).start()
    assert found == [b"1"]


def test_socket_parts(meeting):
    """A list is a message of several parts, which arrive together."""
    one, other = meeting.two()
    assert meeting.exchange(one, other, [b"a", b"", b"b"]) == [b"a", b"", b"b"]


def test_socket_borrows(meeting):
    """`borrow` reads the next message in place, and `borrow_async` does so in an event loop. A message of several parts is left for `recv`."""
    one, other = meeting.two()
    meeting.give(other, b"x" * 300)
    with one.borrow(timeout=PATIENCE) as view:
        assert bytes(view) == b"x" * 300
    with pytest.raises(penstock.TimedOut, match=meeting.pattern):
        one.borrow(timeout=0.01).__enter__()
    meeting.give(other, [b"a", b"b"])
    with pytest.raises(penstock.Invalid, match=r"has 2 parts|several parts"):
        one.borrow(timeout=PATIENCE).__enter__()
    assert meeting.body(one.recv(timeout=PATIENCE)) == [b"a", b"b"]

    async def work() -> bytes:
        waiting = asyncio.ensure_future(one.borrow_async(timeout=PATIENCE))
        await asyncio.sleep(0)
        meeting.give(other, b"y")
        with await waiting as view:
            return bytes(view)

    assert asyncio.run(work()) == b"y"
    assert one.lag == 0 if meeting.role.backend != "zmq" else one.try_recv() is None


def test_a_socket_lends_what_nobody_changes(meeting):
    """A socket reads and writes one file. Yet a lent message is read-only: a process that writes to it ends with SIGSEGV."""
    one, other = meeting.two()
    meeting.give(other, b"x" * LENGTH)
    with one.borrow(timeout=PATIENCE) as view:
        array = np.frombuffer(view, "u1")
        assert not array.flags.writeable
        assert write_in_a_child(array.ctypes.data) == (0 if meeting.role.backend == "zmq" else signal.SIGSEGV)
        assert array.tobytes() == b"x" * LENGTH
        del array


def test_socket_polls_arrow(meeting):
    """`poll_arrow` returns one Arrow batch with at least position, session, payload and time. A router's says the sender, too."""
    one, other = meeting.two()
    bodies = [b"%d" % i for i in range(3)]
    for body in [*bodies, [b"a", b"b"], b"after"]:
        meeting.give(other, body)
    found = []
    while len(found) < 3:
        assert penstock.wait([one], PATIENCE) == [one]
        batch = one.poll_arrow()
        assert {"position", "session", "payload", "time"} <= set(batch.schema.names)
        found += batch["payload"].to_pylist()
        if meeting.role.name == "router":
            assert set(batch["sender"].to_pylist()) == {"a dealer"}
    assert found == bodies  # a message of several parts ends the batch
    assert penstock.wait([one], PATIENCE) == [one]
    with pytest.raises(penstock.Invalid, match=r"has 2 parts|several parts"):
        one.poll_arrow()
    assert meeting.body(one.recv(timeout=PATIENCE)) == [b"a", b"b"]
    assert penstock.wait([one], PATIENCE) == [one]
    assert one.poll_arrow()["payload"].to_pylist() == [b"after"]
    assert one.poll_arrow().num_rows == 0


def test_socket_asks(meeting):
    """`request` sends and waits for the reply; `submit` does not wait. Each has an async twin."""
    one, other = meeting.two()
    served = threading.Thread(target=other.serve, args=(lambda body: b"re " + body, 4))
    served.start()
    assert one.request(b"1", timeout=PATIENCE) == b"re 1"
    assert one.submit(b"2", timeout=PATIENCE).result(PATIENCE) == b"re 2"

    async def work() -> list[bytes]:
        first = await one.request_async(b"3", timeout=PATIENCE)
        pending = await one.submit_async(b"4", timeout=PATIENCE)
        return [first, await pending.result_async(PATIENCE)]

    assert asyncio.run(work()) == [b"re 3", b"re 4"]
    served.join(PATIENCE)


def test_socket_answers(meeting):
    """A request that was received is answered by its `reply`, in any order. `reply_async` waits in an event loop."""
    one, other = meeting.two()
    first, second = other.submit(b"1", timeout=PATIENCE), other.submit(b"2", timeout=PATIENCE)
    requests = [one.recv(timeout=PATIENCE) for _ in range(2)]
    assert {request.sender for request in requests} == {"a request"}
    assert requests[1].reply(b"re 2", timeout=PATIENCE)
    assert asyncio.run(requests[0].reply_async(b"re 1", timeout=PATIENCE))
    assert (first.result(PATIENCE), second.result(PATIENCE)) == (b"re 1", b"re 2")


def test_socket_fileno(meeting):
    """`fileno()` is readable as long as there is something to read."""
    one, other = meeting.two()
    meeting.give(other, b"1")
    for _ in range(2):
        assert select.select([one], [], [], PATIENCE)[0] == [one]
    assert meeting.body(one.recv(timeout=PATIENCE)) == b"1"


def test_socket_last(meeting):
    """`last` says where and when the message received last was sent, or came."""
    one, other = meeting.two()
    meeting.give(other, b"1")
    one.recv(timeout=PATIENCE)
    assert one.last.position >= 0
    assert one.last.time_ns > 1_600_000_000_000_000_000


def test_socket_readers(meeting):
    """`readers` counts the peers. `wait_for_readers` waits for them, and `wait_for_readers_async` does so in an event loop."""
    one = meeting.join(meeting.role.name)
    with pytest.raises(penstock.TimedOut, match=meeting.pattern):
        one.wait_for_readers(1, timeout=0.01)

    async def work() -> None:
        with pytest.raises(penstock.TimedOut, match=meeting.pattern):
            await one.wait_for_readers_async(1, timeout=0.01)
        waiting = asyncio.ensure_future(one.wait_for_readers_async(1, timeout=PATIENCE))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(meeting.join, meeting.role.partner)
        await waiting

    asyncio.run(work())
    assert one.readers == 1


def test_socket_codec(meeting):
    """With a codec, messages are objects."""
    one, other = meeting.two(codec="json")
    assert meeting.exchange(one, other, {"a": [1, None]}) == {"a": [1, None]}


def test_socket_unsendable(meeting):
    """A value that the codec cannot carry is `Invalid`, which names the channel, in every call that sends. Nothing is sent."""
    one, other = meeting.two(codec="json")
    for sender, receiver in ((one, other), (other, one)):
        role = sender.name.removeprefix("a ")
        to = meeting.to(role)
        calls = []
        if role == "request":
            calls = [sender.request, sender.submit]
            calls += [
                lambda value, call=call: asyncio.run(call(value))
                for call in (sender.request_async, sender.submit_async)
            ]
        elif role == "reply":
            pending = receiver.submit(1, timeout=PATIENCE)
            request = sender.recv(timeout=PATIENCE)
            calls = [request.reply, lambda value, reply=request.reply_async: asyncio.run(reply(value))]
        elif role != "pull":
            calls = [lambda value, call=call, to=to: call(value, **to) for call in (sender.send, sender.offer)]
            calls += [lambda value, call=sender.offer_many, to=to: call([1, value], **to)]
            calls += [lambda value, call=sender.send_async, to=to: asyncio.run(call(value, **to))]
        for call in calls:
            with pytest.raises(penstock.Invalid, match=f"^{meeting.pattern}: "):
                call(object())
        if role == "reply":
            assert request.reply(2, timeout=PATIENCE)
            assert pending.result(PATIENCE) == 2
    assert meeting.exchange(one, other, "after") == "after"


def test_socket_bad_timeout(meeting):
    """A timeout that is no number from 0 on is `Invalid`, also in a call that need not wait."""
    one, other = meeting.two()
    for end in (one, other):
        calls = [end.wait_for_readers, end.wait_for_readers_async]
        role = end.name.removeprefix("a ")
        if role == "request":
            calls += [
                lambda timeout, call=call: call(b"", timeout)
                for call in (end.request, end.submit, end.request_async, end.submit_async)
            ]
        elif role not in ("reply", "pull"):
            to = meeting.to(role)
            calls += [lambda timeout, call=call, to=to: call(b"", timeout, **to) for call in (end.send, end.send_async)]
        if role not in ("request", "push"):
            calls += [end.recv, end.recv_async]
        for call in calls:
            counted = (1,) if call in (end.wait_for_readers, end.wait_for_readers_async) else ()
            for wrong in (-1, float("nan"), "soon"):
                with pytest.raises(penstock.Invalid, match=f"^{meeting.pattern}: timeout is "):
                    found = call(*counted, wrong)
                    asyncio.run(found)
    assert meeting.exchange(one, other, b"1") == b"1"


def test_socket_limits(meeting):
    """A limit of `poll` that is no whole number is a `TypeError`, and one below 0 is `Invalid`."""
    one, other = meeting.two()
    for end in (one, other):
        if end.name.removeprefix("a ") in ("request", "push"):
            continue
        with pytest.raises(TypeError, match=f"^{meeting.pattern}: .*limit is a whole number, not str"):
            end.poll("a")
        with pytest.raises(penstock.Invalid, match=f"^{meeting.pattern}: .*limit is -1: it must be from 0 to "):
            end.poll(-1)


def test_socket_pickles(meeting):
    """A socket pickles into a new peer of the same role and name. A closed one does not pickle: `Closed`."""
    one, other = meeting.two()
    data = pickle.dumps(one)
    one.close()
    with pytest.raises(penstock.Closed, match=meeting.pattern):
        pickle.dumps(one)
    with pickle.loads(data) as again:
        assert again.name == one.name
        assert type(again) is type(one)
        other.wait_for_readers(1, timeout=PATIENCE)
        again.wait_for_readers(1, timeout=PATIENCE)
        if meeting.role.name == "dealer":
            again.send(b"hello", timeout=PATIENCE)
            other.recv(timeout=PATIENCE)
        assert meeting.exchange(again, other, b"1") == b"1"
