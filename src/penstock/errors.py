"""Errors, as few classes.

All derive from `PenstockError`, and each is also the built-in exception with the same meaning, so `except TimeoutError`
works. It must never know a channel kind.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "Busy",
    "Closed",
    "Corrupt",
    "DecodeError",
    "Disconnected",
    "EndOfStream",
    "Invalid",
    "Mismatch",
    "MissingPackage",
    "NotFound",
    "PenstockError",
    "ServerError",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
    "TooSlow",
    "Unsupported",
]


def text_of(value: object, as_text: Callable[[object], str] = str) -> str:
    """An object of the user's as text, by `str` or `repr`. A sentence where its own method fails."""
    try:
        return as_text(value)
    except BaseException as error:
        return f"<{type(value).__name__} whose {as_text.__name__}() raises {type(error).__name__}>"


class PenstockError(Exception):
    """Base of every error this library raises on purpose."""


class TimedOut(PenstockError, TimeoutError):
    """The timeout passed first. Nothing was lost: try again."""


class Closed(PenstockError, ValueError, AttributeError):
    """You closed this handle. Its properties are gone with it: an AttributeError, so that `hasattr` and tools that look at objects go on."""


class Disconnected(PenstockError, ConnectionError):
    """The other side is gone: it closed, or it died."""


class ServerError(PenstockError, RuntimeError):
    """The server's function failed, or returned what cannot be sent: there is no answer to this request."""


class EndOfStream(PenstockError, EOFError):
    """No sender is left, and you have read everything. Subscriptions with `until_end=True` say so, and pairs and dealers."""


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


class Unsupported(Invalid, AttributeError):
    """Channels of this kind do not do this; the text says why, and which kind does. An AttributeError, too: a property that raises it is one
    that the handle does not have, for `hasattr` and for tools that look at objects."""


class MissingPackage(Invalid, ImportError):
    """A package that this needs is not installed; the text names it, and how to install it."""


class NotFound(PenstockError, FileNotFoundError):
    """No such channel or recording."""


class SystemFailure(PenstockError, OSError):
    """A system call failed; `errno` says how."""


def without_frames(error: DecodeError) -> DecodeError:
    """For an error that is kept: its frames would keep the handle alive that keeps it."""
    cause = error.__cause__
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error.with_traceback(None)
