"""Every server of the library: no client can hold up another one, the end of the server, or its memory."""

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

import penstock
from penstock.util.loopback import CONNECTIONS, Connections

MANY = CONNECTIONS * 4
HALF = b"GET /metrics HTTP/1.1\r\nHo"
SHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n"
)


@pytest.fixture
def bounded():
    """Three connections at most, ten seconds each; those that were ended; a clock."""
    made = SimpleNamespace(now=0.0, ended=[])
    made.all = Connections(3, 10.0, lambda: made.now)
    made.add = lambda one: made.all.add(one, lambda: made.ended.append(one))
    return made


def test_one_too_many_ends_the_one_that_waits_the_longest(bounded):
    for one in "abc":
        bounded.add(one)
    bounded.all.work("a")
    bounded.add("d")
    assert bounded.ended == ["b"]
    bounded.all.wait("a")  # now it waits, after the others
    bounded.add("e")
    bounded.add("f")
    assert bounded.ended == ["b", "c", "d"]
    assert len(bounded.all) == 3


def test_where_all_are_at_work_the_new_one_ends(bounded):
    for one in "abc":
        bounded.add(one)
        bounded.all.work(one)
    assert bounded.all.at_work()
    bounded.add("d")
    assert bounded.ended == ["d"]
    bounded.all.remove("a")
    bounded.add("e")
    assert bounded.ended == ["d"]


def test_a_late_client_ends_and_one_that_is_served_does_not(bounded):
    bounded.add("a")
    bounded.add("b")
    bounded.all.work("b")
    bounded.now = 9.0
    bounded.all.end_late()
    assert bounded.ended == []
    bounded.all.wait("b")
    bounded.now = 10.0
    bounded.all.end_late()
    assert bounded.ended == ["a"]
    bounded.all.wait("a")  # it is gone
    bounded.now = 100.0
    bounded.all.end_late()
    assert bounded.ended == ["a", "b"]


def test_all_end(bounded):
    bounded.add("a")
    bounded.add("b")
    bounded.all.work("b")
    bounded.all.end_all()
    assert bounded.ended == ["a", "b"]
    assert len(bounded.all) == 0


def metrics_server():
    metrics = pytest.importorskip("penstock.watch.metrics")
    return metrics.Server()


def monitor_server():
    pytest.importorskip("uvicorn")
    from penstock.cli.monitor.serving import Server
    from penstock.cli.monitor.snapshots import Snapshots

    return Server(Snapshots())


SERVERS = {"metrics": metrics_server, "monitor": monitor_server}


def place(url):
    _, _, rest = url.partition("//")
    host, _, path = rest.partition("/")
    return host.partition(":")[0], int(host.partition(":")[2]), "/" + path


def fetch(url):
    host, port, path = place(url)
    connection = http.client.HTTPConnection(host, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, len(answer.read())


@pytest.fixture
def crowd():
    """Opens connections that stay."""
    with contextlib.ExitStack() as opened:

        def come(port, count, sent):
            made = []
            for _ in range(count):
                made.append(opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)))
                with contextlib.suppress(OSError):  # given up already
                    made[-1].sendall(sent)
            return made

        yield come


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("sent", [b"", HALF], ids=["silent", "half"])
def test_clients_that_ask_for_nothing_hold_up_nobody(kind, sent, crowd):
    with SERVERS[kind]() as server:
        made = crowd(place(server.url)[1], MANY, sent)
        status, size = fetch(server.url)
        assert status == 200
        assert size > 0
        with contextlib.suppress(ConnectionError):
            assert made[0].recv(1) == b""  # the oldest was given up
    with contextlib.suppress(ConnectionError):
        assert made[-1].recv(1) == b""  # the newest too, as the server ended


@pytest.mark.parametrize("kind", SERVERS)
def test_clients_that_read_no_answer_hold_up_nobody(kind, crowd):
    with SERVERS[kind]() as server:
        _, port, path = place(server.url)
        path = path if kind == "metrics" else "/without/token"
        crowd(port, MANY, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20)
        assert fetch(server.url)[0] == 200


def test_a_request_without_an_end_is_not_kept(crowd):
    with metrics_server() as server:
        (one,) = crowd(place(server.url)[1], 1, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000)
        with contextlib.suppress(ConnectionError):
            assert one.recv(1) == b""
        assert fetch(server.url)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["metrics", "monitor"])
def test_a_signal_ends_a_command_whose_clients_wait(command, number, crowd):
    pytest.importorskip({"metrics": "prometheus_client", "monitor": "uvicorn"}[command])
    serving = subprocess.Popen(
        [sys.executable, "-u", "-m", "penstock", command, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        port = place(serving.stdout.readline().split()[1])[1]
        crowd(port, 8, HALF)
        serving.send_signal(number)
        assert serving.wait(120) == (0 if number == signal.SIGINT else 128 + number)
    finally:
        serving.kill()
        serving.wait()
        serving.stdout.close()


def test_viewers_that_ask_for_nothing_are_given_up(crowd):
    pytest.importorskip("foxglove")
    from penstock.export.live import Viewed

    with penstock.publish("log:a"), Viewed(["*"]) as viewed:
        (good,) = crowd(viewed.port, 1, SHAKE)
        while b"101 " not in good.recv(1000):
            viewed.step()
        made = crowd(viewed.port, MANY, HALF)
        made[0].settimeout(0.1)
        for _ in range(600):
            viewed.step()
            with contextlib.suppress(TimeoutError, ConnectionError):
                assert made[0].recv(1) == b""
                break
        else:
            pytest.fail("the oldest is still open")
        (other,) = crowd(viewed.port, 1, SHAKE)
        assert b"101 " in other.recv(1000)
        good.settimeout(0.1)
        with contextlib.suppress(TimeoutError):  # it was served, and still is
            assert good.recv(1)
