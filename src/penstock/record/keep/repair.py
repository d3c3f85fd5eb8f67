"""Repair: records damage as gaps, and restores files that earlier repairs moved. Closes recordings whose recorder died.

Deletes no recorded byte. Damaged blocks stay where they are. Foreign files, and old copies of files that are written again, go to the
recording's folder `damaged`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from penstock._native import core as _native
from penstock.errors import Busy, Corrupt, NotFound, PenstockError
from penstock.record.format import batches, last_values, segment_totals, truncations
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.coverage import Coverage, coverage_of
from penstock.record.format.folder import (
    COPY,
    DESCRIPTION,
    ENTRY,
    FOLLOWING,
    GAP,
    HOLE,
    SEGMENT_TOTALS,
    Description,
    Misplaced,
    RecordingFolder,
    Segment,
)
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.keep import catalog_repair, restore, segment_repair
from penstock.record.keep.change import Repair
from penstock.record.keep.segment_repair import SegmentRepair, as_holes, index_length
from penstock.record.read.scan import FOR_EVER
from penstock.util.files.durable import free_name, fsync_folder, naming_path, open_private, write_atomically


def repair(archive: ArchiveFolder, recording: int | None) -> list[Repair]:
    """See `Archive.repair`. One recording that cannot be repaired (a full disk) does not stop the others: its error is raised last."""
    done: list[Repair] = []
    failed: PenstockError | OSError | None = None
    for folder in [f for f in archive.folders() if recording in (None, int(f.path.name))]:
        try:
            lock = folder.lock()
        except (Busy, FileNotFoundError):
            continue  # it is being written, and its recorder is responsible for it; or it was purged in the meantime
        try:
            done += repair_folder(archive, folder)
        except (PenstockError, OSError) as error:
            failed = failed or error
        finally:
            folder.unlock(lock)
    if recording is None:
        done += [Repair(path, "removed: its recorder or its purge died half way") for path in archive.sweep()]
        for path in archive.stray_entries():
            try:
                done.append(_move_aside(archive, path, "it is not a recording"))
            except FileNotFoundError:
                continue  # its owner took it away in the meantime
            except (PenstockError, OSError) as error:
                failed = failed or error
    done += catalog_repair.rebuild_catalog(archive, recording)
    if failed is not None:
        raise failed
    return done


def _move_aside(archive: ArchiveFolder, path: Path, why: str) -> Repair:
    kept = archive.aside(path)
    os.rename(path, kept)
    return Repair(kept, f"moved here whole: {why}")


def repair_folder(archive: ArchiveFolder, folder: RecordingFolder) -> list[Repair]:
    """Repairs one recording: its damage becomes gaps. Needs its lock."""
    try:
        about = folder.describe()
    except Misplaced as error:
        return _repair_misplaced(archive, folder, archive.folder(error.id))
    except (Corrupt, NotFound) as error:
        return [_move_aside(archive, folder.path, str(error))]
    done = _repair_description(folder)
    folder.sweep()
    done += [Repair(path, what) for path, what in restore.bring_back(folder, about.start_position)]
    done += [_set_aside(folder, path, "it is not a segment's index") for path in folder.odd_indexes()]
    try:
        truncations.read(folder.path)
    except Corrupt:
        truncations.renew(folder.path)
        done.append(Repair(folder.path / truncations.NAME, "written again"))
    for name, read in ((batches.NAME, batches.read), (last_values.NAME, last_values.read)):
        try:
            read(folder.path)
        except Corrupt as error:
            done.append(_set_aside(folder, folder.path / name, str(error)))
    mended, end = _mend(folder, about)
    done += mended
    done += [_set_aside(folder, path, "a segment without an index") for path in folder.data_without_index()]
    if seal_last(folder):
        done.append(Repair(folder.segments()[-1].index, "sealed: its recorder did not seal it"))
    done += _repair_mark(folder, about, end)
    done += _repair_following(archive, folder, about, end)
    if segment_totals.find_error(folder, about.start_position):
        done.append(_set_aside(folder, folder.path / SEGMENT_TOTALS, "it is written again from the segments"))
    if mended or done:
        segment_totals.update(folder, about.start_position)
    return done


def _repair_misplaced(archive: ArchiveFolder, folder: RecordingFolder, right: RecordingFolder) -> list[Repair]:
    """Gives a folder the number of its recording. A folder of another recording with that number is moved first."""
    other, lock = _make_way(archive, right)
    try:
        if os.path.lexists(right.path):
            return [_move_aside(archive, folder.path, f"it describes recording {right.number}, which there is")]
        os.rename(folder.path, right.path)
        done = [Repair(right.path, f"renamed: it was {folder.path.name}"), *repair_folder(archive, right)]
        return done if other is None else [*done, *repair_folder(archive, other)]
    finally:
        RecordingFolder.unlock(lock)


def _make_way(archive: ArchiveFolder, folder: RecordingFolder) -> tuple[RecordingFolder | None, int]:
    """Moves a folder that holds another recording than its number to the next free number, and later to its own; returns its lock. A
    later repair continues if this process is killed."""
    try:
        folder.describe()
    except Misplaced:
        with contextlib.suppress(Busy, NotFound):
            lock = folder.lock()
            free = archive.folder(archive.last_number() + 1)
            os.rename(folder.path, free.path)
            return free, lock
    except (Corrupt, NotFound):
        pass
    return None, -1


def _repair_description(folder: RecordingFolder) -> list[Repair]:
    """Makes the description and its copy the same: one of them is sound."""
    found = {}
    for name in (DESCRIPTION, COPY):
        with contextlib.suppress(Corrupt, NotFound):
            folder.description_in(name)
            found[name] = (folder.path / name).read_bytes()
    sound = next(iter(found.values()))
    done = []
    for name in (DESCRIPTION, COPY):
        if found.get(name) == sound:
            continue
        if os.path.lexists(folder.path / name):
            _set_aside(folder, folder.path / name, "")
        write_atomically(folder.path / name, sound.decode(), private=True)
        done.append(Repair(folder.path / name, "written again"))
    return done


def _repair_following(archive: ArchiveFolder, folder: RecordingFolder, about: Description, end: int) -> list[Repair]:
    """Writes a damaged note about the recording that follows again: by the recording that begins where this one ends."""
    try:
        folder.following()
        return []
    except Corrupt:
        done = _set_aside(folder, folder.path / FOLLOWING, "a checksum is wrong")
    for other in archive.folders():
        with contextlib.suppress(PenstockError, OSError):
            that = other.describe()
            if (that.channel, that.epoch, that.start_position) == (
                about.channel,
                about.epoch,
                end,
            ) and that.id > about.id:
                folder.note_following(that.id)
                return [Repair(folder.path / FOLLOWING, "written again")]
    return [done]


def _mend(folder: RecordingFolder, about: Description) -> tuple[list[Repair], int]:
    """Records damaged and missing positions as gaps: the data and all segments of this recording stay where they are. An index
    is replaced at once, so that a kill leaves the old one or the new one. Returns the changes, and where the recording ends."""
    done: list[Repair] = []
    kept: list[SegmentRepair] = []
    end, segments = about.start_position, folder.segments()
    without_index = [one for one in folder.lone_segments() if folder.data_length(one) > 0]

    def miss(reach: int) -> int:
        """Records that everything is missing up to a position, which it returns. Frames without an index stay where they are, as holes."""
        at = end
        while at < reach:
            lone = next((one for one in without_index if at <= one.base < reach), None)
            upto = lone.base if lone else reach
            if upto > at:
                if not kept:
                    first = folder.segment_paths(about.start_position)
                    kept.append(SegmentRepair(first, np.zeros(0, ENTRY), 0, False, []))
                kept[-1].miss(GAP, upto - at)
                kept[-1].why.append(f"{upto - at} bytes after position {at} are missing: they are a gap now")
                at = upto
            if lone:
                before = kept[-1].before + int(kept[-1].entries["begins"].sum()) if kept else 0
                why = "its index is missing: its frames are a hole until their index is restored"
                kept.append(SegmentRepair(lone, np.zeros(0, ENTRY), before, False, [why]))
                without_index.remove(lone)
                following = next((one.base for one in without_index if one.base > at), reach)
                at = min(at + folder.data_length(lone), following, reach)
                kept[-1].miss(HOLE, at - lone.base)
        return at

    for number, segment in enumerate(segments):
        entries, facts = folder.index(segment)
        if facts["other"] or segment.base < end:
            why = facts["problems"][0][3] if facts["problems"] else f"the recording has position {segment.base} already"
            done += [_set_aside(folder, path, why) for path in (segment.data, segment.index) if os.path.lexists(path)]
            continue
        if not segment.data.is_file():
            if os.path.lexists(segment.data):
                done.append(_set_aside(folder, segment.data, "it is not a file"))
            os.close(open_private(segment.data, os.O_RDWR))
        if segment.base > end:
            end = miss(segment.base)
        problems, bad = folder.verify_segment(segment)
        one = SegmentRepair(
            segment,
            as_holes(entries, bad),
            facts["messages_before"],
            bool(facts["sealed"]),
            [why for *_, why in problems],
        )
        size = segment.data.stat().st_size
        following = next((other.base for other in segments[number + 1 :] if other.base > segment.base), FOR_EVER)
        if facts["open"] and min(size, following - segment.base) > one.length:
            one.miss(HOLE, min(size, following - segment.base) - one.length)
        kept.append(one)
        gaps = one.entries[one.entries["kind"] == GAP]
        end = segment.base + one.length + int(gaps["time_min"].sum())
    with contextlib.suppress(Corrupt):
        mark = folder.mark()
        if mark is not None and mark.position > end:
            end = miss(mark.position)
    for number, one in enumerate(kept):
        done += _mend_one(folder, about, one, is_last=number == len(kept) - 1)
    return done, end


def _mend_one(folder: RecordingFolder, about: Description, one: SegmentRepair, *, is_last: bool) -> list[Repair]:
    done = []
    if one.why:
        segment_totals.truncate(folder.path, one.segment.base)
        segment_repair.write_index(folder, about, one)
        done += [Repair(one.segment.index, f"written again: {why}") for why in one.why]
    if one.segment.data.stat().st_size > one.length or (not one.why and not one.sealed and _has_torn_entry(one)):
        done += _cut(folder, one.segment, one.length, index_length(len(one.entries) + (one.sealed or bool(one.why))))
    if not one.why and not one.sealed and not is_last and seal(folder, one.segment):
        done.append(Repair(one.segment.index, "sealed again"))  # only its seal was lost: the next segment fits
    return done


def _has_torn_entry(one: SegmentRepair) -> bool:
    return bool(one.segment.index.stat().st_size != index_length(len(one.entries)))


def _repair_mark(folder: RecordingFolder, about: Description, end: int) -> list[Repair]:
    """Makes the recording's mark agree with its segments."""
    path, closed, appended = folder.path / "synced", bool(folder.segments()), batches.is_in(folder.path)
    try:
        mark = folder.mark()
    except Corrupt as error:
        why = str(error)
    else:
        if mark is None:
            if about.format < 2:
                return []
            why = "it was missing"
        elif mark.closed and not closed:
            why = "the recording is empty now"
        elif mark.appended and not appended:
            why = "the file batches is missing: a batch that its writer tries again is appended again"
        else:
            if (mark.position, mark.closed) != (end, closed):
                make_durable(folder)
                folder.write_mark(SyncMarker(end, closed=closed, appended=appended))
            return []
    if path.is_dir():
        os.rename(path, folder.aside() / free_name(folder.aside(), path.name))
    make_durable(folder)
    folder.write_mark(SyncMarker(end, closed=closed, appended=appended))
    return [Repair(path, f"written again: {why}")]


def make_durable(folder: RecordingFolder) -> None:
    """Syncs the last segment. Earlier segments were synced when they were sealed."""
    for segment in folder.segments()[-1:]:
        for file in (segment.data, segment.index):
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())


def _has_tail(segment: Segment, entries: int, about: dict[str, int]) -> bool:
    return segment.data.stat().st_size != about["data_length"] or segment.index.stat().st_size != index_length(entries)


def _cut(folder: RecordingFolder, segment: Segment, data_end: int, index_end: int) -> list[Repair]:
    """Cuts off a dead recorder's bytes after the last entry of a segment, and keeps them in another file."""
    done = []
    for path, end in ((segment.data, data_end), (segment.index, index_end)):
        if path.stat().st_size <= end:
            continue
        aside = folder.aside()
        with naming_path(path), open(path, "r+b") as file:
            file.seek(end)
            segment_repair.write_durably(aside / free_name(aside, f"{path.name}.from-{end}"), file.read())
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        done.append(Repair(path, f"cut at byte {end}: the end of a recorder that died"))
    fsync_folder(folder.path)
    return done


def _set_aside(folder: RecordingFolder, path: Path, why: str) -> Repair:
    aside = folder.aside()
    target = aside / free_name(aside, path.name)
    os.rename(path, target)
    fsync_folder(folder.path)
    return Repair(target, f"moved aside: {why}")


def close_crashed(folder: RecordingFolder) -> Coverage:
    """Prepares a recording to be extended: cuts off the unpublished end that a dead recorder left. `Corrupt` if more is wrong.

    Needs the recording's lock. Returns how much the recording holds now.
    """
    start = folder.describe().start_position
    folder.sweep()
    segments = folder.segments()
    if segments:
        last = segments[-1]
        problems, _ = folder.verify_segment(last)
        if problems:
            raise Corrupt(f"{problems[0][0]}: {problems[0][3]}. Run repair before extending this recording")
        entries, about = folder.index(last)
        if _has_tail(last, len(entries), about):
            _cut(folder, last, int(about["data_length"]), index_length(len(entries)))
    found = coverage_of(folder, start)
    if found.damage:
        raise Corrupt(f"{found.damage}. Run repair before extending this recording")
    folder.lower_mark(found.end_position)
    seal_last(folder)
    make_durable(folder)  # a sealed one may have been killed before it was synced
    return found


def seal_last(folder: RecordingFolder) -> bool:
    """Seals the last segment of a recording that no recorder writes and whose end is clean. False if it was sealed already."""
    segments = folder.segments()
    return bool(segments) and seal(folder, segments[-1])


def seal(folder: RecordingFolder, last: Segment) -> bool:
    """Seals a segment whose end is clean. False if it was sealed already."""
    entries, about = folder.index(last)
    if about["sealed"]:
        return False
    description = folder.describe()
    data = os.open(last.data, os.O_RDWR | os.O_CLOEXEC)
    try:
        index = os.open(last.index, os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        os.close(data)
        raise
    segment = _native.RecordingSegment(
        data_fd=data,
        data_path=str(last.data),
        index_fd=index,
        index_path=str(last.index),
        base=last.base,
        term_length=description.term_length,
        initial_term_id=description.initial_term_id,
        stream_id=description.stream_id,
        recording=description.id,
        messages_before=about["messages_before"] + int(entries["begins"].sum()),
        entries=len(entries),
        data_length=about["data_length"],
    )
    segment.seal()
    segment.sync()
    return True
