"""A peer that `wait_for_readers` has found can be sent to at once, and what is no peer of ZeroMQ is not found."""

from __future__ import annotations

import socket

import pytest
from conftest import sized
from people import until
from ports import free_port

import penstock

pytest.importorskip("zmq")
PATIENCE = 60  # seconds
ROUNDS = sized(12, 40, 500)


@pytest.mark.parametrize(("role", "partner"), [("pair", "pair"), ("push", "pull"), ("dealer", "router")])
def test_a_found_peer_is_sent_to_at_once(tmp_path, role, partner):
    """The end that binds has no queue for a peer before their handshake."""
    for number in range(ROUNDS):
        uri = f"zmq+ipc://{tmp_path}/{number}"
        with penstock.join(uri, role=role, bind=True) as one, penstock.join(uri, role=partner, bind=False) as other:
            one.wait_for_readers(1, timeout=PATIENCE)
            assert one.offer(b"at once") is not None, number
            received = other.recv(timeout=PATIENCE)
            assert getattr(received, "body", received) == b"at once"


def test_a_found_dealer_is_called_at_once(tmp_path):
    """The router knows its name."""
    for number in range(ROUNDS):
        uri = f"zmq+ipc://{tmp_path}/{number}"
        with (
            penstock.join(uri, role="router", bind=True) as router,
            penstock.join(uri, role="dealer", bind=False, name="d") as dealer,
        ):
            router.wait_for_readers(1, timeout=PATIENCE)
            assert router.offer(b"at once", to="d") is not None, number
            assert dealer.recv(timeout=PATIENCE) == b"at once"


def test_a_foreign_connection_is_no_reader():
    """It opens the port and says nothing, or ends in the middle of its greeting. Real peers are counted beside it, and after it."""
    port = free_port()
    uri = f"zmq+tcp://127.0.0.1:{port}"
    with penstock.join(uri, role="push", bind=True) as push:
        silent, stuck = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        stuck.sendall(b"\xff" + bytes(8) + b"\x7f\3")
        with pytest.raises(penstock.TimedOut):
            push.wait_for_readers(1, timeout=0.3)
        with penstock.join(uri, role="pull", bind=False) as pull:
            push.wait_for_readers(1, timeout=PATIENCE)
            stuck.close()
            silent.close()
            push.send(b"there", timeout=PATIENCE)
            assert pull.recv(timeout=PATIENCE) == b"there"
            until(lambda: push.statistics().details["disconnections"] >= 2, "two connections have not ended")
            assert push.readers == 1
        until(lambda: push.readers == 0, "the reader still counts")
