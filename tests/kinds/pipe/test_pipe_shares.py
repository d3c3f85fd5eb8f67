"""Shares of readers of a pipe that do not read: a handle that its process only hands on loses nothing."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

import penstock

PATIENCE = 60


def numbers(messages):
    return sorted(int(bytes(message)) for message in messages)


def push_some(push, count=20, first=0):
    for i in range(first, first + count):
        push.send(b"%d" % i, timeout=PATIENCE)


def test_messages_of_an_idle_reader_go_to_a_waiting_one():
    with (
        penstock.publish("pipe:idle") as push,
        penstock.subscribe("pipe:idle") as idle,
        penstock.subscribe("pipe:idle") as busy,
    ):
        push_some(push)
        assert idle.lag > 0
        assert numbers(busy.recv(timeout=PATIENCE) for _ in range(20)) == list(range(20))
        assert idle.lag == 0
        assert push.readers == 2
        assert not busy.redelivered
        push_some(push, first=20)
        assert numbers(busy.recv(timeout=PATIENCE) for _ in range(20)) == list(range(20, 40))


def test_several_idle_readers_are_relieved_one_after_the_other():
    with penstock.publish("pipe:idle", max_pipes=16) as push, penstock.subscribe("pipe:idle", until_end=True) as busy:
        idle = [penstock.subscribe("pipe:idle") for _ in range(5)]
        push_some(push, 60)
        push.close()
        assert numbers(busy) == list(range(60))
        for handle in idle:
            handle.close()


def test_a_relieved_reader_that_begins_has_a_share_again():
    with (
        penstock.publish("pipe:idle") as push,
        penstock.subscribe("pipe:idle") as late,
        penstock.subscribe("pipe:idle") as busy,
    ):
        push_some(push)
        for _ in range(20):
            busy.recv(timeout=PATIENCE)
        assert late.try_recv() is None  # from here on it reads
        push_some(push)
        assert numbers([*late.poll(), *busy.poll()]) == list(range(20))
        push_some(push)
        shares = [late.poll(), busy.poll()]
        assert numbers([*shares[0], *shares[1]]) == list(range(20))
        assert all(shares)


def test_the_end_waits_for_another_readers_messages():
    with (
        penstock.publish("pipe:end") as push,
        penstock.subscribe("pipe:end", until_end=True) as one,
        penstock.subscribe("pipe:end", until_end=True) as two,
    ):
        assert [one.try_recv(), two.try_recv()] == [None, None]
        push_some(push)
        push.close()
        mine = one.poll()
        assert len(mine) == 10
        with pytest.raises(
            penstock.TimedOut, match=r"every publication has closed or died, but process \d+ .*has not read"
        ):
            one.recv(timeout=0.05)
        theirs = two.poll()
        assert numbers([*mine, *theirs]) == list(range(20))
        assert list(one) == list(two) == []


def test_the_end_comes_after_the_messages_of_a_reader_that_left():
    with penstock.publish("pipe:end") as push, penstock.subscribe("pipe:end", until_end=True) as one:
        with penstock.subscribe("pipe:end") as two:
            assert [one.try_recv(), two.try_recv()] == [None, None]
            push_some(push)
            push.close()
            mine: list[bytes] = []
            reading = threading.Thread(target=lambda: mine.extend(one))
            reading.start()
            theirs = [two.recv(timeout=PATIENCE)]
        reading.join(PATIENCE)
        assert numbers([*mine, *theirs]) == list(range(20))


def _work(sub, results):
    results.put([int(message) for message in sub])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_parent_that_hands_its_handle_on_takes_nothing_away(method):
    """As a DataLoader does: the parent keeps the subscription open that its workers inherit, or unpickle."""
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    push = penstock.publish("pipe:loader", max_messages=16, max_pipes=8)
    with penstock.subscribe("pipe:loader", until_end=True) as sub:
        workers = [context.Process(target=_work, args=(sub, results)) for _ in range(2)]
        for worker in workers:
            worker.start()
        push.wait_for_readers(2, timeout=PATIENCE)
        push_some(push, 200)
        push.close()
        found = [results.get() for _ in workers]
        for worker in workers:
            worker.join(PATIENCE)
        assert sorted([*found[0], *found[1]]) == list(range(200))
        assert list(sub) == []
