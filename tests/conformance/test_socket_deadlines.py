"""No wait of a socket passes its deadline, whatever state the socket and its partner are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance import deadlines
from conformance.deadlines import joining, keeps, killed, reading, writing
from conformance.sockets import Meeting

Steps = Iterator[tuple[list[deadlines.Call], Any]]


def _calls(made: Meeting, one: Any) -> list[deadlines.Call]:
    name = made.role.name
    calls = deadlines.asking(one) if name == "request" else []
    if name not in ("request", "push"):
        calls += reading(one)
    if name in ("pair", "dealer", "router", "push"):
        calls += writing(one, b"x", made.to(name))
    return [*calls, *joining(one)]


def _alone(made: Meeting) -> Steps:
    one = made.join(made.role.name)
    yield _calls(made, one), None


def _silent(made: Meeting) -> Steps:
    one, other = made.two()
    yield _calls(made, one), None
    other.close()
    yield _calls(made, one), None
    one.close()
    yield _calls(made, one), None


def _dead_partner(made: Meeting) -> Steps:
    one = made.join(made.role.name)

    def talk() -> None:
        other = made.join(made.role.partner)
        other.wait_for_readers(1, timeout=1)

    killed(talk)
    yield _calls(made, one), None


def test_socket_deadline_alone(meeting):
    """A wait keeps its deadline without a partner."""
    keeps(meeting, _alone)


def test_socket_deadline_silent(meeting):
    """A wait keeps its deadline with a silent partner, after it left, and after its own close."""
    keeps(meeting, _silent)


def test_socket_deadline_dead_partner(meeting):
    """A wait keeps its deadline when the partner was killed."""
    keeps(meeting, _dead_partner)
