"""A look at participants and their processes: who waits, and what everybody does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.channels.waiting.why.facts import confirmed, without_wait
from penstock.channels.waiting.why.records import Participant, WaitingProcess
from penstock.util import processes
from penstock.util.markup import size


def look_twice(read: Callable[[], list[Participant]]) -> tuple[list[Participant], dict[int, WaitingProcess]]:
    """The participants, and the processes that wait or are waited for.

    Everything is read twice, with the processes in between: a wait counts that was there both times, in a thread that exists.
    """
    before = read()
    involved = {one.pid for one in before if one.wait is not None}
    involved |= {other.pid for one in before if one.wait for other in one.wait.on if other.pid is not None}
    states = {pid: processes.find(pid) for pid in involved}
    after = [_with_thread(one, states) for one in confirmed(before, read())]
    return after, describe(after, states)


def describe(
    found: Sequence[Participant],
    states: dict[int, processes.SystemProcess | None],
    also: Iterable[int] = (),
) -> dict[int, WaitingProcess]:
    """The processes that wait or are waited for, and `also` these."""
    waiting = {one.pid for one in found if one.wait is not None}
    wanted = waiting | {other.pid for one in found if one.wait for other in one.wait.on if other.pid is not None}
    wanted |= set(also)
    living = {one.pid for one in found if not one.dead}
    gone = {one.pid for one in found if one.dead} - living
    return {
        pid: _describe(
            pid,
            states[pid] if pid in states else processes.find(pid),
            lives=pid not in gone,
            waits=pid in waiting,
            holds=held(one for one in found if one.pid == pid and not one.dead),
        )
        for pid in sorted(wanted)
    }


def held(participants: Iterable[Participant]) -> tuple[str, ...]:
    """The open claims and the leased frames of a process, in words."""
    return tuple(
        f"an open claim of {size(amount)} in {one.channel}"
        if what == "claim"
        else f"{amount} frame{'' if amount == 1 else 's'} of {one.channel}"
        for one in participants
        for what, amount in one.holds
    )


def _describe(
    pid: int, found: processes.SystemProcess | None, *, lives: bool, waits: bool, holds: tuple[str, ...]
) -> WaitingProcess:
    if not lives:  # the kernel's lock on its slot is gone; another process may have its number by now
        return WaitingProcess(pid, "", "dead", None, holds)
    if found is None:  # the kernel's lock says that it lives
        return WaitingProcess(pid, "", "hidden", None, holds)
    state = "waiting" if waits and found.state not in ("stopped", "foreign") else found.state
    return WaitingProcess(pid, found.command, state, found.user, holds)


def _with_thread(one: Participant, states: dict[int, processes.SystemProcess | None]) -> Participant:
    """Without its wait, if the process is seen and has no such thread: a fork or a crash left the note behind."""
    if one.wait is None or states.get(one.pid) is None or processes.has_thread(one.pid, one.wait.thread):
        return one
    return without_wait(one)
