"""The file `batches` of a recording that programs append to: the last batch of each writer, and its positions.

An entry is written before its batch, and counts once the recording reaches the batch's end. So entry and batch are one step.
Layout: docs/design/recording.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock._native import core as _native
from penstock.errors import Corrupt
from penstock.record.format.numbers import number_of, seal
from penstock.util.files.durable import write_atomically

NAME = "batches"
WRITERS = 1000  # the number of most recent writers whose entries are kept
KEPT = 2  # entries of a writer: one may not count yet


class Entry(NamedTuple):
    """A batch: the writer's number for it, and its first position and end."""

    number: int
    start: int
    end: int
    messages: int


@dataclass
class Batches:
    """The last entries of each writer. A writer's numbers only rise."""

    writers: dict[str, list[Entry]] = field(default_factory=dict)

    def find(self, writer: str, number: int, end: int) -> Entry | None:
        """The entry that proves that a batch, or a later one, is in the recording. end: the recording's end."""
        return next((one for one in self.writers.get(writer, ()) if one.end <= end and one.number >= number), None)

    def add(self, writer: str, entry: Entry, end: int) -> None:
        """Adds the next batch. Entries whose batch was never written are removed. end: the recording's end."""
        held = [one for one in self.writers.pop(writer, []) if one.end <= end]
        self.writers[writer] = [*held, entry][-KEPT:]
        for name in list(self.writers)[:-WRITERS]:
            del self.writers[name]

    def forget_beyond(self, end: int) -> None:
        """Removes entries whose batch was never written."""
        held = {name: [one for one in entries if one.end <= end] for name, entries in self.writers.items()}
        self.writers = {name: entries for name, entries in held.items() if entries}


def is_in(folder: Path) -> bool:
    """Whether programs append to a recording."""
    return (folder / NAME).exists()


def write(folder: Path, batches: Batches) -> None:
    """Replaces the file, durably."""
    row = {"writers": [[name, [list(one) for one in entries]] for name, entries in batches.writers.items()]}
    text = json.dumps({**row, "crc32c": _sum(row, number_of(folder))}) + "\n"
    write_atomically(folder / NAME, text, private=True)


def read(folder: Path, *, expected: bool = False) -> Batches:
    """The file's entries; empty without a file. `Corrupt` if the file is damaged, or expected and missing."""
    path = folder / NAME
    try:
        row = json.loads(path.read_bytes())
        if row.pop("crc32c") != _sum(row, number_of(folder)):
            raise ValueError("its checksum is wrong, or it is another recording's")
        return Batches({name: [Entry(*one) for one in entries] for name, entries in row["writers"]})
    except FileNotFoundError:
        if expected:
            raise Corrupt(
                f"{path} is missing. Run repair: messages stay, and a batch that its writer tries again is appended again"
            ) from None
        return Batches()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            f"{path} is damaged: {error}. Run repair, which moves it aside: messages stay, and a batch that its writer tries again is appended again"
        ) from error


def _sum(row: dict[str, Any], recording: int) -> int:
    return _native.crc32c(seal(json.dumps(row, sort_keys=True, separators=(",", ":")).encode(), recording))
