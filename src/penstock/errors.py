"""Errors, as few classes.

All derive from `PenstockError`, and each is also the built-in exception with the same meaning, so `except TimeoutError`
works. Knows the compiled core's error codes; must never know a channel kind.
"""

from __future__ import annotations

from penstock._native import core as _native

__all__ = [
    "Busy",
    "Closed",
    "Corrupt",
    "DecodeError",
    "Disconnected",
    "EndOfStream",
    "Invalid",
    "Mismatch",
    "NotFound",
    "PenstockError",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
    "TooSlow",
    "Unsupported",
]


class PenstockError(Exception):
    """Base of every error this library raises on purpose."""


class TimedOut(PenstockError, TimeoutError):
    """The timeout passed first. Nothing was lost: try again."""


class Closed(PenstockError, ValueError):
    """You closed this handle."""


class Disconnected(PenstockError, ConnectionError):
    """The other side is gone: it closed, or it died."""


class EndOfStream(PenstockError, EOFError):
    """Every publication has closed, and you have read everything. Only a handle opened with `until_end=True` says so."""


class Busy(PenstockError, BlockingIOError):
    """Another process or thread holds it: an exclusive publication, every slot, a lock."""


class TooSlow(PenstockError, ConnectionResetError):
    """You read too slowly, and the channel went on without you. The next call continues at the oldest position that is kept."""


class Corrupt(PenstockError, ValueError):
    """Bytes that this library did not write: shared memory or a recording was damaged."""


class DecodeError(PenstockError, ValueError):
    """A message that does not fit its channel's codec. The next call continues behind it.

    position: its position in its channel or recording; 0 where that is not known.
    """

    def __init__(self, text: str, position: int = 0) -> None:
        super().__init__(text)
        self.position = position


class Mismatch(PenstockError, ValueError):
    """The channel or recording exists with another size, kind, version or codec than was asked for."""


class TooLarge(PenstockError, ValueError):
    """A message that can never fit."""


class Invalid(PenstockError, ValueError):
    """An argument that makes no sense; the text says which and what would."""


class Unsupported(Invalid):
    """Channels of this kind do not do this; the text says why, and which kind does."""


class NotFound(PenstockError, FileNotFoundError):
    """No such channel or recording."""


class SystemFailure(PenstockError, OSError):
    """A system call failed; `errno` says how."""


_native.register_errors(
    corrupt=Corrupt,
    mismatch=Mismatch,
    busy=Busy,
    closed=Closed,
    disconnected=Disconnected,
    too_slow=TooSlow,
    end_of_stream=EndOfStream,
    too_large=TooLarge,
    invalid=Invalid,
    unsupported=Unsupported,
    system=SystemFailure,
    timeout=TimedOut,
)
