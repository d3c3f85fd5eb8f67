"""Replicate: copies recordings of any archive into a folder of this machine, with their checksums. Deletes nothing unless `replace` is given.

A segment's new frames are copied and compared with the checksums of their index, made durable, and then the index is replaced. So a
reader of the copy never sees a part of a block, and a copy that was killed continues where it was. The segment that is being written
is copied as far as it goes.
"""

from __future__ import annotations

import os
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.errors import Corrupt, Invalid, PenstockError
from penstock.record.format import batches, last_values, truncations
from penstock.record.format.archive_folder import COPY_OF, DIGITS, IDENTITY, ArchiveFolder, row_of, written
from penstock.record.format.coverage import unfit
from penstock.record.format.folder import BLOCK, ENTRY, FOLLOWING, RecordingFolder, Segment
from penstock.record.format.numbers import is_number
from penstock.record.format.remote import BytesReader, place_of
from penstock.record.format.served import index_bytes, look_at
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.keep.push import Progress, Pushed
from penstock.util.files.durable import fsync_folder, naming_path, open_private, remove_left, write_atomically
from penstock.util.files.storage import reaching

PIECE = 16 << 20
HEADER = _native.INDEX_HEADER_LENGTH


def opened(source: ArchiveFolder, path: Path) -> ArchiveFolder:
    """The folder of the copy, with the archive's name, for queries take both for the same. `Invalid` if it is no copy of it, also if it is the
    archive itself, by whatever name. Then nothing was made there."""
    if isinstance(source.path, Path):
        here, there = path.resolve(), source.path.resolve()
        if there in here.parents or here in there.parents:
            raise Invalid(f"{path} and {source.path} are one within the other: replicate into a folder beside it")
    name = source.identity()
    if path.is_dir() and _is_foreign(path):
        raise Invalid(f"{path} is no archive, and not empty: replicate into a new folder")
    target = ArchiveFolder(path, create=True)
    with target.removed_if_it_fails():
        _identify(source, name, target)
    return target


def _is_foreign(path: Path) -> bool:
    """Whether a folder has files, and nothing of an archive."""
    remove_left(path / COPY_OF)
    names, folder = {one.name for one in path.iterdir()}, path / "recordings"
    there = [one.name for one in folder.iterdir() if one.name[0] != "."] if folder.is_dir() else []
    if not names.isdisjoint((COPY_OF, IDENTITY)) or any(is_number(name, DIGITS) for name in there):
        return False
    return bool(there) or any(name != folder.name and not name.startswith("catalog.sqlite") for name in names)


def _identify(source: ArchiveFolder, name: str, target: ArchiveFolder) -> None:
    if not target.is_copy and (target.folders() or (target.path / IDENTITY).exists()):
        own = "the archive itself, or a copy of it by other means" if target.identity() == name else "another archive"
        raise Invalid(f"{target.path} is {own}: replicate into a new folder")
    if not target.is_copy:
        write_atomically(target.path / COPY_OF, f"{source.path}\n", private=True)
    if not (target.path / IDENTITY).exists():
        write_atomically(target.path / IDENTITY, written(name), private=True)
    if target.identity() != name:
        raise Invalid(f"{target.path} is a copy of another archive, not of {source.path}: replicate into a new folder")


def replicate(
    recordings: list[RecordingFolder], target: ArchiveFolder, *, replace: bool, progress: Progress
) -> list[Pushed]:
    """See `Archive.replicate`."""
    found = []
    for number, folder in enumerate(recordings):
        progress(f"recording {folder.number}", number, len(recordings))
        now = look_at(folder) if number and folder.is_live() else folder  # those before it may have taken long
        one = _Replica(now, target, replace)
        try:
            one.run()
        except (PenstockError, OSError) as error:
            if isinstance(error, FileNotFoundError) and not folder.path.is_dir():
                continue  # purged in the meantime
            one.done = changed(one.done, error=" ".join(str(error).split()))
        found.append(one.done)
    progress("done", len(recordings), len(recordings))
    return found


class _Replica:
    """One recording's."""

    def __init__(self, source: RecordingFolder, target: ArchiveFolder, replace: bool) -> None:
        self.source, self.target, self.replace = source, target, replace
        self.here = target.folder(source.number)
        self.done = Pushed(source.number, "")

    def run(self) -> None:
        """Copies what is new."""
        about = self.source.describe()
        self.done = changed(self.done, channel=about.channel)
        if self.here.path.exists():
            lock = self.here.lock()
            for left in self.here.path.glob(".*.new"):  # a copy that was killed began to write it
                left.unlink()
        else:
            self.here, lock = RecordingFolder.create(self.here.path, about)
        try:
            if self.here.describe() != about:
                raise Invalid(f"{self.here.path} is another recording: replicate into another folder")
            self._copy()
        finally:
            RecordingFolder.unlock(lock)

    def _copy(self) -> None:
        live, mark = self.source.is_live(), self.source.mark()  # before its segments
        cuts, segments = truncations.read(self.source.path), self.source.segments()
        self._small(last_values.NAME)
        self._follow_cuts(cuts, segments)
        known = self.here.mark() or SyncMarker(0)
        end, sealed = self.here.describe().start_position, False
        for segment in segments:
            _entries, about = self._segment(segment, end)
            end, sealed = int(about["end"]), bool(about["sealed"])
        for name in (batches.NAME, FOLLOWING):  # after the messages that they are about
            self._small(name)
        whole = mark is not None and mark.closed and sealed and not live
        found = SyncMarker(end, closed=whole, appended=batches.is_in(self.here.path), partial=live)
        if mark is not None and not live:
            found = changed(found, closed=mark.closed and sealed, lost=mark.lost, partial=mark.partial)
            if mark.position > end:
                raise Corrupt(
                    f"{self.source.path}: it was durable up to {mark.position} and ends at {end}. Run verify there"
                )
        if found != changed(known, listed=False):
            self.here.write_mark(found)
            self.target.catalog.note({self.here.number: row_of(self.here)})

    def _segment(self, segment: Segment, expected: int) -> tuple[Any, dict[str, Any]]:
        """Copies what is new of one segment. Its entries, and the other facts of its index."""
        raw = self._index(segment)
        entries, about = _parsed(raw, segment, self.source.number)
        if wrong := unfit(segment, about, expected):
            raise Corrupt(f"{wrong}. Run verify there, then repair")
        raw = raw[: HEADER + len(entries) * ENTRY.itemsize]
        there = self.here.segment_paths(segment.base)
        before = there.index.read_bytes() if there.index.exists() else b""
        if not raw.startswith(before):
            if not self.replace:
                raise Invalid(f"{there.index} differs from {segment.index}: {self._remedy()}")
            before = b""
        length = there.data.stat().st_size if there.data.exists() else 0
        if before == raw and length >= about["data_length"]:
            self.done = changed(self.done, there=self.done.there + 1)
            return entries, about
        self._note_begun()
        begin = int(_parsed(before, there, self.source.number)[1]["data_length"]) if before else 0
        self._frames(segment, there, entries[entries["kind"] == BLOCK], min(begin, length), int(about["data_length"]))
        write_atomically(there.index, raw, private=True)
        copied = int(about["data_length"]) - begin + len(raw) - len(before)
        self.done = changed(self.done, segments=self.done.segments + 1, bytes=self.done.bytes + copied)
        return entries, about

    def _note_begun(self) -> None:
        """Before the first change: until the mark is written again, the copy is partial."""
        mark = self.here.mark() or SyncMarker(self.here.describe().start_position)
        if not mark.partial:
            self.here.write_mark(changed(mark, closed=False, partial=True))

    def _frames(self, segment: Segment, there: Segment, blocks: Any, begin: int, end: int) -> None:
        """Copies frames from offset `begin` on, compares each block with its checksum, and makes them durable."""
        starts = blocks["position"] - segment.base
        with naming_path(there.data), open(open_private(there.data, os.O_RDWR), "r+b") as file:
            file.truncate(begin)  # what a killed copy left has not been compared
            at = file.seek(begin)
            for piece in self._pieces(segment.data, begin, end):
                at += file.write(piece)
            file.flush()
            if at < end:
                raise Corrupt(f"{segment.data} has {at} bytes, and its index requires {end}. Run verify there")
            for start, block in zip(starts.tolist(), blocks, strict=True):
                if start + int(block["length"]) > begin:
                    raw = os.pread(file.fileno(), int(block["length"]), start)
                    if _native.crc32c(raw) != int(block["block_crc"]):
                        file.truncate(begin)
                        raise Corrupt(
                            f"{segment.data}: byte {start}: a checksum is wrong. Run verify there, then repair"
                        )
            os.fsync(file.fileno())

    def _follow_cuts(self, cuts: list[truncations.Truncation], segments: list[Segment]) -> None:
        """If the recording was cut back since the last copy, some of this one's segments are not its any more: they go on request."""
        known = truncations.read(self.here.path)
        if known == cuts:
            return
        there = {segment.stem: segment for segment in segments}
        stale = [one for one in self.here.segments() if not self._is_prefix(one, there.get(one.stem))]
        if stale and not self.replace:
            raise Invalid(f"recording {self.source.number} was cut back at its source: {self._remedy()}")
        for one in stale:
            self.here.lower_mark(one.base)
        self._small(truncations.NAME)  # first: a reader forgets too much
        for one in reversed(stale):
            one.index.unlink()
            one.data.unlink(missing_ok=True)
        fsync_folder(self.here.path)

    def _is_prefix(self, here: Segment, there: Segment | None) -> bool:
        return there is not None and self._index(there).startswith(here.index.read_bytes())

    def _remedy(self) -> str:
        return f"replicate with replace (--replace) to delete what differs in {self.here.path}"

    def _small(self, name: str) -> None:
        path = self.source.path / name
        try:
            raw = self._read(path)
        except FileNotFoundError:
            return
        there = self.here.path / name
        if not there.exists() or there.read_bytes() != raw:
            write_atomically(there, raw, private=True)

    def _pieces(self, path: Path, begin: int, end: int) -> Any:
        place = place_of(path)
        with reaching(), place.fs.open_input_file(place.path) as file:
            while begin < end and (piece := file.read_at(min(PIECE, end - begin), begin)):
                yield piece[: end - begin]  # a server may send more
                begin += len(piece)

    def _index(self, segment: Segment) -> bytes:
        with reaching():
            return index_bytes(self.source, segment)

    @staticmethod
    def _read(path: Path) -> bytes:
        with reaching():
            return path.read_bytes()


def _parsed(raw: bytes, segment: Segment, recording: int) -> tuple[Any, dict[str, Any]]:
    about = _native.read_index(str(segment.index), lambda _: BytesReader(raw), recording)
    return np.frombuffer(about["entries"], dtype=ENTRY), about
