"""Bugs planted into waiting calls under asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

from evidence.planting import Planted

WAITS = "tests/aio/test_waits.py"


def _arequest_sends_in_a_plain_call() -> None:
    from penstock.kinds.pipe.requests import PipeRequester

    plain = PipeRequester._dispatch
    PipeRequester._dispatch = (  # type: ignore[method-assign]
        lambda self, pending, timeout: plain(self, pending, 0.3 if timeout == 0 else timeout)
    )


def _arequest_never_looks_for_the_dead() -> None:
    from penstock.kinds.pipe.requests import PipeRequester

    PipeRequester._check_for_dead_servers = lambda self: None  # type: ignore[method-assign]


def _arequest_has_no_retries() -> None:
    from penstock.kinds.pipe.requests import PipeRequester

    plain = PipeRequester._create_pending
    PipeRequester._create_pending = lambda self, body, retries: plain(self, body, 0)  # type: ignore[method-assign]


def _arecv_loses_what_it_took_when_it_is_cancelled() -> None:
    from penstock._native import core
    from penstock.channels.handles import NativeSubscription
    from penstock.channels.waiting.loops import readable

    async def recv_async(self: Any) -> Any:
        while (message := core.next_bytes(self)) is None:
            await readable(self.fileno())
        await asyncio.sleep(0)
        return self.codec.parse(message)

    NativeSubscription.recv_async = recv_async  # type: ignore[method-assign]


def _a_cancelled_send_was_written() -> None:
    from penstock.kinds.sync.member import SyncMember

    async def send_async(self: Any, data: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        while (position := self.offer(data, type=type)) is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return int(position)

    SyncMember.send_async = send_async  # type: ignore[method-assign]


def _a_task_takes_the_descriptor_from_another() -> None:
    import penstock.threads

    async def readable(fd: int) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        loop.add_reader(fd, woken.set)
        try:
            await woken.wait()
        finally:
            loop.remove_reader(fd)

    penstock.threads.readable = readable  # type: ignore[attr-defined]


BUGS: dict[str, Planted] = {
    "request_async sends in a plain call": Planted(
        _arequest_sends_in_a_plain_call,
        (f"{WAITS}::test_the_loop_goes_on_while_a_call_waits[pipe request_async, no server]",),
    ),
    "request_async never looks for dead servers": Planted(
        _arequest_never_looks_for_the_dead,
        (f"{WAITS}::test_a_peer_that_is_killed_leaves_a_call_that_works[pipe request_async, no reply]",),
    ),
    "request_async has no retries": Planted(
        _arequest_has_no_retries,
        ("tests/kinds/pipe/test_sockets.py::test_arequest_learns_that_its_server_died_and_asks_another",),
    ),
    "recv_async loses what it took when it is cancelled": Planted(
        _arecv_loses_what_it_took_when_it_is_cancelled,
        (f"{WAITS}::test_a_call_that_is_cancelled_loses_and_doubles_nothing[log recv_async]",),
    ),
    "a cancelled send of a member was written": Planted(
        _a_cancelled_send_was_written,
        (f"{WAITS}::test_a_call_that_is_cancelled_loses_and_doubles_nothing[sync send_async]",),
    ),
    "a task takes the descriptor from another": Planted(
        _a_task_takes_the_descriptor_from_another,
        (f"{WAITS}::test_closing_ends_every_call_that_waits[mailbox get_async-task]",),
    ),
}
