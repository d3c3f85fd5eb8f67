"""Calls on archives: arguments of every kind, a process that changes its directory, truncation, repairs beside ending recorders."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import penstock
import penstock.record
from penstock._native import core
from penstock.export import export
from penstock.export.mcap import export_mcap, import_mcap
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import GAP, RecordingFolder
from penstock.record.read.replay import PassingOver

T = 1 << 16


@pytest.fixture
def pub():
    with penstock.publish("log:a", term_length=T) as publication:
        yield publication


def record(archive, pub, count, **options):
    with archive.record("log:a", **options):
        for i in range(count):
            pub.send(b"%06d" % i + bytes(100))


# ---- arguments ----

WRONG = (None, -1, 1.5, True, "1", b"1", 1 << 70, float("nan"), [1])
CALLS = {
    "scan start": (lambda a, v: list(a.scan(1, start=v)), ()),
    "scan end": (lambda a, v: list(a.scan(1, end=v)), (1 << 70,)),  # beyond the last position
    "scan since": (lambda a, v: list(a.scan(1, since=v)), (-1, "1")),  # a whole number as text is one
    "scan until": (lambda a, v: list(a.scan(1, until=v)), (-1, "1")),
    "scan batch_rows": (lambda a, v: list(a.scan(1, batch_rows=v)), ()),
    "replay start": (lambda a, v: list(a.replay(1, start=v)), ()),
    "replay speed": (lambda a, v: list(a.replay(1, speed=v)), (None, 1.5, 1 << 70)),
    "follow start": (lambda a, v: a.follow(1, start=v), (None,)),
    "truncate": (lambda a, v: a.truncate(1, v), ()),
    "sync_interval": (lambda a, v: a.record("log:a", sync_interval=v), (1.5, 1 << 70)),
    "segment_length": (lambda a, v: a.record("log:a", segment_length=v), ()),
    "in a process": (lambda a, v: a.record("log:a", process=True, segment_length=v), ()),
    "find": (lambda a, v: a.find(v), (True,)),
    "verify": (lambda a, v: a.verify(v), (None, True)),
    "scan columns": (lambda a, v: list(a.scan(1, columns=v)), ()),
    "scan frames": (lambda a, v: list(a.scan(1, frames=v)), (True,)),
    "read columns": (lambda a, v: a.read(1, columns=v, decode=True), ()),
    "read decode": (lambda a, v: a.read(1, decode=v), (True,)),
    "replay decode": (lambda a, v: a.replay(1, decode=v), (True,)),
    "follow timeout": (lambda a, v: a.follow(1, timeout=v), (None, 1.5, 1 << 70)),
    "replay_onto timeout": (lambda a, v: a.replay_onto(1, "ring:b", timeout=v), (None, 1.5, 1 << 70)),
    "replay_onto limit": (lambda a, v: a.replay_onto(1, "ring:b", limit=v), (None,)),
    "play channels": (lambda a, v: a.play(v, onto="again/"), ()),
    "play onto": (lambda a, v: a.play(onto=v), (None, "1")),
    "play speed": (lambda a, v: a.play(onto="again/", speed=v), (None, 1.5, 1 << 70)),
    "play timeout": (lambda a, v: a.play(onto="again/", timeout=v), (None, 1.5, 1 << 70)),
    "play progress": (lambda a, v: a.play(onto="again/", progress=v), (None,)),
    "watch": (lambda a, v: a.watch(v), (None,)),
    "channels": (lambda a, v: a.channels(v), ()),
    "append messages": (lambda a, v: a.append("log:b", v if v != [1] else None), ()),
    "append encoded": (lambda a, v: a.append("log:b", [b"x"], encoded=v), (True,)),
    "append times_ns": (lambda a, v: a.append("log:b", [b"x"] * 2, times_ns=v), (None,)),
    "append a time": (lambda a, v: a.append("log:b", [b"x"], times_ns=[v]), (-1,)),
    "append batch": (lambda a, v: a.append("log:b", [b"x"], batch=v), (None,)),
    "append a batch's number": (lambda a, v: a.append("log:b", [b"x"], batch=("w", v)), ()),
    "append a batch's writer": (lambda a, v: a.append("log:b", [b"x"], batch=(v, 1)), ("1",)),
    "append recording_length": (lambda a, v: a.append("log:b", [b"x"], recording_length=v), ()),
    "push replace": (lambda a, v: a.push("s3://b/f", replace=v), (True,)),
    "push progress": (lambda a, v: a.push("s3://b/f", progress=v), (None,)),
    "truncate force": (lambda a, v: a.truncate(1, 1 << 40, force=v), (True,)),
    "purge force": (lambda a, v: a.purge(1, force=v), (True,)),
    "expire channels": (lambda a, v: a.expire(v, max_age=1e9), ()),
    "expire max_bytes": (lambda a, v: a.expire(max_bytes=v), (1 << 70, "1")),
    "expire max_age": (lambda a, v: a.expire(max_age=v), (1.5, 1 << 70, "1")),
    "expire force": (lambda a, v: a.expire(max_age=1e9, force=v), (True,)),
    "note_consumer": (lambda a, v: a.note_consumer(v), ()),
    "forget_consumer": (lambda a, v: a.forget_consumer(v), ()),
    "export form": (lambda a, v: export(a.path, a.path / "out", form=v), ()),
    "export streams": (lambda a, v: export(a.path, a.path / "out", streams=v), (None,)),
    "export processes": (lambda a, v: export(a.path, a.path / "out", processes=v), (None,)),
    "export range_bytes": (lambda a, v: export(a.path, a.path / "out", range_bytes=v), (1 << 70,)),
    "export compression": (lambda a, v: export(a.path, a.path / "out", compression=v), (None,)),
    "export on_skip": (lambda a, v: export(a.path, a.path / "out", on_skip=v), (None,)),
    "export progress": (lambda a, v: export(a.path, a.path / "out", progress=v), (None,)),
    "export_mcap streams": (lambda a, v: export_mcap(a.path, a.path / "out", streams=v), (None,)),
    "export_mcap schemas": (lambda a, v: export_mcap(a.path, a.path / "out", schemas=v), (None,)),
    "export_mcap strict": (lambda a, v: export_mcap(a.path, a.path / "out", strict=v), (True,)),
    "export_mcap compression": (lambda a, v: export_mcap(a.path, a.path / "out", compression=v), (None,)),
    "import_mcap streams": (lambda a, v: import_mcap(a, a.path / "id", streams=v), (None,)),
    "import_mcap strict": (lambda a, v: import_mcap(a, a.path / "id", strict=v), (True,)),
    "import_mcap recover": (lambda a, v: import_mcap(a, a.path / "id", recover=v), (True,)),
    "Archive create": (lambda a, v: penstock.Archive(a.path, create=v), (True,)),
    "Range.scan start": (lambda a, v: list(penstock.record.plan(a)[0].scan(["position"], start=v)), (None,)),
    "Range.scan batch_bytes": (lambda a, v: list(penstock.record.plan(a)[0].scan(["position"], batch_bytes=v)), ()),
    "plan range_bytes": (lambda a, v: penstock.record.plan(a, range_bytes=v), ()),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_makes_no_sense_is_named(archive, pub, name, tally):
    record(archive, pub, 10)
    call, allowed = CALLS[name]
    for value in WRONG:
        if any(value is a or (value == a and type(value) is type(a)) for a in allowed):
            continue
        with pytest.raises((penstock.Invalid, penstock.NotFound)) as caught:
            call(archive, value)
        assert "incompatible" not in str(caught.value)
        tally("odd arguments", 1)
    assert archive.verify() == []
    assert [info.messages for info in archive.list()] == [10], "nothing was recorded, nothing was cut"


def test_a_time_for_each_message_and_a_message_for_each_time(archive):
    for count in (1, 3):
        with pytest.raises(penstock.Invalid, match="times_ns has"):
            archive.append("log:b", [b"x"] * 2, times_ns=list(range(count)))
    with pytest.raises(penstock.Invalid, match="times_ns is"):
        archive.append("log:b", [b"x"], times_ns=[1 << 63])
    assert list(archive.list()) == []


@pytest.mark.parametrize("encoded", [False, True])
def test_a_message_that_is_no_bytes_names_the_channel(archive, encoded):
    for message in (1, "x", None):
        with pytest.raises(TypeError, match="log:b: a message is bytes"):
            archive.append("log:b", [message], encoded=encoded)
    assert list(archive.list()) == []


def test_a_batch_that_was_refused_poisons_no_later_one(archive):
    for number in ("7", 1.5, None, -1, True, float("nan")):
        with pytest.raises(penstock.Invalid, match="number of the batch"):
            archive.append("log:b", [b"x"], batch=("w", number))
    assert archive.append("log:b", [b"x"], batch=("w", 2)).is_new
    assert not archive.append("log:b", [b"x"], batch=("w", 2)).is_new
    assert [info.messages for info in archive.list()] == [1]


@pytest.mark.parametrize("name", ["path", "id", "catalog", "channel", "timeout"])
def test_an_attribute_without_an_effect_cannot_be_set(archive, name):
    before = archive.path
    with pytest.raises(AttributeError, match=name):
        setattr(archive, name, "/nowhere")
    assert archive.path == before


def test_a_recorders_attributes_cannot_be_set(archive, pub):
    with archive.record("log:a") as recorder:
        for name in ("error", "recordings", "sync_interval"):
            with pytest.raises(AttributeError, match=name):
                setattr(recorder, name, None)


def test_paths_of_bytes_are_paths(archive, pub):
    record(archive, pub, 3)
    assert penstock.Archive(os.fsencode(archive.path), create=False).find(1).messages == 3
    assert export(os.fsencode(archive.path), os.fsencode(archive.path / "out")).rows == 3


def test_numpys_numbers_are_numbers(archive, pub):
    record(archive, pub, 10)
    assert archive.append("log:b", [b"x"], times_ns=np.array([5]), batch=("w", np.int64(1))).messages == 1
    assert archive.list()[1].time_min == 5
    archive.purge(2)
    one, zero = np.int64(1), np.int64(0)
    assert archive.find(one).id == 1
    assert archive.read(one, start=zero, since=zero).num_rows == 10
    assert archive.verify(np.int32(1)) == []
    assert archive.truncate(one, zero) == 0


# ---- the working directory ----


def test_a_recorder_continues_after_chdir(tmp_path, pub, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    archive = penstock.Archive("relative")
    with archive.record("log:a", segment_length=T):
        os.chdir("elsewhere")
        for i in range(3000):  # several segments
            pub.send(b"%06d" % i + bytes(100))
    assert [(info.state, info.messages) for info in archive.list()] == [("closed", 3000)]
    assert archive.verify() == []
    assert list(tmp_path.glob("elsewhere/*")) == []


# ---- truncation ----


def test_a_truncated_recording_is_closed_and_whole(archive, pub, caplog):
    for start in (0, 100):
        with archive.record("log:a", extend=start > 0):
            for i in range(start, start + 100):
                pub.send(b"%06d" % i + bytes(100))
    positions = [m.position for m in archive.replay(1)]
    end = archive.find(1).end_position
    for position in (end + 1, end, positions[150], positions[100], positions[50], 0):
        reached = archive.truncate(1, position)
        info = archive.find(1)
        assert (info.state, info.end_position, info.synced_position) == ("closed", reached, reached)
        assert reached <= position
        assert archive.verify() == []
        assert archive.repair() == []
        assert [m.position for m in archive.follow(1)] == [p for p in positions if p < reached]
    assert "died" not in caplog.text
    record(archive, pub, 0, extend=True)
    assert [int(m.data[:6]) for m in archive.replay(1)] == list(range(200))
    assert archive.verify() == []


def dies_after(left, call):
    """The call, which kills the process once `left` is used up."""

    def dying(*given, **named):
        if next(left, None) is None:
            os._exit(9)
        return call(*given, **named)

    return dying


@pytest.mark.slow
def test_a_killed_truncation_leaves_an_archive_that_verifies(archive, pub, tmp_path, monkeypatch, tally):
    for start in (0, 1000):
        with archive.record("log:a", extend=start > 0, segment_length=T):
            for i in range(start, start + 1000):
                pub.send(b"%06d" % i + bytes(100))
    position = archive.find(1).end_position // 2
    calls = {os: ("unlink", "truncate", "pwrite", "fsync"), RecordingFolder: ("unlock",)}
    for step in range(1000):
        copy = penstock.Archive(shutil.copytree(archive.path, tmp_path / f"{step}"))
        left = iter(range(step + 1))
        with monkeypatch.context() as patch:
            for place, names in calls.items():
                for name in names:
                    dying = dies_after(left, getattr(place, name))
                    patch.setattr(place, name, staticmethod(dying) if isinstance(place, type) else dying)
            child = os.fork()
            if child == 0:
                copy.truncate(1, position)
                os._exit(0)
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert {d.what for d in copy.verify()} <= {"a segment without an index"}, step  # two files cannot go at once
        got = [int(m.data[:6]) for m in copy.replay(1)]
        assert got == list(range(len(got)))
        copy.repair()
        assert copy.verify() == []
        shutil.rmtree(copy.path)
        tally("kills of a truncation", 1)
        if not died:
            break
    assert 10 < step < 999
    assert 0 < len(got) < 2000


def test_truncating_inside_a_gap_cuts_the_gap_off(archive):
    with penstock.publish("ring:g", capacity=T) as pub:
        with archive.record("ring:g"):
            pub.send(bytes(100))
        for _ in range(2000):  # nobody records: the ring comes around
            pub.send(bytes(100))
        with archive.record("ring:g", extend=True):
            pub.send(bytes(100))
    info = archive.find(1)
    folder = archive.folders()[0]
    segments = {s: folder.index(s)[0] for s in folder.segments()}
    gap = next(entry for entries in segments.values() for entry in entries if entry["kind"] == GAP)
    begins, missing = int(gap["position"]), int(gap["time_min"])
    assert info.gaps > 0
    for position in (begins + missing, begins + missing - 1, begins):
        expected = position if position == begins + missing else begins
        assert archive.truncate(1, position) == expected
        assert archive.find(1).end_position == expected
        assert archive.verify() == []


# ---- the catalog beside repairs ----


def test_a_repair_keeps_the_row_of_a_recorder_ending_meanwhile(archive, pub, monkeypatch):
    rows = ArchiveFolder.rows
    for harm in (lambda: None, archive.catalog.path.unlink):
        recorder = archive.record("log:a", sync_interval=60)  # its row is written as it begins and as it ends
        pub.send(b"before")
        while recorder.progress()[0].messages == 0 or recorder.recordings["log:a"] not in archive.catalog.known():
            os.sched_yield()
        harm()

        def rows_then_the_recorder_ends(files, recorder=recorder):
            found = rows(files)
            if not recorder.join(0):
                pub.send(b"after")
                recorder.stop()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(ArchiveFolder, "rows", rows_then_the_recorder_ends)
            archive.repair()
        assert archive.verify() == []


def _records(path, channel, count):
    archive = penstock.Archive(path)
    with penstock.publish(channel) as publication:
        for n in range(count):
            with archive.record(channel, sync_interval=0.01):
                for _ in range(n % 7 * 10):
                    publication.send(bytes(50))


def test_repairs_beside_recorders_leave_an_archive_that_verifies(archive, tally):
    fork = multiprocessing.get_context("fork")
    count = 20
    writers = [fork.Process(target=_records, args=(archive.path, f"log:w{n}", count)) for n in range(2)]
    for writer in writers:
        writer.start()
    repairs = 0
    while any(writer.is_alive() for writer in writers):
        archive.repair()
        repairs += 1
        assert archive.verify() == []
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert archive.verify() == []
    assert {info.state for info in archive.list()} == {"closed"}
    tally("repairs beside recorders", repairs)
    tally("recordings beside repairs", 2 * count)


# ---- forks, descriptors ----


@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_a_child_forked_under_a_folder_lock_blocks_nothing(archive, pub, monkeypatch, kind):
    """A thread that forks at any moment: its child has the descriptor through which another thread held the lock."""
    record(archive, pub, 10)
    folder = archive.folders()[0]
    read, write = os.pipe()
    children = []
    flock = fcntl.flock

    def flock_and_fork(fd, how):
        flock(fd, how)
        if how & kind:
            child = os.fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            children.append(child)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock_and_fork)
        if kind == fcntl.LOCK_SH:
            assert not folder.is_live()
        else:
            folder.unlock(folder.lock())
    assert len(children) == 1
    try:
        assert not folder.is_live()
        record(archive, pub, 10, extend=True)
    finally:
        os.close(write)
        os.waitpid(children[0], 0)
    assert archive.find(1).messages == 20


FEW = """
import os, resource, sys
import penstock
archive = penstock.Archive(sys.argv[1])
list(archive.replay("log:a"))
full = resource.getrlimit(resource.RLIMIT_NOFILE)
here, failed = len(os.listdir("/proc/self/fd")), 0
for spare in range(12):
    following = archive.follow("log:a", timeout=5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (here - 1 + spare, full[1]))
    try:
        got = len(list(following))
        assert got == 10, got
    except penstock.PenstockError:
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, full)
    assert len(os.listdir("/proc/self/fd")) == here
assert 0 < failed < 12, failed
"""


def test_following_with_few_descriptors_raises_our_errors(archive, pub, tally):
    record(archive, pub, 10)
    done = subprocess.run([sys.executable, "-c", FEW, archive.path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    tally("limits on descriptors", 12)


@pytest.mark.parametrize("which", ["penstock-recorder", "penstock-catalog"])
def test_a_thread_that_cannot_start_leaks_nothing(archive, pub, monkeypatch, which):
    record(archive, pub, 10)
    start = threading.Thread.start

    def cannot(thread):
        if thread.name == which:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        if which == "penstock-catalog":
            record(archive, pub, 10, extend=True)
        else:
            with pytest.raises(penstock.SystemFailure, match="start new thread"):
                archive.record("log:a", extend=True)
    assert not archive.folders()[0].is_live()
    assert not [m for m in penstock.inspect("log:a").members if m.role == "subscription"]
    record(archive, pub, 10, extend=True)
    assert archive.find(1).messages == (30 if which == "penstock-catalog" else 20)
    assert archive.verify() == []


@pytest.mark.parametrize("came", [True, False], ids=["a channel", "no channel yet"])
def test_stop_wakes_a_recorder_that_waits(archive, monkeypatch, came):
    wait, waits, recorders = core.wait_any_frames, threading.Event(), []

    def told(streams, timeout, waker):
        if timeout == 3600 and (not came or any(one.progress()[0].messages for one in recorders)):
            waits.set()
        wait(streams, timeout, waker)

    monkeypatch.setattr("penstock.record.write.recorder.IDLE_SECONDS", 3600)
    monkeypatch.setattr(core, "wait_any_frames", told)
    with contextlib.ExitStack() as stack:
        if came:
            pub = stack.enter_context(penstock.publish("log:w"))
        recorders.append(archive.record("log:w"))
        if came:
            pub.send(b"1")
        assert waits.wait(60)
        stopped = threading.Thread(target=recorders[0].stop, daemon=True)
        stopped.start()
        stopped.join(60)
        assert not stopped.is_alive()
    assert [row.messages for row in recorders[0].progress()] == [1] * came


# ---- full disks ----


@pytest.mark.parametrize("full", ["bytes", "names"])
def test_a_full_disk_names_its_path_and_lets_a_purge_make_room(tmp_path, pub, full):
    place = tmp_path / "small"
    place.mkdir()
    option = "size=1m" if full == "bytes" else "nr_inodes=40"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        archive = penstock.Archive(place / "archive")
        for _ in range(2):
            record(archive, pub, 1000)
        with pytest.raises(OSError, match="No space"):
            for number in range(1000):
                (place / f"filler{number}").write_bytes(bytes(1 << 12 if full == "bytes" else 0))
        with pytest.raises(penstock.SystemFailure, match=f"{place}.*No space"):
            archive.record("log:a")
        archive.purge(1)
        assert 1 not in [info.id for info in archive.list()]
        assert archive.verify() == []
        for filler in place.glob("filler*"):
            filler.unlink()
        newest = archive.find("log:a").id
        record(archive, pub, 10)
        assert archive.find("log:a").id > newest
        assert archive.verify() == []
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_second_thread_of_an_iterator_is_told(archive, pub):
    """The one that is in a call goes on."""
    got = []
    with archive.record("log:a"):
        following = archive.follow("log:a", timeout=60)
        thread = threading.Thread(target=lambda: got.append(next(following).data))
        thread.start()
        while not following._found.gi_running:
            assert thread.is_alive()
        for call in (following.__next__, following.close):
            with pytest.raises(penstock.Busy, match=r"^log:a: another thread is in a call of this iterator"):
                call()
        pub.send(b"1")
        thread.join()
    assert got == [b"1"]
    assert [message.data for message in following] == []


def test_error_of_a_callback_is_no_second_thread():
    def fail():
        yield penstock.record.Recorded(b"1", 0, 0, 0, 0)
        raise ValueError("of the program")

    found = PassingOver(1, fail())
    assert next(found).data == b"1"
    with pytest.raises(ValueError, match="of the program"):
        next(found)


@pytest.mark.parametrize("way", ["record", "process", "append", "snapshot"])
def test_archive_that_was_moved_is_gone(archive, pub, way):
    """It is not that its permissions are wrong."""
    pub.send(b"1")
    archive.append("log:b", [b"1"])
    os.rename(archive.path, f"{archive.path}-moved")
    calls = {
        "record": lambda: archive.record("log:a"),
        "process": lambda: archive.record("log:a", process=True),
        "append": lambda: archive.append("log:b", [b"2"]),
        "snapshot": lambda: archive.snapshot("log:a", before=60),
    }
    with pytest.raises(penstock.SystemFailure, match=r"recordings is gone: the archive was moved or removed") as raised:
        calls[way]()
    assert raised.value.errno == errno.ENOENT
    assert penstock.Archive(f"{archive.path}-moved").append("log:b", [b"2"]).messages == 1


def test_read_only_disk_of_an_archive_is_said(disk):
    archive = penstock.Archive(disk / "archive")
    archive.append("log:b", [b"1"])
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(penstock.SystemFailure, match=r"cannot be written: .*mount it writable") as raised:
        archive.append("log:b", [b"2"])
    assert raised.value.errno == errno.EROFS
