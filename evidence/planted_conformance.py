"""Bugs planted into what all kinds of channels promise alike."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

WRITING, READING, LIFE = (f"tests/conformance/test_{name}.py" for name in ("writing", "reading", "life"))
IDENTITY, INTROSPECTION = (f"tests/conformance/test_{name}.py" for name in ("identity", "introspection"))


def _a_start_that_a_kind_lacks_is_ignored() -> None:
    from penstock.channels.storage import opening

    plain = opening.start_of
    opening.start_of = lambda start, names: plain("newest" if isinstance(start, str) else start, names)


def _asend_blocks_the_loop() -> None:
    from penstock.channels.handles import NativePublication

    async def send_async(self: Any, data: Any, timeout: float | None = None) -> int:
        position: int = self.send(data, 1)
        return position

    NativePublication.send_async = send_async  # type: ignore[method-assign]


def _a_fake_channel_is_a_log() -> None:
    from penstock.channels.uri import channel
    from penstock.channels.uri.registry import kind_named

    plain = channel.parse

    def parse(uri: str) -> Any:
        parsed = plain(uri)
        return channel.Channel(kind_named("log"), parsed.name, True, uri) if parsed.fake else parsed

    channel.parse = parse


def _every_error_is_of_the_file() -> None:
    from penstock.channels.storage import opening

    opening.place_of = opening.where


def _statistics_look_the_name_up() -> None:
    from penstock.channels import handles
    from penstock.channels.storage import inspection

    handles.inspect_opened = lambda kind, channel, _: inspection.inspect(kind, channel)


def _a_recording_is_of_whoever_has_the_name() -> None:
    from penstock.record.write.connector import Channels

    Channels.describe_opened = lambda self, sub, *, pixels=False: self.describe(sub.channel, pixels=pixels)  # type: ignore[method-assign]


def _any_attribute_is_taken() -> None:
    from penstock.util import strict

    strict.check_attribute = lambda *_: None


BUGS: dict[str, Planted] = {
    "statistics look the name up": Planted(
        _statistics_look_the_name_up, (f"{IDENTITY}::test_statistics_after_another_came[log]",)
    ),
    "a recording is of whoever has the name": Planted(
        _a_recording_is_of_whoever_has_the_name,
        ("tests/record/test_record_again.py::test_a_channel_removed_after_joining_is_recorded[log-True]",),
    ),
    "any attribute is taken": Planted(_any_attribute_is_taken, (f"{INTROSPECTION}::test_unknown_attributes[log]",)),
    "a start that a kind lacks is ignored": Planted(
        _a_start_that_a_kind_lacks_is_ignored, (f"{READING}::test_start_earliest[ring]",)
    ),
    "send_async blocks the loop": Planted(_asend_blocks_the_loop, (f"{WRITING}::test_asend_waits_for_room[log]",)),
    "a fake channel is a log": Planted(_a_fake_channel_is_a_log, (f"{LIFE}::test_inspect[fake-ring]",)),
    "errors name the file": Planted(_every_error_is_of_the_file, (f"{READING}::test_subscription[log]",)),
}
