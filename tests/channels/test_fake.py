"""Fake channels: everything as in shared memory, within one process, and stepped by the test."""

import asyncio
import contextlib
import decimal
import math
import os
import pickle
import queue
import subprocess
import sys
import threading

import numpy as np
import pytest

import penstock
from penstock import testing


@pytest.fixture
def fake():
    """A publication and a subscription of a channel that the test holds."""
    with (
        penstock.publish("fake:log:t") as pub,
        penstock.subscribe("fake:log:t") as sub,
        testing.hold("fake:log:t") as step,
    ):
        yield pub, sub, step
    penstock.remove("fake:log:t")


def in_thread(work):
    """Runs it; its result comes out of the queue."""
    answers = queue.Queue()

    def run():
        try:
            answers.put(work())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=run, daemon=True).start()
    return answers


def test_nobody_else_sees_it_and_nothing_is_left():
    before = penstock.list_channels()
    with penstock.publish("fake:log:alone") as pub, penstock.subscribe("fake:log:alone") as sub:
        pub.send(b"x")
        assert sub.recv(timeout=1) == b"x"
        assert penstock.list_channels() == before
        assert penstock.inspect("fake:log:alone").totals.messages_sent == 1
        with pytest.raises(penstock.NotFound):
            penstock.inspect("log:alone")
    penstock.remove("fake:log:alone")
    with pytest.raises(penstock.NotFound, match="in this process"):
        penstock.inspect("fake:log:alone")


def test_messages_come_when_the_test_says_so(fake):
    pub, sub, step = fake
    for i in range(5):
        pub.send(b"%d" % i)
    assert sub.try_recv() is None
    assert sub.poll() == []
    step.deliver()
    assert sub.poll() == [b"0"]
    step.deliver(2)
    assert sub.poll_arrow().column("payload").to_pylist() == [b"1", b"2"]
    assert sub.try_recv() is None
    step.deliver()
    with sub.borrow() as view:
        assert bytes(view) == b"3"
    assert sub.try_recv() is None
    step.release()
    assert sub.recv(timeout=1) == b"4"


def test_deliveries_allowed_ahead_arrive_when_sent(fake):
    pub, sub, step = fake
    step.deliver(2)
    for i in range(3):
        pub.send(b"%d" % i)
    assert sub.poll() == [b"0", b"1"]
    step.deliver_all()
    assert sub.poll() == [b"2"]
    pub.send(b"3")
    assert sub.recv(timeout=1) == b"3"


def test_each_subscription_has_its_own_count(fake):
    pub, sub, step = fake
    with penstock.subscribe("fake:log:t") as other:
        for i in range(4):
            pub.send(b"%d" % i)
        step.deliver(2)
        assert sub.poll() == [b"0", b"1"]
        assert other.poll(1) == [b"0"]
        step.deliver()
        assert other.poll() == [b"1", b"2"]
        assert sub.poll() == [b"2"]


def test_a_wait_ends_when_the_test_says_so_not_by_the_clock(fake):
    pub, sub, step = fake
    answer = in_thread(lambda: sub.recv(timeout=0.001))
    step.await_waiting()
    with pytest.raises(queue.Empty):
        answer.get(timeout=0.1)
    step.expire()
    assert isinstance(answer.get(timeout=5), TimeoutError)
    answer = in_thread(lambda: sub.recv(timeout=0.001))
    step.await_waiting()
    pub.send(b"late")
    with pytest.raises(queue.Empty):
        answer.get(timeout=0.1)
    step.deliver()
    assert answer.get(timeout=5) == b"late"
    assert step.waiting == 0
    with pytest.raises(TimeoutError):
        sub.recv(timeout=0)
    with pytest.raises(TimeoutError, match="0 threads"):
        step.await_waiting(timeout=0.01)


def test_stepper_checks_its_arguments(fake):
    _pub, _sub, step = fake
    for timeout in (math.nan, -1, "1"):
        with pytest.raises(penstock.Invalid, match=r"^fake:log:t: timeout is .*: it must be None or seconds"):
            step.await_waiting(timeout=timeout)
    for call in (step.await_waiting, step.deliver):
        for count in ("1", None, 1.5):
            with pytest.raises(TypeError, match=r"^fake:log:t: .*count is a whole number, not"):
                call(count)
        with pytest.raises(penstock.Invalid, match=r"^fake:log:t: .*count is -1: it must be from 0"):
            call(-1)
    with pytest.raises(penstock.TimedOut):
        step.await_waiting(timeout=decimal.Decimal("0.01"))
    step.await_waiting(0, None)


def test_no_wait_means_no_wait(fake):
    pub, sub, _step = fake
    pub.send(b"held")
    for take in (lambda: sub.recv(0), lambda: sub.borrow(0), lambda: penstock.wait([sub], 0)):
        assert isinstance(in_thread(take).get(timeout=60), list | penstock.TimedOut)


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_a_recorder_is_not_held_and_stops(archive, kind):
    name = f"fake:{kind}:recorded"
    with penstock.publish(name) as pub, penstock.subscribe(name) as sub, testing.hold(name):
        recorder = archive.record(name)
        pub.send(b"x")
        (progress,) = in_thread(recorder.stop).get(timeout=60)
        assert progress.messages == 1
        assert sub.try_recv() is None
    penstock.remove(name)


def test_wait_over_many_is_stepped_too(fake):
    pub, sub, step = fake
    with penstock.publish("log:real") as real_pub, penstock.subscribe("log:real") as real:
        answer = in_thread(lambda: penstock.wait([sub, real], timeout=0.001))
        step.await_waiting()
        step.expire()
        assert answer.get(timeout=5) == []
        answer = in_thread(lambda: penstock.wait([sub, real], timeout=0.001))
        step.await_waiting()
        pub.send(b"x")
        step.deliver()
        assert answer.get(timeout=5) == [sub]
        real_pub.send(b"y")
        sub.recv()
        assert penstock.wait([sub, real], timeout=0.001) == [real]
        assert penstock.wait([sub], timeout=0) == []


def test_asyncio_is_stepped_too(fake):
    pub, sub, step = fake

    async def main():
        task = asyncio.create_task(sub.recv_async())
        pub.send(b"x")
        done, _ = await asyncio.wait([task], timeout=0.1)
        assert not done
        step.deliver()
        return await asyncio.wait_for(task, 5)

    assert asyncio.run(main()) == b"x"


def test_codecs_replies_and_lock_step():
    """Two threads of a program, in lock step with the test: what the original's fake events are for."""
    with (
        penstock.publish("fake:log:in", codec="json") as source,
        penstock.subscribe("fake:log:in") as sub,
        penstock.publish("fake:log:out", codec="json") as pub,
        penstock.subscribe("fake:log:out") as results,
        testing.hold("fake:log:in") as step,
    ):
        threading.Thread(target=lambda: [pub.send({"twice": 2 * m["n"]}) for m in sub], daemon=True).start()
        for n in range(20):
            step.await_waiting()
            source.send({"n": n})
            assert results.try_recv() is None
            step.deliver()
            assert results.recv(timeout=5) == {"twice": 2 * n}
        sub.close()


@pytest.mark.parametrize("switch", ["1", "all", "ring,frames"])
def test_a_whole_program_is_switched_by_the_environment(monkeypatch, switch):
    monkeypatch.setenv("PENSTOCK_FAKE", switch)
    with penstock.publish("ring:sw", capacity=1 << 16) as pub, penstock.subscribe("ring:sw", conflate=True) as sub:
        assert pub.channel == "ring:sw"
        with testing.hold("ring:sw") as step:
            pub.send(b"1")
            pub.send(b"2")
            assert sub.try_recv() is None
            step.deliver()
            assert sub.try_recv() == b"2"
    with (
        penstock.publish("frames:sw", shape=(2,)) as pub,
        penstock.subscribe("frames:sw", conflate=False) as sub,
        testing.hold("frames:sw") as step,
    ):
        pub.send(np.ones(2, "u1"))
        pub.send(np.zeros(2, "u1"))
        assert sub.try_recv() is None
        step.deliver()
        assert sub.recv(timeout=1).array.sum() == 2
        assert sub.try_recv() is None
    for name in ("ring:sw", "frames:sw"):
        penstock.remove(name)
    monkeypatch.delenv("PENSTOCK_FAKE")
    with pytest.raises(penstock.NotFound):
        penstock.inspect("ring:sw")
    with penstock.publish("ring:sw"), pytest.raises(penstock.Invalid, match="other processes"):
        testing.hold("ring:sw")
    penstock.remove("ring:sw")


def test_the_library_does_not_need_a_folder_for_them(tmp_path):
    work = (
        "import penstock\n"
        "with penstock.publish('log:x') as p, penstock.subscribe('log:x') as s:\n"
        "    p.send(b'ok'); print(s.recv(timeout=1).decode())\n"
    )
    environment = {"PENSTOCK_FAKE": "1", "PENSTOCK_DIR": str(tmp_path / "none"), "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("ok\n", "")
    assert not (tmp_path / "none").exists()


def test_a_channel_that_is_not_there_cannot_be_held():
    with pytest.raises(penstock.NotFound):
        testing.hold("fake:log:nobody")
    with pytest.raises(penstock.Invalid):
        penstock.publish("fake:log:a//b")


def test_a_pickled_handle_stays_in_its_process():
    """Of every kind: here it is the same channel, and another process refuses it."""
    pickled = []
    with contextlib.ExitStack() as stack:
        for kind in ("log", "ring", "sync", "pipe", "frames"):
            uri = f"fake:{kind}:pickled"
            shape = {"shape": (2,)} if kind == "frames" else {}
            handles = [penstock.publish(uri, **shape), penstock.subscribe(uri)]
            if kind == "sync":
                handles.append(penstock.join(uri))
            for number, handle in enumerate(handles):
                stack.enter_context(handle)
                pickled.append((uri, pickle.dumps(handle)))
                if number > 0:  # a ring has one publication at a time
                    with pickle.loads(pickled[-1][1]) as again:
                        assert again.channel == uri
        done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=pickle.dumps(pickled), capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        said = done.stdout.decode().splitlines()
        assert len(said) == len(pickled) == 11
        for (uri, _), line in zip(pickled, said, strict=True):
            assert f"Unsupported: {uri}: a fake channel lives in one process" in line


ELSEWHERE = """
import pickle, sys
for _, data in pickle.load(sys.stdin.buffer):
    try:
        print("taken", pickle.loads(data))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_another_process():
    with penstock.publish("fake:log:forked") as pub:
        data = pickle.dumps(pub)
        child = os.fork()
        if child == 0:
            try:
                pickle.loads(data)
            except penstock.Unsupported:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    penstock.remove("fake:log:forked")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_closes_a_channel_removed_before_the_fork():
    with penstock.publish("fake:log:gone") as pub:
        penstock.remove("fake:log:gone")
        pub.send(b"here")
        child = os.fork()
        if child == 0:
            said = 99
            try:
                pub.send(b"there")
            except penstock.Closed as error:
                said = 0 if "fake:log:gone was removed before the fork" in str(error) else 98
            finally:
                os._exit(said)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
