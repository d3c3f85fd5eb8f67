"""An archive's folder: the places of its recordings, its catalog and its folder `damaged`. Knows names; reads no recording's bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock._native import core as _native
from penstock.durable import free_name, fsync_folder, is_shortage, make_folder, open_private, write_atomically
from penstock.errors import Corrupt, NotFound, PenstockError, SystemFailure
from penstock.record import removed
from penstock.record.catalog import PATIENCE_SECONDS, Catalog, Row
from penstock.record.folder import Description, RecordingFolder, is_number

log = logging.getLogger("penstock")

DIGITS = 8
IDENTITY = "id"
PURGED = (
    ".purged."  # and the greatest number that was purged: a reader that still has it must not find another recording
)


class ArchiveFolder:
    """Names on disk. Everything it makes is its owner's alone, whatever the umask."""

    def __init__(self, path: Path, *, create: bool) -> None:
        given, path = path, path.absolute()  # the process may change its directory while a recorder writes
        self.path, self.recordings = path, path / "recordings"
        if create and not self.recordings.is_dir():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                make_folder(path)
                make_folder(self.recordings)
            except OSError as error:
                raise SystemFailure(error.errno or 0, f"cannot make an archive at {path}: {error.strerror}") from error
        if not self.recordings.is_dir():
            raise NotFound(f"there is no archive at {given}")
        self.catalog = Catalog(path / "catalog.sqlite", self.rows)

    def identity(self) -> str:
        """A name that no other archive has: 32 hexadecimal digits, in the file `id`, which is made when it is first asked for."""
        path = self.path / IDENTITY
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return identified(path.read_bytes(), path)
            fresh = self.path / f".id.{os.getpid()}.{secrets.token_hex(4)}.new"
            write_atomically(fresh, _identified(secrets.token_hex(16).encode()).decode(), private=True)
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
            fsync_folder(self.path)
        raise NotFound(f"{path} cannot be made")

    def removed_signature(self) -> tuple[int, int, int]:
        """Changes whenever the list of what was taken away does."""
        return removed.signature(self.path)

    def folder(self, number: int) -> RecordingFolder:
        """A recording's folder; it need not exist."""
        return RecordingFolder(self.recordings / f"{number:0{DIGITS}d}")

    def folders(self) -> list[RecordingFolder]:
        """Every recording's folder, oldest first."""
        with os.scandir(self.recordings) as entries:
            names = sorted(e.name for e in entries if is_number(e.name, DIGITS) and e.is_dir(follow_symlinks=False))
        return [RecordingFolder(self.recordings / name) for name in names]

    def strangers(self) -> list[Path]:
        """Entries beside the recordings that are no recording: their name is no number, or they are no folder."""
        with os.scandir(self.recordings) as entries:
            return sorted(
                self.recordings / e.name
                for e in entries
                if not e.name.startswith(".") and not (is_number(e.name, DIGITS) and e.is_dir(follow_symlinks=False))
            )

    def begin(self, description: Description) -> tuple[RecordingFolder, Description, int]:
        """Begins a recording under the next free number: its folder, its description, its lock."""
        names = [name.removeprefix(PURGED) for name in os.listdir(self.recordings)] + self._set_aside()
        number = max((int(name) for name in names if is_number(name, DIGITS)), default=0)  # no number is given twice
        while True:
            number += 1
            numbered = replace(description, id=number)
            try:
                folder, lock = RecordingFolder.create(self.folder(number).path, numbered)
            except FileExistsError:
                continue  # another recorder took it
            return folder, numbered, lock

    def no_such(self, recording: object) -> str:
        """The text of the error for a recording that is not there."""
        known = ", ".join(str(int(f.path.name)) for f in self.folders()) or "none"
        return f"{self.path} has no recording {recording}; it has {known}"

    def purge(self, folder: RecordingFolder, tell: Callable[[str], None]) -> None:
        """Deletes a recording whose lock the caller holds. It disappears at once for every reader; then its bytes are deleted.

        tell: notes what goes.
        """
        going = folder.path.with_name(f".{folder.path.name}.purged.{os.getpid()}.new")
        name = folder.path.name
        noted = self._tried(self._note_purged, name)
        told = self._tried(tell, name)
        os.rename(folder.path, going)
        forgotten = self._tried(self._forget_row, name)
        shutil.rmtree(going)  # makes room, if the disk was full
        if not noted:
            self._tried(self._note_purged, name, warn=True)
        if not told:
            self._tried(tell, name, warn=True)
        if not forgotten:
            self._tried(self._forget_row, name, warn=True)

    def sweep(self) -> list[Path]:
        """Removes folders of recorders and purges that died half way, and returns them. The catalog's row goes before the folder."""
        return RecordingFolder.sweep_unborn(self.recordings, self._is_forgotten)

    def _is_forgotten(self, left: Path) -> bool:
        _, number, *what = left.name.split(".")
        return what[0] != "purged" or self._tried(self._forget_row, number, warn=True)

    def _tried(self, note: Callable[[str], None], name: str, *, warn: bool = False) -> bool:
        try:
            note(name)
        except (PenstockError, OSError) as error:
            if warn:
                log.warning("%s. Recording %s is purged all the same; repair writes the catalog again", error, name)
            return False
        return True

    def _note_purged(self, name: str) -> None:
        os.close(open_private(self.recordings / f"{PURGED}{name}", os.O_WRONLY))
        for older in self.recordings.glob(f"{PURGED}*"):
            if older.name < f"{PURGED}{name}":
                older.unlink(missing_ok=True)

    def _forget_row(self, name: str) -> None:
        self.catalog.note({int(name): None}, wait=PATIENCE_SECONDS)

    def explains(self, number: int) -> bool:
        """Whether a missing recording is no damage: it exists by now, or it is being purged."""
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
    if raw != _identified(raw[:32]):
        raise Corrupt(f"{path} is damaged. Remove it: it is made again, and queries begin with new checkpoints")
    return raw[:32].decode()


def _identified(name: bytes) -> bytes:
    """The file `id`: a name and its checksum."""
    return name + b" %08x\n" % _native.crc32c(name)


def row_of(folder: RecordingFolder) -> Row:
    """The row that the catalog should have for one recording."""
    about, mark = folder.describe(), folder.mark()
    synced = about.start_position if mark is None else mark.position
    return Row(about.channel, about.epoch, about.created_ns, about.start_position, synced)
