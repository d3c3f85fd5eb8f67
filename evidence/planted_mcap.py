"""Bugs planted into the reading of MCAP files."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

DAMAGE = "tests/export/test_mcap_damage.py"
IMPORT = "tests/export/test_mcap_import.py"


def _no_checksum_is_compared() -> None:
    from penstock.export.mcap_reading import checking, records

    for module in (checking, records):
        module.compare_crc = lambda stated, found, what: None  # type: ignore[assignment]


def _topics_of_one_text_are_one_channel() -> None:
    from penstock.export import mcap_names

    mcap_names.marked = lambda topic, form="": mcap_names.stem(topic).rstrip("-")  # type: ignore[assignment]


def _messages_are_in_the_order_of_the_file() -> None:
    from penstock.export.mcap_reading.file import McapFile

    def parts(self: Any) -> Any:
        for block in sorted(self.contents.blocks, key=lambda one: one.offset):
            yield self._part(block)

    McapFile.parts = parts  # type: ignore[method-assign]


def _a_message_outside_of_chunks_is_believed() -> None:
    from penstock.export.mcap_reading.recovery import Recovery

    Recovery._is_confirmed = lambda self, end: True  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "an MCAP file's checksums are not compared": Planted(
        _no_checksum_is_compared, (f"{DAMAGE}::test_damage_is_named_with_its_place",)
    ),
    "a recovery of an MCAP file takes messages that nobody sent": Planted(
        _a_message_outside_of_chunks_is_believed, (f"{DAMAGE}::test_another_record_does_not_become_a_message",)
    ),
    "topics of an MCAP file share a channel": Planted(
        _topics_of_one_text_are_one_channel, (f"{IMPORT}::test_topics_have_channels_of_their_own_in_any_order",)
    ),
    "an MCAP file's messages are taken in its own order": Planted(
        _messages_are_in_the_order_of_the_file, (f"{IMPORT}::test_a_topic_is_in_the_order_of_its_times",)
    ),
}
