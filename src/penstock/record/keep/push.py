"""Push: copies an archive's sealed segments onto an object storage, where they can be read. Knows the folders' files; deletes nothing
unless `replace` is given.

A segment's data are copied first and compared with the index, then the index, then the mark; the description of a new recording is
last. So a reader sees only complete segments, and a push that was killed continues where it stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.errors import Corrupt, Invalid, PenstockError, SystemFailure
from penstock.record.format import last_values, sync_marker, truncations
from penstock.record.format.archive_folder import IDENTITY
from penstock.record.format.coverage import unfit
from penstock.record.format.folder import BLOCK, DESCRIPTION, ENTRY, RecordingFolder, Segment
from penstock.record.format.remote import BytesReader, ObjectReader, RemotePath
from penstock.record.format.sync_marker import SyncMarker
from penstock.util.files.storage import Place, reaching

COPY_BYTES = 16 << 20
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Pushed:
    """The result of a push for one recording. segments, bytes: copied now. there: segments that were there already. waiting: bytes of a
    segment that is not sealed yet. error: why it ended early; empty if all is well."""

    recording: int
    channel: str
    segments: int = 0
    bytes: int = 0
    there: int = 0
    waiting: int = 0
    error: str = ""


@dataclass
class _State:
    """A recording here: its sealed segments and where they end."""

    segments: list[Segment]
    end: int
    waiting: int
    complete: bool


def identify(raw: bytes, target: Place) -> None:
    """Gives the copy the archive's name, unless it has one: queries know an archive by its name."""
    there = RemotePath(target) / IDENTITY
    if not there.is_file():
        with reaching(), there.place.fs.open_output_stream(there.place.path) as stream:
            stream.write(raw)


def push(recordings: list[RecordingFolder], target: Place, *, replace: bool, progress: Progress) -> list[Pushed]:
    """See `Archive.push`."""
    there = RemotePath(target) / "recordings"
    found = []
    for number, folder in enumerate(recordings):
        progress(f"recording {int(folder.path.name)}", number, len(recordings))
        one = _Push(folder, there / folder.path.name, replace)
        try:
            one.run()
        except (PenstockError, OSError) as error:
            if not folder.path.is_dir():
                continue  # purged in the meantime
            one.fail(error)
        found.append(one.done)
    progress("done", len(recordings), len(recordings))
    return found


class _Push:
    """One recording's."""

    def __init__(self, folder: RecordingFolder, there: RemotePath, replace: bool) -> None:
        self.folder, self.there, self.replace = folder, there, replace
        self.done = Pushed(int(folder.path.name), "")

    def fail(self, error: BaseException) -> None:
        """Notes why it ended."""
        self.done = dataclasses.replace(self.done, error=" ".join(str(error).split()))

    def run(self) -> None:
        """Copies the missing objects."""
        about = self.folder.describe()
        self.done = dataclasses.replace(self.done, channel=about.channel)
        noted, state = truncations.read(self.folder.path), self._state(about.start_position)
        names = self.there.names()
        self._check_same(names)
        self._follow_cuts(names, noted, state)
        for segment in state.segments:
            self._segment(segment, names)
        if state.segments or state.complete:
            if (kept := self.folder.path / last_values.NAME).exists():
                self._upload(last_values.NAME, kept.read_bytes())
            self._mark(SyncMarker(state.end, closed=state.complete, lost=state.complete and self._has_lost_session()))
            self._upload(DESCRIPTION, (self.folder.path / DESCRIPTION).read_bytes())
        self.done = dataclasses.replace(self.done, waiting=state.waiting)

    def _state(self, start: int) -> _State:
        live, mark = self.folder.is_live(), self.folder.mark()  # before its segments
        found = _State([], start, 0, False)
        sealed = False
        for segment in self.folder.segments():
            _, about = self.folder.index(segment)
            if wrong := unfit(segment, about, found.end):
                raise Corrupt(f"{wrong}. Run verify, then repair")
            sealed = bool(about["sealed"])
            if not sealed:
                found.waiting += int(about["data_length"])
                break
            found.segments.append(segment)
            found.end = int(about["end"])
        found.complete = sealed and not live and mark is not None and mark.closed
        if found.complete and mark is not None and mark.position > found.end:
            raise Corrupt(
                f"{self.folder.path}: it ends at {found.end} and was durable up to {mark.position}. Run verify"
            )
        return found

    def _check_same(self, names: dict[str, int | None]) -> None:
        if (
            DESCRIPTION in names
            and (self.there / DESCRIPTION).read_bytes() != (self.folder.path / DESCRIPTION).read_bytes()
        ):
            raise Invalid(f"{self.there} is another recording: push this archive to another prefix")

    def _follow_cuts(self, names: dict[str, int | None], noted: list[truncations.Truncation], state: _State) -> None:
        """If the recording was truncated since the last push, some remote objects are stale: they are removed on request."""
        try:
            before = truncations.read(self.there)  # type: ignore[arg-type]  # it has the methods of a path that are used
        except Corrupt:
            before = []
        if before == noted:
            return
        here = {path.name: path for one in state.segments for path in (one.index, one.data)}
        stale = [
            name
            for name, size in names.items()
            if name.endswith((".idx", ".seg")) and (name not in here or not self._is_same(name, here[name], size))
        ]
        if stale and not self.replace:
            raise Invalid(
                f"recording {self.done.recording} was cut back after it was pushed: {self.there} has {len(stale)} objects that "
                "differ from it. Push with replace (--replace) to delete them"
            )
        self._upload(
            truncations.NAME, (self.folder.path / truncations.NAME).read_bytes()
        )  # first: a reader forgets too much
        if stale:
            self._mark(SyncMarker(min(state.end, _lowest(stale))))
        for name in sorted(stale):  # an index before its data
            with reaching():
                self.there.place.fs.delete_file((self.there / name).place.path)
            del names[name]

    def _is_same(self, name: str, path: Path, size: int | None) -> bool:
        if size != path.stat().st_size:
            return False
        return not name.endswith(".idx") or (self.there / name).read_bytes() == path.read_bytes()

    def _segment(self, segment: Segment, names: dict[str, int | None]) -> None:
        """One segment's two objects. If the index exists, its data were compared with it before."""
        data, index = segment.data, segment.index
        sizes = data.stat().st_size, index.stat().st_size
        if (names.get(data.name), names.get(index.name)) == sizes:
            self.done = dataclasses.replace(self.done, there=self.done.there + 1)
            return
        if index.name in names and self._is_better_there(segment):
            self.done = dataclasses.replace(self.done, there=self.done.there + 1)
            return
        problems, _ = self.folder.verify_segment(segment)
        if problems:
            path, offset, _, what = problems[0]
            raise Corrupt(f"{path}: byte {offset}: {what}. Run verify, then repair")
        if names.get(data.name) != sizes[0] or self._find_difference(segment):
            self._copy(data)
            if wrong := self._find_difference(segment):
                raise SystemFailure(0, f"{self.there / data.name} differs from the bytes written: {wrong}. Push again")
        raw = index.read_bytes()
        self._upload(index.name, raw)
        if (self.there / index.name).read_bytes() != raw:
            raise SystemFailure(0, f"{self.there / index.name} differs from the bytes written. Push again")
        self.done = dataclasses.replace(
            self.done, segments=self.done.segments + 1, bytes=self.done.bytes + sizes[0] + sizes[1]
        )

    def _is_better_there(self, segment: Segment) -> bool:
        """Whether the object is sound, and its local copy was damaged later: then it stays."""
        entries, _ = self.folder.index(segment)
        raw = (self.there / segment.index.name).read_bytes()
        about = _native.read_index(str(segment.index), lambda _: BytesReader(raw), self.folder.number)
        there = np.frombuffer(about["entries"], dtype=ENTRY)
        return not about["problems"] and int((there["kind"] == BLOCK).sum()) > int((entries["kind"] == BLOCK).sum())

    def _find_difference(self, segment: Segment) -> str:
        """The first difference between the remote data and their local checksums; empty if there is none. Reads all data."""
        raw = segment.index.read_bytes()

        def opened(path: str) -> Any:
            return BytesReader(raw) if path == str(segment.index) else ObjectReader(path)

        if (self.there / segment.data.name).stat().st_size != segment.data.stat().st_size:
            return "it has another length"
        problems, _ = _native.verify_segment(str(self.there / segment.data.name), str(segment.index), opened)
        return str(problems[0][3]) if problems else ""

    def _has_lost_session(self) -> bool:
        return sync_marker.is_lost(self.folder.path, self.folder.number)

    def _mark(self, mark: SyncMarker) -> None:
        raw = mark.encode(self.folder.number)
        self._upload(sync_marker.NAME, raw)

    def _upload(self, name: str, raw: bytes) -> None:
        """Writes a small object, unless it exists."""
        try:
            if (self.there / name).read_bytes() == raw:
                return
        except FileNotFoundError:
            pass
        place = (self.there / name).place
        with reaching(), place.fs.open_output_stream(place.path) as stream:
            stream.write(raw)

    def _copy(self, data: Path) -> None:
        place = (self.there / data.name).place
        with reaching(), open(data, "rb") as file, place.fs.open_output_stream(place.path) as stream:
            while piece := file.read(COPY_BYTES):
                stream.write(piece)


def _lowest(names: list[str]) -> int:
    return min(int(name[:-4]) for name in names)
