"""Archives of any size that take no time to make and no disk: the index is whole, and the messages are holes in a sparse file.

Opening, listing and planning read indexes only, so they cannot tell. A part of `bench.growth`; and of `bench.counts`: archives of many
small recordings.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import penstock
from penstock._native import core
from penstock.record import plan
from penstock.record.format import segment_totals
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import SEGMENT_TOTALS, RecordingFolder
from penstock.record.format.sync_marker import SyncMarker

ARCHIVE_BYTES = (10**6, 10**7, 10**8, 10**9, 10**10, 5 * 10**10)
QUICK_ARCHIVE_BYTES = ARCHIVE_BYTES[:3]
SEGMENT, BLOCK = 128 << 20, 256 << 10  # as recorders write them
MESSAGES = 240  # of a block
SMALL: dict[str, Any] = {"term_length": 64 << 10, "max_members": 4}
BY_API = 100  # of many recordings: recorders make so many, and the others are copies with numbers of their own
AT_ONCE = 500  # channels of a recorder, which has five descriptors for each
ENTRY = struct.Struct("<qIIqqqQIHHI")


def make(folder: Path, size: int) -> None:
    """An archive with one sealed recording of about so many bytes."""
    with penstock.publish("log:sparse") as pub:
        recorder = penstock.Archive(folder).record("log:sparse")
        pub.send(b"first")
        recorder.stop()
    penstock.remove("log:sparse")
    recording = RecordingFolder(folder / "recordings" / "00000001")
    first = recording.segments()[0]
    header = first.index.read_bytes()[:64]
    for path in (first.index, first.data, recording.path / SEGMENT_TOTALS):
        path.unlink(missing_ok=True)
    blocks, position, number = max(size // BLOCK, 1), first.base, 0
    start = position
    while number < blocks:
        here = min(SEGMENT // BLOCK, blocks - number)
        where = recording.segment_paths(position)
        entries = [
            sealed(
                header[:16]
                + struct.pack("<q", position)
                + header[24:32]
                + struct.pack("<Q", number * MESSAGES)
                + header[40:60]
            )
        ]
        for _ in range(here):
            entries.append(entry(position, BLOCK, number))
            position, number = position + BLOCK, number + 1
        entries.append(entry(position, 0, number, kind=2))
        where.index.write_bytes(b"".join(entries))
        with open(where.data, "wb") as file:
            file.truncate(here * BLOCK)
    recording.write_mark(SyncMarker(position, closed=True))
    segment_totals.update(recording, start)


def entry(position: int, length: int, number: int, kind: int = 0) -> bytes:
    """An index entry: docs/design/recording.md."""
    at = 1_700_000_000 * 10**9 + number * 10**6
    begins = MESSAGES if kind == 0 else 0
    return sealed(ENTRY.pack(position, length, 0, at, at + 10**6, at, number * MESSAGES, begins, kind, 0, length)[:60])


def sealed(fields: bytes) -> bytes:
    """A record with its checksum."""
    return fields + struct.pack("<I", core.crc32c(fields))


def times(sizes: tuple[int, ...], rounds: int) -> dict[int, dict[str, float]]:
    """Seconds of CPU that each archive takes to be opened, listed and planned. The archives alternate."""
    folder = Path(tempfile.mkdtemp())
    found: dict[int, dict[str, list[float]]] = {size: {"open": [], "list": [], "plan": []} for size in sizes}
    for size in sizes:
        make(folder / str(size), size)
    for number in range(rounds + 1):
        for size in sizes:
            archive = listed = ranges = None  # let go before the clock is read
            at = [time.process_time()]
            archive = penstock.Archive(folder / str(size))
            at.append(time.process_time())
            (listed,) = archive.list()
            at.append(time.process_time())
            ranges = plan(archive)
            at.append(time.process_time())
            assert listed.messages == sum(part.messages for part in ranges) == max(size // BLOCK, 1) * MESSAGES
            for metric, begun, ended in zip(found[size], at, at[1:], strict=False):
                if number:  # the first round loads what is used first
                    found[size][metric].append(ended - begun)
    shutil.rmtree(folder)
    return {size: {what: statistics.median(values) for what, values in costs.items()} for size, costs in found.items()}


def record(archive: penstock.Archive, names: list[str]) -> None:
    """A recording of one message of each, whose channel goes then."""
    for some in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
        for name in some:
            with penstock.publish(name, codec="json", **SMALL) as pub:
                pub.send({"value": 1})
        archive.record(some, start="earliest").stop()
        for name in some:
            penstock.remove(name)


@contextlib.contextmanager
def many(count: int) -> Iterator[penstock.Archive]:
    """An archive with so many recordings, ten of each channel."""
    archive = penstock.Archive(tempfile.mkdtemp())
    for number in range(1, min(count, BY_API) + 1):
        record(archive, [f"log:c{number // 10}"])
    first = archive.folders()[0]
    about, mark, segment = first.describe(), first.mark(), first.segments()[0]
    index = segment.index.read_bytes()
    assert mark is not None
    for number in range(BY_API + 1, count + 1):
        path, channel = first.path.with_name(f"{number:08d}"), f"log:c{number // 10}"
        made, lock = RecordingFolder.create(
            path, replace(about, id=number, channel=channel, epoch=about.epoch + number)
        )
        head = sealed(index[:40] + struct.pack("<Q", number) + index[48:60])
        (made.path / segment.index.name).write_bytes(head + index[64:])
        shutil.copyfile(segment.data, made.path / segment.data.name)
        made.write_mark(mark)
        segment_totals.update(made, about.start_position)
        made.unlock(lock)
        assert {one.name for one in made.path.iterdir()} == {one.name for one in first.path.iterdir()}
    archive.catalog.rebuild(ArchiveFolder(archive.path, create=False).rows())
    assert not archive.verify(count)
    yield archive
    shutil.rmtree(archive.path)
