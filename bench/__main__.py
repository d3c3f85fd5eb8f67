"""Runs one question, prints its table and its aims, writes the JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from bench.report import Report

QUESTIONS = (
    "log_ipc",
    "ring",
    "frames",
    "sync",
    "pipes",
    "record",
    "udp",
    "spark_scan",
    "pipeline",
    "growth",
    "claims",
    "clock",
    "wakes",
)


def main() -> int:
    """0 whether or not aims are met: machines differ, and a benchmark reports."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--quick", action="store_true", help="tiny inputs: shows that it runs, not how fast")
    parser.add_argument("--json", type=Path, help="write results and aims here")
    given = parser.parse_args()
    report = Report(given.question, quick=given.quick)
    importlib.import_module(f"bench.{given.question}").run(report)
    report.print()
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
