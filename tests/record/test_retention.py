"""Limits of size and age: what goes, what stays for consumers, and that nothing is lost where a recorder goes on."""

import itertools
import logging
import threading
import time

import pytest

import penstock
from penstock.record import Consumer, plan
from penstock.util.clock import SystemClock

PATIENCE = 60
SECOND = 10**9
BEGAN = 1_769_860_800 * SECOND


class Moved(SystemClock):
    """The time of day is set by the test; waits are real."""

    def __init__(self, stamps):
        self.stamps = stamps

    def now_ns(self):
        return self.stamps.now_ns


@pytest.fixture
def stamps():
    return penstock.testing.ManualClock(BEGAN)


@pytest.fixture
def kept(archive, stamps):
    """The archive with a clock that the test moves."""
    return penstock.Archive(archive.path, clock=Moved(stamps))


def recorded(archive, stamps, channel, count, size=100):
    with penstock.publish(penstock.testing.channel(channel, clock=stamps)) as pub, archive.record(channel):
        for number in range(count):
            pub.send(b"%06d" % number + b"x" * size)


def ids(archive):
    return [info.id for info in archive.list()]


def until(ready):
    deadline, turn = time.monotonic() + PATIENCE, threading.Event()
    while not ready():
        assert time.monotonic() < deadline
        turn.wait(0.005)


def test_the_oldest_go_until_the_size_is_kept(kept, stamps):
    for _ in range(4):
        recorded(kept, stamps, "log:a", 10)
        stamps.now_ns += SECOND
    info = kept.list()[0]
    size = max(sum(file.stat().st_size for file in one.path.iterdir()) for one in kept.list())
    done = kept.expire(max_bytes=2 * size + 1)
    assert ([info.id for info in done.purged], done.kept, done.bytes) == ([1, 2], (), 2 * info.bytes)
    assert ids(kept) == [3, 4]
    assert kept.verify() == []
    assert kept.expire(max_bytes=2 * size).purged == ()
    assert len(kept.expire(max_bytes=1).purged) == 2
    assert ids(kept) == []


def test_age_is_that_of_the_newest_message(kept, stamps):
    for _ in range(3):
        recorded(kept, stamps, "log:a", 3)
        stamps.now_ns += 3600 * SECOND
    assert [info.id for info in kept.expire(max_age="150m").purged] == [1]
    assert kept.expire(max_age="1w").purged == ()
    assert [info.id for info in kept.expire(max_age=3600.5).purged] == [2]
    assert ids(kept) == [3]


def test_other_channels_are_not_touched_and_do_not_count(kept, stamps):
    for name in ("log:robot/imu", "log:other", "log:robot/gps"):
        recorded(kept, stamps, name, 5)
    assert [info.channel for info in kept.expire("robot/*", max_bytes=1).purged] == ["log:robot/imu", "log:robot/gps"]
    assert [info.channel for info in kept.list()] == ["log:other"]


def test_messages_unread_by_a_consumer_are_kept(kept, stamps):
    for _ in range(3):
        recorded(kept, stamps, "log:a", 5)
        stamps.now_ns += SECOND
    first = kept.list()[0]
    read = {("log:a", first.epoch): [(first.start_position, first.end_position)]}
    kept.note_consumer(Consumer("slow", None, BEGAN, read))
    done = kept.expire(max_bytes=1)
    assert [info.id for info in done.purged] == [1]
    assert [text.partition(" is kept")[0] for text in done.kept] == [f"recording {n} of log:a" for n in (2, 3)]
    assert "the consumer slow has yet to read" in done.kept[0]
    assert len(kept.expire(max_bytes=1, force=True).purged) == 2


def test_a_recording_that_is_being_written_or_is_damaged_stays(kept, stamps):
    recorded(kept, stamps, "log:a", 5)
    path = kept.folders()[0].segments()[0].index
    path.write_bytes(b"\xff" * 64)
    with penstock.publish(penstock.testing.channel("log:a", clock=stamps)) as pub, kept.record("log:a") as recorder:
        pub.send(b"x")
        until(lambda: recorder.progress()[0].messages == 1)
        assert [info.state for info in kept.list()] == ["damaged", "live"]
        assert kept.expire(max_bytes=1).purged == ()


@pytest.mark.parametrize("wrong", [{}, {"max_bytes": 0}, {"max_bytes": "much"}, {"max_age": -1}, {"max_age": "old"}])
def test_wrong_limits_delete_nothing(kept, stamps, wrong):
    recorded(kept, stamps, "log:a", 3)
    with pytest.raises(penstock.Invalid):
        kept.expire(**wrong)
    if wrong:
        with pytest.raises(penstock.Invalid):
            kept.record("log:a", **wrong)
    with pytest.raises(penstock.NotFound, match="no recording of log:nope"):
        kept.expire("log:nope", max_bytes=1)
    assert ids(kept) == [1]


def run(archive, pub, count, limits, channel):
    """Sends `count` messages while a recorder with limits goes from one recording to the next; all in order."""
    with archive.record(
        channel, sync_interval=0.01, start="earliest" if "log" in channel else "newest", **limits
    ) as recorder:
        for number in range(count):
            pub.send(b"%06d" % number + b"x" * 1000, timeout=PATIENCE)
            if number % 20 == 19:
                until(lambda sent=number + 1: _reached(recorder, sent))
        return recorder


def body(message):
    """The number that a message begins with, whatever its kind's envelope."""
    data = message.data["body"] if isinstance(message.data, dict) else message.data
    return data[:6]


def _reached(recorder, sent):
    return recorder.progress()[-1].position >= sent * 1040


@pytest.mark.parametrize("channel", ["log:a", "ring:a", "sync:a"])
def test_a_recorder_with_a_limit_goes_on_without_a_gap(kept, stamps, channel):
    with penstock.publish(penstock.testing.channel(channel, clock=stamps)) as pub:
        recorder = run(kept, pub, 400, {"max_bytes": 100_000}, channel)
    infos = kept.list()
    assert infos[0].id > 1, "the first recordings are gone"
    assert len(infos) > 3
    for one, following in itertools.pairwise(infos):
        assert (one.end_position, one.state) == (following.start_position, "closed")
    assert sum(info.bytes for info in infos) < 200_000
    told = [body(message) for info in infos for message in kept.replay(info.id)]
    assert told == [b"%06d" % number for number in range(400 - len(told), 400)]
    assert kept.verify() == []
    assert [row.recording for row in recorder.progress()] == ids(kept)
    assert recorder.recordings == {channel: infos[-1].id}
    assert sum(one.messages for one in plan(kept)) == len(told)


def test_recordings_of_a_pipe_follow_each_other_too(kept, stamps):
    with (
        penstock.publish(penstock.testing.channel("pipe:a", clock=stamps)) as push,
        penstock.subscribe("pipe:a") as worker,
        kept.record("pipe:a", sync_interval=0.01, max_bytes=1_000_000) as recorder,
    ):
        for number in range(400):
            push.send(b"%06d" % number + b"x" * 1000, timeout=PATIENCE)
            worker.recv(timeout=PATIENCE)
            if number % 50 == 49:
                until(lambda sent=number + 1: _reached(recorder, sent))
    assert len(kept.list()) > 2
    told = [body(message) for info in kept.list() for message in kept.replay(info.id)]
    assert told == [b"%06d" % number for number in range(400)]
    assert kept.verify() == []


def test_age_ends_recordings_too(kept, stamps):
    with (
        penstock.publish(penstock.testing.channel("log:a", clock=stamps)) as pub,
        kept.record("log:a", sync_interval=0.01, max_age="80s") as recorder,
    ):
        for number in range(30):
            pub.send(b"%d" % number)
            until(lambda sent=number + 1: recorder.progress()[-1].position >= sent * 64 or not recorder)
            stamps.now_ns += 10 * SECOND
            until(lambda past=stamps.now_ns: kept.list()[-1].created_ns >= past or kept.list()[-1].messages == 0)
    newest = kept.list()[-1].time_max or stamps.now_ns
    kept.expire(max_age="80s")
    assert all(info.time_max >= newest - 90 * SECOND for info in kept.list() if info.messages)
    assert ids(kept)[0] > 10


@pytest.mark.parametrize("channel", ["log:a", "ring:a"])
def test_a_follower_goes_on_with_the_recorder(archive, channel):
    """Live on a log, from the recordings alone on a ring. The limit is far: nothing is deleted."""
    heard = []
    with penstock.publish(channel) as pub:
        with archive.record(channel, sync_interval=0.01, max_bytes=400_000) as recorder:
            following = archive.follow(recorder.recordings[channel])
            thread = threading.Thread(target=lambda: heard.extend(message.data[:6] for message in following))
            thread.start()
            for number in range(250):
                pub.send(b"%06d" % number + b"x" * 1000, timeout=PATIENCE)
                if number % 20 == 19:
                    until(lambda sent=number + 1: _reached(recorder, sent))
            assert len(recorder.progress()) > 3
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert heard == [b"%06d" % one for one in range(250)]


def test_a_follower_reads_all_recordings_of_an_ended_recorder(kept, stamps):
    with penstock.publish(penstock.testing.channel("log:a", clock=stamps)) as pub:
        run(kept, pub, 100, {"max_bytes": 200_000}, "log:a")
    assert len(kept.list()) > 2
    oldest = kept.list()[0]
    told = [message.data[:6] for message in kept.follow(oldest.id)]
    assert told == [b"%06d" % number for number in range(100 - len(told), 100)]
    assert len(told) > kept.list()[0].messages


def test_a_message_in_parts_is_in_one_recording(kept, stamps):
    """Messages longer than a frame: no recording ends within one."""
    with penstock.publish(penstock.testing.channel("log:a", clock=stamps), term_length=1 << 16) as pub:
        long = [bytes([number]) * 40_000 for number in range(60)]
        with kept.record("log:a", sync_interval=0.001, max_bytes=2_000_000) as recorder:
            for body in long:
                pub.send(body, timeout=PATIENCE)
            until(lambda: recorder.progress()[-1].position >= 60 * 40_000)
    told = [message.data for info in kept.list() for message in kept.replay(info.id)]
    assert told == long[len(long) - len(told) :]
    assert len(kept.list()) > 1


def test_a_recorder_that_finds_much_at_once_keeps_to_its_limit(kept, stamps):
    """It would purge all of it, were it one recording."""
    with penstock.publish(penstock.testing.channel("log:a", clock=stamps)) as pub:
        for number in range(1000):
            pub.send(b"%06d" % number + b"x" * 1000, timeout=PATIENCE)
        with kept.record("log:a", start="earliest", sync_interval=60, max_bytes=80_000) as recorder:
            until(lambda: _reached(recorder, 1000))
    infos = kept.list()
    assert {info.messages for info in infos[:-1]} == {10}
    assert 70_000 < sum(info.bytes for info in infos) <= 80_000 + 2 * infos[0].bytes
    told = [message.data[:6] for info in infos for message in kept.replay(info.id)]
    assert told == [b"%06d" % number for number in range(1000 - len(told), 1000)]


def test_a_lagging_consumer_exceeds_the_limit_and_is_named(kept, stamps, caplog):
    kept.note_consumer(Consumer("slow", None, BEGAN, {}))
    with (
        caplog.at_level(logging.WARNING, "penstock"),
        penstock.publish(penstock.testing.channel("log:a", clock=stamps)) as pub,
    ):
        run(kept, pub, 200, {"max_bytes": 50_000}, "log:a")
    assert ids(kept)[0] == 1
    assert sum(info.messages for info in kept.list()) == 200
    assert caplog.text.count("recording 1 of log:a is kept: the consumer slow has yet to read") == 1


def test_a_recorder_in_a_process_of_its_own_keeps_limits(archive):
    with penstock.publish("log:a") as pub:
        recorder = run_process(archive, pub)
        assert recorder.error is None
    assert sum(info.bytes for info in archive.list()) < 300_000
    assert len(archive.list()) > 1


def run_process(archive, pub):
    with archive.record("log:a", process=True, sync_interval=0.01, max_bytes="100kB", max_age="1h") as recorder:
        for number in range(400):
            pub.send(b"%06d" % number + b"x" * 1000, timeout=PATIENCE)
            if number % 20 == 19:
                until(lambda sent=number + 1: _reached(recorder, sent))
    return recorder
