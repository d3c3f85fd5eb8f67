"""Sessions that end without a message, honest or forged: no wait on an endpoint is longer than its deadline, or computes."""

import socket
import time

import pytest
from conformance.deadlines import keeps, reading
from conformance.subjects import PATIENCE, Place, Subject
from network import frames
from ports import free_port

import penstock

SESSION, STREAM, TERM = 4242, 7, 5
SETUP = frames.setup(SESSION, STREAM, TERM, TERM, 0, 1 << 16)
END = frames.heartbeat(SESSION, STREAM, TERM, 0, frames.WHOLE | frames.END_OF_STREAM)


def place():
    return Place(Subject("udp", "udp"), f"udp://127.0.0.1:{free_port()}/{STREAM}")


def heard(sub, port, *datagrams):
    """The session that a stranger announces is there, and has the datagrams that the stranger sent after that."""
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    give_up = time.monotonic() + PATIENCE
    stranger.sendto(SETUP, ("127.0.0.1", port))
    while not sub.sessions:
        assert time.monotonic() < give_up
        _ = sub.lag  # which looks at the socket
    for datagram in datagrams:
        stranger.sendto(datagram, ("127.0.0.1", port))
    stranger.settimeout(PATIENCE)
    return stranger


def _port(made):
    return int(made.uri.rpartition(":")[2].partition("/")[0])


def _forged(made):
    sub = made.subscribe(until_end=True)
    stranger = heard(sub, _port(made), END)
    yield reading(sub), sub
    stranger.close()


def _silent(made):
    sub = made.subscribe(until_end=True)
    stranger = heard(sub, _port(made))
    yield reading(sub), sub
    stranger.close()


def _one_message_of_a_peer_that_tells_no_codec(made):
    sub = made.subscribe(until_end=True)
    stranger = heard(sub, _port(made), frames.data(SESSION, STREAM, TERM, 0, b"x" * 32, reserved=1))
    yield reading(sub), sub
    stranger.close()


@pytest.mark.parametrize("state", [_forged, _silent, _one_message_of_a_peer_that_tells_no_codec])
def test_a_wait_keeps_its_deadline_whatever_a_stranger_sends(state):
    keeps(place(), state, loops=True)


def test_a_session_that_ends_without_a_message_ends_the_stream():
    made = place()
    with made.subscribe(until_end=True) as sub, made.publish() as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.close()
        with pytest.raises(penstock.EndOfStream):
            sub.recv(timeout=PATIENCE)
        assert list(sub) == []
        with pytest.raises(penstock.EndOfStream):
            sub.try_recv()
        with pytest.raises(penstock.EndOfStream):
            sub.poll()
