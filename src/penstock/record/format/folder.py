"""A recording's folder: one description, segments, their indexes.

Knows names and bytes on disk. It must never know channels or readers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.errors import Busy, Corrupt, NotFound
from penstock.record.format import sync_marker
from penstock.record.format.numbers import is_number, number_of
from penstock.record.format.sync_marker import SyncMarker
from penstock.util.clock import SystemClock
from penstock.util.files.durable import (
    free_name,
    fresh_path,
    fsync_folder,
    make_folder,
    naming_path,
    open_private,
    write_atomically,
)

DESCRIPTION, SEGMENT_TOTALS, FOLLOWING = "recording.json", "segments", "next"
COPY = "recording.copy"  # of the description: without one, no message of the recording can be read
ENTRY = np.dtype(list(_native.INDEX_ENTRY))
BLOCK, GAP, SEAL = _native.ENTRY_BLOCK, _native.ENTRY_GAP, _native.ENTRY_SEAL
HOLE = _native.ENTRY_HOLE  # a block that was damaged: its bytes stay in the file, and no reader believes them


@dataclass(frozen=True)
class Description:
    """The facts about a recording that never change."""

    id: int
    channel: str
    epoch: int
    start_position: int
    term_length: int
    initial_term_id: int
    stream_id: int
    created_ns: int
    codec: dict[str, Any] = field(default_factory=lambda: {"kind": "bytes"})
    format: int = 1  # 2: with the file `synced`
    snapshot: dict[str, Any] | None = None  # of a snapshot: why and when it was taken. Not written if there is none


FORMAT = 2


class Misplaced(Corrupt):
    """A description of another recording than its folder's. id: that one's."""

    def __init__(self, text: str, id: int) -> None:
        super().__init__(text)
        self.id = id


@dataclass(frozen=True)
class Segment:
    """A segment's two files. `base`: the position of its first byte."""

    base: int
    folder: Path
    stem: str

    @functools.cached_property
    def data(self) -> Path:
        """The frames."""
        return self.folder / f"{self.stem}.seg"

    @functools.cached_property
    def index(self) -> Path:
        """The index, which lists the published frames."""
        return self.folder / f"{self.stem}.idx"

    @property
    def unnamed_index(self) -> Path:
        """The index's path until its header is durable."""
        return self.index.with_suffix(".new")


def _sum(content: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


@functools.lru_cache(maxsize=4096)
def _parse_description(raw: bytes) -> str:
    """A description's content as JSON. ValueError if the bytes are not exactly those that were written. Cached: descriptions are read often."""
    content = json.loads(raw)
    stated = content.pop("crc32c")
    canonical = json.dumps({**content, "crc32c": stated}, indent=1) + "\n"
    if stated != _sum(content) or canonical.encode() != raw:
        raise ValueError("its checksum is wrong")
    return json.dumps(content)


def description_of(raw: bytes, path: Path) -> Description:
    """The description in these bytes. `Corrupt` if they are not those that were written."""
    try:
        return Description(**json.loads(_parse_description(raw)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{path} is damaged: {error}") from error


_locked_fds: set[int] = set()
LOCK_TRIES, LOCK_NAP_SECONDS = 20, 0.005


def _close_locks_in_child() -> None:
    """A forked child must not keep a dead parent's locks."""
    for fd in _locked_fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    _locked_fds.clear()


os.register_at_fork(after_in_child=_close_locks_in_child)


class RecordingFolder:
    """One recording on disk. Reading takes no lock and sees everything that the recorder has published."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, description: Description) -> tuple[RecordingFolder, int]:
        """Makes a folder with its description; the folder and its lock. Durable before this returns. FileExistsError if the name is taken."""
        unnamed = cls(fresh_path(path))
        make_folder(unnamed.path)
        lock = -1
        try:
            content = {key: value for key, value in asdict(description).items() if key != "snapshot" or value}
            text = json.dumps({**content, "crc32c": _sum(content)}, indent=1) + "\n"
            write_atomically(unnamed.path / DESCRIPTION, text, private=True)
            write_atomically(unnamed.path / COPY, text, private=True)
            unnamed.write_mark(SyncMarker(description.start_position), description.id)
            lock = unnamed.lock()
            try:
                os.rename(unnamed.path, path)  # a folder never has its name without its description
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                    raise FileExistsError(error.errno, f"{path} is taken") from error
                raise
            fsync_folder(path.parent)
        except BaseException:
            cls.unlock(lock)
            shutil.rmtree(unnamed.path, ignore_errors=True)
            raise
        return cls(path), lock

    @staticmethod
    def sweep_unborn(parent: Path, may_go: Callable[[Path], bool]) -> list[Path]:
        """Removes folders that never got their name because their maker died, if `may_go` allows it. Returns the removed ones."""
        swept = []
        for path in sorted(parent.glob(".*.new")):
            pid = path.name.split(".")[-2]
            if path.is_dir() and pid.isdigit() and not os.path.exists(f"/proc/{pid}") and may_go(path):
                shutil.rmtree(path)
                swept.append(path)
        return swept

    def describe(self) -> Description:
        """The description, checked: the file's, or its copy's. `NotFound` or `Corrupt`."""
        try:
            return self.description_in(DESCRIPTION)
        except (Corrupt, NotFound) as error:
            try:
                return self.description_in(COPY)
            except (Corrupt, NotFound):
                raise error from None

    def description_in(self, name: str) -> Description:
        """The description in one of the two files. Also `Corrupt` if it belongs to another recording than the folder's name."""
        path = f"{self.path}/{name}"
        try:
            with open(path, "rb") as file:
                raw = file.read()
        except FileNotFoundError as error:
            raise NotFound(f"no recording at {self.path}: it has no {name}") from error
        except IsADirectoryError as error:
            raise Corrupt(f"{path} is a folder") from error
        found = description_of(raw, self.path / name)
        own = self.path.name
        if is_number(own, len(own)) and found.id != int(own):
            raise Misplaced(f"{path} describes recording {found.id}", found.id)
        return found

    def segments(self) -> list[Segment]:
        """The segments in order. A segment without an index has published nothing and is left out."""
        with os.scandir(self.path) as entries:
            stems = sorted(e.name[:-4] for e in entries if e.name.endswith(".idx") and e.is_file(follow_symlinks=False))
        return [Segment(int(stem), self.path, stem) for stem in stems if is_number(stem, 20)]

    def data_without_index(self) -> list[Path]:
        """Segment files without an index. A recorder that dies while it begins a segment leaves an empty one."""
        found = sorted(path for path in self.path.glob("*.seg") if not is_number(path.stem, 20) or not path.is_file())
        named = sorted(path for path in self.path.glob("*.seg") if path not in found)
        return found + [path for path in named if not path.with_suffix(".idx").exists()]

    def lone_segments(self) -> list[Segment]:
        """Those with frames and without an index."""
        return [
            Segment(int(path.stem), self.path, path.stem)
            for path in self.data_without_index()
            if is_number(path.stem, 20) and path.is_file()
        ]

    def odd_indexes(self) -> list[Path]:
        """Entries with an index's suffix that are not indexes: folders, or names that are not positions."""
        return sorted(path for path in self.path.glob("*.idx") if not is_number(path.stem, 20) or not path.is_file())

    def sweep(self) -> None:
        """Removes the files without messages that a recorder leaves when it dies while it begins a segment."""
        for path in self.data_without_index():
            if path.is_file() and path.stat().st_size == 0:
                path.unlink()
        for path in self.path.glob("*.new"):
            if path.is_file():
                path.unlink()

    def segment_paths(self, base: int) -> Segment:
        """The segment that begins at `base`; it need not exist."""
        return Segment(base, self.path, f"{base:020d}")

    def index(self, segment: Segment) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """A segment's index entries as an array of `ENTRY`, with holes where entries are damaged, and the index's other facts."""
        about = _native.read_index(f"{segment.folder}/{segment.stem}.idx", recording=self.number)
        return np.frombuffer(about["entries"], dtype=ENTRY), about

    @property
    def number(self) -> int:
        """The recording's number, by the folder's name; 0 if that is none."""
        return number_of(self.path)

    def verify_segment(self, segment: Segment) -> tuple[list[tuple[str, int, int, str]], list[int]]:
        """Checks every byte of a segment: (path, offset, length, what) of each damage, and the numbers of the entries whose blocks are
        damaged."""
        return _native.verify_segment(str(segment.data), str(segment.index), recording=self.number)

    def names_and_size(self, name: str) -> tuple[int, int]:
        """(a number that changes when its list of files does, a file's bytes or -1). FileNotFoundError if it was removed."""
        changed = os.stat(self.path).st_mtime_ns
        try:
            return changed, os.stat(f"{self.path}/{name}").st_size
        except FileNotFoundError:
            return changed, -1

    def note_following(self, number: int) -> None:
        """Notes the recording in which this one's recorder continues."""
        write_atomically(self.path / FOLLOWING, self._following(number), private=True)

    def following(self) -> int | None:
        """The recording in which this one's recorder continued; None if there is none. `Corrupt` if the file is damaged, or another
        recording's."""
        path = self.path / FOLLOWING
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        number = raw.split(b" ")[0]
        if not number.isdigit() or raw != self._following(int(number)).encode():
            raise Corrupt(f"{path} is damaged: a checksum is wrong. Run repair, which writes it again")
        return int(number)

    def _following(self, number: int) -> str:
        return f"{number} {_native.crc32c(f'{self.number} {number}'.encode()):08x}\n"

    def aside(self) -> Path:
        """The folder for files that are not part of the recording. A file of that name moves into it."""
        folder = self.path / "damaged"
        if os.path.lexists(folder) and not folder.is_dir():
            stray = self.path / free_name(self.path, folder.name)
            os.rename(folder, stray)
            os.rename(stray, make_folder(folder) / folder.name)
        return make_folder(folder)

    def changed_ns(self) -> int:
        """When its list of files changed last."""
        return os.stat(self.path).st_mtime_ns

    def index_state(self, stem: str) -> tuple[int, ...]:
        """Numbers that change whenever the index of the segment of this name does."""
        found = os.stat(f"{self.path}/{stem}.idx")
        return found.st_ino, found.st_size, found.st_mtime_ns

    def data_length(self, segment: Segment) -> int:
        """Bytes of a segment's frames; -1 if their file is missing. Call it after the index is read: frames are written first."""
        try:
            return os.stat(f"{segment.folder}/{segment.stem}.seg").st_size
        except FileNotFoundError:
            return -1

    def mark(self) -> SyncMarker | None:
        """The recording's durable position and how it ended; None for recorders older than that file."""
        return sync_marker.read(self.path, self.number)

    def write_mark(self, mark: SyncMarker, number: int = 0) -> None:
        """Writes the mark again, durably. number: of the recording, before its folder has its name."""
        with naming_path(self.path / sync_marker.NAME):
            fd = self.open_mark()
            try:
                sync_marker.write(fd, mark, number or self.number)
                os.ftruncate(fd, sync_marker.LENGTH)
                os.fsync(fd)
            finally:
                os.close(fd)

    def open_mark(self) -> int:
        """A descriptor to write the mark through."""
        return open_private(self.path / sync_marker.NAME, os.O_RDWR)

    def lower_mark(self, position: int) -> None:
        """Lowers the mark before bytes beyond `position` are cut off: it no longer calls them durable, nor the recording closed."""
        with contextlib.suppress(Corrupt):  # then repair writes it
            mark = self.mark()
            if mark is not None and (mark.position > position or mark.closed):
                self.write_mark(SyncMarker(min(mark.position, position), appended=mark.appended))

    def lock(self) -> int:
        """Marks this recording as being written; a descriptor for `unlock`. `Busy` if another process writes it, `NotFound` if it was removed.

        The lock is the kernel's, on the folder itself, and ends with the process. `is_live` in another process holds it for a moment.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotFound(f"there is no recording at {self.path}") from error
        try:
            _lock(fd, self.path)
            held = os.fstat(fd)
            if not self.path.exists() or not os.path.samestat(os.stat(self.path), held):
                raise NotFound(f"{self.path} was removed in the meantime")
        except BaseException:
            _unlock_and_close(fd)
            raise
        _locked_fds.add(fd)
        return fd

    @staticmethod
    def unlock(fd: int) -> None:
        """Gives a lock back, by the descriptor that `lock` returned."""
        if fd in _locked_fds:
            _locked_fds.remove(fd)
            _unlock_and_close(fd)

    @property
    def opener(self) -> Callable[[str], Any] | None:
        """How the compiled scan opens its segments by their paths; None: as files."""
        return None

    def ended(self, sealed: bool) -> str:
        """The state of a recording that no recorder writes. sealed: its last segment is."""
        return sync_marker.ended(sync_marker.sure(self.path, self.number), sealed)

    def is_live(self) -> bool:
        """Whether a recorder writes this recording at this moment."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            _unlock_and_close(fd)
        return False


def _unlock_and_close(fd: int) -> None:
    """Releases a lock and closes its descriptor. Closing alone is not enough: a child forked in the meantime may hold the descriptor too."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _lock(fd: int, path: Path) -> None:
    for attempt in range(LOCK_TRIES):
        if attempt:
            SystemClock().sleep(LOCK_NAP_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    raise Busy(f"{path} is being recorded, or repaired, by another process")
