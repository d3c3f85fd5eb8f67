"""Before a purge: notes which messages it removes, and checks whether a consumer has yet to read them. Knows recordings and consumers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path

from penstock.errors import Busy, Corrupt, PenstockError
from penstock.record.format import intervals, removed, segment_totals, truncations
from penstock.record.format.archive_folder import IDENTITY, ArchiveFolder
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.intervals import Interval
from penstock.record.keep import consumers
from penstock.record.read.planning.lister import generations, position_epoch
from penstock.record.read.planning.needed_segments import first_needed, paths
from penstock.record.read.scan import FOR_EVER, Scanner

log = logging.getLogger("penstock")

NEAR_END = 4 << 20  # bytes that are searched for an incomplete message
FRAME_STEP = 32


def _epoch(folder: RecordingFolder, about: Description) -> int:
    try:
        noted = truncations.read(folder.path)
    except Corrupt:
        noted = []
    return generations(about.channel, position_epoch(about), about.codec, noted)[-1][0]


def parts_of(folder: RecordingFolder, start: int = 0) -> list[Interval]:
    """The positions from `start` on that a recording has, without messages at its end that are not complete."""
    about = folder.describe()
    found = coverage_of(folder, about.start_position, layout=True)
    parts = intervals.common(found.layout.intervals() if found.layout else [], [(start, FOR_EVER)])
    if found.damage or not parts:
        return parts
    end, segments = intervals.end_of(parts), folder.segments()
    at, holes = max(parts[-1][0], end - NEAR_END), []
    while at < end:
        scanner = Scanner(paths(segments[first_needed(segments, at) :]), about.channel, ["position"], start=at, end=end)
        try:
            scanner.skip()
        except PenstockError:  # damaged bytes, which still exist
            break
        at = scanner.resume + FRAME_STEP
        if scanner.resume < end:
            holes.append((scanner.resume, at))
    return intervals.without(parts, intervals.union(holes))


def is_amid_a_message(folder: RecordingFolder) -> bool:
    """Whether a recording ends in the middle of a message."""
    about = folder.describe()
    found = coverage_of(folder, about.start_position, layout=True)
    parts = found.layout.intervals() if found.layout else []
    if found.damage or not parts:
        return False
    end, segments = parts[-1][1], folder.segments()
    at = max(parts[-1][0], end - NEAR_END)
    scanner = Scanner(paths(segments[first_needed(segments, at) :]), about.channel, ["position"], start=at, end=end)
    scanner.skip()
    return scanner.resume < end


def note_cut(folder: RecordingFolder, position: int) -> None:
    """Notes durably that a recording is cut back, before it is, and shortens the totals of its segments. See `truncations.note`."""
    try:
        about, parts = folder.describe(), parts_of(folder, position)
        epoch = _epoch(folder, about)
    except PenstockError as error:
        log.warning("it is not known which positions are removed with the end of %s: %s", folder.path, error)
    else:
        removed.note(folder.path.parent.parent, about.channel, epoch, parts)
    truncations.note(folder.path, position)
    segment_totals.truncate(folder.path, position)


def removal_noter(folder: RecordingFolder) -> Callable[[str], None]:
    """Reads the recording's positions now. The returned function notes durably that they are removed."""
    try:
        about, parts = folder.describe(), parts_of(folder)
        epoch = _epoch(folder, about)
    except (PenstockError, OSError) as error:
        log.warning("it is not known which positions are removed with %s: %s", folder.path, error)
        return lambda name: None
    return lambda name: removed.note(folder.path.parent.parent, about.channel, epoch, parts)


def check_read(archive: Path, folder: RecordingFolder, start: int = 0) -> None:
    """`Busy` if a consumer has yet to read messages of a recording from `start` on."""
    waiting = consumers.read_known(archive)
    if not waiting:
        return
    about, parts = folder.describe(), parts_of(folder, start)
    epoch = _epoch(folder, about)
    for one in waiting:
        left = intervals.without(parts, one.done.get((about.channel, epoch), []))
        if left and one.wants(about.channel):
            raise Busy(
                f"the consumer {one.name} has yet to read recording {int(folder.path.name)} of {about.channel} from position "
                f"{left[0][0]} on. Let it read them, or give force=True (--force); if it no longer exists: penstock consumers ARCHIVE --forget {one.name}"
            )


def wrong(archive: ArchiveFolder) -> list[tuple[Path, str]]:
    """The damage of the files beside the recordings: `id`, `removed` and the progress files of consumers."""
    found = []
    if wrong_identity := archive.wrong_identity():
        found.append((archive.path / IDENTITY, wrong_identity))
    looks: list[tuple[Path, Callable[[], object]]] = [
        (archive.path / removed.NAME, lambda: removed.read(archive.path)),
        *((path, functools.partial(consumers.read_one, path)) for path in consumers.paths(archive.path)),
    ]
    for path, look in looks:
        try:
            look()
        except Corrupt as error:
            found.append((path, str(error)))
    return found


def mend(archive: ArchiveFolder) -> list[Path]:
    """Writes the files `id` and `removed` again if they are damaged. Returns the files that it wrote."""
    mended = [archive.path / IDENTITY] if archive.mend_identity() else []
    try:
        removed.read(archive.path)
    except Corrupt:
        removed.renew(archive.path)
        mended.append(archive.path / removed.NAME)
    return mended
