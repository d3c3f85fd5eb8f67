"""Recording and follow in a simulated world: writers, recorders that are restarted, power cuts, a follower, neighbours.

`python tests/sim/recording.py --seed N` replays one; `--count K` runs K seeds from N on.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from sim.neighbours import Neighbours
from sim.world import Disk, SureCatalog, World

import penstock
from penstock.record.format import folder as folder_module
from penstock.record.format import sync_marker as marker_module
from penstock.record.format.folder import RecordingFolder
from penstock.record.keep import repair as repair_module
from penstock.record.keep import restore as restore_module
from penstock.record.keep import segment_repair as segment_repair_module
from penstock.record.write import writer as writer_module
from penstock.record.write.writer import RecordingWriter
from penstock.util.files import durable as durable_module

CHANNEL = "log:sim"
# Where a channel's counters begin: somewhere harmless, and just before they could overflow.
EDGES = (0, (1 << 31) - (1 << 16), (1 << 32) - (1 << 16), (1 << 48) - (1 << 16), (1 << 63) - (1 << 34) - (1 << 16))
DISKS: list[Disk] = []  # the machine's, the present one last


class _Segment:
    """A segment whose syncs the disk hears of."""

    def __init__(self, real: Any, disk: Disk, data: Path, index: Path) -> None:
        self._real, self._disk, self._paths = real, disk, (data, index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sync(self) -> None:
        self._real.sync()
        for path in self._paths:
            if path.exists():
                self._disk.synced(path)


class Life(Neighbours):
    """One seed: from an empty archive through crashes to the end. `problems` is empty if all promises were kept."""

    def __init__(self, seed: int, root: Path) -> None:
        self.world = World(seed)
        self.dice = self.world.random
        self.root = root
        self.generation = 0
        self.rows: dict[int, Any] = {}  # the catalog's
        self.number = 0  # of the recording that `recording_writer` writes
        self.sent: list[bytes] = []
        self.begun = 0  # number of the first message of the present recording
        self.followed: list[bytes] = []
        self.follow_from: int | None = None
        self.recording_writer: RecordingWriter | None = None
        self._open()

    def _open(self) -> None:
        self.folder = self.root / f"archive{self.generation}"
        self.disk = Disk(self.world, self.folder)
        DISKS.append(self.disk)
        self.archive = penstock.Archive(self.folder, clock=self.world)
        self.archive._files.catalog = SureCatalog(self.archive.catalog.path, self.rows)  # type: ignore[assignment]

    # ---- what happens ----

    def publish(self) -> None:
        """A burst of messages; some are refused when the recorder is far behind."""
        for _ in range(self.dice.randint(1, 12)):
            size = self.dice.choice((0, 10, 200, 900, 3000))
            message = len(self.sent).to_bytes(4, "little") + bytes([len(self.sent) % 251]) * size
            if self.pub.offer(message) is not None:
                self.sent.append(message)

    def start(self, *, extend: bool) -> None:
        """A recorder begins, or goes on."""
        segment = self.dice.choice((1 << 12, 1 << 14, 1 << 16))
        if extend:  # the recording of this life; a neighbour may have begun a newer one
            self.recording_writer = self.archive._opener._extension(
                self.archive.find(self.number), segment, None, False, None
            )
        else:
            self.recording_writer = self.archive._opener.open(CHANNEL, "earliest", False, segment, None)
        self.number = self.recording_writer.description.id
        self.archive.catalog.note({self.number: self.recording_writer.row})
        self.world.note(f"recorder starts at {self.recording_writer.synced}")

    def turn(self) -> None:
        """The recorder takes what is there."""
        if self.recording_writer is not None:
            self.recording_writer.turn()

    def sync(self) -> None:
        """And makes it durable."""
        if self.recording_writer is not None:
            self.recording_writer.sync()
            self.archive.catalog.note({self.number: self.recording_writer.row})

    def crash(self) -> None:
        """The recorder is killed; its files stay as they are."""
        if self.recording_writer is None:
            return
        self.recording_writer.release()
        self.recording_writer = None
        self.world.note("recorder killed")
        self._check_recording()
        self.start(extend=True)

    def follow(self) -> None:
        """A follower reads on until nothing more comes."""
        try:
            for message in self.archive.follow(self.number, start=self.follow_from, timeout=0):
                self.followed.append(message.data)
                self.follow_from = message.position + 1
        except TimeoutError:
            pass
        expected = self.sent[self.begun : self.begun + len(self.followed)]
        assert self.followed == expected, f"the follower saw {len(self.followed)} messages, not those that were sent"

    def power_cut(self) -> None:
        """Everything that was not synced is in danger; shared memory is gone. Then the machine starts again."""
        progress = self.recording_writer.synced if self.recording_writer is not None else 0
        if self.recording_writer is not None:
            self.recording_writer.release()
            self.recording_writer = None
        self.leave_neighbours()
        self.pub.close()
        penstock.remove(CHANNEL)
        promised = {info.id: (info.synced_position, self._durable(info)) for info in self.archive.list()}
        self.world.note(f"power cut, {progress} was synced")
        self.generation += 1
        after = self.root / f"archive{self.generation}"
        self.disk.cut_power(after)
        (after / "recordings").mkdir(parents=True, exist_ok=True)
        self._open()
        self.disk.settle()
        self.archive.repair()
        self.disk.settle()
        damage = self.archive.verify()
        assert not damage, f"damage after repair: {damage[0]}"
        for info in self.archive.list():
            position, messages = promised.get(info.id, (0, []))
            assert info.end_position >= position, (
                f"recording {info.id}: {position} was synced, {info.end_position} is left"
            )
            left = self._durable(replace(info, synced_position=position))
            assert left == messages, f"recording {info.id}: {len(messages)} messages were synced, {len(left)} are left"
        self._check_recording()
        self.begun, self.followed, self.follow_from = len(self.sent), [], None
        self._channel()
        self.start(extend=False)

    def _durable(self, info: Any) -> list[tuple[int, bytes]]:
        """The messages that are called durable."""
        found = ((m.position, m.data) for m in self.archive.replay(info.id))
        return [one for one in found if one[0] < info.synced_position]

    def _check_recording(self) -> None:
        for damage in self.archive.verify():
            raise AssertionError(f"damage: {damage}")
        if self.archive._files.folder(self.number).path.is_dir():
            self.were_sent([(m.data, m.lost) for m in self.archive.replay(self.number)], self.begun)

    def _channel(self) -> None:
        self.pub = penstock.publish(
            penstock.testing.channel(CHANNEL, start_position=self.dice.choice(EDGES)), term_length=1 << 16
        )

    def live(self) -> None:
        """The whole life."""
        self._channel()
        self.start(extend=False)
        acts = [self.publish] * 6 + [self.turn] * 5 + [self.sync] * 2 + [self.follow, self.crash, self.power_cut]
        acts += [self.neighbour] * 6
        for _ in range(self.dice.randint(3, 11)):
            act = self.dice.choice(acts)
            self.world.now += self.dice.expovariate(100)
            self.world.note(act.__name__)
            act()
        assert self.recording_writer is not None
        while self.recording_writer.turn() > 0:
            pass
        self.recording_writer.finish()
        self.leave_neighbours()
        newest = self.archive.find(self.number)
        got = [m.data for m in self.archive.replay(newest.id)]
        assert got == self.sent[self.begun :], f"{len(got)} messages recorded, {len(self.sent) - self.begun} sent"
        self.world.note(f"{len(self.sent)} sent, {newest.end_position} bytes recorded last")
        self.pub.close()
        penstock.remove(CHANNEL)


def simulate(seed: int) -> list[str]:
    """One life; its history. Raises AssertionError, with the seed, if a promise was broken."""
    root = Path(tempfile.mkdtemp(prefix="penstock-sim-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    channels = root / "channels"
    channels.mkdir(mode=0o700)
    before = os.environ.get("PENSTOCK_DIR")
    os.environ["PENSTOCK_DIR"] = str(channels)
    DISKS.clear()
    logger = logging.getLogger("penstock")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # of damage it warns: here that is expected
    plain_new, plain_sync = RecordingWriter._new_segment, folder_module.fsync_folder
    plain_seal, plain_cut, plain_durable = repair_module.seal, repair_module._cut, repair_module.make_durable
    plain_durably = segment_repair_module.write_durably
    plain_write, plain_mark = marker_module.write, RecordingFolder.write_mark
    life: Life | None = None

    def new_segment(recording_writer: RecordingWriter, base: int, messages: int) -> Any:
        paths = recording_writer.folder.segment_paths(base)
        made = plain_new(recording_writer, base, messages)
        disk = DISKS[-1]
        for path in (paths.data, paths.index):
            disk.synced(path)
        return _Segment(made, disk, paths.data, paths.index)

    def fsync_folder(path: Path) -> None:
        DISKS[-1].folder_synced(path)
        for entry in path.iterdir():
            if entry.name in (folder_module.DESCRIPTION, folder_module.COPY):
                DISKS[-1].synced(entry)

    def seal(folder: Any, last: Any) -> bool:
        sealed = plain_seal(folder, last)
        if sealed:  # it was synced, data and index
            DISKS[-1].synced(last.data)
            DISKS[-1].synced(last.index)
        return sealed

    def write_durably(path: Path, raw: bytes) -> None:
        plain_durably(path, raw)
        DISKS[-1].synced(path)

    def cut(folder: Any, segment: Any, data_end: int, index_end: int) -> Any:
        done = plain_cut(folder, segment, data_end, index_end)
        for repaired in done:
            DISKS[-1].synced(repaired.path)
        return done

    def make_durable(folder: Any) -> None:
        plain_durable(folder)
        for segment in folder.segments()[-1:]:
            DISKS[-1].synced(segment.data)
            DISKS[-1].synced(segment.index)

    def write(fd: int, mark: Any, number: int) -> None:
        DISKS[-1].overwriting(Path(os.readlink(f"/proc/self/fd/{fd}")))
        plain_write(fd, mark, number)

    def write_mark(folder: Any, mark: Any, number: int = 0) -> None:
        plain_mark(folder, mark, number)
        DISKS[-1].synced(folder.path / marker_module.NAME)

    marker_module.write, RecordingFolder.write_mark = write, write_mark  # type: ignore[method-assign]
    tries, folder_module.LOCK_TRIES = folder_module.LOCK_TRIES, 1
    repair_module.seal, repair_module._cut, repair_module.make_durable = seal, cut, make_durable
    segment_repair_module.write_durably = write_durably
    RecordingWriter._new_segment = new_segment  # type: ignore[method-assign]
    for module in (durable_module, folder_module, writer_module, repair_module, segment_repair_module, restore_module):
        module.fsync_folder = fsync_folder  # type: ignore[attr-defined]
    try:
        life = Life(seed, root)
        life.live()
        return life.world.log
    except (AssertionError, penstock.PenstockError, OSError) as error:
        history = "\n".join(life.world.log[-12:]) if life is not None else ""
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{history}") from error
    finally:
        RecordingWriter._new_segment = plain_new  # type: ignore[method-assign]
        for module in (
            durable_module,
            folder_module,
            writer_module,
            repair_module,
            segment_repair_module,
            restore_module,
        ):
            module.fsync_folder = plain_sync  # type: ignore[attr-defined]
        repair_module.seal, repair_module._cut, repair_module.make_durable = plain_seal, plain_cut, plain_durable
        segment_repair_module.write_durably = plain_durably
        marker_module.write, RecordingFolder.write_mark = plain_write, plain_mark  # type: ignore[method-assign]
        folder_module.LOCK_TRIES = tries
        logger.setLevel(level)
        if before is None:
            del os.environ["PENSTOCK_DIR"]
        else:
            os.environ["PENSTOCK_DIR"] = before
        shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Runs seeds; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    for seed in range(given.seed, given.seed + given.count):
        try:
            history = simulate(seed)
        except AssertionError as error:
            print(error)
            return 1
        if given.count == 1:
            print("\n".join(history))
    print(f"{given.count} seeds, {time.monotonic() - begun:.1f} s, no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
