"""An archive on an object storage, or one that another machine serves: the same files as a folder's, read by ranges. Read-only; `push`
writes onto an object storage.

A recording exists once its description does. An index is written after its data and was compared with them, so it is trusted.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from penstock._native import core as _native
from penstock.errors import NotFound, PenstockError, SystemFailure, Unsupported
from penstock.record.format import removed, sync_marker
from penstock.record.format.archive_folder import DIGITS, IDENTITY, ArchiveFolder, identified
from penstock.record.format.catalog import Catalog, Row
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import (
    DESCRIPTION,
    ENTRY,
    Description,
    RecordingFolder,
    Segment,
    description_of,
)
from penstock.record.format.numbers import is_number
from penstock.record.format.sync_marker import SyncMarker
from penstock.util.clock import SystemClock
from penstock.util.extras import explain_missing
from penstock.util.storage import Place, is_remote, reaching, where

AT_ONCE = 32  # requests for indexes
WHERE = {False: "an object storage", True: "another machine"}
STABLE_NS = (
    60_000_000_000  # an object older than this, by the storage's clock: a later one of its name has another time
)


class Size(NamedTuple):
    """As `os.stat_result` names it."""

    st_size: int


@dataclass(frozen=True)
class RemotePath:
    """An object, or a prefix of some: as much of `pathlib.Path` as readers need. Its text is its URI."""

    place: Place

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.place / name)

    def __str__(self) -> str:
        return self.place.uri

    def __repr__(self) -> str:
        return f"RemotePath({self.place.uri!r})"

    def entries(self) -> list[Any]:
        """Entries directly below, as `pyarrow.fs.FileInfo`."""
        with explain_missing("an object storage"):
            from pyarrow import fs

        with reaching():
            return list(self.place.fs.get_file_info(fs.FileSelector(self.place.path, allow_not_found=True)))

    def names(self) -> dict[str, int | None]:
        """Entries directly below: name → length, None of a prefix."""
        return {info.base_name: info.size if info.is_file else None for info in self.entries()}

    def is_dir(self) -> bool:
        """Whether there is anything below, or an empty folder on another machine."""
        if self.place.is_served:
            with reaching():
                return bool(self.place.fs.get_file_info(self.place.path).type.name == "Directory")
        return bool(self.names())

    def stat(self) -> Size:
        """An object's length. FileNotFoundError if there is none."""
        with reaching():
            info = self.place.fs.get_file_info(self.place.path)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return Size(info.size)

    def is_file(self) -> bool:
        """Whether the object exists."""
        with reaching():
            return bool(self.place.fs.get_file_info(self.place.path).is_file)

    def read_bytes(self) -> bytes:
        """An object's bytes. FileNotFoundError if there is none."""
        try:
            with reaching(), self.place.fs.open_input_file(self.place.path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from None


def place_of(path: Path | RemotePath) -> Place:
    """The place of a folder or a file of an archive."""
    return path.place if isinstance(path, RemotePath) else Place(str(path), str(path))


class ObjectReader:
    """An object's bytes, by ranges, for the compiled scan."""

    def __init__(self, uri: str) -> None:
        self._uri, place = uri, where(uri)
        with self._naming_errors(), reaching():
            self._file = place.fs.open_input_file(place.path)

    def _naming_errors(self) -> Any:
        return _NamingErrors(self._uri)

    def size(self) -> int:
        """How many bytes there are."""
        return int(self._file.size())

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes."""
        with self._naming_errors(), reaching():
            return bytes(self._file.read_at(length, offset))


class BytesReader:
    """Bytes that were read already."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def size(self) -> int:
        """How many bytes there are."""
        return len(self._raw)

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes."""
        return self._raw[offset : offset + length]


class _NamingErrors:
    """Errors about an object that is not there name it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, FileNotFoundError) and not isinstance(error, SystemFailure):
            raise SystemFailure(errno.ENOENT, f"{self._uri}: the object does not exist") from None


class RemoteFolder(RecordingFolder):
    """A recording on an object storage. Only a push writes it while it is read, and a push only adds."""

    def __init__(self, path: RemotePath) -> None:
        super().__init__(cast(Path, path))  # it has the methods of a path that readers use
        self._indexes: dict[str, bytes] = {}
        self._order: list[Segment] = []
        self._states: dict[str, tuple[int, ...]] = {}
        self._sizes: dict[str, int] = {}  # of the files of frames

    @property
    def opener(self) -> Callable[[str], ObjectReader] | None:
        """How the compiled scan reads it."""
        return ObjectReader

    def describe(self) -> Description:
        """The description, checked. `NotFound` or `Corrupt`."""
        return _description(cast(RemotePath, self.path) / DESCRIPTION)

    def segments(self) -> list[Segment]:
        """The segments in order."""
        entries, now = cast(RemotePath, self.path).entries(), SystemClock().now_ns()
        found = {one.base_name[:-4]: one for one in entries if one.is_file and one.base_name.endswith(".idx")}
        self._states = {
            stem: (one.size, one.mtime_ns, now if not self.is_served and now - one.mtime_ns < STABLE_NS else 0)
            for stem, one in found.items()
        }
        self._sizes = {one.base_name: one.size for one in entries if one.is_file and one.base_name.endswith(".seg")}
        stems = sorted(found)
        self._order = [Segment(int(stem), self.path, stem) for stem in stems if is_number(stem, 20)]
        return self._order

    def index(self, segment: Segment) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """A segment's entries. The entries of the next segments are fetched with them, many at once."""
        if segment.stem not in self._indexes:
            at = next((n for n, one in enumerate(self._order) if one.base == segment.base), None)
            ahead = [segment] if at is None else self._order[at : at + AT_ONCE]
            with ThreadPoolExecutor(len(ahead)) as pool:
                raws = list(pool.map(lambda one: _fetch(one.index), ahead))
            self._indexes = {one.stem: raw for one, raw in zip(ahead, raws, strict=True)}
        reader = BytesReader(self._indexes.pop(segment.stem))
        about = _native.read_index(str(segment.index), lambda _: reader, self.number)
        return np.frombuffer(about["entries"], dtype=ENTRY), about

    def names_and_size(self, name: str) -> tuple[int, int]:
        """(a number that changes when an object is added, removed or replaced; an object's bytes or -1)."""
        found = {
            one.base_name: (one.size, one.mtime_ns) for one in cast(RemotePath, self.path).entries() if one.is_file
        }
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        listed = "\n".join(f"{one} {about}" for one, about in sorted(found.items()))
        return _native.crc32c(listed.encode()), found.get(name, (-1, 0))[0]

    def changed_ns(self) -> int:
        """Now: an object storage has no time of change for the list of objects, so it is listed each time."""
        return SystemClock().now_ns()

    def index_state(self, stem: str) -> tuple[int, ...]:
        """Numbers that change whenever an index does: by the last list of objects. A young one is another one each time."""
        return self._states[stem]

    def data_length(self, segment: Segment) -> int:
        """Bytes of a segment's frames, by the last list of objects; -1 if that has none."""
        return self._sizes.get(f"{segment.stem}.seg", -1)

    def mark(self) -> SyncMarker | None:
        """The position up to which the recording was pushed, and whether that is all of it."""
        path = self.path / sync_marker.NAME
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        return sync_marker.decode(raw, path, self.number)

    def is_live(self) -> bool:
        """Never: a recorder does not write here."""
        return False

    def ended(self, sealed: bool) -> str:
        """closed or lost if all of the recording was pushed, else partial."""
        mark = self.mark()
        return "partial" if mark is None or not mark.closed else "lost" if mark.lost else "closed"

    def lock(self) -> int:
        """`Unsupported`."""
        raise Unsupported(f"{self.path} is on {WHERE[self.is_served]}, where recordings can only be read")

    @property
    def is_served(self) -> bool:
        """Whether it is on another machine, where recorders write it."""
        return cast(RemotePath, self.path).place.is_served


class ServedFolder(RemoteFolder):
    """A recording in a folder of another machine: it may grow, be cut and be purged while it is read."""

    def is_live(self) -> bool:
        """Whether a recorder there writes it at this moment."""
        path = cast(RemotePath, self.path)
        return bool(path.place.fs.is_live(path.place.path))

    def data_length(self, segment: Segment) -> int:
        """Bytes of a segment's frames. The last segment may have grown since it was listed."""
        if not self._order or segment.stem != self._order[-1].stem:
            return super().data_length(segment)
        with reaching():
            found = cast(RemotePath, self.path).place.fs.get_file_info(cast(RemotePath, segment.data).place.path)
        return int(found.size) if found.is_file else -1

    def ended(self, sealed: bool) -> str:
        """As a folder's."""
        return sync_marker.ended(self.mark() or SyncMarker(0), sealed)


@functools.lru_cache(maxsize=10_000)
def _description(path: RemotePath) -> Description:
    """A recording's description, which never changes. A number is never given twice."""
    try:
        return description_of(path.read_bytes(), cast(Path, path))
    except FileNotFoundError as error:
        raise NotFound(f"no recording at {str(path).rpartition('/')[0]}: it has no {DESCRIPTION}") from error


def _fetch(path: Any) -> bytes:
    try:
        return cast(bytes, path.read_bytes())
    except FileNotFoundError as error:
        raise SystemFailure(errno.ENOENT, f"{path}: the object does not exist") from error


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
        return _folder(cast(RemotePath, self.recordings) / f"{number:0{DIGITS}d}")

    def folders(self) -> list[RecordingFolder]:
        """Every recording that was pushed up to its description, oldest first."""
        names = sorted(name for name in cast(RemotePath, self.recordings).names() if is_number(name, DIGITS))
        found = [_folder(cast(RemotePath, self.recordings) / name) for name in names]
        if not found:
            return []
        paths = [cast(RemotePath, one.path) / DESCRIPTION for one in found]
        with reaching():
            infos = paths[0].place.fs.get_file_info([path.place.path for path in paths])
        return [one for one, info in zip(found, infos, strict=True) if info.is_file]


def folder_at(path: str) -> RecordingFolder:
    """The recording at a path or a URI."""
    return _folder(RemotePath(where(path))) if is_remote(path) else RecordingFolder(Path(path))


def _folder(path: RemotePath) -> RemoteFolder:
    return ServedFolder(path) if path.place.is_served else RemoteFolder(path)


def verify_remote(folder: RecordingFolder) -> Iterable[tuple[Any, int, int, str]]:
    """(path, offset, length, error) of each damage of a recording there: every byte of it is read."""
    try:
        damage = coverage_of(folder, folder.describe().start_position).damage
    except PenstockError as error:
        damage = str(error)
    if damage:
        yield folder.path, 0, 0, damage
    for segment in folder.segments():
        try:
            problems, _ = _native.verify_segment(str(segment.data), str(segment.index), folder.opener, folder.number)
        except SystemFailure as error:
            yield segment.data, 0, 0, str(error)
            continue
        for path, offset, length, what in problems:
            yield RemotePath(where(path)), offset, length, what
