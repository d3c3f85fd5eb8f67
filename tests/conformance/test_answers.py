"""A request that a server took is answered, whatever the server's function does, and the server can go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.sockets import Meeting, Role
from conformance.subjects import PATIENCE

import penstock


class Mute(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Sealed:
    """An object that has no text, and is no message."""

    def __repr__(self) -> str:
        raise SystemExit("no text")

    __str__ = __repr__


class Final(BaseException):
    """An error that ends a program."""


def _raising(error: BaseException) -> Callable[[Any], Any]:
    def answer(body: Any) -> Any:
        raise error

    return answer


def _nested() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


BAD: dict[str, Callable[[Any], Any]] = {
    "raises": _raising(KeyError("x")),
    "mute": _raising(Mute()),
    "final": _raising(Final("the end")),
    "long": _raising(ValueError("é" * 100_000)),
    "none": lambda body: None,
    "sealed": lambda body: Sealed(),
    "nested": lambda body: _nested(),
    "text": lambda body: {1: "text"},
    "objects": lambda body: np.array([object()], object),
    "masked": lambda body: np.ma.masked_array(np.zeros(3, "u1"), [0, 1, 0]),
    "times": lambda body: np.zeros(3, "M8[s]"),
    "parts": lambda body: [b"a", None],
    "large": lambda body: b"x" * (1 << 20),
    "large parts": lambda body: [b"x" * (1 << 20), b"y"],
}
FINE_OVER_ZMQ = ("large", "large parts")  # it has no limit


@pytest.fixture(params=("shm", "fake", "zmq"))
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meeting]:
    """A channel for a server and a requester."""
    role = Role("reply", request.param)
    if role.backend == "zmq":
        pytest.importorskip("zmq")
    meeting = Meeting(role, role.address(tmp_path))
    try:
        yield meeting
    finally:
        meeting.close()
        if role.backend == "fake":
            penstock.remove(meeting.uri)


def _serve(
    server: Any, answer: Callable[[Any], Any], method: str, raised: list[BaseException], count: int | None
) -> None:
    async def coroutine(body: Any) -> Any:
        return answer(body)

    try:
        if method == "serve":
            server.serve(answer, count)
        else:
            asyncio.run(server.serve_async(coroutine, count))
    except BaseException as error:
        raised.append(error)


def _asked(server: Any, asker: Any, answer: Callable[[Any], Any], method: str) -> tuple[Any, list[BaseException]]:
    """The error or the reply that a request got, and the errors that the server raised."""
    raised: list[BaseException] = []
    thread = threading.Thread(target=_serve, args=(server, answer, method, raised, 1), daemon=True)
    thread.start()
    try:
        found = asker.request(b"x", timeout=PATIENCE)
    except penstock.PenstockError as error:
        found = error
    thread.join(PATIENCE)
    assert not thread.is_alive()
    return found, raised


@pytest.mark.parametrize("method", ["serve", "serve_async"])
def test_a_taken_request_is_answered(two: Meeting, method: str):
    """By a `ServerError` that says why there is no reply. `serve` raises, and can be called again."""
    server, asker = two.two()
    for name, answer in BAD.items():
        found, raised = _asked(server, asker, answer, method)
        if two.role.backend == "zmq" and name in FINE_OVER_ZMQ:
            assert isinstance(found, bytes | list), name
            continue
        assert type(found) is penstock.ServerError, (name, found)
        assert len(raised) == 1, name
        assert str(found).startswith(f"{two.uri}: the server has no answer"), name
    assert _asked(server, asker, lambda body: b"fine", method) == (b"fine", [])


@pytest.mark.parametrize("method", ["serve", "serve_async"])
def test_a_reply_that_the_codec_lacks_is_answered(two: Meeting, method: str):
    """The same with a codec."""
    server, asker = two.two(codec="json")
    for answer in (_raising(Mute()), lambda body: float("nan"), lambda body: Sealed(), lambda body: _nested()):
        found, raised = _asked(server, asker, answer, method)
        assert (type(found), len(raised)) == (penstock.ServerError, 1)


def test_a_served_count_answers_the_others_too(two: Meeting):
    """A reply that cannot be sent, before the last of several: that call also waits for the next request."""
    if two.role.backend == "zmq":
        pytest.skip("no message is too large")
    server, asker = two.two()
    raised: list[BaseException] = []
    thread = threading.Thread(target=_serve, args=(server, BAD["large"], "serve", raised, None), daemon=True)
    thread.start()
    with pytest.raises(penstock.ServerError, match="largest"):
        asker.request(b"x", timeout=PATIENCE)
    thread.join(PATIENCE)
    assert [type(error) for error in raised] == [penstock.TooLarge]
    assert "<lambda>" in str(raised[0])


def test_a_request_that_does_not_decode_is_answered(two: Meeting):
    """The server's program never sees it, so the library answers."""
    server, asker = two.two(codec="json")
    if two.role.backend == "zmq":
        asker._body = lambda body: [body]
    else:
        asker._pack = lambda body: (body, 0)
    pending = asker.submit(b"{", timeout=PATIENCE)
    with pytest.raises(penstock.DecodeError):
        server.recv(timeout=PATIENCE)
    with pytest.raises(penstock.ServerError, match="not json"):
        pending.result(PATIENCE)


def test_a_cancelled_server_answers(two: Meeting):
    """A task that is cancelled while it makes the reply refuses the request."""
    server, asker = two.two()
    pending = asker.submit(b"x", timeout=PATIENCE)

    async def main() -> None:
        begun = asyncio.Event()

        async def answer(body: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(server.serve_async(answer))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    with pytest.raises(penstock.ServerError, match="CancelledError"):
        pending.result(PATIENCE)
