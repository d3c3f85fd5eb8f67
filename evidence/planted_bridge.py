"""Bugs planted into bridges."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

BRIDGE = "tests/front/bridge/test_bridge.py"


def _a_bridge_sends_back_what_it_wrote() -> None:
    from penstock.front.bridge.route import Own

    Own.add = lambda self, session: None  # type: ignore[method-assign]


def _what_a_replaced_receiver_had_not_read_is_gone() -> None:
    from penstock.front.bridge.outlet import Outlet

    plain = Outlet._begin_again

    def begin_again(self: Any) -> None:
        self._sent.clear()
        plain(self)

    Outlet._begin_again = begin_again  # type: ignore[method-assign]


def _a_bridge_forgets_where_it_stopped() -> None:
    from penstock.front.bridge.bookmark import Bookmark

    Bookmark.save = lambda self: None  # type: ignore[method-assign]


def _what_was_missed_between_two_runs_is_not_counted() -> None:
    from penstock.front.bridge.route import Route

    plain = Route._open

    def open_(self: Any) -> bool:
        opened, self._lost = plain(self), 0
        return opened

    Route._open = open_  # type: ignore[method-assign]


def _streams_of_an_address_have_no_codec() -> None:
    from penstock import codecs
    from penstock.front import bridge

    plain = bridge._Way.add

    def add(self: Any, channel: str, source: str, codec: Any, late: bool) -> None:
        plain(self, channel, source, None if codec is None else codecs.BYTES, late)

    bridge._Way.add = add  # type: ignore[method-assign]


def _the_channels_of_an_address_are_forgotten() -> None:
    from penstock.front import bridge

    bridge._FromTrunk.begin = bridge._Way.begin  # type: ignore[method-assign]
    plain = bridge._FromTrunk.find

    def find(self: Any) -> None:
        if self.told is None:
            self.told = bridge.subscribe(f"{self.source}/0", codec="json")
        plain(self)

    bridge._FromTrunk.find = find  # type: ignore[method-assign]


def _a_bridge_begins_with_the_newest_of_a_channel_that_it_waited_for() -> None:
    from penstock.front.bridge.bookmark import Bookmark

    plain = Bookmark.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        self.is_new = True

    Bookmark.__init__ = init  # type: ignore[method-assign]


def _a_bridge_leaves_headers_out() -> None:
    from penstock.kinds.frames.handles import FramePublication

    before = FramePublication.send

    def send(self: Any, data: Any, timeout: Any = None, *, header: Any = None, **about: Any) -> int:
        return before(self, data, timeout, header=header if isinstance(header, tuple) else None, **about)

    FramePublication.send = send  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "a bridge leaves the headers of frames out": Planted(
        _a_bridge_leaves_headers_out, (f"{BRIDGE}::test_frames_keep_their_headers_on_another_channel",)
    ),
    "a bridge sends back what it wrote": Planted(
        _a_bridge_sends_back_what_it_wrote, (f"{BRIDGE}::test_both_directions_without_an_echo",)
    ),
    "what a replaced receiver had not read is gone": Planted(
        _what_a_replaced_receiver_had_not_read_is_gone,
        (f"{BRIDGE}::test_a_receiver_replaced_unnoticed_gets_what_is_missing",),
    ),
    "a bridge forgets where it stopped": Planted(
        _a_bridge_forgets_where_it_stopped, (f"{BRIDGE}::test_a_bridge_goes_on_where_the_last_one_stopped",)
    ),
    "what a bridge missed between two runs is not counted": Planted(
        _what_was_missed_between_two_runs_is_not_counted,
        (f"{BRIDGE}::test_what_a_log_no_longer_keeps_is_counted_as_lost",),
    ),
    "channels of an address lose their codecs": Planted(
        _streams_of_an_address_have_no_codec, (f"{BRIDGE}::test_a_pattern_sends_each_channel_under_its_name",)
    ),
    "the channels of an address are forgotten": Planted(
        _the_channels_of_an_address_are_forgotten,
        ("tests/front/bridge/test_bridge_deaths.py::test_a_killed_receiver_of_several_channels_keeps_their_order",),
    ),
    "a bridge begins with the newest of a channel that it waited for": Planted(
        _a_bridge_begins_with_the_newest_of_a_channel_that_it_waited_for,
        (f"{BRIDGE}::test_a_channel_that_appears_between_two_runs_is_read_whole",),
    ),
}
