"""The black box as a whole: one snapshot for triggers that overlap, a cool-down, a bounded disk, nothing to do while nothing happens."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from crash.victims import kill, start
from watch.blackbox.boxes import Watched, until

import penstock
from penstock.cli import run
from penstock.cli.watching.blackbox import _FiringLines
from penstock.watch.blackbox.diary import DIARY, Firing
from penstock.watch.blackbox.unfinished import Begun, Note, find_unfinished


def diary(folder):
    return [one.data for one in penstock.Archive(folder).replay(DIARY)]


def firings(folder):
    return [one for one in diary(folder) if not one["outcome"]]


def test_triggers_that_overlap_make_one_snapshot(tmp_path):
    with (
        penstock.publish("log:a", codec="json") as pub,
        Watched(tmp_path / "box", 'channels = ["log:a"]\nbefore = "1h"\nafter = "1h"\ncool_down = "1h"') as box,
    ):
        pub.send("before")
        for number in range(5):
            penstock.trigger(f"call {number}")
        box.wait("call 4", 1)
        pub.send("after")
        box.box._running.end_ns = time.time_ns()  # its hour is over
        box.wait_snapshots(1)
    archive = penstock.Archive(tmp_path / "box")
    assert [one.data for one in archive.replay("log:a")] == ["before", "after"]
    assert len(box.snapshots) == 1
    assert [(one["trigger"], one["snapshot"]) for one in firings(tmp_path / "box")] == [
        (f"call {number}", number == 0) for number in range(5)
    ]
    assert archive.find("log:a").snapshot["trigger"] == "call 0"
    assert not archive.verify()


@pytest.mark.parametrize(("longest", "extends"), [("1h", True), ("60s", False)])
def test_later_trigger_extends_the_snapshot(tmp_path, longest, extends):
    """Up to `longest` after the first one."""
    text = f'channels = ["log:a"]\nbefore = "1m"\nafter = "60s"\nlongest = "{longest}"'
    with penstock.publish("log:a", codec="json") as pub, Watched(tmp_path / "box", text) as box:
        pub.send(1)
        penstock.trigger("first")
        box.wait("first", 1)
        running = box.box._running
        until(lambda: time.time_ns() > box.firings[0].time_ns, "the clock has gone on")
        penstock.trigger("second")
        box.wait("second", 1)
        assert (running.end_ns - running.begun_ns > 60 * 10**9) is extends
    assert [one.snapshot for one in box.firings] == [True, False]
    assert len(box.snapshots) == 1  # closing has ended it


def test_cool_down_keeps_from_another_snapshot(tmp_path):
    text = 'channels = ["log:a"]\nbefore = "1m"\nafter = "0s"\ncool_down = '
    with penstock.publish("log:a", codec="json") as pub:
        pub.send(1)
        for number, (span, count) in enumerate((('"1h"', 1), ('"0s"', 3))):
            with Watched(tmp_path / str(number), text + span) as box:
                for fired in range(3):
                    penstock.trigger("it")
                    box.wait("it", fired + 1)
                    box.wait_snapshots(min(fired + 1, count))
            assert len(box.snapshots) == count
            assert sum(one["count"] for one in diary(tmp_path / str(number))) == 3


def test_disk_is_bounded_oldest_first(tmp_path):
    limit = 300_000
    with (
        penstock.publish("log:a") as pub,
        Watched(
            tmp_path / "box",
            f'channels = ["log:a"]\nbefore = "1h"\nafter = "0s"\ncool_down = "0s"\nmax_bytes = {limit}',
        ) as box,
    ):
        for _ in range(10):
            pub.send(bytes(10_000))
        for number in range(8):
            penstock.trigger("it")
            box.wait_snapshots(number + 1)
    assert sum(one["count"] for one in diary(tmp_path / "box")) == 8
    kept = [info for info in penstock.Archive(tmp_path / "box").list() if info.channel == "log:a"]
    assert 1 <= len(kept) < 8
    assert sum(file.stat().st_size for file in (tmp_path / "box" / "recordings").rglob("0*") if file.is_file()) <= limit
    assert max(info.id for info in kept) == box.snapshots[-1].recordings["log:a"]


def test_newest_snapshot_stays_beyond_the_limit(tmp_path, caplog):
    """It is the evidence that was asked for, also if it alone is more than `max_bytes`."""
    text = 'channels = ["log:a"]\nbefore = "1h"\nafter = "0s"\ncool_down = "0s"\nmax_bytes = 20_000'
    with penstock.publish("log:a") as pub, Watched(tmp_path / "box", text) as box:
        pub.send(bytes(50_000))
        for number in range(2):
            penstock.trigger("it")
            box.wait_snapshots(number + 1)
    archive = penstock.Archive(tmp_path / "box")
    assert [info.id for info in archive.list() if info.channel == "log:a"] == [box.snapshots[1].recordings["log:a"]]
    assert "more than max_bytes: the newest snapshot stays" in caplog.text


def test_firings_apart_are_messages_of_their_own(tmp_path):
    """Those within a second are one, with their number; the one that begins a snapshot is written at once."""
    with Watched(tmp_path / "box", 'channels = ["log:nope"]\nafter = "0s"\ncool_down = "1h"') as box:
        for number, moment in enumerate((0, 10, 5 * 10**8, 10**9, 3 * 10**9)):
            box.box._asked.append(Firing("it", str(number), 10**18 + moment))
        box.box._wake()
        box.wait("it", 5)
    assert [(one["note"], one["count"]) for one in firings(tmp_path / "box")] == [("0", 1), ("1", 3), ("4", 1)]


def test_call_that_no_trigger_is_for_is_a_warning(tmp_path, caplog):
    with Watched(tmp_path / "box", 'channels = ["log:a"]\n[[trigger]]\nname = "h"\ncall = "help"') as box:
        penstock.trigger("typo")
        penstock.trigger("help")
        box.wait("h", 1)
    assert "no trigger has call = 'typo'" in caplog.text


def test_nothing_is_due_while_nothing_happens(tmp_path):
    """Without a trigger that samples, the thread sleeps until the kernel wakes it."""
    with penstock.publish("log:a", codec="json"), Watched(tmp_path / "box", 'channels = ["log:a"]') as box:
        until(lambda: box.box.wakes > 1 and not box.box._looks, "the looks at the new file are over")
        assert box.box._timeout() is None


def test_box_survives_channels_that_come_and_go(tmp_path):
    with Watched(
        tmp_path / "box",
        'channels = ["*"]\n[[trigger]]\nname = "d"\ndeath = "any"\n[[trigger]]\nname = "m"\nmessage = "log:late"\nwhen = "message == 7"',
    ) as box:
        for number in range(20):
            with penstock.publish(f"log:x{number}", codec="json") as pub:
                pub.send(number)
            penstock.remove(f"log:x{number}")
        with penstock.publish("log:late", codec="json") as pub:
            pub.send(7)
            box.wait("m", 1)
        assert not box.counts["d"]


def test_failed_snapshot_does_not_end_the_box(tmp_path, caplog):
    with Watched(tmp_path / "box", 'channels = ["log:nope"]\nafter = "0s"\ncool_down = "0s"') as box:
        penstock.trigger("one")
        box.wait_snapshots(1)
        penstock.trigger("two")
        box.wait_snapshots(2)
    assert all(isinstance(one, penstock.NotFound) for one in box.snapshots)
    assert "could not take a snapshot" in caplog.text


def test_call_without_a_box_is_heard_by_none():
    assert penstock.trigger("it") == 0
    with pytest.raises(penstock.Invalid):
        penstock.trigger("")
    with pytest.raises(penstock.Invalid):
        penstock.trigger("x" * 65)


def test_killed_box_does_not_hear(tmp_path):
    def stay():
        Watched(tmp_path / "box", 'channels = ["*"]')
        time.sleep(1000)

    child = start(stay)
    until(lambda: penstock.trigger("it") == 1, "the box hears")
    kill(child)
    assert penstock.trigger("it") == 0
    with Watched(tmp_path / "box", 'channels = ["*"]'):
        assert penstock.trigger("it") == 1


def test_unhandled_exception_of_a_program(tmp_path):
    program = "import penstock.watch.blackbox; penstock.watch.blackbox.install(); 1 / 0"
    with Watched(tmp_path / "box", 'channels = ["*"]\ncool_down = "1h"') as box:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        box.wait("exception", 1)
    assert "ZeroDivisionError" in done.stderr
    assert "ZeroDivisionError: division by zero" in box.firings[0].note


def test_command_watches_until_a_signal(tmp_path):
    config = tmp_path / "box.toml"
    config.write_text(f'archive = "{tmp_path}/box"\nchannels = ["log:a"]\nafter = "0s"\n')
    command = [sys.executable, "-m", "penstock", "blackbox", str(config)]
    with (
        penstock.publish("log:a", codec="json") as pub,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as box,
    ):
        pub.send(1)
        assert "watching log:a" in box.stdout.readline()
        box.send_signal(signal.SIGUSR1)
        assert "SIGUSR1: fired. Taking a snapshot" in box.stdout.readline()
        assert re.match(r"recording \d of log:a: 1 message", box.stdout.readline())
        box.send_signal(signal.SIGINT)
        assert box.wait() == 0
    assert not os.listdir(os.path.join(os.environ["PENSTOCK_DIR"], ".blackbox"))


def test_every_line_of_json_is_json(tmp_path):
    config = tmp_path / "box.toml"
    config.write_text(f'archive = "{tmp_path}/box"\nchannels = ["log:a"]\nafter = "0s"\n')
    command = [sys.executable, "-m", "penstock", "blackbox", str(config), "--json"]
    with (
        penstock.publish("log:a", codec="json") as pub,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as box,
    ):
        pub.send(1)
        assert json.loads(box.stdout.readline()) == {"event": "watching", "triggers": 0}
        penstock.trigger("it")
        assert [json.loads(box.stdout.readline())["event"] for _ in range(2)] == ["firing", "snapshot"]
        box.send_signal(signal.SIGINT)
        assert box.communicate()[0] == ""


def test_command_says_every_firing(tmp_path):
    """Also those during a snapshot and in the cool-down: a line for each, of several in a second one line with their number."""
    config = tmp_path / "box.toml"
    config.write_text(f'archive = "{tmp_path}/box"\nchannels = ["log:a"]\nafter = "1h"\ncool_down = "1h"\n')
    command = [sys.executable, "-m", "penstock", "blackbox", str(config)]
    with (
        penstock.publish("log:a", codec="json") as pub,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as box,
    ):
        pub.send(1)
        assert "watching log:a" in box.stdout.readline()
        for said in ("Taking a snapshot", "The snapshot goes on for it"):
            penstock.trigger("it", "why")
            assert re.fullmatch(rf"it: process {os.getpid()} called it: why\. {said}\n", box.stdout.readline())
        box.send_signal(signal.SIGINT)
        assert box.wait() == 0


def test_lines_of_firings_have_their_number(capsys):
    lines = _FiringLines()
    for moment, trigger in ((0, "a"), (1, "a"), (2, "b"), (5 * 10**8, "a"), (10**9, "a"), (10**9 + 1, "b")):
        lines.say(Firing(trigger, str(moment), 10**18 + moment))
    for _ in range(2):
        lines.say_rest()
    said = ["a: 0", "a: 1 time more", "b: 2", "a: 1 time more", f"a: {10**9}", "b: 1 time more"]
    assert capsys.readouterr().out.splitlines() == [f"{one}. No snapshot so soon after the last one" for one in said]


def keep_a_snapshot_running(folder):
    Watched(folder, 'channels = ["log:a"]\nbefore = "1h"\nafter = "1h"')
    time.sleep(1000)


def is_noted(folder, trigger):
    try:
        return trigger in [one["trigger"] for one in diary(folder)]
    except penstock.NotFound:
        return False


def test_snapshot_of_a_killed_box_is_taken_again(tmp_path, caplog):
    """Its firing was written when the snapshot began. The next box takes it from memory again, and says so."""
    folder = tmp_path / "box"
    with penstock.publish("log:a", codec="json") as pub:
        pub.send(1)
        child = start(keep_a_snapshot_running, folder)
        until(lambda: penstock.trigger("it", "why") == 1, "the box hears")
        until(lambda: is_noted(folder, "it"), "the firing is written")
        kill(child)
        pub.send(2)
        for _ in range(2):  # the second one has nothing left to do
            with Watched(folder, 'channels = ["log:a"]\nbefore = "1h"\nafter = "0s"') as box:
                until(lambda: len(diary(folder)) == 3, "the outcome is written")
        assert not box.snapshots
    note, number = (
        f"process {os.getpid()} called it: why",
        max(one.id for one in penstock.Archive(folder).list() if one.channel == "log:a"),
    )
    assert [tuple(one.values()) for one in diary(folder)] == [
        ("it", note, 1, True, ""),
        ("it", note, 0, True, "the black box was killed before the snapshot was complete: it is taken again"),
        ("it", note, 0, True, f"in the recordings {number}"),
    ]
    assert [one.data for one in penstock.Archive(folder).replay(number)] == [1, 2]
    assert penstock.Archive(folder).find(number).snapshot["trigger"] == "it"
    assert "killed before the snapshot was complete" in caplog.text
    assert not list(folder.glob("*.firing-*"))


def leave_a_note(folder, begun):
    kept = Note.write(folder, begun)
    os._exit(kept.begun is not begun)  # it is held until here


@pytest.mark.parametrize(("tries", "age"), [(2, 0), (1, 10**12)])
def test_old_or_second_snapshot_is_only_told(tmp_path, tries, age):
    """A box that is killed by each snapshot does not take it for ever."""
    folder = tmp_path / "box"
    penstock.Archive(folder)
    begun = Begun("it", "why", time.time_ns() - age, tries)
    os.waitpid(start(leave_a_note, folder, begun), 0)
    with Watched(folder, 'channels = ["log:a"]') as box:
        until(lambda: is_noted(folder, "it"), "it is told")
    assert not box.snapshots
    assert [one["outcome"] for one in diary(folder)] == [
        "",
        "the black box was killed before the snapshot was complete",
    ]
    assert next(one.time_ns for one in penstock.Archive(folder).replay(DIARY)) == begun.time_ns


def test_note_of_a_living_box_is_left_alone(tmp_path):
    note = Note.write(tmp_path, Begun("it", "", 1))
    assert find_unfinished(tmp_path) == []
    note.remove()
    (tmp_path / ".firing-x").write_text("{")
    assert find_unfinished(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_command_checks_a_configuration(tmp_path, capsys):
    config = tmp_path / "box.toml"
    config.write_text('archive = "a"\nchannels = ["log:a"]\n[[trigger]]\nsilence = "log:a"\nlonger = "2s"')
    assert run(["blackbox", str(config), "--check"]) == 0
    assert "1 trigger" in capsys.readouterr().out
    assert run(["blackbox", str(config), "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "checked", "triggers": 1}
    config.write_text('archive = "a"\nchannels = ["log:a"]\n[[trigger]]\nsilense = "log:a"')
    assert run(["blackbox", str(config)]) == 1
    assert "is silence meant?" in capsys.readouterr().err
