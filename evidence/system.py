"""Faults of the system: every system call of an operation fails once, in every way; every one is the last of its process."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pyarrow  # noqa: F401  loaded before any attack: a fault while it loads is not this library's

import penstock
from evidence.ptrace import Child, supported
from evidence.report import WORKERS, Row
from tests.ports import free_port

NETWORK_ERRORS = (errno.EAGAIN, errno.ENOBUFS, errno.EPERM, errno.ENETDOWN)
ERRORS = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.EIO, errno.EACCES, errno.EINTR)
MESSAGES = [b"message %d " % n + b"x" * (n * 37 % 900) for n in range(60)]


@dataclass
class Ground:
    """Where an operation works: channels and an archive of its own."""

    folder: Path

    @property
    def archive(self) -> penstock.Archive:
        """The archive."""
        return penstock.Archive(self.folder / "archive")


Step = Callable[[Ground], None]


@dataclass(frozen=True)
class Operation:
    """The steps before, the operation under attack, and the check afterwards."""

    name: str
    prepare: Step
    act: Step
    check: Step
    errors: tuple[int, ...] = ERRORS


def _fill(ground: Ground) -> None:
    with penstock.publish("log:subject", term_length=1 << 16) as pub:
        for message in MESSAGES:
            pub.send(message)


def _usable(ground: Ground) -> None:
    """After any failure, the channel can be made or joined, and carries messages."""
    with penstock.subscribe("log:subject", term_length=1 << 16) as sub, penstock.publish("log:subject") as pub:
        pub.send(b"after")
        deadline = time.monotonic() + 5
        while sub.recv(timeout=1) != b"after":
            assert time.monotonic() < deadline
    _nothing_else()


def _nothing_else() -> None:
    leftovers = [p.name for p in Path(os.environ["PENSTOCK_DIR"]).iterdir() if "subject" not in p.name]
    assert not leftovers, f"left behind: {leftovers}"


def _record(ground: Ground) -> None:
    """Records what the channel keeps, by hand: one thread, so that every call is seen."""
    archive = ground.archive
    recording_writer = archive._opener.open("log:subject", "earliest", False, 1 << 14, None)
    try:
        for _ in range(4):
            recording_writer.turn()
            recording_writer.sync()
        recording_writer.finish()
    finally:
        recording_writer.release()


def _recorded(ground: Ground) -> None:
    """A valid prefix is there, all of what was said to be synced, and recording goes on."""
    archive = ground.archive
    for damage in archive.verify():
        raise AssertionError(f"damage after a fault: {damage}")
    for info in archive.list():
        got = [m.data for m in archive.replay(info.id)]
        assert got == MESSAGES[: len(got)], f"recording {info.id} holds something else"
        assert info.synced_position <= info.end_position
    archive.repair()
    assert archive.verify() == []
    fresh = archive.record("log:subject", start="earliest")
    fresh.stop()
    newest = archive.list()[-1]
    assert [m.data for m in archive.replay(newest.id)] == MESSAGES


def _replay(ground: Ground) -> None:
    archive = ground.archive
    assert [m.data for m in archive.replay(1)] == MESSAGES
    damage = archive.verify()
    assert damage == [], damage


def _recorded_before(ground: Ground) -> None:
    _fill(ground)
    ground.archive.record("log:subject", start="earliest", segment_length=1 << 16).stop()


def _nothing(ground: Ground) -> None:
    pass


def _publish_more(ground: Ground) -> None:
    with penstock.publish("log:subject") as pub:
        for message in MESSAGES[:5]:
            pub.send(message, timeout=1)


PIPE = {"capacity": 1 << 16, "max_members": 8, "max_pipes": 16}


def _push(ground: Ground) -> None:
    with penstock.publish("pipe:subject", **PIPE) as push:
        for message in MESSAGES[:20]:
            push.send(message, timeout=1)


def _pull(ground: Ground) -> None:
    with penstock.subscribe("pipe:subject", **PIPE) as pull:
        for _ in range(5):
            pull.recv(timeout=1)


def _answer(ground: Ground) -> None:
    with (
        penstock.join("pipe:subject", role="dealer", name="d", **PIPE) as dealer,
        penstock.join("pipe:subject", role="router") as router,
    ):
        dealer.send(MESSAGES[1], timeout=1)
        assert router.recv(timeout=1).body == MESSAGES[1]
        router.send(MESSAGES[2], timeout=1, to="d")
        assert dealer.recv(timeout=1) == MESSAGES[2]


def _pipe_usable(ground: Ground) -> None:
    """The messages that are left arrive in order, each once, before new ones. Nothing else is left behind."""
    with penstock.publish("pipe:subject", **PIPE) as push, penstock.subscribe("pipe:subject") as pull:
        push.send(b"after", timeout=5)
        got = [pull.recv(timeout=5)]
        while b"after" not in got or penstock.wait([pull], 0.005):
            got.append(pull.recv(timeout=5))
        left = [message for message in got if message != b"after"]
        assert left == [message for message in MESSAGES if message in left]
        assert got.count(b"after") == 1
    _nothing_else()


def _sockets_usable(ground: Ground) -> None:
    _answer(ground)
    _nothing_else()


def _record_pipe(ground: Ground) -> None:
    """Records what is pushed, by hand."""
    archive = ground.archive
    with penstock.publish("pipe:subject", **PIPE) as push:
        recording_writer = archive._opener.open("pipe:subject", "newest", False, 1 << 16, None)
        try:
            for message in MESSAGES:
                push.send(message, timeout=1)
            while recording_writer.turn() > 0:
                pass
            recording_writer.finish()
        finally:
            recording_writer.release()


def _pipe_recorded(ground: Ground) -> None:
    archive = ground.archive
    archive.repair()
    assert archive.verify() == []
    for info in archive.list():
        got = [m.data["body"] for m in archive.replay(info.id)]
        assert got == MESSAGES[: len(got)], f"recording {info.id} holds something else"
    _pipe_usable(ground)


PORT = "PENSTOCK_EVIDENCE_PORT"


def _udp() -> str:
    return f"udp://127.0.0.1:{os.environ[PORT]}/7"


def _choose_port(ground: Ground) -> None:
    import penstock.kinds.udp.opener  # noqa: F401  loaded before any attack

    os.environ[PORT] = str(free_port())


def _send_over_udp(ground: Ground) -> None:
    """A fault may cost the operation, never a message or its order."""
    with (
        penstock.subscribe(_udp()) as sub,
        penstock.publish(_udp(), term_length=1 << 16, linger=0.1) as pub,
    ):
        for message in MESSAGES[:20]:
            pub.send(message, timeout=1)
        for message in MESSAGES[:20]:
            got = sub.recv(timeout=1)
            assert got == message, f"{got!r} instead of {message!r}"


def _udp_usable(ground: Ground) -> None:
    with penstock.subscribe(_udp()) as sub, penstock.publish(_udp(), term_length=1 << 16, linger=0.1) as pub:
        pub.send(b"after", timeout=5)
        while sub.recv(timeout=5) != b"after":  # the last messages of a publication that was killed may come first
            pass
    penstock.remove(_udp())
    left = [p.name for p in Path(os.environ["PENSTOCK_DIR"]).iterdir() if not p.name.endswith(".log")]
    assert not left, f"left behind: {left}"


OPERATIONS = [
    Operation("create", _nothing, _fill, _usable),
    Operation("attach and publish", _fill, _publish_more, _usable),
    Operation("subscribe", _fill, lambda g: penstock.subscribe("log:subject", start="earliest").close(), _usable),
    Operation("record and seal", _fill, _record, _recorded),
    Operation("replay and verify", _recorded_before, _replay, _recorded),
    Operation("push", _nothing, _push, _pipe_usable),
    Operation("pull", _push, _pull, _pipe_usable),
    Operation("ask and answer", _nothing, _answer, _sockets_usable),
    Operation("record a pipe", _nothing, _record_pipe, _pipe_recorded),
    Operation("send over udp", _choose_port, _send_over_udp, _udp_usable, (*ERRORS, *NETWORK_ERRORS)),
]


@contextlib.contextmanager
def _ground() -> Iterator[Ground]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-evidence-", dir="/dev/shm"))
    before = os.environ.get("PENSTOCK_DIR")
    channels = folder / "channels"
    channels.mkdir(mode=0o700)
    os.environ["PENSTOCK_DIR"] = str(channels)
    try:
        yield Ground(folder)
    finally:
        if before is None:
            del os.environ["PENSTOCK_DIR"]
        else:
            os.environ["PENSTOCK_DIR"] = before
        shutil.rmtree(folder)


def _under_attack(operation: Operation, **attack: int) -> tuple[str, int]:
    """The fault found afterwards, or nothing; and how many calls there were."""

    def act() -> None:
        with contextlib.suppress(penstock.PenstockError, OSError, MemoryError):
            operation.act(ground)

    with _ground() as ground:
        operation.prepare(ground)
        with Child(act) as child:
            calls = child.run(**attack)
            child.kill()
            wrong = "" if "kill_at" in attack else child.verdict
        if not wrong:
            try:
                operation.check(ground)
            except BaseException as error:
                wrong = f"{type(error).__name__}: {error}"
        return wrong, len(calls)


@dataclass(frozen=True)
class Attack:
    """One fault or one kill."""

    operation: int
    at: int
    number: int  # 0: kill


def attack(given: Attack) -> str:
    """Runs one; says what went wrong."""
    operation = OPERATIONS[given.operation]
    how = {"kill_at": given.at} if given.number == 0 else {"fail_at": given.at, "number": given.number}
    return _under_attack(operation, **how)[0]


def faults(*, long: bool, seed: int) -> list[Row]:
    """Two rows: calls that failed, processes killed at a call."""
    why = supported()
    if why:
        return [Row("system", "system calls made to fail", 0, skipped=why)]
    plan: list[Attack] = []
    kills: list[Attack] = []
    for index, operation in enumerate(OPERATIONS):
        wrong, count = _under_attack(operation)
        assert not wrong, f"{operation.name} without any fault: {wrong}"
        plan += [Attack(index, at, number) for at in range(count) for number in operation.errors]
        kills += [Attack(index, at, 0) for at in range(0, count, 1 + count // 400)]
    rng = random.Random(seed)
    rng.shuffle(plan)
    times = 7 if long else 1
    if not long:
        plan = plan[:2600]
    rows = []
    for what, chosen in (
        ("system calls made to fail", plan * times),
        ("recorders, writers, readers killed at a call", kills * times),
    ):
        begun = time.monotonic()
        with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
            answers = list(pool.map(attack, chosen, chunksize=20))
        failed = [(a, wrong) for a, wrong in zip(chosen, answers, strict=True) if wrong]
        row = Row("system", what, len(chosen), len(failed), time.monotonic() - begun)
        if failed:
            first, wrong = failed[0]
            row.failure = f"python -m evidence.system {first.operation} {first.at} {first.number}   # {wrong}"
            row.details = {f"{OPERATIONS[a.operation].name} call {a.at} errno {a.number}": w for a, w in failed[:40]}
        rows.append(row)
    return rows


if __name__ == "__main__":  # one attack again: number of the operation, of the call, errno (0: kill)
    print(attack(Attack(*map(int, sys.argv[1:4]))) or "all was well afterwards")
