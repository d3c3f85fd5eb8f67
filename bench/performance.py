"""Writes docs/performance.md from results of `python -m bench`: `python -m bench.performance FOLDER… [--before FOLDER…]`.

A folder holds QUESTION.json of one run of `make bench`. Several folders are several runs of the same commit: the page gives their mean,
and how far they lie apart. `--before` names the runs of an earlier commit, on the same machine.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from bench.__main__ import QUESTIONS

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "performance.md"
WIDE = 0.1  # runs that lie further apart are told apart
HEAD = """# Performance

Each table is one question that `python -m bench QUESTION` asks; `make bench` asks all of them. Rivals run in the same run, on the same
machine, with the same messages. Numbers are medians of a run{runs}.
Compare the rows of one table with each other, and nothing with another machine. `python -m bench.performance` writes this page from
the results.

Measured on {when}: {machine}.
"""

Key = tuple[str, ...]
Runs = list[dict[str, Any]]


def load(folders: list[Path]) -> dict[str, Runs]:
    """The runs of each question."""
    runs: dict[str, Runs] = {}
    for question in QUESTIONS:
        found = [folder / f"{question}.json" for folder in folders]
        runs[question] = [json.loads(path.read_text()) for path in found if path.exists()]
        for run in runs[question]:
            if run["quick"]:
                raise SystemExit(f"{question}.json is of a --quick run: its inputs are too small to compare")
    return runs


def values(runs: Runs, rows: str, names: tuple[str, ...]) -> dict[Key, list[float]]:
    """Every number of the runs, by what it measures."""
    found: dict[Key, list[float]] = {}
    for run in runs:
        for row in run[rows]:
            if row["value"] is not None:
                found.setdefault(tuple(row[name] for name in names), []).append(row["value"])
    return found


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def told(runs: list[float]) -> str:
    """The mean of several runs, and both ends where they lie apart."""
    if not runs:
        return "–"
    apart = max(runs) - min(runs) > WIDE * abs(mean(runs))
    return f"{number(mean(runs))}{f' ({number(min(runs))} to {number(max(runs))})' if apart else ''}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table: the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def results(now: Runs, before: Runs) -> list[str]:
    """A table for each case of a question."""
    names = ("case", "who", "metric", "unit")
    found, old = values(now, "results", names), values(before, "results", names)
    lines = []
    for case in dict.fromkeys(key[0] for key in found):
        mine = [key for key in found if key[0] == case]
        metrics = list(dict.fromkeys(key[2:] for key in mine))
        head = [case]
        for metric, unit in metrics:
            head.append(f"{metric}, {unit}")
            if before:
                head.append("before")
        rows = []
        for who in dict.fromkeys(key[1] for key in mine):
            row = [who]
            for metric in metrics:
                key = (case, who, *metric)
                row.append(told(found.get(key, [])))
                if before:
                    row.append(told(old.get(key, [])))
            rows.append(row)
        lines += table(head, rows)
    return lines


def aims(now: Runs, before: Runs) -> list[str]:
    """The aims of the question, and whether they are met."""
    names = ("case", "metric", "aim")
    found, old = values(now, "aims", names), values(before, "aims", names)
    rows = []
    for key in dict.fromkeys(tuple(aim[name] for name in names) for run in now for aim in run["aims"]):
        case, metric, aim = key
        met = {a["met"] for run in now for a in run["aims"] if (a["case"], a["metric"], a["aim"]) == key}
        said = "no rival" if None in met else "yes" if met == {True} else "no" if met == {False} else "in some runs"
        row = [f"{case}: {metric}", aim.replace("<=", "≤").replace(">=", "≥")]
        rows.append([*row, *([told(old.get(key, []))] if before else []), told(found.get(key, [])), said])
    head = ["aim", "is", *(["before"] if before else []), "measured", "met"]
    return table(head, rows) if rows else []


def reasons(now: Runs) -> list[str]:
    """Why aims are missed, in the words of the last run that missed them."""
    found: dict[tuple[str, str], str] = {}
    for run in now:
        found |= {(aim["case"], aim["metric"]): aim["why"] for aim in run["aims"] if aim["met"] is False and aim["why"]}
    lines = []
    for why in dict.fromkeys(found.values()):
        missed = "; ".join(f"{case}: {metric}" for (case, metric), its in found.items() if its == why)
        lines.append(f"- {missed}: {why}.")
    return ["Why aims are missed:", "", *lines, ""] if lines else []


def page(now: dict[str, Runs], before: dict[str, Runs]) -> str:
    """The whole page."""
    every = [run for runs in now.values() for run in runs]
    if not every:
        raise SystemExit("no results: run `make bench`, or python -m bench QUESTION --json FOLDER/QUESTION.json")
    machines = {run["machine"] for run in every}
    if len(machines) != 1:
        raise SystemExit(f"results of several machines do not compare: {'; '.join(sorted(machines))}")
    runs = max(len(runs) for runs in now.values())
    said = (
        f", and the mean of {runs} runs; both ends are given where those lie more than 10 % apart" if runs > 1 else ""
    )
    days = sorted({run["measured"] for run in every})
    lines = [HEAD.format(runs=said, when=" to ".join(dict.fromkeys((days[0], days[-1]))), machine=machines.pop())]
    for question, found in now.items():
        if not found:
            continue
        asked = ast.get_docstring(ast.parse((HERE / f"{question}.py").read_text())) or ""
        lines += [f"## `{question}`", "", asked.split("\n\n")[0].replace("\n", " "), ""]
        lines += results(found, before.get(question, []))
        lines += aims(found, before.get(question, []))
        lines += reasons(found)
        missing = {name: why for run in found for name, why in run["missing"].items()}
        if missing:
            lines += ["Missing:", "", *(f"- {name}: {' '.join(why.split())}" for name, why in missing.items()), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--before", nargs="+", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--to", type=Path, default=TARGET, metavar="FILE")
    given = parser.parse_args()
    given.to.write_text(page(load(given.folders), load(given.before)))
    print(f"{given.to} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
