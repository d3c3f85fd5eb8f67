"""The sockets of msgq over ZeroMQ: `ZMQ` in the environment, and addresses of other machines."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys

import pytest

import penstock
from penstock.compat import msgq

zmq = pytest.importorskip("zmq")
PATIENCE = 60
ELSEWHERE = "127.0.0.2"  # this machine by another address than msgq's own


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


@pytest.fixture
def endpoint():
    """A name whose port is free."""
    names = (f"endpoint-{os.getpid()}-{i}" for i in itertools.count())
    return next(name for name in names if is_free(msgq.port_of(name)))


@pytest.fixture
def over_zmq(monkeypatch):
    monkeypatch.setenv("ZMQ", "1")
    monkeypatch.delenv("OPENPILOT_PREFIX", raising=False)


def wait_for_reader(pub):
    pub._publication.wait_for_readers(1, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("name", "fnv1a"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_a_port_is_the_hash_of_its_name(name, fnv1a):
    """The hashes are the published ones of FNV-1a, so that both ends may be the original."""
    assert msgq.port_of(name) == 8023 + fnv1a % (65535 - 8023)


def test_sockets_meet_over_zeromq(over_zmq, endpoint):
    pub, poller = msgq.pub_sock(endpoint), msgq.Poller()
    sub = msgq.sub_sock(endpoint, poller=poller, timeout=PATIENCE * 1000)
    wait_for_reader(pub)
    pub.send(b"one")
    assert poller.poll(PATIENCE * 1000) == [sub]
    assert sub.receive() == b"one"
    assert sub.receive(non_blocking=True) is None
    assert pub._publication.address.endswith(f":{msgq.port_of(endpoint)}")
    with pytest.raises(msgq.IpcError, match="ZeroMQ does not report what readers have read"):
        pub.all_readers_updated()
    with pytest.raises(msgq.MultiplePublishersError):
        msgq.pub_sock(endpoint)


def test_the_other_end_may_be_any_zeromq_program(over_zmq, endpoint):
    """As the original's sockets are: one part for each message, without a topic."""
    with zmq.Context() as context, context.socket(zmq.SUB) as stranger:
        stranger.rcvtimeo = PATIENCE * 1000
        stranger.subscribe(b"")
        stranger.connect(f"tcp://127.0.0.1:{msgq.port_of(endpoint)}")
        pub = msgq.pub_sock(endpoint)
        wait_for_reader(pub)
        pub.send(b"to all")
        assert stranger.recv_multipart() == [b"to all"]


def test_an_address_elsewhere_is_read_over_zeromq(endpoint, tmp_path):
    """The publisher is another process with ZMQ=1; the reader has none in its environment, and names the address."""
    program = (
        "import sys\n"
        "from penstock.compat import msgq\n"
        "pub = msgq.pub_sock(sys.argv[1])\n"
        "pub._publication.wait_for_readers(1, timeout=60)\n"
        "pub.send(b'from elsewhere')\n"
        "sys.stdin.read()\n"
    )
    assert "ZMQ" not in os.environ
    publisher = subprocess.Popen(
        [sys.executable, "-c", program, endpoint], stdin=subprocess.PIPE, env={**os.environ, "ZMQ": "1"}
    )
    try:
        sub = msgq.sub_sock(endpoint, addr=ELSEWHERE, conflate=True, timeout=PATIENCE * 1000)
        assert sub.receive() == b"from elsewhere"
        assert sub.subscription.channel == f"zmq+tcp://{ELSEWHERE}:{msgq.port_of(endpoint)}"
    finally:
        publisher.communicate(timeout=PATIENCE)
    assert publisher.returncode == 0


def test_an_ipv6_address_gets_its_brackets(endpoint):
    sub = msgq.sub_sock(endpoint, addr="::1")
    assert sub.subscription.channel == f"zmq+tcp://[::1]:{msgq.port_of(endpoint)}"


def test_a_prefix_is_refused_over_zeromq(over_zmq, monkeypatch, endpoint):
    monkeypatch.setenv("OPENPILOT_PREFIX", "p")
    for opens in (msgq.pub_sock, msgq.sub_sock):
        with pytest.raises(msgq.IpcError, match="OPENPILOT_PREFIX has no effect over ZeroMQ"):
            opens(endpoint)


def test_what_is_no_address_is_an_ipc_error(endpoint):
    with pytest.raises(msgq.IpcError, match="has no host"):
        msgq.sub_sock(endpoint, addr="")


def test_without_zmq_an_endpoint_is_a_ring(endpoint):
    pub = msgq.pub_sock(endpoint)
    assert isinstance(pub._publication, penstock.types.Publication)
    assert pub._publication.channel == f"ring:{endpoint}"
