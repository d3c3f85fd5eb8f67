"""A black box in a program: what it does with late calls and with texts and arguments of any kind."""

import os
import sys
import threading

import pytest
from watch.blackbox.boxes import Watched

import penstock
from penstock import blackbox
from penstock.watch.blackbox.diary import DIARY
from penstock.watch.blackbox.unfinished import Note

QUIET = 'channels = ["*"]\nafter = "0s"\ncool_down = "0s"\n'


def files_with_free_numbers(folder):
    """Files of the program, which get the numbers of descriptors that were closed."""
    return [open(folder / f"file{number}", "w+b") for number in range(20)]


def close_all(files):
    """What was written into them by others."""
    found = b"".join(os.pread(file.fileno(), 100, 0) for file in files)
    for file in files:
        file.close()
    return found


def test_calls_after_close_write_nothing(tmp_path):
    with Watched(tmp_path / "box", QUIET) as box:
        assert box.box.fire("early") is True
        box.box.close()
        files = files_with_free_numbers(tmp_path)
        box.box.close()
        assert box.box.fire("late") is False
    assert close_all(files) == b""
    assert box.counts == {"early": 1}, "what was fired before the close is told"


def test_close_beside_a_call_writes_nothing(tmp_path, monkeypatch):
    """The descriptor's number goes to no other file while a call is about to write to it."""
    sound, files = os.write, []

    def write(fd, data):
        if data == b"!" and threading.current_thread() is threading.main_thread() and not files:
            files.append(None)
            box.box.close()
            files[:] = files_with_free_numbers(tmp_path)
        return sound(fd, data)

    with Watched(tmp_path / "box", QUIET) as box:
        monkeypatch.setattr(os, "write", write)
        box.box.fire("it")
    assert close_all(files) == b""


BAD = os.fsdecode(b"/data/\xff.bin")  # a file's name that is no UTF-8


class Silent(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (FileNotFoundError(BAD), r"FileNotFoundError: /data/\udcff.bin"),
        (ValueError("\N{SNOWMAN}" * 2000), "ValueError: \N{SNOWMAN}"),
        (Silent(), "Silent: <Silent whose str() raises ValueError>"),
    ],
)
def test_every_exception_begins_a_snapshot(tmp_path, monkeypatch, error, note):
    monkeypatch.setattr(threading, "excepthook", lambda given: None)

    def fail():
        raise error

    with penstock.publish("log:a") as pub, Watched(tmp_path / "box", QUIET) as box:
        pub.send(b"1")
        blackbox.install()
        try:
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
        finally:
            blackbox.uninstall()
        box.wait("exception", 1)
        box.wait_snapshots(1)
    assert box.snapshots[0].recordings.keys() == {"log:a"}
    assert note in box.firings[0].note


def test_text_that_is_no_utf8_loses_no_firing(tmp_path):
    with penstock.publish("log:a") as pub, Watched(tmp_path / "box", QUIET) as box:
        pub.send(b"1")
        box.box.fire("first")
        assert penstock.trigger(BAD, BAD) == 1
        box.box.fire(BAD, BAD)
        escaped = r"/data/\udcff.bin"
        box.wait("first", 1)
        box.wait(escaped, 2)
    rows = [one.data for one in penstock.Archive(tmp_path / "box").replay(DIARY)]
    assert sum(row["count"] for row in rows if row["trigger"] == escaped and escaped in row["note"]) == 2
    assert sum(row["count"] for row in rows if row["trigger"] == "first") == 1


def test_note_that_cannot_be_written_costs_no_snapshot(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError

    monkeypatch.setattr(Note, "write", fail)
    with penstock.publish("log:a") as pub, Watched(tmp_path / "box", QUIET) as box:
        pub.send(b"1")
        box.box.fire("it")
        box.wait_snapshots(1)
    assert box.snapshots[0].recordings.keys() == {"log:a"}


@pytest.mark.parametrize("given", [(5,), ("a", 5), ("",), ("a" * 65,), (None,)])
def test_fire_checks_its_arguments(tmp_path, given):
    with Watched(tmp_path / "box", QUIET) as box:
        with pytest.raises(penstock.Invalid, match=r"^(name|note) is "):
            box.box.fire(*given)
        box.box.close()
        with pytest.raises(penstock.Invalid):
            box.box.fire(*given)
    assert not box.counts


@pytest.mark.parametrize("name", [5, "", None, "a" * 65])
def test_install_checks_the_name(name):
    """Not with the first exception, whose call would be lost."""
    before = sys.excepthook
    with pytest.raises(penstock.Invalid, match=r"^name is "):
        blackbox.install(name)
    assert sys.excepthook is before
