"""kill -9 of frame publications and readers at any moment: what somebody holds stays as it is, and every buffer comes back."""

import random
import time

import numpy as np
import pytest
from conftest import sized
from crash.victims import kill, start

import penstock

SIZE = 512
BUFFERS = 6
KILLS = sized(35, 150, 10_000)
PATIENCE = 10.0  # seconds for a process to begin


def content(number):
    """Frame i says i in every word."""
    return np.full(SIZE, number, "<u8")


def check(frame):
    array = frame.array
    assert (array == frame.id).all(), f"frame {frame.id} holds {np.unique(array)[:5]}"
    return frame.id


def write_for_ever(name, seed):
    """Fills in place, gives back now and then, keeps two open, until killed."""
    rng = random.Random(seed)
    pub = penstock.publish(name)
    number = rng.randrange(2**40)
    while True:
        frame = pub.try_acquire()
        if frame is None:
            continue
        frame.array[: SIZE // 2] = number
        other = pub.try_acquire() if rng.random() < 0.1 else None
        frame.array[SIZE // 2 :] = number
        frame.id = number
        if rng.random() < 0.1:
            frame.abort()
        else:
            frame.commit()
        if other is not None:
            other.abort()
        number += 1


def read_for_ever(name, seed):
    """Comes, holds some frames and goes, until killed."""
    rng = random.Random(seed)
    while True:
        with penstock.subscribe(name, conflate=rng.random() < 0.5) as sub:
            held = []
            for _ in range(rng.randrange(200)):
                frame = sub.latest() if rng.random() < 0.2 else sub.try_recv()
                if frame is not None:
                    check(frame)
                    held.append(frame)
                if len(held) > rng.randrange(3):
                    check(held.pop(0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_living_keep_their_frames_when_others_die(rng):
    name = "frames:crash"
    penstock.publish(
        penstock.testing.channel(name, start_sequence=(1 << 63) - 9), shape=(SIZE,), dtype="<u8", buffers=BUFFERS
    ).close()
    sub = penstock.subscribe(name, conflate=False)
    kept, got, kills = [], 0, 0
    readers = [start(read_for_ever, name, rng.random()) for _ in range(2)]
    while kills < KILLS:
        child = start(write_for_ever, name, rng.random())
        other = start(write_for_ever, name, rng.random()) if rng.random() < 0.3 else None
        life, before = rng.uniform(0.001, 0.012), got
        deadline = time.monotonic() + (life if rng.random() < 0.3 else PATIENCE)  # some die before they have sent
        while time.monotonic() < deadline:
            if got > before:
                deadline = min(deadline, time.monotonic() + life)
                life = PATIENCE
            for frame in sub.poll(2):
                check(frame)
                got += 1
                if rng.random() < 0.05:
                    kept.append((frame.id, frame.array))
            if len(kept) > 1:
                number, array = kept.pop(0)
                assert (array == number).all()
        kill(child)
        kills += 1
        if other is not None:  # it goes on
            before, deadline = penstock.inspect(name).totals.messages_sent, time.monotonic() + 6 * PATIENCE
            while penstock.inspect(name).totals.messages_sent == before:
                assert time.monotonic() < deadline
                for frame in sub.poll(2):
                    check(frame)
                    got += 1
            kill(other)
            kills += 1
        for number, array in kept:
            assert (array == number).all()
        if rng.random() < 0.3:
            kill(readers.pop(rng.randrange(len(readers))))
            readers.append(start(read_for_ever, name, rng.random()))
            kills += 1
    for pid in readers:
        kill(pid)
    kept.clear()
    del array, frame
    assert got > kills // 4
    with penstock.publish(name) as last:
        assert last.readers == 1  # the dead are known to be dead
        open_frames = [last.acquire(timeout=1) for _ in range(BUFFERS)]  # and their leases are over
        assert penstock.inspect(name).details["leased"] == 0
        open_frames[0].array[...] = 5
        open_frames[0].id = 5
        open_frames[0].commit()
        assert check(sub.latest()) == 5
    status = penstock.inspect(name)
    assert status.totals.messages_sent > 0
    assert status.writers == 0
