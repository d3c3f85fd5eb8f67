"""Bugs for the suite "tables": rows that come twice, come back, or are missing; values and losses that change."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

HISTORIES = "tests/tables/test_histories.py::test_tables_have_each_row_once_after_any_history"
PIPELINE = "tests/tables/test_pipeline.py"
KEEPING = "tests/tables/test_keeping.py"
LAKE = "tests/tables/lake/test_lake.py"
ROOM = "tests/tables/lake/test_room.py::test_a_query_has_each_row_once_after_any_history"


def _a_commit_forgets_what_was_read() -> None:
    from penstock.tables.folder.state import State

    plain = State.to_json
    State.to_json = lambda self: {**plain(self), "done": self.done[:-1]}  # type: ignore[method-assign]


def _the_state_is_no_part_of_the_commit() -> None:
    from penstock.tables.delta import table as delta

    plain = delta.Table.commit

    def commit(self: Any, *given: Any, state: Any = None, **named: Any) -> None:
        plain(self, *given, **named)
        if state is not None:
            plain(self, state=state)

    delta.Table.commit = commit  # type: ignore[method-assign]


def _recordings_of_two_archives_are_one() -> None:
    from penstock.tables import pipeline, rebuilding
    from penstock.tables.work import tasks

    for module in (pipeline, rebuilding, tasks):
        module.recording_key = lambda epoch, recording: str(recording)  # type: ignore[attr-defined]


def _a_cut_is_not_followed() -> None:
    from penstock.tables.pipeline import Pipeline

    Pipeline._follow_cuts = lambda self, folder, survey: None  # type: ignore[method-assign]


def _what_was_erased_is_read_again() -> None:
    from penstock.tables import pipeline

    pipeline.erased_spans = lambda erased, channel: []


def _an_erasure_that_was_killed_is_not_finished() -> None:
    from penstock.tables import keep

    keep.follow_erasures = lambda folder: 0


def _a_value_that_does_not_fit_is_dropped() -> None:
    from penstock.columns.contract.rescue import Rescued

    Rescued.__call__ = lambda self, row, path, value: None  # type: ignore[method-assign]


def _a_restore_is_not_seen() -> None:
    from penstock.tables.folder import state

    state.set_back = lambda table, found, since: ""


def _files_of_a_batch_stay() -> None:
    from penstock.tables.folder import Folder

    Folder.clean = lambda self: 0  # type: ignore[method-assign]


def _cut_rows_come_back_with_a_restore() -> None:
    from penstock.tables import restoring

    restoring.cut_predicate = lambda info, cut: "false"  # type: ignore[attr-defined]


def _a_loss_is_told_again() -> None:
    from penstock.tables.folder.state import State

    plain = State.to_json

    def to_json(self: Any) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name != "told"}

    State.to_json = to_json  # type: ignore[method-assign]


def _a_query_has_no_end() -> None:
    from penstock.tables.lake import cut

    cut._clip = lambda one, look: None


def _a_message_of_two_parts_is_missing() -> None:
    from penstock.tables.lake import cut

    cut._begun = lambda one, epoch: set()


def _missing_messages_are_not_told() -> None:
    from penstock.tables.lake.queries import Cut

    Cut.missing = property(lambda self: [])  # type: ignore[assignment, method-assign]


def _an_older_version_of_a_table_is_kept() -> None:
    from penstock.tables.lake import snapshots

    snapshots._stamp = lambda table: (0,)


BUGS: dict[str, Planted] = {
    "a commit of a table forgets the last part that was read": Planted(_a_commit_forgets_what_was_read, (HISTORIES,)),
    "a table's state is not in the commit of its rows": Planted(
        _the_state_is_no_part_of_the_commit, (f"{PIPELINE}::test_a_state_is_written_before_its_rows_are_there",)
    ),
    "a table does not follow cuts of recordings": Planted(_a_cut_is_not_followed, (HISTORIES,)),
    "rows that were erased are read again": Planted(
        _what_was_erased_is_read_again, (f"{KEEPING}::test_what_is_erased_is_gone_and_does_not_come_back",)
    ),
    "an erasure that was killed is not finished": Planted(
        _an_erasure_that_was_killed_is_not_finished,
        (f"{KEEPING}::test_an_erasure_that_was_killed_is_finished_by_a_run",),
    ),
    "a value that does not fit its column is dropped": Planted(_a_value_that_does_not_fit_is_dropped, (HISTORIES,)),
    "a table that was set back is not noticed": Planted(_a_restore_is_not_seen, (HISTORIES,)),
    "files of a killed batch stay": Planted(_files_of_a_batch_stay, (HISTORIES,)),
    "cut rows come back with a restore": Planted(
        _cut_rows_come_back_with_a_restore, (f"{KEEPING}::test_cut_rows_that_a_restore_brings_back_go",)
    ),
    "a loss is told again in every run": Planted(
        _a_loss_is_told_again, (f"{PIPELINE}::test_losses_are_rows_that_sum_up_exactly",)
    ),
    "a query has what is sent while it looks": Planted(
        _a_query_has_no_end, (f"{LAKE}::test_what_is_sent_after_a_cut_has_begun_is_not_in_it",)
    ),
    "a message that ends in memory is missing": Planted(
        _a_message_of_two_parts_is_missing, (f"{LAKE}::test_a_message_that_a_recorder_has_in_part_is_there_once",)
    ),
    "a query does not tell what it lacks": Planted(
        _missing_messages_are_not_told, (f"{LAKE}::test_what_memory_lets_go_of_is_missing",)
    ),
    "recordings of two archives with one number are one": Planted(
        _recordings_of_two_archives_are_one,
        ("tests/tables/test_following.py::test_two_archives_may_share_a_folder_of_tables[msgpack]",),
    ),
    "a query has an older version of a table": Planted(_an_older_version_of_a_table_is_kept, (ROOM,)),
}
