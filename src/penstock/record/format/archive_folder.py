"""An archive's folder: the places of its recordings, its catalog and its folder `damaged`. Knows names; reads no recording's bytes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from penstock._native import core as _native
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError, SystemFailure
from penstock.record.format import removed
from penstock.record.format.catalog import PATIENCE_SECONDS, Catalog, Row
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.numbers import is_number
from penstock.util.clock import SystemClock
from penstock.util.files.durable import (
    free_name,
    fresh_path,
    fsync_folder,
    is_shortage,
    make_folder,
    open_private,
    write_atomically,
)

log = logging.getLogger("penstock")

DIGITS = 8
STABLE_NS = 2_000_000_000  # a folder that changed later than this may change again without a new time
IDENTITY = "id"
COPY_OF = "copy"  # the file of an archive that `replicate` makes: it has no recordings of its own
PURGED = (
    ".purged."  # and the greatest number that was purged: a reader that still has it must not find another recording
)
ALONE_S = 1.0  # seconds that a recorder waits for another one that begins a recording
PURGED_IN_A_TICK = 8  # recordings that can be begun and purged within 10 ms: each takes a millisecond or two


class ArchiveFolder:
    """Names on disk. Everything it makes is its owner's alone, whatever the umask."""

    def __init__(self, path: Path, *, create: bool) -> None:
        given, path = path, path.absolute()  # the process may change its directory while a recorder writes
        self.path, self.recordings = path, path / "recordings"
        self._made: list[Path] = []  # the innermost first
        if create and not self.recordings.is_dir():
            self._made = [one for one in (self.recordings, path, *path.parents) if not one.exists()]
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                make_folder(path)
                make_folder(self.recordings)
            except OSError as error:
                raise SystemFailure(error.errno or 0, f"cannot make an archive at {path}: {error.strerror}") from error
        if not self.recordings.is_dir():
            raise NotFound(f"there is no archive at {given}")
        self.catalog = Catalog(path / "catalog.sqlite", self.rows)
        self._channels: dict[str, str] = {}
        self._changed_ns, self._known_of = -1, ""
        self._begun = -1, 0  # when `recordings` changed as this object began a recording, and its number
        self._purged = ""  # the greatest number of which this object has seen the mark

    @contextlib.contextmanager
    def removed_if_it_fails(self) -> Iterator[None]:
        """Around a job: if it fails, the folders that this object made are removed, unless a recording is in them, or a file of another kind."""
        try:
            yield
        except BaseException:
            self.remove_made()
            raise

    def remove_made(self) -> None:
        """Removes the folders that this object made, unless a recording is in them, or a file of another kind."""
        made, self._made = self._made, []
        if self.path not in made:
            return
        own = (f"{self.catalog.path.name}*", removed.NAME, IDENTITY, f"{PURGED}*")
        with contextlib.suppress(OSError):  # another program uses it
            for folder in made:
                if folder in (self.recordings, self.path):
                    for file in (file for pattern in own for file in folder.glob(pattern)):
                        file.unlink()
                os.rmdir(folder)

    @property
    def is_copy(self) -> bool:
        """Whether `replicate` made it."""
        return (self.path / COPY_OF).exists()

    def check_writable(self) -> None:
        """`SystemFailure` unless this user may make recordings here: a recorder would find out with the first message. `Invalid` for a copy,
        where the archive's next recordings will have the numbers."""
        if self.is_copy:
            raise Invalid(
                f"{self.path} is a copy that replicate made: record into another archive. If this one's source is gone, remove the "
                f"file {COPY_OF} in it first"
            )
        if os.access(self.recordings, os.W_OK | os.X_OK, effective_ids=True):
            return
        number, advice = errno.EACCES, "record into a folder of your own, or change its permissions"
        try:
            if os.statvfs(self.recordings).f_flag & os.ST_RDONLY:
                number, advice = errno.EROFS, "record into another folder, or mount it writable"
        except (FileNotFoundError, NotADirectoryError) as error:
            gone = f"{self.recordings} is gone: the archive was moved or removed. Open it where it is now"
            raise SystemFailure(error.errno, gone) from None
        except OSError:  # a folder above it cannot be searched
            pass
        raise SystemFailure(number, f"{self.recordings} cannot be written: {advice}")

    def identity(self) -> str:
        """A name that no other archive has: 32 hexadecimal digits, in the file `id`, which is created on first use."""
        path = self.path / IDENTITY
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return identified(path.read_bytes(), path)
            fresh = fresh_path(path)
            write_atomically(fresh, written(secrets.token_hex(16)), private=True)
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
            fsync_folder(self.path)
        raise NotFound(f"{path} cannot be made")

    def wrong_identity(self) -> str:
        """The damage of the file `id`; empty if the file is sound or missing."""
        path = self.path / IDENTITY
        try:
            raw = path.read_bytes()
            return "" if raw == written(identified(raw, path)).encode() else f"{path} is damaged, in one of two lines"
        except FileNotFoundError:
            return ""
        except Corrupt as error:
            return str(error)

    def mend_identity(self) -> bool:
        """Writes the file `id` again if one of its lines is damaged. Whether it did."""
        if not self.wrong_identity():
            return False
        try:
            name = self.identity()
        except Corrupt:
            return False
        write_atomically(self.path / IDENTITY, written(name), private=True)
        return True

    def removed_signature(self) -> tuple[int, int, int]:
        """Changes whenever the list of removed positions changes."""
        return removed.signature(self.path)

    def folder(self, number: int) -> RecordingFolder:
        """A recording's folder; it need not exist."""
        return RecordingFolder(self.recordings / f"{number:0{DIGITS}d}")

    def folders(self) -> list[RecordingFolder]:
        """Every recording's folder, oldest first."""
        return [RecordingFolder(self.recordings / name) for name in self._names()]

    def newest_first(self) -> Iterator[RecordingFolder]:
        """The same from the newest on, for those that do not need all."""
        return (RecordingFolder(self.recordings / name) for name in reversed(self._names()))

    def _names(self) -> list[str]:
        with os.scandir(self.recordings) as entries:
            return sorted(e.name for e in entries if is_number(e.name, DIGITS) and e.is_dir(follow_symlinks=False))

    def of_channel(self, channel: str) -> list[RecordingFolder]:
        """The folders of a channel's recordings, oldest first. Each description is read once: it never changes, unless the archive is made anew.
        One that cannot be read now is no channel's."""
        if (identity := self.identity()) != self._known_of:
            self._channels, self._changed_ns, self._known_of = {}, -1, identity
        changed, known = os.stat(self.recordings).st_mtime_ns, self._channels
        if changed != self._changed_ns or SystemClock().now_ns() - changed < STABLE_NS:
            found: dict[str, str] = {}
            for name in self._names():
                with contextlib.suppress(PenstockError, OSError):
                    found[name] = known.get(name) or RecordingFolder(self.recordings / name).describe().channel
            self._channels, self._changed_ns = found, changed
            known = found
        return [RecordingFolder(self.recordings / name) for name, of in known.items() if of == channel]

    def stray_entries(self) -> list[Path]:
        """Stray entries: names that are not numbers, or files."""
        with os.scandir(self.recordings) as entries:
            return sorted(
                self.recordings / e.name
                for e in entries
                if not e.name.startswith(".") and not (is_number(e.name, DIGITS) and e.is_dir(follow_symlinks=False))
            )

    def begin(self, description: Description) -> tuple[RecordingFolder, Description, int]:
        """Begins a recording under the next free number: its folder, its description, its lock."""
        with (
            self._alone() as alone
        ):  # another would begin one and purge it between the look for the last number and this recording's creation
            number = self._last_given() if alone else self.last_number()
            while True:
                number += 1
                numbered = replace(description, id=number)
                try:
                    folder, lock = RecordingFolder.create(self.folder(number).path, numbered)
                except FileExistsError:
                    continue  # another recorder took it
                self._begun = (os.stat(self.recordings).st_mtime_ns, number) if alone else (-1, 0)
                return folder, numbered, lock

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Within it nobody else begins a recording here. False where that is not to be had: another was stopped within it, or there are no locks."""
        fd = os.open(self.recordings, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        locked, end = False, time.monotonic() + ALONE_S
        try:
            while not locked:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
                except BlockingIOError:
                    if time.monotonic() > end:
                        break
                    time.sleep(0.001)
                except OSError:
                    break
            yield locked
        finally:
            if locked:
                fcntl.flock(fd, fcntl.LOCK_UN)  # also where a forked child has the descriptor
            os.close(fd)

    def _last_given(self) -> int:
        """The same as `last_number`. All recordings are listed only if somebody else may have begun or purged one since this object's last:
        so a recorder of many channels costs no more for each."""
        changed, number = self._begun
        # Changes within a tick of the clock may leave the folder's time as it was. A recording that is there keeps its number anyway. Of those
        # that were begun and purged since, the last one's mark is there, and a tick is too short for as many as are looked for.
        if os.stat(self.recordings).st_mtime_ns == changed and not any(
            self._purged_mark(number + ahead).exists() for ahead in range(1, PURGED_IN_A_TICK + 1)
        ):
            return number
        return self.last_number()

    def _purged_mark(self, number: int) -> Path:
        return self.recordings / f"{PURGED}{number:0{DIGITS}d}"

    def last_number(self) -> int:
        """The highest number that a recording has or had: no number is given twice."""
        names = [name.removeprefix(PURGED) for name in os.listdir(self.recordings)] + self._set_aside()
        return max((int(name) for name in names if is_number(name, DIGITS)), default=0)

    def no_such(self, recording: object) -> str:
        """The text of the error for a recording that is not there."""
        known = ", ".join(str(int(f.path.name)) for f in self.folders()) or "none"
        return f"{self.path} has no recording {recording}; it has {known}"

    def purge(self, folder: RecordingFolder, tell: Callable[[str], None]) -> None:
        """Deletes a recording whose lock the caller holds. It disappears for all readers at once; then its bytes are deleted.

        tell: notes the removed positions.
        """
        going = fresh_path(folder.path.with_name(f"{folder.path.name}.purged"))
        name = folder.path.name
        noted = self._try_note(self._note_purged, name)
        announced = self._try_note(tell, name)
        os.rename(folder.path, going)
        forgotten = self._try_note(self._forget_row, name)
        shutil.rmtree(going)  # makes room, if the disk was full
        if not noted:
            self._try_note(self._note_purged, name, warn=True)
        if not announced:
            self._try_note(tell, name, warn=True)
        if not forgotten:
            self._try_note(self._forget_row, name, warn=True)

    def sweep(self) -> list[Path]:
        """Removes the folders of recorders and purges that died before they ended, and returns them. The catalog's row is removed before the folder."""
        return RecordingFolder.sweep_unborn(self.recordings, self._forget_purged)

    def _forget_purged(self, left: Path) -> bool:
        _, number, *what = left.name.split(".")
        return what[0] != "purged" or self._try_note(self._forget_row, number, warn=True)

    def _try_note(self, note: Callable[[str], None], name: str, *, warn: bool = False) -> bool:
        try:
            note(name)
        except (PenstockError, OSError) as error:
            if warn:
                log.warning("%s. Recording %s is purged nevertheless; repair rewrites the catalog", error, name)
            return False
        return True

    def _note_purged(self, name: str) -> None:
        """Marks the greatest number that was purged. Only the first call lists the folder: a mark that another process left is removed by
        the first call of the next one."""
        if self._purged >= name:
            return  # a greater number has a mark, and keeps one
        os.close(open_private(self._purged_mark(int(name)), os.O_WRONLY))
        known, self._purged = self._purged, name
        for older in [self.recordings / f"{PURGED}{known}"] if known else list(self.recordings.glob(f"{PURGED}*")):
            if older.name < f"{PURGED}{name}":
                older.unlink(missing_ok=True)

    def _forget_row(self, name: str) -> None:
        self.catalog.note({int(name): None}, wait=PATIENCE_SECONDS)

    def explains(self, number: int) -> bool:
        """Whether a missing recording is not damage: it exists by now, or it is being purged."""
        folder = self.folder(number).path
        return folder.is_dir() or any(self.recordings.glob(f".{folder.name}.purged.*"))

    def aside(self, path: Path) -> Path:
        """A free name for something in the archive's folder `damaged`."""
        folder = make_folder(self.path / "damaged")
        return folder / free_name(folder, path.name)

    def _set_aside(self) -> list[str]:
        try:
            return [name.partition(".")[0] for name in os.listdir(self.path / "damaged")]
        except FileNotFoundError:
            return []

    def rows(self) -> dict[int, Row]:
        """The rows that the catalog should have, from the recordings' folders. Folders that cannot be read are left out."""
        found = {}
        for folder in self.folders():
            try:
                found[int(folder.path.name)] = row_of(folder)
            except (PenstockError, OSError) as error:
                if is_shortage(error):
                    raise
        return found


def identified(raw: bytes, path: object) -> str:
    """The name in the file `id`. `Corrupt` if it is damaged. path: for the error."""
    for line in raw.splitlines(keepends=True):
        if line == _line(line[:32]):
            return line[:32].decode()
    raise Corrupt(
        f"{path} is damaged, in both lines. Remove it, where the archive is: another name is made, and queries begin again with new checkpoints"
    )


def _line(name: bytes) -> bytes:
    return name + b" %08x\n" % _native.crc32c(name)


def written(name: str) -> str:
    """The file `id`: a name and its checksum, twice, so that damage to one line costs nothing."""
    return (2 * _line(name.encode())).decode()


def row_of(folder: RecordingFolder) -> Row:
    """The row that the catalog should have for one recording."""
    about, mark = folder.describe(), folder.mark()
    synced = about.start_position if mark is None else mark.position
    return Row(about.channel, about.epoch, about.created_ns, about.start_position, synced)
