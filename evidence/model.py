"""The model checker's suites: scenarios exhausted, random walks, order mutants."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evidence import anchors
from evidence.build import ROOT, build
from evidence.explained import EXPLAINED
from evidence.report import WHOLE, WORKERS, Row, sliced

CORE = ROOT / "native" / "core"
MOST = "400000"  # executions for one mutant in one scenario
DEEP = "1000000"  # executions of a heavy scenario at three and three, in the long mode
NETWORK = "udp_"  # scenarios of the network log: no others come by its orders, and few others need them
HANDSHAKES = "waiter_"  # scenarios of the network log's handshakes between threads
NETWORK_SITES = "400"  # executions of each of them after which it has come by its orders
EXPLAINED_MOST = "20000"  # in the long mode every scenario is asked once more about what was explained
KILLERS = Path(__file__).parent / "mutants.json"


@dataclass(frozen=True)
class Scenario:
    """One of the checker's scenarios."""

    name: str
    budget: int  # preemptions, and stale reads, at which it is exhausted


BUDGETS = {"light": 3, "heavy": 2, "vast": 1}


def scenarios(program: Path) -> list[Scenario]:
    """The facts that the checker reports."""
    lines = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [Scenario(parts[0], BUDGETS[parts[1]]) for parts in (line.split("\t") for line in lines)]


def _run(program: Path, arguments: list[str]) -> list[dict[str, object]]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, 1) or not rows:
        rows.append({"scenario": "?", "executions": 0, "failure": f"the checker died: {done.stderr[-300:]}"})
    return rows


def checker() -> Path:
    """The checker's program, built."""
    return build("plain", ("log_model",)) / "model" / "log_model"


def _judge(program: Path, chosen: list[Scenario], arguments: list[str], what: str) -> Row:
    """Runs scenarios beside each other; one row of what they found."""
    begun = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        found = pool.map(lambda s: _run(program, ["--scenario", s.name, *arguments]), chosen)
        answers = [answer for rows in found for answer in rows]
    searched = "--random" not in arguments and "--most" not in arguments
    failed = [a for a in answers if a["failure"] or (searched and not a["exhausted"])]
    row = Row("model", what, sum(int(str(a["executions"])) for a in answers), len(failed), time.monotonic() - begun)
    row.details = {str(a["scenario"]): a for a in answers}
    if failed:
        first = failed[0]
        row.failure = f"{program} --scenario {first['scenario']} {' '.join(arguments)}   # {first['failure']}"
    return row


def exhaust(*, long: bool, part: tuple[int, int] = WHOLE) -> list[Row]:
    """Every scenario, depth-first, within the budget.

    part: (k, n) gives every n-th scenario, from the k-th on, its budget, and each other one preemption and one stale read less.
    """
    program = checker()
    known = scenarios(program)
    heavy = [s for s in known if s.budget < BUDGETS["light"]]
    whole = sliced(known, part)
    budgets = {s.name: s.budget if s in whole else max(1, s.budget - 1) for s in known}
    rows = [
        _judge(
            program,
            chosen,
            ["--preemptions", str(budget), "--stale", str(budget)],
            f"executions, {len(chosen)} scenarios exhausted at {budget} preemptions, {budget} stale",
        )
        for budget in BUDGETS.values()
        if (chosen := [s for s in known if budgets[s.name] == budget])
    ]
    if long:
        rows.append(_judge(program, heavy, ["--preemptions", "3", "--stale", "3", "--most", DEEP], ""))
        done = sum(bool(answer["exhausted"]) for answer in rows[-1].details.values())
        rows[
            -1
        ].what = f"executions at 3 and 3: {done} of the {len(heavy)} heavy scenarios exhausted, the others searched"
    return rows


def wander(*, count: int, seed: int) -> Row:
    """Random walks without a budget: so many of each scenario."""
    program = checker()
    known = scenarios(program)
    arguments = ["--random", str(count), "--seed", str(seed)]
    return _judge(program, known, arguments, f"executions at random, {len(known)} scenarios")


@dataclass(frozen=True)
class Mutant:
    """One operation of the core, made weaker."""

    site: str  # folder/file:line:column
    half: str

    @property
    def operation(self) -> anchors.Operation:
        """The weakened operation."""
        file, line, column = self.site.split(":")
        return anchors.operation_at(file, int(line), int(column), sources()[file], functions())

    @property
    def name(self) -> str:
        """A name that survives edits elsewhere: `FUNCTION: OPERATION [HALF]`."""
        return f"{self.operation.symbol}: {self.operation.name} [{self.half}]"


HALVES = {
    "acquire": ("acquire",),
    "release": ("release",),
    "cas": ("acquire", "release", "failure"),
    "update": ("acquire", "release"),
    "full fence": ("fence",),
    "acquire fence": ("fence",),
    "release fence": ("fence",),
}


@cache
def sources() -> dict[str, str]:
    """The core's headers: folder/file → text."""
    return {path.relative_to(CORE).as_posix(): path.read_text() for path in sorted(CORE.rglob("*.hpp"))}


@cache
def functions() -> dict[str, list[anchors.Function]]:
    """The functions of the core, by symbol."""
    return anchors.index_of(sources())


def mutants(program: Path) -> list[Mutant]:
    """Every weakening of every operation that the scenarios come by."""

    def sites(*arguments: str) -> set[str]:
        command = [program, "--sites", "--preemptions", "2", "--stale", "1", *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {line[5:] for line in said.splitlines() if line.startswith("site ")}

    with ThreadPoolExecutor(WORKERS) as pool:
        others = pool.submit(sites, "--most", "20000", "--without", NETWORK)
        network = pool.submit(sites, "--most", NETWORK_SITES, "--prefix", NETWORK)
        met = sorted(others.result() | network.result())
    split = [site.split(":") for site in met]
    return [
        Mutant(f"{file}:{row}:{column}", half)
        for file, row, column, kind in split
        if file in sources()
        for half in HALVES[kind]
    ]


def searched(mutant: Mutant, known: list[Scenario]) -> list[Scenario]:
    """The scenarios that may notice the loss of an order, those of its own structure first."""
    network = [s for s in known if s.name.startswith(NETWORK)]
    if mutant.site.startswith("net/"):
        return [*(s for s in known if s.name.startswith(HANDSHAKES)), *network]
    others = [s for s in known if not s.name.startswith(NETWORK)]
    return others if explanation(mutant) else [*others, *network]


def unreached(program: Path, met: list[Mutant]) -> list[str]:
    """Lines of the core that spell an ordered operation which no scenario comes by."""
    lines = {(m.site.split(":")[0], int(m.site.split(":")[1])) for m in met}
    found = []
    for path in sorted(CORE.rglob("*.hpp")):
        name = str(path.relative_to(CORE))
        if path.name in ("atomics.hpp", "platform.hpp"):
            continue
        for number, text in enumerate(path.read_text().splitlines(), 1):
            code = text.split("//")[0]
            if (
                re.search(r"\.(acquire|release|cas|set_bits)\(|\.add\(1\)|(full|acquire)_fence\(\)", code)
                and (name, number) not in lines
            ):
                found.append(f"{name}:{number}: {code.strip()}")
    return found


def _kill(program: Path, mutant: Mutant, chosen: list[Scenario], most: str = MOST) -> str:
    """The scenario that notices, or nothing."""
    weaker = ["--most", most, "--weaken", f"{mutant.site}:{mutant.half}"]
    for scenario in chosen:
        for budget in range(1, scenario.budget + 1):  # what a shallow search finds needs no deep one
            looks = ["--scenario", scenario.name, "--preemptions", str(budget), "--stale", str(budget)]
            if subprocess.run([program, *looks, *weaker], capture_output=True).returncode != 0:
                return scenario.name
    return ""


def weaken(*, long: bool, part: tuple[int, int] = WHOLE) -> Row:
    """Each order of the core taken away, one at a time: the checker must notice, or the survivor is explained.

    part: (k, n) takes every n-th of the orders, from the k-th on.
    """
    program = checker()
    begun = time.monotonic()
    met = mutants(program)
    found = sliced(met, part)
    known = scenarios(program)
    in_order = sorted(known, key=lambda scenario: -scenario.budget)

    def judge(mutant: Mutant) -> str:
        hint = known_killers.get(mutant.name)
        first = [s for s in known if s.name == hint]
        if not long and (first or explanation(mutant)):
            return _kill(program, mutant, first)  # the long mode finds and writes the hints
        most = EXPLAINED_MOST if explanation(mutant) and not first else MOST
        return _kill(program, mutant, [*first, *searched(mutant, in_order)], most)

    known_killers = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    with ThreadPoolExecutor(WORKERS) as pool:
        killers = list(pool.map(judge, found))
    if long and part == WHOLE:
        noticed = {m.name: killer for m, killer in zip(found, killers, strict=True) if killer}
        KILLERS.write_text(json.dumps(noticed, indent=1, sort_keys=True) + "\n")
    survivors = [m for m, killer in zip(found, killers, strict=True) if not killer]
    unexplained = [m for m in survivors if not explanation(m)]
    killed = len(found) - len(survivors)
    return Row(
        "mutants",
        f"orders weakened: {killed} noticed, {len(survivors) - len(unexplained)} explained, of",
        len(found),
        len(unexplained),
        time.monotonic() - begun,
        failure=f"{program} --weaken {unexplained[0].site}:{unexplained[0].half}" if unexplained else "",
        details={
            "killed": {m.name: k for m, k in zip(found, killers, strict=True) if k},
            "explained": {f"{m.site}:{m.half}": explanation(m) for m in survivors if explanation(m)},
            "unexplained": {f"{m.site}:{m.half}": m.name for m in unexplained},
            "no scenario": unreached(program, met),
        },
    )


def explanation(mutant: Mutant) -> str:
    """Why a survivor is harmless, or nothing."""
    operation = mutant.operation
    for symbol, pattern, half, why in EXPLAINED:
        if symbol == operation.symbol and half in ("*", mutant.half):
            place = anchors.place(symbol, pattern, functions())
            if place.file == operation.file and place.start < operation.offset <= place.end:
                return why
    return ""
