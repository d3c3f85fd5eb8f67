"""The bytes of an MCAP file, and the errors that name a place in them. Knows no record."""

from __future__ import annotations

from typing import BinaryIO

from penstock.errors import Corrupt
from penstock.export.mcap_reading.records import MAGIC, beginning_of


class Source:
    """An open file. size: in bytes. fault: the offset and the text of the last `damaged`. For one thread."""

    def __init__(self, file: BinaryIO, path: object) -> None:
        self.file, self._path = file, path
        self.size = file.seek(0, 2)
        self.fault: tuple[int, str] | None = None

    def read(self, at: int, size: int) -> bytes:
        """Bytes from an offset, fewer at the file's end."""
        self.file.seek(at)
        return self.file.read(size)

    def damaged(self, at: int, what: str) -> Corrupt:
        """The error for damage at an offset."""
        self.fault = at, what
        return Corrupt(
            f"{self._path} is damaged at byte {at:,}: {what}. "
            f"Run penstock import ARCHIVE {self._path} --recover (from Python, recover=True) to import the sound parts"
        )

    def foreign(self) -> Corrupt:
        """The error for a file of another format."""
        what = beginning_of(self.read(0, 16)) if self.size else "it is empty"
        return Corrupt(f"{self._path} is not an MCAP file: {what}")

    def resembles_mcap(self) -> bool:
        """Whether a file with other first bytes ends like an MCAP file, or begins with most of the magic bytes."""
        tail = self.read(max(0, self.size - len(MAGIC)), len(MAGIC))
        return tail == MAGIC or sum(a == b for a, b in zip(self.read(0, len(MAGIC)), MAGIC, strict=False)) >= 5
