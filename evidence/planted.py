"""Bugs planted into Python: `python -m evidence.planted NAME` plants one and lets the simulator look for it.

Ends with 1 when the simulator noticed, as it should.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from evidence.build import ROOT

SEEDS = 400


def _synced_is_said_before_it_is() -> None:
    from penstock.record.recorder import Track

    def sync(self: Any, catalog: Any) -> None:
        self.synced = self.segment.position
        catalog.synced(self.description.id, self.synced)

    Track.sync = sync  # type: ignore[method-assign]


def _a_dead_recorders_end_is_not_cut() -> None:
    from penstock.record import archive, verify

    verify.close_crashed = archive.verification.close_crashed = lambda folder: None


def _a_follower_repeats() -> None:
    from penstock.record import archive as module

    plain = module.Archive.follow

    def follow(self: Any, recording: Any, *, start: int | None = None, timeout: float | None = None) -> Any:
        return plain(self, recording, start=None if start is None else max(0, start - 40), timeout=timeout)

    module.Archive.follow = follow  # type: ignore[method-assign]


def _repair_leaves_torn_ends() -> None:
    from penstock.record import verify

    verify._cut = lambda folder, segment, valid, why: []  # type: ignore[assignment]


def _a_gap_between_segments() -> None:
    from penstock.record.recorder import Track

    plain = Track._roll

    def roll(self: Any, base: int) -> None:
        plain(self, base + 32)

    Track._roll = roll  # type: ignore[method-assign]


PYTHON_BUGS: dict[str, Callable[[], None]] = {
    "synced is said before it is": _synced_is_said_before_it_is,
    "a dead recorder's end is not cut": _a_dead_recorders_end_is_not_cut,
    "a follower repeats itself": _a_follower_repeats,
    "repair leaves torn ends": _repair_leaves_torn_ends,
    "a segment begins where the one before does not end": _a_gap_between_segments,
}


def main() -> int:
    """1 if the planted bug was noticed."""
    PYTHON_BUGS[sys.argv[1]]()
    sys.path.insert(0, str(ROOT / "tests"))
    from sim import recording

    for seed in range(1, SEEDS):
        try:
            recording.simulate(seed)
        except AssertionError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
