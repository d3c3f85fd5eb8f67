"""The bytes on a real socket, both roles: what a real driver was seen to send is understood, and ours are the same."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from network import frames
from ports import free_port

import penstock

PATIENCE = 60
SESSION, STREAM, TERM_LENGTH, MTU = 0x12345678, 1001, 65536, 1408
RECEIVER = 0x0102030405060708

# Captured from a real driver: session 0x12345678, stream 1001, initial term id 7, term length 64 KiB, MTU 1408.
SETUP = bytes.fromhex(
    "28000000000005000000000078563412e903000007000000070000000000010080050000 00000000".replace(" ", "")
)
HEARTBEAT = bytes.fromhex("0000000000c001000000000078563412e9030000070000000000000000000000")
DATA_HEADER = bytes.fromhex("0804000000c001000000000078563412e9030000070000000000000000000000")
END_OF_STREAM = bytes.fromhex("0000000000e001000042000078563412e9030000090000000000000000000000")


def test_the_frames_of_these_tests_are_the_captured_ones():
    assert frames.setup(SESSION, STREAM, 7, 7, 0, TERM_LENGTH) == SETUP
    assert frames.heartbeat(SESSION, STREAM, 7, 0) == HEARTBEAT
    assert frames.data(SESSION, STREAM, 7, 0, bytes(1000))[:32] == DATA_HEADER
    assert frames.heartbeat(SESSION, STREAM, 9, 0x4200, frames.WHOLE | frames.END_OF_STREAM) == END_OF_STREAM
    status = frames.status(SESSION, STREAM, 7, 0x4F60, 0x3700, RECEIVER)
    assert status.hex() == "240000000000030078563412e903000007000000604f0000003700000807060504030201"
    assert (
        frames.nak(SESSION, STREAM, 7, 0xD540, 0x220).hex()
        == "1c0000000000020078563412e90300000700000040d5000020020000"
    )


@pytest.fixture
def peer():
    """A plain socket on loopback that plays the other side."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(PATIENCE)
        yield made


def until(peer, kind, accept=lambda datagram: True):
    """The next datagram of a kind, and its sender; others are passed over."""
    while True:
        datagram, source = peer.recvfrom(65536)
        if frames.kind(datagram) == kind and accept(datagram):
            return datagram, source


def test_a_publication_sends_the_captured_bytes(peer):
    uri = f"udp://127.0.0.1:{peer.getsockname()[1]}/{STREAM}"
    with penstock.publish(
        penstock.testing.channel(uri, initial_term_id=7), session=SESSION, term_length=TERM_LENGTH, linger=0.5
    ) as pub:
        datagram, source = until(peer, frames.SETUP)
        assert datagram[:36] == SETUP[:36]  # behind it: the TTL, which is the publication's option
        peer.sendto(frames.status(SESSION, STREAM, 7, 0, 1 << 15, RECEIVER), source)
        before = time.time_ns()
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(bytes(range(250)) * 4)
        datagram, _ = until(peer, frames.DATA, lambda found: len(found) > 32)
        assert datagram[:24] == DATA_HEADER[:24]
        assert datagram[32:] == bytes(range(250)) * 4 + bytes(24)
        assert before <= struct.unpack_from("<q", datagram, 24)[0] <= time.time_ns()
        datagram, _ = until(peer, frames.DATA)
        assert datagram == frames.heartbeat(SESSION, STREAM, 7, 1056)
        peer.sendto(frames.nak(SESSION, STREAM, 7, 0, 1056), source)
        again, _ = until(peer, frames.DATA, lambda found: len(found) > 32)
        assert again[:24] == DATA_HEADER[:24]
        echo = frames.rtt(SESSION, STREAM, 12345, 0, RECEIVER)
        peer.sendto(echo, source)
        assert until(peer, frames.RTT)[0] == frames.rtt(SESSION, STREAM, 12345, 0, RECEIVER, flags=0)
        pub.close()
        end = frames.heartbeat(SESSION, STREAM, 7, 1056, frames.WHOLE | frames.END_OF_STREAM)
        until(peer, frames.DATA, lambda found: found == end)
        peer.sendto(frames.status(SESSION, STREAM, 7, 1056, 0, RECEIVER, frames.LEAVING), source)


def test_fragments_have_the_flags_of_begin_and_end(peer):
    uri = f"udp://127.0.0.1:{peer.getsockname()[1]}/{STREAM}"
    with penstock.publish(
        penstock.testing.channel(uri, initial_term_id=0), session=SESSION, term_length=TERM_LENGTH, linger=0
    ) as pub:
        _, source = until(peer, frames.SETUP)
        peer.sendto(frames.status(SESSION, STREAM, 0, 0, 1 << 15, RECEIVER), source)
        pub.send(b"x" * (1376 * 2 + 10), timeout=PATIENCE)
        found = [until(peer, frames.DATA, lambda found: len(found) > 32)[0] for _ in range(3)]
    assert [(len(one), one[5]) for one in found] == [(1408, frames.BEGIN), (1408, 0), (64, frames.END)]
    assert struct.unpack_from("<i", found[2])[0] == 42


def test_a_subscription_answers_as_a_receiver_does(peer):
    port = free_port()
    with penstock.subscribe(f"udp://127.0.0.1:{port}/{STREAM}", until_end=True) as sub:
        at = ("127.0.0.1", port)
        body = bytes(range(250)) * 4
        peer.sendto(frames.data(SESSION, STREAM, 7, 0, body), at)  # a session that it does not know
        asked, _ = until(peer, frames.STATUS)
        assert asked[:28] == frames.status(SESSION, STREAM, 0, 0, 0, 0, frames.SEND_SETUP)[:28]
        peer.sendto(SETUP, at)
        first, _ = until(peer, frames.STATUS, lambda found: found[5] == 0)
        window = struct.unpack_from("<i", first, 24)[0]
        assert first[:24] == frames.status(SESSION, STREAM, 7, 0, 0, 0)[:24]
        assert 0 < window <= TERM_LENGTH // 2
        peer.sendto(frames.data(SESSION, STREAM, 7, 1056, body), at)  # the one before it is missing
        assert until(peer, frames.NAK)[0] == frames.nak(SESSION, STREAM, 7, 0, 1056)
        assert sub.try_recv() is None
        peer.sendto(DATA_HEADER + body + bytes(24), at)
        assert sub.recv(timeout=PATIENCE) == body
        assert sub.last.session == SESSION
        assert sub.recv(timeout=PATIENCE) == body
        peer.sendto(frames.heartbeat(SESSION, STREAM, 7, 2112, frames.WHOLE | frames.END_OF_STREAM), at)
        assert list(sub) == []
        leaving, _ = until(peer, frames.STATUS, lambda found: found[5] == frames.LEAVING)
        assert leaving[8:24] == frames.status(SESSION, STREAM, 7, 2112, 0, 0)[8:24]
        counts = penstock.inspect(sub.channel).details
        assert (counts["naks_sent"] >= 1, counts["setup_requests"], counts["malformed"]) == (True, 1, 0)
