"""Writes docs/performance.md and draws the charts from results: `python -m bench.performance [FOLDER…] [--before FOLDER…]`.

A folder holds QUESTION.json of one run of `make bench`; without folders the last two runs in out/bench count. Several folders are several
runs of the same commit: the page gives their mean, and how far they lie apart. `--before` names the runs of an earlier commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from bench import chart
from bench.__main__ import QUESTIONS, runs
from bench.asked import ROWS, Beside, Row

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "performance.md"
RESULTS = HERE.parent / "out" / "bench"
LISTED_AFTER = "reference/growth\n"  # in docs/index.md, which lists the page from when it is there
LAST = 2  # runs that count where none are named
NONE = "–"
WIDE = 0.1  # runs that lie further apart are told apart
HEAD = """# Performance

Each question is one that `python -m bench QUESTION` asks; `make bench` asks all of them. Rivals run in the same run, on the same
machine, with the same messages. Numbers are medians of a run{runs}.
Compare the rows of one table with each other, and nothing with another machine. `make performance` writes this page from the results.

Measured on {when}: {machine}.{short}
"""
SHORT = " These runs are short (`--short`): every row and every rival, with fewer repetitions."
FIRST = """## In short

*Before* is {before}.
*Rival* and *limit* were measured in the same run as *now*. A limit is what the machine takes for such work without the library.
"""
GIVEN = "what each cost when this work began, on two cores of such a machine, in other runs"

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
        said = verdict([a for run in now for a in run["aims"] if (a["case"], a["metric"], a["aim"]) == key])
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


def beside(now: Runs, numbers: tuple[Beside, ...]) -> str:
    """Numbers of rivals or of the bare machine, each with its name."""
    said = []
    for one in numbers:
        case, who, metric = one.place
        found = [r for run in now for r in run["results"] if (r["case"], r["who"], r["metric"]) == (case, who, metric)]
        if found:
            said.append(f"{one.who}: {told([r['value'] for r in found])} {found[0]['unit']}")
    return "<br>".join(said) or NONE


def asked_of(runs: Runs, row: Row) -> list[dict[str, Any]]:
    """The aim of a row in each run."""
    return [aim for run in runs for aim in run["aims"] if row.asks(aim["case"], aim["metric"])]


def first_table(now: dict[str, Runs], before: dict[str, Runs]) -> list[str]:
    """The aims that the work began with: before, now, the rival, the limit, the aim."""
    rows = []
    for row in ROWS:
        mine, old = asked_of(now.get(row.question, []), row), asked_of(before.get(row.question, []), row)
        if not mine:
            continue
        bound, _, unit = mine[0]["aim"].partition(" ")[2].partition(" ")
        known, known_before = ([aim["value"] for aim in aims if aim["value"] is not None] for aims in (mine, old))
        told_now = f"{told(known)} {unit}" if known else "–"
        told_before = f"{told(known_before)} {unit}" if known_before else row.before
        its = now[row.question]
        aim = f"{'≤' if mine[0]['aim'].startswith('<') else '≥'} {number(float(bound))} {unit}"
        rival = beside(its, row.rivals)
        if rival == NONE and row.elsewhere:
            rival = row.elsewhere
        rows.append([row.what, told_before, told_now, rival, beside(its, row.limits), aim, verdict(mine)])
    if not rows:
        return []
    said = "an earlier commit's, measured in the same way" if any(before.values()) else GIVEN
    return [FIRST.format(before=said), *table(["what", "before", "now", "rival", "limit", "aim", "met"], rows)]


def verdict(found: list[dict[str, Any]]) -> str:
    """Whether an aim was met in these runs."""
    met = {aim["met"] for aim in found}
    return "no rival" if None in met else "yes" if met == {True} else "no" if met == {False} else "in some runs"


def page(now: dict[str, Runs], before: dict[str, Runs]) -> str:
    """The whole page."""
    every = [run for runs in now.values() for run in runs]
    if not every:
        raise SystemExit("no results: run `make bench`, or python -m bench QUESTION --json FOLDER/QUESTION.json")
    machines = {run["machine"] for run in every}
    if len(machines) != 1:
        raise SystemExit(f"results of several machines do not compare: {'; '.join(sorted(machines))}")
    count = max(len(runs) for runs in now.values())
    said = (
        f", and the mean of {count} runs; both ends are given where those lie more than 10 % apart" if count > 1 else ""
    )
    days = sorted({run["measured"] for run in every})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    short = SHORT if any(run.get("short") for run in every) else ""
    lines = [HEAD.format(runs=said, when=when, machine=machines.pop(), short=short), *first_table(now, before)]
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


def list_page(index: Path) -> None:
    """Adds the page to the contents, if it is not there: Sphinx refuses a page that nothing lists, and a list of a missing page."""
    text = index.read_text()
    if "\nperformance\n" not in text:
        index.write_text(text.replace(LISTED_AFTER, f"{LISTED_AFTER}performance\n", 1))


def main() -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--before", nargs="+", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the page here, and draw nothing")
    given = parser.parse_args()
    folders = given.folders or runs(RESULTS)[-LAST:]
    to = given.to or TARGET
    to.write_text(page(load(folders), load(given.before)))
    print(f"{to} written from {', '.join(map(str, folders))}")
    if given.to is None:
        list_page(to.parent / "index.md")
    for question in chart.CHARTS if given.to is None else ():
        found = folders[-1] / f"{question}.json"
        if found.exists():
            chart.main(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
