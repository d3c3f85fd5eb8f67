"""Bugs for the suite "decoder": values that change, keys that get lost, one message or stream that stops all."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

CONTRACT = "tests/columns/test_contract.py"
MESSAGES = "tests/decoder/test_messages.py"
TABLES = "tests/decoder/test_tables.py"
GOING_ON = "tests/decoder/test_going_on.py"
PIPELINE = "tests/tables/test_pipeline.py"
VALUES = "tests/codecs/test_values.py"


def _bytes_are_cut_at_the_first_nul() -> None:
    import pyarrow as pa

    from penstock.columns import fixed

    fixed._strings = lambda values: pa.array([value.split(b"\0")[0] for value in values.tolist()], pa.binary())


def _keys_that_are_not_text_are_dropped() -> None:
    from penstock.columns.contract import decoding

    plain = decoding._by_label

    def by_label(rows: Any, contract: Any, errors: Any) -> Any:
        texts = [{key: row[key] for key in row if type(key) is str} if type(row) is dict else row for row in rows]
        return plain(texts, contract, errors)

    decoding._by_label = by_label


def _values_that_do_not_fit_are_dropped() -> None:
    from penstock.columns.contract.rescue import Rescued

    Rescued.__call__ = lambda self, row, path, value: None  # type: ignore[method-assign]


def _a_key_twice_in_a_map_inside_is_not_seen() -> None:
    from penstock.columns.contract import messages

    messages._is_nested = lambda row: False


def _numbers_are_rounded_to_doubles() -> None:
    from penstock.columns.contract import building

    building._is_exact = lambda value: True


def _one_message_raises() -> None:
    from penstock.columns.contract import messages

    messages._one = lambda parse, item, at, errors: parse(item)


def _two_keys_share_a_column() -> None:
    from penstock.columns import contract, names

    contract.free = lambda key, taken: names.clean(key)  # type: ignore[attr-defined]


def _names_differ_in_capitals_only() -> None:
    from penstock.columns import contract, names

    def free(key: str, taken: set[str]) -> str:
        name = names.clean(key)
        while name in taken or name in names.RESERVED:
            name += "_"
        taken.add(name)
        return name

    contract.free = free  # type: ignore[attr-defined]


def _time_stamps_are_rounded() -> None:
    from penstock.columns.contract import messages

    messages._is_odd = lambda data: False


def _texts_that_are_none_are_replaced() -> None:
    import pyarrow as pa

    from penstock.columns import fixed

    def texts(values: Any) -> Any:
        raw = [value.tobytes().decode("utf-32-le", "replace").rstrip("\0") for value in values.astype("<U")]
        return pa.array(raw, pa.string()), None

    fixed._texts = texts


def _a_columns_type_changes() -> None:
    from penstock.tables.pipeline import Pipeline

    Pipeline.contract = lambda self, stored, one: self.declared(one.channel, [one.codec])  # type: ignore[method-assign]


def _a_commit_forgets_its_state() -> None:
    from penstock.tables.folder.state import State

    plain = State.to_json
    State.to_json = lambda self: {**plain(self), "done": []}  # type: ignore[method-assign]


def _a_cut_is_not_followed() -> None:
    from penstock.tables.folder.state import State

    State.forget = lambda self, info, cut: self.cuts.append(cut.token)  # type: ignore[method-assign]


def _a_table_that_was_removed_is_not_filled() -> None:
    from penstock.tables import needs

    plain = needs.plan

    def plan(survey: Any, have: Any, range_bytes: int) -> Any:
        return plain(survey, dict.fromkeys(have, have["messages"]), range_bytes)

    needs.plan = plan


def _what_is_not_complete_is_done() -> None:
    from penstock.record.read import rows

    rows.holes = lambda scanner, planned: []


def _one_failed_stream_stops_all() -> None:
    from penstock.tables.work import tasks

    tasks.run = lambda task: {"number": task["number"], **tasks._write_range(task)}


def _numbers_that_json_lacks_become_null() -> None:
    from penstock.codecs import encoding

    encoding._refuse_not_finite = lambda value: None


def _numbers_are_cast() -> None:
    from penstock.codecs import values

    values._compare = lambda given, made, field: None


BUGS: dict[str, Planted] = {
    "bytes are cut at the first NUL": Planted(
        _bytes_are_cut_at_the_first_nul, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "keys that are not text are dropped": Planted(
        _keys_that_are_not_text_are_dropped, (f"{CONTRACT}::test_any_message_is_in_its_columns_or_rescued",)
    ),
    "values that do not fit are dropped": Planted(
        _values_that_do_not_fit_are_dropped, (f"{CONTRACT}::test_any_message_is_in_its_columns_or_rescued",)
    ),
    "a key twice in a map inside is not seen": Planted(
        _a_key_twice_in_a_map_inside_is_not_seen, (f"{CONTRACT}::test_a_key_twice_in_a_map_inside_is_an_error",)
    ),
    "whole numbers are rounded to doubles": Planted(
        _numbers_are_rounded_to_doubles, (f"{CONTRACT}::test_a_number_is_exact_or_rescued_with_its_digits",)
    ),
    "one message raises": Planted(_one_message_raises, (f"{TABLES}::test_one_poison_message_stops_nothing",)),
    "two keys share a column": Planted(
        _two_keys_share_a_column, (f"{CONTRACT}::test_any_message_is_in_its_columns_or_rescued",)
    ),
    "names of columns differ in capitals only": Planted(
        _names_differ_in_capitals_only, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "time stamps are rounded": Planted(
        _time_stamps_are_rounded, (f"{CONTRACT}::test_any_message_is_in_its_columns_or_rescued",)
    ),
    "texts that are none are replaced": Planted(
        _texts_that_are_none_are_replaced, (f"{MESSAGES}::test_any_record_is_in_its_row_or_its_error",)
    ),
    "a column's type changes": Planted(
        _a_columns_type_changes, (f"{PIPELINE}::test_one_odd_value_among_many_rewrites_nothing",)
    ),
    "a commit forgets which positions the table holds": Planted(
        _a_commit_forgets_its_state, (f"{TABLES}::test_in_any_steps_each_row_has_what_was_sent",)
    ),
    "a cut of a recording is not followed": Planted(
        _a_cut_is_not_followed, (f"{GOING_ON}::test_rows_behind_a_cut_are_forgotten",)
    ),
    "a table that was removed is not filled": Planted(
        _a_table_that_was_removed_is_not_filled,
        ("tests/tables/test_other_programs.py::test_any_table_may_be_removed_and_is_built_again",),
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
