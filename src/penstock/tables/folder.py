"""The tables of a folder: *messages*, *losses*, and one for each stream, whose channel is its property."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.columns.parts import table_name
from penstock.errors import Busy, Invalid, PenstockError, SystemFailure
from penstock.record.format.intervals import Interval
from penstock.tables.places import Place
from penstock.tables.schemas import LOSSES, MESSAGES
from penstock.tables.state import Key, Known, Row, Stored

STREAMS = "streams"
LOCK = ".lock"
PRIVATE = ".penstock"  # a folder beside the tables
ERASED = "erased.json"
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
        if others and LOCK not in there:
            raise Invalid(f"{place} holds other files ({', '.join(others[:3])}): name an empty folder for the tables")
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


class Folder:
    """The tables of a folder, for the one process that writes them. damaged: gets a line for each stream whose table cannot be read: it
    is left out, and all others are brought up to date."""

    def __init__(self, place: Place, damaged: list[str]) -> None:
        self.place, self.damaged = place, damaged
        self.known = Known(place)
        if (place / "raw" / "_delta_log").list():
            raise Invalid(
                f"{place} holds tables of an older layout: name another folder, as penstock pipeline ARCHIVE --out {place}-new, and remove "
                "this one when the new tables are there"
            )
        self.messages = Stored(place, "messages", self.known, MESSAGES)
        self.losses = Stored(place, "losses", self.known, LOSSES)
        self.streams: dict[str, Stored] = {}
        self.left_out: set[str] = set()
        self._taken: set[str] = set()
        for info in (place / STREAMS).list():
            name = str(info.base_name)
            self._taken.add(name)
            try:
                one = Stored(place, f"{STREAMS}/{name}", self.known)
                if one.name is not None and ":" in one.name:
                    self.streams[one.name] = one
            except PenstockError as error:
                self._leave_out(name, error)
        self.erased = self._read_erased()

    def _leave_out(self, name: str, error: PenstockError) -> None:
        self.damaged.append(f"the table {STREAMS}/{name}: {error}")
        self.left_out.add(name)

    def is_left_out(self, channel: str) -> bool:
        """Whether a stream's table cannot be written now."""
        return channel not in self.streams and table_name(channel) in self.left_out

    def stream(self, channel: str) -> Stored:
        """A stream's table, by its property; a new one has the first free folder of its name."""
        if channel not in self.streams:
            name, number = table_name(channel), 1
            while name in self._taken:
                number += 1
                name = f"{table_name(channel)}_{number}"
            self._taken.add(name)
            self.streams[channel] = Stored(self.place, f"{STREAMS}/{name}", self.known, name=channel)
        return self.streams[channel]

    def all(self) -> list[Stored]:
        """All tables of messages and losses."""
        return [self.messages, self.losses, *self.streams.values()]

    def have(self) -> dict[str, Have]:
        """The positions that *messages*, and the streams' tables together, hold. To a table that is left out nothing can be added."""
        messages = self.messages.state.intervals()
        held: Have = {}
        for one in self.streams.values():
            held |= one.state.intervals()
        for key, parts in messages.items():
            if self.is_left_out(key[0]):
                held[key] = parts
        return {"messages": messages, "stream": held}

    def save(self) -> None:
        """Remembers the tables as they are, for the next run."""
        self.known.save(one.folder for one in self.all())

    # ---- files of a batch ----

    def begin_batch(self, folders: Sequence[str]) -> str:
        """A token that the names of a batch's files have. Until `end_batch` these folders may have files of no table."""
        token = secrets.token_hex(6)
        about = {"token": token, "folders": sorted(set(folders)), "began": time.time()}
        (self.place / PRIVATE).write(f"batch-{token}.json", json.dumps(about).encode())
        return token

    def end_batch(self, token: str) -> None:
        """All tables have the batch's files."""
        (self.place / PRIVATE).delete(f"batch-{token}.json")

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

    def _read_erased(self) -> list[Row]:
        try:
            found: list[Row] = json.loads((self.place / PRIVATE).read(ERASED))
        except FileNotFoundError:
            return []
        return found

    def erased_spans(self, channel: str) -> list[list[int]]:
        """Send times that were erased of a stream, both ends inclusive."""
        return [[row["since"], row["until"]] for row in self.erased if row["stream"] in (None, channel)]

    def note_erased(self, stream: str | None, since: int, until: int) -> None:
        """A span that no run brings back. stream: None for all."""
        self.erased.append({"stream": stream, "since": since, "until": until, "noted_ns": time.time_ns()})
        (self.place / PRIVATE).write(ERASED, json.dumps(self.erased).encode())


def _named_in_log(place: Place, token: str) -> set[str]:
    """The files with a token in their names that a commit has added, even if a later one removed them."""
    found: set[str] = set()
    log = place / "_delta_log"
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
