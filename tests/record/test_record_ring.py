"""Rings are recorded as they are read: whole messages, and a gap for every byte that was lost."""

import numpy as np
import pytest

import penstock
from penstock.record import plan

C = 1 << 16


@pytest.fixture
def pub():
    """A small ring."""
    with penstock.publish("ring:r", capacity=C) as made:
        yield made


def send(pub, first, count, size=8):
    for i in range(first, first + count):
        pub.send(np.full(max(size // 8, 1), i, "<u8"))


def numbers(archive, **options):
    return [int(np.frombuffer(m.data, "<u8")[0]) for m in archive.replay("ring:r", **options)]


def test_all_messages_are_there(archive, pub):
    with archive.record("ring:r"):
        send(pub, 0, 900)
    assert numbers(archive) == list(range(900))
    info = archive.find("ring:r")
    assert (info.state, info.messages, info.gaps, info.lost_bytes) == ("closed", 900, 0, 0)
    assert info.end_position == pub.position
    assert archive.verify() == []
    table = archive.read("ring:r", columns=("position", "payload", "session", "time"))
    assert table.column("position").to_pylist() == [64 * i for i in range(900)]
    assert set(table.column("session").to_pylist()) == {pub.session}


def test_a_recorded_gap_is_as_long_as_a_subscriptions_loss(archive, pub):
    writer = archive._opener.open("ring:r", "newest", False, C, None)
    sub = penstock.subscribe("ring:r")
    got, sent = [], 0
    for burst, size in ((10, 8), (3000, 8), (5, 4000), (40, 4000), (900, 24), (1, 0), (2000, 100), (20, 8)):
        send(pub, sent, burst, size)
        sent += burst
        while writer.turn() > 0:
            pass
        got += [int(np.frombuffer(m, "<u8")[0]) for m in sub.poll(100_000)]
    writer.finish()
    assert sub.lost > 0
    info = archive.find("ring:r")
    assert numbers(archive) == got
    assert info.lost_bytes == sub.lost
    assert info.messages + sub.lost_messages == sent
    assert archive.verify() == []
    assert sum(row["lost"] for row in archive.read("ring:r", columns=("position", "lost")).to_pylist()) == sub.lost
    # Read in ranges, as Spark's tasks do, each gap is still counted once.
    lost, rows = 0, 0
    for planned in plan(archive, range_bytes=1 << 12):
        for batch in planned.scan(("position", "lost"), batch_rows=100):
            lost += sum(batch.column("lost").to_pylist())
            rows += batch.num_rows
    assert (lost, rows) == (sub.lost, len(got))


def test_gaps_that_follow_each_other_are_one(archive, pub):
    writer = archive._opener.open("ring:r", "newest", False, C, None)
    send(pub, 0, 3)
    while writer.turn() > 0:
        pass
    for first in (3, 5003, 10003):
        send(pub, first, 5000)
        writer.turn()  # finds the gap, and nothing to record after it
    send(pub, 15003, 2)
    while writer.turn() > 0:
        pass
    writer.finish()
    assert numbers(archive) == [0, 1, 2, 15003, 15004]
    assert archive.verify() == []
    assert archive.find("ring:r").lost_bytes == 15000 * 64
    assert archive.read("ring:r", columns=("lost",)).column("lost").to_pylist() == [0, 0, 0, 15000 * 64, 0]
    last = plan(archive)[-1]
    assert next(last.scan(("lost",), batch_rows=100)).column("lost").to_pylist() == [15000 * 64, 0]


def test_a_recorder_that_comes_back_notes_what_it_missed(archive, pub):
    with archive.record("ring:r"):
        send(pub, 0, 100)
    send(pub, 100, 50)
    with archive.record("ring:r", extend=True):
        send(pub, 150, 50)
    assert numbers(archive) == list(range(200))
    send(pub, 200, 5000)
    with archive.record("ring:r", extend=True):
        send(pub, 5200, 10)
    assert numbers(archive) == [*range(200), *range(5200, 5210)]
    info = archive.find("ring:r")
    assert (info.gaps, info.lost_bytes) == (1, 5000 * 64)
    assert len(archive.list()) == 1
    assert archive.verify() == []


def test_following_a_ring_gives_what_is_recorded(archive, pub):
    recorder = archive.record("ring:r")
    send(pub, 0, 20)
    followed = archive.follow("ring:r", timeout=10)
    got = [int(np.frombuffer(next(followed).data, "<u8")[0]) for _ in range(20)]
    assert got == list(range(20))
    send(pub, 20, 5)
    got = [int(np.frombuffer(next(followed).data, "<u8")[0]) for _ in range(5)]
    assert got == list(range(20, 25))
    recorder.stop()
    assert list(followed) == []


def test_replay_onto_a_ring_and_from_one_kind_to_another(archive, pub):
    with archive.record("ring:r"):
        send(pub, 0, 50)
    with penstock.subscribe("log:copy") as copy:
        assert archive.replay_onto("ring:r", "log:copy") == 50
        assert len(copy.poll()) == 50
    pub.close()
    with penstock.subscribe("ring:r") as again:
        assert archive.replay_onto("ring:r", "ring:r") == 50
        assert len(again.poll()) == 50
