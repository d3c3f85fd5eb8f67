"""A recording on an object storage, or one that another machine serves: the same files as a folder's, read by ranges. Read-only; `push`
writes onto an object storage.

A recording exists once its description does. An index is written after its data and was compared with them, so it is trusted.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from penstock._native import core as _native
from penstock.errors import NotFound, SystemFailure, Unsupported
from penstock.record.format import sync_marker
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
from penstock.util.files.served_files import Seen
from penstock.util.files.storage import Place, reaching, where

AT_ONCE = 32  # requests for indexes
UNANSWERED = {  # errors of calls that went unanswered; those of an object storage have no number
    0, errno.EINPROGRESS, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPROTO,
}  # fmt: skip
WHERE = {False: "an object storage", True: "another machine"}
STABLE_NS = (
    60_000_000_000  # an object older than this, by the storage's clock: a later one of its name has another time
)


class Size(NamedTuple):
    """As `os.stat_result` names it."""

    st_size: int


@dataclass(frozen=True)
class RemotePath:
    """An object, or a prefix of some: as much of `pathlib.Path` as readers need. Its text is its URI. seen: what a look at a recording of
    another machine found; it answers for the entries of that folder, and for those files."""

    place: Place
    seen: Seen | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.place / name, self.seen)

    def __str__(self) -> str:
        return self.place.uri

    def __repr__(self) -> str:
        return f"RemotePath({self.place.uri!r})"

    def entries(self) -> list[Any]:
        """Entries directly below, as `pyarrow.fs.FileInfo`."""
        if self.seen is not None:
            return self.seen.infos
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
        if (size := self._size()) < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return Size(size)

    def is_file(self) -> bool:
        """Whether the object exists."""
        return self._size() >= 0

    def _size(self) -> int:
        """An object's length; -1 if there is none."""
        if self.seen is not None:
            return self.seen.files.get(self.name, (-1, 0))[0]
        with reaching():
            info = self.place.fs.get_file_info(self.place.path)
        return int(info.size) if info.is_file else -1

    def read_bytes(self) -> bytes:
        """An object's bytes. FileNotFoundError if there is none."""
        if self.seen is not None:
            if self.name not in self.seen.files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
            if self.name in self.seen.raws:
                return self.seen.raws[self.name]
        try:
            if self.place.is_served:
                return bytes(self.place.fs.read_bytes(self.place.path))
            with reaching(), self.place.fs.open_input_file(self.place.path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from None


def place_of(path: Path | RemotePath) -> Place:
    """The place of a folder or a file of an archive."""
    return path.place if isinstance(path, RemotePath) else Place(str(path), str(path))


class ObjectReader:
    """An object's bytes, by ranges, for the compiled scan."""

    def __init__(self, uri: str, size: int | None = None) -> None:
        self._uri, place = uri, where(uri)
        with self._naming_errors(), reaching():
            if size is None:
                self._file = place.fs.open_input_file(place.path)
            else:
                self._file = place.fs.open_sized(place.path, size)

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
            raws = self._fetch_indexes(ahead)
            self._indexes = {one.stem: raw for one, raw in zip(ahead, raws, strict=True)}
        reader = BytesReader(self._indexes.pop(segment.stem))
        about = _native.read_index(str(segment.index), lambda _: reader, self.number)
        return np.frombuffer(about["entries"], dtype=ENTRY), about

    def _fetch_indexes(self, segments: list[Segment]) -> list[bytes]:
        with ThreadPoolExecutor(len(segments)) as pool:
            return list(pool.map(lambda one: fetch(one.index), segments))

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


@functools.lru_cache(maxsize=10_000)
def _description(path: RemotePath) -> Description:
    """A recording's description, which never changes. A number is never given twice."""
    try:
        return description_of(path.read_bytes(), cast(Path, path))
    except FileNotFoundError as error:
        raise NotFound(f"no recording at {str(path).rpartition('/')[0]}: it has no {DESCRIPTION}") from error


def fetch(path: Any) -> bytes:
    """The bytes of a file that must be there."""
    try:
        return cast(bytes, path.read_bytes())
    except FileNotFoundError as error:
        raise SystemFailure(errno.ENOENT, f"{path}: the object does not exist") from error


def is_away(error: Exception) -> bool:
    """Whether what holds an object did not answer, which says nothing about the object."""
    return isinstance(error, SystemFailure) and error.errno in UNANSWERED
