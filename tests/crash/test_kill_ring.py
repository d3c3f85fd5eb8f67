"""kill -9 of a ring's publications and subscriptions at any moment: the living go on, and every message is got or counted."""

import os
import random
import time

import pytest
from conftest import sized
from crash.victims import check, kill, message, start

import penstock

C = 1 << 16
KILLS = sized(35, 150, 10_000)
PATIENCE = 10.0  # seconds for a process to begin


def write_for_ever(name, writer, seed):
    """Every way of writing, until killed."""
    rng = random.Random(seed)
    while True:  # the one before may still be dying
        try:
            pub = penstock.publish(name)
            break
        except penstock.Busy:
            pass
    number = 0
    while True:
        way, size = rng.random(), rng.choice([0, 10, 100, 1000, 5000])
        if way < 0.7:
            pub.send(message(writer, number, size))
            number += 1
        elif way < 0.85:
            number += pub.offer_many([message(writer, number + i, size) for i in range(10)])
        else:
            data = message(writer, number, size)
            with pub.claim(len(data)) as view:
                view[: len(data) // 2] = data[: len(data) // 2]
                view[len(data) // 2 :] = data[len(data) // 2 :]
            number += 1


def read_for_ever(name, seed):
    """Comes, reads and goes, until killed."""
    rng = random.Random(seed)
    while True:
        with penstock.subscribe(name, conflate=rng.random() < 0.3) as sub:
            for _ in range(rng.randrange(200)):
                data = sub.try_recv()
                if data is not None:
                    check(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_publications_and_subscriptions_die_and_the_living_go_on(rng):
    name = "ring:crash"
    penstock.publish(
        penstock.testing.channel(name, start_position=(1 << 32) - C, start_sequence=(1 << 64) - 9),
        capacity=C,
        max_members=8,
    ).close()
    sub, latest = penstock.subscribe(name), penstock.subscribe(name, conflate=True)
    got = writer = kills = seen_writer = 0
    following = -1  # the number of the last message of the writer heard last
    lost = 0
    readers = [start(read_for_ever, name, rng.random()) for _ in range(2)]
    while kills < KILLS:
        writer += 1
        child = start(write_for_ever, name, writer, rng.random())
        life = rng.uniform(0.001, 0.012)
        deadline = time.monotonic() + (life if rng.random() < 0.3 else PATIENCE)  # some die before they have sent
        while time.monotonic() < deadline:
            if seen_writer == writer:
                deadline = min(deadline, time.monotonic() + life)
                life = PATIENCE
            before = sub.lost_messages
            messages = sub.poll(100)
            is_whole = sub.lost_messages == lost  # a lap may be before, behind or between any of them
            lost = before if messages else lost
            for data in messages:
                by, number = check(data)
                assert by >= seen_writer
                if by == seen_writer and is_whole:
                    assert number == following + 1, f"writer {by}: {number} after {following}"
                else:
                    assert number > following or by > seen_writer
                seen_writer, following = by, number
                got += 1
            newest = latest.try_recv()
            if newest is not None:
                check(newest)
        kill(child)
        kills += 1
        if rng.random() < 0.3:
            kill(readers.pop(rng.randrange(len(readers))))
            readers.append(start(read_for_ever, name, rng.random()))
            kills += 1
    for pid in readers:
        kill(pid)
    got += len(sub.poll(10**6))
    totals = penstock.inspect(name).totals
    assert got + sub.lost_messages == totals.messages_sent
    assert totals.messages_sent > kills
    with penstock.publish(name) as last:
        assert last.readers == 2  # the dead are known to be dead
        last.send(b"end")
        assert sub.recv(timeout=60) == b"end"
        assert latest.recv(timeout=60) == b"end"
        assert last.all_read
    extra = [penstock.subscribe(name) for _ in range(6)]  # every slot of the dead can be had again
    assert len(extra) == 6
    assert os.path.exists(penstock.inspect(name).path)
