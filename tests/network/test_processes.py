"""Processes that end in all ways: nothing that was sent is lost, and nothing is left behind."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytest
from people import until
from ports import free_port

import penstock

PATIENCE = 60
fork = multiprocessing.get_context("fork")


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


def _send(uri, count):
    with penstock.publish(uri) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        for number in range(count):
            pub.send(number.to_bytes(8, "little") * 125)


def test_a_reader_that_left_is_not_counted_while_another_comes(uri):
    """The next one has its port at once, so nothing tells the sender but the one that leaves."""
    with penstock.publish(uri, codec="json") as pub:
        for number in range(8):
            with penstock.subscribe(uri) as sub:
                pub.wait_for_readers(1, timeout=PATIENCE)
                pub.send(number)
                assert sub.recv(timeout=PATIENCE) == number
                # Nothing but proofs goes to a source that is not proved; its clock is asked afterwards.
                until(
                    lambda sub=sub: sub.statistics().network.sessions[0].clock_offset_ns is not None, "it is not proved"
                )


@pytest.mark.slow
def test_a_number_that_comes_again_is_another_session(uri):
    """The one before has closed, and its session is not joined again. Late datagrams of it are ignored."""
    with penstock.subscribe(uri) as sub:
        for number in range(3):
            while True:
                try:
                    pub = penstock.publish(uri, codec="json", session=77)
                    break
                except penstock.Busy:  # the last one announces its end
                    time.sleep(0.01)
            pub.send(number)
            pub.close()
            assert sub.recv(timeout=PATIENCE) == number


def _echo(there, back, count, spin):
    with penstock.publish(back, linger=0.1) as pub, penstock.subscribe(there, spin=spin) as sub:
        for _ in range(count):
            pub.send(sub.recv(timeout=PATIENCE))


def _round_trip(spin, count=200):
    """The median time of a round trip between two processes, in seconds."""
    there, back = (f"udp://127.0.0.1:{free_port()}/7" for _ in range(2))
    child = multiprocessing.get_context("spawn").Process(target=_echo, args=(there, back, count, spin))
    with penstock.publish(there, linger=0.1) as pub, penstock.subscribe(back, spin=spin) as sub:
        child.start()
        pub.wait_for_readers(1, timeout=PATIENCE)
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            pub.send(b"x")
            sub.recv(timeout=PATIENCE)
            times.append(time.perf_counter() - begun)
        child.join(PATIENCE)
        assert child.exitcode == 0
    return statistics.median(times)


def test_a_subscription_that_spins_looks_at_its_socket():
    # If it did not, the conductor would find each message, and comes after a millisecond. A message that wakes a sleeper does not wait
    # for that. Other programs may have the cores meanwhile: one good round of several is enough.
    rounds = ((_round_trip(math.inf), _round_trip(0.0)) for _ in range(5))
    assert any(spinning < 2 * asleep for spinning, asleep in rounds)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "the parent has published"])
def test_a_multiprocessing_child_flushes_before_it_ends(uri, used):
    """Such a child ends without atexit."""
    with penstock.subscribe(uri) as sub:
        if used:
            with penstock.publish(uri, linger=1.0) as pub:
                pub.send(b"first", timeout=PATIENCE)
                assert sub.recv(timeout=PATIENCE) == b"first"
        child = fork.Process(target=_send, args=(uri, 1_000))
        child.start()
        for number in range(1_000):
            assert sub.recv(timeout=PATIENCE) == number.to_bytes(8, "little") * 125
        while child.is_alive():  # it waits until the end of its stream was read
            with contextlib.suppress(penstock.TimedOut):
                sub.recv(timeout=0.01)
        assert child.exitcode == 0


WRITER = """
import sys, penstock
with penstock.publish(sys.argv[1], term_length=1 << 16) as pub:
    pub.wait_for_readers(1)
    number = 0
    while True:
        pub.send(number.to_bytes(8, "little") + bytes(number % 3000))
        number += 1
"""


def test_publishers_killed_under_load(uri, channel_folder):
    """The messages of each arrive whole and in order, up to its end. The next publication removes the logs of the dead."""
    expected: dict[int, int] = {}
    with penstock.subscribe(uri) as sub:
        for turn in range(3):
            writer = subprocess.Popen([sys.executable, "-c", WRITER, uri])
            for _ in range(2_000):
                message = sub.recv(timeout=PATIENCE)
                session = sub.last.session
                number = expected.get(session, 0)
                assert (int.from_bytes(message[:8], "little"), len(message)) == (number, 8 + number % 3000)
                expected[session] = number + 1
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert len(expected) == turn + 1
        assert sub.lost == 0
        [last] = channel_folder.glob("*.log")
        with penstock.publish(uri, linger=0):
            [own] = channel_folder.glob("*.log")
            assert own != last
    for _ in range(PATIENCE * 100):  # the conductor takes the last one away
        if not [name for name in os.listdir(channel_folder) if name.endswith((".log", ".image"))]:
            break
        threading.Event().wait(0.01)
    else:
        raise AssertionError(os.listdir(channel_folder))


READER = """
import sys, penstock
with penstock.subscribe(sys.argv[1], until_end=True) as sub:
    print("ready", flush=True)
    expected = None
    for message in sub:
        number = int.from_bytes(message[:8], "little")
        assert expected is None or number == expected, (number, expected)
        expected = number + 1
    print("end", expected, sub.lost, flush=True)
"""


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_the_socket_owner_is_killed_or_stopped_under_load(uri, rng, way):
    """The other subscriptions miss nothing. One that is stopped goes on where it was."""
    count, moments = 8_000, sorted(rng.sample(range(8_000), 2))
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, uri], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    living = list(readers)
    with penstock.publish(uri, linger=30.0) as pub:
        pub.wait_for_readers(3, timeout=PATIENCE)
        for number in range(count):
            if number in moments:
                holder = next(one for one in living if one.pid == penstock.inspect(uri).details["holder"])
                holder.send_signal(way)
                if way == signal.SIGKILL:
                    holder.wait()
                    living.remove(holder)
                    while penstock.inspect(uri).details["holder"] in (0, holder.pid):
                        pass  # it takes over at its next wait
                else:
                    holder.send_signal(signal.SIGCONT)
            pub.send(number.to_bytes(8, "little") + bytes(number % 2000), timeout=PATIENCE)
    for reader in living:
        assert reader.communicate(timeout=PATIENCE)[0] == f"end {count} 0\n"
    assert all(reader.wait() in (0, -signal.SIGKILL) for reader in readers)
    for reader in readers:
        reader.stdout.close()
