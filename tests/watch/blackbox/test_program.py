"""A black box in a program: what it does with late calls and with texts and arguments of any kind."""

import os
import threading

from watch.blackbox.boxes import Watched

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
