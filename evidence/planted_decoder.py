"""Bugs for the suite "decoder": values that change, columns that freeze or double, one message or stream that stops all."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

MESSAGES = "tests/decoder/test_messages.py"
TABLES = "tests/decoder/test_tables.py"
GOING_ON = "tests/decoder/test_going_on.py"
VALUES = "tests/codecs/test_values.py"


def _bytes_are_cut_at_the_first_nul() -> None:
    import pyarrow as pa

    from penstock.columns import fixed

    fixed._strings = lambda values: pa.array([value.split(b"\0")[0] for value in values.tolist()], pa.binary())


def _keys_that_are_not_text_are_dropped() -> None:
    from penstock.columns import objects

    plain = objects._labelled

    def labelled(row: Any, at: int, errors: Any) -> Any:
        return plain({key: row[key] for key in row if type(key) is str} if type(row) is dict else row, at, errors)

    objects._labelled = labelled


def _columns_are_those_of_the_first_messages() -> None:
    from penstock.columns import objects

    plain = objects._grow
    objects._grow = lambda keys, kinds, taken: keys or plain(keys, kinds, taken)


def _one_message_raises() -> None:
    from penstock.columns import objects

    objects._decode_one = lambda decoder, item, at, errors: decoder(item)


def _two_keys_share_a_column() -> None:
    from penstock.columns import names, objects

    names.free = objects.free = lambda key, taken: names.clean(key)


def _names_differ_in_capitals_only() -> None:
    from penstock.columns import names, objects

    def free(key: str, taken: set[str]) -> str:
        name = names.clean(key)
        while name in taken or name in names.RESERVED:
            name += "_"
        taken.add(name)
        return name

    names.free = objects.free = free


def _time_stamps_are_rounded() -> None:
    from penstock.columns import objects

    objects._was_rounded = lambda item, row: False


def _texts_that_are_none_are_replaced() -> None:
    import pyarrow as pa

    from penstock.columns import fixed

    def texts(values: Any) -> Any:
        raw = [value.tobytes().decode("utf-32-le", "replace").rstrip("\0") for value in values.astype("<U")]
        return pa.array(raw, pa.string()), None

    fixed._texts = texts


def _files_are_not_conformed() -> None:
    from penstock.spark import books

    plain = books.Books._conform

    def conform(self: Any, ledger: Any, do: Any) -> None:
        plain(self, ledger, lambda what, tasks: [])

    books.Books._conform = conform  # type: ignore[method-assign]


def _files_of_others_are_deleted() -> None:
    import re

    from penstock.spark import books

    books.OURS = re.compile(".*")


def _a_commit_forgets_its_state() -> None:
    from penstock.spark import ledger

    ledger._STATE = tuple(name for name in ledger._STATE if name != "done")


def _a_cut_is_applied_to_files_alone() -> None:
    from penstock.spark.ledger import Ledger

    plain = Ledger.forget

    def forget(self: Any, cuts: Any) -> Any:
        done = [dict(row) for row in self.done]
        found = plain(self, cuts)
        self.done = done
        return found

    Ledger.forget = forget  # type: ignore[method-assign]


def _a_table_that_came_later_is_not_filled() -> None:
    from penstock.spark import needs

    plain = needs.plan

    def plan(survey: Any, have: Any, range_bytes: int) -> Any:
        return plain(survey, dict.fromkeys(have, have["messages"]), range_bytes)

    needs.plan = plan


def _what_is_not_complete_is_done() -> None:
    from penstock.record.read import rows

    rows.holes = lambda scanner, segments, planned: []


def _one_failed_stream_stops_all() -> None:
    from penstock.spark import tasks

    def run(task: dict[str, Any]) -> dict[str, Any]:
        kinds = {"amend": tasks._amend, "range": tasks._write_range, "retype": tasks._retype, "check": tasks._check}
        return {"number": task["number"], **kinds[task["kind"]](task)}

    tasks.run = run


def _numbers_that_json_lacks_become_null() -> None:
    from penstock.codecs import values

    values._refuse_not_finite = lambda value: None


def _numbers_are_cast() -> None:
    from penstock.codecs import values

    values._compare = lambda given, made, field: None


BUGS: dict[str, Planted] = {
    "bytes are cut at the first NUL": Planted(
        _bytes_are_cut_at_the_first_nul, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "keys that are not text are dropped": Planted(
        _keys_that_are_not_text_are_dropped, (f"{MESSAGES}::test_any_object_is_in_its_row_or_its_error",)
    ),
    "columns are those of the first messages": Planted(
        _columns_are_those_of_the_first_messages, (f"{TABLES}::test_columns_come_and_widen_later",)
    ),
    "one message raises": Planted(_one_message_raises, (f"{TABLES}::test_one_poison_message_stops_nothing",)),
    "two keys share a column": Planted(
        _two_keys_share_a_column, (f"{MESSAGES}::test_any_object_is_in_its_row_or_its_error",)
    ),
    "names of columns differ in capitals only": Planted(
        _names_differ_in_capitals_only, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "time stamps are rounded": Planted(
        _time_stamps_are_rounded, (f"{MESSAGES}::test_any_object_is_in_its_row_or_its_error",)
    ),
    "texts that are none are replaced": Planted(
        _texts_that_are_none_are_replaced, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "files are not conformed to wider columns": Planted(
        _files_are_not_conformed, (f"{TABLES}::test_columns_come_and_widen_later",)
    ),
    "files of others are deleted": Planted(
        _files_of_others_are_deleted, (f"{TABLES}::test_files_of_others_are_never_read_or_deleted",)
    ),
    "a commit forgets which positions the table holds": Planted(
        _a_commit_forgets_its_state, (f"{TABLES}::test_tables_may_be_asked_for_later",)
    ),
    "a cut is applied to files, not to what the table holds": Planted(
        _a_cut_is_applied_to_files_alone, (f"{GOING_ON}::test_rows_behind_a_cut_are_forgotten",)
    ),
    "a table that came later is not filled": Planted(
        _a_table_that_came_later_is_not_filled, (f"{TABLES}::test_tables_may_be_asked_for_later",)
    ),
    "what is not complete is done": Planted(
        _what_is_not_complete_is_done, (f"{TABLES}::test_a_message_in_progress_at_a_recordings_end_is_kept",)
    ),
    "one failed stream stops all": Planted(
        _one_failed_stream_stops_all, (f"{TABLES}::test_a_stream_whose_task_fails_stops_no_other",)
    ),
    "numbers that JSON lacks become null": Planted(
        _numbers_that_json_lacks_become_null, (f"{VALUES}::test_json_has_no_such_numbers",)
    ),
    "numbers are cast": Planted(_numbers_are_cast, (f"{VALUES}::test_random_numbers_are_sent_exactly_or_refused",)),
}
