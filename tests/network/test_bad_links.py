"""Publications and subscriptions over real sockets with a relay between them that loses, doubles, holds back and parts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from conftest import LONG
from network.relay import relay
from ports import free_port

import penstock

PATIENCE = 120
STREAM = 7


def uri(port):
    return f"udp://127.0.0.1:{port}/{STREAM}"


def message(number, length):
    return number.to_bytes(8, "little") + bytes([number % 251]) * (length - 8)


def through(rng, count, lengths, *, publisher=None, subscriber=None, trouble=None, **conditions):
    """`count` messages through a relay: all of them come, once, in order, whole. Returns (counts of the sender, of the receiver, of the relay)."""
    target, seed = free_port(), rng.randrange(1 << 30)
    said, read = {}, threading.Event()
    with (
        penstock.subscribe(uri(target), until_end=True, **(subscriber or {})) as sub,
        relay(target, seed, **conditions) as between,
    ):

        def send():
            with penstock.publish(uri(between.port), **{"linger": 20.0, **(publisher or {})}) as pub:
                pub.wait_for_readers(1, timeout=PATIENCE)
                for number in range(count):
                    pub.send(message(number, lengths[number % len(lengths)]), timeout=PATIENCE)
                assert read.wait(PATIENCE)
                said["details"] = pub.statistics().details

        thread = threading.Thread(target=send)
        thread.start()
        for number in range(count):
            assert sub.recv(timeout=PATIENCE) == message(number, lengths[number % len(lengths)])
            if trouble is not None:
                trouble(number, between)
        between.set(loss=0, cut=0)
        read.set()
        thread.join()
        assert list(sub) == []
        assert (sub.lost, sub.incomplete) == (0, 0)
        return said["details"], sub.statistics().details, between.stats()


def test_a_clean_relay_changes_nothing(rng):
    _, received, relayed = through(rng, 2_000, [64, 1000, 5000])
    assert relayed["there"]["lost"] == 0
    assert (received["losses"], received["malformed"]) == (0, 0)


@pytest.mark.parametrize(
    "conditions",
    [
        {"loss": 0.05},
        {"loss": 0.3, "double": 0.5},
        {"hold": 0.3, "hold_us": 2000},
        {"loss": 0.1, "double": 0.1, "hold": 0.1, "hold_us": 500, "delay_us": 200},
    ],
    ids=lambda given: "-".join(given),
)
def test_a_bad_link_delivers_once_and_in_order(rng, conditions):
    sent, received, _ = through(rng, 2_000, [9, 64, 1000, 5000], **conditions)
    if conditions.get("loss"):
        assert sent["retransmitted"] > 0
        assert received["naks_sent"] > 0
    if conditions.get("double"):
        assert received["duplicates"] > 0


@pytest.mark.parametrize("way", ["there", "back"])
def test_one_way_loses(rng, way):
    def begin(number, between):
        if number == 0:
            between.set(way, loss=0.3)

    through(rng, 1_000, [64, 3000], trouble=begin)


@pytest.mark.parametrize("ways", [("there",), ("back",), ("there", "back")], ids="+".join)
def test_a_partition_that_heals(rng, ways):
    """Two in the middle of the stream, each shorter than what makes a session end."""

    def cut(number, between):
        if number in (300, 600):
            between.set(*ways, cut=1)
            timer = threading.Timer(0.3, lambda: between.set(*ways, cut=0))
            timer.start()
            timer.join()

    through(rng, 1_000, [64, 3000], trouble=cut)


@pytest.mark.parametrize(
    ("mtu", "term_length", "window"), [(96, 1 << 16, 4096), (8192, 1 << 18, 1 << 17), (65504, 1 << 20, 2 << 20)]
)
def test_small_and_large_datagrams_and_windows(rng, mtu, term_length, window):
    publisher, subscriber = {"mtu": mtu, "term_length": term_length}, {"window": window}
    through(rng, 500, [9, 100, 8000], publisher=publisher, subscriber=subscriber, loss=0.05)


def test_without_reliability_every_loss_is_counted(rng):
    """A hole becomes counted loss: what comes is whole and in order."""
    target, count, got = free_port(), 3_000, []
    with (
        penstock.subscribe(uri(target), reliable=False, until_end=True) as sub,
        relay(target, rng.randrange(1 << 30)) as between,
    ):
        between.set("there", loss=0.05)

        def send():
            with penstock.publish(uri(between.port), linger=10.0) as pub:
                pub.wait_for_readers(1, timeout=PATIENCE)
                for number in range(count):
                    pub.send(message(number, 1000), timeout=PATIENCE)

        thread = threading.Thread(target=send)
        thread.start()
        for found in sub:
            number = int.from_bytes(found[:8], "little")
            assert found == message(number, 1000)
            got.append(number)
        thread.join()
        assert got == sorted(set(got))
        assert 0 < len(got) < count
        assert sub.lost >= (count - got[0] - len(got)) * 1000 - 1000 * (count - 1 - got[-1])
        assert sub.statistics().details["naks_sent"] == 0


READER = """
import sys, penstock
expected = 0
with penstock.subscribe(sys.argv[1], until_end=True, window=2 << 20) as sub:
    print("ready", flush=True)
    try:
        while True:
            values = sub.poll_arrow(20_000).column("payload").to_pylist() or [sub.recv()]
            for value in values:
                assert value == expected.to_bytes(8, "little") * 8, (expected, value)
                expected += 1
    except penstock.EndOfStream:
        print(expected, sub.lost, flush=True)
"""


@pytest.mark.skipif(not LONG, reason="40 million messages take long: long mode")
def test_forty_million_messages_over_a_bad_link(rng):
    count, target = int(os.environ.get("PENSTOCK_MESSAGES", "40000000")), free_port()
    reader = subprocess.Popen([sys.executable, "-c", READER, uri(target)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    with relay(target, rng.randrange(1 << 30), loss=0.3, double=0.5) as between:
        with penstock.publish(uri(between.port), linger=60.0, term_length=1 << 26) as pub:
            pub.wait_for_readers(1, timeout=PATIENCE)
            for begin in range(0, count, 1000):
                batch = [number.to_bytes(8, "little") * 8 for number in range(begin, min(begin + 1000, count))]
                done = 0
                while done < len(batch):
                    done += pub.offer_many(batch[done:])
                    if done < len(batch):
                        pub.send(batch[done])
                        done += 1
            assert reader.poll() is None
        assert reader.communicate(timeout=600)[0] == f"{count} 0\n"
