"""Runs the suites and prints one table. `--mode long` for the full counts."""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from evidence import bugs, living, mcap, model, native, network, pytest_suites, recordings, signals, sim, system, tmpfs
from evidence.joins import joins
from evidence.network_room import room
from evidence.pytest_suites import PYTEST_SUITES
from evidence.report import WHOLE, Row, save, show


def suites(*, long: bool, seed: int, part: tuple[int, int] = WHOLE) -> dict[str, Callable[[], list[Row]]]:
    """Every suite by name, in the order of the table."""
    less = 1 if part == WHOLE else 4  # a part tries a quarter of what is random: it is one of many
    return {
        "model": lambda: [
            *model.exhaust(long=long, part=part),
            model.wander(count=500_000 if long else 20_000 // less, seed=seed),
        ],
        "mutants": lambda: [model.weaken(long=long, part=part)],
        "kill": lambda: native.kill(long=long, seed=seed),
        "hostile": lambda: [
            native.fuzz(native.fuzz_targets(long=long), parts=native.WORKERS if long else 1, seed=seed),
            native.scribble(long=long, seed=seed),
        ],
        "system": lambda: [*system.faults(long=long, seed=seed), tmpfs.sizes(long=long)],
        "living": lambda: living.counts(long=long, seed=seed),
        "recording": lambda: [native.corrupt(long=long, seed=seed), recordings.damage(long=long, seed=seed)],
        "mcap": lambda: [mcap.damage(long=long, seed=seed)],
        "simulator": lambda: [
            sim.recordings(count=500_000 if long else 8_000 // less, seed=seed),
            native.network(lives=network.LIVES if long else 20_000 // less, seed=seed),
        ],
        "room": lambda: [
            room(count=network.HISTORIES if long else 500, seed=seed, long=long),
            joins(count=network.JOINS if long else 100, seed=seed),
        ],
        "signals": lambda: signals.ends(long=long, seed=seed),
        **{one.name: partial(pytest_suites.run, one, long=long, seed=seed) for one in PYTEST_SUITES},
        "bugs": lambda: [bugs.kill_all(part)],
        "sanitizer": lambda: [
            native.sanitizers(long=long, seed=seed, part=part),
            *([native.python_tests()] if long else []),
        ],
    }


# Long suites that take turns where a part is asked for.
TURNS = (("kill", "hostile", "system", "living"), ("recording", "mcap", "simulator", "signals"))


def in_turn(names: Iterable[str], part: tuple[int, int]) -> list[str]:
    """The suites of a part: all of them for the whole."""
    k, n = part
    return [name for name in names if n == 1 or name not in TURNS[(k // 2 + 1) % 2]]


def main() -> int:
    """0 if no suite found a failure."""
    parser = argparse.ArgumentParser(prog="python -m evidence", description=__doc__)
    parser.add_argument("suites", nargs="*", help="only these")
    parser.add_argument("--mode", choices=("short", "long"), default="short")
    parser.add_argument("--seed", type=int, default=0, help="0: a fresh one, printed")
    parser.add_argument(
        "--no-suites", action="store_true", help="leave out the suites that are tests: `make test` runs those"
    )
    parser.add_argument(
        "--part",
        default="0/1",
        metavar="K/N",
        help="every N-th planted bug, weakened order, scenario at its full budget, from the K-th on; one sanitizer; half of the long suites",
    )
    parser.add_argument("--json", type=Path, help="write the rows here too")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"evidence, {given.mode}, --seed {seed}", flush=True)
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # Python warns of forks beside threads; these children do not live on
    k, _, n = given.part.partition("/")
    part = int(k or 0), int(n)
    every = suites(long=given.mode == "long", seed=seed, part=part)
    unknown = [name for name in given.suites if name not in every]
    if unknown:
        parser.error(f"no suite is called {unknown[0]}; there are {', '.join(every)}")
    rows: list[Row] = []
    tests = {"room", *(suite.name for suite in PYTEST_SUITES)} if given.no_suites else set()
    for name in given.suites or in_turn((name for name in every if name not in tests), part):
        print(f"  {name} …", flush=True)
        rows += every[name]()
        if given.json:  # after every suite: a long run that is cut off has said what it found
            save(rows, given.json)
    show(rows)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
