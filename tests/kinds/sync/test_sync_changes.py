"""`SyncMember.changes` names every member that came or went: those that stay, those that did both, and the dead."""

import os
import signal

import pytest

import penstock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
EVENTS = 256  # that a queue keeps


@pytest.fixture
def watch():
    with penstock.join("sync:changes", name="watch") as member:
        yield member


def named(member):
    return [(change.joined, change.name) for change in member.changes()]


def come_and_go(name):
    penstock.join("sync:changes", name=name).close()


def die(name):
    """A member that joins in a child and is killed there; its process."""
    said, saying = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            member = penstock.join("sync:changes", name=name)
            os.write(saying, b".")
            member.recv()
        finally:
            os._exit(1)
    assert os.read(said, 1) == b"."
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(said)
    os.close(saying)
    return pid


def test_a_member_that_joined_and_left_is_named(watch):
    come_and_go("short")
    assert named(watch) == [(True, "short"), (False, "short")]
    assert named(watch) == []


def test_every_one_of_many_in_one_slot_is_named(watch):
    for number in range(100):
        come_and_go(f"m{number}")
    assert named(watch) == [(joined, f"m{number}") for number in range(100) for joined in (True, False)]
    assert watch.missed_changes == 0


def test_a_member_that_came_and_died_is_named(watch):
    pid = die("doomed")
    changes = watch.changes()
    assert [(change.joined, change.name, change.pid) for change in changes] == [
        (True, "doomed", pid),
        (False, "doomed", pid),
    ]
    assert named(watch) == []


def test_a_dead_member_is_named_once_when_its_slot_is_taken(watch):
    die("doomed")
    assert named(watch) == [(True, "doomed"), (False, "doomed")]
    with penstock.join("sync:changes", name="next"):
        assert named(watch) == [(True, "next")]
    assert named(watch) == [(False, "next")]


def test_deaths_in_one_slot_are_all_named(watch):
    for number in range(5):
        die(f"d{number}")
    assert named(watch) == [(joined, f"d{number}") for number in range(5) for joined in (True, False)]


def test_missed_changes_are_counted_and_members_named(watch):
    with penstock.join("sync:changes", name="before"):
        assert named(watch) == [(True, "before")]
        for number in range(EVENTS):
            come_and_go(f"m{number}")
        with penstock.join("sync:changes", name="after"):
            found = named(watch)
            assert watch.missed_changes == 2 * EVENTS + 1 - len(found)
            assert 0 < watch.missed_changes <= EVENTS + 2
            assert found[-1] == (True, "after")
            assert (False, "before") not in found
            assert found[-3:-1] == [(True, f"m{EVENTS - 1}"), (False, f"m{EVENTS - 1}")]
        assert named(watch) == [(False, "after")]


def test_a_new_member_does_not_hear_of_the_past(watch):
    come_and_go("old")
    with penstock.join("sync:changes", name="new") as new:
        assert named(new) == []
        come_and_go("young")
        assert named(new) == [(True, "young"), (False, "young")]


def test_a_subscription_has_no_name(watch):
    penstock.subscribe("sync:changes").close()
    assert named(watch) == [(True, ""), (False, "")]


def test_a_publication_does_not_read_and_is_no_member(watch):
    penstock.publish("sync:changes", name="writer").close()
    assert named(watch) == []
