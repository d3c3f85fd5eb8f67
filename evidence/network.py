"""The long runs of the network log alone: simulated lives, datagrams into its parsers and both state machines, histories of three machines
with a hostile network, subscriptions that begin in an archive; and what is shown of it all.

`python -m evidence.network lives`, `fuzz`, `room` and `joins`, for `make lives`, `make fuzz`, `make room` and `make joins`; and `show`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence import native, network_show
from evidence.joins import joins
from evidence.network_room import room
from evidence.report import Row, show

LIVES, DATAGRAMS, HISTORIES, JOINS = 2_000_000, 100_000_000, 50_000, 100_000
TARGETS = ("wire", "receiver", "sender", "seal")
ROOT = Path(__file__).parents[1]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-O2", "-g", "-DPENSTOCK_TERM_LENGTH_MIN=256", *SANITIZERS)


def at_random(each: int, seed: int) -> Row:
    """The same targets over random inputs, where no compiler has libFuzzer: they reach less, and need any compiler."""
    folder, begun = ROOT / "build" / "fuzz-random", time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)

    def one(target: str) -> str:
        program, hostile = folder / target, ROOT / "native" / "hostile"
        build = ["c++", "-std=c++20", *FLAGS, "-I", str(ROOT / "native" / "core"), "-o", str(program)]
        subprocess.run([*build, str(hostile / f"fuzz_{target}.cpp"), str(hostile / "random_driver.cpp")], check=True)
        command = [str(program), "--seed", str(seed), "--runs", str(each)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=native.FUZZED)
        return f"{' '.join(command)}   # {done.stderr[-200:]}" if done.returncode else ""

    with ThreadPoolExecutor(native.WORKERS) as pool:
        failed = [wrong for wrong in pool.map(one, TARGETS) if wrong]
    what = f"random inputs parsed by {len(TARGETS)} targets (no libFuzzer)"
    count = each * len(TARGETS) * native.PARSES
    return Row("hostile", what, count, len(failed), time.monotonic() - begun, failed[0] if failed else "")


def main() -> int:
    """0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.network", description=__doc__)
    parser.add_argument("run", choices=("lives", "fuzz", "room", "joins", "show"))
    parser.add_argument(
        "--count",
        type=int,
        default=0,
        help=f"lives, inputs of datagrams, histories, joins; {LIVES:,}, {DATAGRAMS:,}, {HISTORIES:,}, {JOINS:,} unless given",
    )
    parser.add_argument("--seed", type=int, default=0, help="0: a fresh one, printed")
    given = parser.parse_args()
    if given.run == "show":
        return int(not network_show.main())
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"{given.run}, --seed {seed}", flush=True)
    if given.run == "lives":
        row = native.network(lives=given.count or LIVES, seed=seed)
    elif given.run == "room":
        row = room(count=given.count or HISTORIES, seed=seed, long=True)
    elif given.run == "joins":
        row = joins(count=given.count or JOINS, seed=seed)
    else:
        each = -(-(given.count or DATAGRAMS) // len(TARGETS) // native.PARSES)
        chosen = {name: (each, native.FUZZ[name][2]) for name in TARGETS}
        row = native.fuzz(chosen, parts=native.WORKERS, seed=seed) if native.compiler() else at_random(each, seed)
    show([row])
    return int(bool(row.failures))


if __name__ == "__main__":
    sys.exit(main())
