"""What can go wrong, as few classes.

All share `PenstockError` and each also is the built-in exception that means the same, so `except TimeoutError`
works. Knows the compiled core's error codes; must never know a channel kind.
"""

from __future__ import annotations

from penstock._native import core as _native

__all__ = [
    "Busy",
    "Closed",
    "Corrupt",
    "Dropped",
    "Invalid",
    "Mismatch",
    "NotFound",
    "PenstockError",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
]


class PenstockError(Exception):
    """Base of every error this library raises on purpose."""


class TimedOut(PenstockError, TimeoutError):
    """The timeout passed first. Nothing was lost: try again."""


class Closed(PenstockError, ValueError):
    """This handle was closed, by you."""


class Busy(PenstockError, BlockingIOError):
    """Somebody else holds it: an exclusive publication, every slot, a lock."""


class Dropped(PenstockError, ConnectionResetError):
    """This subscription was too slow for its `drop_after`; it goes on at the oldest position that is kept."""


class Corrupt(PenstockError, ValueError):
    """Bytes that this library did not write: shared memory or a recording was damaged."""


class Mismatch(PenstockError, ValueError):
    """The channel or recording exists with another size, kind, version or codec than was asked for."""


class TooLarge(PenstockError, ValueError):
    """A message that can never fit."""


class Invalid(PenstockError, ValueError):
    """An argument that makes no sense; the text says which and what would."""


class NotFound(PenstockError, FileNotFoundError):
    """No such channel or recording."""


class SystemFailure(PenstockError, OSError):
    """A system call failed; `errno` says how."""


_native.register_errors(
    corrupt=Corrupt,
    mismatch=Mismatch,
    busy=Busy,
    closed=Closed,
    dropped=Dropped,
    too_large=TooLarge,
    invalid=Invalid,
    system=SystemFailure,
    timeout=TimedOut,
)
