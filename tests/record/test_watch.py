"""`Archive.watch`: every message once, in any steps, while recorders run, end, go on, lose messages, and recordings go."""

import itertools
import random
import threading

import pytest

import penstock
from penstock.record import intervals
from penstock.record.read import archive_watch


class Reader:
    """Reads what is new, as a streaming query does."""

    def __init__(self, archive):
        self.watch, self.done, self.rows = archive.watch(), {}, []

    def step(self, **limits):
        self.watch.refresh()
        fresh = self.watch.fresh(self.done, **limits)
        told = {stream: intervals.end_of(done) for stream, done in self.done.items()}
        found = []
        for planned in self.watch.plan(fresh, range_bytes=4096, reported=told):
            for batch in planned.rows(["position", "payload", "lost"]):
                rows = zip(*(batch.column(name).to_pylist() for name in ("position", "payload", "lost")), strict=True)
                found += [(planned.channel, planned.epoch, *row) for row in rows]
        for stream, parts in fresh.items():
            assert not intervals.common(self.done.get(stream, []), parts)
            self.done[stream] = intervals.union(self.done.get(stream, []), parts)
        self.rows += found
        return found


def everything(archive):
    """(channel, epoch, position, payload) of all recordings, each position once."""
    found = set()
    for info in archive.list():
        table = archive.read(info.id, columns=("position", "payload"))
        found |= {(info.channel, info.epoch, row["position"], row["payload"]) for row in table.to_pylist()}
    return found


def synced(recorder, pubs):
    """Waits until the recorder has everything that was sent."""
    ends = {pub.channel: pub.position for pub in pubs}
    while any(one.position < ends[one.channel] for one in recorder.progress()):
        assert recorder.error is None


def test_sets_of_positions_are_sets(rng):
    for _ in range(300):
        one, other = ({rng.randrange(60) for _ in range(rng.randrange(40))} for _ in range(2))
        a, b = (intervals.union((n, n + 1) for n in numbers) for numbers in (one, other))
        for made, expected in (
            (intervals.union(a, b), one | other),
            (intervals.without(a, b), one - other),
            (intervals.common(a, b), one & other),
        ):
            assert [n for low, high in made for n in range(low, high)] == sorted(expected)
            assert all(low < high for low, high in made)
            assert all(left[1] < right[0] for left, right in itertools.pairwise(made))
            assert intervals.total(made) == len(expected)


@pytest.mark.slow
def test_every_message_comes_once_in_any_steps(archive, rng):
    pubs = [penstock.publish("log:a", term_length=1 << 16), penstock.publish("log:b", term_length=1 << 16)]
    reader = Reader(archive)
    sent = 0
    for _ in range(6):
        with archive.record(["log:a", "log:b"], extend=rng.random() < 0.7, segment_length=1 << 16) as recorder:
            for _ in range(30):
                pub = rng.choice(pubs)
                for _ in range(rng.choice([1, 20, 200])):
                    pub.send(b"%d " % sent + bytes(rng.choice([0, 10, 3000])))
                    sent += 1
                limits = rng.choice(
                    [{}, {}, {"max_messages": rng.choice([1, 7])}, {"max_bytes": rng.choice([1, 5000])}]
                )
                if rng.random() < 0.3:
                    synced(recorder, pubs)
                found = reader.step(**limits)
                if "max_messages" in limits:
                    assert len(found) <= limits["max_messages"]
                if limits.get("max_bytes", 0) > 1 and len(found) > 1:
                    assert sum(len(row[3]) + 32 for row in found) <= limits["max_bytes"]
            synced(recorder, pubs)
    while reader.step(max_bytes=rng.choice([1000, 100_000])):
        pass
    assert reader.watch.held()
    rows = [row[:4] for row in reader.rows]
    assert len(rows) == len(set(rows)) == sent
    assert set(rows) == everything(archive)
    assert not reader.step()


def test_a_message_in_fragments_comes_when_it_is_complete(archive):
    """Its sender is in the middle of it, and another sends meanwhile."""
    pub = penstock.publish("log:f", term_length=1 << 16)
    other = penstock.publish("log:f")
    sub = penstock.subscribe("log:f")
    reader = Reader(archive)
    with archive.record("log:f", extend=False) as recorder:
        with pytest.raises(penstock.TimedOut):  # the subscription that reads nothing is back pressure
            while True:
                pub.send(bytes(40_000), timeout=0.05)
        begun = len(sub.poll(10_000))
        assert other.offer(b"between") is not None
        synced(recorder, [other])
        first = reader.step()
        assert [row[3] for row in first].count(b"between") == 1
        assert len(first) >= begun + 1
        assert not reader.step()
        pub.send(b"after")
        synced(recorder, [other])
        assert [row[3] for row in reader.step()] == [b"after"]
    assert {row[:4] for row in reader.rows} == everything(archive)


def test_an_incomplete_message_is_found_however_long_it_is(archive, monkeypatch):
    """It began further back than a look for incomplete messages goes at first."""
    monkeypatch.setattr(archive_watch, "LOOK_BACK", 2048)
    monkeypatch.setattr(archive_watch, "PATIENCE", 0)  # else the next look comes later the longer this one took
    pub = penstock.publish("log:f", term_length=1 << 16)
    reader = Reader(archive)
    with archive.record("log:f", extend=False) as recorder, penstock.subscribe("log:f") as sub:
        pub.send(b"before")
        sending = threading.Thread(target=pub.send, args=(bytes(400_000),))
        sending.start()
        end = 0
        while end < 30_000 or end != sub.position + sub.lag:  # it is back pressure: the message stops in its middle
            end = sub.position + sub.lag
            penstock.wait([], 0.05)
        while recorder.progress()[0].position < end:
            assert recorder.error is None
        assert [row[3] for row in reader.step()] == [b"before"]
        while sending.is_alive():
            sub.poll(100)
        sending.join()
        synced(recorder, [pub])
        assert [row[3] for row in reader.step()] == [bytes(400_000)]
    assert {row[:4] for row in reader.rows} == everything(archive)


def test_a_watch_reads_what_is_new_and_no_more(archive, monkeypatch):
    """An index is read once from its beginning, whatever is added to it."""
    from penstock.record.format.folder import RecordingFolder

    read = []
    whole = RecordingFolder.index
    monkeypatch.setattr(
        RecordingFolder, "index", lambda self, segment: read.append(segment.stem) or whole(self, segment)
    )
    with penstock.publish("log:n", term_length=1 << 16) as pub, archive.record("log:n") as recorder:
        pub.send(b"0")
        synced(recorder, [pub])
        reader = Reader(archive)
        assert len(reader.step()) == 1
        before = len(read)
        for number in range(20):
            pub.send(b"%d" % number)
            synced(recorder, [pub])
            assert len(reader.step()) == 1
        assert len(read) == before


def test_cuts_and_purges_are_seen(archive):
    pub = penstock.publish("log:c", term_length=1 << 16)
    reader = Reader(archive)
    with archive.record("log:c"):
        for number in range(100):
            pub.send(b"%d" % number)
    assert len(reader.step()) == 100
    info = archive.list()[0]
    archive.truncate(info.id, info.start_position + 640)
    reader.watch.refresh()
    assert [cut.position for _, cut in reader.watch.cuts] == [archive.list()[0].end_position]
    with archive.record("log:c", extend=True):
        for number in range(100, 120):
            pub.send(b"%d" % number)
    assert [row[3] for row in reader.step()] == [b"%d" % number for number in range(100, 120)]
    archive.purge(info.id)
    reader.watch.refresh()
    assert not reader.watch.held()
    assert not reader.step()


def test_losses_are_told_once(archive):
    pub = penstock.publish("ring:l", capacity=1 << 16)
    reader = Reader(archive)
    rng = random.Random(5)
    recorder = archive.record("ring:l")
    for _ in range(60):
        for _ in range(rng.choice([1, 1000])):
            pub.send(bytes(500))
        if rng.random() < 0.5:
            synced(recorder, [pub])
        reader.step(max_bytes=rng.choice([None, 4000]))
    recorder.stop()
    while reader.step():
        pass
    survey_lost = sum(info.lost_bytes for info in archive.list())
    told = sum(row[4] for row in reader.rows)
    last = max(row[2] for row in reader.rows)
    trailing = sum(gap.end - gap.start for gap in penstock.record.ReadPlanner(archive).lost() if gap.end > last)
    assert told == survey_lost - trailing
    assert told
