"""Suites made of pytest tests: each runs alone, counts what it tried through the `tally` fixture, and hunts bugs planted into Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from evidence.build import ROOT
from evidence.report import Row


@dataclass(frozen=True)
class PytestSuite:
    """A suite made of tests. `tests`: what pytest is given. A tally without a name of its own counts as tests."""

    name: str
    tests: tuple[str, ...]


PYTEST_SUITES: tuple[PytestSuite, ...] = (
    PytestSuite("conformance", ("tests/conformance",)),
    PytestSuite("decoder", ("tests/decoder", "tests/columns/test_contract.py", "tests/codecs/test_values.py")),
    PytestSuite("tables", ("tests/tables",)),
    PytestSuite("peers", ("tests/peers",)),
    PytestSuite("asyncio", ("tests/aio",)),
    PytestSuite("zeromq", ("tests/kinds/zmq",)),
    PytestSuite(
        "command", ("tests/cli/test_any_arguments.py", "tests/cli/test_ends.py", "tests/cli/test_odd_archives.py")
    ),
    PytestSuite(
        "archives",
        ("tests/record/test_archives.py", "tests/record/test_archive_calls.py", "tests/record/test_record_process.py"),
    ),
    PytestSuite("catalog", ("tests/record/test_catalog.py",)),
    PytestSuite("blackbox", ("tests/watch/blackbox",)),
    PytestSuite("deaths", ("tests/crash/test_kill_archives.py",)),
    PytestSuite("fork", ("tests/fork",)),
    PytestSuite("exit", ("tests/exit",)),
    PytestSuite("threads", ("tests/threads", "tests/columns/test_decoding.py")),
    PytestSuite("order", ("tests/channels/test_start_order.py", "tests/channels/test_open_channels.py")),
)


def pytest(
    tests: tuple[str, ...], *, seed: int = 0, long: bool = False, plant: str = "", tally: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs tests in a process of their own. plant: the bug of `evidence.planted` that it and all its children have."""
    env = dict(os.environ)
    if seed:
        env["PENSTOCK_SEED"] = str(seed)
    if long:
        env["PENSTOCK_LONG"] = "1"
    if tally is not None:
        env["PENSTOCK_TALLY"] = str(tally)
    if plant:
        env["PENSTOCK_PLANT"] = plant
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "evidence" / "site"), env.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        )
    command = [sys.executable, "-m", "pytest", "-x" if plant else "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=7200 if long else 900,
        stdin=subprocess.DEVNULL,
    )


def run(suite: PytestSuite, *, long: bool, seed: int) -> list[Row]:
    """A row for each thing that the suite counted."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder) / "tally"
        done = pytest(suite.tests, seed=seed, long=long, tally=tally)
        counts: Counter[str] = Counter()
        if tally.exists():
            for line in tally.read_text().splitlines():
                what, count = json.loads(line)
                counts[what] += count
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    bad = len(failed) or int(done.returncode != 0)
    rows = [Row(suite.name, what, count) for what, count in counts.items()] or [Row(suite.name, "tests", 0)]
    rows[0].failures, rows[0].seconds = bad, time.monotonic() - begun
    if bad:
        why = failed[0] if failed else done.stdout[-300:] + done.stderr[-300:]
        rows[0].failure = f"PENSTOCK_SEED={seed} python -m pytest {' '.join(suite.tests)}   # {why}"
    return rows


def notices(tests: tuple[str, ...], plant: str) -> bool:
    """Whether the tests fail, hang or crash with that bug planted."""
    try:
        status = pytest(tests, seed=1, plant=plant).returncode
        return status == 1 or status < 0
    except subprocess.TimeoutExpired:
        return True
