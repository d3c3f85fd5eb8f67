"""Subscriptions that begin in an archive and go on live, again and again: each message once, in order, and nothing lost.

A publication begins when all of the one before is recorded, so one order is promised for all messages.
A stage is a channel with an archive, and joins of it: while publications send and end and begin again, recorders end and begin again, the
archive is a folder, another process's, away for a while, or a copy that lags.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import penstock
from evidence.report import Row
from tests.ports import free_port

TERM = 1 << 16
PATIENCE = 300.0  # seconds for a message
JOINS = 10  # of a stage
AT_ONCE = 6  # stages: most of their time they wait
BYTES_MAX = 100_000  # of a publication: its log still has all of them, for a recorder that begins again


class Stage:
    """A channel, its publication with another receiver that takes all, its archive and its recorder. sent: all messages, in order."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice, self.folder = dice, folder
        self.uri, own = f"udp://127.0.0.1:{free_port()}/7", f"127.0.0.1:{free_port()}"
        self.archive = penstock.Archive(folder / "archive")
        self.sent: list[bytes] = []
        self.did: Counter[str] = Counter()
        self._other, self._own = penstock.subscribe(f"udp://{own}/7", codec="bytes"), own
        self._drain = threading.Thread(target=self._take)
        self._publications = 0
        self._recordings: dict[int, int] = {}  # each one's publication
        self._server: Any = None
        self._recorder: Any = None

    def __enter__(self) -> Self:
        self._drain.start()
        self._publish()
        self._record()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pub.close()
        self._recorder.stop()
        if self._server is not None:
            self._server.close()
        self._other.close()
        self._drain.join()

    def _take(self) -> None:
        try:
            while True:
                self._other.recv()
        except penstock.Closed:
            pass

    def _publish(self) -> None:
        self.pub = penstock.publish(self.uri, codec="bytes", term_length=TERM, destinations=[self._own])
        self._publications += 1
        self._begun = 0

    def _record(self) -> None:
        self._recorded = self._publications  # the first publication that it records, from its beginning
        self._recorder = self.archive.record(
            self.uri, sent=True, start="earliest", sync_interval=self.dice.choice((0.002, 0.02)), segment_length=TERM
        )

    def send(self, count: int) -> None:
        """So many messages, unless the publication's log would forget its first ones."""
        for _ in range(count):
            if self._begun > BYTES_MAX:
                return
            message = b"%d %d " % (self._publications, len(self.sent)) + b"x" * self.dice.choice((0, 20, 300, 2000))
            self._begun = self.pub.send(message, timeout=PATIENCE)
            self.sent.append(message)

    def act(self) -> None:
        """Something that may happen between two joins."""
        what = self.dice.choice(("send", "send", "recorder", "publication", "copy"))
        self.did[what] += 1
        if what == "recorder":
            self._recorder.stop()
            self.send(self.dice.randrange(5))
            self._record()
        elif what == "publication" or self._begun > BYTES_MAX // 2:
            self.pub.close()
            self._await_recorder()
            self._publish()
        elif what == "copy":
            self.archive.replicate(self.folder / "copy")
        self.send(self.dice.randrange(60))

    def _await_recorder(self) -> None:
        """All that was sent since the recorder began is in a recording of its publication."""
        count = Counter(int(message.split()[0]) for message in self.sent)
        deadline = time.monotonic() + PATIENCE
        for number in range(self._recorded, self._publications + 1):
            while (there := self._count_recorded(number)) < count[number]:
                if time.monotonic() > deadline:
                    raise AssertionError(
                        f"{there} of {count[number]} messages of publication {number} are recorded after {PATIENCE} seconds"
                    )
                time.sleep(0.002)

    def _count_recorded(self, number: int) -> int:
        """The messages of a publication in the recording that has most of them: each recorder begins one."""
        found = [info for info in self.archive.list() if info.messages]
        return max((info.messages for info in found if self._publication_of(info.id) == number), default=0)

    def _publication_of(self, recording: int) -> int:
        if recording not in self._recordings:
            self._recordings[recording] = int(next(self.archive.replay(recording)).data.split()[0])
        return self._recordings[recording]

    def join(self) -> None:
        """A subscription that reads from the beginning, while more is sent, and some of what is live."""
        where: Any = self.archive.path
        way = self.dice.choice(("folder", "folder", "folder", "server", "copy", "copy"))
        if way == "server":
            self._server = self._server or self.archive.serve(f"127.0.0.1:{free_port()}")
            where = self._server.uri
        elif way == "copy":
            self._await_recorder()  # a copy without it looks as if nobody recorded any longer
            self.archive.replicate(self.folder / "copy")
            where = self.folder / "copy"
        self.did[way] += 1
        away = way == "server" and self.dice.random() < 0.3
        with penstock.subscribe(self.uri, start="earliest", archive=where, codec="bytes") as sub:
            got = 0
            left, deadline = self.dice.randrange(40), time.monotonic() + PATIENCE
            while got < len(self.sent) or left > 0:
                if left > 0 and self.dice.random() < 0.3:
                    self.send(1)
                    left -= 1
                if away and self.dice.random() < 0.1:
                    away, listen = False, self._server.uri.removeprefix("grpc://")
                    self._server.close()
                    self._server = self.archive.serve(listen)
                    self.did["away"] += 1
                if way == "copy" and self.dice.random() < 0.1:
                    self.archive.replicate(self.folder / "copy")
                for message in sub.poll(self.dice.choice((1, 10, 1000))):
                    if message != self.sent[got]:
                        raise AssertionError(f"message {got} is {message[:20]!r}, not {self.sent[got][:20]!r}")
                    got += 1
                if time.monotonic() > deadline:
                    raise AssertionError(f"{got} of {len(self.sent)} messages by {way} after {PATIENCE} seconds")
            if sub.lost:
                raise AssertionError(f"{sub.lost} bytes are said to be lost")


def _stage(seed: int, count: int) -> tuple[int, str, dict[str, int]]:
    """A stage: how many joins it had, what went wrong, and what happened how often."""
    folder, done = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="penstock-joins-")), 0
    os.environ["PENSTOCK_DIR"] = str(folder / "channels")
    try:
        with Stage(random.Random(seed), folder) as stage:
            stage.send(stage.dice.randrange(100))
            while done < count:
                stage.act()
                stage.join()
                done += 1
        return done, "", dict(stage.did)
    except (AssertionError, penstock.PenstockError) as error:
        return done, f"python -m evidence.network joins --seed {seed} --count {count}   # {error}", {}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def joins(*, count: int, seed: int) -> Row:
    """The suite's row."""
    begun, did = time.monotonic(), Counter[str]()
    row = Row("joins", "subscriptions that began in an archive and went on live", 0)
    seeds = range(seed, seed + -(-count // JOINS))
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn"), max_tasks_per_child=100) as pool:
        for done, failure, happened in pool.map(_stage, seeds, [min(JOINS, count)] * len(seeds)):
            row.count += done
            row.failures += bool(failure)
            row.failure = row.failure or failure
            did.update(happened)
    row.seconds, row.details = time.monotonic() - begun, dict(did)
    return row
