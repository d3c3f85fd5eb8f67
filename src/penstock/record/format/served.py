"""Recordings in a folder of another machine. A look asks for all that a follower needs in one call, and answers for that moment.

Knows the answers of `penstock.record.serve`. Read-only.
"""

from __future__ import annotations

import contextvars
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from penstock.errors import SystemFailure
from penstock.record.format import sync_marker
from penstock.record.format.archive_folder import DIGITS
from penstock.record.format.folder import DESCRIPTION, Description, RecordingFolder, Segment, description_of
from penstock.record.format.numbers import is_number
from penstock.record.format.remote import AT_ONCE, BytesReader, ObjectReader, RemoteFolder, RemotePath, fetch
from penstock.record.format.sync_marker import SyncMarker
from penstock.util.files.served_files import Seen
from penstock.util.files.storage import Place, reaching

INDEX_BYTES = 64 << 20  # of indexes that are kept


class Looks:
    """What was seen of the recordings of an archive on another machine, so that a look brings only what is new. Any thread may call."""

    def __init__(self, archive: Place) -> None:
        self._archive = archive
        self._known: dict[str, Seen] = {}
        self._indexes: dict[tuple[str, tuple[int, int]], bytes] = {}
        self._index_bytes = 0

    def all(self) -> dict[str, Seen]:
        """Every recording, by its folder's name, in order."""
        self._known = found = self._archive.fs.look(self._known, None)
        return {name: found[name] for name in sorted(found) if is_number(name, DIGITS)}

    def one(self, name: str) -> Seen | None:
        """One recording; None if it is not there."""
        found = self._archive.fs.look(self._known, [name]).get(name)
        others = {known: seen for known, seen in self._known.items() if known != name}
        self._known = others if found is None else {**others, name: found}
        return cast(Seen | None, found)

    def has(self, path: RemotePath, seen: Seen) -> bool:
        """Whether an index is known without a call."""
        return path.name in seen.raws or (str(path), seen.files.get(path.name, (0, 0))) in self._indexes

    def index(self, path: RemotePath, state: tuple[int, int], read: Callable[[], bytes]) -> bytes:
        """The bytes of an index, which were read before if it has not changed since."""
        key = (str(path), state)
        raw = self._indexes.get(key)
        if raw is None:
            raw = read()
            if self._index_bytes > INDEX_BYTES:
                self._indexes, self._index_bytes = {}, 0
            self._indexes[key] = raw
            self._index_bytes += len(raw)
        return raw


class ServedFolder(RemoteFolder):
    """A recording in a folder of another machine: it may grow, be cut and be purged while it is read. seen: it is as a look found it."""

    def __init__(self, path: RemotePath, looks: Looks | None = None) -> None:
        super().__init__(path)
        self._looks = looks or Looks(self.archive)

    @property
    def archive(self) -> Place:
        """The archive that it is in."""
        return _archive_of(cast(RemotePath, self.path).place)

    @property
    def seen(self) -> Seen | None:
        """What the look found."""
        return cast(RemotePath, self.path).seen

    def look(self) -> ServedFolder:
        """The recording as it is now, in one call. One that is not there any more has not been looked at."""
        place = cast(RemotePath, self.path).place
        return ServedFolder(RemotePath(place, self._looks.one(self.path.name)), self._looks)

    def describe(self) -> Description:
        """The description, checked. `NotFound` or `Corrupt`."""
        if self.seen is not None and DESCRIPTION in self.seen.raws:
            return description_of(self.seen.raws[DESCRIPTION], self.path / DESCRIPTION)
        return RemoteFolder(RemotePath(cast(RemotePath, self.path).place)).describe()

    @property
    def opener(self) -> Callable[[str], Any]:
        """How the compiled scan reads it."""
        return ObjectReader if self.seen is None else self._open

    def _open(self, uri: str) -> Any:
        path = self.path / uri.rpartition("/")[2]
        found = cast(Seen, self.seen).files.get(path.name)
        if found is None:
            raise SystemFailure(errno.ENOENT, f"{uri}: the object does not exist")
        if path.name.endswith(".idx"):
            return BytesReader(self._index(cast(RemotePath, path)))
        return ObjectReader(uri, found[0])

    def _index(self, path: RemotePath) -> bytes:
        """An index, as far as it was when it was looked at: the frames of later entries were not there yet."""
        seen = cast(Seen, self.seen)
        if path.name in seen.raws or path.name not in seen.files:
            return fetch(path)
        state = seen.files[path.name]
        return self._looks.index(path, state, lambda: fetch(path)[: state[0]])

    def _fetch_indexes(self, segments: list[Segment]) -> list[bytes]:
        if self.seen is None:
            return super()._fetch_indexes(segments)
        paths = [cast(RemotePath, one.index) for one in segments]
        unknown = [path for path in paths if not self._looks.has(path, cast(Seen, path.seen))]
        if len(unknown) > 1:
            deadline = contextvars.copy_context()  # of the caller
            with ThreadPoolExecutor(min(len(unknown), AT_ONCE)) as pool:
                list(pool.map(lambda path: deadline.copy().run(self._index, path), unknown))
        return [self._index(path) for path in paths]

    def is_live(self) -> bool:
        """Whether a recorder there writes it."""
        path = cast(RemotePath, self.path)
        return bool(path.place.fs.is_live(path.place.path)) if self.seen is None else self.seen.live

    def data_length(self, segment: Segment) -> int:
        """Bytes of a segment's frames. The last segment may have grown since it was listed."""
        if self.seen is not None or not self._order or segment.stem != self._order[-1].stem:
            return super().data_length(segment)
        with reaching():
            found = cast(RemotePath, self.path).place.fs.get_file_info(cast(RemotePath, segment.data).place.path)
        return int(found.size) if found.is_file else -1

    def ended(self, sealed: bool) -> str:
        """As a folder's."""
        return sync_marker.ended(self.mark() or SyncMarker(0), sealed)


def _archive_of(recording: Place) -> Place:
    """The archive of a recording's folder."""
    return Place(recording.uri.rsplit("/recordings/", 1)[0], recording.path.rsplit("/recordings/", 1)[0])


def look_at(folder: RecordingFolder) -> RecordingFolder:
    """A recording as it is now, for several questions about one moment. One of this machine is read as it is at each of them."""
    return folder.look() if isinstance(folder, ServedFolder) else folder


def is_there(folder: RecordingFolder) -> bool:
    """Whether the folder of a recording exists, after `look_at`."""
    return folder.seen is not None if isinstance(folder, ServedFolder) else folder.path.is_dir()


def index_bytes(folder: RecordingFolder, segment: Segment) -> bytes:
    """The bytes of a segment's index. Those of another machine are read once for each change. FileNotFoundError if there is none."""
    if isinstance(folder, ServedFolder) and folder.seen is not None and segment.index.name in folder.seen.files:
        return folder._index(cast(RemotePath, segment.index))
    return segment.index.read_bytes()


def unlooked(path: Path) -> Path:
    """A folder's path, without what a look found there."""
    return cast(Path, RemotePath(path.place)) if isinstance(path, RemotePath) else path
