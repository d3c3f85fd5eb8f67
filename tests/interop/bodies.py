"""The messages of these tests: message `number` has one content, whichever peer writes it. Plain Python: every peer imports this."""

from __future__ import annotations

import random
from collections.abc import Sequence

SHIFTS = 4096
LONGEST = 1 << 20
PATTERN = random.Random(1).randbytes(LONGEST + SHIFTS)
SHORTEST = 9


def body(number: int, size: int) -> bytes:
    """The number in eight bytes, then bytes that depend on it."""
    shift = number * 31 % SHIFTS
    return number.to_bytes(8, "little") + PATTERN[shift : shift + size - 8]


def size_of(number: int, sizes: Sequence[int]) -> int:
    """The length of message `number`; the sizes are used in turn."""
    return sizes[number % len(sizes)]


class Check:
    """Compares one session's messages with what was sent: each of them once, in order, whole."""

    def __init__(self, sizes: Sequence[int], first: int | None = 0) -> None:
        self.sizes = sizes
        self.first = first  # None: whatever comes first
        self.count = 0
        self.wrong = ""

    @property
    def next(self) -> int:
        """The number of the message that comes next."""
        return (self.first or 0) + self.count

    def take(self, data: bytes) -> None:
        """One message. The first difference is noted in `wrong`."""
        if self.first is None:
            self.first = int.from_bytes(data[:8], "little")
        number = self.next
        self.count += 1
        if self.wrong or data == body(number, size_of(number, self.sizes)):
            return
        named = int.from_bytes(data[:8], "little")
        self.wrong = f"message {number} was expected; {len(data)} bytes came that say that they are message {named}"
