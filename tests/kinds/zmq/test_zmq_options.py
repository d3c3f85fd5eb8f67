"""libzmq's socket options by name."""

from __future__ import annotations

import pickle
import time

import pytest

import penstock

zmq = pytest.importorskip("zmq")
PATIENCE = 60


@pytest.fixture
def uri(tmp_path):
    return f"zmq+ipc://{tmp_path}/peer"


def test_any_socket_option_is_set_by_its_name(uri):
    options = {"rcvhwm": 10, "tcp_keepalive_idle": 30, "sndbuf": 1 << 16, "immediate": True, "socks_proxy": "p:1"}
    with penstock.subscribe(uri, options=options) as sub:
        found = sub._socket
        assert found.getsockopt(zmq.RCVHWM) == 10
        assert found.getsockopt(zmq.TCP_KEEPALIVE_IDLE) == 30
        assert found.getsockopt(zmq.SNDBUF) == 1 << 16
        assert found.getsockopt(zmq.IMMEDIATE) == 1
        assert found.getsockopt(zmq.SOCKS_PROXY).rstrip(b"\0") == b"p:1"
        again = pickle.loads(pickle.dumps(sub))
        assert again._socket.getsockopt(zmq.RCVHWM) == 10
        again.close()


@pytest.mark.parametrize("opens", [penstock.publish, penstock.subscribe])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rcvhmw": 10}, "'rcvhmw': ZeroMQ has no such socket option; did you mean 'rcvhwm'"),
        ({"zzzzzz": 10}, r"no such socket option\. Names are those of zmq\.SocketOption"),
        ({"RCVHWM": 10}, "did you mean 'rcvhwm'"),
        ({"linger": 10}, "'linger', which this library sets by itself: give linger="),
        ({"identity": b"a"}, "'identity', which this library sets by itself: give name="),
        ({"routing_id": b"a"}, "'routing_id', which this library sets by itself: give name="),
        ({"fail_unroutable": 0}, "'fail_unroutable', which this library sets by itself"),
        ({"curve_secretkey": b"a"}, "give secret_key="),
        ({"plain_server": 1}, "only CURVE checks who connects here"),
        ({"xpub_nodrop": 1}, 'give when_full="wait"'),
        ({"fd": 1}, "'fd', which can only be read"),
        ({"sndbuf": "much"}, "sndbuf='much', which libzmq refuses"),
        ({"sndbuf": 1.5}, r"sndbuf=1\.5: a value is a whole number"),
        ({"sndbuf": 1 << 40}, "which libzmq refuses"),
        ({"sndbuf": -5}, "which libzmq refuses: Invalid argument"),
        ({"tos": None}, "a value is a whole number"),
        ({"plain_password": 5}, "options has plain_password=…, which libzmq refuses"),
        ([("sndbuf", 3)], "must be a dictionary of socket options"),
        ({3: 4}, "must be a dictionary of socket options"),
        ("sndbuf", "must be a dictionary of socket options"),
    ],
)
def test_a_wrong_option_is_one_clear_error(uri, opens, options, error):
    with pytest.raises(penstock.Invalid, match=error) as caught:
        opens(uri, options=options)
    assert str(caught.value).startswith(f"{uri}: options ")
    with penstock.publish(uri) as pub:  # nothing of it is left
        assert not pub.closed


def test_topics_have_a_queue_of_their_own(uri):
    with pytest.raises(penstock.Invalid, match="'sndhwm', which is 0 here"):
        penstock.subscribe(uri, options={"sndhwm": 5})


def test_every_owned_name_is_an_option_of_zeromq():
    """A misspelled name in the table would refuse nothing."""
    from penstock.kinds.zmq.socket import socket_options

    known = {name.lower() for name in zmq.SocketOption.__members__}
    assert known >= socket_options._OWNED.keys() | socket_options._READ_ONLY
    assert known >= socket_options.KEEP_ALIVE.keys() | socket_options.HEARTBEAT.keys()


@pytest.mark.parametrize(("role", "limit"), [(None, 1 << 20), ("pull", 256 << 20)])
def test_an_end_that_binds_limits_what_strangers_send(uri, role, limit):
    opened = penstock.publish(uri) if role is None else penstock.join(uri, role=role)
    with opened as handle:
        assert handle._socket.getsockopt(zmq.MAXMSGSIZE) == limit
    with penstock.subscribe(uri) as sub:  # it chose its peer
        assert sub._socket.getsockopt(zmq.MAXMSGSIZE) == -1


def test_a_part_beyond_the_limit_ends_its_connection(uri):
    pull = penstock.join(uri, role="pull", options={"maxmsgsize": 1000})
    with pull, zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.linger = 0
        stranger.connect(pull.address)
        stranger.send(bytes(1001))
        deadline = time.monotonic() + PATIENCE
        while not pull.statistics().details["disconnections"]:
            assert time.monotonic() < deadline
            assert penstock.wait([pull], timeout=0.02) == []
        stranger.send(b"small")
        assert pull.recv(timeout=PATIENCE) == b"small"
