"""Conducts one history: starts its programs on the machines, brings their troubles, mends all, waits for the end, and has it judged."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import penstock
from evidence.network_room import programs
from evidence.network_room.oracle import Judge, sent
from evidence.network_room.plan import MTU, SILENCE, TERM, Plan, Trouble
from evidence.network_room.wire import HOSTS, Way, Wire, address
from penstock.kinds.udp import keys

PATIENCE = 300.0  # seconds until the end must have come
FORGOTTEN = 4.0  # seconds of silence after which a sender goes on without a receiver, or a little less
_libc = ctypes.CDLL(None, use_errno=True)
STUCK = 100.0  # seconds after which a program writes where it is
DIE_WITH_PARENT = 1  # of prctl(2)


@dataclass
class Program:
    """A program that runs or has run. begun: which one of its name it is, from 0 on."""

    name: str
    begun: int
    pid: int
    lines: int  # a descriptor of the file in which it writes them
    alive: bool = True
    killed: bool = False
    started: float = field(default_factory=time.time)
    heard: list[list[Any]] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    rest: bytes = b""

    def said(self) -> list[list[Any]]:
        """Its lines so far. A line that was cut off is none."""
        while piece := os.read(self.lines, 1 << 16):
            *lines, self.rest = (self.rest + piece).split(b"\n")
            for line in lines:
                self.heard.append(json.loads(line))
                self.words.add(self.heard[-1][1])
        return self.heard

    def has_said(self, *words: str) -> bool:
        """Whether one of its lines is one of these."""
        self.said()
        return not self.words.isdisjoint(words)


class History:
    """One history. folder: its own. slot: its share of the wire."""

    def __init__(self, plan: Plan, wire: Wire, slot: int, folder: Path) -> None:
        self._plan, self._wire, self._slot, self._folder = plan, wire, slot, folder
        self._dice = random.Random(plan.seed + 1)
        self._stop = folder / "stop"
        self._stop_readers = folder / "stop-readers"
        self._stop_recorder = folder / "stop-recorder"
        self._programs: list[Program] = []
        self._ways = {(a, b): plan.way for a in range(HOSTS) for b in range(HOSTS) if a != b}
        self._moved = [0] * HOSTS
        self._begun = time.monotonic()
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}
        for host in range(HOSTS):
            (folder / f"m{host}").mkdir()
        if plan.keyed:
            keys.create(folder / "key")

    def run(self) -> None:
        """From the beginning to the judgement."""
        wire, slot = self._wire, self._slot
        wire.set(slot, self._ways)
        try:
            self._conduct()
        finally:
            for program in self._programs:
                self._end(program)
            wire.set(slot, {hosts: Way() for hosts in self._ways})
            for host, moved in enumerate(self._moved):
                if moved:
                    self._readdress(host, moved, 0)
        self._judge()

    # ---- programs ----

    def _uri(self, name: str) -> str:
        """A channel as the programs of a machine name it."""
        port = 20_000 + self._slot
        receivers = sorted({reader.host for reader in self._plan.readers})
        here = self._plan.host_of(name)
        return f"udp://{address(self._slot, receivers[0]) if here == 0 else '0.0.0.0'}:{port}/7"

    def _work(self, name: str, begun: int) -> Callable[[programs.Told], None]:
        plan, uri = self._plan, self._uri(name)
        archive = self._folder / "archive"
        if name == "recorder":
            assert plan.recorder is not None
            serve = f"0.0.0.0:{30_000 + self._slot}" if plan.recorder.serves else ""
            return partial(
                programs.record, stop=self._stop_recorder, uri=uri, folder=archive, sent=plan.recorder.sent, serve=serve
            )
        number = int(name[-1])
        if name.startswith("reader"):
            one = plan.readers[number]
            place = str(archive)
            if one.archive == "served":
                assert plan.recorder is not None
                place = f"grpc://{address(self._slot, plan.recorder.host)}:{30_000 + self._slot}"
            return partial(programs.read, stop=self._stop_readers, uri=uri, archive=place if one.archive else "")
        sends = plan.publishers[number]
        receivers = sorted({reader.host for reader in plan.readers})
        options: dict[str, Any] = {"term_length": TERM, "mtu": MTU, "flow_control": plan.flow}
        if len(receivers) > 1:
            options["destinations"] = [f"{address(self._slot, host)}:{20_000 + self._slot}" for host in receivers[1:]]
        return partial(
            programs.publish,
            stop=self._stop,
            uri=uri,
            number=number + 10 * begun,
            count=sends.count,
            burst=sends.burst,
            pause=sends.pause,
            longest=sends.longest,
            waits=sends.waits if begun == 0 else 0,
            options=options,
        )

    def _start(self, name: str) -> None:
        begun = sum(program.name == name for program in self._programs)
        lines, host, work = self._folder / f"{name}.{begun}", self._plan.host_of(name), self._work(name, begun)
        pid = os.fork()
        if pid == 0:
            try:
                _libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
                atexit._clear()
                errors = os.open(f"{lines}.errors", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.dup2(errors, 2)
                os.environ["PENSTOCK_DIR"] = str(self._folder / f"m{host}" / "channels")
                os.environ.pop("PENSTOCK_KEY_FILE", None)
                if self._plan.keyed:
                    os.environ["PENSTOCK_KEY_FILE"] = str(self._folder / "key")
                self._wire.enter(host)
                faulthandler.dump_traceback_later(STUCK, file=errors)
                told = programs.Told(lines)
                try:
                    work(told)
                except BaseException:
                    told.say("failed", traceback.format_exc())
                atexit._run_exitfuncs()  # a publication that is closed still sends what it has
            finally:
                os._exit(0)
        self._programs.append(Program(name, begun, pid, os.open(lines, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)))

    def _end(self, program: Program) -> None:
        """Kills a program that runs."""
        if program.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGKILL)
            os.waitpid(program.pid, 0)
            program.alive = False
            program.killed = not program.has_said("closed", "stopped", "failed")

    def _now(self, name: str) -> Program | None:
        return next((one for one in reversed(self._programs) if one.name == name), None)

    def _look(self) -> None:
        """Which programs have ended."""
        for program in self._programs:
            if program.alive and os.waitpid(program.pid, os.WNOHANG)[0]:
                program.alive = False
                if not program.has_said("closed", "stopped"):
                    said = program.said()
                    self.problems.append(
                        f"{program.name}.{program.begun} ended: {said[-1][-1] if said else 'without a word'}"
                    )

    # ---- course ----

    def _conduct(self) -> None:
        plan, due = self._plan, list[tuple[float, int, Callable[[], None]]]()
        if plan.recorder is not None:
            self._start("recorder")
            if not self._until(lambda: self._said("recorder", "open"), "the recorder is there"):
                return
        for number, reader in enumerate(plan.readers):
            due.append((reader.begins, len(due), partial(self._start, f"reader{number}")))
        first = [f"reader{n}" for n, reader in enumerate(plan.readers) if reader.begins == 0]
        due.sort()
        while due and due[0][0] == 0:
            due.pop(0)[2]()
        if not self._until(lambda: all(self._said(name, "open") for name in first), "the readers are there"):
            return
        for number, publisher in enumerate(plan.publishers):
            due.append((publisher.begins, 100 + number, partial(self._start, f"publisher{number}")))
        for trouble in plan.troubles:
            due.append((trouble.at, 200 + len(due), partial(self._bring, trouble, due)))
        begun = time.monotonic()
        while due:
            due.sort(key=lambda one: one[:2])
            at, _, act = due[0]
            self._look()
            wait = begun + at - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, 0.05))
                continue
            due.pop(0)
            self._clock = at
            act()
        self._finish()

    def _said(self, name: str, *words: str) -> bool:
        program = self._now(name)
        return program is not None and program.has_said(*words, "failed")

    def _until(self, condition: Callable[[], bool], what: str) -> bool:
        while not condition():
            self._look()
            if self.problems or time.monotonic() > self._begun + PATIENCE:
                self.problems = self.problems or [f"it was waited in vain until {what}"]
                return False
            time.sleep(0.05)
        return True

    def _finish(self) -> None:
        """All is well again: publishers end, readers get all that there is, and end."""
        current = [self._now(name) for name in self._plan.names]
        running = [one for one in current if one is not None and one.name.startswith("publisher") and one.alive]
        if not self._until(lambda: all(one.has_said("done") for one in running), "the publishers have sent all"):
            return
        self._stop.touch()
        if not self._until(lambda: not any(one.alive for one in running), "the publishers are closed"):
            return
        readers = [one for one in current if one is not None and one.name.startswith("reader")]
        senders = [one for one in self._programs if one.name.startswith("publisher")]
        self._sent_all = sum(line[1] == "sent" for one in senders for line in one.said())
        if not self._until(lambda: all(self._is_settled(one) for one in readers), "the readers are told an end"):
            self.problems += [self._heard(one) for one in readers if not self._is_settled(one)]
            return
        self._stop_readers.touch()
        if self._until(lambda: not any(one.alive for one in readers), "the readers are closed"):
            self._stop_recorder.touch()
            self._until(lambda: not any(one.alive for one in self._programs), "the recorder is closed")

    def _is_settled(self, reader: Program) -> bool:
        """Whether a reader gets nothing more: an end was told, or it was heard nothing of for a while."""
        lines = [line for line in reader.said() if line[1] not in ("session", "heard")]
        if not lines or lines[-1][1] != "quiet":
            return False
        rounds, state = lines[-1][2], next(line[1] for line in reversed(lines) if line[1] != "quiet")
        if self._must_get_all(reader) and sum(line[1] == "got" for line in lines) < self._sent_all:
            return False
        is_waiting = state == "idle" and (
            reader.has_said("session") or self._plan.readers[int(reader.name[-1])].archive
        )
        return bool(rounds >= (programs.PATIENT if is_waiting else programs.QUIET))

    def _heard(self, reader: Program) -> str:
        """What a reader has said, in short."""
        lines = reader.said()
        got = sum(line[1] == "got" for line in lines)
        return f"{reader.name} has {got} of {self._sent_all} messages; last: {lines[-6:]}"

    def _must_get_all(self, reader: Program) -> bool:
        """Whether it begins in an archive that has all. A recorder that was long paused may find a publication late, when that keeps less."""
        plan, recorders = self._plan, [one for one in self._programs if one.name == "recorder"]
        paused = any(one.what == "pause" and one.who == "recorder" and one.for_s > SILENCE for one in plan.troubles)
        unbroken = plan.recorder is not None and plan.recorder.sent and not any(one.killed for one in recorders)
        return bool(unbroken and not paused and plan.readers[int(reader.name[-1])].archive)

    # ---- troubles ----

    def _bring(self, trouble: Trouble, due: list[tuple[float, int, Callable[[], None]]]) -> None:
        def later(act: Callable[[], None]) -> None:
            due.append((self._clock + trouble.for_s, 1000 + len(due), act))

        what = trouble.what
        if what in ("cut", "rough", "short"):
            pairs = [trouble.hosts, trouble.hosts[::-1]] if trouble.both else [trouble.hosts]
            for a, b in pairs:
                self._change((a, b), replace(self._ways[a, b], cut=True) if what == "cut" else trouble.way)
            later(lambda: [self._change((a, b), self._plan.way) for a, b in pairs] and None)
        elif what == "pause":
            program = self._now(trouble.who)
            if program is not None and program.alive:
                os.kill(program.pid, signal.SIGSTOP)
                later(lambda: self._resume(program))
        elif what == "kill":
            program = self._now(trouble.who)
            if program is not None and program.alive:
                self._end(program)
                if not program.killed:
                    return
                later(lambda: self._start(trouble.who))
        elif what == "power":
            self._cut_power(trouble.hosts[0], later)
        elif what == "move":
            host = trouble.hosts[0]
            self._readdress(host, self._moved[host], self._moved[host] + 1)
            self._moved[host] += 1
        else:
            raise AssertionError(what)

    def _change(self, hosts: Any, way: Way) -> None:
        self._ways[hosts] = way
        self._wire.set(self._slot, {hosts: way})

    def _resume(self, program: Program) -> None:
        if program.alive:
            os.kill(program.pid, signal.SIGCONT)

    def _readdress(self, host: int, before: int, after: int) -> None:
        slot = self._slot
        self._wire.address(
            host,
            [
                f"addr del {address(slot, host, before)}/24 dev wire",
                f"addr add {address(slot, host, after)}/24 dev wire",
            ],
        )

    def _cut_power(self, host: int, later: Callable[[Callable[[], None]], None]) -> None:
        """All programs of a machine die, and its shared memory; of the archive, what was not durable is in danger. It starts again."""
        names = []
        durable: dict[str, int] = {}
        for program in self._programs:
            if program.alive and self._plan.host_of(program.name) == host:
                self._end(program)
                names += [program.name] * program.killed
            if program.name == "recorder":
                for line in program.said():
                    durable |= line[2] if line[1] == "durable" else {}
        shutil.rmtree(self._folder / f"m{host}")
        (self._folder / f"m{host}").mkdir()
        for path in sorted((self._folder / "archive" / "recordings").glob("*/*.???")):
            size, kept = path.stat().st_size, durable.get(str(path))
            if kept is not None and size > kept:
                self._damage(path, kept, size)
        later(lambda: [self._start(name) for name in names] and None)

    def _damage(self, path: Path, kept: int, size: int) -> None:
        """A file's bytes behind those that are durable: some are gone, some are zero."""
        end = self._dice.choice((kept, size, self._dice.randint(kept, size)))
        os.truncate(path, end)
        with open(path, "r+b") as file:
            for at in range(kept, end, 512):
                if self._dice.random() < 0.3:
                    file.seek(at)
                    file.write(bytes(min(512, end - at)))

    # ---- judgement ----

    def _judge(self) -> None:
        plan = self._plan
        publishers = {
            int(one.name[-1]) + 10 * one.begun: sent(one.said(), plan.publishers[int(one.name[-1])].longest)
            for one in self._programs
            if one.name.startswith("publisher")
        }
        started = [one.started for one in self._programs if not one.name.startswith("publisher")]
        for (
            found
        ) in publishers.values():  # others than those that it waited for may have been there, before they said so
            if found.ready and sum(at < found.ready for at in started) > plan.publishers[0].waits:
                found.ready = None
        judge = Judge(publishers, MTU)
        receivers = {reader.host for reader in plan.readers}
        recorders = [one for one in self._programs if one.name == "recorder"]
        for one in self._programs:
            if one.name.startswith("reader"):
                archived = bool(plan.readers[int(one.name[-1])].archive)
                judge.reader(
                    f"{one.name}.{one.begun}",
                    one.said(),
                    killed=one.killed or bool(self.problems),
                    acked=len(receivers) == 1
                    or (plan.flow == "min" and all(t.for_s < FORGOTTEN for t in plan.troubles)),
                    whole=self._must_get_all(one),
                    archived=archived,
                )
        if plan.recorder is not None and not self.problems:
            self._judge_archive(judge, recorders)
        self.problems += judge.problems
        self.counts = dict(judge.counts)

    def _judge_archive(self, judge: Judge, recorders: list[Program]) -> None:
        archive = penstock.Archive(self._folder / "archive")
        archive.repair()  # a power cut leaves torn ends, which are no damage to what was durable
        durable: dict[int, int] = {}
        for one in recorders:
            for line in one.said():
                if line[1] == "synced":
                    durable[line[2]] = max(durable.get(line[2], 0), line[3])
        for info in archive.list():
            found = [(m.data, m.position, m.lost) for m in archive.replay(info.id)]
            judge.recording(f"recording {info.id} ({info.state})", found)
            if info.end_position < durable.get(info.id, 0):
                judge.problems.append(
                    f"recording {info.id} ends at {info.end_position}, and was reported durable up to {durable[info.id]}"
                )
        judge.problems += [f"the archive is damaged: {one}" for one in archive.verify()]
