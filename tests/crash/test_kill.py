"""kill -9 at any moment: of writers, readers and recorders. The living go on, and nothing that was committed is lost."""

import multiprocessing
import os
import time

import pytest
from conftest import sized
from crash.victims import check, kill, message, start

import penstock

T = 1 << 16
ROUNDS = sized(8, 25, 300)
context = multiprocessing.get_context("fork")


def write_for_ever(name, writer, seed):
    """Every way of writing, until killed."""
    import random

    rng = random.Random(seed)
    pub = penstock.publish(name)
    number = 0
    while True:
        way, size = rng.random(), rng.choice([0, 10, 100, 1000, 5000])
        if way < 0.6:
            pub.send(message(writer, number, size))
            number += 1
        elif way < 0.8:
            batch = [message(writer, number + i, size) for i in range(10)]
            number += pub.offer_many(batch)
        elif way < 0.9:
            pub.send(message(writer, number, T))  # in fragments
            number += 1
        else:
            data = message(writer, number, size)
            with pub.claim(len(data)) as view:
                view[: len(data) // 2] = data[: len(data) // 2]
                view[len(data) // 2 :] = data[len(data) // 2 :]
            number += 1


def read_for_ever(name):
    sub = penstock.subscribe(name)
    for data in sub:
        check(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_writers_and_readers_die_and_the_living_go_on(rng):
    name = "log:crash"
    steady = penstock.publish(name, term_length=T, max_members=32)
    sub = penstock.subscribe(name)
    last: dict[int, int] = {}
    ours = 0
    for round_number in range(ROUNDS):
        writers = [start(write_for_ever, name, 1000 + 2 * round_number + i, rng.random()) for i in range(2)]
        reader = start(read_for_ever, name)
        deadline = time.monotonic() + rng.uniform(0.005, 0.06)
        while time.monotonic() < deadline:
            if steady.offer(message(1, ours, 50)) is not None:
                ours += 1
            for data in sub.poll(200):
                writer, number = check(data)
                assert number == last.get(writer, -1) + 1, f"writer {writer}: {number} after {last.get(writer)}"
                last[writer] = number
        for pid in rng.sample([*writers, reader], 3):
            kill(pid)
        # With all of them dead, the living get through within moments.
        sent = False
        while last.get(1, -1) != ours - 1 or not sent:
            if not sent and steady.offer(message(1, ours, 50)) is not None:
                ours, sent = ours + 1, True
            penstock.wait([sub], timeout=0.01)  # looks for holes that the dead left, too
            for data in sub.poll(200):
                writer, number = check(data)
                assert number == last.get(writer, -1) + 1
                last[writer] = number
    sub.try_recv()
    status = steady.statistics()
    alive = [m for m in status.members if os.path.exists(f"/proc/{m.pid}")]
    assert len(alive) == 2
    steady.close()
    with penstock.publish(name, exclusive=True):
        pass  # possible only if every dead publication's slot can be taken back


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_synced_messages_of_a_killed_recorder_are_there(archive, rng):
    for round_number in range(ROUNDS // 3 + 1):
        name = f"log:rec{round_number}"
        pub = penstock.publish(name, term_length=T)
        read, write = os.pipe()

        def record(name=name, write=write):
            recorder = archive.record(name, sync_interval=0.005, segment_length=1 << 17)
            os.write(write, b"r")
            while recorder.error is None:
                time.sleep(1)

        pid = start(record)
        assert os.read(read, 1) == b"r"
        positions = []
        deadline = time.monotonic() + rng.uniform(0.02, 0.15)
        while time.monotonic() < deadline:
            position = pub.offer(message(1, len(positions), rng.randrange(500)))
            if position is not None:
                positions.append(position)
        kill(pid)
        info = archive.find(name)
        assert info.state in ("crashed", "closed")  # closed: it died between sealing a segment and the next one
        assert info.synced_position <= info.end_position
        whole = sum(position <= info.synced_position for position in positions)
        got = [check(m.data)[1] for m in archive.replay(name)]
        assert got == list(range(len(got)))
        assert len(got) >= whole
        assert archive.verify(name) == []
        archive.repair(name)
        assert [check(m.data)[1] for m in archive.replay(name)] == got
        # And it can be gone on with, as long as the channel keeps what follows.
        try:
            with archive.record(name, extend=True):
                pub.send(message(1, len(positions), 10))
        except penstock.Invalid as error:
            if "not kept" not in str(error):
                raise
        else:
            assert [check(m.data)[1] for m in archive.replay(name)] == list(range(len(positions) + 1))
            assert archive.verify(name) == []
        pub.close()
        penstock.remove(name)
