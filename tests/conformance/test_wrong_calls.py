"""No call of any handle, whatever it is given, is answered with a list of C++ signatures."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from conformance.sockets import Meeting
from conformance.subjects import Place

import penstock

VALUES = (None, 5, -1, 2.5, "text", [], [1], {}, object(), b"x")
TAKES_MESSAGES = ("send", "send_async", "offer", "offer_many", "request", "request_async", "submit", "submit_async")
WAITS = ("__next__", "__anext__", "serve", "serve_async")
TIMED = ("recv", "borrow", "acquire", "claim", "send", "request", "submit", "wait_for_readers", "wait_for")


def _verbs(handle: Any) -> list[str]:
    names = [name for name in dir(type(handle)) if not name.startswith("_") and name not in WAITS]
    return sorted(name for name in names if callable(getattr(type(handle), name, None)) and name != "close")


def _called(verb: Any, *arguments: Any, **named: Any) -> str:
    """The text of the error, or nothing. A call that would wait is given no time."""

    async def awaited(made: Any) -> None:
        async with asyncio.timeout(0):
            await made

    try:
        made = verb(*arguments, **named)
        if inspect.isawaitable(made):
            asyncio.run(awaited(made))
        elif hasattr(made, "abort"):
            made.abort()
    except (
        penstock.PenstockError,
        TypeError,
        ValueError,
        TimeoutError,
        OverflowError,
        StopIteration,
        BufferError,
    ) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _check(handle: Any, to: dict[str, str]) -> None:
    for name in _verbs(handle):
        verb = getattr(handle, name)
        timed = {"timeout": 0} if name in TIMED else {}
        extra = to if name in (*TAKES_MESSAGES, "claim", "claim_async") else {}
        texts = [_called(verb, no_such=1, **timed, **extra), _called(verb, 1, 2, 3, 4, 5, 6, 7, 8)]
        texts += [_called(verb, value, **timed, **extra) for value in VALUES]
        assert texts[0] != "", (name, "takes any keyword")
        assert texts[1] != "", (name, "takes any number of arguments")
        for text in texts:
            assert "incompatible function arguments" not in text, (name, text)
            assert "nanobind" not in text, (name, text)
            assert "Invoked with types" not in text, (name, text)
        if name in TAKES_MESSAGES:
            for value in (None, 5, object()):
                text = _called(verb, value, **timed, **extra)
                assert handle.channel in text, (name, value, text)


def test_wrong_calls(place: Place):
    """Wrong values, wrong keywords and too many arguments; a message that is none names the channel."""
    for handle in place.pair():
        _check(handle, {})


def test_socket_wrong_calls(meeting: Meeting):
    """The same of the ends of every pattern."""
    one, other = meeting.two()
    for handle, role in ((one, meeting.role.name), (other, meeting.role.partner)):
        _check(handle, meeting.to(role))


@pytest.mark.parametrize("make", [penstock.threads.Pipe, penstock.threads.Mailbox, penstock.testing.ManualClock])
def test_wrong_calls_within_a_process(make: Any):
    """The same of what threads share."""
    assert "incompatible" not in _called(make, no_such=1)
    made = make()
    for name in _verbs(made):
        for text in (_called(getattr(made, name), no_such=1), _called(getattr(made, name), 1, 2, 3, 4, 5, 6, 7, 8)):
            assert text != "", name
            assert "incompatible" not in text, text


@pytest.mark.parametrize("names", ["robot", b"robot", {5}, [None], {b"robot"}, 5, [[]]], ids=repr)
def test_waiting_for_members_takes_names(names: Any):
    """A text is one name, not its letters; an error comes at once, and not after the timeout."""
    with penstock.join("sync:a", name="robot") as member:
        for wait in (member.wait_for, lambda given: asyncio.run(member.wait_for_async(given))):
            with pytest.raises(penstock.Invalid, match=r"sync:a: names is .*a list of members' names"):
                wait(names)
        member.wait_for([])
