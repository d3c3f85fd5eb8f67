"""The model checker's rooms: scenarios exhausted, random walks, order mutants."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evidence.build import ROOT, build
from evidence.room import WORKERS, Row

CORE = ROOT / "native" / "core"
MOST = "400000"  # executions for one mutant in one scenario
DEEP = "1000000"  # executions of a heavy scenario at three and three, in the long mode
EXPLAINED_MOST = "20000"  # in the long mode every scenario is asked once more about what was explained
KILLERS = Path(__file__).parent / "mutants.json"


@dataclass(frozen=True)
class Scenario:
    """One of the checker's scenarios."""

    name: str
    heavy: bool


def scenarios(program: Path) -> list[Scenario]:
    """What the checker knows."""
    lines = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [Scenario(parts[0], parts[1] == "heavy") for parts in (line.split("\t") for line in lines)]


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


def exhaust(*, long: bool) -> list[Row]:
    """Every scenario, depth-first, within the budget."""
    program = checker()
    known = scenarios(program)
    light, heavy = [s for s in known if not s.heavy], [s for s in known if s.heavy]
    rows = [
        _judge(
            program,
            chosen,
            ["--preemptions", str(budget), "--stale", str(budget)],
            f"executions, {len(chosen)} scenarios exhausted at {budget} preemptions, {budget} stale",
        )
        for budget, chosen in ((3, light), (2, heavy))
    ]
    if long:
        rows.append(_judge(program, heavy, ["--preemptions", "3", "--stale", "3", "--most", DEEP], ""))
        done = sum(bool(answer["exhausted"]) for answer in rows[-1].details.values())
        rows[
            -1
        ].what = f"executions at 3 and 3: {done} of the {len(heavy)} heavy scenarios exhausted, the others searched"
    return rows


def wander(*, long: bool, seed: int) -> Row:
    """Random walks without a budget."""
    program = checker()
    known = scenarios(program)
    arguments = ["--random", "500000" if long else "20000", "--seed", str(seed)]
    return _judge(program, known, arguments, f"executions at random, {len(known)} scenarios")


@dataclass(frozen=True)
class Mutant:
    """One operation of the core, made weaker."""

    site: str  # file:line:column
    half: str

    @property
    def name(self) -> str:
        """A name that survives edits elsewhere in the file: its line's text and its half."""
        return f"{self.site.split(':')[0]}: {self.line} [{self.half}]"

    @property
    def line(self) -> str:
        """The source line that it is on."""
        file, line, _ = self.site.split(":")
        return (CORE / file).read_text().splitlines()[int(line) - 1].strip()


HALVES = {
    "acquire": ("acquire",),
    "release": ("release",),
    "cas": ("acquire", "release", "failure"),
    "update": ("acquire", "release"),
    "full fence": ("fence",),
    "acquire fence": ("fence",),
    "release fence": ("fence",),
}

# Why a weaker order is still right, or is looked at by another room. Matched against the source line and the half.
LOCKED = "looked at under the lock, which orders it (SYNC 6)"
KERNEL = "the kernel's lock on the slot's byte has just ordered its last owner before us"
NO_DATA = "the event word carries no data; the fences on both sides order the looks (SYNC 7)"
EXPLAINED: list[tuple[str, str, str]] = [
    ("event.set_bits(event_has_sleeper)", "*", NO_DATA),
    ("event.cas(seen, seen + 1)", "*", NO_DATA),
    ("!lives(holder) && lock.cas", "*", KERNEL),
    ("identity.generation.acquire() + 1", "*", KERNEL),
    ("const uint64_t where = claim.where.acquire(), length", "*", KERNEL),
    ("sane_claim(position, length) ? frame(position)->word0.acquire()", "*", KERNEL),
    ("identity.role.release(static_cast<uint32_t>(role))", "*", LOCKED),
    ("identity.state.release(static_cast<uint32_t>(State::active))", "*", LOCKED),
    ("identity.state.acquire() == static_cast<uint32_t>(State::active) &&", "*", LOCKED),
    ("identity.role.acquire() == static_cast<uint32_t>(role)", "*", LOCKED),
    ("claim.where.release(claim_idle);", "*", LOCKED),
    ("identity.role.release(static_cast<uint32_t>(Role::none))", "*", LOCKED),
    ("identity.state.release(static_cast<uint32_t>(State::free))", "*", LOCKED),
    ("slot(i).identity.state.acquire() == static_cast<uint32_t>(State::free)", "*", LOCKED),
    ("log_->me().reader.position.release(position_);", "*", LOCKED),
    (
        "const uint64_t position = s.reader.position.acquire();",
        "*",
        "whom to let go is only guessed from it; bound() reads it again",
    ),
    (
        "note.where.release(claiming);",
        "*",
        "the swap of the tail that follows releases it, and no note is looked at before the tail shows its claim",
    ),
    ("at = tail.acquire();", "*", "the swap that follows acquires; an exclusive publication reads its own stores"),
    (
        "at = exclusive_ ? end : tail.acquire();",
        "*",
        "the swap that follows acquires; an exclusive publication reads its own stores",
    ),
    (
        "else if (!tail.cas(at, end)) continue;",
        "acquire",
        "a claimant reads nothing of the one before it; the limit has an acquire of its own",
    ),
    ("else if (!tail.cas(at, end)) continue;", "failure", "the value is only tried again"),
    ("note.where.release(claim_idle);", "*", "it says only that nothing is claimed"),
    ("at->word0.cas(seen, pack_word0", "acquire", "nothing is read after it"),
    ("at->word0.cas(seen, pack_word0", "failure", "nothing is read after it"),
    (
        "if (frame_length(at->word0.acquire()) > 0) return true;",
        "*",
        "only asks whether a frame is there; who reads it acquires it",
    ),
    (
        "const uint64_t word0 = at->word0.acquire();",
        "*",
        "the notes' acquires before it make it see the commit; nothing is read after it",
    ),
    (
        "note.where.release(at | claim_taken);",
        "*",
        "the swap before it released the claim; padding has nothing else to show",
    ),
    ("frame(end)->word0.acquire() == 0", "*", "only compared with zero, up to the next noted claim"),
    (
        "identity.state.release(static_cast<uint32_t>(State::dropped))",
        "*",
        "a full fence follows before anything is cleaned (SYNC 8)",
    ),
    (
        "identity.state.acquire() == static_cast<uint32_t>(State::active)) return;",
        "*",
        "the fence before it orders what was read; the value decides",
    ),
    ("else me().identity.state.release(0);", "*", KERNEL),
    ("if (s.identity.state.acquire() == 1) control_->reaped", "*", KERNEL),
    ("if (slot(i).identity.state.acquire() == 1) control_->reaped", "*", KERNEL),
    ("s.identity.state.release(0);", "*", KERNEL),
    ("slot(i).identity.state.release(0);", "*", KERNEL),
    (
        "writer.newest.release(last); // SYNC 14",
        "*",
        "the fence as it joins (SYNC 10) has released all that its predecessor did, which the kernel's lock ordered",
    ),
    ("writer.write.release(position_);", "*", "as above"),
    ("const uint64_t word0 = frame->word0.acquire(); // SYNC 9: of a dead predecessor", "*", KERNEL),
    (
        "!word.cas(seen, slot + 1)",
        "*",
        "only its value counts; the fences of a lease and of a recycling order it (SYNC 15)",
    ),
    ("control_->changes.value.add(1);", "*", "only a hint: who sees it reads the table under its lock"),
    ("reader.read.cas(read, next)", "*", "only its value counts; the bytes are ordered by SYNC 18 and 19"),
    ("held_.add(", "*", "only its value counts; the mailbox orders everything else (SYNC 22)"),
    ("reader.read.cas(expected, next)", "*", "only its value counts; the bytes are ordered by SYNC 18 and 19"),
    ("if (c_.cas(seen, word(f_)))", "acquire", "the writer reads nothing of the reader's; chunks come by SYNC 21"),
    ("if (c_.cas(seen, word(f_)))", "failure", "the value is not looked at: it can only be null"),
    ("r_ = c_.cas(seen, 0) ?", "acquire", "when it succeeds there is nothing to read"),
    ("r_ = c_.cas(seen, 0) ?", "release", "the reader gives the writer nothing; chunks go by SYNC 21"),
    (
        "base_(link.reader.acked.acquire()), // SYNC 19",
        "*",
        "a writer is made as its pipe is laid: what it finds there was ordered by the table's lock (SYNC 6)",
    ),
    (
        "if (s.reader.position.acquire() + geometry_.window >= end) continue;",
        "*",
        "only says who refuses; nothing is cleaned by it",
    ),
    ("spare_.exchange(", "*", "chunks are plain memory of the process: ThreadSanitizer's stress looks at them"),
    (
        "header->magic.acquire() != magic",
        "*",
        "a file has its name only when it is complete; the room `kill` steps through `create`",
    ),
]


def mutants(program: Path) -> list[Mutant]:
    """Every weakening of every operation that the scenarios come by."""
    out = subprocess.run(
        [program, "--sites", "--preemptions", "2", "--stale", "1", "--most", "20000"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = []
    for line in out.splitlines():
        if line.startswith("site "):
            file, row, column, kind = line[5:].split(":")
            if (CORE / file).exists():
                found += [Mutant(f"{file}:{row}:{column}", half) for half in HALVES[kind]]
    return found


def unreached(program: Path, met: list[Mutant]) -> list[str]:
    """Lines of the core that spell an ordered operation which no scenario comes by."""
    lines = {(m.site.split(":")[0], int(m.site.split(":")[1])) for m in met}
    found = []
    for path in sorted(CORE.glob("*.hpp")):
        if path.name in ("atomics.hpp", "platform.hpp"):
            continue
        for number, text in enumerate(path.read_text().splitlines(), 1):
            code = text.split("//")[0]
            if (
                re.search(r"\.(acquire|release|cas|set_bits)\(|\.add\(1\)|(full|acquire)_fence\(\)", code)
                and (
                    path.name,
                    number,
                )
                not in lines
            ):
                found.append(f"{path.name}:{number}: {code.strip()}")
    return found


def _kill(program: Path, mutant: Mutant, chosen: list[Scenario], most: str = MOST) -> str:
    """The scenario that notices, or nothing."""
    for scenario in chosen:
        name, budget = scenario.name, "2" if scenario.heavy else "3"
        weaker = ["--weaken", f"{mutant.site}:{mutant.half}"]
        done = subprocess.run(
            [program, "--scenario", name, "--preemptions", budget, "--stale", budget, "--most", most, *weaker],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            return name
    return ""


def weaken(*, long: bool) -> Row:
    """Each order of the core taken away, one at a time: the checker must notice, or the survivor is explained."""
    program = checker()
    begun = time.monotonic()
    found = mutants(program)
    known = scenarios(program)
    light, heavy = [s for s in known if not s.heavy], [s for s in known if s.heavy]

    def judge(mutant: Mutant) -> str:
        hint = known_killers.get(mutant.name)
        first = [s for s in known if s.name == hint]
        if not long and (first or explanation(mutant)):
            return _kill(program, mutant, first)  # the long mode finds and writes the hints
        most = EXPLAINED_MOST if explanation(mutant) and not first else MOST
        return _kill(program, mutant, [*first, *light, *heavy], most)

    known_killers = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    with ThreadPoolExecutor(WORKERS) as pool:
        killers = list(pool.map(judge, found))
    if long:
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
            "unexplained": {f"{m.site}:{m.half}": m.line for m in unexplained},
            "no scenario": unreached(program, found),
        },
    )


def explanation(mutant: Mutant) -> str:
    """Why a survivor is harmless, or nothing."""
    for text, half, why in EXPLAINED:
        if text in mutant.line and half in ("*", mutant.half):
            return why
    return ""
