"""A connection that is cut without a word is found dead and made again."""

from __future__ import annotations

import errno
import os
import socket
import time

import pytest
from kinds.zmq.tcp_relay import TcpRelay
from ports import free_port

import penstock

pytest.importorskip("zmq")
PATIENCE = 60  # seconds
FAST = {"heartbeat_ivl": 100, "heartbeat_timeout": 1000, "heartbeat_ttl": 1000}


@pytest.fixture
def link():
    """A publication's URI, and the URI by which a subscription reaches it through a relay; the relay."""
    port = free_port()
    relay = TcpRelay(port)
    yield f"zmq+tcp://127.0.0.1:{port}", f"zmq+tcp://127.0.0.1:{relay.port}", relay
    relay.close()


def receive_until(sub, pub, message):
    """Sends a message until the subscription has it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        pub.send(message)
        while (found := sub.try_recv()) is not None:
            if found == message:
                return
        assert time.monotonic() < deadline, "it is deaf"
        penstock.wait([sub], timeout=0.05)


def test_a_half_open_connection_recovers(link):
    """The relay goes silent and keeps the connection. The subscription makes another one, and hears again."""
    there, here, relay = link
    with penstock.publish(there, options=FAST) as pub, penstock.subscribe(here, options=FAST) as sub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        receive_until(sub, pub, b"before")
        relay.freeze()
        receive_until(sub, pub, b"after")
        details = sub.statistics().details
        assert details["connected"] == 1
        assert details["connections"] >= 2
        assert details["disconnections"] >= 1


def test_connected_tells_of_a_half_open_connection(link):
    """The publication finds out, too: it has no reader when the other end is silent."""
    there, here, relay = link
    with penstock.publish(there, options=FAST) as pub, penstock.subscribe(here, options=FAST) as sub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        relay.freeze(accepts=False)
        deadline = time.monotonic() + PATIENCE
        while sub.statistics().details["connected"] or pub.readers:
            assert time.monotonic() < deadline
            penstock.wait([sub], timeout=0.05)


def test_without_heartbeats_a_silent_connection_stays(link):
    """The relay is what it says: without heartbeats nothing notices it, as before there were any."""
    there, here, relay = link
    off = {"heartbeat_ivl": 0}
    with penstock.publish(there, options=off) as pub, penstock.subscribe(here, options=off) as sub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        receive_until(sub, pub, b"before")
        relay.freeze()
        pub.send(b"lost")
        while penstock.wait([sub], timeout=0.5):
            assert sub.recv(timeout=0) == b"before"
        assert sub.statistics().details["connected"] == 1


@pytest.mark.parametrize(
    ("opens", "beats"),
    [
        (lambda uri: penstock.publish(uri), 10_000),
        (lambda uri: penstock.subscribe(uri), 10_000),
        (lambda uri: penstock.publish(uri, when_full="wait"), 0),
        (lambda uri: penstock.join(uri, role="push"), 0),
    ],
    ids=["publication", "subscription", "waiting", "push"],
)
def test_tcp_connections_have_keep_alive_and_heartbeats(opens, beats):
    """All have keep-alive. Heartbeats are for ends that may lose messages: a peer that waits for room reads none."""
    import zmq

    with opens(f"zmq+tcp://127.0.0.1:{free_port()}") as handle:
        assert handle._socket.getsockopt(zmq.TCP_KEEPALIVE) == 1
        assert handle._socket.getsockopt(zmq.TCP_KEEPALIVE_IDLE) == 10
        assert handle._socket.getsockopt(zmq.CONNECT_TIMEOUT) == 5000
        assert handle._socket.getsockopt(zmq.HEARTBEAT_IVL) == beats


def test_ipc_has_no_heartbeats(tmp_path):
    import zmq

    with penstock.publish(f"zmq+ipc://{tmp_path}/a") as pub:
        assert pub._socket.getsockopt(zmq.HEARTBEAT_IVL) == 0


def test_a_connection_that_goes_while_it_is_named(link, monkeypatch):
    """libzmq's threads close connections at any time: also between the look at one and the question who its peer is."""
    uri, _, _ = link
    own_dup = os.dup

    def late(descriptor):
        copy = own_dup(descriptor)
        with socket.socket(fileno=own_dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        return copy

    def gone(descriptor):
        raise OSError(errno.EBADF, "Bad file descriptor")

    for dup in (late, gone):
        with penstock.join(uri, role="router", bind=True) as router, penstock.join(uri, role="dealer") as dealer:
            router.wait_for_readers(1, timeout=PATIENCE)
            with monkeypatch.context() as patched, pytest.raises(penstock.TimedOut):
                patched.setattr(os, "dup", dup)
                dealer.recv(timeout=0.05)
