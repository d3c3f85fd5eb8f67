"""Processes that wait for each other, as a seed says: each link is a channel on which one process waits for the next.

A process is forked, opens its ends in phases that the parent calls, and waits. The last one runs, sleeps, stops, dies, or waits for the first.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import penstock

PHASES = ("open_other", "open_waiter", "prepare", "take", "wait")
SMALL = {"term_length": "64KiB", "capacity": "64KiB"}


@dataclass(frozen=True)
class Link:
    """A wait of one kind. what, how: as the graph names them. opens_other, opens_waiter: make the ends. prepare: the waiter's part before it waits.
    take: the other's part behind that. wait: does not return while the other does nothing. survives: the wait goes on after the other's death."""

    name: str
    what: str
    how: str
    open_other: Callable[[str], Any]
    open_waiter: Callable[[str], Any]
    wait: Callable[[Any], Any]
    prepare: Callable[[Any], Any] = lambda end: end
    take: Callable[[Any], Any] = lambda end: end
    survives: bool = True


def _fill(send: Callable[[bytes], Any]) -> None:
    while send(bytes(4000)) is not None:
        pass


def _fill_sync(member: Any) -> Any:
    _fill(member.offer)
    return member


def _fill_pub(pub: Any) -> Any:
    _fill(pub.offer)
    return pub


def _send_frame(pub: Any) -> Any:
    pub.send(np.zeros((8, 8), "uint8"))
    return pub


def _lease(sub: Any) -> Any:
    return sub, sub.recv(60)


def _submit(ask: Any) -> Any:
    return ask, ask.submit(b"?")


def _serve_one(reply: Any) -> Any:
    return reply, reply.recv(60)


def _claim(pub: Any) -> Any:
    claim = pub.claim(100)
    claim.__enter__()
    return pub, claim


def _begun(pull: Any) -> Any:
    assert pull.try_recv() is None
    return pull


LINKS = (
    Link(
        "log",
        "messages",
        "writes",
        lambda name: penstock.publish(f"log:{name}", **SMALL),
        lambda name: penstock.subscribe(f"log:{name}"),
        lambda sub: sub.recv(),
    ),
    Link(
        "full-log",
        "room",
        "behind",
        lambda name: penstock.subscribe(f"log:{name}", **SMALL),
        lambda name: penstock.publish(f"log:{name}", **SMALL),
        lambda pub: pub.send(bytes(4000)),
        prepare=_fill_pub,
        survives=False,
    ),
    Link(
        "claimed-log",
        "messages",
        "claim",
        lambda name: penstock.publish(f"log:{name}", **SMALL),
        lambda name: penstock.subscribe(f"log:{name}"),
        lambda sub: sub.recv(),
        take=_claim,
    ),
    Link(
        "ring",
        "messages",
        "writes",
        lambda name: penstock.publish(f"ring:{name}", capacity="64KiB"),
        lambda name: penstock.subscribe(f"ring:{name}"),
        lambda sub: sub.recv(),
    ),
    Link(
        "sync",
        "messages",
        "writes",
        lambda name: penstock.join(f"sync:{name}", name="other", capacity="64KiB"),
        lambda name: penstock.join(f"sync:{name}", name="waiter", capacity="64KiB"),
        lambda member: member.recv(),
    ),
    Link(
        "full-sync",
        "room",
        "behind",
        lambda name: penstock.join(f"sync:{name}", name="other", capacity="64KiB"),
        lambda name: penstock.join(f"sync:{name}", name="waiter", capacity="64KiB"),
        lambda member: member.send(bytes(4000)),
        prepare=_fill_sync,
        survives=False,
    ),
    Link(
        "pipe",
        "messages",
        "writes",
        lambda name: penstock.publish(f"pipe:{name}", capacity="64KiB"),
        lambda name: penstock.subscribe(f"pipe:{name}"),
        lambda pull: pull.recv(),
    ),
    Link(
        "full-pipe",
        "room",
        "full",
        lambda name: penstock.subscribe(f"pipe:{name}", capacity="64KiB"),
        lambda name: penstock.publish(f"pipe:{name}", capacity="64KiB"),
        lambda push: push.send(bytes(4000)),
        prepare=_fill_pub,
        survives=False,
    ),
    Link(
        "request",
        "a reply",
        "answers",
        lambda name: penstock.join(f"pipe:{name}", role="reply"),
        lambda name: penstock.join(f"pipe:{name}", role="request"),
        lambda asked: asked[1].result(),
        prepare=_submit,
        take=_serve_one,
        survives=False,
    ),
    Link(
        "frames",
        "frames",
        "writes",
        lambda name: penstock.publish(f"frames:{name}", shape=(8, 8), dtype="uint8", buffers=2),
        lambda name: penstock.subscribe(f"frames:{name}"),
        lambda sub: sub.recv(),
    ),
    Link(
        "leased-frames",
        "a buffer",
        "leases",
        lambda name: penstock.subscribe(f"frames:{name}", shape=(8, 8), dtype="uint8", buffers=2),
        lambda name: penstock.publish(f"frames:{name}", shape=(8, 8), dtype="uint8", buffers=2),
        lambda pub: (pub.acquire(), pub.acquire()),
        prepare=_send_frame,
        take=_lease,
        survives=False,
    ),
)
ENDS = ("running", "sleeping", "stopped", "dead", "cycle")


@dataclass(frozen=True)
class Plan:
    """Links from each process to the next, and what the last one does. fan_in: processes beside the first that wait for the second."""

    seed: int
    links: tuple[Link, ...]
    end: str
    fan_in: int = 0

    @property
    def count(self) -> int:
        """Processes of the chain."""
        return len(self.links) + (self.end != "cycle")

    def __str__(self) -> str:
        return f"seed {self.seed}: {' → '.join(link.name for link in self.links)} → {self.end}, fan-in {self.fan_in}"


def plan_of(seed: int) -> Plan:
    """A graph from a seed."""
    rng = random.Random(seed)
    end = ENDS[seed % len(ENDS)]
    links = [rng.choice(LINKS) for _ in range(rng.randint(2 if end == "cycle" else 1, 4))]
    if end == "dead":
        links[-1] = rng.choice([link for link in LINKS if link.survives and link.name != "claimed-log"])
    fan_in = rng.randint(0, 2) if links[0].name in ("log", "ring", "frames") and end != "cycle" else 0
    return Plan(seed, tuple(links), end, fan_in)


@dataclass
class Child:
    """A forked process that does its phases on command."""

    pid: int
    commands: int
    answers: int
    phases: dict[str, int] = field(default_factory=dict)

    def tell(self, phase: str) -> None:
        """Begins a phase, and returns when the child has done it; of the last one, when it begins."""
        os.write(self.commands, bytes([PHASES.index(phase)]))
        ready, _, _ = select.select([self.answers], [], [], 60)
        assert ready, f"process {self.pid} does not end phase {phase}"
        assert os.read(self.answers, 1) == b".", f"process {self.pid} failed in phase {phase}"


class Graph:
    """The processes of a plan. pids: of the chain, in order; others: beside the first."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.names = [f"{name}/{at}" for at in range(len(plan.links))]
        self._children: list[Child] = []
        for at in range(plan.count + plan.fan_in):
            self._children.append(_fork(lambda at=at: self._live(at)))
        self.pids = [child.pid for child in self._children[: plan.count]]
        self.others = [child.pid for child in self._children[plan.count :]]

    def start(self) -> None:
        """Runs all phases, and brings the last process into its end."""
        for phase in PHASES:
            for child in self._children:
                child.tell(phase)
        if self.plan.end == "stopped":
            os.kill(self.pids[-1], signal.SIGSTOP)
            os.waitpid(self.pids[-1], os.WUNTRACED)
        elif self.plan.end == "dead":
            os.kill(self.pids[-1], signal.SIGKILL)

    def end(self) -> None:
        """Kills and reaps all processes."""
        for child in self._children:
            os.kill(child.pid, signal.SIGKILL)
        for child in self._children:
            os.waitpid(child.pid, 0)
            os.close(child.commands)
            os.close(child.answers)

    def _live(self, at: int) -> Iterator[None]:
        """The phases of one process: as the other of the link before it, and as the waiter of its own."""
        links, names, count = self.plan.links, self.names, self.plan.count
        beside = at >= count
        own = 0 if beside else at if at < len(links) else None
        before = None if beside else at - 1 if at > 0 else len(links) - 1 if self.plan.end == "cycle" else None
        other = links[before].open_other(names[before]) if before is not None else None
        yield
        waiter = links[own].open_waiter(names[own]) if own is not None else None
        yield
        if own is not None and not beside:
            waiter = links[own].prepare(waiter)
        yield
        if before is not None:
            other = links[before].take(other)
        yield
        if own is not None:
            links[own].wait(waiter)
        while self.plan.end == "running":
            pass
        time.sleep(1000)
        raise AssertionError(f"{other} is kept until here")


def _fork(live: Callable[[], Iterator[None]]) -> Child:
    commands, tell = os.pipe()
    told, answers = os.pipe()
    pid = os.fork()
    if pid:
        os.close(commands)
        os.close(answers)
        return Child(pid, tell, told)
    try:
        os.close(tell)
        os.close(told)
        phases = live()
        for phase in PHASES:
            assert os.read(commands, 1) == bytes([PHASES.index(phase)])
            if phase == PHASES[-1]:
                os.write(answers, b".")
            next(phases)
            os.write(answers, b".")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


@contextlib.contextmanager
def started(plan: Plan, name: str) -> Iterator[Graph]:
    """The processes of a plan, all of them waiting or about to."""
    graph = Graph(plan, name)
    try:
        graph.start()
        yield graph
    finally:
        graph.end()
        for status in penstock.list_channels(f"{name}/*"):
            penstock.remove(status.channel)
