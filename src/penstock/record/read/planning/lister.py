"""The list of an archive's recordings: finds and describes each, from folders and indexes. Changes nothing."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.channels.uri.channel import parse
from penstock.channels.uri.value import AnyChannel, uri_of
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.record.format import segment_totals
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.coverage import Coverage, CoverageCache, Indexed, coverage_of
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.layout import Layout
from penstock.record.format.remote import RemoteFolder, is_away
from penstock.record.format.served import is_there, look_at, unlooked
from penstock.record.format.truncations import Truncation
from penstock.record.format.types import RecordingInfo
from penstock.util.files.durable import is_shortage


class Lister:
    """Reads an archive's folders. A `recording` is an id, or a channel's URI for its newest recording."""

    def __init__(self, files: ArchiveFolder) -> None:
        self._files = files
        self._caches: dict[Path, CoverageCache] = {}  # kept from plan to plan

    def all(self) -> list[RecordingInfo]:
        """Every recording, oldest first. A damaged one is among them and hides no other."""
        found = (self._describe(folder) for folder in self._files.folders())
        return [info for info in found if info is not None]

    def layouts(
        self, channels: Collection[str] | None = None, folders: Sequence[RecordingFolder] | None = None
    ) -> Iterator[tuple[RecordingInfo, Layout]]:
        """Every recording, oldest first, with the locations of its blocks; none for a damaged one. Remembers them: the next
        call reads only new data.

        channels: only theirs, and recordings whose channel is unknown. folders: those of the recordings, if they were asked for just now.
        """
        folders = self._files.folders() if folders is None else folders
        there = {folder.path for folder in folders}
        for path in [path for path in self._caches if path not in there]:
            self._caches.pop(path, None)
        for folder in folders:
            if channels is not None and (channel := _channel_of(folder)) and channel not in channels:
                continue
            looked = self._read_folder(folder, self._cached_coverage)
            if looked is not None:
                yield looked[0], looked[1].layout or Layout()

    def find(self, recording: int | AnyChannel) -> RecordingInfo:
        """One recording. `NotFound` names the recordings that there are."""
        folder = self.locate(recording)
        info = self._describe(folder)
        if info is None:
            raise NotFound(f"{folder.path} was purged in the meantime")
        return info

    def _describe(self, folder: RecordingFolder) -> RecordingInfo | None:
        """A recording as it is now: a long one by its file `segments`, else by its indexes. None if it was purged in the meantime."""
        with contextlib.suppress(PenstockError, OSError):  # then `_read_folder` reports the damage
            about = folder.describe()
            holds = segment_totals.summarize(folder, about.start_position)
            if holds is not None and not holds.damage:
                state = "live" if folder.is_live() else folder.ended(holds.sealed)
                return _to_info(folder, about, holds, state, self._find_synced(folder, about))
        looked = self._read_folder(folder, coverage_of)
        return None if looked is None else looked[0]

    def locate(self, recording: int | AnyChannel) -> RecordingFolder:
        """A recording's folder. `NotFound` names the recordings that there are."""
        recording = uri_of(recording) if not isinstance(recording, int) else recording
        number = _as_number(recording)
        if number is not None:
            folder = look_at(self._files.folder(number))
            if not is_there(folder):
                raise NotFound(self._files.no_such(number))
            return folder
        channels: dict[RecordingFolder, str | None] = {}
        for folder in self._files.newest_first():
            channels[folder] = _channel_of(folder)
            if channels[folder] == recording:
                return folder
        known = ", ".join(sorted({channel for channel in channels.values() if channel})) or "none"
        unread = [str(int(folder.path.name)) for folder, channel in reversed(channels.items()) if channel is None]
        more = f". The channel of {', '.join(unread)} cannot be read: verify shows the damage" if unread else ""
        raise NotFound(f"{self._files.path} has no recording of {recording}; it has {known}{more}")

    def number(self, recording: int | AnyChannel | None) -> int | None:
        """A recording's id, which need not exist; None for None."""
        if recording is None:
            return None
        number = _as_number(recording)
        return int(self.locate(recording).path.name) if number is None else number

    def read_folder(self, folder: RecordingFolder) -> tuple[RecordingInfo, list[Indexed]] | None:
        """A recording as it is now, and its indexes; None if it was purged in the meantime."""
        looked = self._read_folder(folder, lambda folder, start: coverage_of(folder, start, indexes=True))
        return None if looked is None else (looked[0], looked[1].indexes or [])

    def _read_folder(
        self, folder: RecordingFolder, read: Callable[[RecordingFolder, int], Coverage]
    ) -> tuple[RecordingInfo, Coverage] | None:
        """A recording as it is now, and its totals; None if it was purged in the meantime. read: returns the totals, from the position where it
        begins."""
        damage = ""
        for attempt in range(2):  # a recorder, a repair or a purge may have been changing it
            try:
                looked = self._info(look_at(folder) if attempt else folder, read)
                return looked if not looked[0].damage or folder.path.is_dir() else None
            except (PenstockError, OSError) as error:
                if not folder.path.is_dir():
                    return None
                if _is_outside(folder, error):
                    raise
                damage = str(error)
        info = self._describe_damaged(folder, damage)
        return info, Coverage(info.start_position, damage=damage)

    def _info(
        self, folder: RecordingFolder, read: Callable[[RecordingFolder, int], Coverage]
    ) -> tuple[RecordingInfo, Coverage]:
        about = folder.describe()
        holds = read(folder, about.start_position)
        if holds.damage:
            folder = look_at(folder)
            holds = read(folder, about.start_position)  # a repair, or a recorder that begins again, may have been at it
        live = folder.is_live()
        state = "damaged" if holds.damage else "live" if live else folder.ended(holds.sealed)
        return _to_info(folder, about, holds, state, self._find_synced(folder, about)), holds

    def _cached_coverage(self, folder: RecordingFolder, start: int) -> Coverage:
        """A recording's totals and the locations of its blocks. Reads only data added since the last call."""
        # Two threads may get here at once: each takes the cache out while it uses it.
        known = self._caches.pop(unlooked(folder.path), None) or CoverageCache(start, layout=True)
        holds = known.refresh(folder)
        if not holds.damage:
            self._caches[unlooked(folder.path)] = known
        return holds

    def _find_synced(self, folder: RecordingFolder, about: Description) -> int:
        """A recording's durable position. An old recording has no mark: then the catalog's, if any."""
        try:
            mark = folder.mark()
        except Corrupt:
            return about.start_position
        if mark is not None:
            return mark.position
        row = self._files.catalog.known().get(about.id)
        return about.start_position if row is None else max(row.synced_position, about.start_position)

    def _describe_damaged(self, folder: RecordingFolder, damage: str) -> RecordingInfo:
        """The known facts about a recording that cannot be read, some of them from the catalog."""
        number = int(folder.path.name)
        try:
            about = folder.describe()
        except (PenstockError, OSError):
            row = self._files.catalog.known().get(number)
            about = Description(number, "", 0, 0, 0, 0, 0, 0)
            if row is not None:
                about = Description(number, row.channel, row.epoch, row.start_position, 0, 0, 0, row.created_ns)
        holds = Coverage(about.start_position, damage=damage)
        return _to_info(folder, about, holds, "damaged", about.start_position)


def _as_number(recording: object) -> int | None:
    """A recording's id; None for a channel's name. `Invalid` for anything else."""
    if isinstance(recording, str):
        return None
    try:
        return operator.index(recording)  # type: ignore[arg-type]
    except TypeError:
        raise Invalid(f"recording is {recording!r}: it must be an id or a channel's URI") from None


def _is_outside(folder: RecordingFolder, error: Exception) -> bool:
    """Whether an error is no fault of a recording: want of descriptors or memory, or another machine that does not answer."""
    return is_shortage(error) or (isinstance(folder, RemoteFolder) and is_away(error))


def _channel_of(folder: RecordingFolder) -> str | None:
    try:
        return folder.describe().channel
    except (PenstockError, OSError) as error:
        if _is_outside(folder, error):
            raise
        return None  # damage to one recording must not hide the others


def position_epoch(about: Description) -> int:
    """The epoch that a recording's positions belong to. Where they are the recording's own, as with pipes, no other has it."""
    if not has_own_positions(about.channel, about.codec):
        return about.epoch
    return (about.epoch ^ (about.id * 0x9E3779B97F4A7C15)) & ((1 << 63) - 1)


def has_own_positions(channel: str, codec: dict[str, Any]) -> bool:
    """Whether a recording of a channel has its own positions, so that after a truncation other messages get the same positions."""
    try:
        return bool(codec.get("pixels")) or parse(channel).kind.own_positions
    except PenstockError:  # a kind that this version does not have
        return False


def generations(channel: str, epoch: int, codec: dict[str, Any], cut: Sequence[Truncation]) -> list[tuple[int, int]]:
    """The epochs of a recording's positions, one for each truncation: (epoch, the position up to which the previous one applies).

    Positions that are the channel's mean the same messages after a cut: there is one.
    """
    found = [(epoch, 0)]
    if has_own_positions(channel, codec):
        for one in cut:
            found.append(((found[-1][0] ^ one.token) & ((1 << 63) - 1), one.position))
    return found


def _to_info(folder: RecordingFolder, about: Description, holds: Coverage, state: str, synced: int) -> RecordingInfo:
    return RecordingInfo(
        id=int(folder.path.name),
        channel=about.channel,
        state=state,
        codec=about.codec,
        start_position=about.start_position,
        end_position=holds.end_position,
        synced_position=synced,
        messages=holds.messages,
        bytes=holds.bytes,
        time_min=holds.time_min,
        time_max=holds.time_max,
        gaps=holds.gaps,
        lost_bytes=holds.lost_bytes,
        segments=holds.segments,
        created_ns=about.created_ns,
        epoch=position_epoch(about),
        path=unlooked(folder.path),
        damage=holds.damage,
        snapshot=about.snapshot,
    )
