"""Paths that drop long datagrams: they are named, short messages go on in shorter datagrams, and the network is not flooded."""

import contextlib
import json
import logging
import re
import time

import pytest
from network.machines import machines
from network.relay import relay
from ports import free_port

import penstock

PATIENCE = 60
LIMIT = 1300  # bytes of the longest datagram that arrives
TOLD = re.compile(r"datagrams of 1408 bytes do not arrive (at|from) 127\.0\.0\.1:\d+, 1280 do: .* mtu=1280")

READER = """
import json, penstock, sys
with penstock.subscribe("udp://0.0.0.0:40123/7") as sub:
    print("ready", flush=True)
    for _ in range(300):
        sub.recv(timeout=60)
    print(json.dumps(sub.statistics().network.problems), flush=True)
"""
WRITER = """
import json, penstock, sys
with penstock.publish("udp://10.9.0.2:40123/7") as pub:
    pub.wait_for_readers(1, timeout=60)
    for _ in range(300):
        pub.send(bytes(64), timeout=60)
    sys.stdin.readline()
    print(json.dumps(pub.statistics().network.problems), flush=True)
"""


@contextlib.contextmanager
def narrow(**options):
    """A subscription, a publication, and a relay between them that loses long datagrams."""
    target = free_port()
    with (
        penstock.subscribe(f"udp://127.0.0.1:{target}/7") as sub,
        relay(target) as between,
        penstock.publish(f"udp://127.0.0.1:{between.port}/7", **options) as pub,
    ):
        between.set("there", longest=LIMIT)
        pub.wait_for_readers(1, timeout=PATIENCE)
        yield sub, pub, between


def wait_for_a_problem(sub, pub):
    """Both see it; the publication a moment later, when its last probe has ended."""
    end = time.monotonic() + PATIENCE
    while not (sub.statistics().network.problems and pub.statistics().network.problems):
        assert time.monotonic() < end, (sub.statistics(), pub.statistics())
        with contextlib.suppress(penstock.TimedOut):
            sub.recv(timeout=0.05)


def test_short_messages_go_on_in_shorter_datagrams():
    with narrow() as (sub, pub, _):
        for number in range(3000):
            pub.offer(number.to_bytes(4, "little"))
        assert [int.from_bytes(sub.recv(timeout=PATIENCE), "little") for _ in range(1000)] == list(range(1000))
        wait_for_a_problem(sub, pub)
        for handle in (sub, pub):
            (problem,) = handle.statistics().network.problems
            assert TOLD.fullmatch(problem)


def test_long_messages_are_named_once_and_flood_nothing(caplog):
    with narrow() as (sub, pub, between), caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(100):
            pub.send(bytes(3000), timeout=PATIENCE)
        wait_for_a_problem(sub, pub)
        told, begun = pub.statistics(), time.monotonic()
        (receiver,) = told.network.receivers
        assert TOLD.fullmatch(receiver.problem)
        assert receiver.naks_received
        for _ in range(10):  # it waits, and so its owner is told
            with pytest.raises(penstock.TimedOut):
                sub.recv(timeout=0.1)
        again, seconds = pub.statistics(), time.monotonic() - begun
        more = again.details["retransmitted"] - told.details["retransmitted"]
        assert more < 3000 * max(seconds, 1)  # 20,000 in a second without a limit
        lines = [line for line in caplog.messages if "do not arrive" in line]
        assert [bool(TOLD.search(line)) for line in lines] == [True]
        between.set("there", longest=65536)
        assert [len(sub.recv(timeout=PATIENCE)) for _ in range(100)] == [3000] * 100
        assert sub.lost == 0


def test_a_publication_that_fits_the_path_has_no_problem():
    with narrow(mtu=1280) as (sub, pub, _):
        for _ in range(300):
            pub.send(bytes(3000), timeout=PATIENCE)
            assert len(sub.recv(timeout=PATIENCE)) == 3000
        assert pub.statistics().network.problems == sub.statistics().network.problems == ()


def test_a_machine_behind_a_narrow_link_receives(tmp_path):
    """Its interface takes 1200 bytes: the kernel drops what is longer, and tells nobody."""
    with machines(tmp_path, "10.9.0.1", "10.9.0.2") as (sender, receiver):
        sender.ip("link", "set", "wire", "gso_max_segs", "1")  # else a run passes as a whole
        receiver.ip("link", "set", "wire", "mtu", "1200")
        with receiver.run(READER) as reading:
            assert reading.stdout.readline() == "ready\n"
            with sender.run(WRITER) as writing:
                (theirs,) = json.loads(reading.stdout.readline())
                writing.stdin.write("\n")
                writing.stdin.flush()
                (ours,) = json.loads(writing.stdout.readline())
        assert (
            ours
            == "datagrams of 1408 bytes do not arrive at 10.9.0.2:40123, 1152 do: open the publication with mtu=1152"
        )
        assert "from 10.9.0.1:" in theirs
        assert "mtu=1152" in theirs
