"""Silence is no end: a session whose sender is not heard is lost, not closed, and continues on the same handle when it is heard again."""

import signal
import socket
import subprocess
import sys
import time

import pytest
from network import frames
from network.relay import relay
from people import until
from ports import free_port

import penstock

PATIENCE = 60


def uri(port):
    return f"udp://127.0.0.1:{port}/7"


def received(sub, count):
    """So many messages, from a session that may have to come back first."""
    found, give_up = [], time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < give_up
        try:
            found.append(sub.recv(timeout=1))
        except (penstock.Disconnected, penstock.TimedOut):
            time.sleep(0.01)
    return found


def test_a_silent_peer_is_a_problem_until_it_is_heard():
    """As on a link that is down, before the peer counts as gone."""
    target = free_port()
    with (
        relay(target) as between,
        penstock.subscribe(uri(target)) as sub,
        penstock.publish(uri(between.port), codec="json") as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(1)
        assert sub.recv(timeout=PATIENCE) == 1
        between.set(loss=1.0)
        for handle in (sub, pub):
            give_up = time.monotonic() + PATIENCE
            while not (problems := handle.statistics().network.problems):
                assert time.monotonic() < give_up
                time.sleep(0.05)
            assert all(one.startswith("nothing is heard from 127.0.0.1:") for one in problems)
        between.set(loss=0.0)
        while sub.statistics().network.problems:
            time.sleep(0.05)


def test_a_partition_is_no_end_of_the_stream(archive):
    target, another = free_port(), free_port()
    with (
        relay(target) as between,
        penstock.subscribe(uri(target), until_end=True) as sub,
        penstock.subscribe(uri(another), until_end=True) as honest,
        archive.record(uri(target)) as recorder,
        penstock.publish(uri(between.port), codec="json") as pub,
        penstock.publish(uri(another), codec="json") as other,
    ):
        pub.wait_for_readers(2, timeout=PATIENCE)
        other.wait_for_readers(1, timeout=PATIENCE)
        for number in range(100):
            pub.send(number)
        other.send("done")
        other.close()
        assert received(sub, 100) == list(range(100))
        between.set(loss=1.0)
        for number in range(100, 200):
            pub.send(number)
        with pytest.raises(
            penstock.Disconnected, match=rf"session {pub.session} of 127\.0\.0\.1:\d+ fell silent before it closed"
        ):
            sub.recv(timeout=PATIENCE)
        assert [one.state for one in sub.sessions] in ([], ["lost"])
        for call in (sub.try_recv, sub.poll, lambda: next(iter(sub))):  # it is said again, and ends no loop in silence
            with pytest.raises(penstock.Disconnected):
                call()
        assert list(honest) == ["done"]
        until(lambda: [one.state for one in archive.list()] == ["lost"], "its recording is not sealed")
        between.set(loss=0.0)
        assert received(sub, 100) == list(range(100, 200)), "what the sender kept comes on the same handle"
        assert [one.state for one in sub.sessions] == ["open"]
        assert sub.lost == 0
        pub.close()
        with pytest.raises(penstock.EndOfStream):
            sub.recv(timeout=PATIENCE)
        while sum(one.messages for one in recorder.progress()) < 200:
            time.sleep(0.01)
    assert [info.state for info in archive.list()] == ["lost", "closed"]
    assert [m.data for info in archive.list() for m in archive.replay(info.id)] == list(range(200))


KILLED = """
import sys, penstock
with penstock.publish(sys.argv[1], codec="json") as pub:
    pub.wait_for_readers(2, timeout=60)
    for number in range(100):
        pub.send(number)
    print(pub.position, flush=True)
    sys.stdin.read()
"""


def test_a_killed_publication_is_lost_and_so_is_its_recording(archive):
    port = free_port()
    with (
        penstock.subscribe(uri(port), until_end=True) as sub,
        archive.record(uri(port)) as recorder,
        subprocess.Popen(
            [sys.executable, "-c", KILLED, uri(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as sender,
    ):
        sender.stdout.readline()
        found = received(sub, 100)
        sender.send_signal(signal.SIGKILL)
        with pytest.raises(penstock.Disconnected, match="fell silent"):
            while True:
                found.append(sub.recv(timeout=PATIENCE))
        assert found == list(range(100))
        assert [message.data for message in archive.follow(1, timeout=PATIENCE)] == found, "it ends beside its recorder"
        with penstock.publish(uri(port), codec="json") as pub:  # another session changes nothing for the lost one
            pub.wait_for_readers(2, timeout=PATIENCE)
            pub.send("later")
            assert received(sub, 1) == ["later"]
        with pytest.raises(penstock.Disconnected, match="fell silent"):
            sub.recv(timeout=PATIENCE)
        while sum(one.messages for one in recorder.progress()) < 101:
            time.sleep(0.01)
    assert [(info.state, info.messages) for info in archive.list()] == [("lost", 100), ("closed", 1)]


BEGIN, END = 0x80, 0x40
FRAGMENT = 1000


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0, 64])
def test_a_message_in_parts_survives_a_silence(gap):
    """A sender falls silent between a message's fragments, and goes on. The message is whole, unless more was lost in between."""
    port, session, began = free_port(), 77, frames_length(FRAGMENT)
    with (
        penstock.subscribe(uri(port), codec="bytes", until_end=True) as sub,
        socket.socket(type=socket.SOCK_DGRAM) as sender,
    ):
        sender.settimeout(PATIENCE)
        sender.connect(("127.0.0.1", port))
        setup = frames.setup(session, 7, 0, 0, 0, 1 << 16)
        joined(sub, sender, setup, session)
        sender.send(frames.data(session, 7, 0, 0, b"a" * FRAGMENT, BEGIN))
        with pytest.raises(penstock.Disconnected):
            sub.recv(timeout=PATIENCE)
        assert sub.lost == 0
        again = frames.setup(session, 7, 0, 0, began + gap, 1 << 16)
        joined(sub, sender, again, session)
        sender.send(frames.data(session, 7, 0, began + gap, b"b" * FRAGMENT, END))
        sender.send(frames.data(session, 7, 0, 2 * began + gap, b"next"))
        first = sub.recv(timeout=PATIENCE)
        if gap:
            assert (first, sub.lost) == (b"next", gap)
        else:
            assert (first, sub.lost, sub.last.position) == (b"a" * FRAGMENT + b"b" * FRAGMENT, 0, 0)
            assert sub.recv(timeout=PATIENCE) == b"next"


def frames_length(payload):
    """Bytes of the stream that a frame takes."""
    return (32 + payload + 31) // 32 * 32


def joined(sub, sender, setup, session):
    """The subscription reads the session at this SETUP."""
    until = time.monotonic() + PATIENCE
    while not any(one.session == session and one.state == "open" for one in sub.sessions):
        assert time.monotonic() < until
        sender.send(setup)
        _ = sub.lag  # which looks at the socket
        time.sleep(0.01)
