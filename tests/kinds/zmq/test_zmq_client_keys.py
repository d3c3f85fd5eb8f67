"""CURVE with a list of clients: a client whose key is not in the list gets nothing, and sends nothing."""

from __future__ import annotations

import os
import threading
import time

import pytest

import penstock

zmq = pytest.importorskip("zmq")
if not zmq.has("curve"):
    pytest.skip("this libzmq has no CURVE", allow_module_level=True)
PATIENCE = 60
SERVER, ALICE, MALLORY = (zmq.curve_keypair() for _ in range(3))


def wait_until(done):
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def uri(tmp_path):
    return f"zmq+ipc://{tmp_path}/peer"


def subscribe(uri, secret=None):
    return penstock.subscribe(uri, server_key=SERVER[0], secret_key=secret)


def test_only_clients_in_the_list_get_messages(uri):
    with (
        penstock.publish(uri, secret_key=SERVER[1], client_keys=[ALICE[0].decode()]) as pub,
        subscribe(uri, ALICE[1]) as alice,
        subscribe(uri, MALLORY[1]) as mallory,
        subscribe(uri) as nobody,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        wait_until(lambda: mallory.statistics().details["refused"] and nobody.statistics().details["refused"])
        assert pub.statistics().details["refused"] >= 2
        pub.send(b"secret")
        assert alice.recv(timeout=PATIENCE) == b"secret"
        assert pub.readers == 1
        assert mallory.try_recv() is nobody.try_recv() is None
        with pytest.raises(penstock.TimedOut, match="handshakes failed"):
            mallory.recv(timeout=0.05)


def test_a_stranger_cannot_send(uri):
    with (
        penstock.join(uri, role="pull", secret_key=SERVER[1], client_keys=[ALICE[0]]) as pull,
        penstock.join(uri, role="push", server_key=SERVER[0], secret_key=MALLORY[1], linger=0) as mallory,
        penstock.join(uri, role="push", server_key=SERVER[0], secret_key=ALICE[1]) as alice,
    ):
        mallory.offer(b"forged")
        wait_until(lambda: mallory.statistics().details["refused"])
        alice.send(b"real", timeout=PATIENCE)
        assert pull.recv(timeout=PATIENCE) == b"real"
        assert pull.try_recv() is None


def test_each_handle_has_its_own_list(tmp_path):
    """A handle with a list, another one with another list, and one with none, in one process."""
    uris = [f"zmq+ipc://{tmp_path}/{name}" for name in "abc"]
    lists = [ALICE[0]], [MALLORY[0]], None
    pubs = [
        penstock.publish(uri, secret_key=SERVER[1], client_keys=keys) for uri, keys in zip(uris, lists, strict=True)
    ]
    subs = [subscribe(uri, MALLORY[1]) for uri in uris]
    for pub in pubs[1:]:
        pub.wait_for_readers(1, timeout=PATIENCE)
    wait_until(lambda: subs[0].statistics().details["refused"])
    assert [pub.readers for pub in pubs] == [0, 1, 1]
    for handle in (*subs, *pubs):
        handle.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"client_keys": [ALICE[0]]}, "client_keys is for an end that binds and has a secret_key"),
        ({"secret_key": SERVER[1], "client_keys": []}, "client_keys is empty"),
        ({"secret_key": SERVER[1], "client_keys": ALICE[0]}, "must be a list of clients' public keys"),
        ({"secret_key": SERVER[1], "client_keys": [b"short"]}, "one of client_keys is not a CURVE key"),
        ({"secret_key": SERVER[1], "client_keys": ['"' * 40]}, "one of client_keys is not a CURVE key: it is not Z85"),
        ({"secret_key": SERVER[1], "client_keys": ["\u00fc" * 40]}, "one of client_keys is not a CURVE key"),
        (
            {"server_key": SERVER[0], "client_keys": [ALICE[0]], "bind": False},
            "client_keys is for an end that binds",
        ),
    ],
)
def test_a_wrong_list_is_invalid(uri, options, error):
    with pytest.raises(penstock.Invalid, match=error) as caught:
        penstock.publish(uri, **options)
    assert uri in str(caught.value)


def test_without_a_list_there_is_no_thread(tmp_path):
    """In a process of its own: this one may have had lists before."""
    import subprocess
    import sys

    program = (
        "import sys, threading, penstock\n"
        "uri, secret, public = sys.argv[1:]\n"
        "with penstock.publish(uri, secret_key=secret):\n"
        "    print(threading.active_count())\n"
        "with penstock.publish(uri, secret_key=secret, client_keys=[public]):\n"
        "    print(*sorted(thread.name for thread in threading.enumerate()))\n"
    )
    arguments = [f"zmq+ipc://{tmp_path}/a", SERVER[1].decode(), ALICE[0].decode()]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split("\n")[:2] == ["1", "MainThread penstock-zap"]
    assert done.stderr == ""


def test_a_forked_child_has_lists_of_its_own(uri, tmp_path):
    with penstock.publish(uri, secret_key=SERVER[1], client_keys=[ALICE[0]]):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                other = f"zmq+ipc://{tmp_path}/child"
                with (
                    penstock.publish(other, secret_key=SERVER[1], client_keys=[ALICE[0]]) as pub,
                    subscribe(other, ALICE[1]) as sub,
                    subscribe(other, MALLORY[1]) as mallory,
                ):
                    pub.wait_for_readers(1, timeout=PATIENCE)
                    wait_until(lambda: mallory.statistics().details["refused"])
                    pub.send(b"x")
                    assert sub.recv(timeout=PATIENCE) == b"x"
                    assert pub.readers == 1
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        with subscribe(uri, ALICE[1]) as sub:
            wait_until(lambda: sub.statistics().details["connected"])
    assert any(thread.name == "penstock-zap" for thread in threading.enumerate())
