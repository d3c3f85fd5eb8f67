"""One address of the network is one thing, however its host is spelled."""

from __future__ import annotations

import multiprocessing
import socket
from multiprocessing.connection import Connection

import pytest
from conformance.subjects import PATIENCE
from ports import free_port

import penstock

ONE_ADDRESS = ("127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]")


def _uri(host: str, port: int, stream: int = 7) -> str:
    return f"udp://{host}:{port}/{stream}"


@pytest.mark.parametrize("host", ONE_ADDRESS[1:])
@pytest.mark.parametrize("turned", [False, True])
def test_two_spellings_never_starve(host: str, turned: bool):
    """A second subscription under another spelling is `Busy`, and the error names both. It leaves nothing behind."""
    port = free_port()
    first, second = (_uri(host, port), _uri("127.0.0.1", port))[:: -1 if turned else 1]
    with penstock.subscribe(first) as one:
        with pytest.raises(penstock.Busy) as caught:
            penstock.subscribe(second)
        assert one.channel in str(caught.value)
        assert str(caught.value).startswith("udp://")
        with penstock.subscribe(first) as two, penstock.publish(second, linger=0) as pub:  # a publication finds them
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send(b"x", timeout=PATIENCE)
            assert [one.recv(timeout=PATIENCE), two.recv(timeout=PATIENCE)] == [b"x", b"x"]
    with penstock.subscribe(second):  # the address is free again
        pass


def test_spellings_that_are_one_name_share_a_receiver():
    """Zeros in front of the port or the stream, upper case, a long form of an IPv6 address."""
    port = free_port()
    with (
        penstock.subscribe(f"udp://LocalHost:0{port}/07") as one,
        penstock.subscribe(f"udp://localhost:{port}/7") as two,
        penstock.subscribe(f"aeron:udp?endpoint=localhost:{port}|stream-id=7") as three,
        penstock.publish(f"udp://localhost:{port}/7", linger=0) as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"x", timeout=PATIENCE)
        assert [sub.recv(timeout=PATIENCE) for sub in (one, two, three)] == [b"x"] * 3


def test_other_streams_and_addresses_are_others():
    """The same host under two spellings is no fault where the streams or the ports differ."""
    port = free_port()
    with penstock.subscribe(_uri("127.0.0.1", port)), penstock.subscribe(_uri("localhost", port, 8)):
        pass
    with penstock.subscribe(_uri("127.0.0.1", port)), penstock.subscribe(_uri("localhost", free_port())):
        pass


def test_all_addresses_and_one_of_them_is_an_error():
    """The kernel gives the port to one of them."""
    port = free_port()
    with penstock.subscribe(_uri("0.0.0.0", port)), pytest.raises(penstock.PenstockError, match=f"{port}"):
        penstock.subscribe(_uri("127.0.0.1", port))


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_spellings():
    """Every form of an IPv6 address is one name."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no address ::1")
        port = int(probe.getsockname()[1])
    with penstock.subscribe(_uri("[::1]", port)) as one, penstock.subscribe(_uri("[0:0:0:0:0:0:0:1]", port)) as two:
        assert one.channel == two.channel


def _hold(uri: str, told: Connection) -> None:
    with penstock.subscribe(uri):
        told.send("ready")
        told.recv()


def test_two_spellings_in_two_processes():
    """The same between processes: the second is refused, and goes on when the first has died."""
    port = free_port()
    here, there = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_hold, args=(_uri("127.0.0.1", port), there))
    child.start()
    try:
        assert here.poll(PATIENCE)
        assert here.recv() == "ready"
        with pytest.raises(penstock.PenstockError, match=f"{port}"):
            penstock.subscribe(_uri("localhost", port))
    finally:
        child.kill()
        child.join()
    with penstock.subscribe(_uri("localhost", port)) as sub, penstock.publish(_uri("127.0.0.1", port), linger=0) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"x", timeout=PATIENCE)
        assert sub.recv(timeout=PATIENCE) == b"x"
