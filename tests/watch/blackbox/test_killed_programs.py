"""Every program and the recorder are killed at random instants under load, and then a snapshot is taken: each message that was committed
in the time asked for is in it, in order, none twice.

`PENSTOCK_LONG=1` plays 100,000 rounds, `PENSTOCK_ROUNDS=n` n of them. Up to 1,000, as in CI, they end early on a machine that is too slow for
them in a minute; the tally says how many there were.
"""

import os
import tempfile
import time
from pathlib import Path

import pytest
from conftest import memory_folder, sized
from watch.blackbox.killed_programs import kill_and_snapshot, load_all

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS") or sized(24, 100, 100_000))
PARTS = max(4, ROUNDS // 250)  # above five minutes a test counts as hanging
SECONDS = 30 if ROUNDS <= 1000 else None  # of each part: two of them run at a time


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_snapshot_after_kills_has_all(part, rng, tally):
    begun, rounds, found = time.monotonic(), 0, 0
    load_all()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:  # disks sync for longer than the rest takes
        for number in range(part, ROUNDS, PARTS):
            if SECONDS is not None and found and time.monotonic() - begun > SECONDS:
                break
            found += kill_and_snapshot(rng, Path(folder) / str(number))
            rounds += 1
    tally("rounds of kill -9 and a snapshot", rounds)
    assert found > 0
