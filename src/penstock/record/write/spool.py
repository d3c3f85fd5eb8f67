"""A batch from a program, read completely before any lock: in memory, and from 16 MiB on in an unnamed file.

Knows bytes and times only.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.channels.checks import whole
from penstock.errors import Invalid, SystemFailure, TooLarge
from penstock.util.clock import Clock
from penstock.util.units import LEAST, MOST

MEMORY_BYTES = 16 << 20
MESSAGE_MAX = 1 << 30  # bytes of a message, as on any log
_HEAD = struct.Struct("<qQ")  # a message's time, and its length


def _time(given: object, channel: str) -> int:
    """A send time of a type other than `int`, such as NumPy's. `Invalid` unless it is an integer of 64 bits."""
    try:
        return whole(given, "a time in times_ns", LEAST, MOST)
    except Invalid as error:
        raise Invalid(f"{channel}: {error}") from None


class Spool:
    """Messages and their send times. Each iteration begins at the first message. A context manager.

    folder: for the file, if one is needed: it needs as much room as the messages, until the end.
    """

    def __init__(
        self,
        folder: Path,
        bodies: Iterable[bytes | memoryview],
        times_ns: Iterable[int] | None,
        clock: Clock,
        channel: str,
    ) -> None:
        self._folder = folder
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(folder))  # noqa: SIM115  # it is closed by __exit__
        self._count = 0
        try:
            times = None if times_ns is None else iter(times_ns)
            for body in bodies:
                time_ns = clock.now_ns() if times is None else next(times, None)
                if time_ns is None:
                    raise Invalid(f"{channel}: times_ns has {self._count} times, and there are more messages")
                if type(time_ns) is not int or not LEAST <= time_ns <= MOST:
                    time_ns = _time(time_ns, channel)
                if (length := memoryview(body).nbytes) > MESSAGE_MAX:
                    raise TooLarge(f"{channel}: a message of {length} bytes; the largest is {MESSAGE_MAX}")
                self._write(_HEAD.pack(time_ns, length))
                self._write(body)
                self._count += 1
            if times is not None and next(times, None) is not None:
                raise Invalid(f"{channel}: times_ns has more times than the {self._count} messages: give one for each")
            self._write(b"", end=True)
        except BaseException:
            self._file.close()
            raise

    def _write(self, data: bytes | memoryview, *, end: bool = False) -> None:
        """Errors name the archive: the file has no name."""
        try:
            self._file.write(data)
            if end:
                self._file.flush()
        except OSError as error:
            raise SystemFailure(error.errno or 0, f"cannot write into {self._folder}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        for _ in range(self._count):
            time_ns, length = _HEAD.unpack(self._file.read(_HEAD.size))
            yield time_ns, self._file.read(length)
