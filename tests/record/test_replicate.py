"""Copies of archives: killed at every step, of live recordings, of damaged, cut and repaired ones. A copy is sound, or there is none."""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from dying import moments
from people import until
from ports import free_port

import penstock
from penstock.cli import run
from penstock.errors import Invalid
from penstock.record import COLUMNS

ALL = sorted(COLUMNS)
T = 1 << 16
PATIENCE = 60


def publish(pub, numbers, size=700):
    for i in numbers:
        pub.send(b"%06d" % i + bytes(i * 7919 % size))


def record(archive, channel="log:a", numbers=range(500), **options):
    with penstock.publish(channel, term_length=T) as pub, archive.record(channel, segment_length=T, **options):
        publish(pub, numbers)


def numbers(archive, recording=1):
    return [int(message.data[:6]) for message in archive.replay(recording)]


def states(folder):
    """The states of a copy's recordings; none while it is being made."""
    with contextlib.suppress(penstock.NotFound):
        return [info.state for info in penstock.Archive(folder, create=False).list()]
    return []


def sound(copy, archive):
    """Each recording of the copy is a sound beginning of the archive's."""
    assert copy.verify() == []
    for info in copy.list():
        here, there = numbers(copy, info.id), numbers(archive, info.id)
        assert here == there[: len(here)]
    return sum(info.messages for info in copy.list())


def test_a_copy_is_the_archive(archive, tmp_path):
    record(archive)
    record(archive, "log:b", range(60))
    archive.append("log:c", [1, 2, 3], codec="json", batch=("me", 7))
    done = archive.replicate(tmp_path / "copy")
    assert [one.error for one in done] == ["", "", ""]
    copy = penstock.Archive(tmp_path / "copy", create=False)
    assert copy.id == archive.id
    for here, there in zip(copy.list(), archive.list(), strict=True):
        assert here.state == there.state == "closed"
        assert copy.read(here.id, columns=ALL).equals(archive.read(there.id, columns=ALL))
    assert copy.verify() == []
    assert all(one.segments == 0 for one in archive.replicate(tmp_path / "copy"))
    for write in (lambda: copy.append("log:c", [1], codec="json"), lambda: copy.record("log:a")):
        with pytest.raises(Invalid, match="is a copy that replicate made: record into another archive"):
            write()
    (copy.path / "copy").unlink()  # its source is gone, and it takes its place
    assert copy.append("log:c", [1, 2, 3], codec="json", batch=("me", 7)).is_new is False  # it has that batch


@pytest.mark.parametrize("way", ["folder", "server"])
def test_a_live_recording_is_copied_as_far_as_it_goes(archive, tmp_path, way):
    with penstock.publish("log:a", term_length=T) as pub, archive.serve("127.0.0.1:0") as server:
        source = archive if way == "folder" else penstock.Archive(server.uri)
        recorder = archive.record("log:a", segment_length=T, sync_interval=0.01)
        pub.wait_for_readers(1, timeout=PATIENCE)
        for begin in range(0, 1000, 100):
            publish(pub, range(begin, begin + 100))
            while archive.find(1).messages < begin + 100:
                time.sleep(0.01)
            assert [one.error for one in source.replicate(tmp_path / "copy")] == [""]
            copy = penstock.Archive(tmp_path / "copy", create=False)
            assert numbers(copy) == list(range(begin + 100))
            assert copy.verify() == []
            assert copy.find(1).state == "partial"
        recorder.stop()
        source.replicate(tmp_path / "copy")
    assert copy.find(1).state == archive.find(1).state == "closed"
    assert copy.verify() == []


@pytest.mark.parametrize("way", ["folder", "server"])
def test_following_a_copy_waits_for_its_rest(archive, tmp_path, way):
    """Silence of the one that copies is no end."""
    with penstock.publish("log:a", term_length=T) as pub:
        recorder = archive.record("log:a", sync_interval=0.01)
        publish(pub, range(50))
        until(lambda: archive.list() and archive.find(1).messages == 50, "they are not recorded")
        archive.replicate(tmp_path / "copy")
        publish(pub, range(50, 90))
        recorder.stop()
    copy = penstock.Archive(tmp_path / "copy", create=False)
    with copy.serve("127.0.0.1:0") as server:
        following = (copy if way == "folder" else penstock.Archive(server.uri)).follow(1, timeout=PATIENCE)
        got = [int(next(following).data[:6]) for _ in range(50)]
        with pytest.raises(penstock.TimedOut):
            list(copy.follow(1, timeout=0.2))
        archive.replicate(tmp_path / "copy")
        assert got + [int(message.data[:6]) for message in following] == list(range(90))


@pytest.mark.slow
def test_a_copy_killed_at_every_step_goes_on(archive, tmp_path, tally):
    record(archive, numbers=range(120))
    record(archive, "log:b", range(30))
    target, most = tmp_path / "copy", 0
    for moment in moments(lambda: archive.replicate(target), []):
        if (target / "recordings").is_dir():
            most = max(most, sound(penstock.Archive(target, create=False), archive))
        tally("kills of a copy", moment and 1)
    assert sound(penstock.Archive(target, create=False), archive) == 150
    assert {info.state for info in penstock.Archive(target).list()} == {"closed"}


@pytest.mark.slow
def test_a_kill_within_a_new_copy_leaves_it_sound(archive, tmp_path, tally):
    """Each death of a first copy: what is there is sound, and the next run completes it."""
    record(archive, numbers=range(80))
    deaths = itertools.count()
    folder = tmp_path / "copies"
    folder.mkdir()

    def work():
        archive.replicate(folder / "one")

    for _ in moments(work, [], step=2):
        copy = shutil.copytree(folder / "one", tmp_path / f"at{next(deaths)}") if (folder / "one").is_dir() else None
        shutil.rmtree(folder / "one", ignore_errors=True)
        if copy is not None:
            if (copy / "recordings").is_dir():
                sound(penstock.Archive(copy, create=False), archive)
            archive.replicate(copy)
            assert sound(penstock.Archive(copy, create=False), archive) == 80
            shutil.rmtree(copy)
    assert next(deaths) > 10
    tally("kills of a first copy", next(deaths))


def test_damage_at_the_source_is_not_copied(archive, tmp_path):
    record(archive)
    path = sorted(archive.find(1).path.glob("*.seg"))[1]
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    (done,) = archive.replicate(tmp_path / "copy")
    assert "a checksum is wrong. Run verify there, then repair" in done.error
    copy = penstock.Archive(tmp_path / "copy", create=False)
    assert copy.verify() == []
    before = numbers(copy)
    assert before == list(range(len(before)))
    archive.repair()
    (done,) = archive.replicate(tmp_path / "copy")
    assert done.error == ""
    assert numbers(copy) == numbers(archive)


def test_a_cut_at_the_source_is_followed_on_request(archive, tmp_path):
    record(archive)
    archive.replicate(tmp_path / "copy")
    end = archive.truncate(1, archive.find(1).end_position // 2)
    (done,) = archive.replicate(tmp_path / "copy")
    assert "was cut back at its source: replicate with replace" in done.error
    copy = penstock.Archive(tmp_path / "copy", create=False)
    assert len(numbers(copy)) == 500
    (done,) = archive.replicate(tmp_path / "copy", replace=True)
    assert done.error == ""
    assert copy.find(1).end_position == end
    assert numbers(copy) == numbers(archive)
    assert copy.verify() == []


def test_a_repair_after_the_copy_is_told(archive, tmp_path):
    record(archive)
    archive.replicate(tmp_path / "copy")
    copy = penstock.Archive(tmp_path / "copy", create=False)
    path = sorted(archive.find(1).path.glob("*.seg"))[0]
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    archive.repair()
    (done,) = archive.replicate(tmp_path / "copy")
    assert "differs from" in done.error
    assert len(numbers(copy)) == 500, "the copy is better than its source"
    archive.replicate(tmp_path / "copy", replace=True)
    assert numbers(copy) == numbers(archive)


def test_other_folders_are_refused(archive, tmp_path):
    record(archive, numbers=range(5))
    other = penstock.Archive(tmp_path / "other")
    record(other, "log:b", range(5))
    for target, what in (
        (archive.path, "is the archive itself"),
        (other.path, "is another archive: replicate into a new"),
    ):
        with pytest.raises(Invalid, match=what):
            archive.replicate(target)
    other.replicate(tmp_path / "copy")
    with pytest.raises(Invalid, match="is a copy of another archive"):
        archive.replicate(tmp_path / "copy")
    with archive.serve("127.0.0.1:0") as server, pytest.raises(Invalid, match="is the archive itself"):
        penstock.Archive(server.uri).replicate(archive.path)
    with pytest.raises(Invalid, match="must be a folder of this machine"):
        archive.replicate("s3://bucket/folder")
    for inside in (archive.path / "recordings", archive.path / "new", archive.path.parent):
        with pytest.raises(Invalid, match="are one within the other"):
            archive.replicate(inside)
    assert not (archive.path / "new").exists()
    for name in ("file", "recordings/take one.wav"):
        foreign = tmp_path / name.partition("/")[0] / "foreign"
        (foreign / name).parent.mkdir(parents=True)
        (foreign / name).touch()
        with pytest.raises(Invalid, match="is no archive, and not empty: replicate into a new folder"):
            archive.replicate(foreign)
        assert [path.name for path in foreign.iterdir()] == [name.partition("/")[0]]
    with pytest.raises(penstock.NotFound):
        archive.replicate(tmp_path / "none", recording=77)
    assert not (tmp_path / "none").exists()
    (tmp_path / "link").symlink_to(archive.path)
    with pytest.raises(Invalid, match="is the archive itself"):
        archive.replicate(tmp_path / "link")


def test_a_full_disk_ends_a_copy_with_its_name(archive, disk):
    record(archive, numbers=range(30_000))
    done = archive.replicate(disk / "copy")
    assert any("No space left on device" in one.error and str(disk) in one.error for one in done)
    assert sound(penstock.Archive(disk / "copy", create=False), archive) >= 0
    assert list((disk / "copy").rglob("*.new")) == []


@pytest.mark.slow
def test_the_command_follows_until_ctrl_c(archive, tmp_path, capsys):
    """The copy goes on while its source's server is killed and started again."""
    uri, folder, chance = "", tmp_path / "copy", random.Random(3)
    servers = []

    def start(listen):
        command = [sys.executable, "-m", "penstock.cli", "serve", str(archive.path), "--listen", listen]
        servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        line = servers[-1].stdout.readline()
        return line.split(" at ")[1].split()[0]

    with penstock.publish("log:a", term_length=T) as pub:
        recorder = archive.record("log:a", segment_length=T, sync_interval=0.01)
        pub.wait_for_readers(1, timeout=PATIENCE)
        publish(pub, range(100))
        uri = start(f"127.0.0.1:{free_port()}")  # which no other program takes while its server is away
        command = [sys.executable, "-m", "penstock.cli", "replicate", uri, str(folder), "--follow", "--json"]
        copier = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            for begin in range(100, 400, 100):
                time.sleep(chance.random())
                servers[-1].kill()
                servers[-1].communicate()
                publish(pub, range(begin, begin + 100))
                start(uri.removeprefix("grpc://"))
            recorder.stop()
            until(lambda: states(folder) == ["closed"], "the copy is not complete")
            copier.send_signal(signal.SIGINT)
            out, err = copier.communicate(timeout=PATIENCE)
        finally:
            for process in (copier, servers[-1]):
                process.kill()
                process.wait()
            servers[-1].stdout.close()
    assert copier.returncode == 0, err
    assert all(isinstance(found := json.loads(line), list) and found for line in out.splitlines())
    assert "Traceback" not in err
    assert numbers(penstock.Archive(folder)) == list(range(400))


def test_the_commands_say_what_they_did(archive, tmp_path, capsys):
    record(archive, numbers=range(50))
    target = os.fspath(tmp_path / "copy")
    assert run(["replicate", os.fspath(archive.path), target]) == 0
    assert "recording 1 of log:a: 1 segment copied" in capsys.readouterr().out
    assert run(["replicate", os.fspath(archive.path), target, "--recording", "log:x"]) == 1
    assert "has no recording of log:x" in capsys.readouterr().err
    assert run(["replicate", os.fspath(archive.path), "s3://bucket/x"]) == 2
    assert run(["serve", os.fspath(archive.path), "--listen", "0.0.0.0:0"]) == 1
    assert "can be reached from other machines" in capsys.readouterr().err
    assert run(["serve", os.fspath(tmp_path / "none")]) == 1
    assert "there is no archive" in capsys.readouterr().err
