"""The waiting calls of a sync queue's members as scenes: claiming room, reading in place, waiting for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock
from penstock.kinds.sync.opener import SyncMember

BODY = 8000


class Claiming:
    """A claim in a queue that is full, because one member does not read."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.handle = penstock.join(channel, name="writer", capacity=1 << 16)
        self.reader = penstock.join(channel, name="reader")
        self.got: list[int] = []
        while self.handle.offer(bytes(BODY), type="filler") is not None:
            pass

    async def wait(self, number: int) -> int:
        with await self.handle.claim_async(BODY, type="mine") as view:
            view[:] = (b"%d " % number).ljust(BODY)
        return number

    def let(self) -> None:
        self.got += [int(message.body.split(b" ")[0]) for message in self.reader.poll() if message.type == "mine"]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        assert sorted(self.got) == sorted(number for number, _ in done), "a cancelled claim was sent, or one was lost"

    def close(self) -> None:
        self.handle.close()
        self.reader.close()


class Borrowing:
    """A message that is read in place."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.handle = penstock.join(channel, name="reader", capacity=1 << 16)
        self.writer = penstock.join(channel, name="writer")
        self.sent = self.received = 0

    async def wait(self, number: int) -> int:
        with await self.handle.borrow_async() as message:
            self.received += 1
            return int(bytes(message.body))

    def let(self) -> None:
        if self.sent - self.received < 8:
            self.writer.send(b"%d" % self.sent)
            self.sent += 1

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert sorted(result for _, result in done) == list(range(self.sent)), "a message was lost or came twice"

    def close(self) -> None:
        self.handle.close()
        self.writer.close()


class Awaited:
    """A call that waits until another member is there."""

    after_kill = "waits"

    def __init__(self, channel: str, call: Callable[[SyncMember], Any]) -> None:
        self.channel, self.call, self.other = channel, call, None
        self.handle = penstock.join(channel, name="here", capacity=1 << 16)

    async def wait(self, number: int) -> int:
        await self.call(self.handle)
        return number

    def let(self) -> None:
        if self.other is None:
            self.other = penstock.join(self.channel, name="other")  # type: ignore[assignment]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert all(number == result for number, result in done)

    def close(self) -> None:
        self.handle.close()
        if self.other is not None:
            self.other.close()


def made(name_of: Callable[[str], str]) -> dict[str, tuple[set[tuple[type, str]], Callable[[], Any]]]:
    """By name: the calls that a scene covers, and what opens it. name_of: makes a channel that nobody has used."""
    new = lambda: name_of("sync:a")  # noqa: E731
    readers, named = lambda member: member.wait_for_readers_async(1), lambda member: member.wait_for_async({"other"})
    return {
        "member claim_async": ({(SyncMember, "claim_async")}, lambda: Claiming(new())),
        "member borrow_async": ({(SyncMember, "borrow_async")}, lambda: Borrowing(new())),
        "member wait_for_readers_async": ({(SyncMember, "wait_for_readers_async")}, lambda: Awaited(new(), readers)),
        "member wait_for_async": ({(SyncMember, "wait_for_async")}, lambda: Awaited(new(), named)),
    }
