"""A black box goes on: whatever happens to channels, archive and its own parts, the next trigger is not missed."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from crash.victims import start
from watch.blackbox.boxes import Watched, until

import penstock
from penstock import blackbox
from penstock.watch.blackbox import box as box_module
from penstock.watch.blackbox.box import LONGEST_WAIT_SECONDS, _is_meant
from penstock.watch.blackbox.config import Trigger
from penstock.watch.blackbox.members import Ended

QUIET = 'channels = ["*"]\nbefore = "1m"\nafter = "0s"\ncool_down = "0s"\n'


def publish(kind, *numbers):
    """Sends messages at once with the channel's creation, and closes. Frames of those ids."""
    options = {"shape": (4,), "dtype": "u1"} if kind == "frames" else {"codec": "json"}
    with penstock.publish(f"{kind}:a", **options) as pub:
        for number in numbers:
            if kind == "frames":
                pub.send(np.zeros(4, "u1"), id=number, meta={"k": number})
            else:
                pub.send({"id": number, "meta": {"k": number}})


@pytest.mark.parametrize("kind", ["log", "ring", "frames"])
def test_channel_that_is_made_again_is_watched(tmp_path, kind):
    """Also its first message, and whether the box itself has the old one open or not."""
    text = f'[[trigger]]\nname = "it"\nmessage = "{kind}:a"\nwhen = "id >= 7 and meta.k >= 7"\n[[trigger]]\ncall = "go"'
    with Watched(tmp_path / "box", QUIET + text) as box:
        for number in range(1, 4):
            publish(kind, 7)
            box.wait("it", number)
            penstock.remove(f"{kind}:a")
        publish(kind, 7)
        box.wait("it", 4)
        assert penstock.trigger("go") == 1
        box.wait("call go", 1)
        until(lambda: len(box.box._members._held) < 4, "the removed files are let go")
    assert box.counts["it"] == 4
    assert "7" in next(one.note for one in box.firings if one.trigger == "it")


def test_removed_channel_with_members_is_held_beside_the_new(tmp_path):
    with Watched(tmp_path / "box", QUIET) as box, penstock.subscribe("log:a"):
        for number in range(3):
            publish("log", 1)
            until(lambda: "a.log" in box.box._members._held, "the file is held")
            penstock.remove("log:a")
            with penstock.publish("log:a", codec="json"):
                until(lambda: penstock.trigger("go") == 1, "the box hears")
                box.wait("go", number + 1)


def test_whole_frame_fits(tmp_path):
    text = '[[trigger]]\nname = "it"\nmessage = "frames:a"\nwhen = "message"'
    with Watched(tmp_path / "box", QUIET + text) as box:
        publish("frames", 3)
        box.wait("it", 1)
    assert "'id': 3" in box.firings[0].note


def test_removed_archive_is_made_again(tmp_path, caplog):
    folder = tmp_path / "box"
    publish("log", 1)
    with Watched(folder, QUIET) as box:
        for number in range(3):
            shutil.rmtree(folder)
            assert penstock.trigger("go") == 1
            box.wait_snapshots(number + 1)
            box.wait("go", number + 1)
    assert [done.recordings.keys() for done in box.snapshots] == [{"log:a"}] * 3
    assert f"{folder} was removed" in caplog.text


def test_error_of_a_part_does_not_end_the_box(tmp_path, monkeypatch, caplog):
    """Any error, in any part: each of them is called once and fails."""
    publish("log", 1)
    with Watched(tmp_path / "box", QUIET + '[[trigger]]\nname = "m"\nmessage = "log:a"\nwhen = "id == 5"') as box:
        parts = [
            (box.box, "_on_time"),
            (box.box, "_begin"),
            (box.box, "_make_room"),
            (box.box, "_on_firing"),
            (box.box, "_on_snapshot"),
            (box.box._diary, "write"),
            (box.box._members, "look"),
            (box.box._messages[0], "_fits"),
        ]
        for number, (owner, name) in enumerate(parts):
            sound, failed = getattr(owner, name), []

            def fail(*given, sound=sound, failed=failed, number=number, **named):
                if failed:
                    return sound(*given, **named)
                failed.append(1)
                raise AttributeError(number)

            monkeypatch.setattr(owner, name, fail)
            until(lambda: box.box._running is None, "no snapshot is being taken")
            publish("log", 5)
            penstock.trigger("it")
            until(lambda failed=failed: failed, f"{name} is called")
            monkeypatch.setattr(owner, name, sound)
            seen = box.counts["last"]
            assert penstock.trigger("last") == 1
            box.wait("last", seen + 1)
        before = len(box.snapshots)
        until(lambda: box.box._running is None, "the snapshot is complete")
        penstock.trigger("it")
        box.wait_snapshots(before + 1)
    assert "the black box goes on after an error: AttributeError(0)" in caplog.text


def fail_in_process(install):
    if install:
        blackbox.install("child")
    raise ValueError("of a process")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_exception_that_ends_a_process_triggers(tmp_path, method, capfd):
    """multiprocessing reports it without a hook. A forked process has what its parent has installed; a spawned one installs it itself."""
    context = multiprocessing.get_context(method)
    with Watched(tmp_path / "box", QUIET) as box:
        blackbox.install("parent")
        try:
            for install in (False, True)[method == "spawn" :]:
                child = context.Process(target=fail_in_process, args=(install,))
                child.start()
                child.join()
                assert child.exitcode == 1
        finally:
            blackbox.uninstall()
        box.wait("child", 1)
        if method == "fork":
            child = context.Process(target=fail_in_process, args=(False,))
            child.start()
            child.join()
    assert box.counts == ({"parent": 1, "child": 1} if method == "fork" else {"child": 1})
    assert "ValueError: of a process" in box.firings[-1].note
    assert "ValueError: of a process" in capfd.readouterr().err


def test_process_that_ends_well_triggers_nothing(tmp_path):
    program = "import penstock.watch.blackbox, sys; penstock.watch.blackbox.install(); sys.exit(3)"
    with Watched(tmp_path / "box", QUIET) as box:
        assert subprocess.run([sys.executable, "-c", program]).returncode == 3
        penstock.trigger("last")
        box.wait("last", 1)
    assert box.counts == {"last": 1}


def test_field_called_message_is_a_field(tmp_path):
    """As records of LogHandler have it; the message itself is meant where there is no such field."""
    assert blackbox.read(b'archive = "a"\nchannels = ["log:a"]', "f").signal
    text = '[[trigger]]\nname = "it"\nmessage = "log:a"\nwhen = \'"oom" in message\''
    with Watched(tmp_path / "box", QUIET + text) as box, penstock.publish("log:a", codec="json") as pub:
        for body in ({"message": "no memory: oom"}, "oom", {"oom": 1}, {"message": "well"}, "well"):
            pub.send(body)
        pub.send("the oom at last")
        box.wait("it", 4)
    assert box.counts["it"] == 4


def die_at_once():
    pub = penstock.publish("log:a")
    pub.send(b"1")
    os.kill(os.getpid(), 9)


def test_process_that_dies_at_once_is_not_missed(tmp_path):
    """Its command may not have been read: then it may be any that is named."""
    own = Path("/proc/self/cmdline").read_text().partition("\0")[0]
    with Watched(tmp_path / "box", QUIET + f'[[trigger]]\nname = "named"\ndeath = "{own}"') as box:
        for number in range(5):
            os.waitpid(start(die_at_once), 0)
            box.wait("named", number + 1)
    named = Trigger(death="planner.py")
    assert _is_meant(named, Ended(7, "", ("log:a",), ()))
    assert not _is_meant(named, Ended(7, "python imu.py", ("log:a",), ()))
    assert not _is_meant(named, Ended(7, "", (), ()))


def test_full_channel_is_watched_once_a_place_is_free(tmp_path, caplog):
    """Each trigger takes a place of its channel. The warning names the trigger."""
    text = '[[trigger]]\nname = "it"\nmessage = "log:a"\nwhen = "n > 0"'
    with (
        penstock.publish("log:a", codec="json", max_members=2) as pub,
        penstock.subscribe("log:a") as other,
        Watched(tmp_path / "box", QUIET + text) as box,
    ):
        until(lambda: "trigger it: log:a is not watched: " in caplog.text, "the warning")
        other.close()
        until(lambda: box.box._messages[0]._subscription is not None, "the box has joined")
        pub.send({"n": 1})
        box.wait("it", 1)


def test_long_spans_keep_the_box_awake_for_others(tmp_path, caplog):
    """The system's waits have a limit of days."""
    spans = [
        'silence = "log:a"\nlonger = "100d"',
        'rate = "log:a"\nbelow = 1\nover = 3e9',
        'latency = "log:a"\nabove = 3e9\nover = "36525d"',
    ]
    text = "\n".join(f"[[trigger]]\n{span}" for span in spans)
    with penstock.publish("log:a", codec="json") as pub, Watched(tmp_path / "box", QUIET + text) as box:
        pub.send(1)
        until(lambda: box.box.wakes > 1 and not box.box._looks, "only what was asked for is due")
        for number in range(3):
            penstock.trigger("it")
            box.wait_snapshots(number + 1)
        assert box.box._timeout() <= LONGEST_WAIT_SECONDS
    assert "error" not in caplog.text


def test_failed_snapshot_begins_no_cool_down(tmp_path, monkeypatch):
    monkeypatch.setattr(box_module, "FAILED_SECONDS", 0.0)
    with Watched(tmp_path / "box", 'channels = ["log:a"]\nafter = "0s"\ncool_down = "1h"') as box:
        penstock.trigger("it")
        box.wait_snapshots(1)
        with penstock.publish("log:a") as pub:
            pub.send(b"1")
        for number in (2, 3):
            penstock.trigger("it")
            box.wait("it", number)
        box.wait_snapshots(2)
    assert [isinstance(one, penstock.NotFound) for one in box.snapshots] == [True, False]
