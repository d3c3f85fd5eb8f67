"""Frames are recorded as notes, or with their pixels; frames that a recorder missed are a gap."""

import numpy as np
import pytest

import penstock

SHAPE = (5, 7)
PATIENCE = 60


@pytest.fixture
def pub():
    """Frames of 140 bytes."""
    with penstock.publish("frames:r", shape=SHAPE, dtype="<f4", buffers=3) as made:
        yield made


def send(pub, value, **said):
    pub.send(np.full(SHAPE, value, "<f4"), **said)


def test_notes_are_recorded_without_pixels(archive, pub):
    with archive.record("frames:r", pixels=False):
        for i in range(50):
            send(pub, i, id=i * 2, start_ns=i, end_ns=i + 1, meta={"gain": i} if i % 2 else None)
    info = archive.find("frames:r")
    assert (info.messages, info.gaps, info.codec["kind"], info.state) == (50, 0, "frame", "closed")
    assert info.bytes < 50 * 140
    found = [message.data for message in archive.replay("frames:r")]
    assert [(about["id"], about["start_ns"], about["end_ns"]) for about in found] == [
        (i * 2, i, i + 1) for i in range(50)
    ]
    assert found[7]["meta"] == {"gain": 7}
    assert "pixels" not in found[7]
    assert archive.verify() == []
    with pytest.raises(penstock.Invalid, match="no pixels"):
        archive.replay_onto("frames:r", "frames:again")


def turn_all(writer):
    while writer.turn() > 0:
        pass


def test_pixels_are_recorded_if_they_are_wanted(archive, pub):
    writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None, True)
    for i in range(50):
        send(pub, i, id=i * 3, meta={"i": i})
        turn_all(writer)
    writer.finish()
    info = archive.find("frames:r")
    assert (info.messages, info.gaps, info.codec["pixels"], info.state) == (50, 0, True, "closed")
    for i, message in enumerate(archive.replay("frames:r")):
        assert (message.data["id"], message.data["meta"]) == (i * 3, {"i": i})
        assert message.data["pixels"].shape == SHAPE
        assert (message.data["pixels"] == i).all()
    assert archive.verify() == []


def test_a_recorder_in_its_own_process_records_pixels(archive, pub):
    recorder = archive.record("frames:r", process=True, pixels=True)
    for i in range(20):
        send(pub, i, timeout=PATIENCE)
    recorder.stop()
    info = archive.find("frames:r")
    seen = [message.data for message in archive.replay("frames:r")]
    assert info.codec["pixels"] is True
    assert len(seen) == info.messages
    assert info.messages + info.lost_bytes // (info.bytes // info.messages) == 20
    assert all((about["pixels"] == about["id"]).all() for about in seen)


def test_frames_of_two_writers_are_one_recording(archive):
    """In one order, each writer's in its own; replayed they are one writer's."""
    options = {"shape": SHAPE, "dtype": "<f4", "buffers": 3, "when_slow": "wait"}
    with (
        penstock.publish("frames:r", **options) as one,
        penstock.publish("frames:r", when_slow="wait") as other,
        archive.record("frames:r", pixels=True),
    ):
        for number in range(0, 40, 2):
            with other.acquire(timeout=PATIENCE) as frame:  # open while the other one sends
                send(one, number, id=number, timeout=PATIENCE)
                frame.array[...] = frame.id = number + 1
    seen = [message.data for message in archive.replay("frames:r")]
    assert [about["id"] for about in seen] == list(range(40))
    assert all((about["pixels"] == about["id"]).all() for about in seen)
    assert (archive.find("frames:r").gaps, archive.verify()) == (0, [])
    with penstock.subscribe("frames:again", shape=SHAPE, dtype="<f4", when_slow="wait", buffers=64) as sub:
        archive.replay_onto("frames:r", "frames:again")
        assert [frame.id for frame in sub.poll()] == list(range(40))


def test_frames_that_were_missed_are_a_gap_as_long_as_they(archive, pub):
    writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None, True)
    sent = 0
    for burst in (2, 30, 1, 3, 5000, 2):
        for _ in range(burst):
            send(pub, sent)
            sent += 1
        turn_all(writer)
    writer.finish()
    info = archive.find("frames:r")
    seen = [int(message.data["pixels"][0, 0]) for message in archive.replay("frames:r")]
    assert seen == [0, 1, *range(29, 36), *range(5033, 5038)]  # of 5000 the notes were overwritten too
    cell = info.bytes // info.messages
    assert info.lost_bytes % cell == 0
    assert info.lost_bytes // cell + info.messages == sent
    assert info.gaps >= 2
    assert archive.verify() == []


@pytest.mark.parametrize("pixels", [False, True])
def test_a_recording_is_extended_over_what_it_missed(archive, pub, pixels):
    for first in (0, 10, 20):
        with archive.record("frames:r", extend=first > 0, pixels=pixels) as recorder:
            for i in range(first, first + 3):
                send(pub, i, timeout=PATIENCE)
        assert len(recorder.recordings) == 1
        for i in range(first + 3, first + 10):
            send(pub, i)
    infos = archive.list()
    assert len(infos) == 1
    ids = [message.data["id"] for message in archive.replay("frames:r")]
    assert ids == sorted(ids)
    if not pixels:
        assert ids == list(range(23))  # the ring of notes still had the frames between
    else:
        assert infos[0].gaps >= 2
    with archive.record("frames:r", extend=True, pixels=not pixels):
        send(pub, 99)
    assert len(archive.list()) == 2


def test_a_recording_with_pixels_goes_onto_a_channel_again(archive, pub):
    writer = archive._opener.open("frames:r", "newest", False, 1 << 20, None, True)
    for i in range(3):
        send(pub, i, id=i + 7, start_ns=4, meta={"i": i})
        turn_all(writer)
    writer.finish()
    with (
        penstock.publish("frames:again", shape=SHAPE, dtype="<f4") as first,
        penstock.subscribe("frames:again", conflate=False) as sub,
    ):
        first.close()
        assert archive.replay_onto("frames:r", "frames:again", timeout=PATIENCE) == 3
        got = sub.poll()
    assert [(frame.id, frame.start_ns, frame.meta, frame.array[0, 0]) for frame in got] == [
        (i + 7, 4, {"i": i}, i) for i in range(3)
    ]


def test_a_recorder_waits_for_the_publication_of_frames(archive):
    with (
        archive.record(["frames:late", "log:late"]) as recorder,
        penstock.publish("frames:late", shape=SHAPE, dtype="<f4") as pub,
        penstock.publish("log:late") as log,
    ):
        log.send(b"x")
        pub.wait_for_readers(1, timeout=PATIENCE)
        for i in range(5):
            send(pub, i)
        while sum(row.messages for row in recorder.progress()) < 6:
            recorder.join(0.01)
    assert sorted((info.channel, info.messages) for info in archive.list()) == [("frames:late", 5), ("log:late", 1)]


def test_messages_are_not_published_onto_frames(archive):
    archive.append("log:out", [{"n": 1}], codec="json")
    with pytest.raises(penstock.Invalid, match=r"recording 1 is of log:out: it holds messages of json, and no frames"):
        archive.replay_onto("log:out", "frames:again")
