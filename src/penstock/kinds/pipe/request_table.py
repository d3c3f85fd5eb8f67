"""Requests under way, by number: each with its server, and replies that arrived before their request was entered.

Thread-safe: every step is one operation on a dict. Knows no socket, and sends nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

NOT_SENT = 0  # in place of the server: the request is being sent
NO_SERVER = -1  # in place of the server: every server had left, so the request has yet to be sent


class Reply(NamedTuple):
    """A reply as it arrived."""

    number: int
    kind: int
    data: bytes


class Answerable(Protocol):
    """A request that a reply ends."""

    def _answer(self, reply: Reply) -> None: ...


P = TypeVar("P", bound=Answerable)


@dataclass(slots=True)
class Entry(Generic[P]):
    """A request under way."""

    pending: P
    server: int  # the peer that it was sent to


class RequestTable(Generic[P]):
    """The requests of one requester."""

    def __init__(self) -> None:
        # None: the thread that sent the request waits for the reply itself.
        self.entries: dict[int, Entry[P] | None] = {}
        self._early: dict[int, Reply] = {}  # for such requests: replies that another thread received
        self._numbers = itertools.count(1)

    def begin(self) -> int:
        """Enters a request whose reply the calling thread waits for. Returns its number."""
        number = next(self._numbers)
        self.entries[number] = None
        return number

    def enter(self, pending: P, server: int = NOT_SENT) -> int:
        """Enters a request before it is sent, as another thread may receive the reply first. Returns its number."""
        number = next(self._numbers)
        self.entries[number] = Entry(pending, server)
        return number

    def restore(self, number: int, entry: Entry[P]) -> None:
        """Enters a request again under its number."""
        self.entries[number] = entry

    def sent(self, number: int, server: int) -> None:
        """Notes the server of a request, unless its reply has arrived."""
        entry = self.entries.get(number)
        if entry is not None:
            entry.server = server

    def pend(self, number: int, pending: P, server: int) -> None:
        """The thread that sent a request no longer waits for its reply."""
        self.entries[number] = Entry(
            pending, server
        )  # before the check: another thread may be about to store the reply
        self._answer_early(number, pending)

    def remove(self, number: int) -> bool:
        """Removes a request. False: it is not there any more."""
        try:
            self.entries.pop(number)
        except KeyError:
            return False
        return True

    def forget(self, pending: P) -> None:
        """Removes a request, however often it was sent."""
        for number, entry in list(self.entries.items()):
            if entry is not None and entry.pending is pending:
                self.entries.pop(number, None)

    def answer(self, reply: Reply) -> bool:
        """Gives a request its reply. False: it was given up."""
        try:
            entry = self.entries.pop(reply.number)
        except KeyError:
            return False
        if entry is not None:
            entry.pending._answer(reply)
            return True
        self._early[reply.number] = reply  # its thread enters the request as pending before it checks here
        entry = self.entries.pop(reply.number, None)
        if entry is not None:
            self._answer_early(reply.number, entry.pending)
        return True

    def clear(self) -> list[P]:
        """Removes all requests. Returns those that are pending."""
        entries = list(self.entries.values())
        self.entries.clear()
        self._early.clear()
        return [entry.pending for entry in entries if entry is not None]

    def _answer_early(self, number: int, pending: P) -> None:
        reply = self._early.pop(number, None)
        if reply is not None:
            self.entries.pop(number, None)
            pending._answer(reply)
