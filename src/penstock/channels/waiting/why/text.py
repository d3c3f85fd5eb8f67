"""The graph of waits as lines of text, for terminals, logs and pages."""

from __future__ import annotations

from typing import Any

from penstock.channels.waiting.why import words
from penstock.channels.waiting.why.records import Wait, WaitedFor, WaitingProcess

LINES_MAX = 400
INDENT = "  "


def text_of(graph: Any) -> str:
    """The tree of a `Why`'s waits, and its deadlocks."""
    return "\n".join(_Lines(graph).all())


class _Lines:
    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._processes = {one.pid: one for one in graph.processes}
        self._of: dict[int, list[Wait]] = {}
        for wait in graph.waits:
            self._of.setdefault(wait.pid, []).append(wait)
        self._shown: set[Wait] = set()
        self._lines: list[str] = []

    def all(self) -> list[str]:
        if not self._graph.waits:
            return self._without_waits()
        for root in dict.fromkeys(chain.waits[0] for chain in self._graph.chains):
            if root not in self._shown:
                hidden = ", in another PID namespace," if self._processes[root.pid].state == "hidden" else ""
                self._add(0, f"{self._name(root.pid)}{hidden} {self._doing(root)}")
                self._below(root, 1)
        for cycle in self._graph.deadlocks:
            self._lines.append(self._deadlock(cycle))
        left = len(self._lines) - LINES_MAX
        return self._lines if left <= 0 else [*self._lines[:LINES_MAX], f"… {left} more lines"]

    def _without_waits(self) -> list[str]:
        target = self._graph.target
        if not isinstance(target, int):
            return ["nobody waits" + ("" if target is None else f" on {target}")]
        one = self._processes[target]
        state = words.state_text(one)
        return [f"pid {one.pid} {state}" if one.state == "foreign" else f"{one.name} {state}, and waits on no channel"]

    def _below(self, wait: Wait, depth: int) -> None:
        """Those that a wait is for, and what they do."""
        self._shown.add(wait)
        if not wait.on:
            self._add(depth, words.nobody_text(wait))
        for one in self._graph.ordered(wait):
            self._part(wait, one, depth)

    def _part(self, wait: Wait, one: WaitedFor, depth: int) -> None:
        part = words.part_text(wait, one)
        if one.pid is None:
            self._add(depth, f"{one.peer} {part}")
            return
        process = self._processes[one.pid]
        following = [] if one.dead else self._of.get(one.pid, [])
        if process.state == "foreign":
            self._add(depth, f"pid {one.pid} {words.state_text(process)}")
            return
        stopped = f" and {words.state_text(process)}" if process.state != "waiting" or one.dead else ""
        if one.dead and process.state != "dead":
            stopped = " and is dead"
        if not following:
            self._add(depth, f"{self._name(one.pid)} {part}{stopped}{self._holds(process, wait)}")
        for more in following:
            again = " (see above)" if more in self._shown else ""
            self._add(depth, f"{self._name(one.pid)} {part}{stopped}, and {self._doing(more)}{again}")
            if more not in self._shown:
                self._below(more, depth + 1)

    def _holds(self, process: WaitingProcess, wait: Wait) -> str:
        """What it keeps besides, in other channels."""
        other = [held for held in process.holds if not held.endswith(f" {wait.channel}")]
        return f", holds {', '.join(other)}" if other else ""

    def _doing(self, wait: Wait) -> str:
        return words.wait_text(wait)

    def _deadlock(self, cycle: tuple[int, ...]) -> str:
        steps = []
        for pid, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            wait = next(one for one in self._of[pid] if any(other.pid == following for other in one.on))
            steps.append((pid, wait))
        way = " → ".join(f"{self._name(pid)} ({words.purpose(wait)})" for pid, wait in steps)
        ends = ", until a timeout ends it" if any(wait.timed for _, wait in steps) else ""
        who = f"{len(cycle)} processes" if len(cycle) > 1 else "one process with itself"
        return f"deadlock of {who}{ends}: {way} → {self._name(cycle[0])}"

    def _name(self, pid: int) -> str:
        return str(self._processes[pid].name)

    def _add(self, depth: int, text: str) -> None:
        self._lines.append(INDENT * depth + text)
