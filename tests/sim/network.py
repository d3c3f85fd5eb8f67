"""A life of the network log in the simulated world: `make sim SEED=n` tells it. Its program is native/tests/net_sim.cpp."""

import argparse
import subprocess
import sys

from evidence.build import build


def main() -> int:
    """Runs one seed; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    program = build("plain", ("net_sim",)) / "tests" / "net_sim"
    told = subprocess.run([program, "--seed", str(given.seed), "--lives", "1", "--tell", "1"])
    return 1 if told.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
