"""The demo's comparisons fail when a count is off."""

import contextlib
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from penstock.cli.demo import checks, link
from penstock.cli.demo.flow import Demo, flow
from penstock.cli.demo.network import Networks
from penstock.tables import pipeline

CHANNEL = "log:demo.counted"
ARRAYS, DICTS = "log:demo.arrays", "log:demo.dicts"
SAMPLE = np.dtype([("n", "u4"), ("force", "f8", (2,))])
SAMPLES = [(1, (0.5, 1.5)), (2, (2.5, 3.5)), (3, (4.5, 5.5))]
VALUES = [{"a": 1, "b": "x"}, {"a": 2}]


@pytest.fixture
def demo(tmp_path):
    """(recorded, measured, tables) of two messages that reached two readers, the recorder and the tables."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish(CHANNEL, codec="json") as pub, archive.record(CHANNEL):
        pub.send({"job": 0, "again": False})
        pub.send({"job": 1, "again": True})
    pipeline.run(archive.path, tmp_path / "tables")
    measured = {
        "sent": {CHANNEL: 2},
        "wrote": Counter({CHANNEL: 2}),
        "subscribers": [{CHANNEL: {"messages": 2}} for _ in range(2)],
    }
    return archive.list(), measured, tmp_path / "tables"


def test_counts_that_are_right(demo):
    checks.every_message_is_accounted_for(*demo)


@pytest.mark.parametrize(
    ("sent", "wrote", "got"),
    [
        (2, 3, 2),  # the writer wrote more than the channel counted
        (2, 2, 1),  # a reader misses one
        (2, 2, 3),  # a reader has one twice
        (3, 3, 3),  # the recorder misses one
        (1, 1, 1),  # the table has one too many
    ],
)
def test_counts_that_are_off(demo, sent, wrote, got):
    recorded, measured, tables = demo
    measured["sent"][CHANNEL], measured["wrote"][CHANNEL] = sent, wrote
    measured["subscribers"][1][CHANNEL] = {"messages": got}
    if got == sent:
        measured["subscribers"][0] = measured["subscribers"][1]
    with pytest.raises(penstock.PenstockError, match=CHANNEL):
        checks.every_message_is_accounted_for(recorded, measured, tables)


@pytest.fixture
def tables(tmp_path):
    """Tables of three messages of a dtype, and of two dicts, of which the second lacks a field."""
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish(ARRAYS, codec=SAMPLE) as arrays,
        penstock.publish(DICTS, codec="json") as dicts,
        archive.record([ARRAYS, DICTS]),
    ):
        for sample in SAMPLES:
            arrays.send(sample)
        for value in VALUES:
            dicts.send(value)
    pipeline.run(archive.path, tmp_path / "tables")
    return tmp_path / "tables"


def test_every_column_is_compared_with_the_copies(tables):
    copies, codecs = {ARRAYS: list(SAMPLES), DICTS: list(VALUES)}, {ARRAYS: SAMPLE, DICTS: "json"}
    assert checks.compare_copies(copies, codecs, tables) == 5


@pytest.mark.parametrize(
    ("copies", "error"),
    [
        ({ARRAYS: [(1, (0.5, 1.5)), (2, (2.5, 3.5)), (3, (4.5, 5.0))]}, "force of row 2"),
        ({ARRAYS: [(1, (0.5, 1.5)), (9, (2.5, 3.5)), (3, (4.5, 5.5))]}, "n of row 1"),
        ({ARRAYS: SAMPLES[:2]}, "lacks rows"),
        ({ARRAYS: [*SAMPLES, SAMPLES[0]]}, "lacks rows"),
        ({DICTS: [{"a": 1, "b": "x"}, {"a": 2, "b": ""}]}, "b of row 1"),
        ({DICTS: [{"a": 1, "b": "x"}, {"a": 3}]}, "a of row 1"),
    ],
)
def test_copies_that_differ(tables, copies, error):
    with pytest.raises(penstock.Corrupt, match=error):
        checks.compare_copies(copies, {ARRAYS: SAMPLE, DICTS: "json"}, tables)


def test_a_link_loses_its_share_in_both_directions():
    """The relay of the demo: what it passes and loses adds up to what was sent, and answers find their way back."""
    end = threading.Event()
    port, target = link.free_ports(2)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        far.bind((link.HOST, target))
        for one in (sender, far):
            one.settimeout(60)
        with ThreadPoolExecutor() as pool:
            counts = pool.submit(link.relay, {port: target}, 0.5, 1, end)
            try:
                sent, came = 0, 0
                while came < 20:  # the relay may not listen yet
                    sender.sendto(b"there", (link.HOST, port))
                    sent += 1
                    far.settimeout(0.01)
                    with contextlib.suppress(TimeoutError):
                        data, at = far.recvfrom(100)
                        came += data == b"there"
                        far.sendto(b"back", at)
                far.settimeout(60)
                sender.settimeout(60)
                assert sender.recv(100) == b"back"
            finally:
                end.set()
            told = counts.result()
    assert told["to the receivers", "passed"] >= 20
    assert 0 < told["to the receivers", "lost"] < sent
    assert told["to the senders", "passed"] > 0
    assert told["to the senders", "passed"] + told["to the senders", "lost"] <= came + 1


def test_a_demo_whose_link_lost_nothing_has_shown_nothing():
    demo = Networks(1.0, None)
    with pytest.raises(penstock.PenstockError, match="lost no datagram"):
        demo.account({"helped": [Counter({("to the receivers", "passed"): 9})], "naks": 0})
    measured = {"helped": [Counter({("to the receivers", "passed"): 9, ("to the receivers", "lost"): 1})], "naks": 3}
    demo.account(measured)
    assert "lost 1 of 10 datagrams (10.0%)" in measured["summary"]
    assert len(set(demo.channels)) == len(demo.sending) == len(demo.names) == 6


@pytest.mark.slow
def test_this_hosts_telemetry_over_logs_is_accounted_for(archive, tmp_path):
    """The flow of `penstock demo` without options, whose tables this process makes."""
    demo = Demo(0.5, None)
    measured = flow(demo, archive.path)
    pipeline.run(archive.path, tmp_path / "tables")
    checks.every_message_is_accounted_for(archive.list(), measured, tmp_path / "tables")
    assert {"log:demo.cpu", "log:demo.disk"} <= demo.channels.keys() == measured["sent"].keys()
    assert all(measured["sent"].values())
    assert archive.verify() == []


def test_a_channel_that_was_not_recorded(demo):
    recorded, measured, tables = demo
    measured["sent"]["log:demo.other"] = 1
    with pytest.raises(penstock.PenstockError, match="were recorded"):
        checks.every_message_is_accounted_for(recorded, measured, tables)
