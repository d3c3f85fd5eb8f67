"""The tables of a folder: *messages*, *losses*, and one for each stream, whose channel is its property."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.columns.parts import table_name
from penstock.errors import Busy, Invalid, PenstockError, SystemFailure
from penstock.record.format.intervals import Interval
from penstock.tables.delta.places import LOG, Place, has_log
from penstock.tables.delta.table import Table
from penstock.tables.delta.transactions import OWNER, STATE
from penstock.tables.folder.state import Key, Known, Row, Stored, sql_text
from penstock.tables.schemas import LOSSES, MESSAGES

STREAMS = "streams"
LOCK = ".lock"
log = logging.getLogger("penstock")
PRIVATE = ".penstock"  # a folder beside the tables
ERASED = "erased.json"
PIPELINE = "pipeline.json"
Have = dict[Key, list[Interval]]


@contextlib.contextmanager
def locked(out: str | os.PathLike[str] | Place) -> Iterator[None]:
    """One pipeline at a time per folder. The kernel releases the lock when the process ends. `Invalid` for a folder of something else.

    An object storage has no locks. There, each commit fails with `Busy` if another pipeline's came between.
    """
    place = Place.of(out)
    try:
        place.make()
        there = [str(info.base_name) for info in place.list()]
        others = [name for name in there if not name.startswith(".")]
        if others and LOCK not in there and not _has_tables(place):
            raise Invalid(f"{place} holds other files ({', '.join(others[:3])}): name an empty folder for the tables")
        if (place / "raw" / LOG).list():
            raise Invalid(
                f"{place} holds tables of an older layout: name another folder, as penstock pipeline ARCHIVE --out {place}-new, and remove "
                "this one when the new tables are there"
            )
        if not place.is_local:
            place.write(LOCK, b"the tables of penstock pipeline\n")
            yield
            return
        fd = os.open(place.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:  # a SystemFailure too: what file systems say is longer than what happened
        why = os.strerror(error.errno) if error.errno else error.strerror
        raise SystemFailure(error.errno or 0, f"{out} cannot hold tables: {why}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"another pipeline is writing to {place}") from error
        yield
    finally:
        os.close(fd)


def _has_tables(place: Place) -> bool:
    """Whether tables of a pipeline are there: a copy of the folder may lack its hidden files."""
    inside = [f"{STREAMS}/{info.base_name}" for info in (place / STREAMS).list()]
    return any((place / name / STATE).list() for name in ("messages", "losses", *inside))


class Folder:
    """The tables of a folder, for the one process that writes them. damaged: gets a line for each stream whose table cannot be read: it
    is left out, and all others are brought up to date."""

    def __init__(self, place: Place, damaged: list[str]) -> None:
        self.place, self.damaged = place, damaged
        self.known, self._owner = Known(place), _identify(place)
        self.messages = self._stored("messages", MESSAGES)
        self.losses = self._stored("losses", LOSSES)
        for built_in in (self.messages, self.losses):
            if built_in.is_foreign:
                raise Invalid(self._refusal(built_in))
        self.streams: dict[str, Stored] = {}
        self.left_out: set[str] = set()
        self._refused: set[str] = set()  # streams of which there is a table that is not the pipeline's
        self.failed: set[str] = set()  # streams whose commit failed: what their tables have is not known
        self._taken: set[str] = set()
        opened: dict[str, Stored] = {}
        for info in (place / STREAMS).list():
            name = str(info.base_name)
            self._taken.add(name)
            if not info.is_file and (one := self._open(name)) is not None:
                opened[name] = one
        chosen = tables_of((name, one.name or "") for name, one in opened.items() if not one.is_foreign)
        self.streams = {channel: opened.pop(name) for channel, name in chosen.items()}
        for name, one in opened.items():
            if one.is_foreign and one.name not in self.streams:
                self._leave_out(name, Invalid(self._refusal(one)))
                self._refused.add(one.name or "")
            else:
                log.warning("%s is a copy of the table of %s: it is left as it is", one.place, one.name)
        self.erased, self.to_forget = read_erased(place)
        if self.messages.table is None:
            self.messages.state.erased = len(self.erased)

    def _open(self, name: str) -> Stored | None:
        """The table of a stream in a folder, if there is one."""
        try:
            one = self._stored(f"{STREAMS}/{name}")
        except PenstockError as error:
            self._leave_out(name, error)
            return None
        return one if one.name is not None and ":" in one.name else None

    def _stored(self, folder: str, schema: pa.Schema | None = None, channel: str | None = None) -> Stored:
        return Stored(self.place, folder, self.known, self._owner, schema, channel)

    def _refusal(self, stored: Stored) -> str:
        return (
            f"{stored.place} is a table that the pipeline of this folder did not make, and it is left as it is: move it out of {self.place} and "
            f"run again, which builds the table of {stored.name or stored.folder} from the archive"
        )

    def take_changed(self) -> list[Stored]:
        """The tables that got commits since the last call."""
        found = [one for one in self.all() if one.is_changed]
        for one in found:
            one.is_changed = False
        return found

    def _leave_out(self, name: str, error: PenstockError) -> None:
        self.damaged.append(f"the table {STREAMS}/{name}: {error}")
        self.left_out.add(name)

    def is_left_out(self, channel: str) -> bool:
        """Whether a stream's table cannot be written now."""
        lost = channel in self.failed or channel in self._refused or table_name(channel) in self.left_out
        return lost and channel not in self.streams

    def fail(self, stored: Stored, error: PenstockError) -> None:
        """A change of a stream's table failed: nothing is added to it until the folder is opened again."""
        assert stored.name is not None
        self.damaged.append(f"the table of {stored.name}: {error}")
        self.failed.add(stored.name)
        del self.streams[stored.name]

    @contextlib.contextmanager
    def apart(self, stored: Stored) -> Iterator[None]:
        """Within it, an error of a stream's table costs that table alone."""
        try:
            yield
        except PenstockError as error:
            if not self.has(stored) or self.is_of_all(stored):
                raise
            self.fail(stored, error)

    def is_of_all(self, stored: Stored) -> bool:
        """Whether a table has rows of all streams: *messages* and *losses*."""
        return stored in (self.messages, self.losses)

    def has(self, stored: Stored) -> bool:
        """Whether a table has not failed."""
        return self.is_of_all(stored) or self.streams.get(stored.name or "") is stored

    def stream(self, channel: str) -> Stored:
        """A stream's table, by its property; a new one has the first free folder of its name."""
        if channel not in self.streams:
            name, number = table_name(channel), 1
            while self._is_taken(name):
                number += 1
                name = f"{table_name(channel)}_{number}"
            self._taken.add(name)
            self.streams[channel] = self._stored(f"{STREAMS}/{name}", channel=channel)
            self.streams[channel].state.erased = len(self.erased)
        return self.streams[channel]

    def _is_taken(self, name: str) -> bool:
        """Whether a table, or somebody's files, have a folder. A first run that was killed leaves one without a commit."""
        if name not in self._taken:
            return False
        inside = self.place / STREAMS / name
        there = {str(info.base_name) for info in inside.list()}
        return name in self.left_out or bool(there - {STATE, LOG}) or has_log(inside)

    def all(self) -> list[Stored]:
        """All tables of messages and losses."""
        return [self.messages, self.losses, *self.streams.values()]

    def have(self) -> dict[str, Have]:
        """The positions that *messages*, and the streams' tables together, hold. To a table that is left out nothing can be added: it
        lacks nothing that *messages* has."""
        held = self.held()
        messages = held["messages"]
        for key, parts in messages.items():
            if self.is_left_out(key[0]):
                held["stream"][key] = parts
        return held

    def held(self) -> dict[str, Have]:
        """The same where a table that is left out holds nothing."""
        held: Have = {}
        for one in self.streams.values():
            held |= one.state.intervals()
        return {"messages": self.messages.state.intervals(), "stream": held}

    def save(self) -> None:
        """Remembers the tables as they are, for the next run."""
        self.known.save(one.folder for one in self.all())

    # ---- files of a batch ----

    def begin_batch(self, folders: Sequence[str]) -> str:
        """A token that the names of a batch's files have. Until `end_batch` these folders may have files of no table."""
        token = secrets.token_hex(6)
        begin_batch(self.place, token, folders)
        return token

    def end_batch(self, token: str) -> None:
        """All tables have the batch's files."""
        end_batch(self.place, token)

    def clean(self) -> int:
        """Deletes files of batches that were not committed: of this run, if it failed, and of runs that were killed. How many."""
        count = 0
        private = self.place / PRIVATE
        for info in private.list():
            name = str(info.base_name)
            if not name.startswith("batch-"):
                continue
            try:
                about: Row = json.loads(private.read(name))
            except (OSError, ValueError):
                private.delete(name)
                continue
            for folder in about["folders"]:
                count += self._clean(self.place / folder, about["token"])
            private.delete(name)
        return count

    def _clean(self, place: Place, token: str) -> int:
        left = [str(info.base_name) for info in place.list() if f"-{token}-" in str(info.base_name)]
        committed = _named_in_log(place, token) if left else set()
        return sum(place.delete(name) for name in left if name not in committed)

    # ---- what was erased ----

    def forget(self, folders: Iterable[str]) -> None:
        """Notes whose earlier versions are still to be deleted: a run after a kill continues it."""
        self.to_forget = sorted(folders)
        self._write_erased()

    def _write_erased(self) -> None:
        about = {"spans": self.erased, "forget": self.to_forget}
        (self.place / PRIVATE).replace(ERASED, json.dumps(about).encode())

    def erased_since(self, stored: Stored, followed: int) -> list[str]:
        """SQL of a table's rows that were erased, without the first `followed` erasures."""
        texts = [
            [
                f"{name} {'=' if sign == '==' else sign} {sql_text(value) if isinstance(value, str) else value}"
                for name, sign, value in row
            ]
            for row in self.erased_rows(stored, followed)
        ]
        return [" AND ".join(text) for text in texts]

    def erased_rows(self, stored: Stored, followed: int = 0) -> list[list[tuple[str, str, Any]]]:
        """A table's rows that were erased, without the first `followed` erasures, as PyArrow's filters: each a list of conditions."""
        found = []
        for row in self.erased[followed:]:
            one, stream = [("timestamp_ns", ">=", row["since"]), ("timestamp_ns", "<=", row["until"])], row["stream"]
            if stored is self.messages and stream is not None:
                found.append([*one, ("stream", "==", stream)])
            elif stored is self.messages or stream in (None, stored.name):
                found.append(one)
        return found

    def note_erased(self, stream: str | None, since: int, until: int) -> None:
        """A span that no run brings back. stream: None for all."""
        self.erased.append({"stream": stream, "since": since, "until": until, "noted_ns": time.time_ns()})
        self._write_erased()


def tables_of(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Channel → the folder of its table, of tables as (folder, channel): the one with the stream's usual name, or the first. Others are
    copies."""
    found: dict[str, str] = {}
    for folder, channel in sorted(named):
        if channel not in found or folder == table_name(channel):
            found[channel] = folder
    return found


def owner_of(place: Place) -> str | None:
    """The pipeline that made the tables of a folder: by its file, and where a copy of the folder lacks that, by the tables. None if there
    are none."""
    return _noted_owner(place) or _owner_of_tables(place)


def _noted_owner(place: Place) -> str | None:
    try:
        return str(json.loads((place / PRIVATE).read(PIPELINE))["id"])
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # or it is damaged


def _owner_of_tables(place: Place) -> str | None:
    inside = [f"{STREAMS}/{info.base_name}" for info in (place / STREAMS).list()]
    for name in ("messages", "losses", *inside):
        with contextlib.suppress(PenstockError):
            table = Table.open(place / name)
            if table is not None and (owner := table.state().get(OWNER)):
                return str(owner)
    return None


def _identify(place: Place) -> str:
    """The pipeline of a folder; a new one gets a name that no other has."""
    noted = _noted_owner(place)
    if noted is None:
        noted = _owner_of_tables(place) or secrets.token_hex(16)
        (place / PRIVATE).replace(PIPELINE, json.dumps({"id": noted}).encode())
    return noted


def read_erased(place: Place) -> tuple[list[Row], list[str]]:
    """What was erased of a folder's tables: (spans, tables whose earlier versions are still to be deleted)."""
    try:
        found: Row = json.loads((place / PRIVATE).read(ERASED))
    except FileNotFoundError:
        return [], []
    return found["spans"], found["forget"]


def erased_spans(erased: Iterable[Row], stream: str) -> list[tuple[int, int]]:
    """The send times of a stream among what was erased, both ends inclusive."""
    return [(row["since"], row["until"]) for row in erased if row["stream"] in (None, stream)]


def begin_batch(place: Place, token: str, folders: Iterable[str]) -> None:
    """Notes that these folders may have files of no table, whose names have the token. Until `end_batch`; see `Folder.clean`."""
    about = {"token": token, "folders": sorted(set(folders)), "began": time.time()}
    (place / PRIVATE).write(f"batch-{token}.json", json.dumps(about).encode())


def end_batch(place: Place, token: str) -> None:
    """The files are a table's, or were deleted."""
    (place / PRIVATE).delete(f"batch-{token}.json")


def _named_in_log(place: Place, token: str) -> set[str]:
    """The files with a token in their names that a commit has added, even if a later one removed them."""
    found: set[str] = set()
    log = place / LOG
    for info in reversed(log.list()):
        name = str(info.base_name)
        if not name.endswith(".json"):
            continue
        text = log.read(name)
        if token.encode() in text:
            for line in text.splitlines():
                added: Any = json.loads(line).get("add")
                if added and token in added["path"]:
                    found.add(added["path"])
            break  # a batch is one commit of a table
    return found
