"""Bugs planted into archives of other machines, copies, and subscriptions that begin in the past."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

SERVE, COPY, HISTORY = "tests/record/test_serve.py", "tests/record/test_replicate.py", "tests/network/test_history.py"
LOOKS = "tests/record/test_served_looks.py"


def _a_server_shows_any_file() -> None:
    from penstock.record.serve import files

    files._is_name = lambda path: True


def _a_token_is_not_compared() -> None:
    from penstock.record.serve.server import _Tokens

    _Tokens.start_call = lambda self, info, headers: None


def _a_growing_segment_has_the_length_that_was_listed() -> None:
    from penstock.record.serve.looks import _Look

    _Look._with_frames = lambda self, newer: newer  # type: ignore[method-assign]


def _a_young_file_is_not_sent_again() -> None:
    from penstock.record.serve import looks

    looks._is_old = lambda entries: True


def _a_look_asks_for_each_file() -> None:
    from penstock.record.serve import looks

    looks._Look._keep = lambda self, name, size: None  # type: ignore[method-assign]


def _a_copy_is_not_compared() -> None:
    from penstock.record.keep import replicate

    plain = replicate._Replica._frames

    def frames(self: Any, segment: Any, there: Any, blocks: Any, begin: int, end: int) -> None:
        plain(self, segment, there, blocks[:0], begin, end)

    replicate._Replica._frames = frames  # type: ignore[method-assign]


def _a_copy_is_not_partial_while_it_is_made() -> None:
    from penstock.record.keep import replicate

    replicate._Replica._note_begun = lambda self: None  # type: ignore[method-assign]


def _the_hole_in_front_of_the_live_stream_is_not_read() -> None:
    from penstock.kinds.udp.history.subscription import HistorySubscription

    HistorySubscription._holes = lambda self, goals: iter(())  # type: ignore[method-assign]


def _a_loss_without_its_session_is_forgotten() -> None:
    from penstock.kinds.udp.history.subscription import HistorySubscription

    plain = HistorySubscription._has_lost

    def has_lost(self: Any, read: Any = None) -> bool:
        found = plain(self, read)
        self._unplaced.clear()
        return found

    HistorySubscription._has_lost = has_lost  # type: ignore[method-assign]


def _what_was_given_from_the_past_is_given_again() -> None:
    from penstock.kinds.udp.history.subscription import HistorySubscription

    plain = HistorySubscription._next_aside

    def next_aside(self: Any) -> Any:
        after, self._after = self._after, {}
        try:
            return plain(self)
        finally:
            self._after = {**after, **self._after}

    HistorySubscription._next_aside = next_aside  # type: ignore[method-assign]


def _a_recording_of_another_port_is_the_same_stream() -> None:
    from penstock.record import session_history

    session_history._place = lambda name: ("", name.rpartition("/")[2])


BUGS = {
    "a server shows any file": Planted(_a_server_shows_any_file, (f"{SERVE}::test_a_client_asks_for_no_other_file",)),
    "a token is not compared": Planted(
        _a_token_is_not_compared, (f"{SERVE}::test_without_the_token_nothing_is_shown",)
    ),
    "a growing segment has the length that was listed": Planted(
        _a_growing_segment_has_the_length_that_was_listed,
        (f"{LOOKS}::test_frames_written_before_an_index_is_read_are_there",),
    ),
    "a young file is not sent again": Planted(
        _a_young_file_is_not_sent_again, (f"{LOOKS}::test_a_file_of_the_same_time_and_size_is_read_again",)
    ),
    "a look asks for each file": Planted(_a_look_asks_for_each_file, (f"{LOOKS}::test_a_look_is_one_call",)),
    "a copy is not compared": Planted(_a_copy_is_not_compared, (f"{COPY}::test_damage_at_the_source_is_not_copied",)),
    "a copy is not partial while it is made": Planted(
        _a_copy_is_not_partial_while_it_is_made, (f"{COPY}::test_a_kill_within_a_new_copy_leaves_it_sound",)
    ),
    "the hole in front of the live stream is not read": Planted(
        _the_hole_in_front_of_the_live_stream_is_not_read,
        (f"{HISTORY}::test_history_joins_the_live_stream_under_load",),
    ),
    "a loss without its session is forgotten": Planted(
        _a_loss_without_its_session_is_forgotten,
        ("tests/network/test_history_holes.py::test_a_loss_seen_while_its_session_is_gone_is_filled",),
    ),
    "what was given from the past is given again": Planted(
        _what_was_given_from_the_past_is_given_again,
        ("tests/network/test_history_holes.py::test_what_the_past_and_the_live_stream_have_is_given_once",),
    ),
    "a recording of another port is the same stream": Planted(
        _a_recording_of_another_port_is_the_same_stream,
        (f"{HISTORY}::test_recordings_of_another_place_are_left_alone",),
    ),
}
