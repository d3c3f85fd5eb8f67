"""Bugs planted into peers on pipes."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

NAMES = "tests/unit/test_pipe_names.py"


def _a_sender_is_looked_up_by_its_place() -> None:
    from penstock.patterns import Routed
    from penstock.shm.sockets import Router

    def made(self: Any, raw: Any) -> Any:
        return Routed(self._name_of(raw[0]), self._unpack(raw[3], raw[2]))

    Router._made = made  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "a message of a dealer that is gone has no sender": Planted(
        _a_sender_is_looked_up_by_its_place,
        (f"{NAMES}::test_a_message_keeps_its_senders_name_when_another_has_the_place",),
    ),
}
