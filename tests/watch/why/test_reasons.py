"""Every error of a wait that ended in vain says for whom it waited: each kind, each verb that blocks, threads and event loops, waits that never slept."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from ports import free_port

import penstock
from penstock.channels.waiting import reasons

SMALL = {"capacity": "64KiB"}
SPINS, SLEEPS = 1e-6, 0.15  # seconds: a wait ends before it can sleep, and after that
NOBODY = r"nobody is there to write them"
ITSELF = r"; this process itself .*(is to|has)"
BEHIND = r"process \d+ .* is \d+ bytes behind"
UNREAD = r"messages wait to be read"
FEW = r"no more readers are there"
Left = contextlib.ExitStack


def full(handle: Any, message: Any = bytes(4000)) -> Any:
    """A handle that has no room."""
    while handle.offer(message) is not None:
        pass
    return handle


def full_log(left: Left) -> Any:
    left.enter_context(penstock.subscribe("log:full", **SMALL))
    return full(left.enter_context(penstock.publish("log:full", **SMALL)))


def full_sync(left: Left) -> Any:
    left.enter_context(penstock.join("sync:full", name="other", **SMALL))
    return full(left.enter_context(penstock.join("sync:full", name="me", **SMALL)))


def full_pipe(left: Left) -> Any:
    left.enter_context(penstock.subscribe("pipe:full", **SMALL))
    return full(left.enter_context(penstock.publish("pipe:full", **SMALL)))


def full_frames(left: Left) -> Any:
    options = {"shape": (2, 2), "dtype": "uint8", "buffers": 2, "when_slow": "wait"}
    left.enter_context(penstock.subscribe("frames:full", **options))
    return full(left.enter_context(penstock.publish("frames:full", **options)), [[1, 2], [3, 4]])


def full_udp(left: Left) -> Any:
    uri = f"udp://127.0.0.1:{free_port()}/1"
    left.enter_context(penstock.subscribe(uri))
    pub = left.enter_context(penstock.publish(uri, term_length="64KiB"))
    pub.wait_for_readers(1, 60)
    return full(pub, bytes(1000))


def asking(left: Left, uri: str) -> Any:
    ask = left.enter_context(penstock.join(uri, role="request"))
    left.enter_context(penstock.join(uri, role="reply"))
    ask.wait_for_readers(1, 60)
    return ask


def opened(uri: str, verb: str = "subscribe", beside: str = "", **options: Any) -> Callable[[Left], Any]:
    """Opens a handle; and one more of the same channel before it, by the verb `beside`."""

    def open_it(left: Left) -> Any:
        there = uri.replace("PORT", str(free_port()))
        if beside:
            left.enter_context(getattr(penstock, beside)(there, **({"name": "other"} if beside == "join" else options)))
        return left.enter_context(getattr(penstock, verb)(there, **options))

    return open_it


FRAME = [[1, 2], [3, 4]]
FRAMES = {"shape": (2, 2), "dtype": "uint8"}
TCP = "zmq+tcp://127.0.0.1:PORT"
# What waits: how it is opened, what it calls, what the error says.
WAITS: dict[str, tuple[Callable[[Left], Any], str, tuple[Any, ...], str]] = {
    "log-recv-alone": (opened("log:a"), "recv", (), NOBODY),
    "log-recv": (opened("log:a", beside="publish"), "recv", (), ITSELF),
    "log-borrow": (opened("log:a", beside="publish"), "borrow", (), ITSELF),
    "log-send": (full_log, "send", (bytes(4000),), BEHIND),
    "log-claim": (full_log, "claim", (4000,), BEHIND),
    "log-readers": (opened("log:a", "publish"), "wait_for_readers", (1,), FEW),
    "ring-recv-alone": (opened("ring:a"), "recv", (), NOBODY),
    "ring-recv": (opened("ring:a", beside="publish"), "recv", (), ITSELF),
    "ring-readers": (opened("ring:a", "publish"), "wait_for_readers", (1,), FEW),
    "sync-recv-alone": (opened("sync:a", "join", name="me"), "recv", (), NOBODY),
    "sync-recv": (opened("sync:a", "join", "join", name="me"), "recv", (), ITSELF),
    "sync-borrow": (opened("sync:a", "join", "join", name="me"), "borrow", (), ITSELF),
    "sync-send": (full_sync, "send", (bytes(4000),), r"member 'other' \(process \d+.*\) is \d+ bytes behind"),
    "sync-readers": (opened("sync:a", "join", name="me"), "wait_for_readers", (1,), FEW),
    "sync-names": (opened("sync:a", "join", name="me"), "wait_for", (["you"],), r"you did not join"),
    "pipe-recv-alone": (opened("pipe:a"), "recv", (), NOBODY),
    "pipe-recv": (opened("pipe:a", beside="publish"), "recv", (), ITSELF),
    "pipe-send": (full_pipe, "send", (bytes(4000),), UNREAD),
    "pipe-readers": (opened("pipe:a", "publish"), "wait_for_readers", (1,), FEW),
    "pipe-request": (lambda left: asking(left, "pipe:ask"), "request", (b"?",), ITSELF),
    "pipe-serve": (opened("pipe:ask", "join", role="reply"), "recv", (), NOBODY),
    "frames-recv": (opened("frames:a", beside="publish", **FRAMES), "recv", (), ITSELF),
    "frames-send": (full_frames, "send", (FRAME,), r"process \d+ .*"),
    "frames-readers": (opened("frames:a", "publish", **FRAMES), "wait_for_readers", (1,), FEW),
    "udp-recv": (opened("udp://127.0.0.1:PORT/1"), "recv", (), NOBODY),
    "udp-send": (full_udp, "send", (bytes(1000),), r"127\.0\.0\.1"),
    "udp-readers": (opened("udp://127.0.0.1:PORT/1", "publish"), "wait_for_readers", (1,), FEW),
    "zmq-recv-alone": (opened(TCP), "recv", (), r"; no peer is connected$"),
    "zmq-recv": (opened(TCP, beside="publish"), "recv", (), r""),
    "zmq-readers": (opened(TCP, "publish"), "wait_for_readers", (1,), r"; no peer is connected$"),
    "zmq-pull": (opened(TCP, "join", role="pull"), "recv", (), r"; no peer is connected$"),
    "zmq-request": (
        lambda left: asking(left, f"zmq+tcp://127.0.0.1:{free_port()}"),
        "request",
        (b"?",),
        r"; connected: 127\.0\.0\.1:\d+$",
    ),
}
NO_ASYNC = {"borrow", "claim"}


def error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(penstock.TimedOut) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("name", WAITS)
def test_timeout_of_each_wait_says_who(name: str) -> None:
    """In a thread and in an event loop, whether it slept or only spun."""
    open_it, verb, arguments, said = WAITS[name]
    with Left() as left:
        handle = open_it(left)
        for timeout in (SPINS, SLEEPS):
            text = error_of(lambda timeout=timeout: getattr(handle, verb)(*arguments, timeout=timeout))
            assert re.search(said, text), text

            async def later(timeout: float = timeout) -> Any:
                return await getattr(handle, f"{verb}_async")(*arguments, timeout=timeout)

            text = error_of(lambda later=later: asyncio.run(later()))
            assert re.search(said, text), text


def test_timeout_of_a_call_that_does_not_wait_is_short() -> None:
    """With a timeout of 0 there was no wait."""
    with penstock.publish("log:w"), penstock.subscribe("log:w") as sub:
        assert error_of(lambda: sub.recv(timeout=0)).endswith("no message within the timeout")


def test_short_waits_look_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits for a microsecond again and again gets a reason each time, and spends a tenth of its time on looks at most."""
    looks = []

    def look(*_: object) -> str:
        looks.append(time.monotonic())
        time.sleep(0.05)
        return "so it is"

    monkeypatch.setattr(reasons, "_look", look)
    with penstock.subscribe("log:again") as sub:
        texts = {error_of(lambda: sub.recv(timeout=SPINS)) for _ in range(20)}
        assert {text.partition("; ")[2] for text in texts} == {"so it is"}
        assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(looks))
