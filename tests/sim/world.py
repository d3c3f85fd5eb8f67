"""A small world whose every event follows from one seed: time, a network, disks that lose power.

Nothing here waits or asks the machine for time. `World.log` is the history; equal seeds give equal histories.
"""

from __future__ import annotations

import heapq
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512


class World:
    """Virtual time and the events that are due. One thread."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: list[str] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, delay: float, act: Callable[[], None]) -> None:
        """Does `act` `delay` seconds from now."""
        self._number += 1
        heapq.heappush(self._due, (self.now + delay, self._number, act))

    def run(self, until: float) -> None:
        """Lets events happen until that time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = until

    def note(self, text: str) -> None:
        """Adds to the history."""
        self.log.append(f"{self.now:.6f} {text}")

    # ---- the clock that archives and replays get ----

    def now_ns(self) -> int:
        """Nanoseconds since the epoch of this world."""
        return 1_700_000_000_000_000_000 + int(self.now * 1e9)

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Time passes, and nothing else."""
        self.now += seconds


@dataclass
class Weather:
    """How bad a network is: shares of packets lost and sent twice, seconds of delay, and who is cut off from whom."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0001, 0.002)
    partitions: set[frozenset[str]] = field(default_factory=set)


class Network:
    """Carries datagrams between named nodes, badly. Delays differ, so packets overtake each other."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world, self.weather = world, weather
        self._nodes: dict[str, Callable[[str, bytes], None]] = {}

    def join(self, name: str, receive: Callable[[str, bytes], None]) -> None:
        """A node that gets (from whom, packet)."""
        self._nodes[name] = receive

    def send(self, source: str, target: str, packet: bytes) -> None:
        """Perhaps arrives, perhaps twice, at some time."""
        dice, weather = self.world.random, self.weather
        copies = (dice.random() >= weather.loss) + (dice.random() < weather.duplication)
        for _ in range(copies):
            self.world.at(dice.uniform(*weather.delay), lambda: self._arrive(source, target, packet))

    def _arrive(self, source: str, target: str, packet: bytes) -> None:
        if frozenset((source, target)) not in self.weather.partitions and target in self._nodes:
            self._nodes[target](source, packet)


class Disk:
    """A real folder, and what of it would be left if the power failed now.

    Files only grow. Synced bytes stay; of the rest each sector is there, or zero, or beyond the file's end. A name
    stays once its folder was synced; before that it may be gone, or be the name that the file had before.
    """

    def __init__(self, world: World, root: Path) -> None:
        self.world, self.root = world, root
        self._content: dict[int, int] = {}  # inode → bytes that are durable
        self._names: dict[Path, dict[str, int]] = {}  # folder → name → inode, as last synced
        self._older: dict[int, bytes] = {}  # inode → what was durable before it was written over in place

    def synced(self, path: Path) -> None:
        """The file's content is durable."""
        about = path.stat()
        self._content[about.st_ino] = about.st_size
        self._older.pop(about.st_ino, None)

    def overwriting(self, path: Path) -> None:
        """The file, of one sector, is about to be written over: until it is synced the old content may come back."""
        about = path.stat()
        if about.st_ino in self._content:
            self._older.setdefault(about.st_ino, path.read_bytes())

    def folder_synced(self, folder: Path) -> None:
        """The folder's names are durable, and with them those of the folders above."""
        self._names[folder] = {entry.name: entry.stat().st_ino for entry in folder.iterdir()}

    def settle(self) -> None:
        """All that is here is durable: the machine has just started from it."""
        for name, _, files in os.walk(self.root):
            self.folder_synced(Path(name))
            for file in files:
                self.synced(Path(name) / file)

    def cut_power(self, target: Path) -> None:
        """Writes into `target` what is left."""
        dice = self.world.random
        for folder, files in sorted((Path(name), files) for name, _, files in os.walk(self.root)):
            there = target / folder.relative_to(self.root)
            durable = self._names.get(folder, {})
            by_inode = {inode: name for name, inode in durable.items()}
            for name in sorted(files):
                path = folder / name
                inode = path.stat().st_ino
                if durable.get(name) != inode and dice.random() < 0.5:  # its new name was not durable
                    if inode not in by_inode:
                        continue
                    name = by_inode[inode]
                there.mkdir(parents=True, exist_ok=True)
                if inode in self._older and dice.random() < 0.5:
                    (there / name).write_bytes(self._older[inode])
                    continue
                (there / name).write_bytes(self._left(path.read_bytes(), self._content.get(inode, 0)))

    def _left(self, content: bytes, durable: int) -> bytes:
        dice = self.world.random
        end = dice.choice((durable, len(content), dice.randint(durable, len(content))))
        left = bytearray(content[:end])
        for at in range(durable - durable % SECTOR, end, SECTOR):
            if dice.random() < 0.3:
                begin = max(at, durable)
                left[begin : at + SECTOR] = bytes(len(left[begin : at + SECTOR]))
        return bytes(left)


class SureCatalog:
    """A catalog in memory with `Catalog`'s methods: SQLite keeps what it has committed, so a power cut spares it."""

    def __init__(self, path: Path, kept: dict[int, Any]) -> None:
        self.path, self.kept = path, kept

    def exists(self) -> bool:
        """It always does."""
        return True

    def rows(self, *, wait: float = 0.0) -> dict[int, Any]:
        """Recording → row."""
        return dict(self.kept)

    known = rows

    def note(self, rows: dict[int, Any], *, wait: float = 0.0) -> None:
        """Writes rows; None removes one."""
        self.kept.update(rows)
        for number in [number for number, row in self.kept.items() if row is None]:
            del self.kept[number]

    def revise(self, before: dict[int, Any], wanted: dict[int, Any]) -> None:
        """Makes `wanted` of the rows `before`."""
        self.note({**dict.fromkeys(before), **wanted})

    def check(self, *, wait: float = 0.0) -> None:
        """It is never damaged."""
