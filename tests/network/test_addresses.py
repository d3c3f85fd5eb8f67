"""Addresses: a host with several answers from the one that was asked; names are looked up again; a host moves."""

import contextlib
import socket
import struct
import subprocess
import sys
import time

import pytest
from network import frames
from network.machines import machines
from ports import free_port

import penstock

PATIENCE = 60
TERM = 1 << 16
SEALED = [False, True]


@pytest.fixture
def key(tmp_path, request):
    """Options with a key, or none."""
    if not request.param:
        return {}
    path = tmp_path / "key"
    subprocess.run([sys.executable, "-m", "penstock.cli", "key", "new", path], check=True, capture_output=True)
    return {"key_file": path}


def exchange(pub, sub):
    pub.wait_for_readers(1, timeout=PATIENCE)
    for number in range(3000):
        pub.send(number, timeout=PATIENCE)
        if number % 100 == 99:
            assert [sub.recv(timeout=PATIENCE) for _ in range(100)] == list(range(number - 99, number + 1))


@pytest.mark.parametrize("key", SEALED, indirect=True)
@pytest.mark.parametrize("asked", ["127.0.0.1", "127.0.0.5"])
def test_a_subscription_answers_from_the_address_asked(asked, key):
    port = free_port()
    with (
        penstock.subscribe(f"udp://0.0.0.0:{port}/7", **key) as sub,
        penstock.publish(f"udp://{asked}:{port}/7", codec="json", **key) as pub,
    ):
        exchange(pub, sub)
        assert sub.sessions[0].source.startswith("127.0.0.")


@pytest.mark.parametrize("key", SEALED, indirect=True)
def test_a_control_address_answers_from_the_one_asked(key):
    """Receivers ask at one of its addresses; data comes from there, in runs too."""
    control = free_port()
    with (
        penstock.publish(f"udp://127.0.0.1:{free_port()}/7", codec="json", control=f"0.0.0.0:{control}", **key) as pub,
        penstock.subscribe(f"udp://127.0.0.1:{free_port()}/7", control=f"127.0.0.5:{control}", **key) as sub,
        penstock.subscribe(f"udp://127.0.0.1:{free_port()}/7", control=f"127.0.0.1:{control}", **key) as other,
    ):
        pub.wait_for_readers(2, timeout=PATIENCE)
        for number in range(500):
            pub.send(number, timeout=PATIENCE)
        for one, address in ((sub, "127.0.0.5"), (other, "127.0.0.1")):
            assert [one.recv(timeout=PATIENCE) for _ in range(500)] == list(range(500))
            assert [each.source for each in one.sessions] == [f"{address}:{control}"]


def test_both_families_answer_from_the_address_asked():
    port = free_port()
    with (
        penstock.subscribe(f"udp://[::]:{port}/7") as sub,
        penstock.publish(f"udp://[::1]:{port}/7", codec="json") as pub,
    ):
        exchange(pub, sub)


RESOLVING = """
import sys, time, penstock
with penstock.publish(sys.argv[1], codec="json", **eval(sys.argv[2])) as pub:
    print(pub.session, flush=True)
    for line in sys.stdin:
        pub.wait_for_readers(1, timeout=60)
        for number in range(100):
            pub.send(number, timeout=60)
        while pub.readers:
            time.sleep(0.01)
        print("alone", flush=True)
"""


@contextlib.contextmanager
def named(tmp_path, program, *arguments):
    """A process in which the host robot.test has the addresses that a file names."""
    hosts = tmp_path / "hosts"
    command = [
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount --bind "$0" /etc/hosts && exec "$@"',
        hosts,
        sys.executable,
        "-c",
        program,
        *arguments,
    ]
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 robot.test\n")
    if subprocess.run([*command[:5], hosts, "true"], capture_output=True).returncode:
        pytest.skip("only root may have another /etc/hosts for one process")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, hosts
        finally:
            process.kill()


def answer(process):
    line = process.stdout.readline().strip()
    assert line
    return line


@pytest.mark.parametrize("options", ["{}", "{'destinations': []}"])
def test_a_name_is_looked_up_again_while_nobody_answers(tmp_path, options):
    """The receiver's machine comes back with another address: the same session goes on there."""
    port = free_port()
    with named(tmp_path, RESOLVING, f"udp://robot.test:{port}/7", options) as (process, hosts):
        session = int(answer(process))
        for last in (2, 3):
            with penstock.subscribe(f"udp://127.0.0.{last}:{port}/7", codec="json") as sub:
                process.stdin.write("go\n")
                process.stdin.flush()
                assert [sub.recv(timeout=PATIENCE) for _ in range(100)] == list(range(100))
                assert [one.session for one in sub.sessions] == [session]
            assert answer(process) == "alone"
            hosts.write_text("127.0.0.1 localhost\n127.0.0.3 robot.test\n")


ASKING = """
import sys, penstock
with penstock.subscribe(sys.argv[1], control=sys.argv[2], codec="json") as sub:
    for _ in range(2):
        print(sub.recv(timeout=60), flush=True)
"""


def test_the_name_of_a_control_address_is_looked_up_again(tmp_path):
    port, control = free_port(), free_port()
    there = f"udp://127.0.0.1:{port}/7"
    with named(tmp_path, ASKING, there, f"robot.test:{control}") as (process, hosts):
        for last in (2, 3):
            with penstock.publish(there, codec="json", control=f"127.0.0.{last}:{control}") as pub:
                pub.wait_for_readers(1, timeout=PATIENCE)
                pub.send(last)
                assert answer(process) == str(last)
            hosts.write_text("127.0.0.1 localhost\n127.0.0.3 robot.test\n")


SENDING = """
import sys, time, penstock
with penstock.publish(sys.argv[1], codec="json", flow_control="min", linger=30) as pub:
    pub.wait_for_readers(1, timeout=60)
    for number in range(int(sys.argv[2])):
        pub.send(number, timeout=60)
        time.sleep(0.01)
"""
RECEIVING = """
import sys, penstock
with penstock.subscribe(sys.argv[1], codec="json", until_end=True) as sub:
    print("there", flush=True)
    print(sub.recv(timeout=60), flush=True)
    rest = list(sub)
    print(rest == list(range(1, int(sys.argv[2]))), sub.lost, flush=True)
"""


@pytest.mark.parametrize("moved", ["sender", "receiver"])
def test_a_machine_that_moves_goes_on_in_the_same_session(tmp_path, moved):
    """Its address changes while messages flow; the receiver's name follows. All messages arrive, once."""
    with machines(tmp_path, "10.88.0.1", "10.88.0.2") as (a, b):
        a.hosts.write_text("10.88.0.2 robot.test\n")
        with b.run(RECEIVING, "udp://0.0.0.0:4000/7", "800") as receiver:
            assert answer(receiver) == "there"
            with a.run(SENDING, "udp://robot.test:4000/7", "800") as sender:
                assert answer(receiver) == "0"
                if moved == "sender":
                    a.move("10.88.0.1", "10.88.0.3")
                else:
                    b.move("10.88.0.2", "10.88.0.4")
                    a.hosts.write_text("10.88.0.4 robot.test\n")
                assert answer(receiver) == "True 0"
                assert sender.wait(PATIENCE) == 0


def test_a_silent_session_asks_its_new_source_for_a_setup():
    """A sender that moves sends SETUP only while no receiver answers it. One of several that lost it asks, and goes on in the session."""
    port, session = free_port(), 77
    setup = frames.setup(session, 7, 0, 0, 0, TERM)
    with (
        penstock.subscribe(f"udp://127.0.0.1:{port}/7") as sub,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as before,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as after,
    ):
        for sender in (before, after):
            sender.connect(("127.0.0.1", port))
            sender.setblocking(False)
        first = next(
            found for _ in attempts(before, setup, frames.data(session, 7, 0, 0, b"a")) if (found := sub.try_recv())
        )
        moved, again = frames.setup(session, 7, 0, 0, 64, TERM), frames.data(session, 7, 0, 64, b"b")
        asked = next(found for _ in attempts(after, again) if (found := asks_for_setup(after)))
        assert struct.unpack_from("<ii", asked, 8) == (session, 7)
        second = next(found for _ in attempts(after, moved, again) if (found := sub.try_recv()))
        assert (first, second) == (b"a", b"b")
        assert [one.source for one in sub.sessions] == [f"127.0.0.1:{after.getsockname()[1]}"]
        assert sub.lost == 0


def attempts(sender, *datagrams):
    """Sends these again and again."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for one in datagrams:
            with contextlib.suppress(ConnectionRefusedError):
                sender.send(one)
        yield
        time.sleep(0.01)


def asks_for_setup(sender):
    """The status message that does, among what has arrived."""
    with contextlib.suppress(BlockingIOError):
        while True:
            found = sender.recv(2048)
            if frames.kind(found) == frames.STATUS and found[5] & frames.SEND_SETUP:
                return found
    return None
