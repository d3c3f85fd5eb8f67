"""One measurement of a rival in another Python than the benchmark's: pyaeron needs 3.12, the benchmark runs under 3.11 too.

`interpreter()` finds one; an `Elsewhere` stands for a rival there, and `flow`, `round_trips` and `bursts` are those of `bench.processes`
for rivals here and there. As a program it measures and prints JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import processes
from bench.bounded import GRACE, Failed

ROOT = Path(__file__).parent.parent
BESIDE = ROOT / "build" / "aeron" / "python" / "bin" / "python"  # tools/aeron.py makes it


def interpreter(module: str = "pyaeron") -> str:
    """A Python that has the module and psutil; empty if there is none here."""
    for python in (sys.executable, str(BESIDE)):
        try:
            found = subprocess.run([python, "-c", f"import {module}, psutil"], capture_output=True)
        except OSError:
            continue
        if found.returncode == 0:
            return python
    return ""


def measure(python: str, limit: float, what: str, rival: str, *arguments: Any) -> Any:
    """The result of `bench.processes.WHAT` for `bench.rivals.RIVAL` under that Python. `Failed` if it fails there."""
    command = [python, "-m", "bench.elsewhere", what, rival, json.dumps([limit, *arguments])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, timeout=limit + 3 * GRACE, env={**os.environ}
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"did not finish within {limit + 3 * GRACE:g} s") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"{os.path.basename(python)} gave no answer: {done.stderr[-200:].strip()}") from None
    if "failed" in answer:
        raise Failed(answer["failed"])
    return answer["result"]


@dataclass(frozen=True)
class Elsewhere:
    """A rival that another Python has."""

    python: str
    rival: str


Rival = ModuleType | Elsewhere


def flow(limit: float, rival: Rival, size: int, count: int, readers: int) -> processes.Flow:
    """`processes.flow`, here or there."""
    if isinstance(rival, Elsewhere):
        return processes.Flow(**measure(rival.python, limit, "flow", rival.rival, size, count, readers))
    return processes.flow(limit, rival, size, count, readers)


def round_trips(limit: float, rival: Rival, size: int, count: int, **options: Any) -> list[float]:
    """`processes.round_trips`, here or there; there are no options there."""
    if isinstance(rival, Elsewhere):
        found: list[float] = measure(rival.python, limit, "round_trips", rival.rival, size, count)
        return found
    return processes.round_trips(limit, rival, size, count, **options)


def bursts(limit: float, rival: Rival, size: int, count: int, rounds: int) -> list[tuple[float, float]]:
    """`processes.bursts`, here or there."""
    if isinstance(rival, Elsewhere):
        found: list[tuple[float, float]] = measure(rival.python, limit, "bursts", rival.rival, size, count, rounds)
        return found
    return processes.bursts(limit, rival, size, count, rounds)


def main() -> None:
    """Measures one thing."""
    what, name, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    rival = importlib.import_module(f"bench.rivals.{name}")
    try:
        found = getattr(processes, what)(arguments[0], rival, *arguments[1:])
    except Failed as error:
        print(json.dumps({"failed": str(error)}))
        return
    print(json.dumps({"result": asdict(found) if what == "flow" else found}))


if __name__ == "__main__":
    main()
