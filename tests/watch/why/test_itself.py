"""A process whose only thread waits for the process itself is a deadlock, and is named as one; one with another thread is none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crash import victims

import penstock
from penstock.channels.waiting.why.graph import graph_of
from penstock.channels.waiting.why.records import Participant, Wait, WaitedFor, WaitingProcess
from tests.watch.why.waiting import LINKS, Link

LINK = {link.name: link for link in LINKS}
SELF = "deadlock of one process with itself"


@pytest.fixture(autouse=True)
def _no_victim_survives() -> Iterator[None]:
    yield
    victims.end_all()


def wait_for_itself(link: Link, name: str) -> Any:
    """Both ends in one thread, which waits on one of them."""
    other, waiter = link.open_other(name), link.open_waiter(name)
    waiter = link.prepare(waiter)
    kept = link.take(other)
    return link.wait(waiter), kept


def once(ready: Callable[[penstock.types.Why], bool]) -> penstock.types.Why:
    """The first graph that is ready."""
    while not ready(found := penstock.why()):
        time.sleep(0.002)
    return found


@pytest.mark.parametrize("name", [link.name for link in LINKS])
def test_only_thread_that_waits_for_itself_is_a_deadlock(name: str) -> None:
    """Every kind of wait whose other end is a handle of the same thread."""
    pid = victims.start(wait_for_itself, LINK[name], "own")
    found = once(lambda found: bool(found.deadlocks))
    assert found.deadlocks == ((pid,),)
    assert [wait.what for wait in found.waits] == [LINK[name].what]
    assert str(found).splitlines()[-1].startswith(f"{SELF}: {pid} ")
    assert not found.culprits


def wait_beside(other: Callable[[Any], Any], link: Link, name: str) -> None:
    with contextlib.ExitStack() as left:
        ended = threading.Event()
        thread = threading.Thread(target=lambda: other(ended), daemon=True)
        thread.start()
        left.enter_context(contextlib.closing(link.open_other(name)))
        link.wait(link.prepare(link.open_waiter(name)))


@pytest.mark.parametrize("name", ["full-log", "log", "full-pipe"])
def test_process_with_another_thread_is_no_deadlock(name: str) -> None:
    """The other one may read or write yet, whatever it does now."""
    pid = victims.start(wait_beside, threading.Event.wait, LINK[name], "own")
    found = once(lambda found: [wait.pid for wait in found.waits] == [pid])
    assert [one.pid for one in found.waits[0].on] == [pid]
    assert found.deadlocks == ()


def await_itself() -> None:
    async def run() -> None:
        with penstock.publish("log:own"), penstock.subscribe("log:own") as sub:
            await sub.recv_async()

    asyncio.run(run())


def test_task_that_waits_for_its_process_is_no_deadlock() -> None:
    """Its thread runs other tasks."""
    pid = victims.start(await_itself)
    found = once(lambda found: [wait.pid for wait in found.waits] == [pid])
    assert (found.waits[0].alone, found.deadlocks) == (False, ())


def send_with_timeout(answers: int) -> None:
    text = ""
    try:
        with penstock.subscribe("log:own", capacity="64KiB"), penstock.publish("log:own", capacity="64KiB") as pub:
            while True:
                pub.send(bytes(4000), timeout=0.2)
    except penstock.TimedOut as error:
        text = str(error)
    finally:
        os.write(answers, text.encode())


def test_timeout_of_a_thread_that_waits_for_itself_says_so() -> None:
    """The error has the same name for it."""
    told, answers = os.pipe()
    victims.start(send_with_timeout, answers)
    text = os.read(told, 4096).decode()
    assert text.endswith("to read, and its only thread waits here: a deadlock with itself")
    assert "; this process itself has " in text
    os.close(told)
    os.close(answers)


# ---- the graph, without processes ----


def wait_of(pid: int, *on: int, alone: bool = True, any: bool = True, channel: str = "log:x") -> Participant:
    waits = tuple(WaitedFor(other, None, "writes", 0) for other in on)
    wait = Wait(channel, pid, pid, "subscription", "messages", 0, 1.0, timed=False, any=any, on=waits, alone=alone)
    return Participant(channel, pid, "subscription", "", pid, 1, False, (), wait)


@pytest.mark.parametrize(
    ("waits", "deadlocks"),
    [
        ([wait_of(1, 1)], ((1,),)),
        ([wait_of(1, 1, alone=False)], ()),
        ([wait_of(1, 1, 2)], ()),  # the other may write
        ([wait_of(1, 1, 2, any=False)], ((1,),)),
        ([wait_of(1, 1), wait_of(1, 2, alone=False, channel="log:y")], ((1,),)),  # a task of the thread that sleeps
        ([wait_of(1, 1), wait_of(2, 1)], ((1,),)),
        ([wait_of(1, 2, alone=False), wait_of(2, 1, alone=False), wait_of(3, 3)], ((1, 2), (3,))),
    ],
)
def test_graph_names_who_waits_for_itself(waits: list[Participant], deadlocks: tuple[tuple[int, ...], ...]) -> None:
    """Only where nobody else can end it, and the process has no other thread."""
    processes = {pid: WaitingProcess(pid, "", "waiting", 0, ()) for pid in (1, 2, 3)}
    assert graph_of(waits, processes, None).deadlocks == deadlocks
