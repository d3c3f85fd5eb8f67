"""Bugs planted into the codec of ROS 2, the check of Foxglove's schemas, and the pace of a playing."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

ROS2 = "tests/codecs/test_ros2.py"
BAGS = "tests/export/test_bags.py"


def _a_byte_has_a_sign() -> None:
    from penstock.codecs import ros2

    before = ros2._plain

    def plain(about: Any, message: str, found: Any) -> Any:
        made = before(about, message, found)
        for field in about.fields[message]:
            if field.kind == "byte" and field.form != "one":
                made[field.name] = made[field.name].view("i1")
        return made

    ros2._plain = plain


def _a_bound_is_not_checked() -> None:
    from penstock.codecs import ros2

    ros2._check_length = lambda field, length, place: None  # type: ignore[assignment]


def _what_is_not_decoded_is_not_said() -> None:
    from penstock.export import mcap_codecs

    before = mcap_codecs.foreign
    mcap_codecs.foreign = lambda channel: (before(channel)[0], "")


def _foxglove_takes_any_fields() -> None:
    from penstock.codecs import foxglove

    foxglove._misfit = lambda kind, found, place: ""  # type: ignore[assignment]


def _a_pause_does_not_end() -> None:
    from penstock.record.read.pace import Pace

    Pace.resume = lambda self: None  # type: ignore[method-assign]


def _played_messages_have_the_times_of_now() -> None:
    from penstock.record.read import player

    before = player.Player.__init__
    player.Player.__init__ = lambda self, *most, recorded_times=False: before(self, *most)  # type: ignore[method-assign]


def _optional_fields_of_idl_are_read_as_others() -> None:
    import re

    from penstock.codecs import ros2_idl

    ros2_idl.OTHER_BYTES = re.compile("@mutable")


BUGS: dict[str, Planted] = {
    "messages with recorded times are played with those of now": Planted(
        _played_messages_have_the_times_of_now,
        ("tests/record/test_play_times.py::test_a_reader_sees_the_recorded_times",),
    ),
    "an optional field of IDL is read as any other": Planted(
        _optional_fields_of_idl_are_read_as_others,
        ("tests/codecs/test_ros2_idl.py::test_what_cannot_be_read_is_refused_in_one_line",),
    ),
    "a byte of ROS 2 has a sign": Planted(
        _a_byte_has_a_sign, (f"{ROS2}::test_messages_are_those_of_rosbags_both_ways",)
    ),
    "a bound of a ROS 2 message is not checked": Planted(
        _a_bound_is_not_checked, (f"{ROS2}::test_a_field_that_does_not_fit_is_named",)
    ),
    "an import does not say what it cannot decode": Planted(
        _what_is_not_decoded_is_not_said, (f"{BAGS}::test_what_is_not_known_stays_bytes_and_is_said",)
    ),
    "a class of other fields takes the name of a schema": Planted(
        _foxglove_takes_any_fields, ("tests/codecs/test_foxglove.py::test_a_class_with_other_fields_is_refused",)
    ),
    "a playing that was paused does not go on": Planted(
        _a_pause_does_not_end, ("tests/cli/test_playing.py::test_keys_change_the_pace",)
    ),
}
