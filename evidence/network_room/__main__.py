"""Runs histories of the room, and prints what failed with the plan. Folders of failures stay where `--keep` says."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from evidence.network_room import AT_ONCE, drawn, run, why_not


def main() -> int:
    """0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.network_room", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--long", action="store_true", help="more long cuts and pauses")
    parser.add_argument("--keep", type=Path, help="a folder for the lines of histories that failed")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # forks; these children are the programs
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    failed, begun, counts = 0, time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-room-") as folder:
        root = given.keep or Path(folder)
        root.mkdir(exist_ok=True)
        for result in run(given.seed, given.histories, root, at_once=given.at_once, long=given.long):
            counts.update(result.get("counts", {}))
            if result["problems"]:
                failed += 1
                print(f"--seed {result['seed']} --histories 1: {drawn(result['seed'], long=given.long)}")
                for problem in result["problems"]:
                    print(f"    {problem}")
                sys.stdout.flush()
    print(f"{given.histories} histories, {failed} failed, {time.monotonic() - begun:.1f} s; {dict(counts)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
