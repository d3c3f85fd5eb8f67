"""Runs one question, prints its tables and its aims, writes its JSON, draws its plot. Several, or `all`: each in a process of its own."""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.report import Report
from evidence.report import sliced

QUESTIONS = (
    "log_ipc",
    "cpp",
    "ring",
    "frames",
    "sync",
    "pipes",
    "record",
    "udp",
    "spark_scan",
    "pipeline",
    "tables_growth",
    "growth",
    "counts",
    "claims",
    "clock",
    "wakes",
    "imports",
    "interpreters",
    "living",
    "lake",
)


def main() -> int:
    """0 whether or not aims are met: machines differ, and a benchmark reports."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("question", nargs="+", choices=[*QUESTIONS, "all"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="tiny inputs: shows that it runs, not how fast")
    size.add_argument("--short", action="store_true", help="every row and every rival, with fewer repetitions")
    parser.add_argument(
        "--part", default="0/1", metavar="K/N", help="of all questions every N-th, from the K-th on, counted round"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FOLDER", help="also write results and aims to FOLDER/QUESTION.json"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw one question's results: .svg or .png")
    given = parser.parse_args()
    if "all" in given.question:
        k, n = map(int, given.part.split("/"))
        given.question = sliced(QUESTIONS, (k, n))
    if given.plot is not None and (len(given.question) > 1 or given.plot.suffix not in (".svg", ".png")):
        parser.error("--plot takes a FILE.svg or FILE.png, and one question")
    return run_each(given) if len(given.question) > 1 else run_one(given)


def run_one(given: argparse.Namespace) -> int:
    """One question, in this process."""
    (question,) = given.question
    report = Report(question, quick=given.quick, short=given.short)
    module = importlib.import_module(f"bench.{question}")
    module.run(report)
    report.print()
    if given.json is not None:
        given.json.mkdir(parents=True, exist_ok=True)
        (given.json / f"{question}.json").write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if given.plot is not None:
        from bench.plot import draw

        draw(report.as_json(), given.plot, getattr(module, "PLOT", ()), grows=getattr(module, "LINES", False))
    return 0


def run_each(given: argparse.Namespace) -> int:
    """Every question, whatever became of the one before; 1 if one of them failed to run."""
    failed = []
    for question in given.question:
        command = [sys.executable, "-m", "bench", question]
        command += [f"--{size}" for size in ("quick", "short") if getattr(given, size)]
        if given.json is not None:
            command += ["--json", str(given.json)]
        begun, used = time.monotonic(), _ended_cpu()
        status = subprocess.call(command)
        if status:
            failed.append(question)
        said = f"exit status {status}" if status else "done"
        print(f"{question}: {said}, {time.monotonic() - begun:.0f} s, {_ended_cpu() - used:.0f} s of CPU\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _ended_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
