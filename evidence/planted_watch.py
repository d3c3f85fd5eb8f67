"""Planted bugs of log records and counters."""

from __future__ import annotations

import os
from typing import Any

from evidence.planting import Planted

LOGS, COUNTERS = "tests/watch/test_logs.py", "tests/watch/test_counters.py"


def _a_dropped_record_is_not_counted() -> None:
    from penstock.front.logs import LogHandler

    plain = LogHandler._send

    def send(self: Any, record: Any) -> bool:
        plain(self, record)
        return True

    LogHandler._send = send  # type: ignore[method-assign]


def _a_long_text_is_cut_in_silence() -> None:
    from penstock.front import logs

    plain = logs._cut

    def cut(line: Any, letters: int) -> Any:
        import msgspec

        made = plain(line, letters)
        return msgspec.structs.replace(made, message=made.message[:letters])

    logs._cut = cut


def _each_process_has_a_counter_of_its_own() -> None:
    from penstock.front import counters

    plain = counters._opened
    counters._opened = lambda folder, name: plain(folder, f"{name}-{os.getpid()}")  # type: ignore[assignment]


def _a_count_that_wraps_shrinks() -> None:
    from penstock.front import counters

    counters._grown = lambda before, now: now - before


BUGS: dict[str, Planted] = {
    "a count that wraps shrinks": Planted(
        _a_count_that_wraps_shrinks, (f"{COUNTERS}::test_a_count_goes_on_at_0_behind_its_largest",)
    ),
    "a log record that was dropped is not counted": Planted(
        _a_dropped_record_is_not_counted, (f"{LOGS}::test_a_full_channel_drops_and_counts",)
    ),
    "a log record that is too long is cut in silence": Planted(
        _a_long_text_is_cut_in_silence, (f"{LOGS}::test_texts_too_long_are_cut_and_say_so",)
    ),
    "each process has a counter of its own": Planted(
        _each_process_has_a_counter_of_its_own, (f"{COUNTERS}::test_a_count_outlives_a_process_that_was_killed",)
    ),
}
