"""kill -9 of pushers and pullers at any moment: every message is processed once, or reported as redelivered."""

import contextlib
import os
import random
import threading
import time

import pytest
from conftest import sized
from crash.victims import check, kill, message, start

import penstock

C = 1 << 16
KILLS = sized(30, 120, 10_000)


def push_for_ever(name, writer, seed, ledger):
    """Every way of writing, until killed. The ledger says how far it surely came."""
    rng = random.Random(seed)
    number = 0
    with penstock.publish(name, name=f"w{writer}") as push:
        while True:
            way, size = rng.random(), rng.choice([0, 10, 100, 1000, 5000, 20_000])
            if way < 0.6:
                push.send(message(writer, number, size))
                number += 1
            elif way < 0.8:
                number += push.offer_many([message(writer, number + i, size // 10) for i in range(10)])
            else:
                data = message(writer, number, size)
                with push.claim(len(data)) as view:
                    view[: len(data) // 2] = data[: len(data) // 2]
                    view[len(data) // 2 :] = data[len(data) // 2 :]
                number += 1
            os.pwrite(ledger, number.to_bytes(8, "little"), 8 * writer)


def pull_for_ever(name, seed, done):
    """Takes, notes what it has done, and takes again, until killed."""
    rng = random.Random(seed)
    while True:
        with penstock.subscribe(name) as pull:
            for _ in range(rng.randrange(1, 500)):
                with contextlib.suppress(TimeoutError):
                    data = pull.recv(timeout=0.01)
                    writer, number = check(data)
                    os.write(done, b"%d %d %d\n" % (writer, number, pull.redelivered))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_message_is_done_once_or_reported(rng, tmp_path):
    name = "pipe:crash"
    first = penstock.publish(
        penstock.testing.channel(name, start_position=(1 << 32) - C), capacity=C, max_members=16, max_pipes=64
    )
    ledger = os.open(tmp_path / "ledger", os.O_RDWR | os.O_CREAT)
    done = os.open(tmp_path / "done", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    writers, kills, moment = 2, 0, threading.Event()
    pushing = {w: start(push_for_ever, name, w, rng.random(), ledger) for w in range(writers)}
    pulling = [start(pull_for_ever, name, rng.random(), done) for _ in range(3)]
    while kills < KILLS:
        moment.wait(rng.uniform(0.001, 0.02))
        if rng.random() < 0.5:
            kill(pushing.pop(rng.choice(sorted(pushing))))
            pushing[writers] = start(push_for_ever, name, writers, rng.random(), ledger)
            writers += 1
        else:
            kill(pulling.pop(rng.randrange(len(pulling))))
            pulling.append(start(pull_for_ever, name, rng.random(), done))
        kills += 1
    for pid in (*pushing.values(), *pulling):
        kill(pid)
    rest = []
    with penstock.subscribe(name) as pull:
        quiet = time.monotonic() + 2
        while time.monotonic() < quiet:
            with contextlib.suppress(TimeoutError):
                rest.append((*check(pull.recv(timeout=0.05)), pull.redelivered))
                quiet = time.monotonic() + 0.5
    text = (tmp_path / "done").read_bytes()
    rows = [tuple(map(int, line.split())) for line in text.splitlines()] + rest
    surely = [int.from_bytes(os.pread(ledger, 8, 8 * w), "little") for w in range(writers)]
    times: dict[tuple[int, int], int] = {}
    again = set()
    for writer, number, redelivered in rows:
        times[writer, number] = times.get((writer, number), 0) + 1
        if redelivered:
            again.add((writer, number))
    missing = [
        (w, n) for w in range(writers) for n in range(surely[w]) if (w, n) not in times
    ]  # a message whose reader died before it could note it is still redelivered
    assert not missing, missing[:5]
    twice = {key for key, count in times.items() if count > 1}
    assert twice <= again, f"done twice and not reported: {sorted(twice - again)[:5]}"
    numbers: dict[int, list[int]] = {}
    for by, number in times:
        numbers.setdefault(by, []).append(number)
    for w in range(writers):  # nothing was made up, and nothing in the middle is missing
        found = numbers.get(w, [])
        assert sorted(found) == list(range(len(found)))
        assert len(found) >= surely[w]
    status = penstock.inspect(name)
    print(
        f"{kills} kills, {len(times)} messages of {writers} writers, {len(again)} redelivered, {len(twice)} done twice"
    )
    assert [member.role for member in status.members] == ["push"]
    extra = [penstock.subscribe(name) for _ in range(15)]  # every place of the dead can be had again
    assert len(extra) == 15
    assert penstock.inspect(name).details["pipes"] <= 16
    first.close()
