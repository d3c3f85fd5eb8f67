"""One rule for timeouts, in every call of every kind: None or a real number from 0 on, and a huge one waits for ever."""

from __future__ import annotations

import asyncio
import decimal
import fractions
import threading
from typing import Any

import numpy as np
import pytest
from conformance.deadlines import asking, joining, reading
from conformance.sockets import Meeting
from conformance.subjects import PATIENCE, Place

import penstock

SHORT = (0.01, np.float32(0.01), np.int64(0), np.uint8(0), decimal.Decimal("0.01"), fractions.Fraction(1, 100), 0)
BAD = (
    *(
        "1",
        b"1",
        "soon",
        True,
        False,
        np.True_,
        np.timedelta64(1, "s"),
        np.array([0.1]),
        np.str_("1"),
        1j,
        [0.1],
        object(),
    ),
    *(
        -1,
        -0.5,
        float("nan"),
        float("-inf"),
        decimal.Decimal("nan"),
        -(10**400),
        decimal.Decimal(-1),
        fractions.Fraction(-1, 9),
    ),
)
HUGE = (
    1e7,
    1e12,
    2**63,
    10**400,
    float("inf"),
    1e308,
    decimal.Decimal("1e400"),
    np.float64(1e300),
    np.uint64(2**64 - 1),
)
NO_TIMEOUT = ("fileno", "try_recv", "poll", "poll_arrow", "statistics")


def _waits(handle: Any) -> list[tuple[str, Any]]:
    """The calls of a handle that take a timeout and find nothing to do."""
    if hasattr(handle, "request"):
        calls = asking(handle)
    else:
        calls = [
            *(joining(handle) if hasattr(handle, "wait_for_readers") else []),
            *(reading(handle) if getattr(handle, "receives", hasattr(handle, "recv")) else []),
        ]
    return [(name, call) for name, call in calls if name not in NO_TIMEOUT]


def _check(handle: Any) -> None:
    for name, call in _waits(handle):
        for timeout in SHORT:
            try:
                call(timeout)
            except penstock.TimedOut:
                pass
            except penstock.Unsupported:  # of this role
                break
        else:
            for timeout in BAD:
                with pytest.raises(penstock.Invalid, match="timeout is"):
                    call(timeout)
                    raise AssertionError((name, timeout))


def test_timeouts_are_real_numbers(place: Place):
    """NumPy's numbers, Decimals and Fractions are; text, truth values, NaN and negative numbers are `Invalid`."""
    for handle in place.pair():
        _check(handle)


def test_socket_timeouts_are_real_numbers(meeting: Meeting):
    """The same of the ends of every pattern."""
    one, other = meeting.two()
    for handle in (one, other):
        _check(handle)


def test_early_timeouts_are_real_numbers(place: Place):
    """The same before the first publication."""
    if place.subject.kind == "frames":
        pytest.skip("there is no subscription before the first publication")
    _check(place.subscribe())


@pytest.mark.parametrize("timeout", HUGE, ids=repr)
def test_a_huge_timeout_waits(place: Place, timeout: Any):
    """Until there is a message, in every kind of wait."""
    pub, sub = place.pair()
    waits = (
        lambda: sub.recv(timeout=timeout),
        lambda: asyncio.run(sub.recv_async(timeout=timeout)),
        lambda: penstock.wait([sub], timeout) and sub.recv(timeout=0),
        lambda: asyncio.run(penstock.wait_async([sub], timeout)) and sub.recv(timeout=0),
    )
    for number, wait in enumerate(waits):
        late = threading.Timer(0.02, lambda number=number: pub.send(place.message(number), timeout=PATIENCE))
        late.start()
        assert place.number(wait()) == number
        late.join()
    pub.wait_for_readers(1, timeout=timeout)
    asyncio.run(pub.wait_for_readers_async(1, timeout=timeout))
    pub.send(place.message(1), timeout=timeout)
    asyncio.run(pub.send_async(place.message(1), timeout=timeout))


@pytest.mark.parametrize("timeout", HUGE[:3], ids=repr)
def test_a_huge_timeout_waits_for_peers(meeting: Meeting, timeout: Any):
    """The same where nobody has come yet."""
    one = meeting.join(meeting.role.name)
    late = threading.Timer(0.02, lambda: meeting.join(meeting.role.partner))
    late.start()
    one.wait_for_readers(1, timeout=timeout)
    late.join()
