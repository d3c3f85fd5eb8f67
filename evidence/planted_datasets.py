"""Bugs planted into training sets and live data sets."""

from __future__ import annotations

import types
from typing import Any

from evidence.planting import Planted

BUILDING, LOSSES = "tests/export/datasets/test_building.py", "tests/export/datasets/test_losses.py"
READING, LIVE = "tests/export/datasets/test_reading.py", "tests/export/datasets/test_live.py"


def _any_distance_is_near() -> None:
    from penstock.export.datasets.aligning import Cursor

    before = Cursor.partner
    Cursor.partner = lambda self, time_ns, tolerance_ns, pick: before(self, time_ns, None, pick)  # type: ignore[method-assign]


def _the_message_of_the_same_time_is_missed() -> None:
    from penstock.export.datasets.aligning import Cursor

    before = Cursor.move
    Cursor.move = lambda self, time_ns: before(self, time_ns - 1)  # type: ignore[method-assign]


def _losses_are_not_told() -> None:
    from penstock.export.datasets.streams import Stream

    Stream._has_gap = lambda *arguments: False  # type: ignore[method-assign]


def _damage_is_no_loss() -> None:
    from penstock.export.datasets.streams import Stream

    Stream._note_damage = lambda *arguments: None  # type: ignore[method-assign]


def _another_set_is_read() -> None:
    from penstock.export.datasets.reading import Dataset

    Dataset._check_same = lambda *arguments: None  # type: ignore[method-assign]


def _parts_of_parts_overlap() -> None:
    from penstock.export.datasets.workers import Share

    def within(self: Any, outer: Share) -> Share:
        return Share(outer.index * self.count + self.index, outer.count * self.count)

    Share.within = within  # type: ignore[method-assign]


def _every_worker_has_every_message() -> None:
    from penstock.export.datasets.live import LiveRows

    LiveRows._is_mine = lambda self: True  # type: ignore[method-assign]


def _a_paused_worker_keeps_its_share() -> None:
    from penstock.export.datasets import live

    live._native = types.SimpleNamespace(pipe_pause=lambda subscription: None)  # type: ignore[assignment]


def _it_begins_where_its_worker_does() -> None:
    from penstock.export.datasets import live

    before = live.LiveDataset.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        before(self, *given, **named)
        self._begins = None

    live.LiveDataset.__init__ = init  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "a training set takes partners from any distance": Planted(
        _any_distance_is_near, (f"{BUILDING}::test_rows_are_the_recordings_by_position[20ms-latest]",)
    ),
    "a training set misses the partner of the same time": Planted(
        _the_message_of_the_same_time_is_missed, (f"{BUILDING}::test_rows_are_the_recordings_by_position[20ms-latest]",)
    ),
    "rows of a training set do not tell losses": Planted(
        _losses_are_not_told, (f"{LOSSES}::test_rows_say_where_messages_were_lost",)
    ),
    "damage is no loss of a training set": Planted(
        _damage_is_no_loss, (f"{LOSSES}::test_damage_is_a_loss_that_the_set_tells",)
    ),
    "a pickled training set reads another one": Planted(
        _another_set_is_read, (f"{READING}::test_it_pickles_by_its_folder",)
    ),
    "shards of shards overlap": Planted(_parts_of_parts_overlap, (f"{READING}::test_shards_have_each_row_once",)),
    "every worker of a live data set has every message": Planted(
        _every_worker_has_every_message, (f"{LIVE}::test_workers_yield_each_message_once[log]",)
    ),
    "a worker that is not asked keeps messages of a pipe": Planted(
        _a_paused_worker_keeps_its_share, (f"{LIVE}::test_a_worker_that_is_not_asked_keeps_nothing",)
    ),
    "a live data set begins where its worker begins": Planted(
        _it_begins_where_its_worker_does, (f"{LIVE}::test_it_begins_where_the_channel_was[log]",)
    ),
}
