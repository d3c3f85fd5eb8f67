"""The number of the living: members of every kind are killed, stopped and started at random instants, and every counter is asked.

A member is *there* once it has said so, *coming* before that, and *dead* once it was waited for. No answer may have the dead, and none
may leave out what is there, stopped members among them.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import penstock
from evidence.report import Row
from penstock.watch import metrics
from tests.ports import free_port

SMALL: dict[str, dict[str, Any]] = {
    "log": {"capacity": 1 << 16, "max_members": 16},
    "sync": {"capacity": 1 << 16, "max_members": 16},
    "ring": {"capacity": 1 << 16, "max_members": 16},
    "pipe": {"capacity": 1 << 16, "max_members": 16, "max_pipes": 128},
    "frames": {"shape": (64,), "dtype": "u1", "buffers": 32, "max_members": 16},
    "udp": {"term_length": 1 << 16, "linger": 0.0},
}
ONE_WRITER = ("ring", "frames")
PATIENCE = 30.0  # seconds for what a network says later


def _address(kind: str) -> str:
    return f"udp://127.0.0.1:{free_port()}/7" if kind == "udp" else f"{kind}:living"


def _work(kind: str, uri: str, role: str, said: int, delay: float) -> None:
    """A member's life: it comes, says so, and reads or writes until it is killed."""
    time.sleep(delay)
    body: Any = bytearray(64)
    if role == "reader":
        with penstock.subscribe(uri) as sub:
            os.write(said, b".")
            while True:
                with contextlib.suppress(penstock.TimedOut):
                    sub.recv(timeout=0.01)
    with penstock.publish(uri, **SMALL[kind]) as pub:
        os.write(said, b".")
        while True:
            if kind == "frames":
                with pub.acquire() as frame:
                    frame.array[:] = 1
            else:
                pub.offer(body)
            time.sleep(0.001)


@dataclass
class Member:
    """A child. there: it has said so."""

    pid: int
    role: str
    heard: int
    there: bool = False
    stopped: bool = False

    def look(self) -> None:
        """Whether it has come by now."""
        if not self.there and select.select([self.heard], [], [], 0)[0]:
            self.there = bool(os.read(self.heard, 1))


@dataclass
class Stage:
    """A channel, this process's handle on it, and the members. role: of those that come and die."""

    kind: str
    rng: random.Random
    roles: tuple[str, ...]
    uri: str = ""
    handle: Any = None
    members: list[Member] = field(default_factory=list)
    kills: int = 0
    questions: int = 0
    wrong: list[str] = field(default_factory=list)

    def open(self) -> None:
        """The channel, and a handle that stays: it writes, unless the one writer is among those that die."""
        self.uri = _address(self.kind)
        if "writer" in self.roles and self.kind in ONE_WRITER:
            penstock.publish(self.uri, **SMALL[self.kind]).close()
            self.handle = penstock.subscribe(self.uri)
        else:
            self.handle = penstock.publish(self.uri, **SMALL[self.kind])

    def start(self) -> None:
        """A new member."""
        role = self.rng.choice(self.roles)
        if self.kind in ONE_WRITER and role == "writer" and self.of("writer", there=None):
            return
        delay = self.rng.choice((0, 0, self.rng.uniform(0, 0.003)))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                _work(self.kind, self.uri, role, write, delay)
            finally:
                os._exit(1)
        os.close(write)
        self.members.append(Member(pid, role, read))

    def kill(self, member: Member) -> None:
        """The member is dead when this returns."""
        os.kill(member.pid, signal.SIGKILL)
        os.waitpid(member.pid, 0)
        os.close(member.heard)
        self.members.remove(member)
        self.kills += 1

    def of(self, role: str, *, there: bool | None) -> list[Member]:
        """Members of the role: those that are there, those that are coming, or all."""
        return [one for one in self.members if one.role == role and there in (None, one.there)]

    def bounds(self, role: str) -> tuple[int, int]:
        """At least and at most so many of this role: this process's handle, and the children."""
        own = int((role == "writer") == hasattr(self.handle, "offer"))
        return own + len(self.of(role, there=True)), own + len(self.of(role, there=None))

    def say(self, way: str, right: bool, what: object) -> None:
        """One question and whether its answer was right."""
        self.questions += 1
        if not right:
            self.wrong.append(f"{self.kind}, {way}: {what}; there {self.bounds('writer')} {self.bounds('reader')}")

    def ask(self) -> None:
        """Every counter. A member that comes meanwhile may be in the answer or not."""
        for member in self.members:
            member.look()
        before = {role: self.bounds(role)[0] for role in ("writer", "reader")}
        must = {one.pid for one in self.members if one.there} | {os.getpid()}
        may = {one.pid for one in self.members} | {os.getpid()}
        status = self.handle.statistics()
        (listed,) = [one for one in penstock.list_channels() if one.channel == status.channel]
        found = {"statistics": status, "inspect": penstock.inspect(self.uri), "channels": listed}
        for way, one in found.items():
            pids = {member.pid for member in one.members}
            self.say(f"{way}, members", must <= pids <= may, (sorted(must), sorted(pids), sorted(may)))
            for role, count in (("writer", one.writers), ("reader", one.readers)):
                self.say(f"{way}, {role}s", before[role] <= count <= self.bounds(role)[1], count)
        text = metrics.text(members=True)
        pids = {int(part.split('"')[1]) for part in text.split("pid=")[1:]}
        self.say("metrics, members", must <= pids <= may, (sorted(must), sorted(pids), sorted(may)))
        if hasattr(self.handle, "offer"):
            self.ask_handle(before["reader"])

    def ask_handle(self, least: int) -> None:
        """The publication's own words."""
        if self.kind == "udp":  # its readers are told over the network
            deadline = time.monotonic() + PATIENCE
            while not self.near(least) and time.monotonic() < deadline:
                time.sleep(0.001)
            self.say("readers", self.near(least), self.handle.readers)
            return
        count = self.handle.readers
        self.say("readers", self.near(least), count)
        self.say("wait_for_readers", self.waits(least), least)
        self.say("wait_for_readers, too many", not self.waits(self.bounds("reader")[1] + 1), count)
        if self.bounds("reader")[1] == 0:
            self.say("lag", self.kind == "pipe" or self.handle.lag == 0, self.handle.lag)

    def near(self, least: int) -> bool:
        """Whether the handle's count can be right."""
        for member in self.members:
            member.look()
        return bool(min(least, self.bounds("reader")[0]) <= self.handle.readers <= self.bounds("reader")[1])

    def waits(self, count: int) -> bool:
        """Whether a wait says at once that there are so many."""
        try:
            self.handle.wait_for_readers(count, timeout=0)
        except penstock.TimedOut:
            return False
        return True

    def act(self) -> None:
        """One step: a member comes, is stopped or continued, or is killed, and everything is asked."""
        if len(self.members) < 6 and (not self.members or self.rng.random() < 0.55):
            self.start()
            time.sleep(self.rng.choice((0, self.rng.uniform(0, 0.004))))
            return
        member = self.rng.choice(self.members)
        if self.rng.random() < 0.2 and self.kind != "udp":  # over a network a stopped process is silent
            os.kill(member.pid, signal.SIGCONT if member.stopped else signal.SIGSTOP)
            member.stopped = not member.stopped
        else:
            self.kill(member)
        self.ask()

    def close(self) -> None:
        """Leaves nothing behind."""
        for member in list(self.members):
            self.kill(member)
        if self.handle is not None:
            self.handle.close()
        with contextlib.suppress(penstock.NotFound):
            penstock.remove(self.uri)


def _run(stage: Stage, kills: int) -> None:
    try:
        stage.open()
        while stage.kills < kills and not stage.wrong:
            stage.act()
    finally:
        stage.close()


def counts(*, long: bool, seed: int, kills: int | None = None) -> list[Row]:
    """Each kind in turn; those with one writer once with dying readers, and once with dying writers."""
    each = kills or (1000 if long else 30)
    began = time.monotonic()
    stages = [
        Stage(kind, random.Random(f"{seed} {kind} {roles}"), roles)
        for kind in SMALL
        for roles in ((("reader",), ("writer", "reader")) if kind in ONE_WRITER else (("reader", "writer"),))
    ]
    with _folder():
        for stage in stages:
            _run(stage, each)
    wrong = [text for stage in stages for text in stage.wrong]
    row = Row(
        "living",
        "kills of members, every counter asked",
        sum(stage.kills for stage in stages),
        failures=len(wrong),
        seconds=time.monotonic() - began,
        details={"questions": sum(stage.questions for stage in stages)},
    )
    if wrong:
        row.failure = f"python -m evidence living --seed {seed}: {wrong[0]}"
    return [row, Row("living", "questions about who lives", int(str(row.details["questions"])))]


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """Channels in a folder of this suite."""
    before, folder = os.environ.get("PENSTOCK_DIR"), tempfile.mkdtemp(prefix="penstock-living-", dir="/dev/shm")
    os.environ["PENSTOCK_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["PENSTOCK_DIR"]
        else:
            os.environ["PENSTOCK_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)
