"""Bugs of start order planted into Python: who decides what a channel is, and who may only look."""

from __future__ import annotations

import os
from typing import Any

from evidence.planting import Planted

ORDER = "tests/channels/test_start_order.py::"
OPEN = "tests/channels/test_open_channels.py::"


def _a_subscription_decides() -> None:
    from penstock.channels.storage import opening
    from penstock.kinds import log

    def open_reader(kind: Any, channel: Any, asked: Any, codec: Any, end: Any, early: Any, start: Any = None) -> Any:
        return opening.open_end(kind, channel, asked, codec, end)

    opening.open_reader = open_reader  # type: ignore[assignment]
    assert log.opening is opening


def _what_a_subscription_names_is_forgotten() -> None:
    from penstock._native import core

    core.write_notes = lambda *_: None  # type: ignore[assignment]


def _nobody_holds_the_open_byte() -> None:
    from penstock._native import core
    from penstock.channels.storage import opening

    plain = core.OpenHold

    def hold(fd: int, path: str) -> Any:  # of another file, which nobody else has
        return plain(os.memfd_create("another"), path)

    opening._native = _Instead(core, OpenHold=hold)  # type: ignore[assignment]


class _Instead:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _an_early_subscription_never_decodes() -> None:
    from penstock.channels import handles

    plain = handles.NativeSubscription._decide

    def decide(self: Any) -> None:
        plain(self)
        handles._native.decide(self, False)

    handles.NativeSubscription._decide = decide  # type: ignore[method-assign]


def _an_early_wait_knows_no_end() -> None:
    from penstock.channels import handles

    plain = handles.NativeSubscription.recv

    def recv(self: Any, timeout: float | None = None) -> Any:
        while self.codec is None and handles._native.wait_any([self], timeout):
            pass
        return plain(self, timeout)

    handles.NativeSubscription.recv = recv  # type: ignore[method-assign]


def _a_conflict_names_no_way_out() -> None:
    from penstock.channels.storage import opening

    opening.start_over = lambda channel: "give up"


def _a_recorder_needs_the_channel() -> None:
    from penstock.record.write import opener

    opener._native = _Instead(opener._native, decided=lambda subscription: True)  # type: ignore[assignment]


def _a_look_makes_the_channel() -> None:
    from penstock.channels.storage import inspection, opening

    plain = inspection.about

    def about(kind: Any, channel: Any) -> Any:
        if kind.layout.open_slots is not None:
            try:
                return plain(kind, channel)
            except inspection.NotFound:
                opening._create_open(kind, channel, {}, None)
        return plain(kind, channel)

    inspection.about = about


BUGS: dict[str, Planted] = {
    "a subscription decides what a channel is": Planted(
        _a_subscription_decides, (ORDER + "test_every_order_of_everything[log]",)
    ),
    "what a subscription names is forgotten": Planted(
        _what_a_subscription_names_is_forgotten, (OPEN + "test_subscriptions_add_what_they_name",)
    ),
    "nobody holds the open byte": Planted(
        _nobody_holds_the_open_byte, (OPEN + "test_whoever_joins_or_decides_holds_the_open_byte",)
    ),
    "an early subscription never decodes": Planted(
        _an_early_subscription_never_decodes, (OPEN + "test_subscriptions_add_what_they_name",)
    ),
    "an early subscription waits for a message that cannot come": Planted(
        _an_early_wait_knows_no_end,
        ("tests/kinds/udp/test_udp_ends.py::test_a_wait_keeps_its_deadline_whatever_a_stranger_sends[_forged]",),
    ),
    "a conflict names no way out": Planted(
        _a_conflict_names_no_way_out, (ORDER + "test_every_order_of_everything[log]",)
    ),
    "a recorder needs a channel that is decided": Planted(
        _a_recorder_needs_the_channel, (OPEN + "test_a_typo_is_not_recorded",)
    ),
    "a look makes the channel": Planted(_a_look_makes_the_channel, (ORDER + "test_every_order_of_everything[log]",)),
}
