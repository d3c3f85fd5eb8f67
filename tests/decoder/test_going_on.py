"""Tables of recordings that go on, are cut back, miss something, or overlap: in the end they have what the archive has."""

import datetime
import threading

import numpy as np
import polars
import pytest
from decoder.rows import both

import penstock
from penstock import tables
from penstock.export import export
from penstock.record import ReadPlanner
from penstock.record.format import truncations


def track(archive, channel, *, extend=False, pixels=False, segment=1 << 20):
    """A recorder's track that moves when it is told to."""
    return archive._opener.open(channel, "newest", extend, segment, None, pixels)


def drain(*tracks):
    for one in tracks:
        while one.turn() > 0:
            pass


def as_the_archive(archive, out, stream):
    """Brings the tables up to date, and compares them with the archive's own replay; the rows of messages."""
    tables.run(archive.path, out)
    found = both(out, stream)
    wanted = {}
    for message in archive.replay(stream, decode=False):
        wanted.setdefault(message.position, message)
    assert found["position"].to_pylist() == sorted(wanted)
    if "pixels" not in found.column_names:  # they have their own column, and no payload
        assert found["payload"].to_pylist() == [wanted[at].data for at in sorted(wanted)]
    assert tables.run(archive.path, out).ranges == 0
    return found


def flip(archive, part):
    """Damages the newest recording's first segment at a part of its length."""
    segment = archive.folders()[-1].segments()[0]
    data = bytearray(segment.data.read_bytes())
    data[int(len(data) * part)] ^= 1
    segment.data.write_bytes(data)


@pytest.mark.parametrize("kind", ["pipe", "log"])
def test_rows_behind_a_cut_are_forgotten(archive, tmp_path, kind):
    """The positions of a recorded pipe are the recording's own: after a cut they belong to other messages."""
    channel, out = f"{kind}:p", tmp_path / "t"
    push, sub = penstock.publish(channel), penstock.subscribe(channel)
    recorder = track(archive, channel)
    for step in range(5):
        for i in range(50):
            push.send(b"A%d" % (step * 50 + i))
            sub.recv(5)
        drain(recorder)
    recorder.finish()
    assert tables.run(archive.path, out).total_rows == 250
    archive.truncate(channel, archive.find(channel).end_position // 2)
    kept = archive.find(channel).messages
    assert 0 < kept < 250
    assert as_the_archive(archive, out, channel).num_rows == kept
    recorder = track(archive, channel, extend=True)
    for i in range(150):
        push.send(b"B%d" % i)
        sub.recv(5)
        drain(recorder)
    drain(recorder)
    recorder.finish()
    found = as_the_archive(archive, out, channel)
    assert found["payload"].to_pylist() == [
        m.data for m in sorted(archive.replay(channel, decode=False), key=lambda m: m.position)
    ]
    assert len(set(found["position"].to_pylist())) == found.num_rows


def test_rows_of_a_block_that_is_damaged_later_stay(archive, tmp_path):
    out = tmp_path / "t"
    with penstock.publish("log:p") as pub:
        for first in (0, 250):
            with archive.record("log:p", extend=True):
                for i in range(first, first + 250):
                    pub.send(b"%d" % i)
            assert tables.run(archive.path, out).rows == 250
            flip(archive, 0.3)
            archive.repair()
            assert archive.find("log:p").messages < first + 250
    assert tables.run(archive.path, out).total_rows == 500
    assert sorted(map(int, both(out, "log:p")["payload"].to_pylist())) == list(range(500))


def test_frames_with_pixels_are_forgotten_too(archive, tmp_path):
    out = tmp_path / "t"
    with penstock.publish("frames:f", shape=(4, 4), buffers=32) as pub:
        recorder = track(archive, "frames:f", pixels=True)
        for i in range(60):
            pub.send(np.full((4, 4), i, "u1"), id=i)
            drain(recorder)
        recorder.finish()
        tables.run(archive.path, out)
        archive.truncate("frames:f", archive.find("frames:f").end_position // 2)
        kept = archive.find("frames:f").messages
        recorder = track(archive, "frames:f", extend=True, pixels=True)
        for i in range(100, 120):
            pub.send(np.full((4, 4), i, "u1"), id=i)
            drain(recorder)
        recorder.finish()
    found = as_the_archive(archive, out, "frames:f")
    assert [int(number) for number in found["frame_id"].to_pylist()] == [*range(kept), *range(100, 120)]
    assert all(
        cell == bytes([int(number)]) * 16
        for number, cell in zip(found["frame_id"], found["pixels"].to_pylist(), strict=True)
        for number in [number.as_py()]
    )


def test_a_damaged_list_of_cuts_is_found_and_written_again(archive, tmp_path):
    out = tmp_path / "t"
    with penstock.publish("log:l") as pub, archive.record("log:l"):
        for i in range(100):
            pub.send(b"%d" % i)
    archive.truncate("log:l", 1 << 40)
    path = archive.folders()[0].path / truncations.NAME
    whole = path.read_bytes()
    assert len(truncations.read(path.parent)) == 1
    path.write_bytes(whole + whole[:7])  # a writer that was killed
    assert (archive.verify(), len(truncations.read(path.parent))) == ([], 1)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert [damage.path for damage in archive.verify()] == [path]
    with pytest.raises(penstock.Corrupt, match="cuts"):
        tables.run(archive.path, out)
    archive.repair()
    assert archive.verify() == []
    assert as_the_archive(archive, out, "log:l").num_rows == 100


@pytest.mark.parametrize("size", [1 << 30, 1 << 14, 256])
def test_message_intervals_do_not_depend_on_ranges(archive, tmp_path, size):
    clocks = penstock.testing.ManualClock(10**18), penstock.testing.ManualClock(10**18)
    pubs = [penstock.publish(penstock.testing.channel("log:l", clock=clock), term_length=1 << 20) for clock in clocks]
    recorder = track(archive, "log:l")
    count = 60 if size == 256 else 600
    for i in range(count):
        for clock, pub in zip(clocks, pubs, strict=True):
            clock.now_ns += 1000 + i
            pub.send(b"y" * (i % 3 * 100))
        if i == 50:
            clocks[1].now_ns += 5_000_000  # one sender's clock is ahead of the other's
        if i % 7 == 0:
            drain(recorder)
    drain(recorder)
    recorder.finish()
    assert export(archive.path, tmp_path / "o", range_bytes=size, processes=1).rows == 2 * count
    found = polars.read_parquet(tmp_path / "o" / "log_l" / "*.parquet").to_arrow().sort_by("position")
    times = found["timestamp_ns"].to_numpy()
    assert found["interval_ns"].to_pylist() == [None, *np.diff(times).tolist()]


def test_a_late_completed_message_keeps_its_place_in_order(archive, tmp_path):
    out = tmp_path / "t"
    with penstock.publish("log:l", term_length=1 << 16) as slow, penstock.publish("log:l") as fast:
        recorder = track(archive, "log:l")
        slow.send(b"first")
        thread = threading.Thread(target=slow.send, args=(bytes(100_000), 60))
        thread.start()
        while archive.find("log:l").end_position < 1 << 15:
            recorder.turn()
        fast_sent = 0
        while fast_sent < 3 and fast.offer(b"between") is not None:
            fast_sent += 1
        recorder.turn()
        tables.run(archive.path, out)
        while thread.is_alive() or recorder.turn() > 0:
            recorder.turn()
        thread.join()
        fast.send(b"last")
        drain(recorder)
        recorder.finish()
    assert as_the_archive(archive, out, "log:l").num_rows == fast_sent + 3
    export(archive.path, tmp_path / "o")
    found = polars.read_parquet(tmp_path / "o" / "log_l" / "*.parquet").to_arrow().sort_by("position")
    times = found["timestamp_ns"].to_numpy()
    assert found["interval_ns"].to_pylist() == [None, *np.diff(times).tolist()]


def ring(archive, **names):
    """A small ring and tracks that record it."""
    pub = penstock.publish("ring:r", capacity=1 << 16)
    return pub, {name: track(archive, "ring:r") for name in names}


def lost_of(out):
    return sum(tables.read(out, "losses")["bytes"].to_pylist())


def burst(pub, sent, count=300):
    for number in range(sent, sent + count):
        pub.send(number.to_bytes(8, "little") + bytes(100))
    return sent + count


@pytest.mark.parametrize("steps", [False, True])
def test_messages_in_another_recording_are_not_lost(archive, tmp_path, steps):
    out = tmp_path / "t"
    pub, recorders = ring(archive, some=1, all=1)
    sent = 0
    for number in range(20):
        sent = burst(pub, sent)
        drain(recorders["all"])
        if number % 5 >= 3:
            drain(recorders["some"])
        if steps and number % 4 == 0:
            tables.run(archive.path, out)
    drain(*recorders.values())
    for recorder in recorders.values():
        recorder.finish()
    assert archive.list()[0].lost_bytes > 0
    found = as_the_archive(archive, out, "ring:r")
    assert found.num_rows == sent
    assert lost_of(out) == 0


def test_losses_are_told_as_soon_as_they_are_noted(archive, tmp_path):
    out = tmp_path / "t"
    pub, recorders = ring(archive, one=1)
    recorder = recorders["one"]
    sent = burst(pub, 0)
    drain(recorder)
    for _ in range(3):
        sent = burst(pub, sent, 2000)
        recorder.turn()  # finds that it was lapped
        tables.run(archive.path, out)
        assert lost_of(out) == archive.find("ring:r").lost_bytes > 0
        sent = burst(pub, sent, 5)
        drain(recorder)
        tables.run(archive.path, out)
        assert lost_of(out) == archive.find("ring:r").lost_bytes
    recorder.finish()
    found = as_the_archive(archive, out, "ring:r")
    rows = tables.read(out, "losses")
    assert lost_of(out) == archive.find("ring:r").lost_bytes
    spans = list(zip(rows["position"].to_pylist(), rows["end"].to_pylist(), strict=True))
    assert all(high - low == size for (low, high), size in zip(spans, rows["bytes"].to_pylist(), strict=True))
    assert not any(low <= at < high for low, high in spans for at in found["position"].to_pylist())


def test_a_recording_that_only_lost_is_not_forgotten(archive, tmp_path):
    _, recorders = ring(archive, one=1)
    recorders["one"].segment.gap(4096)  # as a recorder does that was lapped, and is then stopped
    recorders["one"].segment.seal()
    recorders["one"].release()
    assert (archive.find("ring:r").messages, archive.find("ring:r").lost_bytes) == (0, 4096)
    assert ReadPlanner(archive).plan() == []
    tables.run(archive.path, tmp_path / "t")
    (row,) = tables.read(tmp_path / "t", "losses").to_pylist()
    assert (row["stream"], row["bytes"], row["end"] - row["position"]) == ("ring:r", 4096, 4096)
    assert abs(row["noted_ns"] / 1e9 - datetime.datetime.now().timestamp()) < 3600


def test_tasks_name_only_the_segments_they_need(archive):
    with penstock.publish("log:l", term_length=1 << 16) as pub, archive.record("log:l", segment_length=1 << 16):
        for _ in range(400):
            pub.send(bytes(4000))
    ranges = ReadPlanner(archive).plan(range_bytes=1 << 16)
    segments = archive.find("log:l").segments
    assert segments > 20
    assert len(ranges) > 20
    assert sum(len(one.segments) for one in ranges) <= 3 * segments
