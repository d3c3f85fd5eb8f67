"""Looks at an archive of another machine: how many calls a reader that follows it makes, and that it never sees an old state."""

import errno
import os
import threading
import time

import pytest
from people import until
from ports import free_port

import penstock
from penstock.channels.uri.channel import parse
from penstock.errors import SystemFailure
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.read.planning.plan import plan
from penstock.record.serve import looks
from penstock.record.serve.files import ServedArchive
from penstock.record.session_history import SessionHistory
from penstock.util.files.served_files import ServedFiles

pytest.importorskip("pyarrow.flight")
T = 1 << 16
PATIENCE = 60


def record(archive, channel="log:a", count=500, **options):
    with penstock.publish(channel, term_length=T) as pub, archive.record(channel, segment_length=T, **options):
        for i in range(count):
            pub.send(b"%06d" % i + bytes(i * 7919 % 700))


def numbers(messages):
    return [int(message.data[:6]) for message in messages]


@pytest.fixture
def calls(monkeypatch):
    found, plain = [], ServedArchive.answer

    def answer(self, action, body):
        found.append(action)
        return plain(self, action, body)

    monkeypatch.setattr(ServedArchive, "answer", answer)
    return found


@pytest.fixture
def there(archive):
    with archive.serve("127.0.0.1:0") as server:
        yield penstock.Archive(server.uri)


def counted(calls, ask):
    calls.clear()
    ask()
    return list(calls)


def test_a_look_is_one_call(archive, there, calls, tmp_path):
    """A list, a search, a refresh: one call each, however many recordings there are. A copy also asks for the archive's name."""
    for channel in ("log:a", "log:a", "log:b"):
        record(archive, channel)
    watch = there.watch()
    for ask in (there.list, watch.refresh, lambda: there.replicate(tmp_path / "copy")):
        ask()  # what never changes is read once
    for ask in (there.list, lambda: there.find(2), watch.refresh):
        assert counted(calls, ask) == ["look"]
    assert counted(calls, lambda: there.replicate(tmp_path / "copy")) == ["look", "read"]


def test_a_follower_asks_for_looks_and_new_frames(archive, there, calls):
    """Two calls give a message that was recorded: a look, and the frames."""
    with penstock.publish("log:a", term_length=T) as pub, archive.record("log:a") as recorder:
        pub.send(b"000000")
        pub.wait_for_readers(1, timeout=PATIENCE)
        penstock.remove("log:a")  # so that the follower cannot join the channel
        following = there.follow("log:a", timeout=PATIENCE)
        assert numbers([next(following)]) == [0]
        for number in range(1, 4):
            pub.send(b"%06d" % number)
            calls.clear()
            assert numbers([next(following)]) == [number]
            assert set(calls) == {"look", "read"}
            assert calls.count("read") <= calls.count("look")
        recorder.stop()
        assert list(following) == []


def test_a_history_asks_twice_a_look(archive, there, calls):
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub, archive.record(uri):
        history = SessionHistory(str(there.path), parse(uri), None)
        found = []
        for number in range(3):
            pub.send(b"%06d" % number)
            sub.recv(timeout=PATIENCE)
            while len(found) == number:
                calls.clear()
                history._looked = float("-inf")
                for key in history.sessions():
                    found += [one for one in history.fill(key, found[-1].position + 1 if found else 0, None) if one]
                if number:  # the first time, the session's number is read, too
                    assert len(calls) <= 2
    assert numbers(found) == [0, 1, 2]


def test_a_file_of_the_same_time_and_size_is_read_again(archive, there):
    """The time of a file has steps: a young one is read each time."""
    record(archive)
    folder = archive.find(1).path
    when = os.stat(folder / "synced").st_mtime_ns + 3_600_000_000_000  # not old for the next hour
    for position in (640, 1280):
        archive.folders()[0].write_mark(SyncMarker(position, closed=True))
        os.utime(folder / "synced", ns=(when, when))
        assert there.find(1).synced_position == position


@pytest.mark.parametrize("limit", ["SMALL_BYTES", "ANSWER_BYTES"])
def test_what_is_too_long_for_a_look_is_read_alone(archive, there, monkeypatch, limit):
    monkeypatch.setattr(looks, limit, 100)
    record(archive)
    assert [info.messages for info in there.list()] == [500]
    assert numbers(there.replay(1)) == list(range(500))


def test_a_long_index_of_a_growing_segment_is_sound(archive, there, monkeypatch):
    """An index that is read after the look has more entries than there were frames then."""
    monkeypatch.setattr(looks, "SMALL_BYTES", 100)
    stop = threading.Event()
    with penstock.publish("log:a", term_length=T) as pub, archive.record("log:a"):

        def write():
            while not stop.is_set():
                pub.send(bytes(300))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            found = [info for _ in range(100) for info in there.list() if info.messages]
        finally:
            stop.set()
            writer.join()
    assert {info.state for info in found} == {"live"}
    assert len({info.end_position for info in found}) > 3


@pytest.mark.parametrize("reason", [errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EINPROGRESS])
def test_a_server_that_goes_within_a_look_is_no_damage(archive, there, monkeypatch, reason):
    """The look was answered, and the index that is too long for it was not."""
    monkeypatch.setattr(looks, "SMALL_BYTES", 100)
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub, archive.record(uri):
        for number in range(100):
            pub.send(b"%06d" % number)
            sub.recv(timeout=PATIENCE)
            if number == 50:
                until(lambda: [one.messages for one in archive.list()] == [51], "half of it is recorded")
                history = SessionHistory(str(there.path), parse(uri), None)
                (key,) = history.sessions()
        until(lambda: [one.messages for one in archive.list()] == [100], "all is recorded")
    plain, fails = ServedFiles.read_bytes, [True]

    def read_bytes(self, path):
        if fails[0] and path.endswith(".idx"):
            raise SystemFailure(reason, "it does not answer")
        return plain(self, path)

    monkeypatch.setattr(ServedFiles, "read_bytes", read_bytes)
    for ask in (there.list, lambda: there.find(1), there.verify, lambda: there.scan(1)):
        with pytest.raises(SystemFailure, match="does not answer"):
            ask()
    history._looked = float("-inf")
    filling = history.fill(key, None, None)
    assert next(filling) is None
    fails[0] = False
    history._looked = float("-inf")
    assert numbers(one for one in filling if one) == list(range(100))
    assert history.lost == 0


def test_a_far_archive_is_read_by_callers_that_never_wait(archive, there, monkeypatch):
    """A call takes longer than `try_recv` gives one, and the first message needs several. So does the look at whether a recorder goes on."""
    uri, plain = f"udp://127.0.0.1:{free_port()}/7", ServedArchive.answer
    with penstock.publish(uri) as pub, archive.record(uri, sent=True, start="earliest"):
        for number in range(100):
            pub.send(b"%06d" % number)
        until(lambda: [one.messages for one in archive.list()] == [100], "all is recorded")
    with penstock.publish("log:a") as live, archive.record("log:a") as recorder:
        live.send(b"000000")
        following = there.follow("log:a", timeout=PATIENCE)
        assert numbers([next(following)]) == [0]
        with penstock.subscribe(uri, start="earliest", archive=str(there.path), codec="bytes") as sub:
            monkeypatch.setattr(ServedArchive, "answer", lambda *given: time.sleep(0.08) or plain(*given))
            found = []
            until(lambda: len(found) == 100 or found.extend(sub.poll()), "all is read")
            assert [int(data) for data in found] == list(range(100))
            assert sub.lost == 0
        recorder.stop()
        assert list(following) == []


def test_a_recording_that_was_cut_or_purged_is_seen(archive, there):
    record(archive)
    record(archive, "log:b", 50)
    end = there.find(1).end_position
    archive.truncate(1, end // 2)
    assert there.find(1).end_position == archive.find(1).end_position < end
    assert numbers(there.replay(1)) == numbers(archive.replay(1))
    archive.purge(1)
    assert [info.id for info in there.list()] == [2]
    with pytest.raises(penstock.NotFound, match="has no recording 1"):
        there.find(1)


@pytest.mark.parametrize("how", ["truncate", "purge"])
@pytest.mark.parametrize("read", ["replay", "scan", "follow", "range"])
def test_a_reader_of_a_recording_that_goes_is_told_so(archive, there, read, how, caplog):
    """As on the machine that has the recording: it is not taken for damaged, and what it lacks is not taken for its end."""
    record(archive, count=10_000)
    record(archive)
    if read == "range":
        (one, *_) = plan(there, channels={"log:a"})
        found = iter(one.scan(["position"], batch_rows=10))
    else:
        found = iter(getattr(there, read)(1, **({"batch_rows": 10} if read == "scan" else {})))
    next(found)
    if how == "truncate":
        archive.truncate(1, archive.find(1).end_position // 2)
        wanted = f"cut back to position {archive.find(1).end_position}"
    else:
        archive.purge(1)
        wanted = "was purged while it was read, .* The oldest recording of log:a that exists is 2, from"
    with pytest.raises(penstock.NotFound, match=wanted):
        list(found)
    assert not caplog.records


def test_a_segment_that_goes_while_it_is_read_is_missing(archive, there):
    """Though nobody purged or truncated."""
    record(archive, count=10_000)
    found = iter(there.scan(1, batch_rows=10))
    next(found)
    archive._files.folder(1).segments()[-1].data.unlink()
    with pytest.raises(penstock.NotFound, match="the object does not exist: it was removed while it was read"):
        list(found)
    assert there.verify(1)


def test_frames_written_before_an_index_is_read_are_there(archive, there, monkeypatch):
    """The index of a look has entries of frames that the list of files, made before, does not have yet."""
    plain = looks._Look._keep
    with penstock.publish("log:a", term_length=T) as pub, archive.record("log:a"):

        def keep(self, name, size):
            if name.endswith(".idx"):
                pub.send(bytes(300))
                until(lambda: archive.find(1).end_position == pub.position, "it is not recorded")
            plain(self, name, size)

        pub.send(b"first")
        until(lambda: archive.list() and archive.find(1).messages, "it is not recorded")
        monkeypatch.setattr(looks._Look, "_keep", keep)
        for _ in range(3):
            (info,) = there.list()
            assert (info.state, info.damage, info.end_position) == ("live", "", pub.position)
