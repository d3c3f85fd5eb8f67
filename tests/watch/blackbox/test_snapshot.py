"""Snapshots: what is in them, how they describe themselves, what they say of what they lack, and that a failed one leaves nothing."""

import contextlib
import errno
import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from crash.victims import kill, start
from ports import free_port
from watch.blackbox.boxes import until

import penstock
from penstock.cli import run
from penstock.record import plan
from penstock.record.write import writer as recording_writer
from penstock.testing import ManualClock, channel
from penstock.util.clock import SystemClock

T = 1 << 16
SECOND = 10**9


class At(SystemClock):
    """The machine's clock, but for the time of day."""

    def __init__(self, now_ns):
        self.at_ns = now_ns

    def now_ns(self):
        return self.at_ns


def wait_for(name, count):
    deadline = time.monotonic() + 60
    while not any(one.totals.messages_sent >= count for one in penstock.list_channels(name)):
        assert time.monotonic() < deadline, f"{name} has not {count} messages"
        time.sleep(0.001)


def numbers(archive, name):
    return [one.data for one in archive.replay(name)]


def bodies(archive, name):
    return [one["body"] if isinstance(one, dict) else one for one in numbers(archive, name)]


def publish_and_stay(name, count):
    """Numbers. It lives until it is killed."""
    pub = penstock.publish(name, codec="json")
    for number in range(count):
        pub.send(number)
    time.sleep(1000)


def claim_and_stay(name, count, *claimed):
    """The same as bytes, with a claim that is never committed after each number in `claimed`."""
    pub = penstock.publish(name)
    left = []
    for number in range(count):
        pub.send(bytes([number]))
        if number in claimed:
            left.append(pub.claim(40))
    time.sleep(1000)


def test_snapshot_of_killed_programs(archive):
    writer = start(publish_and_stay, "log:robot/imu", 100)
    wait_for("log:robot/imu", 100)
    kill(writer)
    done = archive.snapshot("robot/*", before="1m", note="it fell", trigger="test")
    assert numbers(archive, "log:robot/imu") == list(range(100))
    assert archive.verify() == []
    (info,) = archive.list()
    assert done.recordings == {"log:robot/imu": info.id}
    assert not done.short
    assert not done.left_out
    about = info.snapshot
    assert (about["note"], about["trigger"], about["before_s"], about["after_s"]) == ("it fell", "test", 60.0, 0.0)
    assert about["time_ns"] == done.time_ns
    (process,) = about["processes"]
    assert (process["pid"], process["lives"], process["roles"]) == (writer, False, ["publication of log:robot/imu"])


def test_snapshot_names_living_processes(archive):
    with penstock.publish("log:a", codec="json") as pub:
        pub.send(1)
        archive.snapshot("log:a", before=1)
    (process,) = archive.list()[0].snapshot["processes"]
    assert (process["pid"], process["lives"]) == (os.getpid(), True)
    assert "python" in process["command"]


def test_snapshot_begins_where_asked(archive, tmp_path):
    """By the messages' own send times, to the message."""
    clock = ManualClock(1000 * SECOND)
    for kind in ("log", "ring"):
        with penstock.publish(channel(f"{kind}:a", clock=clock)) as pub:
            for number in range(20):
                pub.send(bytes([number]))
                clock.now_ns += SECOND
    opened = penstock.Archive(tmp_path / "timed", clock=At(1020 * SECOND))
    opened.snapshot("log:a", before=5)
    assert numbers(opened, "log:a") == [bytes([number]) for number in range(15, 20)]
    opened = penstock.Archive(tmp_path / "ring", clock=At(1040 * SECOND))
    opened.snapshot("ring:a", before=7)
    assert numbers(opened, "ring:a") == [bytes([number]) for number in range(13, 20)]


def test_snapshot_passes_claims_of_the_dead(archive):
    """What was committed behind a claim that its writer died with is there."""
    writer = start(claim_and_stay, "log:a", 10, 3, 8)
    wait_for("log:a", 10)
    kill(writer)
    archive.snapshot("log:a", before=60)
    assert numbers(archive, "log:a") == [bytes([number]) for number in range(10)]


@pytest.mark.parametrize("claimed", [(0,), (3, 8), (3, 9)])
@pytest.mark.parametrize("name", ["log:a", "sync:a"])
def test_snapshot_passes_claims_of_the_stopped(tmp_path, monkeypatch, name, claimed):
    """A process that stands still with open claims keeps nothing from the snapshot that was committed behind them."""
    monkeypatch.setattr(recording_writer, "CLAIM_NAPS", 1)
    writer = start(claim_and_stay, name, 10, *claimed)
    wait_for(name, 10)
    os.kill(writer, signal.SIGSTOP)
    sent = [bytes([number]) for number in range(10)]
    for number in range(2):
        archive = penstock.Archive(tmp_path / str(number))
        done = archive.snapshot(name, before=60)
        assert bodies(archive, name) == sent
        assert archive.verify() == []
        assert not done.left_out
        assert [part.open_claims for part in done.parts] == [0 if number else sum(one < 9 for one in claimed)]
        if not number:
            kill(writer)


def test_what_cannot_be_passed_is_left_out_and_told(tmp_path, monkeypatch, capsys):
    """A claim of which no publication knows: nobody can say where the next message begins."""
    monkeypatch.setattr(recording_writer, "CLAIM_NAPS", 1)
    with penstock.publish("log:a") as pub, penstock.publish("log:a") as other:
        pub.send(b"1")
        with other.claim(40):
            pub.send(b"2")
            path = os.path.join(os.environ["PENSTOCK_DIR"], "a.log")
            with open(path, "r+b") as file:
                raw = file.read(1 << 16)
                for at in range(8192, len(raw), 8):  # the claim's note in the slot of its publication
                    if raw[at : at + 8] == (64 | 2).to_bytes(8, "little"):
                        file.seek(at)
                        file.write((1).to_bytes(8, "little"))
            assert run(["snapshot", "log:a", "--to", str(tmp_path / "a")]) == 1
    assert "log:a: 160 bytes are left out: something in front of them is begun" in capsys.readouterr().err


def test_recorder_ends_in_front_of_an_open_claim(archive, caplog):
    """Its recording can go on there. What is behind it is told, not lost."""
    with penstock.publish("log:a") as pub, penstock.publish("log:a") as other:
        recorder = archive.record("log:a")
        pub.send(b"1")
        with other.claim(40) as claim:
            pub.send(b"3")
            recorder.stop()
            assert "ends where something is begun and not complete: 160 bytes" in caplog.text
            claim[:] = b"2" * 40
        archive.record("log:a", extend=True).stop()
    assert numbers(archive, "log:a") == [b"1", b"2" * 40, b"3"]


def test_recorder_stops_behind_a_dead_claim(archive):
    """The messages behind a dead writer's claim were published before `stop`."""
    with penstock.publish("log:a") as pub:
        recorder = archive.record("log:a")
        writer = start(claim_and_stay, "log:a", 5, 0)
        wait_for("log:a", 5)
        kill(writer)
        pub.send(b"!")
        recorder.stop()
    assert numbers(archive, "log:a") == [b"\0", b"\1", b"\2", b"\3", b"\4", b"!"]


def test_snapshot_of_a_ring_that_lapped(archive):
    with penstock.publish("ring:a", codec="json", capacity=T) as pub:
        for number in range(5000):
            pub.send(number)
    done = archive.snapshot("ring:a", before=60)
    found = numbers(archive, "ring:a")
    assert found == list(range(found[0], 5000))
    assert len(found) > 500
    (part,) = done.parts
    assert part.is_short


def test_snapshot_of_frames_has_pixels(archive):
    with penstock.publish("frames:cam", shape=(4, 6), dtype="u1", buffers=6) as cam:
        for number in range(20):
            cam.send(np.full((4, 6), number, "u1"), id=number)
    done = archive.snapshot("frames:cam", before=60)
    found = numbers(archive, "frames:cam")
    assert [one["id"] for one in found] == list(range(20 - len(found), 20))
    assert len(found) >= 5
    assert all((one["pixels"] == one["id"]).all() for one in found)
    assert done.parts[0].is_short


def test_snapshot_of_two_writers_leaves_an_open_frame_out(archive):
    with (
        penstock.publish("frames:cam", shape=(4, 6), dtype="u1", buffers=6) as cam,
        penstock.publish("frames:cam") as other,
    ):
        for number in range(0, 6, 2):
            cam.send(np.full((4, 6), number, "u1"), id=number)
            other.send(np.full((4, 6), number + 1, "u1"), id=number + 1)
        opened = other.acquire(timeout=0)
        opened.array[...] = 99
        archive.snapshot("frames:cam", before=60)
        opened.abort()
    found = numbers(archive, "frames:cam")
    assert [one["id"] for one in found] == [1, 2, 3, 4, 5]
    assert all((one["pixels"] == one["id"]).all() for one in found)


def test_snapshot_of_sync_and_its_senders(archive):
    with penstock.join("sync:q", name="a") as one, penstock.join("sync:q", name="b") as other:
        one.send(b"1")
        other.send(b"2")
        archive.snapshot("sync:*", before=60)
    assert [(found["sender"], found["body"]) for found in numbers(archive, "sync:q")] == [("a", b"1"), ("b", b"2")]


def send_over_network(uri, count):
    pub = penstock.publish(uri, codec="json")
    pub.wait_for_readers(timeout=60)
    for number in range(count):
        pub.send(number)
    time.sleep(1000)


def receive_from_network(uri, note, count):
    sub = penstock.subscribe(uri)
    for _ in range(count):
        sub.recv(timeout=60)
    os.write(note, b"!")
    time.sleep(1000)


def test_snapshot_of_the_image_of_the_killed(archive):
    """The receiver and the sender are killed; the image of the session is in memory still."""
    uri = f"udp://127.0.0.1:{free_port()}/1"
    came, note = os.pipe()
    receiver = start(receive_from_network, uri, note, 50)
    sender = start(send_over_network, uri, 50)
    assert os.read(came, 1) == b"!"
    kill(receiver)
    kill(sender)
    done = archive.snapshot("udp:*", before=60)
    assert len(done.parts) == 1
    # The codec comes once a second: a session that was younger is recorded as bytes.
    assert [int(one) for one in numbers(archive, uri)] == list(range(50))
    assert not done.short


def test_snapshot_of_what_the_killed_had_sent(archive):
    """Nobody receives here: the publication's own log is read, and no socket is opened."""
    uri = f"udp://127.0.0.1:{free_port()}/1"

    def offer():
        pub = penstock.publish(uri, codec="json")
        for number in range(20):
            pub.offer(number)
        time.sleep(1000)

    sender = start(offer)
    wait_for("udp:*", 20)
    kill(sender)
    archive.snapshot(uri, before=60)
    assert numbers(archive, uri) == list(range(20))
    assert not [name for name in os.listdir(os.environ["PENSTOCK_DIR"]) if name.endswith(".udp")]


def test_snapshot_goes_on_for_a_while(tmp_path):
    """Messages that come later, and channels that come later, are in it."""
    clock = At(time.time_ns())
    archive = penstock.Archive(tmp_path / "archive", clock=clock)
    with penstock.publish("log:robot/a", codec="json") as pub:
        pub.send("before")
        taken = threading.Thread(target=archive.snapshot, args=("robot/*",), kwargs={"before": 60, "after": 1.0})
        taken.start()
        until(archive.list, "the recording")
        pub.send("after")
        with penstock.publish("log:robot/late", codec="json") as late:
            late.send("late")
            until(lambda: len(archive.list()) == 2, "the recording of the late channel")
            assert taken.is_alive()
            clock.at_ns += SECOND
            taken.join()
    assert numbers(archive, "log:robot/a") == ["before", "after"]
    assert numbers(archive, "log:robot/late") == ["late"]
    assert {info.state for info in archive.list()} == {"closed"}


def test_snapshot_waits_for_no_reader(archive):
    """With `drop_after=0` no writer waits; what is lost is a gap, and told."""
    with penstock.publish("log:a", codec="json", term_length=T) as pub:
        for number in range(3000):
            pub.send(number)
        done = archive.snapshot("log:a", before=60, drop_after=0)
    assert numbers(archive, "log:a")[-1] == 2999
    assert done.parts[0].is_short


def test_snapshot_tells_how_much_there_was(archive, tmp_path, capsys):
    with penstock.publish("log:a", codec="json", term_length=T) as pub:
        for number in range(5000):
            pub.send(number)
    done = archive.snapshot("log:a", before="1h")
    (part,) = done.short
    assert part.channel == "log:a"
    assert 0 < part.held < 3600
    assert run(["snapshot", "log:a", "--before", "1h", "--to", str(tmp_path / "other")]) == 1
    said = capsys.readouterr()
    assert "recording 1 of log:a" in said.out
    assert "of the 1h asked for" in said.err


def test_snapshot_of_all_there_is_is_not_short(archive):
    """A channel that is younger than the time asked for lacks nothing."""
    with penstock.publish("log:a", codec="json") as pub, penstock.publish("ring:b", codec="json") as other:
        pub.send(1)
        other.send(1)
    assert not archive.snapshot("*", before="1h").short


def test_snapshot_on_the_command_line(tmp_path, capsys):
    with penstock.publish("log:a", codec="json") as pub:
        pub.send(1)
        assert run(["snapshot", "log:a", "--before", "30s", "--to", str(tmp_path / "a"), "--note", "why"]) == 0
    assert "recording 1 of log:a: 1 message from the last" in capsys.readouterr().out
    assert penstock.Archive(tmp_path / "a").list()[0].snapshot["note"] == "why"


def test_snapshot_opens_as_table_and_mcap(archive, tmp_path):
    pytest.importorskip("mcap")
    import mcap_files

    from penstock.export.mcap import export_mcap

    writer = start(publish_and_stay, "log:robot/imu", 30)
    wait_for("log:robot/imu", 30)
    kill(writer)
    archive.snapshot("robot/*", before=60)
    assert archive.read("log:robot/imu").num_rows == 30
    assert sum(one.messages for one in plan(archive)) == 30
    export_mcap(archive.path, tmp_path / "it.mcap")
    assert len(mcap_files.read(tmp_path / "it.mcap")) == 30


@pytest.mark.parametrize("wanted", ["nope/*", "log:nope", "udp://127.0.0.1:9/1"])
def test_snapshot_of_nothing_is_an_error(archive, wanted):
    with pytest.raises(penstock.NotFound, match=r"no channel|NotFound"):
        archive.snapshot(wanted, before=1)
    assert archive.list() == []
    assert not penstock.list_channels()


def test_snapshot_beside_a_recorder_is_refused(archive, tmp_path):
    with penstock.publish("log:a", codec="json") as pub, archive.record("log:a"):
        pub.send(1)
        with pytest.raises(penstock.Busy, match=r"recorder that writes log:a now \(recording 1\)"):
            archive.snapshot("*", before=60)
        assert len(archive.list()) == 1
        assert penstock.Archive(tmp_path / "other").snapshot("*", before=60).recordings == {"log:a": 1}


def test_snapshot_without_room_leaves_nothing(disk):
    with penstock.publish("log:a", capacity="1MiB") as pub:
        for _ in range(40):
            pub.send(bytes(100_000))
    archive = penstock.Archive(disk / "archive")
    with pytest.raises(penstock.SystemFailure, match="no room for a snapshot of") as raised:
        archive.snapshot("log:a", before=60)
    assert raised.value.errno == errno.ENOSPC
    assert archive.list() == []


def test_snapshot_that_fills_the_disk_is_undone(disk, monkeypatch):
    """Somebody else took the room in the meantime."""
    with penstock.publish("log:a", capacity="1MiB") as pub, penstock.publish("log:b", codec="json") as other:
        for _ in range(40):
            pub.send(bytes(100_000))
        other.send(1)
    archive = penstock.Archive(disk / "archive")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40, total=1 << 40))
    with pytest.raises(penstock.SystemFailure, match="nothing of it was kept"):
        archive.snapshot("*", before=60)
    assert archive.list() == []


@pytest.mark.parametrize("channels", ["log:a", "*"])
def test_snapshot_onto_a_full_disk_says_so(disk, channels):
    """Not even its description can be written."""
    with penstock.publish("log:a", codec="json") as pub:
        pub.send(1)
    archive = penstock.Archive(disk / "archive")
    with contextlib.suppress(OSError), open(disk / "other", "wb", buffering=0) as other:
        while other.write(bytes(4096)):
            pass
    with pytest.raises(penstock.SystemFailure, match="nothing of it was kept"):
        archive.snapshot(channels, before=60)
    assert archive.list() == []


@pytest.mark.parametrize("command", ["snapshot", "record"])
def test_failed_command_leaves_no_new_archive(disk, command, capsys):
    """Nor the folders above it that it made. An archive that was there stays."""
    with penstock.publish("log:a", capacity="1MiB") as pub:
        for _ in range(40):
            pub.send(bytes(100_000))
    made, there = disk / "new" / "archive", disk / "there"
    penstock.Archive(there)
    for place in (made, there):
        wrong = ["log:a", "--to", str(place)] if command == "snapshot" else [str(place), "log:a", "--start", "77"]
        assert run([command, *wrong]) == 1
    if command == "snapshot":
        assert run([command, "nope/*", "--to", str(made)]) == 1
        assert "no room for a snapshot" in capsys.readouterr().err
    assert sorted(disk.iterdir()) == [there]
    assert penstock.Archive(there, create=False).list() == []


def test_command_without_a_message_leaves_no_new_archive(disk, capsys):
    with penstock.publish("log:a"):
        assert run(["snapshot", "log:a", "--to", str(disk / "new" / "archive")]) == 0
    assert "nothing is recorded" in capsys.readouterr().out
    assert not list(disk.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of another user")
def test_snapshot_of_a_foreign_file(archive, channel_folder):
    for name in ("log:a", "log:b"):
        with penstock.publish(name, codec="json") as pub:
            pub.send(1)
    os.chown(channel_folder / "b.log", 12345, 12345)
    done = archive.snapshot("*", before=60)
    assert done.recordings == {"log:a": 1}
    (text,) = done.left_out
    assert "log:b" in text
    assert "belongs to user 12345" in text
    with pytest.raises(penstock.SystemFailure, match="belongs to user 12345"):
        archive.snapshot("log:b", before=60)


@pytest.mark.parametrize(
    "wrong",
    [
        {"before": 0},
        {"before": "soon"},
        {"before": 1e300},
        {"before": 10**400},
        {"before": 1, "after": -1},
        {"before": 1, "after": 1e300},
        {"before": 1, "after": False},
        {"before": 1, "note": 7},
    ],
)
def test_snapshot_refuses_wrong_values(archive, wrong):
    with penstock.publish("log:a"), pytest.raises(penstock.Invalid):
        archive.snapshot("log:a", **wrong)


def test_snapshot_of_a_pipe_is_told(archive):
    """Its messages are gone once they were read: a pipe has no past."""
    with penstock.publish("pipe:jobs") as jobs, penstock.subscribe("pipe:jobs"), penstock.publish("log:a") as pub:
        jobs.send(b"1")
        pub.send(b"1")
        done = archive.snapshot("*", before=60)
        with pytest.raises(penstock.Unsupported, match="pipe:jobs: its messages are gone"):
            archive.snapshot("pipe:jobs", before=60)
    assert done.recordings == {"log:a": 1}
    assert "pipe:jobs" in done.left_out[0]


@pytest.mark.parametrize("size", [45_432, 70_000, 1000])
@pytest.mark.parametrize("count", [20, 27, 31, 38, 43])
def test_what_memory_lacks_is_told_of_messages_in_parts(archive, size, count):
    """The oldest position that is kept may be in the middle of a message: the rest of it is no message that was skipped."""
    with penstock.publish("log:long", term_length=T) as pub:
        for _ in range(count):
            pub.send(bytes(size))
        (part,) = archive.snapshot("log:long", before=100).parts
    assert part.is_short == (part.messages < count)
