"""Each error of a handle begins with the URI of its channel: a log of many channels says which one it was."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from conformance.sockets import Meeting
from conformance.subjects import Place

import penstock

ODD = object()
WRONG: dict[str, list[tuple[Any, ...]]] = {
    "send": [(ODD,), (b"x", -1), (b"x", "soon")],
    "offer": [(ODD,)],
    "offer_many": [(5,), ([ODD],)],
    "claim": [(-1,), ("x",), (1 << 62,), (1, -1)],
    "recv": [(-1,), ("soon",), (float("nan"),)],
    "request": [(ODD,), (b"x", -1)],
    "submit": [(ODD,), (b"x", -1)],
    "reply": [(ODD, b"x")],
    "poll": [("x",), (-1,), (1.5,)],
    "poll_arrow": [("x",), (-1,), (1, -1), (1, "x")],
    "borrow": [(-1,), ("soon",)],
    "acquire": [(-1,)],
    "wait_for_readers": [(-1,), ("x",), (1, -1), (1, "soon")],
}
WRONG |= {f"{name}_async": WRONG[name] for name in ("send", "claim", "recv", "borrow", "acquire", "request")}
WRONG["wait_for_readers_async"] = WRONG["wait_for_readers"]
RIGHT: dict[str, tuple[Any, ...]] = {
    "offer_many": ([],),
    "claim": (1, 0),
    "wait_for_readers": (0, 0),
    "poll": (1,),
    "poll_arrow": (1,),
}
RIGHT |= dict.fromkeys(("send", "request", "submit"), (b"x", 0)) | {"offer": (b"x",)}
RIGHT |= dict.fromkeys(("recv", "borrow", "acquire"), (0,)) | {
    "fileno": (),
    "try_recv": (),
    "latest": (),
    "statistics": (),
}
RIGHT |= {f"{name}_async": RIGHT[name] for name in ("send", "claim", "recv", "borrow", "acquire", "request")}
RIGHT |= {"wait_for_readers_async": (1, 0)}


def _call(handle: Any, name: str, arguments: tuple[Any, ...]) -> None:
    routed = "Router" in type(handle).__name__ and name in (
        "send",
        "send_async",
        "offer",
        "offer_many",
        "claim",
        "claim_async",
    )
    made = getattr(handle, name)(*arguments, **({"to": "a dealer"} if routed else {}))
    if inspect.isawaitable(made):

        async def waited() -> None:
            await made

        asyncio.run(waited())
    elif hasattr(made, "__enter__"):
        with made:
            pass


def _names_its_channel(handle: Any, calls: dict[str, list[tuple[Any, ...]]], *, always: bool) -> None:
    unnamed = []
    for name, several in calls.items():
        if not hasattr(type(handle), name):
            continue
        for arguments in several:
            try:
                _call(handle, name, arguments)
            except (penstock.PenstockError, TypeError, ValueError, OverflowError) as error:
                said = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
                if not said.startswith(f"{handle.channel}: "):
                    unnamed.append((name, arguments, type(error).__name__, said))
            else:
                if always:
                    unnamed.append((name, arguments, "no error", ""))
    assert unnamed == []


def test_error_texts(place: Place):
    """Errors of open handles, about arguments, times and sizes, begin with the channel's URI."""
    for handle in place.pair():
        _names_its_channel(handle, WRONG, always=True)


def test_error_texts_early(place: Place):
    """Errors of a subscription before the first publication, too."""
    _names_its_channel(place.subscribe(), WRONG, always=True)


def test_error_texts_closed(place: Place):
    """And those of closed handles, which are `Closed`."""
    for handle in place.pair():
        handle.close()
        _names_its_channel(handle, {name: [arguments] for name, arguments in RIGHT.items()}, always=False)
        with pytest.raises(penstock.Closed):
            (handle.recv if hasattr(handle, "recv") else handle.offer)(
                *(() if hasattr(handle, "recv") else (place.message(1),))
            )


def test_socket_error_texts(meeting: Meeting):
    """The same of the ends of every pattern."""
    mine, _ = meeting.two()
    _names_its_channel(mine, WRONG, always=False)
    mine.close()
    _names_its_channel(mine, {name: [arguments] for name, arguments in RIGHT.items()}, always=False)
