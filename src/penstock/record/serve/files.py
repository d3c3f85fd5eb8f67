"""The files of an archive that a server shows: their names, sizes and bytes. Read-only.

Every name that a client sends is compared with the names that an archive can have, so that no other file can be asked for.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.record.format import removed
from penstock.record.format.archive_folder import DIGITS, IDENTITY, ArchiveFolder
from penstock.record.format.remote import place_of
from penstock.record.serve.looks import is_of_recording, looked
from penstock.util.files.served_answers import Entry, Kind
from penstock.util.files.served_files import PIECE, READ_BYTES

_OF_ARCHIVE = {IDENTITY, removed.NAME}
_FOLDER = re.compile(r"(/recordings(/[0-9]{8})?)?", re.ASCII)
_RECORDING = re.compile(r"/recordings/[0-9]{8}", re.ASCII)
PATHS = 10_000  # in one request


class Action(NamedTuple):
    """What a client may ask for. fields: of the JSON that it sends, all of them."""

    about: str
    fields: tuple[str, ...]
    answer: Callable[[Any], Iterator[bytes]]

    @property
    def form(self) -> str:
        """The fields as text."""
        return f"{{{', '.join(self.fields)}}}"


class ServedArchive:
    """The answers to the actions of `penstock.util.files.served_files`. Any thread may call."""

    def __init__(self, files: ArchiveFolder) -> None:
        self._files = files
        with contextlib.suppress(PenstockError, OSError):  # of a folder that cannot be written: clients miss it
            files.identity()
        self._place = place_of(files.path)
        self.actions = {
            "list": Action("The entries of a folder", ("path",), self._list),
            "stat": Action("What there is at some paths", ("paths",), self._stat),
            "read": Action("Bytes of a file", ("path", "offset", "length"), self._read),
            "look": Action(
                "What there is of recordings, all unless some are named, beyond what is known",
                ("recordings", "known"),
                self._look,
            ),
            "live": Action("Whether a recorder writes a recording's folder now", ("path",), self._live),
        }

    def answer(self, action: str, body: bytes) -> Iterator[bytes]:
        """The results of an action: an error or `{}`, then bytes."""
        try:
            asked = json.loads(body)
            if unknown := [str(name) for name in asked if name not in self.actions[action].fields]:
                yield _error(errno.EINVAL, f"{action} has no {', '.join(unknown)[:200]}; {self._there_are()}")
                return
            found = self.actions[action].answer(asked)
            first = next(found, None)
        except FileNotFoundError as error:
            yield _error(errno.ENOENT, error)
            return
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            yield _error(errno.EINVAL, f"there is no such request; {self._there_are()}")
            return
        except OSError as error:
            yield _error(error.errno or errno.EIO, error.strerror or type(error).__name__)
            return
        yield b"{}"
        if first is not None:
            yield first
        yield from found

    def _there_are(self) -> str:
        return "there are: " + ", ".join(f"{name} {one.form}" for name, one in self.actions.items())

    def _list(self, asked: Any) -> Iterator[bytes]:
        from pyarrow import fs

        folder = asked["path"]
        if not _FOLDER.fullmatch(folder):
            raise FileNotFoundError
        found = []
        if self._is_own(folder):
            found = self._place.fs.get_file_info(fs.FileSelector(self._real(folder), allow_not_found=True))
        shown = [one for one in found if self._is_own(f"{folder}/{one.base_name}")]
        listed = json.dumps([_entry(f"{folder}/{one.base_name}", one) for one in shown])
        yield from (listed[at : at + PIECE].encode() for at in range(0, len(listed), PIECE))

    def _stat(self, asked: Any) -> Iterator[bytes]:
        paths = asked["paths"]
        if not isinstance(paths, list) or len(paths) > PATHS:
            raise ValueError
        own = [path for path in paths if self._is_own(path)]
        known = dict(zip(own, self._place.fs.get_file_info([self._real(path) for path in own]), strict=True))
        listed = json.dumps([_entry(path, known[path]) if path in known else (path, "none", 0, 0) for path in paths])
        yield from (listed[at : at + PIECE].encode() for at in range(0, len(listed), PIECE))

    def _read(self, asked: Any) -> Iterator[bytes]:
        path, offset, length = asked["path"], int(asked["offset"]), int(asked["length"])
        if not self._is_own(path):
            raise FileNotFoundError
        if offset < 0 or not 0 <= length <= READ_BYTES:
            raise ValueError
        with self._place.fs.open_input_file(self._real(path)) as file:
            while length:
                piece = file.read_at(min(length, PIECE), offset) if offset < file.size() else b""
                if not piece:
                    return
                yield piece
                offset, length = offset + len(piece), length - len(piece)

    def _look(self, asked: Any) -> Iterator[bytes]:
        names, known = asked["recordings"], asked["known"]
        if not isinstance(names, list | None) or len(names or ()) > PATHS or not isinstance(known, dict):
            raise ValueError
        head, raws = looked(self._files, names, known, self._is_own)
        yield b"%d" % len(head)
        found = head + raws
        yield from (found[at : at + PIECE] for at in range(0, len(found), PIECE))

    def _live(self, asked: Any) -> Iterator[bytes]:
        path = asked["path"]
        if not _RECORDING.fullmatch(path):
            raise FileNotFoundError
        yield json.dumps(self._files.folder(int(path[-DIGITS:])).is_live()).encode()

    def _real(self, path: str) -> str:
        return self._place.path + path

    def _is_own(self, path: str) -> bool:
        """Whether an archive may have this file or folder, and whether it is one: a link or a pipe may lead out of the archive."""
        if not _is_name(path):
            return False
        if not self._place.is_local:
            return True
        parts = path.split("/")[1:]
        for number in range(len(parts)):
            try:
                mode = os.lstat("/".join([self._place.path, *parts[: number + 1]])).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return True  # there is nothing to show
            if not (
                stat.S_ISREG(mode) if number == len(parts) - 1 and not _FOLDER.fullmatch(path) else stat.S_ISDIR(mode)
            ):
                return False
        return True


def _is_name(path: str) -> bool:
    """Whether an archive has files or folders of this name."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return name in _OF_ARCHIVE or bool(_FOLDER.fullmatch(path))
    if _RECORDING.fullmatch(folder):
        return is_of_recording(name)
    return bool(_FOLDER.fullmatch(path))


def _entry(path: str, info: Any) -> Entry:
    from pyarrow import fs

    kinds: dict[Any, Kind] = {fs.FileType.File: "file", fs.FileType.Directory: "folder"}
    kind = kinds.get(info.type, "none")
    return path, kind, info.size or 0, info.mtime_ns or 0


def _error(number: int, why: object) -> bytes:
    return json.dumps({"errno": number, "text": os.strerror(number) if isinstance(why, Exception) else why}).encode()
