"""Latencies from send to receive: the buckets, what is sampled, what a slot's next owner finds, and figures made of them."""

import os
import signal
import subprocess
import sys

import pytest

import penstock
from penstock._native import core
from penstock.channels import latency as latencies
from penstock.channels.latency import BUCKETS, Latency, floor_ns
from penstock.util.markup import duration

STEP = 61  # LatencyMeter::step


def counted(**buckets: int) -> Latency:
    counts = [0] * BUCKETS
    for name, count in buckets.items():
        counts[int(name[1:])] = count
    return Latency(tuple(counts), 0, 1 << 60, 1)


def reader(channel: str) -> Latency:
    (found,) = [m.latency for m in penstock.inspect(channel).members if m.reads and m.pid == os.getpid()]
    assert found is not None
    return found


def test_python_and_the_core_agree_about_the_buckets():
    assert [core.latency_bucket(floor_ns(bucket)) for bucket in range(BUCKETS)] == [*range(BUCKETS)]
    assert [core.latency_bucket(floor_ns(bucket) - 1) for bucket in range(1, BUCKETS)] == [*range(BUCKETS - 1)]
    assert core.latency_bucket(2**64 - 1) == BUCKETS - 1
    assert all(floor_ns(b + 1) - floor_ns(b) <= max(latencies.UNIT_NS, floor_ns(b) / 4) for b in range(BUCKETS))


def test_quantiles_lie_in_their_bucket_below_the_maximum():
    found = counted(b8=50, b20=49, b40=1)
    for share, bucket in ((0.25, 8), (0.5, 8), (0.75, 20), (0.99, 20), (1, 40)):
        assert floor_ns(bucket) <= found.quantile_ns(share) <= floor_ns(bucket + 1), share
    assert Latency(found.counts, 0, floor_ns(40) + 5, 3).quantile_ns(1) == floor_ns(40) + 5
    assert counted().quantile_ns(0.5) is None
    assert counted().mean_ns is None
    with pytest.raises(ValueError, match="from 0 to 1"):
        found.quantile_ns(99)


def test_a_difference_is_what_came_in_between():
    before, after = counted(b8=50, b20=3), counted(b8=60, b20=3)
    assert after.since(before).counts == counted(b8=10).counts
    assert after.since(before).max_ns == floor_ns(9)
    assert after.since(after).max_ns == 0
    assert before.since(after).messages == 0, "a channel made again begins at 0"


def test_the_prometheus_buckets_grow_up_to_the_count():
    ends, counts = zip(*counted(b0=1, b7=2, b8=4, b119=8).cumulative(), strict=True)
    assert list(ends) == sorted(set(ends))
    assert list(counts) == sorted(counts)
    assert dict(zip(ends, counts, strict=True))[floor_ns(8)] == 3
    assert counts[-1] == 7, "the last bucket has no end: it is in the count alone"


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_a_reader_that_waits_measures_each_message(kind):
    with penstock.subscribe(f"{kind}:a") as sub, penstock.publish(f"{kind}:a") as pub:
        for _ in range(100):
            assert sub.try_recv() is None
            pub.send(b"x")
            sub.recv(timeout=10)
        found = reader(f"{kind}:a")
        assert (found.messages, found.measured) == (100, 100)
        assert 0 < found.quantile_ns(0.5) <= found.quantile_ns(0.99) <= found.max_ns <= found.sum_ns


@pytest.mark.parametrize("take", ["recv", "poll", "poll_arrow", "borrow"])
def test_one_in_61_waiting_messages_is_measured_for_all(take):
    with penstock.subscribe("log:a") as sub, penstock.publish("log:a") as pub:
        for _ in range(1 + 10 * STEP):
            pub.send(b"x")
        if take in ("poll", "poll_arrow"):
            for _ in range(10 * STEP // 7 + 1):
                getattr(sub, take)(7)
        for _ in range(1 + 10 * STEP if take in ("recv", "borrow") else 0):
            if take == "recv":
                sub.recv(timeout=10)
            else:
                with sub.borrow():
                    pass
        found = reader("log:a")
        assert (found.messages, found.measured) == (1 + 10 * STEP, 11)


def test_a_pause_does_not_change_which_messages_are_measured():
    with penstock.subscribe("log:a") as sub, penstock.publish("log:a") as pub:
        for _ in range(STEP):  # each round: one message that the reader waits for, and two that wait
            assert sub.try_recv() is None
            for _ in range(3):
                pub.send(b"x")
            for _ in range(3):
                sub.recv(timeout=10)
        found = reader("log:a")
        assert (found.messages, found.measured) == (3 * STEP, STEP + 2)


def test_messages_older_than_the_subscription_do_not_count():
    with penstock.publish("log:a") as pub:
        for _ in range(200):
            pub.send(b"x")
        with penstock.subscribe("log:a", start="earliest") as sub:
            assert len(sub.poll()) == 200
            assert reader("log:a").messages == 0
            assert sub.try_recv() is None
            pub.send(b"x")
            sub.recv(timeout=10)
            assert reader("log:a").messages == 1


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_the_next_subscription_begins_to_count_at_0(kind):
    with penstock.publish(f"{kind}:a") as pub:
        for round in range(1, 4):
            with penstock.subscribe(f"{kind}:a") as sub:
                assert reader(f"{kind}:a").messages == 0
                pub.send(b"x")
                sub.recv(timeout=10)
                assert reader(f"{kind}:a").messages == 1
            found = penstock.inspect(f"{kind}:a").latency
            assert (found.messages, found.measured) == (round, round)
            assert found.max_ns >= found.sum_ns / round


def test_a_killed_reader_leaves_its_counts_to_the_channel():
    code = """
import penstock
sub = penstock.subscribe("log:a")
print("here", flush=True)
sub.recv()
print("got", flush=True)
sub.recv()
"""
    with penstock.publish("log:a") as pub:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "here\n"
        pub.send(b"x")
        assert child.stdout.readline() == "got\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with penstock.subscribe("log:a"):
            assert reader("log:a").messages == 0
            assert penstock.inspect("log:a").latency.messages == 1


def test_a_forked_child_counts_as_a_reader_of_its_own():
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub:
        pub.send(b"x")
        sub.recv(timeout=10)
        child = os.fork()
        if child == 0:
            try:
                assert sub.try_recv() is None
                pub.send(b"y")
                sub.recv(timeout=10)
                assert sorted(m.latency.messages for m in penstock.inspect("log:a").members if m.reads) == [1, 1]
            except BaseException as error:
                print(error, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert reader("log:a").messages == 1
        assert penstock.inspect("log:a").latency.messages == 2


def test_frames_are_counted_when_they_are_taken():
    with (
        penstock.publish("frames:a", shape=(2,), dtype="u1") as pub,
        penstock.subscribe("frames:a") as sub,
    ):
        for _ in range(3):
            assert sub.try_recv() is None
            pub.send(bytes(2))
            sub.recv(timeout=10).release()
        pub.send(bytes(2))
        sub.latest().release()  # a look takes nothing
        assert reader("frames:a").messages == 3


def test_write_only_members_and_open_channels_have_none():
    with penstock.subscribe("log:a"):
        assert penstock.inspect("log:a").latency is None
        with penstock.publish("log:a"):
            roles = {m.role: m.latency for m in penstock.inspect("log:a").members}
            assert roles["publication"] is None
            assert roles["subscription"].messages == 0


def test_stamps_of_other_clocks_count_as_no_latency():
    clock = penstock.testing.ManualClock(0)
    with penstock.subscribe("log:a") as sub, penstock.publish(penstock.testing.channel("log:a", clock=clock)) as pub:
        clock.now_ns = 1
        pub.send(b"x")
        sub.recv(timeout=10)
        assert reader("log:a").messages == 0
        clock.now_ns = 2**62
        assert sub.try_recv() is None
        pub.send(b"x")
        sub.recv(timeout=10)
        found = reader("log:a")
        assert (found.counts[0], found.sum_ns, found.max_ns) == (1, 0, 0)


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "–"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1234, "1.2 µs"),
        (999_600, "1.0 ms"),
        (12_345_678, "12 ms"),
        (9e9, "9.0 s"),
    ],
)
def test_durations_as_people_read_them(ns, shown):
    assert duration(ns) == shown
