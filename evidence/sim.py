"""The simulator's suite: many seeds of `tests/sim`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from evidence.build import ROOT
from evidence.report import WORKERS, Row

BATCH = 100


def _batch(first: int) -> str:
    sys.path.insert(0, str(ROOT / "tests"))
    from sim import recording

    for seed in range(first, first + BATCH):
        try:
            recording.simulate(seed)
        except AssertionError as error:
            return str(error).splitlines()[0]
    return ""


def recordings(*, count: int, seed: int) -> Row:
    """Writers, recorders that are killed, followers, power cuts, and what goes on beside them in the archive."""
    begun = time.monotonic()
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
        wrong = [w for w in pool.map(_batch, range(seed, seed + count, BATCH)) if w]
    row = Row("simulator", "seeds of recording and following", count, len(wrong), time.monotonic() - begun)
    if wrong:
        row.failure = f"make sim SEED={wrong[0].split()[1].rstrip(':')}   # {wrong[0]}"
    return row
