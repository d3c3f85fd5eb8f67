"""Random histories of an archive and its tables: after any of them, each table has exactly the rows that it must have.

`PENSTOCK_SEED=7 pytest tests/tables/test_histories.py` repeats the histories of one seed; a failure prints the seed and the steps.
`PENSTOCK_HISTORIES=500` says how many, as in CI; in long mode there are 200,000.
"""

import os
import random
import shutil

import pytest
from conftest import sized
from tables.histories import others
from tables.histories.history import History

HISTORIES = int(os.environ.get("PENSTOCK_HISTORIES") or sized(20, 60, 200_000))
STEPS = 14
PARTS = 20  # tests: they run beside each other


def live(folder, seed):
    """One history; its steps and runs."""
    rng = random.Random(seed)
    history = History(folder, rng)
    weights = {History.append: 8, History.run: 8, History.purge: 1, History.cut: 1, **others.STEPS}
    if rng.random() < 0.1:
        history.lose()
    try:
        for _ in range(STEPS):
            (step,) = rng.choices(list(weights), list(weights.values()))
            step(history)
        history.finish()
    except BaseException:
        print(f"History({seed}):", *history.steps, sep="\n  ")
        raise
    return history


@pytest.mark.parametrize("part", range(PARTS))
def test_tables_have_each_row_once_after_any_history(tmp_path, rng, tally, part):
    steps, runs, number = 0, 0, 0
    while number < HISTORIES / PARTS:
        folder = tmp_path / str(number)
        folder.mkdir()
        found = live(folder, f"{rng.randrange(1 << 32)}-{part}")
        shutil.rmtree(folder)
        steps, runs, number = steps + STEPS + 1, runs + found.runs, number + 1
    assert runs > number / 2
    tally("steps of histories of tables", steps)
    tally("histories of tables", number)
