"""The graph of waits: chains from those that wait to those that keep them waiting, and deadlocks. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from penstock.channels.waiting.why.records import Participant, Wait, WaitedFor, WaitingProcess

CHAINS_MAX = 200
CHAINS_OF_ONE = 20  # from one wait
LINKS_MAX = 100  # of one chain
ORDER = (
    "dead",
    "stopped",
    "foreign",
    "hidden",
    "blocked",
    "sleeping",
    "running",
    "waiting",
)  # the likely culprit first


@dataclass(frozen=True)
class Chain:
    """One way from a wait to its cause: each wait is of the process that the wait before it is for.

    end: the process or the peer at the end, None where nobody is there. closes: whether the end is a process of the chain itself.
    """

    waits: tuple[Wait, ...]
    end: WaitedFor | None
    closes: bool

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes in order, that at the end included."""
        last = () if self.end is None or self.end.pid is None else (self.end.pid,)
        return (*(wait.pid for wait in self.waits), *last)


@dataclass(frozen=True)
class Why:
    """Waits on channels at one moment. Prints as `penstock why` does.

    target: the channel or the process that was asked for; None: all. waits: those that were asked for, the longest first, and those that they lead
    to. processes: those that wait or are waited for. chains: from each wait that nobody else waits behind to its causes; at most 20 of
    each, and 200 in all. deadlocks: the processes of each cycle that nothing but a timeout ends, in the order in which they wait for each other;
    one process alone if its only thread waits for the process itself.
    """

    target: str | int | None
    waits: tuple[Wait, ...]
    processes: tuple[WaitingProcess, ...]
    chains: tuple[Chain, ...]
    deadlocks: tuple[tuple[int, ...], ...]

    @property
    def culprits(self) -> tuple[WaitingProcess, ...]:
        """The processes at the ends of chains, which keep others waiting: stopped, dead, or busy with other work."""
        waited = {one.pid for wait in self.waits for one in wait.on if one.pid != wait.pid}
        return tuple(one for one in self.processes if one.pid in waited and one.state != "waiting")

    def process(self, pid: int) -> WaitingProcess:
        """One of the processes, by its number. `KeyError` if it is not among them."""
        return {one.pid: one for one in self.processes}[pid]

    def ordered(self, wait: Wait) -> list[WaitedFor]:
        """For whom a wait is, the likely culprit first: the dead, the stopped, those that do not wait, and last those that wait themselves."""
        states = {one.pid: one.state for one in self.processes}
        return ordered(wait, states)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON-ready data, with the text of `str`."""
        return {
            **asdict(self),
            "chains": [{"pids": chain.pids, "closes": chain.closes} for chain in self.chains],
            "culprits": [one.pid for one in self.culprits],
            "text": str(self),
        }

    def __str__(self) -> str:
        from penstock.channels.waiting.why.text import text_of

        return text_of(self)


def ordered(wait: Wait, states: Mapping[int, str]) -> list[WaitedFor]:
    """For whom a wait is, the likely culprit first. states: of the processes."""

    def rank(one: WaitedFor) -> tuple[int, int]:
        state = "dead" if one.dead else "hidden" if one.pid is None else states[one.pid]
        return ORDER.index(state), -one.amount

    return sorted(wait.on, key=rank)


class _Graph:
    """Waits by their process."""

    def __init__(self, waits: Iterable[Wait], processes: Mapping[int, WaitingProcess]) -> None:
        self.processes = processes
        self.of: dict[int, list[Wait]] = {}
        for wait in sorted(waits, key=lambda wait: -wait.seconds):
            self.of.setdefault(wait.pid, []).append(wait)

    def next_of(self, one: WaitedFor) -> list[Wait]:
        """The waits of one that is waited for."""
        if one.pid is None or one.dead or self.processes[one.pid].state == "hidden":
            return []  # another process may have that number
        return self.of.get(one.pid, [])

    def ordered(self, wait: Wait) -> list[WaitedFor]:
        """For whom a wait is, the likely culprit first."""
        return ordered(wait, {one.pid: self.processes[one.pid].state for one in wait.on if one.pid is not None})

    # ---- chains ----

    def reached(self, roots: Iterable[Wait]) -> dict[Wait, None]:
        """These waits, and all that they lead to, in the order in which they are reached."""
        found = dict.fromkeys(roots)
        queue = list(found)
        for wait in queue:
            for one in self.ordered(wait):
                more = [following for following in self.next_of(one) if following not in found]
                found |= dict.fromkeys(more)
                queue += more
        return found

    def chains(self, root: Wait) -> Iterator[Chain]:
        """Every way from a wait to its end. A process that a way has visited closes it."""
        return self._onward((root,))

    def _onward(self, waits: tuple[Wait, ...]) -> Iterator[Chain]:
        if not waits[-1].on:
            yield Chain(waits, None, closes=False)
        visited = {wait.pid for wait in waits}
        for one in self.ordered(waits[-1]):
            following = self.next_of(one)
            if one.pid in visited and not one.dead:
                yield Chain(waits, one, closes=True)
            elif not following or len(waits) >= LINKS_MAX:
                yield Chain(waits, one, closes=False)
            else:
                for wait in following:
                    yield from self._onward((*waits, wait))

    # ---- deadlocks ----

    def stuck(self) -> set[int]:
        """The processes that wait for each other alone: the largest set in which every wait of every process needs one of the set to move."""
        found = {pid for pid in self.of if self.processes[pid].state == "waiting"}
        while True:
            left = {pid for pid in found if all(wait.needs(found) for wait in self._blocking(pid))}
            if left == found:
                return found
            found = left

    def _blocking(self, pid: int) -> list[Wait]:
        """The waits of a process that have to end before it does anything: of its only thread, or of all threads and tasks."""
        waits = self.of[pid]
        return [wait for wait in waits if wait.alone] or waits

    def deadlocks(self) -> list[tuple[int, ...]]:
        """The cycles among those that are stuck, each as one way around it."""
        stuck = self.stuck()
        onward = {
            pid: [
                one.pid
                for wait in self._blocking(pid)
                for one in wait.on
                if one.pid in stuck and not one.dead and (one.pid != pid or wait.alone)
            ]
            for pid in stuck
        }
        cycles: list[tuple[int, ...]] = []
        seen: set[int] = set()
        for pid in sorted(stuck):
            if pid in seen:
                continue
            cycle = _cycle_from(pid, onward)
            seen.add(pid)
            if cycle and not seen & set(cycle[1:]):
                seen.update(cycle)
                cycles.append(cycle)
        return cycles


def _cycle_from(start: int, onward: Mapping[int, Sequence[int | None]]) -> tuple[int, ...]:
    """The shortest way from a process back to itself. Empty if there is none."""
    before: dict[int, int] = {}
    queue = [start]
    for pid in queue:
        for following in onward[pid]:
            assert following is not None
            if following == start:
                way = [pid]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return tuple(reversed(way))
            if following not in before:
                before[following] = pid
                queue.append(following)
    return ()


def graph_of(
    participants: Iterable[Participant], processes: Mapping[int, WaitingProcess], target: str | int | None
) -> Why:
    """The graph of these participants, as far as it concerns the target."""
    graph = _Graph([one.wait for one in participants if one.wait is not None], processes)
    chosen = [wait for pid in graph.of for wait in graph.of[pid] if _concerns(wait, target)]
    roots = _roots(graph, chosen)
    chains = [chain for root in roots for chain in islice(graph.chains(root), CHAINS_OF_ONE)][:CHAINS_MAX]
    shown = graph.reached([*roots, *chosen])
    involved = {wait.pid for wait in shown} | {one.pid for wait in shown for one in wait.on if one.pid is not None}
    if isinstance(target, int):
        involved.add(target)
    deadlocks = tuple(cycle for cycle in graph.deadlocks() if involved.issuperset(cycle))
    return Why(
        target,
        tuple(sorted(shown, key=lambda wait: -wait.seconds)),
        tuple(processes[pid] for pid in sorted(involved)),
        tuple(chains),
        deadlocks,
    )


def _concerns(wait: Wait, target: str | int | None) -> bool:
    if target is None:
        return True
    if isinstance(target, str):
        return wait.channel == target
    return wait.pid == target or any(one.pid == target for one in wait.on)


def _roots(graph: _Graph, chosen: Sequence[Wait]) -> list[Wait]:
    """The waits whose processes none of the others waits for; of a cycle that nobody enters, the longest wait."""
    waited = {one.pid for wait in chosen for one in wait.on if one.pid != wait.pid}
    roots = [wait for wait in chosen if wait.pid not in waited]
    reached = graph.reached(roots)
    for wait in chosen:
        if wait not in reached:
            roots.append(wait)
            reached |= graph.reached([wait])
    return roots
