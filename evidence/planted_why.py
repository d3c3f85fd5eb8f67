"""Bugs planted into the graph of waits."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

WHY = "tests/watch/why/test_why.py"
ITSELF = "tests/watch/why/test_itself.py"
NAMESPACES = "tests/watch/why/test_namespaces.py"


def _a_wait_for_any_is_stuck_with_one() -> None:
    from penstock.channels.waiting.why.records import Wait

    Wait.needs = lambda self, pids: any(one.pid in pids for one in self.on)  # type: ignore[method-assign]


def _other_threads_are_forgotten() -> None:
    from dataclasses import replace

    from penstock.channels.waiting.why import facts

    plain = facts._wait
    facts._wait = lambda *given: replace(plain(*given), alone=True)


def _a_process_is_stuck_with_one_of_its_waits() -> None:
    from penstock.channels.waiting.why import graph

    def stuck(self: Any) -> set[int]:
        found = set(self.of)
        while left := {pid for pid in found if not any(wait.needs(found) for wait in self.of[pid])}:
            found -= left
        return found

    graph._Graph.stuck = stuck  # type: ignore[method-assign]


def _a_signal_is_sent_without_asking() -> None:
    from penstock.front import stacks

    stacks._catches = lambda pid, signum: True


def _others_are_looked_at() -> None:
    from penstock.util import processes

    plain = processes.find

    def find(pid: int) -> processes.SystemProcess | None:
        found = plain(pid)
        return found and processes.SystemProcess(pid, "running", found.user, "secret", found.start, found.threads)

    processes.find = find


def _no_timeout_is_explained() -> None:
    from penstock.channels.waiting import reasons

    reasons.of_noted = lambda handle, what: ""


def _numbers_of_containers_are_taken_for_ours() -> None:
    from penstock.channels.waiting.why import facts

    facts.tell_apart = lambda *given: None


def _whoever_has_the_file_open_is_the_member() -> None:
    from penstock.util import processes

    processes.locked_bytes = lambda pid, descriptors: frozenset()


BUGS: dict[str, Planted] = {
    "a container's process is taken for one here": Planted(
        _numbers_of_containers_are_taken_for_ours, (f"{NAMESPACES}::test_process_with_other_files_is_not_the_member",)
    ),
    "who has the file open is the member": Planted(
        _whoever_has_the_file_open_is_the_member, (f"{NAMESPACES}::test_lock_says_whose_a_number_is",)
    ),
    "a wait for any is stuck with one": Planted(
        _a_wait_for_any_is_stuck_with_one, (f"{WHY}::test_cycle_with_a_way_out_is_no_deadlock",)
    ),
    "a process with another thread waits for itself": Planted(
        _other_threads_are_forgotten, (f"{ITSELF}::test_process_with_another_thread_is_no_deadlock",)
    ),
    "a process is stuck with one of its waits": Planted(
        _a_process_is_stuck_with_one_of_its_waits, (f"{WHY}::test_process_with_a_wait_outside_is_no_deadlock",)
    ),
    "a signal for stacks is sent without asking": Planted(
        _a_signal_is_sent_without_asking, (f"{WHY}::test_process_without_a_handler_gets_no_signal",)
    ),
    "processes of other users are looked at": Planted(
        _others_are_looked_at, (f"{WHY}::test_process_of_another_user_is_one_line",)
    ),
    "a timeout in an event loop says no reason": Planted(
        _no_timeout_is_explained, (f"{WHY}::test_timeout_in_an_event_loop_says_why[log]",)
    ),
}
