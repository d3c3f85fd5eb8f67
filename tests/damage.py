"""The promises of a damaged recording: no wrong message, no message missing without a counted gap, no sound block missing.

For tests and for the evidence: an oracle that knows what was there before.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock
from penstock.record import ReadPlanner, intervals
from penstock.util.clock import SystemClock

Interval = tuple[int, int]


@dataclass
class Before:
    """An archive before it was damaged. messages: of each recording, (position, end, data); blocks: of each, where its blocks are."""

    archive: Path
    messages: dict[int, list[tuple[int, int, Any]]] = field(default_factory=dict)
    blocks: dict[int, list[Interval]] = field(default_factory=dict)
    places: dict[int, dict[str, list[tuple[int, int, Interval]]]] = field(default_factory=dict)
    _payloads: dict[int, dict[int, bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, archive: penstock.Archive) -> Before:
        """Reads it all."""
        made = cls(archive.path)
        for info in archive.list():
            found = list(archive.replay(info.id))
            begins = [m.position for m in found] + [info.end_position]
            made.messages[info.id] = [(m.position, end, m.data) for m, end in zip(found, begins[1:], strict=True)]
            folder = archive._files.folder(info.id)
            blocks, places = [], {}
            for segment in folder.segments():
                entries, _ = folder.index(segment)
                offset = 0
                for number, entry in enumerate(entries):
                    one = int(entry["position"]), int(entry["position"]) + int(entry["length"])
                    if int(entry["kind"]) == 0:
                        blocks.append(one)
                        places.setdefault(segment.data.name, []).append((offset, offset + int(entry["length"]), one))
                        offset += int(entry["length"])
                        places.setdefault(segment.index.name, []).append((64 + 64 * number, 128 + 64 * number, one))
            made.blocks[info.id], made.places[info.id] = blocks, places
        return made

    def payloads(self, number: int) -> dict[int, bytes]:
        """The bytes of each message of a recording, by position; read once."""
        if number not in self._payloads:
            plain = penstock.Archive(self.archive).scan(number, columns=("position", "payload"))
            pairs = (zip(b.column(0).to_pylist(), b.column(1).to_pylist(), strict=True) for b in plain)
            self._payloads[number] = dict(pair for pairs_of_batch in pairs for pair in pairs_of_batch)
        return self._payloads[number]

    def hurt(self, number: int, name: str, offset: int) -> list[Interval]:
        """The positions that a wrong byte of a file may cost."""
        return [one for low, high, one in self.places[number].get(name, []) if low <= offset < high]


def check(before: Before, archive: penstock.Archive, number: int, hurt: list[Interval] | None = None) -> int:
    """Reads a recording that may be damaged. Raises AssertionError for a wrong message, or for one that is missing and touches no gap that
    the reader was told of. hurt: positions that may be missing; None: any. Returns how many messages are missing."""
    there = {position: (end, data) for position, end, data in before.messages[number]}
    scanner = archive.scan(number, columns=("position", "payload", "lost"))
    payloads = before.payloads(number)
    got: list[int] = []
    told: list[Interval] = []
    for batch in scanner:
        columns = {name: batch.column(name).to_pylist() for name in ("position", "payload", "lost")}
        for position, payload, lost in zip(*columns.values(), strict=True):
            assert payload == payloads.get(position), f"a wrong message at {position}"
            assert not got or position > got[-1], "the order is wrong"
            got.append(position)
            if lost:
                told.append((position - lost, position))
    named = intervals.union(
        [(one.start, one.end) for one in scanner.left_out if one.end > one.start], gaps(archive, number)
    )
    have = set(got)
    missing = [(position, end) for position, (end, _) in there.items() if position not in have]
    for position, end in missing:
        assert intervals.common([(position, end)], named), f"the message at {position} is missing without a word"
        if hurt is not None:
            touched = intervals.common([(position, end)], sorted(hurt))
            assert touched, f"the message at {position} is missing, but no byte of it was damaged"
    if missing and got and missing[0][0] < got[-1]:
        assert told, "messages are missing, and no message behind them tells it"
    return len(missing)


def gaps(archive: penstock.Archive, number: int) -> list[Interval]:
    """The gaps that the indexes of a recording tell."""
    said: list[str] = []
    survey = ReadPlanner(archive, on_skip=said.append)
    return [(low, high) for one in survey.recordings if one.info.id == number for low, high, _ in one.layout.gaps]


def copied(archive: penstock.Archive, to: Path) -> penstock.Archive:
    """Another archive with the same bytes, in place of what is there."""
    shutil.rmtree(to, ignore_errors=True)
    return penstock.Archive(shutil.copytree(archive.path, to))


def flip(path: Path, offset: int, change: int = 1) -> None:
    """Changes a byte."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ change]))


SEGMENT = 1 << 16  # bytes
EVERY = ("recording.json", "recording.copy", "synced", "cuts", "next", "segments", "batches", "id", "removed", "q.json")


def two_recordings(archive: penstock.Archive) -> penstock.Archive:
    """A recording of several segments and blocks, some of its messages in fragments; and one beside it."""
    rng = random.Random(3)
    for name in ("log:a", "log:b"):
        with (
            penstock.publish(name, term_length=SEGMENT) as pub,
            archive.record(name, segment_length=SEGMENT) as recorder,
        ):
            for i in range(300):
                pub.send(b"%06d" % i + rng.randbytes(rng.choice([10, 100, 700])))
                if i % 60 == 20:
                    pub.send(b"%06d" % i + rng.randbytes(pub.max_payload + 9000))
                while i % 12 == 0 and recorder.progress()[0].position < pub.position:
                    SystemClock().sleep(0.001)
        penstock.remove(name)
    return archive


def add_every_file(made: penstock.Archive) -> None:
    """Makes an archive of two recordings one with each file of `EVERY`."""
    for i in range(3):
        made.append("log:app", [b"%d" % i] * 3, batch=("w", i))
        made.append("log:other", [b"%d" % i] * 3)
    _ = made.id
    made.note_consumer(penstock.record.Consumer("q", ("log:a",), 1, {("log:a", 5): [(0, 10)]}))
    made.note_consumer(penstock.record.Consumer("r", ("log:b",), 1, {("log:b", 5): [(0, 10)]}))
    numbers = {info.channel: info.id for info in made.list()}
    made.truncate(numbers["log:b"], made.find("log:b").end_position // 2, force=True)
    made.purge(numbers["log:other"], force=True)
    made._files.folder(1).note_following(2)
    made._files.folder(2).note_following(3)
    assert made.verify() == []
