"""A sync queue: every member reads what the others write, in one order, and no member waits for the dead or for itself."""

import asyncio
import multiprocessing as mp
import os
import queue as queues
import signal
import threading
import time

import numpy as np
import pytest

import penstock

S = 1 << 16


@pytest.fixture
def pair():
    """Two members of a small queue."""
    with penstock.join("sync:q", name="a", capacity=S) as a, penstock.join("sync:q", name="b") as b:
        yield a, b


def bodies(messages):
    return [message.body for message in messages]


def test_a_message_has_a_sender_a_type_and_a_body(pair):
    a, b = pair
    before = time.time_ns()
    end = a.send("grüße".encode(), type="greeting")
    message = b.recv(timeout=1)
    assert (message.sender, message.type, message.body, message.text) == ("a", "greeting", "grüße".encode(), "grüße")
    assert message.position == 0 < end
    assert before <= message.time_ns <= time.time_ns()
    b.send(memoryview(b"reply"))
    assert a.recv(timeout=1)[:3] == ("b", "", b"reply")
    assert a.try_recv() is b.try_recv() is None
    with pytest.raises(TimeoutError):
        a.recv(timeout=0)
    with pytest.raises(TimeoutError):
        a.recv(timeout=0.02)


def test_everybody_sees_one_order(pair):
    a, b = pair
    with penstock.join("sync:q", name="c", own=True) as c, penstock.join("sync:q", name="d") as d:
        for i in range(50):
            (a, b, c)[i % 3].send(b"%d" % i)
        assert bodies(d.poll()) == [b"%d" % i for i in range(50)]
        assert bodies(c.poll()) == [b"%d" % i for i in range(50)]  # its own too
        assert bodies(a.poll()) == [b"%d" % i for i in range(50) if i % 3 != 0]
        assert a.screened == 17


def test_bytes_that_are_no_text_are_no_accident(pair):
    a, b = pair
    a.send(b"\xff\x00\xfe", type=b"\x80")
    message = b.recv(timeout=1)
    assert message.body == b"\xff\x00\xfe"
    assert message.text.encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"
    assert message.type.encode("utf-8", "surrogateescape") == b"\x80"
    a.send(b"")
    assert b.recv(timeout=1).body == b""


def test_senders_and_types_are_screened_and_that_may_change(pair):
    a, b = pair
    with penstock.join("sync:q", name="c") as c:
        c.screen(senders={"a"}, types=["noise", b"\x80"])
        a.send(b"1")
        b.send(b"2")
        b.send(b"3", type="noise")
        b.send(b"4", type=b"\x80")
        assert bodies(c.poll()) == [b"2"]
        assert (c.screened_senders, c.screened_types) == ({"a"}, {"noise", "\udc80"})
        c.screen(senders=())
        a.send(b"5")
        a.send(b"6", type="noise")
        assert bodies(c.poll()) == [b"5"]
        c.screen(types=())
        a.send(b"7", type="noise")
        assert bodies(c.poll()) == [b"7"]
        assert c.screened == 4


def test_batches(pair):
    a, b = pair
    assert a.offer_many([b"%d" % i for i in range(100)], type="n") == 100
    got = b.poll(60) + b.poll()
    assert bodies(got) == [b"%d" % i for i in range(100)]
    assert {message.type for message in got} == {"n"}
    found = a.offer_many([bytes(1000)] * 1000, type="n")
    assert 0 < found < 1000
    assert a.offer_many([bytes(1000)] * 1000) == 0, "full is no error"
    assert len(b.poll()) == found
    assert a.offer_many(np.arange(6, dtype="u1").reshape(3, 2), type=b"rows") == 3
    assert bodies(b.poll()) == [b"\0\1", b"\2\3", b"\4\5"]
    with pytest.raises(penstock.TooLarge, match="Use send"):
        a.offer_many([b"", bytes(a.max_payload + 1)])
    assert b.try_recv() is None


def test_a_full_queue_makes_writers_wait(pair):
    a, b = pair
    while a.offer(bytes(1000)) is not None:
        pass
    with pytest.raises(TimeoutError, match=r"member 'b' \(process \d+\) is \d+ bytes behind"):
        a.send(bytes(1000), timeout=0.02)
    threading.Timer(0.1, b.poll).start()
    assert a.send(bytes(1000), timeout=5) > 0


def test_a_message_that_can_never_fit_is_an_error_at_once(pair):
    a, b = pair
    with pytest.raises(penstock.TooLarge, match="takes up to"):
        a.send(bytes(S), timeout=None)
    for size in (S // 4 - 200, S // 4, S // 2 - 100):  # in fragments too
        a.send(bytes(size), timeout=1)
        assert len(b.recv(timeout=1).body) == size
    with pytest.raises(penstock.TooLarge, match="type"):
        a.send(b"x", type="t" * 70_000)


def test_own_messages_never_count_against_their_writer():
    with penstock.join("sync:alone", capacity=S) as a:
        for _i in range(1000):
            a.send(bytes(1000), timeout=1)
        assert a.try_recv() is None
        assert a.name.startswith(f"{os.getpid()}-")
        assert a.spilled == 0


def test_a_member_waiting_to_write_spills_unread_messages(pair):
    a, b = pair
    for i in range(40):
        b.send(b"%d" % i + bytes(1000))
    done = threading.Event()

    def read():
        while not done.is_set():
            b.poll()
            done.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(200):
        a.send(b"%d" % i + bytes(1000), timeout=10)
    done.set()
    reader.join()
    assert a.spilled > 0
    assert [int(body[:-1000]) for body in bodies(a.poll())] == list(range(40))  # nothing was lost, and in order
    assert a.spilled == 0


def test_eight_members_writing_before_reading_do_not_deadlock():
    members = [penstock.join("sync:eight", name=str(i), capacity=S) for i in range(8)]
    failed = queues.Queue()

    def work(me):
        try:
            for _ in range(60):
                me.send(bytes(1000), timeout=20)
            got = 0
            while got < 7 * 60:
                me.recv(timeout=20)
                got += 1
        except Exception as error:
            failed.put(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed.empty(), failed.get()
    for me in members:
        me.close()


def test_own_memory_is_bounded_too():
    with (
        penstock.join("sync:bound", name="a", capacity=S, spill_limit=20_000) as a,
        penstock.join("sync:bound", name="b") as b,
    ):
        for _ in range(40):
            b.send(bytes(1000))
        with pytest.raises(penstock.Busy, match="read before you write"):
            for _ in range(200):
                a.send(bytes(1000), timeout=5)
        assert len(a.poll()) == 40


def test_a_member_may_be_dropped_or_refuse_to_be_waited_for():
    with penstock.join("sync:policy", name="a", capacity=S) as a:
        with penstock.join("sync:policy", name="lazy", when_slow="drop", drop_after=0.05) as lazy:
            for _ in range(200):
                a.send(bytes(1000), timeout=5)
            with pytest.raises(penstock.TooSlow):
                lazy.recv(timeout=1)
            assert lazy.lost > 0
            assert lazy.recv(timeout=1).sender == "a"
        with (
            penstock.join("sync:policy", name="strict", when_slow="fail"),
            pytest.raises(penstock.Busy, match="'strict' does not let writers wait"),
        ):
            for _ in range(200):
                a.send(bytes(1000))
    for wrong in (
        {"when_slow": "x"},
        {"when_slow": "drop"},
        {"when_slow": "fail", "drop_after": 1},
        {"last": -1},
        {"last": 1, "start": 0},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.join("sync:policy", **wrong)


def test_joining_from_what_is_kept(pair):
    a, _ = pair
    for i in range(10):
        a.send(b"%d" % i)
    with penstock.join("sync:q", start="earliest") as c:
        assert bodies(c.poll()) == [b"%d" % i for i in range(10)]
    with penstock.join("sync:q", last=3) as c:
        assert bodies(c.poll()) == [b"7", b"8", b"9"]
        a.send(b"new")
        assert c.recv(timeout=1).text == "new"
    with penstock.join("sync:q", last=0) as c:
        assert c.try_recv() is None
    with penstock.join("sync:q") as c:
        assert c.try_recv() is None


def test_who_is_here_and_who_came_and_went(pair):
    a, b = pair
    assert a.senders == {"a", "b"}
    assert a.changes() == [penstock.kinds.sync.opener.Change(True, "b", os.getpid())]
    threading.Timer(0.05, lambda: late.append(penstock.join("sync:q", name="late"))).start()
    late = []
    a.wait_for({"b", "late"}, timeout=10)
    with pytest.raises(TimeoutError, match="nobody"):
        a.wait_for({"b", "nobody"}, timeout=0.02)
    assert [(change.joined, change.name) for change in a.changes()] == [(True, "late")]
    while not late:
        pass
    late[0].close()
    assert [(change.joined, change.name) for change in a.changes()] == [(False, "late")]
    assert b.lag == 0


def test_the_last_one_removes_the_queue():
    a = penstock.join("sync:gone", name="a")
    b = penstock.join("sync:gone", name="b")
    a.close()
    assert penstock.inspect("sync:gone").codec == "bytes"
    b.send(b"x")
    b.close()
    b.close()
    with pytest.raises(penstock.NotFound):
        penstock.inspect("sync:gone")
    with pytest.raises(penstock.Closed):
        b.send(b"y")


def test_joining_while_the_last_one_leaves_is_never_lost():
    failed = queues.Queue()

    def come_and_go(name):
        try:
            for _ in range(150):
                with (
                    penstock.join("sync:churn", name=name, capacity=S) as me,
                    penstock.join("sync:churn", name=name + "2", capacity=S) as other,
                ):
                    other.send(b"x")
                    while me.recv(timeout=10).sender != name + "2":
                        pass
        except Exception as error:
            failed.put(error)

    threads = [threading.Thread(target=come_and_go, args=(name,)) for name in ("p", "q")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed.empty(), failed.get()
    with pytest.raises(penstock.NotFound):
        penstock.inspect("sync:churn")


def _echo(folder, name, count):
    os.environ["PENSTOCK_DIR"] = folder  # a fork server has the environment of its starter
    with penstock.join("sync:procs", name=name) as me:
        me.wait_for({"0", "1", "2"}, timeout=60)
        for i in range(count):
            me.send(b"%d" % i, type="n", timeout=60)
        seen = {}
        while sum(seen.values()) < 2 * count:
            message = me.recv(timeout=60)
            assert int(message.body) == seen.get(message.sender, 0)
            seen[message.sender] = seen.get(message.sender, 0) + 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_by_every_way_of_starting_them(how):
    with penstock.join("sync:procs", name="keeper", capacity=S) as keeper:
        context = mp.get_context(how)
        children = [context.Process(target=_echo, args=(os.environ["PENSTOCK_DIR"], str(i), 500)) for i in range(3)]
        for child in children:
            child.start()
        got = sum(keeper.recv(timeout=60).type == "n" for _ in range(1500))
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert got == 1500


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_dead_are_not_waited_for(pair):
    a, b = pair
    pid = os.fork()
    if pid == 0:
        doomed = penstock.join("sync:q", name="doomed")
        doomed.send(b"last words")
        signal.pause()
        doomed.close()
    a.wait_for({"doomed"}, timeout=10)
    assert a.recv(timeout=10).body == b.recv(timeout=10).body == b"last words"
    assert [change.name for change in a.changes()] == ["b", "doomed"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    status = penstock.inspect("sync:q")
    assert status.totals.messages_sent == 1, "nobody has cleared its place yet, and what it wrote counts"
    assert {member.name for member in status.members} == {"a", "b"}
    for _ in range(300):
        a.send(bytes(1000), timeout=5)
        b.recv(timeout=5)
    assert [(change.joined, change.name) for change in a.changes()] == [(False, "doomed")]
    assert a.senders == {"a", "b"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_handle_is_a_member_of_its_own():
    with penstock.join("sync:q", name="a", capacity=S) as a, penstock.join("sync:q") as b:
        a.send(b"type", type="t")
        b.send(b"before", type="t")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                b.send(b"from the child", type="t")  # the prefix of this type was made by the parent
                with pytest.raises(penstock.Busy, match="has the name 'a'"):
                    a.send(b"a name belongs to one living member")
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        senders = [a.recv(timeout=1).sender, a.recv(timeout=1).sender]
        assert senders[0] == b.name
        assert senders[1].startswith(f"{pid}-")
        b.send(b"from the parent")
        assert a.recv(timeout=1).text == "from the parent"


def test_asyncio_iteration_and_waiting(pair):
    a, b = pair

    async def two():
        task = asyncio.create_task(b.recv_async())
        await asyncio.sleep(0.02)
        a.send(b"1")
        first = await asyncio.wait_for(task, 5)
        a.send(b"2")
        async for message in b:
            return first.text, message.text
        return None

    assert asyncio.run(two()) == ("1", "2")
    a.send(b"3")
    threading.Timer(0.1, b.close).start()
    assert [message.text for message in b] == ["3"]


def test_it_is_recorded_with_sender_and_type(pair, archive):
    a, b = pair
    with archive.record("sync:q"):
        for i in range(30):
            (a, b)[i % 2].send(b"%d" % i, type=f"t{i % 3}")
            a.poll()
            b.poll()
    rows = [message.data for message in archive.replay("sync:q")]
    assert [row["body"] for row in rows] == [b"%d" % i for i in range(30)]
    assert [row["sender"] for row in rows] == ["a", "b"] * 15
    assert [row["type"] for row in rows] == ["t0", "t1", "t2"] * 10
    assert archive.verify() == []


def test_nonsense_is_refused_with_a_reason():
    for wrong in (
        {"name": ""},
        {"name": "x" * 65},
        {"name": "a\0b"},
        {"name": 7},
        {"capacity": 1000},
        {"max_members": 0},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.join("sync:wrong", **wrong)
    with pytest.raises(penstock.Invalid, match="nothing to join"):
        penstock.join("log:wrong")
    with penstock.join("sync:wrong", capacity=S) as a:
        with pytest.raises(penstock.Mismatch, match="sync:wrong"):
            penstock.join("sync:wrong", capacity=2 * S)
        with pytest.raises(TypeError, match="'sender'"):
            penstock.join("sync:wrong", sender="x")
        with penstock.join("sync:wrong", capacity=S, max_members=32):
            pass
        with pytest.raises(penstock.Invalid):
            a.send(b"x", type=7)


def test_the_counters_at_the_edge():
    for start in ((1 << 31) - S, (1 << 32) - S, (1 << 63) - (1 << 36)):
        with (
            penstock.join(penstock.testing.channel("sync:edge", start_position=start), name="a", capacity=S) as a,
            penstock.join("sync:edge", name="b") as b,
        ):
            for i in range(300):
                a.send(b"%d" % i + bytes(1000), timeout=5)
                assert b.recv(timeout=5).body == b"%d" % i + bytes(1000)


def test_batches_as_arrow(pair):
    a, b = pair
    assert b.poll_arrow().num_rows == 0
    a.offer_many([b"%d" % i for i in range(100)], type="grüße")
    b.screen(types=["noise"])
    a.send(b"x", type="noise")
    a.send(b"\xff", type=b"\x80")
    first = b.poll_arrow(limit=60)
    assert sorted(first.column_names) == ["payload", "position", "sender", "session", "time", "type"]
    rest = b.poll_arrow()
    assert first.num_rows == 60
    assert [*first["payload"].to_pylist(), *rest["payload"].to_pylist()] == [*(b"%d" % i for i in range(100)), b"\xff"]
    assert set(first["sender"].to_pylist()) == {"a"}
    assert rest["type"].to_pylist() == ["grüße"] * 40 + ["\ufffd"]
    rest.validate(full=True)
    assert b.screened == 1


def test_spilled_messages_come_first_in_batches_and_borrows(pair):
    a, b = pair
    for i in range(30):
        b.send(b"%d" % i + bytes(1000))
    with pytest.raises(TimeoutError):
        for _ in range(100):
            a.send(bytes(1000), timeout=0)
    assert a.spilled > 0
    assert a.position < a.statistics().position
    with a.borrow() as message:
        assert bytes(message.body) == b"0" + bytes(1000)
    batch = a.poll_arrow(limit=5)
    b.send(b"last")
    rest = a.poll_arrow()
    got = [*batch["payload"].to_pylist(), *rest["payload"].to_pylist()]
    assert [body.rstrip(b"\0") for body in got] == [*(b"%d" % i for i in range(1, 30)), b"last"]
    assert a.spilled == 0


def test_large_bodies_are_read_in_place(pair):
    a, b = pair
    a.send(bytes(range(256)) * 30, type="big")
    a.send(b"next")
    with b.borrow(timeout=1) as message:
        assert (message.sender, message.type, message.position) == ("a", "big", 0)
        assert message.body.readonly
        assert message.body == bytes(range(256)) * 30
    with pytest.raises(ValueError, match="released"):
        message.body[0]
    with b.borrow(0) as message:
        assert bytes(message.body) == b"next"
    with pytest.raises(TimeoutError), b.borrow(0):
        pass
    a.send(bytes(S // 2 - 100))  # in fragments
    with b.borrow(1) as message:
        assert len(message.body) == S // 2 - 100


def test_sending_in_an_event_loop_waits_for_room(pair):
    a, b = pair

    async def both():
        async def write():
            for i in range(300):
                await a.send_async(b"%d" % i + bytes(1000))

        task = asyncio.create_task(write())
        got = [await asyncio.wait_for(b.recv_async(), 5) for _ in range(300)]
        await task
        return got

    assert [int(m.body[:-1000]) for m in asyncio.run(both())] == list(range(300))


def test_arguments_are_checked_as_everywhere(pair):
    a, b = pair
    for wrong in ((1, 2, 3), ("x", None, "type"), ()):
        with pytest.raises(TypeError, match="send"):
            a.send(*wrong)
    with pytest.raises(TypeError):
        a.send(b"x", data="y")
    with pytest.raises(TypeError):
        a.offer(b"x", timeout=1)
    with pytest.raises(penstock.Invalid, match="list"):
        a.offer_many("abc")
    with pytest.raises(TypeError):
        a.offer_many([1, 2])
    with pytest.raises(penstock.Invalid, match="timeout"):
        a.send(b"x", timeout=-1)
    a.send(type="only", data=b"kw")
    a.send(b"both", 1, type="ways")
    assert [m[1:3] for m in b.poll()] == [("only", b"kw"), ("ways", b"both")]
    b.close()
    for call in (
        b.recv,
        b.try_recv,
        b.poll,
        b.poll_arrow,
        b.borrow,
        b.fileno,
        lambda: b.send(b"x"),
        lambda: b.claim(1),
    ):
        with pytest.raises(penstock.Closed):
            call()
