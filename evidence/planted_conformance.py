"""Bugs planted into what all kinds of channels promise alike."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

WRITING, READING, LIFE = (f"tests/conformance/test_{name}.py" for name in ("writing", "reading", "life"))


def _a_start_that_a_kind_lacks_is_ignored() -> None:
    from penstock.channels import opening

    plain = opening.start_of
    opening.start_of = lambda start, names: plain("newest" if isinstance(start, str) else start, names)


def _asend_blocks_the_loop() -> None:
    from penstock.channels.handles import NativePublication

    async def asend(self: Any, data: Any, timeout: float | None = None) -> int:
        position: int = self.send(data, 1)
        return position

    NativePublication.asend = asend  # type: ignore[method-assign]


def _a_fake_channel_is_a_log() -> None:
    from penstock import channel
    from penstock.kinds import kind_named

    plain = channel.parse

    def parse(uri: str) -> Any:
        parsed = plain(uri)
        return channel.Channel(kind_named("log"), parsed.name, True, uri) if parsed.fake else parsed

    channel.parse = parse


def _every_error_is_of_the_file() -> None:
    from penstock.channels import opening

    opening.place_of = opening.where


BUGS: dict[str, Planted] = {
    "a start that a kind lacks is ignored": Planted(
        _a_start_that_a_kind_lacks_is_ignored, (f"{READING}::test_start_earliest[ring]",)
    ),
    "asend blocks the loop": Planted(_asend_blocks_the_loop, (f"{WRITING}::test_asend_waits_for_room[log]",)),
    "a fake channel is a log": Planted(_a_fake_channel_is_a_log, (f"{LIFE}::test_inspect[fake-ring]",)),
    "errors name the file": Planted(_every_error_is_of_the_file, (f"{READING}::test_subscription[log]",)),
}
