"""Ends in C++ that a test drives, with the interface of Python's handles, for the tests of `tests/conformance`."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

import penstock
from penstock.types import ChannelStatus, Publication, Received, Subscription

ERRORS: dict[str, type[penstock.PenstockError]] = {  # by the names of their codes in C++
    "corrupt": penstock.Corrupt,
    "mismatch": penstock.Mismatch,
    "busy": penstock.Busy,
    "closed": penstock.Closed,
    "disconnected": penstock.Disconnected,
    "too_slow": penstock.TooSlow,
    "end_of_stream": penstock.EndOfStream,
    "too_large": penstock.TooLarge,
    "invalid": penstock.Invalid,
    "unsupported": penstock.Unsupported,
    "not_found": penstock.NotFound,
    "timed_out": penstock.TimedOut,
    "undecodable": penstock.DecodeError,
}
FOREVER = (1 << 63) - 1


def codes() -> list[str]:
    """The codes of errors, in the order of their numbers."""
    header = (Path(penstock.get_include()) / "ground" / "error.hpp").read_text()
    return re.findall(r"^    (\w+),? *//", header, re.M)


class Driver:
    """A process of C++ with any number of ends. One question at a time, from any thread."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program, "drive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._numbers, self._lock, self._codes = itertools.count(), threading.Lock(), codes()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, number: int, *words: object) -> str:
        """The answer to a question; the error that it was answered with."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(" ".join(map(str, (number, *words))).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline().decode()
        assert line, f"the process of C++ ended with {self._process.wait()}"
        mark, _, answer = line.rstrip("\n").partition(" ")
        if mark == "=":
            return answer
        code, _, text = answer.partition(" ")
        raise ERRORS[self._codes[int(code)]](text)

    def open(self, verb: str, uri: str, options: dict[str, Any]) -> int:
        """A new end; its number. Channels are those of this process."""
        number = next(self._numbers)
        self.ask(number, "folder", os.environ["PENSTOCK_DIR"])
        self.ask(number, verb, uri, *(f"{name}={value}" for name, value in options.items()))
        return number

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def nanoseconds(timeout: float | None) -> int:
    return FOREVER if timeout is None else int(timeout * 1e9)


def words_of(given: dict[str, Any]) -> dict[str, Any]:
    """Options of Python as the driver names them."""
    words = dict(given)
    if "when_slow" in words:
        words["waits"] = {"wait": 1}[words.pop("when_slow")]
    if "shape" in words:
        (words["shape"],) = words["shape"]
        assert words.pop("dtype") == "u1"
    start = words.pop("start", None)
    if isinstance(start, int):
        words["position"] = start
    elif start is not None:
        words[start] = 1
    return {name: int(value) for name, value in words.items() if value is not False or name == "conflate"}


def text_of(status: ChannelStatus) -> str:
    """A channel's status as the driver writes it."""
    latency = status.latency
    quantile = None if latency is None else latency.quantile_ns(0.99)
    about = [status.state, status.size, status.created_ns, status.capacity, status.max_members, status.position]
    parts = [
        [*about, status.lag, status.writers, status.readers],
        astuple(status.totals),
        [latency.messages if latency else 0, int(quantile or 0)],
        *(astuple(replace(one, latency=None))[:-1] for one in status.members),
    ]
    return " ".join("".join(f"{int(one) if isinstance(one, bool) else one}," for one in part) for part in parts)


class _End:
    """What both kinds of ends have."""

    def __init__(self, driver: Driver, verb: str, uri: str, options: dict[str, Any]) -> None:
        self._driver = driver
        self._number = driver.open(verb, uri, words_of(options))

    def _ask(self, *words: object) -> str:
        return self._driver.ask(self._number, *words)

    @property
    def channel(self) -> str:
        return self._ask("channel")

    @property
    def closed(self) -> bool:
        return self._ask("closed") == "1"

    @property
    def position(self) -> int:
        return int(self._ask("position"))

    @property
    def lag(self) -> int:
        return int(self._ask("lag"))

    def statistics(self) -> str:
        """As `driven.text_of` writes Python's."""
        return self._ask("statistics")

    def close(self) -> None:
        self._ask("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<C++ {self.channel}>"


class DrivenClaim:
    """Room for a message, in a block."""

    def __init__(self, ask: Any, length: int, timeout: float | None) -> None:
        self._ask, self._open, self._body = ask, True, bytearray(length)
        ask("claim", length, nanoseconds(timeout))

    def __enter__(self) -> bytearray:
        return self._body

    def __exit__(self, error: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._open = False
        self._ask("abort") if error else self._ask("commit", "x" + self._body.hex())

    def __del__(self) -> None:
        if self._open:
            self._ask("drop_claim")


@Publication.register
class DrivenPublication(_End):
    def __init__(self, driver: Driver, uri: str, **options: Any) -> None:
        super().__init__(driver, "publish", uri, options)

    def send(self, message: Any, timeout: float | None = None) -> int:
        return int(self._ask("send", "x" + bytes(message).hex(), nanoseconds(timeout)))

    async def send_async(self, message: Any, timeout: float | None = None) -> int:
        return await asyncio.to_thread(self.send, message, timeout)

    def offer(self, message: Any) -> int | None:
        answer = self._ask("offer", "x" + bytes(message).hex())
        return None if answer == "none" else int(answer)

    def offer_many(self, messages: list[Any]) -> int:
        return int(self._ask("offer_many", *("x" + bytes(message).hex() for message in messages)))

    def claim(self, length: int, timeout: float | None = None) -> DrivenClaim:
        return DrivenClaim(self._ask, length, timeout)

    @property
    def max_payload(self) -> int:
        return int(self._ask("max_payload"))

    @property
    def readers(self) -> int:
        return int(self._ask("readers"))

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        self._ask("wait_for_readers", count, nanoseconds(timeout))

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        await asyncio.to_thread(self.wait_for_readers, count, timeout)


class DrivenFrame:
    """A frame's pixels."""

    def __init__(self, body: bytes) -> None:
        self.array = np.frombuffer(body, "u1")


class DrivenBorrow:
    """A message that is held, in a block."""

    def __init__(self, ask: Any, body: bytes) -> None:
        self._ask, self._body = ask, body

    def __enter__(self) -> bytes:
        return self._body

    def __exit__(self, *_: object) -> None:
        assert self._ask("held") == "x" + self._body.hex(), "a message that was held has changed"
        self._ask("give_back")


@Subscription.register
class DrivenSubscription(_End):
    def __init__(self, driver: Driver, uri: str, **options: Any) -> None:
        super().__init__(driver, "subscribe", uri, options)
        self._frames = uri.startswith("frames:")

    def _message(self, answer: str, timeout: float | None) -> bytes:
        if answer == "none":
            raise penstock.TimedOut(f"{self.channel}: no message within {timeout} s")
        return bytes.fromhex(answer[1:])

    def recv(self, timeout: float | None = None) -> Any:
        body = self._message(self._ask("recv", nanoseconds(timeout)), timeout)
        return DrivenFrame(body) if self._frames else body

    async def recv_async(self, timeout: float | None = None) -> Any:
        return await asyncio.to_thread(self.recv, timeout)

    def try_recv(self) -> Any:
        try:
            return self.recv(0)
        except penstock.TimedOut:
            return None

    def poll(self, limit: int = 1000) -> list[Any]:
        if self._frames:
            found = (self.try_recv() for _ in range(limit))
            return list(itertools.takewhile(lambda frame: frame is not None, found))
        return [bytes.fromhex(word[1:]) for word in self._ask("poll", limit).split()]

    def borrow(self, timeout: float | None = None) -> DrivenBorrow:
        return DrivenBorrow(self._ask, self._message(self._ask("borrow", nanoseconds(timeout)), timeout))

    async def borrow_async(self, timeout: float | None = None) -> DrivenBorrow:
        return await asyncio.to_thread(self.borrow, timeout)

    def wait(self, timeout: float | None = None) -> bool:
        return self._ask("wait", nanoseconds(timeout)) == "1"

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self.recv()
            except penstock.EndOfStream:
                return

    @property
    def lost(self) -> int:
        return int(self._ask("lost"))

    @property
    def lost_messages(self) -> int | None:
        count = int(self._ask("lost_messages"))
        return None if count < 0 else count

    @property
    def last(self) -> Received:
        position, time_ns, session = map(int, self._ask("last").split())
        return Received(position=position, time_ns=time_ns, session=session)
