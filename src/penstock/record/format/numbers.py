"""Names that are numbers: of recordings' folders, and of the files in them."""

from __future__ import annotations

from pathlib import Path


def is_number(name: str, digits: int) -> bool:
    """Whether a name is a number of `digits` digits."""
    return len(name) == digits and name.isascii() and name.isdigit()


def number_of(folder: Path) -> int:
    """The number of the recording in a folder, by its name; 0 if that is none."""
    return int(folder.name) if is_number(folder.name, len(folder.name)) else 0


def seal(content: bytes, recording: int) -> bytes:
    """The bytes that a small file of a recording has its checksum of: its content and its owner. So a file of another recording is noticed."""
    return content + recording.to_bytes(8, "little")
