"""Bugs planted into Python: one at a time, looked for by the simulator or by a suite of tests.

`python -m evidence.planted NAME` plants one and looks for it; it ends with 1 when the bug was noticed, as it should be.
"""

from __future__ import annotations

import sys
from typing import Any

from evidence import (
    planted_aio,
    planted_archives,
    planted_bags,
    planted_blackbox,
    planted_bridge,
    planted_command,
    planted_compat,
    planted_conformance,
    planted_datasets,
    planted_decoder,
    planted_frames,
    planted_mcap,
    planted_native,
    planted_pipes,
    planted_serving,
    planted_share,
    planted_start,
    planted_tables,
    planted_udp,
    planted_watch,
    planted_why,
    planted_zmq,
)
from evidence.build import ROOT
from evidence.planting import Planted

SEEDS = 400


def _synced_is_said_before_it_is() -> None:
    from penstock.record.format import sync_marker
    from penstock.record.write.writer import RecordingWriter

    def sync(self: Any) -> None:
        self.synced = self.segment.position
        sync_marker.write(self._mark, sync_marker.SyncMarker(self.synced))

    RecordingWriter.sync = sync  # type: ignore[method-assign]


def _a_dead_recorders_end_is_not_cut() -> None:
    from penstock.record.format.coverage import coverage_of
    from penstock.record.keep import repair

    repair.close_crashed = lambda folder: coverage_of(folder, folder.describe().start_position)


def _a_follower_repeats() -> None:
    from penstock.record import archive as module

    plain = module.Archive.follow

    def follow(self: Any, recording: Any, *, start: int | None = None, timeout: float | None = None) -> Any:
        return plain(self, recording, start=None if start is None else max(0, start - 40), timeout=timeout)

    module.Archive.follow = follow  # type: ignore[method-assign]


def _repair_leaves_torn_ends() -> None:
    from penstock.record.keep import repair

    repair._cut = lambda folder, segment, valid, why: []


def _a_gap_between_segments() -> None:
    from penstock.record.write.writer import RecordingWriter

    plain = RecordingWriter._roll

    def roll(self: Any, base: int) -> None:
        plain(self, base + 32)

    RecordingWriter._roll = roll  # type: ignore[method-assign]


PYTHON_BUGS: dict[str, Planted] = {
    "synced is said before it is": Planted(_synced_is_said_before_it_is),
    "a dead recorder's end is not cut": Planted(_a_dead_recorders_end_is_not_cut),
    "a follower repeats itself": Planted(_a_follower_repeats),
    "repair leaves torn ends": Planted(_repair_leaves_torn_ends),
    "a segment begins where the one before does not end": Planted(_a_gap_between_segments),
    **planted_decoder.BUGS,
    **planted_compat.BUGS,
    **planted_aio.BUGS,
    **planted_command.BUGS,
    **planted_pipes.BUGS,
    **planted_archives.BUGS,
    **planted_bags.BUGS,
    **planted_frames.BUGS,
    **planted_mcap.BUGS,
    **planted_native.BUGS,
    **planted_start.BUGS,
    **planted_tables.BUGS,
    **planted_conformance.BUGS,
    **planted_datasets.BUGS,
    **planted_blackbox.BUGS,
    **planted_bridge.BUGS,
    **planted_serving.BUGS,
    **planted_share.BUGS,
    **planted_zmq.BUGS,
    **planted_udp.BUGS,
    **planted_watch.BUGS,
    **planted_why.BUGS,
}


def plant(name: str) -> None:
    """Plants a bug into this process."""
    PYTHON_BUGS[name].plant()


def main() -> int:
    """1 if the planted bug was noticed."""
    bug = PYTHON_BUGS[sys.argv[1]]
    if bug.tests:
        from evidence import pytest_suites

        return int(pytest_suites.notices(bug.tests, sys.argv[1]))
    bug.plant()
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
