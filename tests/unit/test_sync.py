"""What a sync queue does: everybody reads what everybody writes, in one order, and nobody waits for the dead or for himself."""

import asyncio
import multiprocessing as mp
import os
import queue as queues
import signal
import threading
import time

import pytest

import penstock

S = 1 << 16


@pytest.fixture
def pair():
    """Two members of a small queue."""
    with penstock.join("sync:q", sender="a", size=S) as a, penstock.join("sync:q", sender="b") as b:
        yield a, b


def bodies(messages):
    return [message.body for message in messages]


def test_a_message_has_a_sender_a_type_and_a_body(pair):
    a, b = pair
    before = time.time_ns()
    end = a.append("grüße", "greeting")
    message = b.pop(timeout=1)
    assert (message.sender, message.type, message.body, message.text) == ("a", "greeting", "grüße".encode(), "grüße")
    assert message.position == 0 < end
    assert before <= message.time_ns <= time.time_ns()
    b.append(memoryview(b"reply"))
    assert a.pop(timeout=1)[:3] == ("b", "", b"reply")
    assert a.try_pop() is b.try_pop() is None
    with pytest.raises(TimeoutError):
        a.pop(timeout=0)
    with pytest.raises(TimeoutError):
        a.pop(timeout=0.02)


def test_everybody_sees_one_order(pair):
    a, b = pair
    with penstock.join("sync:q", sender="c", own=True) as c, penstock.join("sync:q", sender="d") as d:
        for i in range(50):
            (a, b, c)[i % 3].append(b"%d" % i)
        assert bodies(d.drain()) == [b"%d" % i for i in range(50)]
        assert bodies(c.drain()) == [b"%d" % i for i in range(50)]  # its own too
        assert bodies(a.drain()) == [b"%d" % i for i in range(50) if i % 3 != 0]
        assert a.screened == 17


def test_bytes_that_are_no_text_are_no_accident(pair):
    a, b = pair
    a.append(b"\xff\x00\xfe", b"\x80")
    message = b.pop(timeout=1)
    assert message.body == b"\xff\x00\xfe"
    assert message.text.encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"
    assert message.type.encode("utf-8", "surrogateescape") == b"\x80"
    a.append("")
    assert b.pop(timeout=1).body == b""


def test_senders_and_types_are_screened_and_that_may_change(pair):
    a, b = pair
    with penstock.join("sync:q", sender="c") as c:
        c.screen(senders={"a"}, types=["noise", b"\x80"])
        a.append("1")
        b.append("2")
        b.append("3", "noise")
        b.append("4", b"\x80")
        assert bodies(c.drain()) == [b"2"]
        assert (c.screened_senders, c.screened_types) == ({"a"}, {"noise", "\udc80"})
        c.screen(senders=())
        a.append("5")
        a.append("6", "noise")
        assert bodies(c.drain()) == [b"5"]
        c.screen(types=())
        a.append("7", "noise")
        assert bodies(c.drain()) == [b"7"]
        assert c.screened == 4


def test_batches(pair):
    a, b = pair
    assert a.append_many([b"%d" % i for i in range(100)], "n") == 100
    got = b.pop_many(60) + b.pop_many()
    assert bodies(got) == [b"%d" % i for i in range(100)]
    assert {message.type for message in got} == {"n"}
    with pytest.raises(TimeoutError, match=r"\d+ of 1000"):
        a.append_many([bytes(1000)] * 1000, timeout=0.02)


def test_a_full_queue_makes_writers_wait(pair):
    a, b = pair
    while a.offer(bytes(1000)) is not None:
        pass
    with pytest.raises(TimeoutError, match=r"member 'b' \(process \d+\) is \d+ bytes behind"):
        a.append(bytes(1000), timeout=0.02)
    threading.Timer(0.1, b.pop_many).start()
    assert a.append(bytes(1000), timeout=5) > 0


def test_a_message_that_can_never_fit_is_an_error_at_once(pair):
    a, b = pair
    with pytest.raises(penstock.TooLarge, match="takes up to"):
        a.append(bytes(S), timeout=None)
    for size in (S // 4 - 200, S // 4, S // 2 - 100):  # in fragments too
        a.append(bytes(size), timeout=1)
        assert len(b.pop(timeout=1).body) == size
    with pytest.raises(penstock.TooLarge, match="type"):
        a.append("x", "t" * 70_000)


def test_own_messages_never_count_against_their_writer():
    with penstock.join("sync:alone", size=S) as a:
        for _i in range(1000):
            a.append(bytes(1000), timeout=1)
        assert a.try_pop() is None
        assert a.sender == str(os.getpid())
        assert a.spilled == 0


def test_who_waits_to_write_takes_what_it_has_not_read_into_its_own_memory(pair):
    a, b = pair
    for i in range(40):
        b.append(b"%d" % i + bytes(1000))
    done = threading.Event()

    def read():
        while not done.is_set():
            b.pop_many()
            done.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(200):
        a.append(b"%d" % i + bytes(1000), timeout=10)
    done.set()
    reader.join()
    assert a.spilled > 0
    assert [int(body[:-1000]) for body in bodies(a.pop_many())] == list(range(40))  # nothing was lost, and in order
    assert a.spilled == 0


def test_eight_that_all_write_before_they_read_do_not_wait_for_each_other():
    members = [penstock.join("sync:eight", sender=str(i), size=S) for i in range(8)]
    failed = queues.Queue()

    def work(me):
        try:
            for _ in range(60):
                me.append(bytes(1000), timeout=20)
            got = 0
            while got < 7 * 60:
                me.pop(timeout=20)
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
        penstock.join("sync:bound", sender="a", size=S, spill_limit=20_000) as a,
        penstock.join("sync:bound", sender="b") as b,
    ):
        for _ in range(40):
            b.append(bytes(1000))
        with pytest.raises(penstock.Busy, match="read before you write"):
            for _ in range(200):
                a.append(bytes(1000), timeout=5)
        assert len(a.pop_many()) == 40


def test_a_member_may_be_dropped_or_refuse_to_be_waited_for():
    with penstock.join("sync:policy", sender="a", size=S) as a:
        with penstock.join("sync:policy", sender="lazy", when_slow="drop", drop_after=0.05) as lazy:
            for _ in range(200):
                a.append(bytes(1000), timeout=5)
            with pytest.raises(penstock.Dropped):
                lazy.pop(timeout=1)
            assert lazy.lost > 0
            assert lazy.pop(timeout=1).sender == "a"
        with (
            penstock.join("sync:policy", sender="strict", when_slow="fail"),
            pytest.raises(penstock.Busy, match="'strict' does not let writers wait"),
        ):
            for _ in range(200):
                a.append(bytes(1000))
    for wrong in ({"when_slow": "x"}, {"when_slow": "drop"}, {"drop_after": 1}, {"last": -1}, {"last": 1, "start": 0}):
        with pytest.raises(penstock.Invalid):
            penstock.join("sync:policy", **wrong)


def test_joining_from_what_is_kept(pair):
    a, _ = pair
    for i in range(10):
        a.append(b"%d" % i)
    with penstock.join("sync:q", start="earliest") as c:
        assert bodies(c.drain()) == [b"%d" % i for i in range(10)]
    with penstock.join("sync:q", last=3) as c:
        assert bodies(c.drain()) == [b"7", b"8", b"9"]
        a.append("new")
        assert c.pop(timeout=1).text == "new"
    with penstock.join("sync:q", last=0) as c:
        assert c.try_pop() is None
    with penstock.join("sync:q") as c:
        assert c.try_pop() is None


def test_who_is_here_and_who_came_and_went(pair):
    a, b = pair
    assert a.senders == {"a", "b"}
    assert a.changes() == [penstock.shm.sync.Change(True, "b", os.getpid())]
    threading.Timer(0.05, lambda: late.append(penstock.join("sync:q", sender="late"))).start()
    late = []
    a.wait_for({"b", "late"}, timeout=10)
    with pytest.raises(TimeoutError, match="nobody"):
        a.wait_for({"b", "nobody"}, timeout=0.02)
    assert [(change.joined, change.sender) for change in a.changes()] == [(True, "late")]
    while not late:
        pass
    late[0].close()
    assert [(change.joined, change.sender) for change in a.changes()] == [(False, "late")]
    assert b.lag == 0


def test_the_last_one_removes_the_queue():
    a = penstock.join("sync:gone", sender="a")
    b = penstock.join("sync:gone", sender="b")
    a.close()
    assert penstock.inspect("sync:gone").codec == "sync"
    b.append("x")
    b.close()
    b.close()
    with pytest.raises(penstock.NotFound):
        penstock.inspect("sync:gone")
    with pytest.raises(penstock.Closed):
        b.append("y")


def test_joining_while_the_last_one_leaves_is_never_lost():
    failed = queues.Queue()

    def come_and_go(name):
        try:
            for _ in range(150):
                with (
                    penstock.join("sync:churn", sender=name, size=S) as me,
                    penstock.join("sync:churn", sender=name + "2", size=S) as other,
                ):
                    other.append("x")
                    while me.pop(timeout=10).sender != name + "2":
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
    os.environ["PENSTOCK_DIR"] = folder  # a fork server has the environment of whoever started it
    with penstock.join("sync:procs", sender=name) as me:
        me.wait_for({"0", "1", "2"}, timeout=60)
        for i in range(count):
            me.append(b"%d" % i, "n", timeout=60)
        seen = {}
        while sum(seen.values()) < 2 * count:
            message = me.pop(timeout=60)
            assert int(message.body) == seen.get(message.sender, 0)
            seen[message.sender] = seen.get(message.sender, 0) + 1


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_by_every_way_of_starting_them(how):
    with penstock.join("sync:procs", sender="keeper", size=S) as keeper:
        context = mp.get_context(how)
        children = [context.Process(target=_echo, args=(os.environ["PENSTOCK_DIR"], str(i), 500)) for i in range(3)]
        for child in children:
            child.start()
        got = sum(keeper.pop(timeout=60).type == "n" for _ in range(1500))
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert got == 1500


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_dead_are_not_waited_for(pair):
    a, b = pair
    pid = os.fork()
    if pid == 0:
        doomed = penstock.join("sync:q", sender="doomed")
        doomed.append("last words")
        signal.pause()
        doomed.close()
    a.wait_for({"doomed"}, timeout=10)
    assert a.pop(timeout=10).body == b.pop(timeout=10).body == b"last words"
    assert [change.sender for change in a.changes()] == ["b", "doomed"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    status = penstock.inspect("sync:q")
    assert status.totals.messages_sent == 1, "nobody has cleared its place yet, and what it wrote counts"
    assert {member.name for member in status.members} == {"a", "b"}
    for _ in range(300):
        a.append(bytes(1000), timeout=5)
        b.pop(timeout=5)
    assert [(change.joined, change.sender) for change in a.changes()] == [(False, "doomed")]
    assert a.senders == {"a", "b"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_handle_is_a_member_of_its_own(pair):
    a, b = pair
    pid = os.fork()
    if pid == 0:
        b.append("from the child")
        os._exit(0 if b.try_pop() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert a.pop(timeout=1).text == "from the child"
    b.append("from the parent")
    assert a.pop(timeout=1).text == "from the parent"


def test_asyncio_iteration_and_waiting(pair):
    a, b = pair

    async def two():
        task = asyncio.create_task(b.apop())
        await asyncio.sleep(0.02)
        a.append("1")
        first = await asyncio.wait_for(task, 5)
        a.append("2")
        async for message in b:
            return first.text, message.text
        return None

    assert asyncio.run(two()) == ("1", "2")
    a.append("3")
    threading.Timer(0.1, b.close).start()
    assert [message.text for message in b] == ["3"]


def test_it_is_recorded_with_sender_and_type(pair, archive):
    a, b = pair
    with archive.record("sync:q"):
        for i in range(30):
            (a, b)[i % 2].append(b"%d" % i, f"t{i % 3}")
            a.pop_many()
            b.pop_many()
    rows = [message.data for message in archive.replay("sync:q")]
    assert [row["body"] for row in rows] == [b"%d" % i for i in range(30)]
    assert [row["sender"] for row in rows] == ["a", "b"] * 15
    assert [row["type"] for row in rows] == ["t0", "t1", "t2"] * 10
    assert archive.verify() == []


def test_what_makes_no_sense_is_said():
    for wrong in (
        {"sender": ""},
        {"sender": "x" * 65},
        {"sender": "a\0b"},
        {"sender": 7},
        {"size": 1000},
        {"slots": 0},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.join("sync:wrong", **wrong)
    with pytest.raises(penstock.Invalid, match="join"):
        penstock.publish("sync:wrong")
    with pytest.raises(penstock.Invalid, match="nothing to join"):
        penstock.join("log:wrong")
    with penstock.join("sync:wrong", size=S) as a:
        with pytest.raises(penstock.Mismatch):
            penstock.join("sync:wrong", size=2 * S)
        with penstock.join("sync:wrong", size=S, slots=32):
            pass
        with pytest.raises(penstock.Invalid):
            a.append("x", 7)


def test_the_counters_at_the_edge():
    for start in ((1 << 31) - S, (1 << 32) - S, (1 << 63) - (1 << 36)):
        with (
            penstock.join("sync:edge", sender="a", size=S, start_position=start) as a,
            penstock.join("sync:edge", sender="b") as b,
        ):
            for i in range(300):
                a.append(b"%d" % i + bytes(1000), timeout=5)
                assert b.pop(timeout=5).body == b"%d" % i + bytes(1000)


def test_batches_as_arrow(pair):
    a, b = pair
    assert b.poll_arrow().num_rows == 0
    a.append_many([b"%d" % i for i in range(100)], "grüße")
    b.screen(types=["noise"])
    a.append("x", "noise")
    a.append(b"\xff", b"\x80")
    first = b.poll_arrow(limit=60)
    assert first.column_names == ["position", "sender", "type", "payload", "time"]
    rest = b.poll_arrow()
    assert first.num_rows == 60
    assert [*first["payload"].to_pylist(), *rest["payload"].to_pylist()] == [*(b"%d" % i for i in range(100)), b"\xff"]
    assert set(first["sender"].to_pylist()) == {"a"}
    assert rest["type"].to_pylist() == ["grüße"] * 40 + ["\ufffd"]
    rest.validate(full=True)
    assert b.screened == 1


def test_what_was_spilled_comes_first_in_batches_and_borrowed_too(pair):
    a, b = pair
    for i in range(30):
        b.append(b"%d" % i + bytes(1000))
    with pytest.raises(TimeoutError):
        for _ in range(100):
            a.append(bytes(1000), timeout=0)
    assert a.spilled > 0
    assert a.position < a.statistics().tail
    with a.borrow() as message:
        assert bytes(message.body) == b"0" + bytes(1000)
    batch = a.poll_arrow(limit=5)
    b.append("last")
    rest = a.poll_arrow()
    got = [*batch["payload"].to_pylist(), *rest["payload"].to_pylist()]
    assert [body.rstrip(b"\0") for body in got] == [*(b"%d" % i for i in range(1, 30)), b"last"]
    assert a.spilled == 0


def test_large_bodies_are_read_in_place(pair):
    a, b = pair
    a.append(bytes(range(256)) * 30, "big")
    a.append("next")
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
    a.append(bytes(S // 2 - 100))  # in fragments
    with b.borrow(1) as message:
        assert len(message.body) == S // 2 - 100


def test_appending_in_an_event_loop_waits_for_room(pair):
    a, b = pair

    async def both():
        async def write():
            for i in range(300):
                await a.aappend(b"%d" % i + bytes(1000))

        task = asyncio.create_task(write())
        got = [await asyncio.wait_for(b.apop(), 5) for _ in range(300)]
        await task
        return got

    assert [int(m.body[:-1000]) for m in asyncio.run(both())] == list(range(300))


def test_arguments_are_checked_as_everywhere(pair):
    a, b = pair
    for wrong in ((1, 2, 3), ()):
        if wrong:
            with pytest.raises(TypeError, match="append"):
                a.append(*wrong)
    with pytest.raises(TypeError):
        a.append("x", body="y")
    with pytest.raises(TypeError):
        a.offer("x", timeout=1)
    with pytest.raises(penstock.Invalid, match="list"):
        a.append_many("abc")
    with pytest.raises(TypeError):
        a.append_many([1, 2])
    with pytest.raises(penstock.Invalid, match="timeout"):
        a.append("x", timeout=-1)
    a.append(type="only", body="kw")
    a.append(type="nothing")
    assert [m[1:3] for m in b.drain()] == [("only", b"kw"), ("nothing", b"")]
    b.close()
    for call in (b.pop, b.try_pop, b.pop_many, b.poll_arrow, lambda: b.append("x")):
        with pytest.raises(penstock.Closed):
            call()
