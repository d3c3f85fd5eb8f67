"""Archive.append: batches of messages without a live channel, whole or not at all, each numbered batch once, also after kills."""

import contextlib
import os

import numpy as np
import pytest
from dying import moments

import penstock
from penstock import codecs
from penstock.record.format import batches
from penstock.record.write import append as appending

RECORD = np.dtype([("t", "f8"), ("tag", "S4")])


def payloads(archive, channel="log:out"):
    return [message.data for message in archive.replay(channel)]


def test_messages_read_back_as_they_were(archive):
    first = archive.append("log:out", [{"n": n} for n in range(500)], codec="json", times_ns=range(500))
    second = archive.append("log:out", iter([{"text": "x" * 1_000_000}, {}]), codec="json")
    assert (first.recording, first.start, first.messages, first.is_new) == (1, 0, 500, True)
    assert (second.start, second.messages) == (first.end, 2)
    found = list(archive.replay("log:out"))
    assert [one.data for one in found] == [{"n": n} for n in range(500)] + [{"text": "x" * 1_000_000}, {}]
    assert [one.time_ns for one in found[:500]] == list(range(500))
    assert found[500].time_ns > 10**18
    info = archive.find("log:out")
    assert (info.state, info.messages, info.segments, info.codec) == ("closed", 502, 2, {"kind": "json"})
    assert info.synced_position == info.end_position == second.end
    assert not archive.verify()


@pytest.mark.parametrize("message", [5, None, [1, 2]])
def test_a_message_that_is_no_bytes_is_an_error(archive, message):
    with pytest.raises(TypeError, match="bytes-like"):
        archive.append("log:out", [b"x", message])
    assert archive.list() == []
    archive.append("log:out", [b"before"])
    with pytest.raises(TypeError, match="bytes-like"):
        archive.append("log:out", [b"x", message])
    with pytest.raises(penstock.Invalid):  # would begin another recording
        archive.append("log:out", [{"n": 1}, object()], codec="json")
    assert [(one.messages, one.state) for one in archive.list()] == [(1, "closed")]
    assert not archive.verify()
    assert payloads(archive) == [b"before"]


@pytest.mark.parametrize(
    ("codec", "messages"),
    [
        ("bytes", [b"", b"x", bytes(300_000)]),
        ("msgpack", [None, {"a": [1]}]),
        (RECORD, [np.array((n, b"ab"), RECORD) for n in range(3)]),
        (penstock.array("<f4", (-1,)), [np.arange(3, dtype="f4")]),
    ],
)
def test_codecs(archive, codec, messages):
    archive.append("ring:out", messages, codec=codec)
    found = payloads(archive, "ring:out")
    assert [np.asarray(one).tolist() for one in found] == [np.asarray(one).tolist() for one in messages]


def test_nothing_appended_leaves_a_sound_recording(archive):
    archive.append("log:out", [])
    (info,) = archive.list()
    assert (info.state, info.messages, archive.verify()) == ("closed", 0, [])
    archive.append("log:out", [b"a"])
    assert [bytes(m.data) for m in archive.replay("log:out")] == [b"a"]


def test_a_numbered_batch_goes_in_once(archive):
    for _ in range(2):
        for number in range(3):
            for writer in ("a", "b"):
                archive.append("log:out", [b"%s %d" % (writer.encode(), number)], batch=(writer, number))
    assert payloads(archive) == [b"%s %d" % (w, n) for n in range(3) for w in (b"a", b"b")]
    again = archive.append("log:out", [b"never"], batch=("a", 2))
    assert (again.is_new, again.messages) == (False, 1)
    assert archive.append("log:out", [b"no number"]).is_new
    assert archive.append("log:other", [b"elsewhere"], batch=("a", 2)).is_new


def test_many_writers_leave_a_short_ledger(archive, monkeypatch):
    monkeypatch.setattr(batches, "WRITERS", 3)
    for number in range(5):
        archive.append("log:out", [b"x"], batch=(f"w{number}", 0))
    held = batches.read(archive.find("log:out").path)
    assert list(held.writers) == ["w2", "w3", "w4"]


def test_a_long_recording_is_followed_by_another(archive):
    for number in range(6):
        archive.append("log:out", [b"%d" % number + bytes(100)], batch=("a", number), recording_length=300)
    found = archive.list()
    assert [one.messages for one in found] == [2, 2, 2]
    assert [one.start_position for one in found[1:]] == [one.end_position for one in found[:-1]]
    assert len({one.epoch for one in found}) == 1
    archive.purge(1)
    archive.purge(2)
    for number in range(6):
        assert not archive.append("log:out", [b"again"], batch=("a", number)).is_new
    assert not archive.verify()


def test_another_codec_and_a_cut_begin_another_recording(archive):
    archive.append("log:out", [b"a", b"b"], batch=("w", 0))
    archive.append("log:out", [{}], codec="json", batch=("w", 1))
    assert [one.codec["kind"] for one in archive.list()] == ["bytes", "json"]
    archive.truncate(2, 0)
    archive.append("log:out", [{"n": 1}], codec="json", batch=("w", 2))
    first, second, third = archive.list()
    assert second.messages == 0
    assert payloads(archive) == [{"n": 1}]
    assert first.epoch == second.epoch != third.epoch  # a reader of the second's positions takes these for others


def test_appends_that_are_refused(archive):
    for channel in ("pipe:x", "sync:x", "frames:x", "zmq+tcp://h:1", "udp://h:1/1"):
        with pytest.raises(penstock.Invalid, match="name the recording as of a log"):
            archive.append(channel, [b"x"])
    archive.append("log:out", [{"n": 1}], codec="json")
    before = archive.find("log:out")
    with pytest.raises(penstock.Invalid, match=r"log:out: .* nan"):
        archive.append("log:out", [{"n": n if n < 999 else float("nan")} for n in range(1000)], codec="json")
    assert archive.find("log:out") == before
    assert not archive.verify()


def opened():
    """The descriptors of this process, and what they are of."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_nothing_is_left_open(archive):
    archive.append("log:out", [b"x"])
    before = opened()
    for _ in range(5):
        archive.append("log:out", [b"x"])
    assert opened() <= before, "some were opened; what another test left may be closed at any time"
    assert penstock.list_channels() == []


def test_a_damaged_ledger_is_found_and_moved_aside(archive):
    archive.append("log:out", [b"x"], batch=("w", 0))
    path = archive.find("log:out").path / batches.NAME
    path.write_text(path.read_text().replace('"w"', '"v"'))
    assert [damage.path for damage in archive.verify()] == [path]
    with pytest.raises(penstock.Corrupt, match="batches is damaged"):
        archive.append("log:out", [b"y"])
    assert any(one.path.parent.name == "damaged" for one in archive.repair())
    assert not archive.verify()
    archive.append("log:out", [b"y"], batch=("w", 0))
    assert payloads(archive) == [b"y"]  # in another recording: this one is no program's any more
    assert sum(one.messages for one in archive.list()) == 2


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_batch_whole_or_out(archive, tally):
    """A child dies at each moment of an append. Then there is a look, the same batch again, and another look."""
    body = [b"%d" % n + bytes(n) for n in range(200)]
    number, there = 0, {False: 0, True: 0}

    def work():
        archive.append("log:out", body, batch=("w", number))

    for _ in moments(work, [(appending.batch_files, "write"), (appending._LogFiller, "turn")]):
        assert archive.verify() == []
        found = payloads(archive) if archive.list() and archive.list()[0].segments else []
        was_in = found == body * (number + 1)
        assert was_in or found == body * number
        there[was_in] += 1
        assert archive.append("log:out", body, batch=("w", number)).is_new != was_in
        assert payloads(archive) == body * (number + 1)
        number += 1
        if number % 10 == 0:
            archive.repair()
            assert archive.verify() == []
    assert min(there.values()) > 10, there
    tally("kills of a program that appends to an archive", sum(there.values()))


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_position_that_was_purged_is_never_given_again(archive, codec):
    """Whoever had read the purged message would take the new one for it."""
    archive.append("log:p", [1, 2], codec="json")
    archive.append("log:p", [3], codec="msgpack")
    watch = archive.watch()
    watch.refresh()
    done = watch.fresh({})
    archive.purge(2)
    archive.append("log:p", [4], codec=codec)
    found = archive.list()
    assert [info.messages for info in found] == [2, 1]
    assert found[1].epoch == found[0].epoch
    assert found[1].start_position > found[0].end_position
    assert sum(info.lost_bytes for info in found) == 0
    watch.refresh()
    fresh = watch.fresh(done)
    rows = [
        payload
        for planned in watch.plan(fresh, range_bytes=4096, reported={})
        for batch in planned.rows(["payload"])
        for payload in batch.column("payload").to_pylist()
    ]
    assert rows == [codecs.resolve(codec).encode(4)]
    archive.append("log:p", [5], codec=codec)
    assert len(archive.list()) == 2
    assert archive.verify() == []
