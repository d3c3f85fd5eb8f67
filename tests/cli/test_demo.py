"""The demo's comparisons fail when a count is off."""

import contextlib
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli.demo import checks, link
from penstock.cli.demo.jobs import DONE, JOBS, Jobs
from penstock.cli.demo.network import Networks
from penstock.spark import pipeline
from penstock.spark.delta import Table, written
from penstock.spark.places import Place
from penstock.spark.stats import STATS

CHANNEL = "log:demo.counted"
ARRAYS, DICTS = "log:demo.arrays", "log:demo.dicts"
SAMPLE = np.dtype([("n", "u4"), ("force", "f8", (2,))])
SAMPLES = [(1, (0.5, 1.5)), (2, (2.5, 3.5)), (3, (4.5, 5.5))]
VALUES = [{"a": 1, "b": "x"}, {"a": 2}]


def lost(out, count):
    """A table stats that says how many bytes were lost."""
    place = Place.of(out) / "stats"
    place.make()
    row = dict.fromkeys(STATS.names) | {"stream": CHANNEL, "lost_bytes": count}
    pq.write_table(pa.Table.from_pylist([row], STATS), place.file("0.parquet"))
    Table.create(place, STATS, [written(place, "0.parquet")])


@pytest.fixture
def demo(tmp_path):
    """(recorded, measured, tables) of two messages that reached two readers, the recorder and the tables."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish(CHANNEL, codec="json") as pub, archive.record(CHANNEL):
        pub.send({"job": 0, "again": False})
        pub.send({"job": 1, "again": True})
    pipeline.run(None, archive.path, tmp_path / "tables")
    lost(tmp_path / "tables", 0)
    measured = {
        "sent": {CHANNEL: 2},
        "wrote": Counter({CHANNEL: 2}),
        "subscribers": [{CHANNEL: {"messages": 2, "lost": 0}} for _ in range(2)],
        "seen": [Counter({(0, False): 1, (1, True): 1}) for _ in range(2)],
    }
    return archive.list(), measured, tmp_path / "tables"


@pytest.mark.parametrize("lossy", [False, True])
def test_counts_that_are_right(demo, lossy):
    checks.every_message_is_accounted_for(*demo, lossy=lossy)


@pytest.mark.parametrize(
    ("lossy", "sent", "wrote", "got", "lost"),
    [
        (False, 2, 3, 2, 0),  # the writer wrote more than the channel counted
        (False, 2, 2, 1, 0),  # a reader misses one
        (False, 2, 2, 3, 0),  # a reader has one twice
        (False, 2, 2, 1, 1),  # counted, but this kind loses nothing
        (False, 3, 3, 3, 0),  # the recorder misses one
        (False, 1, 1, 1, 0),  # the table has one too many
        (True, 2, 2, 1, 0),
        (True, 2, 2, 2, 1),
        (True, 3, 3, 3, 0),  # the recorder misses one and has counted no loss
    ],
)
def test_counts_that_are_off(demo, lossy, sent, wrote, got, lost):
    recorded, measured, tables = demo
    measured["sent"][CHANNEL], measured["wrote"][CHANNEL] = sent, wrote
    measured["subscribers"][1][CHANNEL] = {"messages": got, "lost": lost}
    if got == sent:
        measured["subscribers"][0] = measured["subscribers"][1]
    with pytest.raises(penstock.PenstockError, match=CHANNEL):
        checks.every_message_is_accounted_for(recorded, measured, tables, lossy=lossy)


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
    pipeline.run(None, archive.path, tmp_path / "tables")
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
    assert "lost 1 of 10 datagrams (10.0%)" in measured["said"]
    assert len(set(demo.channels)) == len(demo.sending) == len(demo.names) == 6


def test_a_channel_that_was_not_recorded(demo):
    recorded, measured, tables = demo
    measured["sent"]["log:demo.other"] = 1
    with pytest.raises(penstock.PenstockError, match="were recorded"):
        checks.every_message_is_accounted_for(recorded, measured, tables, lossy=False)


def test_what_readers_saw_is_what_the_table_has(demo):
    _, measured, tables = demo
    checks.all_saw_the_same(CHANNEL, ("job", "again"), measured["seen"], tables)
    measured["seen"][1][0, True] += 1
    with pytest.raises(penstock.PenstockError, match=r"\(0, True\), 1"):
        checks.all_saw_the_same(CHANNEL, ("job", "again"), measured["seen"], tables)


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        ({(0, 7, False): 1, (1, 7, False): 1}, None),
        ({(0, 7, False): 1, (1, 7, False): 1, (1, 8, True): 1}, None),
        ({(0, 7, False): 1}, "1 of 2 jobs were never done"),
        ({(0, 7, False): 1, (1, 7, False): 1, (1, 8, False): 1}, "1 twice without being marked"),
        ({(0, 7, False): 1, (1, 7, False): 2}, "1 twice without being marked"),
    ],
)
def test_every_job_is_done_and_marked_if_done_again(seen, error):
    measured = {"seen": [Counter(seen)], "wrote": Counter({JOBS: 2}), "killed": 1}
    jobs = Jobs(1.0, None)
    assert set(jobs.channels) == {DONE, JOBS}
    if error is None:
        jobs.account(measured)
        assert "at least once" in measured["said"]
    else:
        with pytest.raises(penstock.PenstockError, match=error):
            jobs.account(measured)
