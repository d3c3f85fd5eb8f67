"""`Archive.play(recorded_times=True)`: readers and new recordings see messages at the times at which they were sent."""

import numpy as np
import pytest

import penstock
from penstock.errors import Unsupported

BEGAN = 1_769_860_800 * 10**9
TIMES = [BEGAN, BEGAN + 10**9, BEGAN + 5 * 10**8, 0, BEGAN]  # a step back, and the epoch


def send_time(subscription):
    """The send time of the message received last."""
    return subscription.last.time_ns


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_messages_have_their_recorded_times(kind, archive):
    archive.append("log:a", [b"%d" % at for at in range(5)], times_ns=TIMES)
    with penstock.subscribe(f"{kind}:b") as sub:
        archive.play(onto={"log:a": f"{kind}:b"}, speed=None, recorded_times=True)
        found = [(sub.recv(timeout=60), send_time(sub)) for _ in TIMES]
    assert found == [(b"%d" % at, time_ns) for at, time_ns in enumerate(TIMES)]


def test_a_new_recording_has_the_recorded_times(archive):
    archive.append("log:a", [b"x"] * 5, times_ns=TIMES)
    again = penstock.Archive(archive.path / "again")
    with penstock.publish("log:b"), again.record("log:b"):
        archive.play(onto={"log:a": "log:b"}, speed=None, recorded_times=True)
    assert [message.time_ns for message in again.replay("log:b")] == TIMES


def test_a_reader_sees_the_recorded_times(archive):
    """A large message is in several frames; each of them has the time."""
    archive.append("log:a", [b"small", bytes(300_000)], times_ns=TIMES[:2])
    with penstock.publish("log:b", capacity="4MB"), penstock.subscribe("log:b") as sub:
        archive.play(onto={"log:a": "log:b"}, speed=None, recorded_times=True)
        found = [(len(sub.recv(timeout=60)), send_time(sub)) for _ in range(2)]
    assert found == [(5, TIMES[0]), (300_000, TIMES[1])]


def test_latencies_of_old_messages_are_not_measured(archive):
    archive.append("log:a", [b"x"] * 200, times_ns=range(BEGAN, BEGAN + 200))
    with penstock.publish("log:b", capacity="4MB"), penstock.subscribe("log:b") as sub:
        archive.play(onto={"log:a": "log:b"}, speed=None, recorded_times=True)
        assert len([sub.recv(timeout=60) for _ in range(200)]) == 200
        counted = sub.statistics().latency
        assert counted is not None
        assert counted.messages == 0


def test_frames_have_their_recorded_times(archive):
    clock = penstock.testing.ManualClock(BEGAN)
    channel = penstock.testing.channel("frames:camera", clock=clock)
    with penstock.publish(channel, shape=(2, 2)) as camera, archive.record("frames:camera", pixels=True):
        camera.send(np.zeros((2, 2), "u1"))
    with (
        penstock.publish("frames:made", shape=(2, 2)) as made,
        penstock.subscribe("frames:made", conflate=False) as reader,
    ):
        made.close()
        archive.play(onto={"frames:camera": "frames:made"}, speed=None, recorded_times=True)
        with reader.recv(timeout=60):
            assert send_time(reader) == BEGAN


def test_without_it_they_have_the_time_of_now(archive):
    archive.append("log:a", [b"x"], times_ns=[BEGAN])
    with penstock.publish("log:b"), penstock.subscribe("log:b") as sub:
        archive.play(onto={"log:a": "log:b"}, speed=None)
        sub.recv(timeout=60)
        assert send_time(sub) > BEGAN


def test_the_network_is_refused(archive):
    """Its clock paces datagrams; nothing is published."""
    archive.append("log:a", [b"x"], times_ns=[BEGAN])
    with pytest.raises(Unsupported, match="onto a log:"):
        archive.play(onto={"log:a": "udp://127.0.0.1:40999/1"}, speed=None, recorded_times=True)
