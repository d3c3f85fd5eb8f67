"""`Archive.play`: a whole archive onto channels again, on one clock, in the order of send times."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.record import Merged, Range, merged, plan
from penstock.record.read import player
from penstock.util.clock import SystemClock

PATIENCE = 60
SECOND = 10**9
BEGAN = 1_769_860_800 * SECOND


class Watched(SystemClock):
    """A clock that only passes when somebody sleeps."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def filled(archive):
    """Three channels of different kinds and codecs, with messages in turns, a second apart; the first in two recordings."""
    clock = penstock.testing.ManualClock(BEGAN)
    with (
        penstock.publish(penstock.testing.channel("log:robot/imu", clock=clock), codec="json") as imu,
        penstock.publish(
            penstock.testing.channel("ring:robot/gps", clock=clock), codec=np.dtype([("lat", "f8")])
        ) as gps,
        penstock.publish(penstock.testing.channel("log:other", clock=clock)) as other,
    ):
        for part in range(2):
            with archive.record(["log:robot/imu", "ring:robot/gps", "log:other"]):
                for number in range(part * 5, part * 5 + 5):
                    imu.send({"n": number})
                    clock.now_ns += SECOND // 2
                    gps.send((number + 0.5,))
                    other.send(b"%d" % number)
                    clock.now_ns += SECOND // 2
    for name in ("log:robot/imu", "ring:robot/gps", "log:other"):
        penstock.remove(name)
    return archive


def heard(*names):
    return [penstock.subscribe(name) for name in names]


def everything(subscription):
    return subscription.poll(10_000)


def test_an_archive_is_played_onto_channels_of_the_same_names(filled):
    imu, gps, other = heard("log:robot/imu", "ring:robot/gps", "log:other")
    played = filled.play(speed=None)
    assert played.messages == {"log:robot/imu": 10, "ring:robot/gps": 10, "log:other": 10}
    assert (played.total, played.left_out) == (30, ())
    assert everything(imu) == [{"n": number} for number in range(10)]
    assert [record["lat"] for record in everything(gps)] == [number + 0.5 for number in range(10)]
    assert everything(other) == [b"%d" % number for number in range(10)]


def test_the_rhythm_is_that_of_all_channels_together(filled):
    clock = Watched()
    archive = penstock.Archive(filled.path, clock=clock)
    archive.play(speed=2)
    assert sum(clock.slept) == pytest.approx(9.5 / 2)
    assert clock.slept == [pytest.approx(0.25)] * 19
    clock.slept.clear()
    archive.play(speed=None)
    assert clock.slept == []


def test_the_order_is_that_of_send_times(filled):
    found = list(merged(plan(filled)))
    assert [one.time_ns for one in found] == sorted(one.time_ns for one in found)
    assert next(one.source.channel for one in found[:3]) == "log:robot/imu"
    assert len(found) == 30


def test_names_get_a_prefix_or_are_mapped(filled):
    imu, gps = heard("log:again/robot/imu", "ring:again/robot/gps")
    assert filled.play("robot/*", onto="again/", speed=None).messages == {"log:robot/imu": 10, "ring:robot/gps": 10}
    assert (len(everything(imu)), len(everything(gps))) == (10, 10)
    ring, other = heard("ring:elsewhere", "log:other")
    filled.play(["log:robot/imu", "log:other"], onto={"log:robot/imu": "ring:elsewhere"}, speed=None)
    assert everything(ring)[-1] == {"n": 9}
    assert len(everything(other)) == 10


def test_a_span_of_time_is_played(filled):
    imu, other = heard("log:robot/imu", "log:other")
    filled.play(["log:*"], since="2026-01-31T12:00:03Z", until="2026-01-31T12:00:05Z", speed=None)
    assert everything(imu) == [{"n": 3}, {"n": 4}, {"n": 5}]
    assert everything(other) == [b"3", b"4"]


def test_messages_recorded_twice_are_played_once(archive):
    with penstock.publish("log:a") as pub, archive.record("log:a"), penstock.Archive(archive.path).record("log:a"):
        for number in range(20):
            pub.send(b"%d" % number)
    assert [info.messages for info in archive.list()] == [20, 20]
    (again,) = heard("log:again/a")
    assert archive.play(onto="again/", speed=None).messages == {"log:a": 20}
    assert everything(again) == [b"%d" % number for number in range(20)]


def test_sync_queues_and_frames_and_named_pipes_are_played(archive):
    shape, jobs = (2, 3), ["log:x"]
    with (
        penstock.publish("frames:cam", shape=shape) as cam,
        penstock.join("sync:lab") as lab,
        penstock.publish("pipe:jobs") as push,
        penstock.subscribe("pipe:jobs") as worker,
        archive.record(["frames:cam", "sync:lab", "pipe:jobs"], pixels=True),
    ):
        cam.send(np.arange(6, dtype="u1").reshape(shape), meta={"n": 1})
        lab.send(b"from the lab")
        push.send(b"a job")
        assert worker.recv(timeout=PATIENCE) == b"a job"
    (lab,) = heard("sync:again/lab")
    with penstock.publish("frames:again/cam", shape=shape), penstock.subscribe("frames:again/cam") as cam:
        pass
    penstock.remove("frames:again/cam")
    with penstock.publish("frames:made", shape=shape) as made:
        made.close()
        with penstock.subscribe("frames:made", conflate=False) as cam:
            played = archive.play(
                ["frames:*", "*"], onto={"frames:cam": "frames:made", "sync:lab": "sync:again/lab"}, speed=None
            )
            assert played.messages == {"frames:cam": 1, "sync:lab": 1}  # a pattern stands for no pipe
            with cam.recv(timeout=PATIENCE) as frame:
                assert frame.array.tolist() == [[0, 1, 2], [3, 4, 5]]
                assert frame.meta == {"n": 1}
    assert everything(lab) == [b"from the lab"]
    (copy,) = heard(*jobs)
    assert archive.play("pipe:jobs", onto={"pipe:jobs": "log:x"}, speed=None).messages == {"pipe:jobs": 1}
    assert everything(copy) == [b"a job"]


def test_frames_without_pixels_are_left_out_and_said(archive):
    with (
        penstock.publish("frames:cam", shape=(2,)) as cam,
        penstock.publish("log:a") as pub,
        archive.record(["frames:cam", "log:a"], pixels=False),
    ):
        cam.send(np.zeros(2, "u1"))
        pub.send(b"x")
    played = archive.play(onto="again/", speed=None)
    assert played.messages == {"log:a": 1}
    assert played.left_out == (
        "frames:cam: recording 1 has the notes of frames alone: it was recorded with pixels=False (--no-pixels)",
    )


def test_a_recording_of_another_codec_is_left_out_and_said(archive):
    for codec in ("json", "msgpack"):
        with penstock.publish("log:a", codec=codec) as pub, archive.record("log:a"):
            pub.send([codec])
        penstock.remove("log:a")
    (again,) = heard("log:again/a")
    played = archive.play(onto="again/", speed=None)
    assert (played.messages, everything(again)) == ({"log:a": 1}, [["json"]])
    assert "recording 2 has another codec" in played.left_out[0]


def test_wrong_arguments_play_nothing(filled):
    for wrong, says in (
        ({"speed": 0}, "speed"),
        ({"onto": "log:x"}, "give a prefix"),
        ({"since": "soon"}, "since is 'soon'"),
        ({"channels": "log:nope"}, "no recording of log:nope"),
        ({"onto": {"log:nope": "log:a"}}, "log:nope is not played"),
        ({"onto": "a b/"}, "not a channel name"),
    ):
        with pytest.raises((penstock.Invalid, penstock.NotFound), match=says):
            filled.play(**wrong)
    assert penstock.list_channels() == []


def test_a_slow_reader_makes_it_wait_for_so_long(filled):
    with penstock.publish("log:other", capacity=1 << 16) as pub, penstock.subscribe("log:other"):
        while pub.offer(b"x" * 1000) is not None:
            pass
        with pytest.raises(penstock.TimedOut):
            filled.play("log:other", speed=None, timeout=0)


def test_progress_is_told(filled):
    told = []
    filled.play("log:other", speed=None, progress=lambda *said: told.append(said))
    assert told == [("playing", done, 10) for done in range(1, 11)]


def test_only_streams_that_overlap_in_time_are_open_at_once(archive, monkeypatch):
    """Twenty recordings, one after the other: one is read at a time, in batches of bounded size."""
    clock = penstock.testing.ManualClock(BEGAN)
    for number in range(20):
        with (
            penstock.publish(penstock.testing.channel(f"log:n{number}", clock=clock)) as pub,
            archive.record(f"log:n{number}"),
        ):
            for _ in range(3):
                pub.send(b"x" * 100)
                clock.now_ns += SECOND
    running, most = set(), 0
    rows = merged.__globals__["_rows"]

    def counted(stream, since, until, *told):
        nonlocal most
        running.add(stream[0].channel)
        most = max(most, len(running))
        yield from rows(stream, since, until, *told)
        running.discard(stream[0].channel)

    monkeypatch.setitem(merged.__globals__, "_rows", counted)
    assert len(list(merged(plan(archive)))) == 60
    assert most <= 2
    assert not running


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=20), max_size=6))
def test_merging_keeps_each_streams_order(streams):
    def ranges():
        for number, times in enumerate(streams):
            about = (
                number,
                f"log:{number}",
                {},
                number,
                0,
                1,
                1,
                len(times),
                min(times),
                max(times),
                None,
                False,
                "",
                (),
            )
            yield Range(*about)

    def rows(stream, since, until, *told):
        for at, time_ns in enumerate(streams[stream[0].recording]):
            yield Merged(stream[0], time_ns, at, 0, 0, b"")

    plain = merged.__globals__["_rows"]
    merged.__globals__["_rows"] = rows
    try:
        found = list(merged(ranges()))
    finally:
        merged.__globals__["_rows"] = plain
    for number, times in enumerate(streams):
        assert [one.time_ns for one in found if one.source.recording == number] == times
    due = []
    for times in streams:
        due += list(itertools.accumulate(times, max))
    reached = {}
    order = []
    for one in found:
        reached[one.source.recording] = max(reached.get(one.source.recording, 0), one.time_ns)
        order.append(reached[one.source.recording])
    assert order == sorted(due)


@pytest.mark.parametrize(
    ("channel", "onto", "target"),
    [
        ("log:imu", None, "log:imu"),
        ("log:robot/imu", "again/", "log:again/robot/imu"),
        ("fake:log:imu", "x.", "fake:log:x.imu"),
        ("log:imu", {"log:imu": "ring:b"}, "ring:b"),
        ("log:imu", {"log:gps": "ring:b"}, "log:imu"),
    ],
)
def test_where_a_channel_goes(channel, onto, target):
    assert player.renamed(channel, onto) == target
