"""Judges a history by what its programs said and by its archive. Knows the promises of docs/network.md; runs nothing.

- A message is what was sent, at the position at which it was sent; none comes twice to a handle, and each session's come in order.
- Bytes that are missing between two messages, or behind the last one, are in `lost`: no fewer than the missing messages have, and no
  more than lie between.
- What a receiver has acknowledged was read by all that read there; what was reported durable is in the archive.
- The end of the stream is told only if each session that was read had been closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from evidence.network_room.programs import body, whose

Lines = list[list[Any]]
HEADER, ALIGNMENT = 32, 32


def framed(length: int, mtu: int) -> int:
    """The bytes of a message's frames."""
    whole, rest = divmod(length, mtu - HEADER)
    return whole * mtu + (-(-(rest + HEADER) // ALIGNMENT) * ALIGNMENT if rest or not whole else 0)


@dataclass
class Sent:
    """What a publisher did. ends: the position behind each message. ready: when its readers were there. closing: when it began to close."""

    session: int = 0
    opened: float = 0.0
    ready: float | None = None
    closing: float | None = None
    acked: int = 0
    ends: list[int] = field(default_factory=list)
    longest: int = 1


def sent(lines: Lines, longest: int) -> Sent:
    """What a publisher's lines say. longest: bytes of its messages."""
    found = Sent(longest=longest)
    for time, what, *facts in lines:
        if what == "open":
            found.session, found.opened = facts[0], time
        elif what == "ready":
            found.ready = time
        elif what == "sent":
            found.ends.append(facts[1])
        elif what == "acked":
            found.acked = max(found.acked, facts[0])
        elif what == "closing":
            found.closing = time
    return found


class Judge:
    """Collects what is wrong in a history. publishers: by number; those that began again have numbers of their own."""

    def __init__(self, publishers: dict[int, Sent], mtu: int) -> None:
        self._publishers, self._mtu = publishers, mtu
        self.problems: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)

    def reader(self, name: str, lines: Lines, *, killed: bool, acked: bool, whole: bool, archived: bool) -> None:
        """A reader. killed: it did not end by itself. acked: it is one of those whose acknowledgements senders go by. whole: all that was
        sent must be there, and nothing lost. archived: it began in the past."""
        opened = next((line[0] for line in lines if line[1] == "open"), None)
        if opened is None:
            return
        got: dict[int, list[tuple[int, int]]] = defaultdict(list)
        live: set[int] = set()
        heard: set[int] = set()  # of which something was received: what was got may be an archive's
        lost, ended = 0, False
        for time, what, *facts in lines:
            if what == "session":
                live.add(facts[0])
            elif what == "heard":
                heard.add(facts[0])
            elif what == "got":
                publisher, number, session, position, lost = facts
                self._check(name, publisher, number, session)
                got[publisher].append((number, position))
                self.counts["messages"] += 1
            elif what in ("end", "silent"):
                lost, ended = facts[0], what == "end"
                self.counts[what] += 1
                if what == "end":
                    self._check_end(name, time, heard if archived else live, got)
            elif what in ("idle", "stopped"):
                lost = facts[0]
        least = most = 0
        for publisher, found in got.items():
            one = self._publishers[publisher]
            first = found[0][0] if not (one.ready and opened < one.opened and not archived) and not whole else 0
            # A reader of the past that never met the session cannot know that there was more than its archive has.
            met = one.session in live or not archived
            due = len(one.ends) if ended and met and not killed and one.closing else found[-1][0] + 1
            a, b = self._check_order(name, publisher, found, first, due)
            least, most = least + a, most + b
            if first and not archived:  # it joined earlier, and lost what came before that
                most += self._end(publisher, first - 1)
            behind = 0
            if one.ends and not (ended and met):  # what was lost behind the last one may be known
                behind = max(0, one.ends[-1] - self._end(publisher, found[-1][0]))
            most += behind
            # The last one before a gap may be counted, too, if no recording has it: its length is not known then.
            if archived and (b or behind):
                most += self._gaps(found) * framed(len(body(publisher, 0, one.longest)) + one.longest, self._mtu)
        for publisher, one in self._publishers.items():
            if (
                one.ready
                and opened < one.opened
                and ended
                and not killed
                and publisher not in got
                and one.closing
                and one.ends
            ):
                least, most = least + self._bytes(publisher, 0, len(one.ends)), most + one.ends[-1]
            elif one.session in live and publisher not in got and one.ends:  # it joined late, and lost all of the rest
                most += one.ends[-1]
        if not least <= lost <= most:
            self.problems.append(f"{name}: {lost} bytes lost, by its count; {least} to {most} are missing")
        if whole and not killed:
            for publisher, one in self._publishers.items():
                numbers = [number for number, _ in got[publisher]]
                if numbers[: len(one.ends)] != list(range(len(one.ends))):
                    gone = sorted(set(range(len(one.ends))) - set(numbers))
                    self.problems.append(
                        f"{name}: of publisher {publisher}'s {len(one.ends)} messages {gone[:5]} are missing, {len(gone)} in all"
                    )
        if acked and not killed:
            for publisher, one in self._publishers.items():
                have = {number for number, _ in got[publisher]}
                for number, end in enumerate(one.ends):
                    if one.ready and opened < one.opened and end <= one.acked and number not in have and lost == 0:
                        self.problems.append(
                            f"{name}: publisher {publisher}'s message {number} was acknowledged, and not read"
                        )
                        break

    def recording(self, name: str, found: list[tuple[bytes, int, int]]) -> None:
        """A recording's messages: (data, position, bytes lost before it)."""
        numbers: list[tuple[int, int]] = []
        for data, position, gone in found:
            publisher, number = whose(data)
            self._check(name, publisher, number, None)
            if numbers and number != numbers[-1][0] + 1:
                least = self._bytes(publisher, numbers[-1][0] + 1, number)
                most = position - self._end(publisher, numbers[-1][0])
                if number <= numbers[-1][0]:
                    self.problems.append(f"{name}: message {number} of publisher {publisher} behind {numbers[-1][0]}")
                elif not least <= gone <= most:
                    self.problems.append(
                        f"{name}: {gone} bytes lost before message {number}; {least} to {most} are missing"
                    )
            self._check_position(name, publisher, number, position)
            numbers.append((number, position))
            self.counts["recorded"] += 1

    # ---- parts ----

    def _check(self, name: str, publisher: int, number: int, session: int | None) -> None:
        one = self._publishers.get(publisher)
        if one is None or number > len(one.ends):  # one more may be sent than it could say
            self.problems.append(f"{name}: a message that was not sent: number {number} of publisher {publisher}")
        elif session is not None and session != one.session:
            self.problems.append(f"{name}: a message of session {one.session} is said to be of {session}")

    def _check_end(self, name: str, time: float, live: set[int], got: Collection[int]) -> None:
        """A session of which nothing was received may be a stranger's, so nobody is told that it fell silent."""
        for publisher, one in self._publishers.items():
            if one.session in live and publisher in got and (one.closing is None or one.closing > time):
                self.problems.append(f"{name}: the end was told, and publisher {publisher} had not closed")

    def _check_position(self, name: str, publisher: int, number: int, position: int) -> None:
        begins = self._end(publisher, number - 1)
        if position < begins or (
            number < len(self._publishers[publisher].ends) and position >= self._end(publisher, number)
        ):
            self.problems.append(
                f"{name}: message {number} of publisher {publisher} at {position}, sent from {begins} on"
            )

    def _check_order(
        self, name: str, publisher: int, found: list[tuple[int, int]], first: int, due: int
    ) -> tuple[int, int]:
        """The least and the most bytes that may be lost of a session of which these were read, and those from `first` to `due` are due."""
        least = most = 0
        expected = first
        for number, position in found:
            if number < expected:
                self.problems.append(
                    f"{name}: message {number} of publisher {publisher} again, or behind {expected - 1}"
                )
                continue
            self._check_position(name, publisher, number, position)
            least += self._bytes(publisher, expected, number)
            most += position - self._end(publisher, expected - 1)  # between messages that follow each other, padding
            expected = number + 1
        if due > expected:
            least += self._bytes(publisher, expected, due)
            most += self._end(publisher, due - 1) - self._end(publisher, expected - 1)
        return least, most

    @staticmethod
    def _gaps(found: list[tuple[int, int]]) -> int:
        """How often messages are missing behind one that was read."""
        return 1 + sum(after[0] != before[0] + 1 for before, after in pairwise(found))

    def _end(self, publisher: int, number: int) -> int:
        """The position behind a message."""
        ends = self._publishers[publisher].ends
        return ends[min(number, len(ends) - 1)] if number >= 0 and ends else 0

    def _bytes(self, publisher: int, begin: int, end: int) -> int:
        """What of these messages must have been lost, without padding."""
        longest = self._publishers[publisher].longest
        lengths = (len(body(publisher, number, longest)) for number in range(begin, end))
        # Of a message in fragments some may have arrived. Then it is dropped, and counted elsewhere.
        return sum(framed(length if length <= self._mtu - HEADER else 0, self._mtu) for length in lengths)
