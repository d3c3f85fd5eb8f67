"""Results and aims of one question: collects, compares, prints. Knows no library that is measured."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

import penstock

# A quick run measures nothing: the JVM's second compiler takes longer than it saves there.
QUICK_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
FAILURES = 2  # cases in which a library gives no result before it is left out of the others


@dataclass(frozen=True)
class Result:
    """One measured number: a median over runs."""

    case: str
    who: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True)
class Aim:
    """An aim, the measured value, and whether it meets the aim. value and met are None where a rival is missing."""

    case: str
    metric: str
    aim: str
    value: float | None
    met: bool | None


class Report:
    """The results of a question. quick: tiny inputs, which show that it runs. short: full inputs, fewer repetitions."""

    def __init__(self, question: str, *, quick: bool, short: bool = False) -> None:
        self.question, self.quick, self.short = question, quick, short
        self._begun = time.monotonic()
        self.results: list[Result] = []
        self.aims: list[Aim] = []
        self.missing: dict[str, str] = {}
        self.notes: list[str] = []
        self._failures: dict[str, int] = {}

    def sized(self, full: int, *, quick: int, short: int | None = None) -> int:
        """A count for the size of this run: short as full where nothing else is said."""
        return quick if self.quick else short if self.short and short is not None else full

    @property
    def limit(self) -> float:
        """Seconds that one run of anybody may take."""
        return 20 if self.quick else 40

    def tries(self, who: str, case: str) -> bool:
        """Whether a run is worth its time: not after a failure in this case, and not after failures in two others."""
        if f"{who}, {case}" in self.missing:
            return False
        if self._failures.get(who, 0) >= FAILURES:
            self.missing[f"{who}, {case}"] = f"not tried: it failed in {FAILURES} cases before"
            return False
        return True

    def note(self, text: str) -> None:
        """Notes how something was measured, where that is not the same on every machine."""
        if text not in self.notes:
            self.notes.append(text)

    def has_spark(self) -> bool:
        """Whether PySpark and a Java are there. If not, the report says why."""
        try:
            import pyspark  # noqa: F401

            from penstock.spark.runtime.jvm import find_java

            find_java()
        except (ImportError, penstock.NotFound) as error:
            self.missing["spark"] = str(error)
            return False
        if self.quick:
            os.environ |= QUICK_JAVA
        return True

    def failed(self, who: str, case: str, why: BaseException) -> None:
        """Notes that there is no result, and why."""
        self.missing[f"{who}, {case}"] = str(why) or type(why).__name__
        self._failures[who] = self._failures.get(who, 0) + 1

    def add(self, case: str, who: str, metric: str, values: float | list[float], unit: str) -> float:
        """Notes a result; of several runs, the median."""
        value = statistics.median(values) if isinstance(values, list) else values
        self.results.append(Result(case, who, metric, value, unit))
        return value

    def get(self, case: str, who: str, metric: str) -> float | None:
        """A result noted before."""
        return next((r.value for r in self.results if (r.case, r.who, r.metric) == (case, who, metric)), None)

    def at_most(self, case: str, metric: str, limit: float, unit: str, value: float | None) -> None:
        """An aim that is met by a value up to `limit`."""
        met = None if value is None else value <= limit
        self.aims.append(Aim(case, metric, f"<= {limit:g} {unit}", value, met))

    def at_least(self, case: str, metric: str, limit: float, unit: str, value: float | None) -> None:
        """An aim that is met by a value from `limit` on."""
        met = None if value is None else value >= limit
        self.aims.append(Aim(case, metric, f">= {limit:g} {unit}", value, met))

    def ratio(self, case: str, metric: str, who: str, rival: str) -> float | None:
        """How many times the rival's value ours is; None if the rival is missing."""
        ours, theirs = self.get(case, who, metric), self.get(case, rival, metric)
        return None if ours is None or not theirs else ours / theirs

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "question": self.question,
            "quick": self.quick,
            "short": self.short,
            "seconds": round(time.monotonic() - self._begun, 1),
            "machine": machine(),
            "measured": datetime.now(UTC).date().isoformat(),
            "missing": self.missing,
            "notes": self.notes,
            "results": [asdict(r) for r in self.results],
            "aims": [asdict(a) for a in self.aims],
        }

    def print(self) -> None:
        """For people."""
        console = Console(soft_wrap=True, width=120 if not os.isatty(1) else None)
        console.print(
            f"[bold]{self.question}[/]{' (quick: tiny inputs)' if self.quick else ' (short: fewer repetitions)' if self.short else ''} on {machine()}"
        )
        for case in dict.fromkeys(r.case for r in self.results):
            table = Table(title=case, title_justify="left", box=None, padding=(0, 2, 0, 0))
            table.add_column("who")
            metrics = dict.fromkeys((r.metric, r.unit) for r in self.results if r.case == case)
            for metric, unit in metrics:
                table.add_column(f"{metric}, {unit}", justify="right")
            for who in dict.fromkeys(r.who for r in self.results if r.case == case):
                cells = [self.get(case, who, metric) for metric, _ in metrics]
                table.add_row(
                    who, *["–" if cell is None else f"{cell:,.4g}" if cell < 1e4 else f"{cell:,.0f}" for cell in cells]
                )
            console.print(table)
        for name, why in self.missing.items():
            console.print(f"missing: {name}: {why}", markup=False, highlight=False)
        for note in self.notes:
            console.print(f"note: {note}", markup=False, highlight=False)
        if self.aims and self.quick:
            console.print(
                f"aims: {len(self.aims)}, judged at full size only: tiny inputs show that it runs, not how fast"
            )
        if self.aims and not self.quick:
            table = Table(title="aims", title_justify="left", box=None, padding=(0, 2, 0, 0))
            for name in ("case", "metric", "aim", "measured", "met"):
                table.add_column(name)
            for aim in self.aims:
                value = "–" if aim.value is None else f"{aim.value:,.3g}"
                table.add_row(
                    aim.case, aim.metric, aim.aim, value, {True: "yes", False: "no", None: "no rival"}[aim.met]
                )
            console.print(table)


def cores() -> int:
    """Cores on which this process may run."""
    return len(os.sched_getaffinity(0))


def machine() -> str:
    """The processor and its cores, the kernel, Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
