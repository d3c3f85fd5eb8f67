"""Waits and processes as values. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Container
from dataclasses import dataclass

NUMBERS = 22  # bits of a process's number; the kernel gives none above


def stand_in(number: int, channel: str, slot: object) -> int:
    """A number below 0 for a process that has none here, by its number in its own PID namespace and its place in a channel. So two of them
    are never taken for one, nor for the process that has that number here; one that is in two channels is taken for two."""
    return -((zlib.crc32(f"{channel} {slot}".encode()) & 0x3FFF_FFFF) << NUMBERS | number & (1 << NUMBERS) - 1)


def number_of(pid: int) -> int:
    """The number of a process in its own PID namespace, also of a stand-in."""
    return pid if pid >= 0 else -pid & (1 << NUMBERS) - 1


@dataclass(frozen=True)
class WaitedFor:
    """One that a wait is for: a process of this machine, or a peer on the network.

    pid: None of a peer; below 0: as of `WaitingProcess`. peer: its host and port; None of a process. how: "writes" the messages, has them "behind" it, has an open "claim",
    "leases" frames, has frames "unread", "fills" buffers, has a "full" pipe to read, "answers" the request, "locks" the channel, "sends" or "receives" over the
    network. amount: bytes behind or in the claim, frames, or messages; 0 if it has none. dead: it died and its place was given to nobody.
    """

    pid: int | None
    peer: str | None
    how: str
    amount: int
    dead: bool = False


@dataclass(frozen=True)
class Wait:
    """One thread, or one task of an event loop, that waits on a channel.

    pid: as of `WaitingProcess`. thread: the kernel's number of it, in its PID namespace. member: its name, or its role. what: "messages", "room", "readers", "a reply",
    "frames" or "a buffer". since_ns: by the monotonic clock. seconds: how long it had waited. timed: a timeout ends it. any: one of `on` suffices
    to end it; if not, each has to move. on: for whom it waits; empty if nobody is there. alone: its process has no other thread that runs Python, and
    this one sleeps, so the process itself cannot end the wait.
    """

    channel: str
    pid: int
    thread: int
    member: str
    what: str
    since_ns: int
    seconds: float
    timed: bool
    any: bool
    on: tuple[WaitedFor, ...]
    alone: bool = False

    def needs(self, pids: Container[int]) -> bool:
        """Whether it cannot end unless one of these processes moves: all that it is for are among them, or one of those that each have to move."""
        held = [one.pid is not None and one.pid in pids and not one.dead for one in self.on]
        return bool(held) and (all(held) if self.any else any(held))

    @property
    def is_for_itself(self) -> bool:
        """Whether only its own process could end it, which has no thread left for that."""
        return self.alone and self.needs({self.pid})


@dataclass(frozen=True)
class Participant:
    """A member of a channel, as far as waits need it. holds: ("claim", bytes) and ("frames", count)."""

    channel: str
    slot: object
    role: str
    name: str
    pid: int
    joined_ns: int
    dead: bool
    holds: tuple[tuple[str, int], ...]
    wait: Wait | None


@dataclass(frozen=True)
class WaitingProcess:
    """A process that waits, or that is waited for.

    pid: its number; below 0 if it is in another PID namespace and has no number here: then it stands for one member of one channel, and `number`
    is the one that it has there.
    state: "waiting", "running", "sleeping" outside of Penstock, "blocked" in the kernel, "stopped", "dead", "foreign" if it belongs to another
    user, or "hidden" if it is in another PID namespace. command: its program in one word. user: of its effective user; None if it is not to be
    seen. holds: open claims and leased frames, in words.
    """

    pid: int
    command: str
    state: str
    user: int | None
    holds: tuple[str, ...]

    @property
    def number(self) -> int:
        """Its number in its own PID namespace."""
        return number_of(self.pid)

    @property
    def name(self) -> str:
        """Its number and its program."""
        return f"{self.number} {self.command}".rstrip()
