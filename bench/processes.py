"""Two or more processes that send and receive by any library: throughput, CPU time, round trips.

A rival is a module with `sender(name, readers, size)`, `receiver(name, number, size)` giving objects with `send(data)`,
`recv()` and `close()`. Its `crowded(readers)`, if it has one, gives options of its receivers where there are more processes than
cores. A rival that starts its own processes has `flow` and, for round trips, `round_trips` instead. Names are fresh for each run. Children are forked before any handle exists. Every run is bounded in time
(`evidence.bounded`): `Failed` says what did not finish.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from evidence.bounded import Results, bounded, child, context, join, until, watched


@dataclass(frozen=True)
class Flow:
    """Messages per second at the slowest receiver; CPU nanoseconds per message on each side."""

    rate: float
    send_ns: float
    receive_ns: float
    lost: int = 0  # at the worst receiver, and sent again


def _receive(
    rival: ModuleType, name: str, number: int, readers: int, size: int, count: int, ready: Any, go: Any, results: Any
) -> None:
    options = rival.crowded(readers) if hasattr(rival, "crowded") else {}
    with contextlib.closing(rival.receiver(name, number, size, **options)) as end:
        ready.release()
        go.wait()
        receive_many = getattr(end, "receive_many", None)
        end.recv()
        cpu, begun = time.process_time_ns(), time.perf_counter_ns()
        got = 1
        if receive_many is not None:
            while got < count:
                got += receive_many()
        else:
            recv = end.recv
            for _ in range(count - 1):
                recv()
        results.put((time.perf_counter_ns() - begun, time.process_time_ns() - cpu))


def _send(
    rival: ModuleType, name: str, readers: int, size: int, count: int, opened: Any, go: Any, results: Any
) -> None:
    with contextlib.closing(rival.sender(name, readers, size)) as end:
        opened.release()
        go.wait()
        if hasattr(end, "begin"):
            end.begin()  # for libraries whose receivers are found only now
        data = os.urandom(size)
        cpu = time.process_time_ns()
        if hasattr(end, "send_many"):
            end.send_many(data, count)
        else:
            send = end.send
            for _ in range(count):
                send(data)
        cpu = time.process_time_ns() - cpu
        finish = getattr(end, "finish", None)
        if finish is not None:
            finish()
        results.put(cpu)
        results.wait()


@contextlib.contextmanager
def _named(rival: ModuleType, readers: int, size: int, *parts: str) -> Iterator[str]:
    """A fresh name, made ready for the rival and removed afterwards."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    try:
        for part in parts or ("",):
            if hasattr(rival, "prepare"):
                rival.prepare(name + part, readers, size)
        yield name
    finally:
        for part in parts or ("",):
            if hasattr(rival, "clean"):
                rival.clean(name + part)


def flow(limit: float, rival: ModuleType, size: int, count: int, readers: int) -> Flow:
    """One run of `count` messages to each of `readers` receivers, none lost. `Failed` after `limit` seconds."""
    run = getattr(rival, "flow", partial(_flow, rival))
    found: Flow = bounded(limit, f"{count:,} messages", run, size, count, readers)
    return found


def _flow(rival: ModuleType, size: int, count: int, readers: int) -> Flow:
    opened, ready, go = context.Semaphore(0), context.Semaphore(0), context.Event()
    sent, received = Results(), Results()
    with _named(rival, readers, size) as name:
        everyone = [child("the sender", _send, rival, name, readers, size, count, opened, go, sent)]
        until(opened, everyone)
        everyone += [
            child(f"receiver {i}", _receive, rival, name, i, readers, size, count, ready, go, received)
            for i in range(readers)
        ]
        for _ in range(readers):
            until(ready, everyone)
        time.sleep(getattr(rival, "SETTLE", 0.05))
        go.set()
        cpu_send = sent.get(everyone)
        results = [received.get(everyone) for _ in range(readers)]
        sent.done.set()
        join(everyone)
    slowest = max(wall for wall, _ in results)
    return Flow(count / (slowest / 1e9), cpu_send / count, sum(cpu for _, cpu in results) / len(results) / count)


def _talk(
    rival: ModuleType, name: str, number: int, members: int, size: int, count: int, ready: Any, go: Any, results: Any
) -> None:
    with contextlib.closing(rival.member(name, number, members, size)) as end:
        ready.release()
        go.wait()
        data, got, wanted = os.urandom(size), 0, count * (members - 1)
        cpu, begun = time.process_time_ns(), time.perf_counter_ns()
        for i in range(count):
            end.send(data)
            if i % 32 == 31:
                got += end.take()
        while got < wanted:
            now = end.take()
            got += now
            if not now:
                time.sleep(0.0001)
        results.put((time.perf_counter_ns() - begun, time.process_time_ns() - cpu))
        results.wait()


def mesh(limit: float, rival: ModuleType, members: int, size: int, count: int) -> tuple[float, float]:
    """So many processes that each write `count` messages and read everybody else's: (messages received per second by all of
    them together, CPU nanoseconds per message received). `Failed` after `limit` seconds."""
    found: tuple[float, float] = bounded(
        limit, f"{count:,} messages of each of {members}", _mesh, rival, members, size, count
    )
    return found


def _mesh(rival: ModuleType, members: int, size: int, count: int) -> tuple[float, float]:
    ready, go, results = context.Semaphore(0), context.Event(), Results()
    with _named(rival, members, size) as name:
        everyone = [
            child(f"member {i}", _talk, rival, name, i, members, size, count, ready, go, results)
            for i in range(members)
        ]
        for _ in everyone:
            until(ready, everyone)
        time.sleep(0.05)
        go.set()
        found = [results.get(everyone) for _ in everyone]
        results.done.set()
        join(everyone)
    total = count * members * (members - 1)
    return total / (max(wall for wall, _ in found) / 1e9), sum(cpu for _, cpu in found) / total


def _echo(rival: ModuleType, there: str, back: str, size: int, count: int, ready: Any, options: dict[str, Any]) -> None:
    end_back = rival.sender(back, 1, size)
    end_there = rival.receiver(there, 0, size, **options)
    ready.release()
    for _ in range(count):
        end_back.send(end_there.recv())
    time.sleep(0.1)
    end_there.close()
    end_back.close()


def round_trips(limit: float, rival: ModuleType, size: int, count: int, **options: Any) -> list[float]:
    """Nanoseconds of `count` round trips through two channels, sorted; options are the receivers'. `Failed` after `limit` seconds."""
    run = getattr(rival, "round_trips", partial(_round_trips, rival))
    found: list[float] = bounded(limit, f"{count:,} round trips", run, size, count, **options)
    return found


def _round_trips(rival: ModuleType, size: int, count: int, **options: Any) -> list[float]:
    ready, found = context.Semaphore(0), []
    with _named(rival, 1, size, "a", "b") as name:
        other = child("the echo", _echo, rival, name + "a", name + "b", size, count, ready, options)
        there = rival.sender(name + "a", 1, size)
        until(ready, [other])
        back = rival.receiver(name + "b", 0, size, **options)
        time.sleep(getattr(rival, "SETTLE", 0.05))
        data = os.urandom(size)
        with watched([other]):
            for _ in range(count):
                begun = time.perf_counter_ns()
                there.send(data)
                back.recv()
                found.append(time.perf_counter_ns() - begun)
        join([other])
        there.close()
        back.close()
    return sorted(found[count // 10 :])


def bursts(limit: float, rival: ModuleType, size: int, count: int, rounds: int) -> list[tuple[float, float]]:
    """CPU nanoseconds of a send and of a receive where nobody disturbs: one thread sends a burst, then receives it. `Failed` after
    `limit` seconds."""
    found: list[tuple[float, float]] = bounded(
        limit, f"{rounds} bursts of {count:,} messages", _bursts, rival, size, count, rounds
    )
    return found


def _bursts(rival: ModuleType, size: int, count: int, rounds: int) -> list[tuple[float, float]]:
    found, data, clock = [], os.urandom(size), time.thread_time_ns  # the thread's: a driver's threads are not the call
    with _named(rival, 1, size) as name:
        sender = rival.sender(name, 1, size)
        receiver = rival.receiver(name, 0, size)
        time.sleep(getattr(rival, "SETTLE", 0.05))
        send, recv = sender.send, receiver.recv
        for _ in range(rounds):
            begun = clock()
            for _ in range(count):
                send(data)
            between = clock()
            for _ in range(count):
                recv()
            found.append(((between - begun) / count, (clock() - between) / count))
        sender.close()
        receiver.close()
    return found
