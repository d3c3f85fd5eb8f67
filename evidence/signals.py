"""Signals at random instants of every command that runs for long: it ends, and what it was to write is whole or absent.

A third of the lives are the command as a shell starts it, so that signals come while it is imported and while it ends. The others are
forked from a process that has imported it: there most of a life is the command's work.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
from evidence.report import WORKERS, Row, show

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HANG = 120.0  # seconds after the last signal
MESSAGES = 400
LOG, ARCHIVE, MCAP, TABLES = "log:x", "recorded", "some.mcap", "tables"


@dataclass(frozen=True)
class Command:
    """A command. works: seconds of its life in which signals come. whole: what must hold of its folder afterwards."""

    words: tuple[str, ...]
    works: float = 0.4
    whole: Callable[[Path], None] = lambda folder: None
    fed: bool = False  # lines come on its standard input as long as it runs
    share: float = 1.0  # of the lives: the JVM takes seconds to start
    needs: str = ""  # a module


def _verifies(folder: Path) -> None:
    if (folder / "new").exists():
        with contextlib.suppress(penstock.NotFound):  # it was asked to end before it had made one
            archive = penstock.Archive(folder / "new", create=False)
            assert archive.verify() == [], archive.verify()
            archive.repair()
            for info in archive.list():
                got = [message.data for message in archive.replay(info.id)]
                assert got == [{"n": n} for n in range(len(got))], "other messages than were sent"


def _all_or_nothing(folder: Path) -> None:
    import pyarrow.dataset as datasets

    if (folder / "new").exists():
        rows = datasets.dataset([str(part) for part in (folder / "new").rglob("*.parquet")]).count_rows()
        assert rows == MESSAGES, f"{rows} of {MESSAGES} messages in an export that has its name"


def _whole_mcap(folder: Path) -> None:
    if (folder / "new.mcap").exists():
        from penstock.export.mcap import import_mcap

        done = import_mcap(folder / "again", folder / "new.mcap")
        assert done.rows == MESSAGES, f"{done.rows} of {MESSAGES} messages in an export that has its name"


COMMANDS = {
    "view": Command(("view", "--port", "0"), needs="foxglove"),
    "record": Command(("record", "new", LOG, "--start", "earliest"), whole=_verifies),
    "metrics": Command(("metrics", "--port", "0")),
    "monitor": Command(("monitor", "--port", "0", "--archive", ARCHIVE)),
    "top": Command(("top", "--every", "0.1")),
    "sub": Command(("sub", LOG, "--start", "earliest")),
    "pub": Command(("pub", "log:written"), fed=True),
    "play": Command(("play", ARCHIVE, "--onto", "again/")),
    "export": Command(("export", ARCHIVE, "new", "--parquet", "--processes", "1"), whole=_all_or_nothing),
    "export --mcap": Command(("export", ARCHIVE, "new.mcap", "--mcap"), whole=_whole_mcap, needs="mcap"),
    "import": Command(("import", "new", MCAP), whole=_verifies, needs="mcap"),
    "replay": Command(("replay", ARCHIVE, LOG, "--speed", "1"), works=0.3),
    "demo": Command(("demo", "--seconds", "1", "--out", "new"), works=8, share=0.02, needs="pyspark"),
    "pipeline": Command(("pipeline", ARCHIVE, "--out", TABLES, "--follow"), works=15, share=0.02, needs="pyspark"),
}


def _world() -> Path:
    """A folder with channels, an archive and an MCAP file, of which each life gets a copy."""
    world = Path(tempfile.mkdtemp(prefix="penstock-signals-"))
    (world / "channels").mkdir(mode=0o700)
    os.environ["PENSTOCK_DIR"] = str(world / "channels")
    archive = penstock.Archive(world / ARCHIVE)
    with penstock.publish(LOG, codec="json", capacity=1 << 16) as pub:
        recorder = archive.record(LOG)
        for n in range(MESSAGES):
            pub.send({"n": n})
            if n % 50 == 0:
                time.sleep(0.005)  # a rhythm for those that play it again
        recorder.stop()
    with contextlib.suppress(penstock.PenstockError, ImportError):
        from penstock.export.mcap import export_mcap

        export_mcap(world / ARCHIVE, world / MCAP)
    return world


@dataclass(frozen=True)
class Life:
    """One run of a command: after `at` seconds each time a signal."""

    command: str
    forked: bool
    signals: tuple[tuple[float, int], ...]

    def __str__(self) -> str:
        sent = ", ".join(f"{signal.Signals(number).name} after {at:.4f} s" for at, number in self.signals)
        return f"{self.command} ({'forked' if self.forked else 'started'}): {sent}"


def _lives(name: str, count: int, rng: random.Random) -> list[Life]:
    command = COMMANDS[name]
    made = []
    for number in range(max(1, round(count * command.share))):
        forked = number % 3 != 0 and command.share == 1
        spread = command.works if forked or command.share < 1 else command.works + 1.0  # its start takes that long
        at, sent = rng.uniform(0, spread), []
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            sent.append((at, int(rng.choice(SIGNALS))))
            at = rng.choice((0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.2)))
        made.append(Life(name, forked, tuple(sent)))
    return made


@contextlib.contextmanager
def _held() -> Iterator[None]:
    """Signals wait meanwhile: between a fork and a handler of its own, a child would take one as its parent does, or lose it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _heed(interrupted: Any = signal.SIG_DFL) -> None:
    """Of a child, before it works. A new interpreter has a handler of its own for SIGINT."""
    os.setsid()
    for number in SIGNALS:
        signal.signal(number, interrupted if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _started(words: tuple[str, ...], folder: Path, fed: int) -> int:
    out = (folder / "out").open("ab")
    command = [sys.executable, "-m", "penstock", *words]
    with _held():
        child = subprocess.Popen(command, cwd=folder, stdin=fed, stdout=out, stderr=out, preexec_fn=_heed)
    child.returncode = 0  # waited for by its number
    return child.pid


def _forked(words: tuple[str, ...], folder: Path, fed: int) -> int:
    from penstock import cli

    with _held():
        pid = os.fork()
        if pid:
            return pid
        _run(cli, words, folder, fed)
    raise AssertionError("a child ends in its work")


def _run(cli: Any, words: tuple[str, ...], folder: Path, fed: int) -> None:
    status = 1
    try:
        out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for fd, number in ((fed, 0), (out, 1), (out, 2)):
            os.dup2(fd, number)
        sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", closefd=False) for n in range(3))  # noqa: SIM115
        os.chdir(folder)
        _heed(signal.default_int_handler)
        status = cli.run(list(words))
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    finally:
        try:
            os._exit(status)
        finally:  # a signal came just before
            os._exit(1)


def _live(world: Path, life: Life) -> str:
    """Empty if all was well."""
    command = COMMANDS[life.command]
    folder = Path(tempfile.mkdtemp(prefix="life-", dir=world))
    try:
        for name in (ARCHIVE, MCAP, "channels"):
            source = world / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            elif source.exists():
                shutil.copy(source, folder / name)
        (folder / "channels").chmod(0o700)
        os.environ["PENSTOCK_DIR"] = str(folder / "channels")
        os.environ["XDG_CACHE_HOME"] = os.environ["TMPDIR"] = str(folder)
        fed, feeding = os.pipe()
        pid = (_forked if life.forked else _started)(command.words, folder, fed)
        os.close(fed)
        try:
            os.write(feeding, b"a line\n" * 1000)
            if not command.fed:
                os.close(feeding)
                feeding = -1
            for at, number in life.signals:
                time.sleep(at)
                if _ended(pid):
                    break
                os.kill(pid, number)
            else:
                give_up = time.monotonic() + HANG
                while not _ended(pid):
                    if time.monotonic() > give_up:
                        return f"{life}: it did not end"
                    time.sleep(0.002)
        finally:
            if feeding >= 0:
                os.close(feeding)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # and what it left behind
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        try:
            command.whole(folder)
        except (AssertionError, OSError, penstock.PenstockError) as error:
            return f"{life}: {error}"
        said = (folder / "out").read_bytes() if (folder / "out").exists() else b""
        return f"{life}: {said[-300:]!r}" if b"fault of Penstock" in said else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ended(pid: int) -> bool:
    """Whether the child has ended; it is not waited for, so that its number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _installed(name: str) -> bool:
    import importlib.util

    return not name or importlib.util.find_spec(name) is not None


def ends(*, long: bool, seed: int, only: str = "", count: int = 0) -> list[Row]:
    """A row for each command: lives, and those that did not end or left something torn. only: that command; count: so many lives."""
    rows, world, before = [], _world(), dict(os.environ)
    try:
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
            for name, command in COMMANDS.items():
                if only and name != only:
                    continue
                if not _installed(command.needs) or (not long and command.share < 1):
                    continue
                begun = time.monotonic()
                lives = _lives(name, count or (1000 if long else 9), random.Random(f"{seed} {name}"))
                wrong = [text for text in pool.map(_live, [world] * len(lives), lives) if text]
                row = Row("signals", f"lives of penstock {name}", len(lives), len(wrong), time.monotonic() - begun)
                row.failure = (
                    f"python -m evidence.signals '{name}' --seed {seed} --count {len(lives)}   # {wrong[0]}"
                    if wrong
                    else ""
                )
                rows.append(row)
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(world, ignore_errors=True)
    return rows


def main() -> int:
    """0 if no life failed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.signals", description=__doc__)
    parser.add_argument("command", choices=COMMANDS, help="the command whose lives are tried")
    parser.add_argument("--count", type=int, default=1000, help="lives")
    parser.add_argument("--seed", type=int, default=0, help="0: a fresh one, printed")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"signals, --seed {seed}", flush=True)
    rows = ends(long=True, seed=seed, only=given.command, count=given.count)
    show(rows)
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
