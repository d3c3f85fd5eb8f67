"""Other users of an archive while a recorder writes: a second recorder, a hasty supervisor, readers, repairs, purges, damage.

A live recorder is never disturbed by any of it; readers give right rows or an error; nothing that was synced is lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from sim.world import SureCatalog

import penstock
from penstock.record import plan
from penstock.record.write.writer import RecordingWriter

CHANNEL = "log:sim"


class Neighbours:
    """Acts of a life beside its recorder. A base of `Life`, which has the rest."""

    archive: Any
    dice: Any
    world: Any
    disk: Any
    sent: list[bytes]
    rows: dict[int, Any]
    recording_writer: RecordingWriter | None
    number: int
    second: RecordingWriter | None = None  # another recorder of the same channel, into a recording of its own
    second_from = 0  # number of its first message

    def neighbour(self) -> None:
        """One of them."""
        acts = (
            self.hasty_supervisor,
            self.second_recorder,
            self.repair_beside,
            self.read_beside,
            self.strangers,
            self.damage,
            self.purge_some,
        )
        act = self.dice.choice(acts)
        self.world.note(act.__name__)
        act()

    def leave_neighbours(self) -> None:
        """The second recorder is gone, by its end or by a kill."""
        if self.second is None:
            return
        if self.dice.random() < 0.5:
            while self.second.turn() > 0:
                pass
            self.second.finish()
        self.second.release()
        self.second = None

    def hasty_supervisor(self) -> None:
        """Restarts with `extend` while the old recorder still runs: refused, and nothing was touched."""
        if self.recording_writer is None:
            return
        before = self._files()
        other = penstock.Archive(self.archive.path)
        other._files.catalog = self.archive.catalog
        if self.second is not None:  # the newest recording of the channel is that one's
            before = {path: size for path, size in before.items() if f"{self.number:08d}" in path}
        try:
            other._opener.open(CHANNEL, "newest", True, 1 << 14, None).release()
        except penstock.Busy:
            after = self._files()
            assert all(after.get(path) == size for path, size in before.items()), (
                "a recorder that was refused changed files"
            )
        else:
            newest = max(int(folder.path.name) for folder in self.archive.folders())
            assert newest != self.number, "two recorders write one recording"

    def _files(self) -> dict[str, int]:
        root = self.archive.path / "recordings"
        return {str(path): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    def second_recorder(self) -> None:
        """A recorder of the same channel begins, goes on, is killed, or ends; its recording holds what it was given."""
        if self.second is None:
            at = (
                self.archive.find(self.number).end_position
                if self.recording_writer is None
                else self.recording_writer.segment.position
            )
            with contextlib.suppress(penstock.Invalid):  # the channel no longer keeps that
                self.second = self.archive._opener.open(CHANNEL, at, False, 1 << 13, None)
                self.second_from = -1
            return
        self.second.turn()
        self.second.sync()
        self.check_second()
        if self.dice.random() < 0.4:
            number, promised = self.second.description.id, self.second.synced
            self.leave_neighbours()
            info = self.archive.find(number)
            assert info.state in ("closed", "crashed"), info.damage
            assert info.end_position >= promised

    def check_second(self) -> None:
        """Its messages are a stretch of those that were sent."""
        assert self.second is not None
        self.were_sent([(m.data, m.lost) for m in self.archive.replay(self.second.description.id)])

    def were_sent(self, got: list[tuple[bytes, int]], first: int | None = None) -> None:
        """Messages and the bytes lost before each: a stretch of those that were sent, but for losses that are counted. first: its number."""
        expected = first
        for data, lost in got:
            number = int.from_bytes(data[:4], "little")
            assert data == self.sent[number], "a recording holds something else than was sent"
            assert expected in (None, number) or (lost and number > (expected or 0)), (
                f"message {number} follows where {expected} was next, and no loss is counted"
            )
            expected = number + 1

    def repair_beside(self) -> None:
        """Repair leaves live recordings alone."""
        before = {path: size for path, size in self._files().items() if f"{self.number:08d}" in path}
        self.archive.repair()
        if self.recording_writer is not None:
            after = self._files()
            assert all(after.get(path) == size for path, size in before.items()), "repair touched a live recording"
        self.disk.settle()

    def read_beside(self) -> None:
        """A reader that is held up half way while something else happens gives right rows or an error."""
        recorded = self.archive.list()
        if not recorded:
            return
        info = self.dice.choice(recorded)
        got: list[tuple[bytes, int]] = []
        meanwhile = self.dice.choice((self.repair_beside, self.purge_some, self.second_recorder))
        try:
            batches = self.archive.scan(info.id, batch_rows=2, columns=["payload", "lost"])
            for number, batch in enumerate(batches):
                got += zip(batch.column("payload").to_pylist(), batch.column("lost").to_pylist(), strict=True)
                if number == 1:
                    meanwhile()
        except penstock.PenstockError:
            pass
        self.were_sent(got)

    def purge_some(self) -> None:
        """A recording that nobody writes goes; the list goes on."""
        for info in self.archive.list():
            if info.state != "live" and info.id != self.number:
                self.archive.purge(info.id)
                self.rows_gone(info.id)
                return

    def rows_gone(self, number: int) -> None:
        """Nothing is left of purged recordings."""
        assert number not in [info.id for info in self.archive.list()]
        try:
            self.archive.verify(number)
        except penstock.NotFound:
            return
        raise AssertionError("verify knows a recording that was purged")

    def strangers(self) -> None:
        """Foreign things among the recordings hide nothing, are named, and are moved aside."""
        root = self.archive.path / "recordings"
        known = [info.id for info in self.archive.list()]
        name = self.dice.choice(("777", "00000777", "notes.txt", "²", "00000778"))
        path = root / name
        if path.exists():  # a recording whose number follows that of an earlier stranger
            return
        if self.dice.random() < 0.5:
            path.write_bytes(b"x")
        else:
            path.mkdir()
        assert set(known) <= {info.id for info in self.archive.list()}, "a stranger hides a recording"
        plan(self.archive)
        assert [d for d in self.archive.verify() if name in str(d.path)], "verify does not name a stranger"
        self.archive.repair()
        assert not os.path.lexists(path)
        assert self.archive.verify() == []
        self.disk.settle()

    def damage(self) -> None:
        """In a copy of the archive a recording loses files, entries or its description: an error or a counted gap, never other rows."""
        place = self.archive.path.with_name("copy")
        copy = penstock.Archive(shutil.copytree(self.archive.path, place))
        copy._files.catalog = SureCatalog(copy.catalog.path, dict(self.rows))  # type: ignore[assignment]
        victims = [info for info in copy.list() if info.segments > 0]
        if victims:
            self._damage(copy, self.dice.choice(victims))
        shutil.rmtree(place)

    def _damage(self, copy: penstock.Archive, info: Any) -> None:
        whole = {m.position: m.data for m in copy.replay(info.id)}
        folder = copy._files.folder(info.id)
        segment = self.dice.choice(folder.segments())
        how = self.dice.choice(("both", "index", "data", "entries", "description"))
        if how in ("both", "data"):
            segment.data.unlink()
        if how in ("both", "index"):
            segment.index.unlink()
        elif how == "entries":
            os.truncate(segment.index, self.dice.randrange(0, max(1, segment.index.stat().st_size - 64)))
        elif how == "description":
            (folder.path / "recording.json").write_bytes(b"{}")
        durable = sum(position < info.synced_position for position in whole)
        got: list[tuple[int, bytes]] = []
        try:
            for message in copy.replay(info.id):
                got.append((message.position, message.data))  # noqa: PERF401
        except penstock.PenstockError:
            pass
        else:
            now = copy.find(info.id)
            counted = now.lost_bytes > info.lost_bytes
            assert len(got) >= durable or counted, (
                f"{how}: {len(got)} of {durable} durable messages, and nothing says so"
            )
        assert _are_of(got, whole), f"{how}: other rows than were recorded"
        if len(got) < durable:
            assert copy.verify(info.id), f"verify finds nothing: {how}"
        assert info.id in [i.id for i in copy.list()]
        copy.repair()
        assert copy.verify() == []
        if info.id in [i.id for i in copy.list()]:
            assert _are_of([(m.position, m.data) for m in copy.replay(info.id)], whole)


def _are_of(got: list[tuple[int, bytes]], whole: dict[int, bytes]) -> bool:
    """Whether these are messages of a recording, each at its position and in their order."""
    positions = [position for position, _ in got]
    return positions == sorted(set(positions)) and all(whole.get(position) == data for position, data in got)
