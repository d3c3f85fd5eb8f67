"""Random histories of memory, recordings and tables: after each step a query gives exactly the rows that it must give.

`PENSTOCK_SEED=7 pytest tests/tables/lake` repeats the histories of one seed; a failure prints the seed and the steps.
`PENSTOCK_QUERIES=2000` says how many queries, as in CI; in long mode there are a million.
"""

import os
import random
import shutil

import pytest
from conftest import sized
from tables.lake.room import URI, Room, same, unmoved

import penstock

STEPS = 14  # of a history, and as many queries
QUERIES = int(os.environ.get("PENSTOCK_QUERIES") or sized(224, 560, 1_000_000))
PARTS = 8  # tests: they run beside each other
MOVES = {Room.record: 3, Room.stop: 1.5, Room.commit: 4, Room.join: 1, Room.purge: 0.6}
OTHERS = {Room.send: 6, Room.renew: 0.5, Room.cut: 0.8, Room.erase: 0.5}


def begins(room, had_table, before, now):
    """Whether a column has another type since a message was recorded: a stream without a table has the columns that its table would begin with.
    had_table: before the step, which may have made it."""
    is_recorded = bool(room.archive.list()) or room.has_table
    return (
        is_recorded
        and not had_table
        and before.num_rows == now.num_rows
        and before.schema.field("v") != now.schema.field("v")
    )


def live(folder, seed):
    """One history; its room."""
    rng, steps, before = random.Random(seed), [], None
    weights = MOVES | OTHERS
    room = Room(folder, rng)
    try:
        for _ in range(STEPS):
            (step,) = rng.choices(list(weights), list(weights.values()))
            steps.append(step.__name__)
            had_table = room.has_table
            step(room)
            now = unmoved(room.check())
            assert step not in MOVES or before is None or same(before, now) or begins(room, had_table, before, now)
            before = now
    except BaseException:
        print(f"Room({seed!r}):", *steps)
        raise
    finally:
        room.close()
        penstock.remove(URI)
    return room


@pytest.mark.parametrize("part", range(PARTS))
def test_a_query_has_each_row_once_after_any_history(tmp_path, rng, tally, part):
    queries, histories = 0, 0
    while queries < QUERIES / PARTS:
        folder = tmp_path / str(histories)
        folder.mkdir()
        queries += live(folder, f"{rng.randrange(1 << 32)}-{part}").queries
        shutil.rmtree(folder)
        histories += 1
    tally("histories of a lake", histories)
    tally("queries of a lake", queries)
