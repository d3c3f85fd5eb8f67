"""Runs a pipeline again and again: every few seconds, or as messages arrive. Knows what an archive holds, and no table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.channels.checks import callback, seconds
from penstock.record import ArchiveWatch
from penstock.tables.options import Outcome
from penstock.tables.pipeline import Pipeline
from penstock.util.clock import SystemClock
from penstock.util.units import LONGEST_SECONDS

log = logging.getLogger("penstock")

LOOK_SECONDS = 0.05  # between two looks at an archive that is followed
STEP_SECONDS = 0.2  # between two steps that follow one: a log has a file for each commit, and each commit lists them
AGAIN_SECONDS = 1.0  # after a commit that failed, the next run waits so long at least
KEEPING_SECONDS = 60.0  # without news, tables that are to be kept for some time only are looked at so often


def follow(
    pipeline: Pipeline,
    *,
    every: float | None = None,
    until: Callable[[float], bool] | None = None,
    on_step: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """The sums of all steps, and the tables' rows at the end.

    every: seconds between two looks at the archive; 0 for as messages come, five times a second at most; None for one step. until: waits
    for at most so many seconds as it is given, and says whether to end; by default nothing but an error or an interrupt ends it. on_step:
    called after each step. A step without news is not made. What is left out is logged once.
    """
    every = check_follow(every, until, on_step)
    begun = time.monotonic()
    found: list[Outcome] = []
    told: set[str] = set()
    at_the_end = 1 if every is None else 0  # of each sort, the error at the end of a single run tells the first

    def step() -> None:
        outcome = pipeline.step()
        found.append(outcome)
        damaged = [f"{text}; all else is in the tables" for text in pipeline.left_out()]
        failed = [one.error for one in outcome.own if one.error is not None]
        for text in damaged[at_the_end:] + failed[at_the_end:]:
            if text not in told:
                log.warning("%s", text)
                told.add(text)
        if on_step is not None:
            on_step(outcome)

    watch = pipeline.archive.watch()
    seen, last = _content(watch), time.monotonic()
    step()
    while every is not None:
        if (until or _sleep)(every or max(LOOK_SECONDS, last + STEP_SECONDS - time.monotonic())):
            break
        now = _content(watch)
        waited = time.monotonic() - last
        is_due = bool(pipeline.options.keep) and waited >= KEEPING_SECONDS
        is_due |= pipeline.is_behind and waited >= AGAIN_SECONDS
        if now != seen or is_due:
            seen, last = now, time.monotonic()
            step()
    sums = {name: sum(getattr(one, name) for one in found) for name in ("ranges", "rows", "erased")}
    computed = {own.name: own for one in found for own in one.own if own.is_new}
    own = tuple(one if one.error else computed.get(one.name, one) for one in found[-1].own)
    return replace(found[-1], own=own, seconds=time.monotonic() - begun, **sums)


def check_follow(every: Any, until: Any, on_step: Any) -> float | None:
    """The seconds between two looks. `Invalid` for a wrong argument of `follow`, before anything is written."""
    callback(until, "until")
    callback(on_step, "on_step")
    return None if every is None else min(seconds(every, "every"), LONGEST_SECONDS)


def _content(watch: ArchiveWatch) -> Any:
    """What the archive holds: positions of each stream, and where recordings were cut back."""
    watch.refresh()
    return {stream: tuple(parts) for stream, parts in watch.held().items()}, sorted(cut.token for _, cut in watch.cuts)


def _sleep(seconds: float) -> bool:
    SystemClock().sleep(seconds)
    return False
