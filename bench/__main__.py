"""Runs one question, prints its table and its aims, writes the JSON. `all` runs every question, each in a process of its own."""

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
    "imports",
)


def main() -> int:
    """0 whether or not aims are met: machines differ, and a benchmark reports."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("question", choices=[*QUESTIONS, "all"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="tiny inputs: shows that it runs, not how fast")
    size.add_argument("--short", action="store_true", help="every row and every rival, with fewer repetitions")
    parser.add_argument(
        "--json", type=Path, help="write results and aims here; of all questions into a new numbered folder in this one"
    )
    given = parser.parse_args()
    if given.question == "all":
        return run_all(given)
    report = Report(given.question, quick=given.quick, short=given.short)
    importlib.import_module(f"bench.{given.question}").run(report)
    report.print()
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 0


def run_all(given: argparse.Namespace) -> int:
    """Every question, whatever became of the one before; 1 if one of them failed to run."""
    folder, failed = None if given.json is None else next_folder(given.json), []
    for question in QUESTIONS:
        command = [sys.executable, "-m", "bench", question]
        command += [f"--{size}" for size in ("quick", "short") if getattr(given, size)]
        if folder is not None:
            command += ["--json", str(folder / f"{question}.json")]
        begun, used = time.monotonic(), _ended_cpu()
        status = subprocess.call(command)
        if status:
            failed.append(question)
        said = f"exit status {status}" if status else "done"
        print(f"{question}: {said}, {time.monotonic() - begun:.0f} s, {_ended_cpu() - used:.0f} s of CPU\n", flush=True)
    if folder is not None:
        print(f"results in {folder}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def runs(folder: Path) -> list[Path]:
    """The numbered folders in this one, the last run last."""
    found = [path for path in folder.glob("*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def next_folder(folder: Path) -> Path:
    """A new folder with the next number."""
    before = runs(folder)
    made = folder / str(int(before[-1].name) + 1 if before else 1)
    made.mkdir(parents=True)
    return made


def _ended_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
