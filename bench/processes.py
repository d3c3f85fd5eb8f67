"""Two or more processes that send and receive by any library: throughput, CPU time, round trips.

A rival is a module with `sender(name, readers, size)`, `receiver(name, number, size)` giving objects with `send(data)`,
`recv()` and `close()`. Names are fresh for each run. Children are forked before any handle exists.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

context = multiprocessing.get_context("fork")
TIMEOUT = 40


@dataclass(frozen=True)
class Flow:
    """Messages per second at the slowest receiver; CPU nanoseconds per message on each side."""

    rate: float
    send_ns: float
    receive_ns: float


def _child(target: Any, *args: Any) -> Any:
    process = context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def _receive(
    rival: ModuleType, name: str, number: int, size: int, count: int, ready: Any, go: Any, results: Any
) -> None:
    with contextlib.closing(rival.receiver(name, number, size)) as end:
        ready.release()
        go.wait(TIMEOUT)
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
        go.wait(TIMEOUT)
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
        results.get_ack()


class _Queue:
    """A result queue whose sender waits until the others are done with its messages."""

    def __init__(self) -> None:
        self.queue, self.done = context.SimpleQueue(), context.Event()

    def put(self, value: Any) -> None:
        self.queue.put(value)

    def get(self) -> Any:
        if not self.queue._reader.poll(TIMEOUT):
            raise RuntimeError(f"no result within {TIMEOUT} seconds")
        return self.queue.get()

    def get_ack(self) -> None:
        self.done.wait(TIMEOUT)


def flow(rival: ModuleType, size: int, count: int, readers: int) -> Flow:
    """One run of `count` messages to each of `readers` receivers, none lost."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    opened, ready, go = context.Semaphore(0), context.Semaphore(0), context.Event()
    sent, received = _Queue(), _Queue()
    if hasattr(rival, "prepare"):
        rival.prepare(name, readers, size)
    sender = _child(_send, rival, name, readers, size, count, opened, go, sent)
    if not opened.acquire(timeout=TIMEOUT):
        raise RuntimeError("the sender did not start")
    receivers = [_child(_receive, rival, name, i, size, count, ready, go, received) for i in range(readers)]
    for _ in receivers:
        if not ready.acquire(timeout=TIMEOUT):
            raise RuntimeError("a receiver did not start")
    time.sleep(getattr(rival, "SETTLE", 0.05))
    go.set()
    try:
        cpu_send = sent.get()
        results = [received.get() for _ in receivers]
    except RuntimeError:
        for process in (sender, *receivers):
            process.kill()
        raise
    finally:
        sent.done.set()
        for process in (sender, *receivers):
            process.join(10)
            if process.is_alive():
                process.kill()
        if hasattr(rival, "clean"):
            rival.clean(name)
    slowest = max(wall for wall, _ in results)
    return Flow(count / (slowest / 1e9), cpu_send / count, sum(cpu for _, cpu in results) / len(results) / count)


def _talk(
    rival: ModuleType, name: str, number: int, members: int, size: int, count: int, ready: Any, go: Any, results: Any
) -> None:
    with contextlib.closing(rival.member(name, number, members, size)) as end:
        ready.release()
        go.wait(TIMEOUT)
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
        results.get_ack()


def mesh(rival: ModuleType, members: int, size: int, count: int) -> tuple[float, float]:
    """So many processes that each write `count` messages and read everybody else's: (messages received per second by all of
    them together, CPU nanoseconds per message received)."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    ready, go, results = context.Semaphore(0), context.Event(), _Queue()
    if hasattr(rival, "prepare"):
        rival.prepare(name, members, size)
    children = [_child(_talk, rival, name, i, members, size, count, ready, go, results) for i in range(members)]
    try:
        for _ in children:
            if not ready.acquire(timeout=TIMEOUT):
                raise RuntimeError("a member did not start")
        time.sleep(0.05)
        go.set()
        found = [results.get() for _ in children]
    finally:
        results.done.set()
        for process in children:
            process.join(10)
            if process.is_alive():
                process.kill()
        if hasattr(rival, "clean"):
            rival.clean(name)
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


def round_trips(rival: ModuleType, size: int, count: int, **options: Any) -> list[float]:
    """Nanoseconds of `count` round trips through two channels; options are the receivers'."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    ready = context.Semaphore(0)
    for part in (name + "a", name + "b"):
        if hasattr(rival, "prepare"):
            rival.prepare(part, 1, size)
    other = _child(_echo, rival, name + "a", name + "b", size, count, ready, options)
    there = rival.sender(name + "a", 1, size)
    if not ready.acquire(timeout=TIMEOUT):
        raise RuntimeError("the echo did not start")
    back = rival.receiver(name + "b", 0, size, **options)
    time.sleep(getattr(rival, "SETTLE", 0.05))
    data = os.urandom(size)
    found = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        there.send(data)
        back.recv()
        found.append(time.perf_counter_ns() - begun)
    other.join(10)
    if other.is_alive():
        other.kill()
    there.close()
    back.close()
    for part in (name + "a", name + "b"):
        if hasattr(rival, "clean"):
            rival.clean(part)
    return sorted(found[count // 10 :])
