"""kill -9 of a sync queue's members at any moment: the living go on at once, in one order, and no message that was seen by one is
missing for another."""

import contextlib
import os
import random
import time

import pytest
from conftest import sized
from crash.victims import check, kill, message, start

import penstock

S = 1 << 16
KILLS = sized(30, 120, 10_000)


def talk_for_ever(name, writer, seed):
    """Every way of writing and reading, until killed."""
    rng = random.Random(seed)
    number = 0
    with penstock.join(name, name=f"w{writer}") as queue:
        while True:
            way, size = rng.random(), rng.choice([0, 10, 100, 1000, 5000, 20_000])
            if way < 0.6:
                queue.send(message(writer, number, size), timeout=None)
                number += 1
            elif way < 0.8:
                number += queue.offer_many([message(writer, number + i, size // 10) for i in range(10)])
            elif way < 0.9:
                queue.poll(rng.randrange(100))
            elif way < 0.95:
                with queue.borrow() as taken:
                    check(bytes(taken.body))
            else:
                with contextlib.suppress(TimeoutError):
                    queue.recv(timeout=0.001)


def note(queue, seen):
    """The messages that are there, in order: each writer's numbers follow each other."""
    for taken in queue.poll(200):
        by, number = check(taken.body)
        assert taken.sender == f"w{by}"
        assert number == seen.get(by, -1) + 1, f"writer {by}: {number} after {seen.get(by, -1)}"
        seen[by] = number


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_members_die_and_the_living_go_on(rng):
    name = "sync:crash"
    here = penstock.join(
        penstock.testing.channel(name, start_position=(1 << 32) - S), name="here", capacity=S, max_members=16
    )
    there = penstock.join(name, name="there", max_members=16)
    seen, seen_there = {}, {}
    writers = [0, 1, 2]
    children = {writer: start(talk_for_ever, name, writer, rng.random()) for writer in writers}
    kills, stalls = 0, []
    while kills < KILLS:
        deadline = time.monotonic() + rng.uniform(0.001, 0.012)
        while time.monotonic() < deadline:
            note(here, seen)
            note(there, seen_there)
        victim = rng.choice(sorted(children))
        kill(children.pop(victim))
        kills += 1
        begun = time.monotonic()
        # The living are stopped for no longer than it takes to see that nobody holds the dead one's locks any more.
        while here.offer(b"", type="probe") is None:
            note(here, seen)
            there.screen(types=["probe"])
            note(there, seen_there)
        stalls.append(time.monotonic() - begun)
        there.screen(types=["probe"])
        writers.append(len(writers))
        children[writers[-1]] = start(talk_for_ever, name, writers[-1], rng.random())
    for pid in children.values():
        kill(pid)
    end = time.monotonic() + 30
    while time.monotonic() < end and (here.lag or there.lag):
        note(here, seen)
        note(there, seen_there)
    assert seen == seen_there
    assert len(seen) > KILLS / 4
    stalls.sort()
    print(
        f"{kills} kills, the next message fits after p50 {stalls[len(stalls) // 2] * 1e3:.2f} ms, p99 "
        f"{stalls[len(stalls) * 99 // 100] * 1e3:.2f} ms, worst {stalls[-1] * 1e3:.2f} ms"
    )
    assert {member.name for member in here.members()} == {"here", "there"}
    extra = [penstock.join(name, name=f"x{i}") for i in range(10)]  # every slot of the dead can be had again
    assert len(extra) == 10
    for member in [*extra, here, there]:
        member.close()
    assert not os.path.exists(os.path.join(os.environ["PENSTOCK_DIR"], "crash.sync"))
    assert penstock.list_channels("sync:*") == []
