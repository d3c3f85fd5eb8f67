"""A recording of frames has the frames. Publications that wait, wait for its recorder; the losses of others are counted in frames."""

import json

import numpy as np
import pytest
from cli import running

import penstock
from penstock.watch import metrics

SHAPE, BYTES = (4, 8), 32
PATIENCE = 60


def filled(number):
    return np.full(SHAPE, number, "u1")


def recorded(archive, channel="frames:r"):
    return [int(message.data["pixels"][0, 0]) for message in archive.replay(channel)]


def opened(**options):
    return penstock.publish("frames:r", shape=SHAPE, buffers=3, **options)


def send(pub, count):
    for number in range(count):
        pub.send(filled(number), timeout=PATIENCE)


@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("waits", ["publication", "recorder", "another subscription"])
def test_a_burst_is_recorded_whole(archive, waits, process):
    with opened(when_slow="wait" if waits == "publication" else None) as pub:
        also = {"when_slow": "wait"} if waits == "recorder" else {}
        with archive.record("frames:r", process=process, **also):
            pub.wait_for_readers(1, timeout=PATIENCE)
            if waits == "another subscription":
                with penstock.subscribe("frames:r", when_slow="wait") as sub:
                    for number in range(100):
                        pub.send(filled(number), timeout=PATIENCE)
                        assert sub.recv(timeout=PATIENCE).array[0, 0] == number
            else:
                send(pub, 100)
    info = archive.find("frames:r")
    assert (info.messages, info.gaps, info.lost_bytes, info.lost_messages) == (100, 0, 0, 0)
    assert recorded(archive) == list(range(100))
    assert archive.verify() == []


def test_a_recorder_that_stands_still_is_waited_for(archive):
    with opened(when_slow="wait") as pub:
        writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None)
        sent = 0
        while pub.offer(filled(sent)) is not None:
            sent += 1
        assert sent == 3  # all buffers, and then no room
        while writer.turn() > 0:
            pass
        assert pub.offer(filled(sent)) is not None
        assert writer.turn() > 0
        writer.finish()
        assert pub.offer(filled(9)) is not None  # nobody is waited for any more
        send(pub, 9)
    assert recorded(archive) == [0, 1, 2, 3]


def test_a_recorder_that_skips_holds_nobody_back(archive):
    with opened(when_slow="wait") as pub:
        writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None, True, False, "skip")
        send(pub, 50)
        while writer.turn() > 0:
            pass
        writer.finish()
    info = archive.find("frames:r")
    assert 0 < info.messages < 50
    assert info.messages + info.lost_messages == 50


def test_a_recording_without_pixels_is_whole_too(archive):
    with opened(when_slow="wait") as pub, archive.record("frames:r", pixels=False):
        send(pub, 200)
    assert [message.data["id"] for message in archive.replay("frames:r")] == list(range(200))


@pytest.mark.parametrize("options", [{"conflate": False}, {"when_slow": "wait"}])
def test_a_waiting_publication_waits_for_all_full_readers(options):
    with opened(when_slow="wait") as pub, penstock.subscribe("frames:r", **options) as sub:
        with penstock.subscribe("frames:r"), penstock.subscribe("frames:r", conflate=False, when_slow="skip"):
            while pub.offer(filled(pub.position % 256)) is not None:
                pass
            assert len(sub.poll()) == 3
            assert pub.offer(filled(1)) is not None  # the other two hold nobody back
        assert sub.lost_messages == 0


def test_a_publication_that_does_not_wait_goes_on(archive):
    with opened() as pub, penstock.subscribe("frames:r", conflate=False) as sub:
        writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None)
        for number in range(20):
            assert pub.offer(filled(number)) is not None
        while writer.turn() > 0:
            pass
        recorder = writer.progress.lost_messages
        writer.finish()
        got = sub.poll()
        lost = 20 - len(got)
        assert (sub.lost_messages, sub.lost) == (lost, lost * BYTES)
        totals = penstock.inspect("frames:r").totals
        assert (totals.messages_lost, totals.bytes_lost) == (lost + recorder, (lost + recorder) * BYTES)
        member = next(m for m in sub.statistics().members if m.reads)
        assert (member.messages_lost, member.bytes_lost) == (lost, lost * BYTES)
        row = json.loads(running.here("ls", "frames:r", "--json", folder=archive.path).out)
        assert row["totals"]["bytes_lost"] == (lost + recorder) * BYTES
        assert (
            f'penstock_channel_lost_bytes_total{{channel="frames:r",kind="frames"}} {(lost + recorder) * BYTES}'
            in metrics.text()
        )
    info = archive.find("frames:r")
    assert info.messages + info.lost_messages == 20
    assert f"{info.lost_messages} frames" in running.here("recordings", archive.path, folder=archive.path).out


def test_fields_of_any_length_are_recorded(archive):
    with opened() as pub, archive.record("frames:r", when_slow="wait"):
        meta = {"long": "x" * 4000}
        pub.send(filled(1), meta=meta, timeout=PATIENCE)
    (message,) = archive.replay("frames:r")
    assert message.data["meta"] == meta


def test_when_slow_is_for_frames(archive):
    with penstock.publish("log:r"), pytest.raises(penstock.Unsupported, match="frames"):
        archive.record("log:r", when_slow="wait")
    with pytest.raises(penstock.Invalid, match="when_slow"):
        opened(when_slow="perhaps")


def test_the_command_records_frames(tmp_path):
    with opened() as pub:
        pub.send(filled(7))
        done = running.here("record", "a", "frames:*", "--seconds", 0.5, folder=tmp_path)
        assert (done.status, done.err.count("left out")) == (0, 0)
        assert penstock.Archive(tmp_path / "a").find("frames:r").codec["pixels"] is True
        done = running.here("record", "b", "frames:r", "--no-pixels", "--seconds", 0.1, folder=tmp_path)
        assert done.status == 0
        assert "left out, by --no-pixels: the pixels of frames:r" in done.err
        assert "pixels" not in penstock.Archive(tmp_path / "b").find("frames:r").codec
        rows = json.loads(running.here("recordings", "b", "--json", folder=tmp_path).out)
        assert rows[0]["channel"] == "frames:r"
