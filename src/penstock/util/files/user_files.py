"""Files that a user names as configuration: read whole, and only if they are files. Knows no format.

A FIFO or a device would keep the reader waiting, or never end.
"""

from __future__ import annotations

import os
import stat

from penstock.errors import Invalid

MOST = 16 << 20  # bytes
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. `Invalid` for a FIFO, a device, a folder, a socket, and for more than `MOST` bytes. `OSError` as of `open`."""
    path = _text_of(path)
    _check(path, os.stat(path).st_mode)  # to open a device may do something
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        _check(path, os.fstat(fd).st_mode)
        found = file.read(MOST + 1)
    if len(found) > MOST:
        raise Invalid(f"{path} has more than {MOST:,} bytes: it is no configuration, name another file")
    return found


def read_text(path: str | os.PathLike[str]) -> str:
    """The same as text: UTF-8, with or without a mark at its begin. `UnicodeDecodeError` for other bytes. Line ends become LF."""
    return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def check(path: str | os.PathLike[str]) -> None:
    """`Invalid` if something is there that is no regular file, before a reader opens it by its name."""
    path = _text_of(path)
    if os.path.exists(path):
        _check(path, os.stat(path).st_mode)


def _text_of(path: str | os.PathLike[str]) -> str:
    """A path's text. `Invalid` for anything else: a number would be a descriptor."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise Invalid(f"the file is {path!r}: it must be a path") from None
    if "\0" in text:
        raise Invalid(f"the file is {text!r}: a path cannot contain a NUL")
    return text


def _check(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise Invalid(f"{path} is {kind}: name a regular file (copy what it gives into one)")


__all__ = ["MOST", "check", "read_bytes", "read_text"]
