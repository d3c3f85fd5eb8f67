"""The long runs of the network log alone: simulated lives, and datagrams into its parsers and both state machines.

`python -m evidence.network lives` and `fuzz`, for `make lives` and `make fuzz`.
"""

from __future__ import annotations

import argparse
import random
import sys

from evidence import native
from evidence.room import show

LIVES, DATAGRAMS = 2_000_000, 100_000_000
TARGETS = ("wire", "receiver", "sender")


def main() -> int:
    """0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.network", description=__doc__)
    parser.add_argument("run", choices=("lives", "fuzz"))
    parser.add_argument(
        "--count", type=int, default=0, help=f"lives, or inputs of datagrams; {LIVES:,} and {DATAGRAMS:,} unless given"
    )
    parser.add_argument("--seed", type=int, default=0, help="0: a fresh one, printed")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"{given.run}, --seed {seed}", flush=True)
    if given.run == "lives":
        row = native.network(lives=given.count or LIVES, seed=seed)
    else:
        each = -(-(given.count or DATAGRAMS) // len(TARGETS) // native.PARSES)
        chosen = {name: (each, native.FUZZ[name][2]) for name in TARGETS}
        row = native.fuzz(chosen, parts=native.WORKERS, seed=seed)
    show([row])
    return int(bool(row.failures))


if __name__ == "__main__":
    sys.exit(main())
