"""An archive on an object storage, or one that another machine serves. Read-only; `push` writes onto an object storage.

A recording exists once its description does. Knows names of recordings; `remote` and `served` read them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from penstock._native import core as _native
from penstock.errors import NotFound, PenstockError, SystemFailure
from penstock.record.format import removed
from penstock.record.format.archive_folder import DIGITS, IDENTITY, ArchiveFolder, identified
from penstock.record.format.catalog import Catalog, Row
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import DESCRIPTION, RecordingFolder
from penstock.record.format.numbers import is_number
from penstock.record.format.remote import WHERE, RemoteFolder, RemotePath, is_away
from penstock.record.format.served import Looks, ServedFolder
from penstock.util.files.storage import Place, reaching, where
from penstock.util.files.uris import is_remote

READ_AHEAD = 8 << 20  # bytes of one request, where all of an object is read


class _NoCatalog(Catalog):
    """None: an object storage has no such files."""

    def known(self) -> dict[int, Row]:
        """Nothing."""
        return {}


class RemoteArchive(ArchiveFolder):
    """An archive's names on an object storage."""

    def __init__(self, place: Place) -> None:
        self.path = cast(Path, RemotePath(place))
        self.recordings = self.path / "recordings"
        if not self.recordings.is_dir():
            raise NotFound(f"there is no archive at {place}")
        self._looks = Looks(place) if place.is_served else None
        self.catalog = _NoCatalog(self.path, dict)

    def identity(self) -> str:
        """The name of the archive that was pushed here. `NotFound` if that was before archives had names."""
        path = cast(RemotePath, self.path / IDENTITY)
        try:
            return identified(path.read_bytes(), path)
        except FileNotFoundError as error:
            raise NotFound(f"{path} is not there: {self._unnamed()}") from error

    def _unnamed(self) -> str:
        return "its server cannot write it" if self.what == WHERE[True] else "push the archive again"

    @property
    def what(self) -> str:
        """What it is on."""
        return WHERE[cast(RemotePath, self.path).place.is_served]

    def removed_signature(self) -> tuple[int, int, int]:
        """Changes whenever the list of removed positions changes. From an object storage nothing is ever taken away."""
        path = cast(RemotePath, self.path)
        if not path.place.is_served:
            return (0, 0, 0)
        (found,) = path.place.fs.get_file_info([(path / removed.NAME).place.path])
        return (0, found.mtime_ns or 0, found.size or 0)

    def folder(self, number: int) -> RecordingFolder:
        """A recording's folder; it need not exist."""
        return _folder(cast(RemotePath, self.recordings) / f"{number:0{DIGITS}d}", self._looks)

    def folders(self) -> list[RecordingFolder]:
        """Every recording that was pushed up to its description, oldest first. Those of another machine are as one look found them."""
        if self._looks is not None:
            place = cast(RemotePath, self.recordings).place
            seen = self._looks.all()
            there = [ServedFolder(RemotePath(place / name, one), self._looks) for name, one in seen.items()]
            return [one for one in there if (one.path / DESCRIPTION).is_file()]
        names = sorted(name for name in cast(RemotePath, self.recordings).names() if is_number(name, DIGITS))
        found = [_folder(cast(RemotePath, self.recordings) / name) for name in names]
        if not found:
            return []
        paths = [cast(RemotePath, one.path) / DESCRIPTION for one in found]
        with reaching():
            infos = paths[0].place.fs.get_file_info([path.place.path for path in paths])
        return [one for one, info in zip(found, infos, strict=True) if info.is_file]

    def newest_first(self) -> Iterator[RecordingFolder]:
        """The same from the newest on."""
        return reversed(self.folders())


class ReadAhead:
    """An object that is read from its beginning to its end: one request for many blocks."""

    def __init__(self, opener: Any, uri: str) -> None:
        self._reader = opener(uri)
        self._start, self._raw = 0, b""

    def size(self) -> int:
        """How many bytes there are."""
        return int(self._reader.size())

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes."""
        at = offset - self._start
        if at < 0 or at + length > len(self._raw):
            more = max(0, min(READ_AHEAD, self.size() - offset))
            self._start, self._raw, at = offset, self._reader.read_at(offset, max(length, more)), 0
        return self._raw[at : at + length]


def folder_at(path: str) -> RecordingFolder:
    """The recording at a path or a URI."""
    return _folder(RemotePath(where(path))) if is_remote(path) else RecordingFolder(Path(path))


def _folder(path: RemotePath, looks: Looks | None = None) -> RemoteFolder:
    return ServedFolder(path, looks) if path.place.is_served else RemoteFolder(path)


def siblings(folder: RecordingFolder) -> list[RecordingFolder]:
    """All recordings of the archive that a recording is in."""
    if isinstance(folder, ServedFolder):
        return RemoteArchive(folder.archive).folders()
    parent = folder.path.parent
    return [RecordingFolder(parent / name) for name in sorted(os.listdir(parent)) if is_number(name, DIGITS)]


def verify_remote(folder: RecordingFolder) -> Iterable[tuple[Any, int, int, str]]:
    """(path, offset, length, error) of each damage of a recording there: every byte of it is read."""
    try:
        damage = coverage_of(folder, folder.describe().start_position).damage
    except PenstockError as error:
        if is_away(error):
            raise
        damage = str(error)
    if damage:
        yield folder.path, 0, 0, damage
    for segment in folder.segments():
        try:
            problems, _ = _native.verify_segment(
                str(segment.data), str(segment.index), lambda uri: ReadAhead(folder.opener, uri), folder.number
            )
        except SystemFailure as error:
            if is_away(error):
                raise
            yield segment.data, 0, 0, str(error)
            continue
        for path, offset, length, what in problems:
            yield RemotePath(where(path)), offset, length, what
