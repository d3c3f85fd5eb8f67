"""Bugs planted into peers on pipes."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

NAMES = "tests/kinds/pipe/test_pipe_names.py"
ENDS, IDENTITIES = "tests/conformance/test_ends.py", "tests/conformance/test_identities.py"


def _a_sender_is_looked_up_by_its_place() -> None:
    from penstock.channels.interfaces.patterns import Routed
    from penstock.kinds.pipe.sockets import PipeRouter

    def made(self: Any, raw: Any) -> Any:
        return Routed(self._name_of(raw[0]), self._unpack(raw[3], raw[2]))

    PipeRouter._convert = made  # type: ignore[method-assign]


def _a_pair_waits_for_a_peer_that_is_gone() -> None:
    from penstock.kinds.pipe.sockets import PipeTalker

    PipeTalker._ends = False


def _named(own: bool) -> None:
    import os

    from penstock._native import core
    from penstock.kinds.pipe import opener as pipe

    def peer_name(name: str | None) -> Any:
        return core.MemberName(str(os.getpid()).encode() if name is None else name.encode(), own)

    pipe.peer_name = peer_name


def _sockets_of_a_process_share_a_name() -> None:
    _named(own=False)


def _a_failing_server_keeps_silent() -> None:
    from penstock.kinds.pipe.replies import PipeReplier

    PipeReplier._refuse_to_answer = lambda *arguments: None  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "a message of a dealer that is gone has no sender": Planted(
        _a_sender_is_looked_up_by_its_place,
        (f"{NAMES}::test_a_message_keeps_its_senders_name_in_a_reused_slot",),
    ),
    "a pair waits for a peer that is gone": Planted(
        _a_pair_waits_for_a_peer_that_is_gone,
        (f"{ENDS}::test_socket_goes_on_with_the_next_partner[shm-pair]",),
    ),
    "sockets of a process share a name": Planted(
        _sockets_of_a_process_share_a_name,
        (
            f"{IDENTITIES}::test_socket_drawn_names_are_unique[shm-dealer]",
            f"{IDENTITIES}::test_socket_name_belongs_to_one[shm-dealer]",
        ),
    ),
    "a failing server keeps silent": Planted(
        _a_failing_server_keeps_silent,
        ("tests/channels/test_callbacks.py::test_a_function_that_raises_is_an_error_on_both_sides",),
    ),
}
