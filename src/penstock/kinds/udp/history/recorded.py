"""What a subscription that begins in the past asks an archive. Knows no recording: the archive's side is `penstock.record.session_history`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Container, Iterator
from importlib import import_module
from typing import Any, Protocol

from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Invalid, PenstockError
from penstock.util.patient_calls import ASK_SECONDS, Attempt, within

Key = tuple[int, int]  # session, initial term id
END: Any = object()  # of what is asked


class Asking:
    """Asks the archive, step by step. make: a generator of what it gives, from where the subscription is."""

    def __init__(self, make: Callable[..., Iterator[Any]], *arguments: Any) -> None:
        self._make: Callable[[], Iterator[Any]] = functools.partial(make, *arguments)
        self._steps, self._attempt = self._make(), Attempt()

    def advance(self, wait: float | None) -> Any:
        """What comes next; `END` behind the last one. wait: for another machine's archive. A signal that ends the wait ends nothing else."""
        try:
            with within(wait, self._attempt):
                return next(self._steps, END)
        except PenstockError:
            raise
        except BaseException:
            self._steps = self._make()
            raise


class History(Protocol):
    """What an archive has: `penstock.record.session_history`."""

    lost: int
    why: str
    codec: Codec | None

    def sessions(self) -> list[Key]: ...

    def knows(self, key: Key) -> bool: ...

    def growing(self) -> set[Key]: ...

    def fill(self, key: Key, begin: int | None, end: int | None) -> Iterator[Any]: ...


class Unread:
    """The sessions of which an archive may have what was not given: those that grow, and those that nothing was given of. history: None for
    a subscription that begins with the live stream."""

    def __init__(self, history: History | None) -> None:
        self._history, self._attempt = history, Attempt()

    def look(self, given: Container[Key]) -> set[Key]:
        """Those that there are now, as far as the archive answers at once."""
        if self._history is None:
            return set()
        with within(ASK_SECONDS, self._attempt):
            return {key for key in self._history.sessions() if key not in given} | self._history.growing()


def opened(archive: str | os.PathLike[str], channel: Channel, codec: Codec | None) -> History:
    """The history of a channel's sessions in an archive. Recordings are built upon channels: so this is called by its name."""
    if not isinstance(archive, str | os.PathLike):
        raise Invalid(f"{channel}: archive is {archive!r}: it must be the path or the URI of an archive")
    found: History = import_module("penstock.record.session_history").SessionHistory(archive, channel, codec)
    return found
