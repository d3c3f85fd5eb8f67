"""What lies beside the channels, between the users of a group: counters, bridges' bookmarks, black boxes, stacks, events of tests; and
recorders, commands and looks at another user's channels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from people import ANNA, BEN, CARL, Person, Refused, as_command, as_user, until

Start = Callable[..., Person]
WHERE = pytest.mark.parametrize("container", [False, True], ids=["users", "containers"])
COUNTS = "__import__('penstock.front.counters', fromlist=['x']).counters()"
OPEN = "penstock.publish('log:a', term_length=1 << 16)"


def command(user: int, folder: Path, *words: str, status: int = 0, container: bool = False) -> str:
    """The output of a command of a user."""
    done = subprocess.run(
        as_command(user, [sys.executable, "-m", "penstock", *words], container=container),
        env=as_user(folder),
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@WHERE
def test_users_add_to_one_counter(person: Start, shared: Path, container: bool) -> None:
    """Whoever made it."""
    anna, ben = person(ANNA, shared, container=container), person(BEN, shared, container=container)
    anna.do("penstock.counter('camera/dropped').add(2)")
    ben.do("penstock.counter('camera/dropped').add(3)")
    anna.kill()
    assert ben.value(COUNTS) == {"camera/dropped": 5}
    ben.do("penstock.counter('other').add()")
    assert person(ANNA, shared).value(COUNTS) == {"camera/dropped": 5, "other": 1}


def test_another_users_counter_is_checked_as_channels_are(person: Start, shared: Path) -> None:
    """One that others may open is none of the group's."""
    anna, ben = person(ANNA, shared), person(BEN, shared)
    anna.do("penstock.counter('a').add()")
    (shared / ".counters" / "a").chmod(0o666)
    with pytest.raises(Refused, match="is no counter of yours"):
        ben.do("penstock.counter('a')")


@WHERE
def test_a_bridge_goes_on_where_another_users_stopped(person: Start, shared: Path, container: bool) -> None:
    """Its bookmark is the group's; while one has it, it is busy for the other."""
    anna, ben = person(ANNA, shared, container=container), person(BEN, shared, container=container)
    mark = "__import__('penstock.front.bridge.bookmark', fromlist=['x']).Bookmark('b', 'log:a', lasting=True)"
    anna.do(f"mark = {mark}; mark.kept.position = 4711; mark.save()")
    with pytest.raises(Refused, match="Busy: log:a: another process has this bridge"):
        ben.do(f"mark = {mark}")
    anna.kill()
    ben.do(f"mark = {mark}")
    assert ben.value("(mark.is_new, mark.kept.position)") == (False, 4711)


@WHERE
def test_black_boxes_of_all_users_hear_a_call(person: Start, shared: Path, container: bool) -> None:
    """Two that have one number in namespaces of their own do not take each other's sockets away; a dead one's is swept."""
    anna, ben = person(ANNA, shared, container=container), person(BEN, shared, container=container)
    ears = "__import__('penstock.watch.blackbox.calls', fromlist=['x']).CallSocket()"
    anna.do(f"ears = {ears}")
    ben.do(f"ears = {ears}")
    caller = person(BEN, shared, container=container)
    assert caller.value("penstock.trigger('now')") == 2
    for one in (anna, ben):
        assert one.value("[call['name'] for call in ears.calls()]") == ["now"]
    anna.kill()
    assert caller.value("penstock.trigger('now')") == 1
    third = person(ANNA, shared, container=container)
    third.do(f"ears = {ears}")
    assert len(os.listdir(shared / ".blackbox")) == 2
    ben.do("ears.close()")
    assert len(os.listdir(shared / ".blackbox")) == 1


def test_a_living_programs_stack_file_is_not_swept(person: Start, shared: Path) -> None:
    """Its number says nothing in another PID namespace, where two may begin at one moment; the file of a dead one is swept by its own user."""
    anna, ben = person(ANNA, shared, container=True), person(BEN, shared, container=True)
    for one in (anna, ben):
        one.do("import dataclasses; from penstock.util import processes; find = processes.find")
        one.do("processes.find = lambda pid: dataclasses.replace(find(pid), start=1)")
    anna.do("penstock.install_stack_handler()")
    assert len(os.listdir(shared / ".stacks")) == 1
    person(ANNA, shared, container=True).do("penstock.install_stack_handler(signal.SIGUSR1)")
    ben.do("penstock.install_stack_handler()")
    assert len(os.listdir(shared / ".stacks")) == 3
    anna.kill()
    person(ANNA, shared).do("penstock.install_stack_handler()")
    assert len(os.listdir(shared / ".stacks")) == 3, "the dead one's is gone, and a new one is there"


def test_stepped_sockets_of_two_users(person: Start, shared: Path) -> None:
    """The events of commaai/msgq: a test steps another user's receive."""
    anna, ben = person(ANNA, shared), person(BEN, shared)
    module = "__import__('penstock.compat.msgq', fromlist=['x'])"
    anna.do(f"handle = {module}.fake_event_handle('a', enable=True)")
    ben.do(f"handle = {module}.fake_event_handle('a', override=False)")
    assert ben.value("handle.enabled") is True
    ben.do("handle.recv_called_event.set()")
    assert anna.value("handle.recv_called_event.peek()") is True


@WHERE
def test_a_recorder_of_another_user(person: Start, shared: Path, tmp_path: Path, container: bool) -> None:
    """It records the group's channels into an archive that stays its user's alone."""
    place = shared.parent / "ben"
    place.mkdir()
    os.chown(place, BEN, BEN)
    anna, ben = person(ANNA, shared, container=container), person(BEN, shared, container=container)
    anna.do(f"end = {OPEN}")
    ben.do(f"archive = penstock.Archive('{place}/archive'); recorder = archive.record('log:a')")
    anna.do("[end.send(b'x%d' % i) for i in range(100)]")
    anna.kill()
    ben.do("recorder.stop()")
    assert ben.value("sum(one.messages for one in archive.list())") == 100
    modes = {path.stat().st_mode & 0o7777 & ~0o700 for path in (place / "archive").rglob("*")}
    assert modes == {0}


@WHERE
def test_commands_see_another_users_channels(person: Start, shared: Path, container: bool) -> None:
    """`ls`, `top`, `why`, `sub`, `pub` and `rm`."""
    anna = person(ANNA, shared, container=container)
    anna.do(f"end = {OPEN}; end.send(b'hello')")
    row = json.loads(command(BEN, shared, "ls", "--json", container=container))
    assert (row["channel"], [member["role"] for member in row["members"]]) == ("log:a", ["publication"])
    assert "hello" in command(BEN, shared, "sub", "log:a", "--start", "earliest", "-n", "1", container=container)
    assert "log:a" in command(BEN, shared, "top", "-m", "-n", "1", container=container)
    command(BEN, shared, "why", container=container)
    anna.kill()
    command(BEN, shared, "rm", "--unused", container=container)
    assert list(shared.glob("*.log")) == []


def test_top_names_no_other_process_by_a_members_number(person: Start, shared: Path) -> None:
    """A member of another PID namespace has number 1 there. The command of process 1 here is not its own."""
    anna = person(ANNA, shared, container=True)
    anna.do(f"end = {OPEN}")
    assert anna.value("os.getpid()") == 1
    first = Path("/proc/1/cmdline").read_bytes().split(b"\0")[0].decode().rpartition("/")[2]
    shown = command(BEN, shared, "top", "-m", "-n", "1")
    row = next(line for line in shown.splitlines() if "pid 1 " in line)
    assert first not in row


def test_why_shows_another_namespaces_member_as_hidden(person: Start, shared: Path) -> None:
    """Its number is another process's here, which is neither looked at nor blamed, and the wait is not left out."""
    anna, ben = person(ANNA, shared, container=True), person(BEN, shared)
    anna.do(f"end = {OPEN}")
    ben.do("end = penstock.subscribe('log:a')")
    ben.do("waiting = threading.Thread(target=end.recv, daemon=True); waiting.start()")
    until(lambda: "waits for messages of log:a" in command(BEN, shared, "why"), "no wait is seen")
    last = command(BEN, shared, "why").rstrip().splitlines()[-1]
    assert "1 is to write them and is in another PID namespace" in last or (
        "pid 1 of user" in last and "cannot be looked at" in last
    )
    ben.kill()
    hidden = person(BEN, shared, container=True)
    hidden.do("end = penstock.subscribe('log:a')")
    hidden.do("waiting = threading.Thread(target=end.recv, daemon=True); waiting.start()")
    until(
        lambda: "1, in another PID namespace, waits for messages of log:a" in command(ANNA, shared, "why"),
        "its wait is not seen",
    )


def test_a_user_outside_gets_nothing_beside_the_channels(person: Start, shared: Path) -> None:
    person(ANNA, shared).do("penstock.counter('a').add()")
    carl = person(CARL, shared)
    for call in ("penstock.counter('a')", COUNTS, "penstock.trigger('x')"):
        with pytest.raises(Refused, match="cannot open the channel folder"):
            carl.value(call)
