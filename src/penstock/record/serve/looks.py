"""What a follower asks at each look, in one answer: of each recording whether it is written, its files, and the bytes of small ones. Read-only.

The client says which state of a recording it knows, by two tags: of the sealed segments, and of the rest. What it knows is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.record.format import batches, last_values, sync_marker, truncations
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import COPY, DESCRIPTION, FOLLOWING, SEGMENT_TOTALS, RecordingFolder
from penstock.record.format.remote import RemotePath
from penstock.util.clock import SystemClock

SMALL_BYTES = 256 << 10  # of a file that is in the answer
ANSWER_BYTES = 8 << 20  # of such files in one answer
YOUNG_NS = 1_000_000_000  # a file that changed so lately may change again without another time: it is sent each time
_FILES = {
    DESCRIPTION, COPY, FOLLOWING, batches.NAME, last_values.NAME, SEGMENT_TOTALS, sync_marker.NAME, truncations.NAME,
}  # fmt: skip
_SEGMENT = re.compile(r"[0-9]{20}\.(seg|idx)", re.ASCII)
Entry = tuple[str, int, int]  # a file's name, its bytes, and when it changed


def is_of_recording(name: str) -> bool:
    """Whether a recording has files of this name."""
    return name in _FILES or bool(_SEGMENT.fullmatch(name))


def looked(
    files: ArchiveFolder, names: Collection[str] | None, known: Mapping[str, Any], is_own: Callable[[str], bool]
) -> tuple[bytes, bytes]:
    """The answer's head, as JSON, and the bytes of small files. names: of recordings; None: all. known: their tags. is_own: whether a path
    is a folder that an archive may show."""
    there = {one.path.name: one for one in files.folders()}
    chosen = there if names is None else {name: there[name] for name in names if name in there}
    head, raws, room = dict[str, Any](), list[bytes](), ANSWER_BYTES
    for name, folder in chosen.items():
        if not is_own(f"/recordings/{name}"):
            continue
        tags = known.get(name)
        live = folder.is_live()  # first: of a recording that has ended, all that follows is its last state
        about, found = _Look(folder, room).run(tags if isinstance(tags, list) and len(tags) == 2 else ["", ""])
        head[name] = {"live": live, **about, "bytes": [[file, len(raw)] for file, raw in found.items()]}
        raws += found.values()
        room -= sum(map(len, found.values()))
    return json.dumps(head).encode(), b"".join(raws)


class _Look:
    """One recording's."""

    def __init__(self, folder: RecordingFolder, room: int) -> None:
        self._folder, self._room = folder, room
        self._raws: dict[str, bytes] = {}

    def run(self, known: list[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What the client does not know: files with bytes and times, and bytes of small files."""
        older, newer = _divided(self._entries())
        is_known = _is_old(newer) and _tag(newer) == known[1]
        if not is_known:
            for name, size, _ in newer:  # before the indexes: so a recorder's additions in the meantime do no harm
                if not _is_segment(name):
                    self._keep(name, size)
            older, newer = _divided(self._entries())
            for name, size, _ in newer:
                if name.endswith(".idx"):
                    self._keep(name, size)
            newer = self._with_frames(newer)
        about: dict[str, Any] = {"tags": [_tag(older), _tag(newer) if _is_old(newer) else ""]}
        if about["tags"][0] != known[0]:
            about["older"] = older
        if is_known:
            return about, {}
        names = {one[0] for one in newer}
        return {**about, "newer": newer}, {name: raw for name, raw in self._raws.items() if name in names}

    def _with_frames(self, newer: list[Entry]) -> list[Entry]:
        """The files once the indexes were read. Frames are written before their entries: now there are those of each entry."""
        after = {one[0]: one for one in self._entries()}
        return [after.get(one[0], one) if one[0].endswith(".seg") else one for one in newer]

    def _entries(self) -> list[Entry]:
        """The files of the folder."""
        found: list[Entry] = []
        if isinstance(self._folder.path, RemotePath):
            found = [(one.base_name, one.size, one.mtime_ns or 0) for one in self._folder.path.entries() if one.is_file]
        else:
            with contextlib.suppress(FileNotFoundError), os.scandir(self._folder.path) as entries:  # it may be purged
                for one in entries:
                    about = one.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        found.append((one.name, about.st_size, about.st_mtime_ns))
        return sorted(one for one in found if is_of_recording(one[0]))

    def _keep(self, name: str, size: int) -> None:
        """Reads a small file, unless it is gone, has grown or is no file any more."""
        if size > min(SMALL_BYTES, self._room) or isinstance(self._folder.path, RemotePath):
            return
        with contextlib.suppress(OSError):
            fd = os.open(f"{self._folder.path}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                raw = os.read(fd, SMALL_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
                if size <= len(raw) <= SMALL_BYTES:
                    self._raws[name] = raw
                    self._room -= len(raw)
            finally:
                os.close(fd)


def _divided(entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The segments that have a successor, and all other files."""
    last = max((name[:-4] for name, _, _ in entries if name.endswith(".idx")), default="")
    older, newer = list[Entry](), list[Entry]()
    for one in entries:
        (older if _is_segment(one[0]) and one[0][:-4] < last else newer).append(one)
    return older, newer


def _is_segment(name: str) -> bool:
    return name.endswith((".seg", ".idx"))


def _tag(entries: list[Entry]) -> str:
    return hashlib.blake2b(repr(entries).encode(), digest_size=8).hexdigest()


def _is_old(entries: list[Entry]) -> bool:
    young = SystemClock().now_ns() - YOUNG_NS
    return all(changed < young for _, _, changed in entries)
