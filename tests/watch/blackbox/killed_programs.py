"""A round of the room: programs that write, read and record, all killed at a random instant under load, and a snapshot of what they left.

Each writer notes in pages of its own, which survive it, when it began each send, and how many have returned. So the room knows which messages
were committed, and when, without asking Penstock.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import time
from pathlib import Path

from crash.victims import check, message, start

import penstock

T = 1 << 16
KEPT = 1 << 13  # of the newest sends, how many begins are noted
SECOND = 10**9


class Notes:
    """A writer's notes: how many sends have returned, and the times of the newest ones."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 8 + KEPT * 8)

    def sent(self) -> int:
        return int.from_bytes(self._page[:8], "little")

    def begin(self, number: int) -> None:
        at = 8 + number % KEPT * 8
        self._page[at : at + 8] = time.time_ns().to_bytes(8, "little")

    def end(self, number: int) -> None:
        self._page[:8] = (number + 1).to_bytes(8, "little")

    def begun(self, number: int) -> int:
        at = 8 + number % KEPT * 8
        return int.from_bytes(self._page[at : at + 8], "little")


def write(channel: str, writer: int, notes: Notes, seed: int) -> None:
    rng, number = random.Random(seed), 0
    pub = penstock.publish(channel, **({"capacity": T} if channel.startswith("ring:") else {"term_length": T}))
    while True:
        data = message(writer, number, rng.randrange(rng.choice((60, 600))))
        notes.begin(number)
        pub.send(data)
        notes.end(number)
        number += 1


def read(channel: str, seed: int) -> None:
    rng = random.Random(seed)
    while True:
        with penstock.subscribe(channel) as sub:
            for _ in range(rng.randrange(1, 200)):
                sub.recv()


def record(channel: str, archive: Path) -> None:
    recorder = penstock.Archive(archive).record(channel, start="newest", sync_interval=0.01, segment_length=T)
    recorder.join()


def load_all() -> None:
    """Loads what the programs use, once: forked children have it then."""
    for channel in ("log:warm", "ring:warm"):
        with penstock.publish(channel) as pub, penstock.subscribe(channel):
            pub.send(b"")
        penstock.remove(channel)


def kill_and_snapshot(rng: random.Random, archive: Path, *, patient: float = 0.02) -> int:
    """One round. Returns how many committed messages were found, after it has asserted that none is missing, doubled or out of order."""
    kinds = {f"log:{name}": rng.randrange(1, 3) for name in ("a", "b")} | {"ring:c": 1}
    notes = {(channel, writer): Notes() for channel, count in kinds.items() for writer in range(count)}
    recorded = archive / "recorder"
    children = [start(write, channel, writer, page, rng.getrandbits(30)) for (channel, writer), page in notes.items()]
    children.append(start(read, rng.choice(list(kinds)), rng.getrandbits(30)))
    if rng.random() < 0.3:
        children.append(start(record, "log:a", recorded))
    if rng.random() < 0.9:  # else they may die before they have joined
        ready = time.monotonic() + 1
        while not any(page.sent() for page in notes.values()) and time.monotonic() < ready:
            time.sleep(0.0005)
    time.sleep(rng.random() * patient)
    rng.shuffle(children)
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    before = _some_time(rng, list(notes.values()))
    opened = penstock.Archive(archive / "box")
    since = time.time_ns() - int(before * SECOND)
    found = 0
    there = [status.channel for status in penstock.list_channels("*")]
    if there:
        done = opened.snapshot("*", before=before, note="round")
        since = done.time_ns - int(before * SECOND)
        assert not done.left_out, done.left_out
        begun = {part.channel: done.time_ns - int(part.held * SECOND) for part in done.short}
        assert not opened.verify()
        for channel, count in kinds.items():
            got = _of_writers(opened, channel, count)
            for writer in range(count):
                _check(got[writer], notes[channel, writer], max(since, begun.get(channel, since)), channel)
                found += len(got[writer])
    for name in there:
        penstock.remove(name)
    shutil.rmtree(archive)
    return found


def _some_time(rng: random.Random, notes: list[Notes]) -> float:
    """How many seconds to go back: mostly to a moment at which a writer began to send, and some message or other is the first one."""
    page, fixed = rng.choice(notes), rng.choice((None, None, None, 0.005, 0.02, 30.0))
    sent = page.sent()
    if fixed is not None or sent == 0:
        return fixed or 0.02
    return (time.time_ns() - page.begun(rng.randrange(max(0, sent - KEPT + 1), sent))) / SECOND


def _of_writers(archive: penstock.Archive, channel: str, count: int) -> list[list[int]]:
    got: list[list[int]] = [[] for _ in range(count)]
    if any(info.channel == channel for info in archive.list()):
        for one in archive.replay(channel):
            writer, number = check(one.data)
            got[writer].append(number)
    return got


def _check(got: list[int], notes: Notes, since: int, channel: str) -> None:
    """since: when the time asked for begins, or the oldest message that memory had."""
    sent, name = notes.sent(), f"{channel}, {notes.sent()} messages committed"
    assert not got or got == list(range(got[0], got[-1] + 1)), f"{name}: out of order, doubled or missing: {got}"
    assert not got or got[-1] <= sent, f"{name}: number {got[-1]} was never sent"
    due = [number for number in range(max(0, sent - KEPT + 1), sent) if notes.begun(number) > since]
    if due:
        assert got, f"{name}: those from {due[0]} on were sent in time, and none is there"
        assert got[0] <= due[0], f"{name}: number {due[0]} was sent in time, and {got[0]} is the first one there"
        assert got[-1] >= sent - 1, f"{name}: {got[-1]} is the last one there"
