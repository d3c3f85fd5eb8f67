"""A recording's folder: one description, segments, their indexes.

Knows names and bytes on disk; knows nothing of channels or of who reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.errors import Busy, Corrupt, NotFound

DESCRIPTION = "recording.json"
ENTRY = np.dtype(
    [
        ("position", "<i8"),
        ("length", "<u4"),
        ("block_crc", "<u4"),
        ("time_min", "<i8"),
        ("time_max", "<i8"),
        ("recorded_ns", "<i8"),
        ("messages_before", "<u8"),
        ("begins", "<u4"),
        ("kind", "<u2"),
        ("spare", "<u2"),
        ("payload", "<u4"),
        ("crc", "<u4"),
    ]
)
BLOCK, GAP, SEAL = 0, 1, 2


@dataclass(frozen=True)
class Description:
    """What never changes about a recording."""

    id: int
    channel: str
    epoch: int
    start_position: int
    term_length: int
    initial_term_id: int
    stream_id: int
    created_ns: int
    codec: dict[str, Any] = field(default_factory=lambda: {"kind": "bytes"})


@dataclass(frozen=True)
class Segment:
    """Two files; `base` is the position of the segment's first byte."""

    base: int
    folder: Path
    stem: str

    @functools.cached_property
    def data(self) -> Path:
        """The frames."""
        return self.folder / f"{self.stem}.seg"

    @functools.cached_property
    def index(self) -> Path:
        """What says which of them count."""
        return self.folder / f"{self.stem}.idx"

    @property
    def unnamed_index(self) -> Path:
        """Where the index is until its header is durable."""
        return self.index.with_suffix(".new")


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file's content: after a crash it is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_folder(path.parent)


def _sum(content: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


@functools.lru_cache(maxsize=256)
def _checked(raw: bytes) -> str:
    """A description's content as JSON, if these bytes are exactly what was written. A recording is described often."""
    content = json.loads(raw)
    stated = content.pop("crc32c")
    canonical = json.dumps({**content, "crc32c": stated}, indent=1) + "\n"
    if stated != _sum(content) or canonical.encode() != raw:
        raise ValueError("its checksum is wrong")
    return json.dumps(content)


_held: set[int] = set()


def _let_go_in_child() -> None:
    """A forked child must not keep a dead parent's locks."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


class RecordingFolder:
    """One recording on disk. Reading is free of locks and sees what the recorder has published."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, description: Description) -> RecordingFolder:
        """A new folder with its description, durable before this returns."""
        unnamed = path.with_name(f".{path.name}.{os.getpid()}.new")
        unnamed.mkdir(parents=True, exist_ok=True)
        try:
            content = asdict(description)
            write_atomically(unnamed / DESCRIPTION, json.dumps({**content, "crc32c": _sum(content)}, indent=1) + "\n")
            os.replace(unnamed, path)  # a folder never has its name without its description
        except BaseException:
            shutil.rmtree(unnamed, ignore_errors=True)
            raise
        fsync_folder(path.parent)
        return cls(path)

    @staticmethod
    def sweep_unborn(parent: Path) -> list[Path]:
        """Removes what recorders left that died as they made a recording: folders without a name; which."""
        swept = []
        for path in sorted(parent.glob(".*.new")):
            pid = path.name.split(".")[-2]
            if path.is_dir() and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                shutil.rmtree(path)
                swept.append(path)
        return swept

    def describe(self) -> Description:
        """The description, checked. `NotFound` or `Corrupt`."""
        try:
            with open(f"{self.path}/{DESCRIPTION}", "rb") as file:
                raw = file.read()
        except FileNotFoundError as error:
            raise NotFound(f"no recording at {self.path}: it has no {DESCRIPTION}") from error
        try:
            return Description(**json.loads(_checked(raw)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(f"{self.path / DESCRIPTION} is damaged: {error}") from error

    def segments(self) -> list[Segment]:
        """The segments in order. A segment without an index has published nothing and is left out."""
        names = sorted(name for name in os.listdir(self.path) if name.endswith(".idx"))
        return [Segment(int(name[:-4]), self.path, name[:-4]) for name in names if name[:-4].isdigit()]

    def data_without_index(self) -> list[Path]:
        """Segment files that no index speaks of. An empty one is what a recorder leaves that dies as it begins one."""
        known = {segment.data.name for segment in self.segments()}
        return sorted(path for path in self.path.glob("*.seg") if path.name not in known)

    def sweep(self) -> None:
        """Removes what a recorder left that died as it began a segment: files that hold no message."""
        for path in self.data_without_index():
            if path.stat().st_size == 0:
                path.unlink()
        for path in self.path.glob("*.new"):
            path.unlink()

    def segment_paths(self, base: int) -> Segment:
        """Where the segment that begins at `base` lies."""
        return Segment(base, self.path, f"{base:020d}")

    def index(self, segment: Segment) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """A segment's intact index entries as an array of `ENTRY`, and what else the index says."""
        about = _native.read_index(f"{segment.folder}/{segment.stem}.idx")
        return np.frombuffer(about["entries"], dtype=ENTRY), about

    def lock(self) -> int:
        """A descriptor that marks this recording as being written. `Busy` if somebody does already."""
        fd = os.open(self.path / DESCRIPTION, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise Busy(f"{self.path} is being recorded by another process") from error
        _held.add(fd)
        return fd

    @staticmethod
    def unlock(fd: int) -> None:
        """Gives back what `lock` gave."""
        if fd in _held:
            _held.remove(fd)
            os.close(fd)

    def is_live(self) -> bool:
        """Whether a recorder writes here at this moment."""
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(f"{self.path}/{DESCRIPTION}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(fd)
        return False


@dataclass
class Extent:
    """How much a recording holds. Positions in bytes, times in nanoseconds since the epoch."""

    end_position: int
    messages: int = 0
    bytes: int = 0
    time_min: int = 0
    time_max: int = 0
    gaps: int = 0
    lost_bytes: int = 0
    segments: int = 0
    sealed: bool = False
    damaged: bool = False


def extent(folder: RecordingFolder, start_position: int) -> Extent:
    """What the indexes of a recording add up to."""
    found = Extent(end_position=start_position)
    times: list[tuple[int, int]] = []
    for segment in folder.segments():
        entries, about = folder.index(segment)
        found.segments += 1
        found.damaged = found.damaged or bool(about["problems"])
        blocks, gaps = entries[entries["kind"] == BLOCK], entries[entries["kind"] == GAP]
        found.end_position = segment.base + about["data_length"]
        found.messages += int(blocks["begins"].sum())
        found.bytes += about["data_length"]
        found.gaps += len(gaps)
        found.lost_bytes += int(gaps["time_min"].sum())
        timed = blocks[blocks["begins"] > 0]
        if len(timed):
            times.append((int(timed["time_min"].min()), int(timed["time_max"].max())))
        found.sealed = about["sealed"]
    if times:
        found.time_min, found.time_max = min(low for low, _ in times), max(high for _, high in times)
    return found
