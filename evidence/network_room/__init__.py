"""Three machines with a hostile network between them: histories by seed, each judged by an oracle. Needs root.

`python -m evidence.network_room --seed N --histories K`. A history's plan follows from its seed; what its packets meet also depends on
the machine's timing, so a failure may need some tries to come again.
"""

from __future__ import annotations

# All that programs need is loaded once, before they are forked.
import asyncio  # noqa: F401
import encodings.idna  # noqa: F401
import gc
import json
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs  # noqa: F401

import penstock.front.opening
import penstock.kinds.udp.history.subscription
import penstock.kinds.udp.opener
import penstock.record.serve.server
import penstock.record.session_history  # noqa: F401
from evidence.network_room.history import History
from evidence.network_room.plan import drawn
from evidence.network_room.wire import Wire, why_not
from evidence.report import Row

__all__ = ["drawn", "room", "run", "why_not"]

AT_ONCE = 24  # histories: most of their time they wait
RETRY = "python -m evidence.network_room --seed {} --histories 1"


def _live(seed: int, wire: Wire, slot: int, root: Path, *, long: bool) -> None:
    """One history, in a process of its own. Its result is a file."""
    folder = root / f"{seed}"
    folder.mkdir()
    found: dict[str, Any] = {"seed": seed}
    try:
        history = History(drawn(seed, long=long), wire, slot, folder)
        history.run()
        found |= {"problems": history.problems, "counts": history.counts}
    except BaseException:
        found["problems"] = [traceback.format_exc()]
    (root / f"{seed}.new").write_text(json.dumps(found))
    (root / f"{seed}.new").rename(root / f"{seed}.json")


def run(seed: int, count: int, root: Path, *, at_once: int = AT_ONCE, long: bool = False) -> Iterator[dict[str, Any]]:
    """The results of `count` histories from a seed on, as they end: seed, problems, counts. Folders of those that failed stay."""
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection would copy the pages of all that was loaded into each program
    wire = Wire(at_once, seed)
    free, running = list(range(at_once)), dict[int, tuple[int, int]]()
    seeds = iter(range(seed, seed + count))
    try:
        while True:
            while free and (next_seed := next(seeds, None)) is not None:
                slot = free.pop(0)
                pid = os.fork()
                if pid == 0:
                    try:
                        _live(next_seed, wire, slot, root, long=long)
                    finally:
                        os._exit(0)
                running[pid] = next_seed, slot
            if not running:
                return
            pid, _ = os.wait()
            if pid not in running:
                continue
            done, slot = running.pop(pid)
            free.append(slot)
            path = root / f"{done}.json"
            result = (
                json.loads(path.read_text())
                if path.exists()
                else {"seed": done, "problems": ["it ended without a result"]}
            )
            if not result["problems"]:
                shutil.rmtree(root / f"{done}", ignore_errors=True)
            yield result
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        wire.close()
        gc.enable()
        gc.unfreeze()


def room(*, count: int, seed: int, long: bool = False) -> Row:
    """The suite's row."""
    begun, reason = time.monotonic(), why_not()
    what = "histories of three machines with a hostile network"
    if reason:
        return Row("room", what, 0, skipped=reason)
    counts: Counter[str] = Counter()
    row = Row("room", what, 0)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-room-") as folder:
        for result in run(seed, count, Path(folder), long=long):
            row.count += 1
            counts.update(result.get("counts", {}))
            if result["problems"]:
                row.failures += 1
                row.failure = row.failure or f"{RETRY.format(result['seed'])}   # {result['problems'][0]}"
    row.seconds, row.details = time.monotonic() - begun, dict(counts)
    return row
