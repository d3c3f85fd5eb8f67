"""Options of ZeroMQ by name, and those that every socket has: heartbeats, keep-alive, IPv6, a limit for messages of strangers."""

import contextlib
import pickle
import re
import selectors
import socket
import threading

import pytest
from ports import free_port

import penstock

zmq = pytest.importorskip("zmq")
PATIENCE = 60


class Relay:
    """Carries TCP connections to a port. `freeze` makes those that are there half-open: nothing arrives, and nobody is told."""

    def __init__(self, target):
        self.port, self._target = free_port(), target
        self._frozen, self._stopped = set(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._pairs = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        while not self._stopped.is_set():
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    here = self._listener.accept()[0]
                    there = socket.create_connection(("127.0.0.1", self._target))
                    self._pairs |= {here: there, there: here}
                    for end in (here, there):
                        self._selector.register(end, selectors.EVENT_READ)
                elif key.fileobj in self._frozen:
                    self._selector.unregister(key.fileobj)
                else:
                    self._pass_on(key.fileobj)

    def _pass_on(self, end):
        other = self._pairs[end]
        with contextlib.suppress(OSError):
            if data := end.recv(1 << 16):
                other.sendall(data)
                return
        self._selector.unregister(end)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def freeze(self):
        self._frozen |= set(self._pairs)

    def close(self):
        self._stopped.set()
        self._thread.join()
        for end in (self._listener, *self._pairs):
            end.close()


def test_a_half_open_connection_is_made_anew():
    """The other machine went away without a word and came back: the subscription hears it again, and says so."""
    beats = {"heartbeat_ivl": 100, "heartbeat_timeout": 300}
    with penstock.publish("zmq+tcp://127.0.0.1:*", codec="json") as pub, contextlib.ExitStack() as stack:
        relay = Relay(int(pub.address.rpartition(":")[2]))
        stack.callback(relay.close)
        sub = stack.enter_context(penstock.subscribe(f"zmq+tcp://127.0.0.1:{relay.port}", codec="json", options=beats))
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send("before")
        assert sub.recv(timeout=PATIENCE) == "before"
        relay.freeze()
        while sub.statistics().details["disconnections"] == 0:
            sub.try_recv()
        got = None
        while got is None:
            pub.send("after")
            got = sub.try_recv()
        assert got == "after"
        assert sub.statistics().details["connected"] == 1


def option(handle, name):
    with handle._lock:
        return handle._open().getsockopt(getattr(zmq, name))


@pytest.mark.parametrize("role", [None, "pull", "push", "pair", "dealer", "router", "request", "reply"])
def test_connections_are_watched_by_default(role):
    with (
        penstock.join("zmq+tcp://127.0.0.1:*", role=role, bind=True)
        if role
        else penstock.publish("zmq+tcp://127.0.0.1:*") as handle
    ):
        assert option(handle, "HEARTBEAT_IVL") == 5000
        assert option(handle, "HEARTBEAT_TIMEOUT") == option(handle, "HEARTBEAT_TTL") == 10_000
        assert (option(handle, "TCP_KEEPALIVE"), option(handle, "IPV6")) == (1, 1)
        assert option(handle, "MAXMSGSIZE") == 1 << 30


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1", "*"])
def test_addresses_of_both_families(host):
    with penstock.publish(f"zmq+tcp://{host}:*", codec="json") as pub:
        port = pub.address.rpartition(":")[2]
        near = ["[::1]", "127.0.0.1"] if host == "*" else [host]
        with contextlib.ExitStack() as stack:
            subs = [stack.enter_context(penstock.subscribe(f"zmq+tcp://{one}:{port}", codec="json")) for one in near]
            pub.wait_for_readers(len(subs), timeout=PATIENCE)
            pub.send(host)
            assert [sub.recv(timeout=PATIENCE) for sub in subs] == [host] * len(subs)


def test_options_of_zeromq_are_set_by_name():
    given = {"rcvhwm": 7, "tcp_keepalive_idle": 60, "maxmsgsize": 1000, "zap_domain": "here"}
    with penstock.subscribe("zmq+tcp://127.0.0.1:1", options=given) as sub:
        assert [option(sub, name.upper()) for name in ("rcvhwm", "tcp_keepalive_idle", "maxmsgsize")] == [7, 60, 1000]
        assert option(sub, "ZAP_DOMAIN") == b"here"
        with pickle.loads(pickle.dumps(sub)) as again:
            assert option(again, "RCVHWM") == 7


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rcvhw": 1}, "ZeroMQ has no socket option 'rcvhw'; did you mean 'rcvhwm'?"),
        ({"RCVHWM": 1}, "ZeroMQ has no socket option 'RCVHWM'"),
        ({3: 1}, "ZeroMQ has no socket option 3"),
        ({"linger": 1}, "the handle sets ZeroMQ's option 'linger' by itself: use linger="),
        ({"curve_serverkey": b""}, "use server_key="),
        ({"req_relaxed": 1}, "its promises rest on it"),
        ({"rcvhwm": "many"}, "libzmq refuses 'many' for its option 'rcvhwm'"),
        ({"rcvhwm": -5}, "libzmq refuses -5 for its option 'rcvhwm'"),
        ({"last_endpoint": "x"}, "libzmq refuses 'x' for its option 'last_endpoint'"),
        ("rcvhwm=1", "options is 'rcvhwm=1': it must be a dict"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options, why):
    with pytest.raises(penstock.Invalid, match=re.escape(why)):
        penstock.subscribe("zmq+tcp://127.0.0.1:1", options=options)


def test_a_long_message_of_a_stranger_ends_its_connection():
    """The peer's connection ends before its message is in memory; others are served."""
    with penstock.join("zmq+tcp://127.0.0.1:*", role="pull", options={"maxmsgsize": 1000}) as pull:
        with penstock.join(f"zmq+{pull.address}", role="push", linger=0) as stranger:
            stranger.send(b"x" * 1001)
            while pull.statistics().details["disconnections"] == 0:
                assert pull.try_recv() is None
        with penstock.join(f"zmq+{pull.address}", role="push") as honest:
            honest.send(b"x" * 1000)
            assert pull.recv(timeout=PATIENCE) == b"x" * 1000
