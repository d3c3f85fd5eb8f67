"""Pipes: each message goes to exactly one reader, high-water marks hold, unfinished messages of the dead are redelivered."""

import asyncio
import multiprocessing as mp
import os
import pickle
import select
import signal
import threading
import time

import numpy as np
import pytest

import penstock

C = 1 << 16
MOMENT = threading.Event()
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_each_message_goes_to_exactly_one_in_turn():
    with (
        penstock.publish("pipe:jobs") as push,
        penstock.subscribe("pipe:jobs") as one,
        penstock.subscribe("pipe:jobs") as two,
    ):
        assert push.readers == 2
        for i in range(10):
            push.send(b"%d" % i)
        got = one.poll(), two.poll()
        assert got == ([b"0", b"2", b"4", b"6", b"8"], [b"1", b"3", b"5", b"7", b"9"])
        assert one.try_recv() is two.try_recv() is None
        assert push.unread_messages == 0
        assert push.all_read


def test_a_reader_takes_in_turn_from_all_who_push():
    with penstock.subscribe("pipe:fair") as pull:
        pushers = [penstock.publish("pipe:fair", name=f"p{i}") for i in range(3)]
        for i, push in enumerate(pushers):
            for k in range(3):
                push.send(b"%d%d" % (i, k))
        got = pull.poll()
        assert sorted(got) == [b"%d%d" % (i, k) for i in range(3) for k in range(3)]
        assert {message[:1] for message in got[:3]} == {b"0", b"1", b"2"}
        for push in pushers:
            push.close()


def test_nothing_is_lost_in_any_order_of_coming_and_leaving():
    with penstock.publish("pipe:order") as push:  # before anybody pulls
        for i in range(5):
            push.send(b"%d" % i)
    with penstock.subscribe("pipe:order") as pull:  # after everybody who pushed is gone
        assert pull.poll() == [b"%d" % i for i in range(5)]
    with penstock.subscribe("pipe:order") as pull:
        assert pull.poll() == []
        with penstock.publish("pipe:order") as push:
            push.send(b"late")
            assert pull.recv(timeout=1) == b"late"


def test_the_mark_is_exact():
    with penstock.publish("pipe:mark", max_messages=10) as push, penstock.subscribe("pipe:mark") as pull:
        for i in range(10):
            assert push.offer(b"%d" % i) is not None
        assert push.offer(b"x") is None
        with pytest.raises(TimeoutError, match="10 messages wait to be read"):
            push.send(b"x", timeout=0.02)
        assert pull.recv() == b"0"
        assert push.offer(b"x") is None  # taken, not done yet
        assert pull.recv() == b"1"
        assert push.offer(b"10") is not None
        assert push.offer(b"x") is None
        threading.Timer(0.05, pull.poll).start()
        push.send(b"11", timeout=5)
        assert penstock.inspect("pipe:mark").totals.back_pressure >= 4


def test_bytes_are_a_mark_too():
    with (
        penstock.publish("pipe:bytes", capacity=C, max_messages=10**6) as push,
        penstock.subscribe("pipe:bytes") as pull,
    ):
        assert push.max_payload == C // 2 - 32
        with pytest.raises(penstock.TooLarge, match="larger capacity"):
            push.send(bytes(C // 2))
        rng = np.random.default_rng(7)
        for _ in range(300):
            sent = [rng.bytes(int(size)) for size in rng.integers(0, C // 4, 3)]
            taken = push.offer_many(sent)
            assert taken >= 2
            assert pull.poll() == sent[:taken]
            pull.acknowledge()
        count = 0
        while push.offer(bytes(1000)) is not None:
            count += 1
        assert count >= C // 1056 - 1  # 1000 + 32, up to the next 32: all of the capacity, but for padding at its end
        assert len(pull.poll()) == count


def framed(*messages):
    """Bytes by which messages move a position."""
    return sum((len(message) + 32 + 31) // 32 * 32 for message in messages)


def test_positions_are_bytes_that_were_written_and_read():
    with (
        penstock.publish("pipe:at", capacity=C) as push,
        penstock.subscribe("pipe:at", name="one") as one,
        penstock.subscribe("pipe:at", name="two") as two,
    ):
        sent = [b"", b"x" * 100, b"y" * 33, b"z"]
        positions = [push.send(message) for message in sent]
        assert positions == [framed(*sent[: i + 1]) for i in range(4)]
        assert push.offer(b"five") == push.position == framed(*sent, b"five")
        assert (one.position, two.position) == (0, 0)
        assert (one.lag, two.lag) == (framed(sent[0], sent[2], b"five"), framed(sent[1], sent[3]))
        status = penstock.inspect("pipe:at")
        assert status.lag == two.lag > one.lag
        assert {m.name: (m.position, m.lag) for m in status.members if m.role == "pull"} == {
            "one": (0, one.lag),
            "two": (0, two.lag),
        }
        assert two.recv() == sent[1]
        assert (two.last.position, two.position, two.lag) == (0, framed(sent[1]), framed(sent[3]))
        assert two.recv() == sent[3]
        assert (two.last.position, two.position, two.lag) == (framed(sent[1]), framed(sent[1], sent[3]), 0)
        batch = one.poll_arrow()
        assert batch["position"].to_pylist() == [0, framed(b""), framed(b"", sent[2])]
        assert one.position == framed(b"", sent[2], b"five")
        assert penstock.inspect("pipe:at").lag == 0
        with push.claim(7) as view:
            view[:] = b"1234567"
        assert push.position == framed(*sent, b"five", b"1234567")
        assert push.offer_many([b"a", b"b" * 64]) == 2
        end = framed(*sent, b"five", b"1234567", b"a", b"b" * 64)
        assert push.position == end
        push.close()
        with penstock.publish("pipe:at") as other:
            assert other.position == 0
            assert other.send(b"") == 32
        status = penstock.inspect("pipe:at")
        assert status.details["unread_messages"] == 8  # four were received, and nobody has asked for more
        assert status.position == end + 32
        assert status.details["max_messages"] == 1000


def test_no_subscription_starts_at_a_position():
    for start in (0, 1, 1 << 40, "earliest"):
        with pytest.raises(penstock.Unsupported, match=r"keeps no message that was read.*A log keeps"):
            penstock.subscribe("pipe:start", start=start)
    with penstock.publish("pipe:start") as push:
        push.send(b"waits")
        push.send(b"too")
        for message in (b"waits", b"too"):
            with penstock.subscribe("pipe:start", start="newest") as pull:
                assert pull.recv(timeout=5) == message
    with penstock.publish("pipe:start", codec=None) as push, penstock.subscribe("pipe:start") as pull:
        push.send(b"here")
        assert pull.recv(timeout=5) == b"here"
        pull.acknowledge()
        again = pickle.loads(pickle.dumps(pull))  # at no position either
        pull.close()
        push.send(b"there")
        assert again.recv(timeout=5) == b"there"
        again.close()


def test_drops_are_counted():
    with (
        penstock.publish("pipe:newest", max_messages=5, when_full="drop_newest") as push,
        penstock.subscribe("pipe:newest") as pull,
    ):
        for i in range(8):
            push.send(b"%d" % i)
        assert pull.poll() == [b"0", b"1", b"2", b"3", b"4"]
        totals = penstock.inspect("pipe:newest").totals
        assert (totals.messages_lost, totals.bytes_lost) == (3, 3 * framed(b"5"))
        assert push.position == 5 * framed(b"5")
    with (
        penstock.publish("pipe:oldest", max_messages=5, when_full="drop_oldest") as push,
        penstock.subscribe("pipe:oldest") as pull,
    ):
        for i in range(8):
            push.send(b"%d" % i)
        assert pull.recv() == b"3"
        for i in range(8, 11):
            push.send(b"%d" % i)  # the one that is being worked on stands in the way of none but itself
        assert (pull.lost_messages, pull.lost) == (3, 3 * framed(b"0"))
        rest = pull.poll()
        assert rest[-1] in (b"8", b"10")
        totals = penstock.inspect("pipe:oldest").totals
        assert 1 + len(rest) + totals.messages_lost == 11
        assert totals.bytes_lost == totals.messages_lost * framed(b"0")
        assert pull.position == push.position == 11 * framed(b"0")  # dropped messages were written, and are passed over


def test_drop_oldest_keeps_order_and_counts_every_loss():
    with (
        penstock.publish("pipe:lossy", capacity=C, max_messages=50, when_full="drop_oldest") as push,
        penstock.subscribe("pipe:lossy") as pull,
    ):
        got = []

        def read():
            while not got or got[-1] != 19_999:
                got.extend(int(message[:8]) for message in pull.poll(7))

        reader = threading.Thread(target=read)
        reader.start()
        for i in range(20_000):
            push.send(b"%08d" % i + bytes(i % 300))
            if i % 1000 == 0:
                MOMENT.wait(0.001)
        reader.join(60)
        assert got == sorted(set(got))
        assert len(got) + penstock.inspect("pipe:lossy").totals.messages_lost == 20_000
        assert pull.lost_messages == 20_000 - len(got)


def test_writing_and_reading_in_place_and_in_batches():
    with penstock.publish("pipe:place", capacity=C) as push, penstock.subscribe("pipe:place") as pull:
        with push.claim(4) as view:
            view[:] = b"abcd"
            assert push.offer(b"beside") is None  # the one pipe is being written to
        push.send(b"efgh")
        with pull.borrow() as view:
            assert bytes(view) == b"abcd"
        with pytest.raises(RuntimeError), push.claim(4) as view:
            raise RuntimeError
        push.send(b"ijkl")
        batch = pull.poll_arrow()
        assert batch["payload"].to_pylist() == [b"efgh", b"ijkl"]
        assert push.offer_many(np.arange(10, dtype="u8").reshape(10, 1)) == 10
        assert len(pull.poll()) == 10
        push.send(b"x" * 100)
        with pull.borrow() as view:
            kept = np.frombuffer(view, "u1")
        for _ in range(3):
            push.offer_many([bytes(1000)] * 100)
            pull.poll()
        assert push.offer(bytes(30_000)) is None
        assert bytes(kept) == b"x" * 100  # still borrowed: nobody wrote over it


def test_codecs_as_everywhere():
    with penstock.publish("pipe:json", codec="json") as push, penstock.subscribe("pipe:json") as pull:
        push.send({"a": [1, 2]})
        assert pull.recv(timeout=1) == {"a": [1, 2]}
        assert not pull.redelivered
        assert push.unread_messages == 1
        pull.acknowledge()
        assert push.unread_messages == 0


def test_unacknowledged_messages_go_to_another_reader():
    push = penstock.publish("pipe:back")
    with penstock.subscribe("pipe:back") as one:
        for i in range(6):
            push.send(b"%d" % i)
        assert one.recv() == b"0"
        assert one.recv() == b"1"
        with pytest.raises(RuntimeError), one:
            raise RuntimeError  # in the middle of the second
    with penstock.subscribe("pipe:back", acknowledge="manual") as two:
        assert two.recv(timeout=1) == b"1"
        assert two.redelivered
        assert two.recv(timeout=1) == b"2"
        assert not two.redelivered
        two.acknowledge()
        assert two.recv(timeout=1) == b"3"
    with penstock.subscribe("pipe:back") as three:
        assert three.recv(timeout=1) == b"3"
        assert three.redelivered
        assert three.poll() == [b"4", b"5"]
    assert push.unread_messages == 0
    push.close()


def test_what_a_reader_took_over_is_unread_until_it_is_read():
    with penstock.publish("pipe:over") as push, penstock.subscribe("pipe:over", acknowledge="manual") as two:
        with pytest.raises(RuntimeError), penstock.subscribe("pipe:over") as one:
            for i in range(10):
                push.send(b"%d" % i)
            assert one.recv(timeout=1)
            raise RuntimeError
        got, left = [], []
        while len(got) < 10:
            got.append(int(two.recv(timeout=1)))
            two.acknowledge()
            push.readers  # it follows who reads which pipe, and closes one of two to the same reader
            left.append(push.unread_messages)
            assert push.lag > 0 or len(got) == 10
        assert sorted(got) == list(range(10))
        assert left == list(range(9, -1, -1))


def _take_and_die(path, count):
    os.environ["PENSTOCK_DIR"] = path
    pull = penstock.subscribe("pipe:die")
    for _ in range(count):
        pull.recv(timeout=20)
    os.kill(os.getpid(), signal.SIGKILL)


@forks
def test_messages_taken_by_the_dead_are_redelivered():
    with penstock.publish("pipe:die") as push:
        child = mp.get_context("fork").Process(target=_take_and_die, args=(os.environ["PENSTOCK_DIR"], 3))
        child.start()
        push.wait_for_readers(1, timeout=20)
        for i in range(10):
            push.send(b"%d" % i)
        child.join(20)
        with penstock.subscribe("pipe:die") as pull:
            got = []
            while len(got) < 8:
                got.append((pull.recv(timeout=5), pull.redelivered))
            assert got == [(b"2", True)] + [(b"%d" % i, False) for i in range(3, 10)]
            assert pull.try_recv() is None
        assert penstock.inspect("pipe:die").totals.reaped == 1


def test_a_pipe_that_was_inherited_and_read_empty_is_not_missed():
    with penstock.publish("pipe:heir") as push, penstock.subscribe("pipe:heir") as stays:
        with penstock.subscribe("pipe:heir") as leaves:
            push.wait_for_readers(2, timeout=20)
            push.send(b"a")
            push.send(b"b")
            assert leaves.lag > 0
        assert {stays.recv(timeout=5), stays.recv(timeout=5)} == {b"a", b"b"}
        for _ in range(1000):  # long enough to look for the dead more than once
            push.send(b"c")
            assert stays.try_recv() == b"c"
            before = penstock.inspect("pipe:heir").details["pipes"]
            assert stays.try_recv() is None
            if before == 1:
                break
        push.send(b"d")
        assert stays.try_recv() == b"d"
        assert stays.try_recv() is None


@forks
def test_a_waiting_reader_inherits_at_once():
    with penstock.publish("pipe:die") as push, penstock.subscribe("pipe:die") as pull:
        child = mp.get_context("fork").Process(target=_take_and_die, args=(os.environ["PENSTOCK_DIR"], 1))
        child.start()
        push.wait_for_readers(2, timeout=20)
        push.send(b"a")
        push.send(b"b")
        got = {pull.recv(timeout=5)}
        child.join(20)
        begun = time.monotonic()
        got.add(pull.recv(timeout=5))
        assert got == {b"a", b"b"}
        assert pull.redelivered
        assert time.monotonic() - begun < 2
        assert push.readers == 1


def _work(path, results):
    os.environ["PENSTOCK_DIR"] = path
    with penstock.subscribe("pipe:many") as pull:
        got = []
        for message in pull:
            if message == b"end":
                break
            got.append(int(message))
    results.put(got)


@pytest.mark.slow
@forks
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_several_workers_and_writers_share_the_work(how):
    context = mp.get_context(how)
    results = context.SimpleQueue()
    with penstock.publish("pipe:many", max_messages=100) as push, penstock.publish("pipe:many") as other:
        workers = [context.Process(target=_work, args=(os.environ["PENSTOCK_DIR"], results)) for _ in range(3)]
        for worker in workers:
            worker.start()
        push.wait_for_readers(3, timeout=60)
        for i in range(3000):
            (push, other)[i % 2].send(b"%d" % i, timeout=30)
        deadline = time.monotonic() + 30
        while (push.unread_messages or other.unread_messages) > 3 and time.monotonic() < deadline:
            MOMENT.wait(0.001)
        for _ in workers:
            push.send(b"end", timeout=30)
        got = [results.get() for _ in workers]
        for worker in workers:
            worker.join(30)
        assert sorted(number for numbers in got for number in numbers) == list(range(3000))
        assert min(map(len, got)) > 50


@forks
def test_handles_after_a_fork_and_pickled():
    with penstock.publish("pipe:fork") as push, penstock.subscribe("pipe:fork") as pull:
        pid = os.fork()
        if pid == 0:
            push.send(b"from the child")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert pull.recv(timeout=5) == b"from the child"
        push.send(b"from the parent")
        assert pull.recv(timeout=5) == b"from the parent"
        again = pickle.loads(pickle.dumps(push))
        again.send(b"pickled")
        assert pull.recv(timeout=5) == b"pickled"
        again.close()


def test_waiting_for_several_and_selectors_and_asyncio():
    with (
        penstock.publish("pipe:w") as push,
        penstock.subscribe("pipe:w") as pull,
        penstock.join("sync:w", name="a") as a,
        penstock.join("sync:w", name="b") as b,
    ):
        assert penstock.wait([pull, b], timeout=0.01) == []
        a.send(b"x")
        assert penstock.wait([pull, b], timeout=5) == [b]
        b.recv()
        push.send(b"1")
        assert penstock.wait([pull, b], timeout=5) == [pull]
        poller = select.poll()
        poller.register(pull.fileno(), select.POLLIN)
        assert poller.poll(1000)
        assert pull.recv() == b"1"
        pull.try_recv()
        assert not poller.poll(0)
        threading.Timer(0.05, push.send, [b"2"]).start()
        assert poller.poll(5000)
        assert pull.try_recv() == b"2"

        async def read():
            asyncio.get_running_loop().call_later(0.02, push.send, b"3")
            return await asyncio.wait_for(pull.recv_async(), 5)

        assert asyncio.run(read()) == b"3"


def test_a_spinning_wait_ends_at_its_timeout():
    with penstock.subscribe("pipe:spin", spin=1e12) as pull, pytest.raises(TimeoutError):
        pull.recv(timeout=0.02)
    with penstock.subscribe("log:spin", spin=1e12) as sub, pytest.raises(TimeoutError):
        sub.recv(timeout=0.02)


def test_positions_at_the_edge():
    for start in ((1 << 31) - C, (1 << 32) - C, (1 << 63) - (1 << 36)):
        with (
            penstock.publish(
                penstock.testing.channel("pipe:edge", start_position=start), capacity=C, max_messages=10**6
            ) as push,
            penstock.subscribe("pipe:edge") as pull,
        ):
            for i in range(500):
                push.send(b"%d" % i + bytes(1000), timeout=5)
                assert pull.recv(timeout=5) == b"%d" % i + bytes(1000)
        penstock.remove("pipe:edge")


def test_a_full_pipe_says_why():
    with penstock.publish("pipe:why", max_messages=2) as push:
        push.send(b"a")
        push.send(b"b")
        with pytest.raises(penstock.TimedOut, match=r"2 messages wait to be read, and nobody is there to$"):
            push.send(b"c", timeout=0)
        with penstock.subscribe("pipe:why") as pull:
            with pytest.raises(penstock.TimedOut, match=r"2 messages wait to be read$"):
                push.send(b"c", timeout=0)
            assert pull.poll() == [b"a", b"b"]
            assert pull.poll() == []
            with (
                push.claim(1, timeout=0),
                pytest.raises(penstock.Busy, match="a claim of this publication is open"),
            ):
                push.claim(1, timeout=0)
    with (
        penstock.join("pipe:alone", role="request") as ask,
        pytest.raises(penstock.TimedOut, match="there is no receiver"),
    ):
        ask.request(b"x", timeout=0)


def test_nonsense_is_refused_with_a_reason():
    for wrong in (
        {"max_messages": 0},
        {"capacity": 1000},
        {"max_members": 1},
        {"max_pipes": 0},
        {"when_full": "x"},
        {"name": ""},
        {"max_messages": "x"},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.publish("pipe:wrong", **wrong)
    with pytest.raises(penstock.Invalid, match="acknowledge"):
        penstock.subscribe("pipe:wrong", acknowledge="never")
    with pytest.raises(penstock.Invalid, match="start is"):
        penstock.subscribe("pipe:wrong", start="middle")
    with penstock.publish("pipe:full", max_members=2, max_pipes=1) as push, penstock.subscribe("pipe:full") as pull:
        with pytest.raises(penstock.Busy, match="larger max_members"):
            penstock.subscribe("pipe:full")
        with pytest.raises(penstock.Mismatch):
            penstock.publish("pipe:full", max_messages=7)
        with pytest.raises(penstock.Busy, match="takes no more"):
            penstock.Archive(os.environ["PENSTOCK_DIR"] + "/archive").record("pipe:full")
        push.send(b"still")
        assert pull.recv(timeout=1) == b"still"
    with (
        penstock.publish("pipe:few", max_pipes=1),
        penstock.subscribe("pipe:few"),
        pytest.raises(penstock.Busy, match="larger max_pipes"),
    ):
        penstock.subscribe("pipe:few")
    push = penstock.publish("pipe:closed")
    push.close()
    with pytest.raises(penstock.Closed):
        push.send(b"x")


def test_coming_and_going_leaves_nothing_behind():
    push = penstock.publish("pipe:churn", max_members=4, max_pipes=4)
    for i in range(200):
        with penstock.subscribe("pipe:churn") as pull, penstock.publish("pipe:churn") as other:
            push.send(b"%d" % i)
            other.send(b"o")
            assert sorted(pull.recv(timeout=5) for _ in range(2)) == sorted([b"%d" % i, b"o"])
    status = penstock.inspect("pipe:churn")
    assert [member.role for member in status.members] == ["push"]
    assert status.details["pipes"] <= 2
    assert status.totals.messages_sent == 400
    push.close()


def test_threads_may_close_a_subscription_at_the_same_time(monkeypatch):
    from penstock._native import core

    real = core.pipe_acknowledge
    with penstock.publish("pipe:a"), penstock.subscribe("pipe:a") as pull:

        def closed_meanwhile(subscription):
            other = threading.Thread(target=core.Subscription.close, args=(subscription,))
            other.start()
            other.join()
            real(subscription)

        monkeypatch.setattr(core, "pipe_acknowledge", closed_meanwhile)
        pull.close()
        assert pull.closed


def test_a_send_beside_an_open_claim_never_waits_for_it():
    """Without a timeout: where only claims of the same handle keep the room, it is an error. Another reader's room is used."""
    with penstock.publish("pipe:own") as push, penstock.subscribe("pipe:own") as pull:
        with push.claim(1) as first:
            first[:] = b"a"
            for wait in (lambda: push.send(b"x"), lambda: push.claim(1), lambda: asyncio.run(push.send_async(b"x"))):
                with pytest.raises(penstock.Busy, match=r"pipe:own.*: a claim of this publication is open: commit"):
                    wait()
            assert push.offer(b"x") is None
            with penstock.subscribe("pipe:own") as other:
                push.send(b"b", timeout=5)
                assert other.recv(timeout=5) == b"b"
        push.send(b"c", timeout=5)
        assert [pull.recv(timeout=5) for _ in range(2)] == [b"a", b"c"]
