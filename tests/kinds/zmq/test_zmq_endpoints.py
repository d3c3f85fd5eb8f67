"""Addresses: IPv6, several endpoints of one handle, and texts that are no address."""

from __future__ import annotations

import pickle
import socket

import pytest
from ports import free_port

import penstock

zmq = pytest.importorskip("zmq")
PATIENCE = 60


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@ipv6
def test_an_address_in_brackets_is_ipv6():
    with penstock.publish("zmq+tcp://[::1]:*") as pub, penstock.subscribe(f"zmq+{pub.address}") as sub:
        assert pub.address.startswith("tcp://[::1]:")
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"six")
        assert sub.recv(timeout=PATIENCE) == b"six"


@ipv6
def test_a_star_takes_both_families():
    with penstock.join("zmq+tcp://*:*", role="pull") as pull:
        port = pull.address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]", "localhost"):
            with penstock.join(f"zmq+tcp://{host}:{port}", role="push") as push:
                push.send(host.encode(), timeout=PATIENCE)
                assert pull.recv(timeout=PATIENCE) == host.encode()


def test_names_are_of_ipv4_unless_asked():
    """libzmq tries one address of a name only, and prefers IPv6: a server at 127.0.0.1 must be found by `localhost`."""
    port = free_port()
    with penstock.subscribe(f"zmq+tcp://localhost:{port}") as sub:
        assert sub._socket.getsockopt(zmq.IPV6) == 0
    with penstock.subscribe(f"zmq+tcp://localhost:{port}", options={"ipv6": True}) as sub:
        assert sub._socket.getsockopt(zmq.IPV6) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("::1:5555", r"write an IPv6 address in brackets: \[::1\]:5555"),
        ("[::1]", "has no port"),
        ("[::1:5555", "no pair of brackets"),
        ("[::g]:5555", r"\[::g\] is not an IPv6 address"),
        ("localhost", "has no port"),
        (":5555", "has no host"),
        ("[::1]:70000", "port 70000 does not exist"),
        ("", "names no address"),
    ],
)
def test_a_text_that_is_no_address_is_invalid(text, error):
    with pytest.raises(penstock.Invalid, match=error):
        penstock.publish(f"zmq+tcp://{text}")
    with pytest.raises(penstock.Invalid, match=f"endpoints has .*{error}"):
        penstock.publish("zmq+tcp://127.0.0.1:*", endpoints=[f"tcp://{text}"])


def test_a_host_that_nobody_knows_is_an_error_at_once():
    with pytest.raises(penstock.NotFound, match=r"^.*zmq\+tcp://no-such-host\.invalid:5: there is no host"):
        penstock.subscribe("zmq+tcp://no-such-host.invalid:5")


@pytest.mark.parametrize("wrong", ["tcp://127.0.0.1:1", ["udp://127.0.0.1:1"], [5], 5, ["127.0.0.1:5"]])
def test_endpoints_are_a_list_of_addresses(wrong):
    with pytest.raises(penstock.Invalid, match=r"^zmq\+tcp://127\.0\.0\.1:\*: endpoints "):
        penstock.publish("zmq+tcp://127.0.0.1:*", endpoints=wrong)


def test_a_publication_binds_to_several_addresses(tmp_path):
    path = f"ipc://{tmp_path}/a"
    with penstock.publish("zmq+tcp://127.0.0.1:*", endpoints=["tcp://127.0.0.1:*", path]) as pub:
        assert len(set(pub.addresses)) == 3
        assert pub.addresses[0] == pub.address
        assert pub.addresses[2] == path
        subs = [penstock.subscribe(f"zmq+{address}") for address in pub.addresses]
        pub.wait_for_readers(3, timeout=PATIENCE)
        pub.send(b"all")
        for sub in subs:
            assert sub.recv(timeout=PATIENCE) == b"all"
            sub.close()


def test_a_subscription_connects_to_several_publications(tmp_path):
    first = penstock.publish("zmq+tcp://127.0.0.1:*")
    second = penstock.publish(f"zmq+ipc://{tmp_path}/b")
    with first, second, penstock.subscribe(f"zmq+{first.address}", endpoints=[f"zmq+{second.address}"]) as sub:
        for pub, message in ((first, b"1"), (second, b"2")):
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send(message)
        assert {sub.recv(timeout=PATIENCE), sub.recv(timeout=PATIENCE)} == {b"1", b"2"}
        assert sub.statistics().details["connected"] == 2
        again = pickle.loads(pickle.dumps(sub))
        assert again.addresses == sub.addresses
        again.close()


def test_an_endpoint_that_is_taken_closes_the_others():
    with penstock.publish("zmq+tcp://127.0.0.1:*") as pub:
        port = free_port()
        with pytest.raises(penstock.Busy, match=f"cannot publish at {pub.address}"):
            penstock.publish(f"zmq+tcp://127.0.0.1:{port}", endpoints=[pub.address])
        with penstock.publish(f"zmq+tcp://127.0.0.1:{port}") as other:
            assert not other.closed


def test_a_name_is_taken_at_every_endpoint(tmp_path):
    uris = [f"zmq+ipc://{tmp_path}/{name}" for name in "abc"]
    with penstock.join(uris[0], role="dealer", name="x", endpoints=uris[1:2]):
        with pytest.raises(penstock.Busy, match="has the name 'x'"):
            penstock.join(uris[2], role="dealer", name="x", endpoints=uris[1:2])
        with penstock.join(uris[2], role="dealer", name="x") as other:
            assert other.name == "x"
