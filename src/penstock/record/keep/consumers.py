"""The progress of each consumer of an archive, a streaming query: one file each. Purge and truncate respect them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.channels.uri.wildcards import matches_any
from penstock.errors import Corrupt, Invalid, NotFound
from penstock.record.format.intervals import Interval, union
from penstock.util.files.durable import make_folder, write_atomically

FOLDER = "consumers"
Stream = tuple[str, int]
Positions = dict[Stream, list[Interval]]


@dataclass(frozen=True)
class Consumer:
    """A query's progress. channels: URIs and patterns; None if it reads all. updated_ns: the time of this note, in nanoseconds since the epoch."""

    name: str
    channels: tuple[str, ...] | None
    updated_ns: int
    done: Positions = field(repr=False)

    def wants(self, channel: str) -> bool:
        """Whether it reads a channel."""
        return self.channels is None or channel in self.channels or matches_any(self.channels, channel)


def check_name(name: str) -> str:
    """The name of a consumer, which is a file's name. `Invalid` if it cannot be one."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise Invalid(
            f"consumer is {name!r}: it must be letters, digits, '.', '_' and '-', at most 100, and begin with a letter or a digit"
        )
    return name


def write(archive: Path, consumer: Consumer) -> None:
    """Replaces a consumer's progress file, durably."""
    folder = make_folder(archive / FOLDER)
    streams = [
        [channel, epoch, [list(part) for part in parts]] for (channel, epoch), parts in sorted(consumer.done.items())
    ]
    row: dict[str, Any] = {
        "name": consumer.name,
        "channels": None if consumer.channels is None else list(consumer.channels),
        "updated_ns": consumer.updated_ns,
        "streams": streams,
    }
    text = json.dumps({**row, "crc32c": _sum(row)}) + "\n"
    write_atomically(folder / f"{check_name(consumer.name)}.json", text, private=True)


def read(archive: Path) -> list[Consumer]:
    """Every consumer. `Corrupt` if a progress file is damaged."""
    return [found for path in paths(archive) if (found := read_one(path)) is not None]


def read_known(archive: Path) -> list[Consumer]:
    """The same, for calls one after another: a progress file that has not changed since is not read again."""
    found = []
    for path in paths(archive):
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            found.append(_read_state(path, (about.st_ino, about.st_size, about.st_mtime_ns)))
    return [one for one in found if one is not None]


@functools.lru_cache(maxsize=8)
def _read_state(path: Path, state: tuple[int, int, int]) -> Consumer | None:
    """A consumer as its file is in a state."""
    return read_one(path)


def paths(archive: Path) -> list[Path]:
    """The paths of the progress files."""
    try:
        names = sorted(name for name in os.listdir(archive / FOLDER) if name.endswith(".json") and name[0] != ".")
    except FileNotFoundError:
        return []
    return [archive / FOLDER / name for name in names]


def read_one(path: Path) -> Consumer | None:
    """One consumer; None if it has no progress file. `Corrupt` if it is damaged."""
    try:
        row = json.loads(path.read_bytes())
        if row.pop("crc32c") != _sum(row):
            raise ValueError("its checksum is wrong")
        if f"{row['name']}.json" != path.name:
            raise ValueError(f"it is of the consumer {row['name']}")
        done = {
            (channel, epoch): union([(low, high) for low, high in parts]) for channel, epoch, parts in row["streams"]
        }
        channels = None if row["channels"] is None else tuple(row["channels"])
        return Consumer(row["name"], channels, row["updated_ns"], done)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            f"{path} is damaged: {error}. Nothing is purged until it is repaired: the next run of its query writes it again; if there is no "
            f"such query any more: penstock consumers ARCHIVE --forget {path.stem}"
        ) from error


def forget(archive: Path, name: str) -> None:
    """Removes a consumer's progress file. `NotFound` names those that there are."""
    path = archive / FOLDER / f"{check_name(name)}.json"
    try:
        path.unlink()
    except FileNotFoundError:
        known = ", ".join(one.name for one in read(archive)) or "none"
        raise NotFound(f"{archive} has no consumer {name}; it has {known}") from None


def _sum(row: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
