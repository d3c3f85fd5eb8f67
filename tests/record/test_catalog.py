"""The catalog is a cache. Locked, damaged, missing, old or read-only, at any moment: nothing stops, nothing waits, nothing is hidden."""

import contextlib
import os
import random
import shutil
import sqlite3
import threading
import time
from unittest import mock

import pytest
from conftest import sized

import penstock
from penstock.record import plan
from penstock.record.format.catalog import Catalog, Notes, Row

T = 1 << 16
LIVES = sized(4, 12, 200)
ACTS = 30


class Harm:
    """Ways to harm a catalog. `undo` ends a lock or gives rights back; damage stays."""

    def __init__(self, path, rng=None):
        self.path, self.old, self._undo, self.rng = path, None, [], rng or random.Random(1)

    def do(self, name):
        """One of `HARMS`."""
        with contextlib.suppress(
            FileNotFoundError, NotADirectoryError, IsADirectoryError
        ):  # a recorder is rebuilding it just now
            if self.path.is_dir():
                self.path.rmdir()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            getattr(self, name)()

    def locked(self):
        """As a shell with an open transaction, or a process that was stopped inside one."""
        with contextlib.suppress(sqlite3.Error):
            db = sqlite3.connect(self.path, isolation_level=None, timeout=0.5, check_same_thread=False)
            self._undo.append(db.close)
            db.execute("BEGIN EXCLUSIVE")

    def garbage(self):
        self.path.write_bytes(b"garbage" * 1000)

    def flipped(self):
        if self.path.exists() and (size := self.path.stat().st_size):
            with open(self.path, "r+b") as file:
                for _ in range(8):
                    file.seek(self.rng.randrange(size))
                    file.write(bytes([self.rng.randrange(256)]))

    def cut(self):
        if self.path.exists():
            os.truncate(self.path, self.path.stat().st_size // 2)

    def empty(self):
        self.path.write_bytes(b"")

    def missing(self):
        self.path.unlink(missing_ok=True)

    def a_folder(self):
        while not self.path.is_dir():
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):  # a recorder has made it again meanwhile
                self.path.mkdir()

    def a_stale_journal(self):
        self.path.with_name(self.path.name + "-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))

    def another_table(self):
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(sqlite3.Error, UnicodeError), contextlib.closing(sqlite3.connect(self.path)) as db, db:
            db.execute("CREATE TABLE recordings (id INTEGER PRIMARY KEY, channel TEXT)")

    def wrong_rows(self):
        with (
            contextlib.suppress(sqlite3.Error, UnicodeError),
            contextlib.closing(sqlite3.connect(self.path, timeout=0.5)) as db,
            db,
        ):
            db.execute("UPDATE recordings SET synced_position = start_position, channel = 'log:other'")
            db.execute("INSERT INTO recordings VALUES (99, 'log:ghost', 1, 2, 3, 3)")

    def an_old_copy(self):
        if self.old is None:
            if self.path.is_file():
                self.old = self.path.read_bytes()
        else:
            self.path.write_bytes(self.old)

    def read_only(self):
        if self.path.exists():
            self.path.chmod(0o400)
            self._undo.append(lambda: self.path.chmod(0o600) if self.path.exists() else None)

    def undo(self):
        while self._undo:
            self._undo.pop()()


HARMS = [name for name in vars(Harm) if not name.startswith("_") and name not in ("do", "undo")]


class Life:
    """An archive in use, with what it must hold."""

    def __init__(self, root, rng):
        self.archive, self.rng = penstock.Archive(root), rng
        self.pub = penstock.publish("log:c", term_length=T)
        self.harm = Harm(self.archive.catalog.path, rng)
        self.sent = 0
        self.holds = {}  # recording → [first, one after the last message]
        self.purged = set()  # names of folders
        self.recorder = None
        self.number = 0

    def send(self):
        """Writers never wait for the catalog: a log of 64 KiB is full after 500 of these."""
        for _ in range(700):
            self.pub.send(b"%08d" % self.sent + bytes(92), timeout=20)
            self.sent += 1

    def record(self):
        if self.recorder is not None:
            return
        extend = self.rng.random() < 0.5 and bool(self.holds)
        first = self.sent
        if extend and self.holds[max(self.holds)][1] != self.sent:
            extend = False  # the channel does not keep what it has missed
        self.recorder = self.archive.record("log:c", extend=extend, sync_interval=0.002, segment_length=T)
        (self.number,) = self.recorder.recordings.values()
        if not extend:
            assert self.number not in self.holds, "a number is never given twice"
            self.holds[self.number] = [first, first]

    def stop(self):
        if self.recorder is None:
            return
        self.recorder.stop()
        self.holds[self.number][1] = self.sent
        self.recorder = None
        self.check(self.number)

    def check(self, number):
        first, end = self.holds[number]
        got = [int(m.data[:8]) for m in self.archive.replay(number)]
        assert got == list(range(first, first + len(got)))
        if self.recorder is None or number != self.number:
            assert len(got) == end - first

    def look(self):
        found = self.archive.list()
        assert {info.id for info in found} == set(self.holds)
        assert {info.channel for info in found} <= {"log:c"}
        assert not [info.damage for info in found if info.damage]
        if found:
            newest = self.archive.find("log:c")
            assert newest.id == max(self.holds)
            assert newest.synced_position <= newest.end_position
            self.check(self.rng.choice(sorted(self.holds)))
            plan(self.archive)

    def verify(self):
        no_loss = {"00000099"} | self.purged  # an old copy of the catalog may bring back a purged recording's row
        wrong = [d for d in self.archive.verify() if "recordings" in str(d.path) and d.path.name not in no_loss]
        assert not wrong, wrong

    def repair(self):
        self.harm.undo()
        self.archive.repair()
        assert [d for d in self.archive.verify() if self.recorder is None] == []

    def purge(self):
        idle = [n for n in self.holds if self.recorder is None or n != self.number]
        if len(idle) > 1:
            victim = self.rng.choice(sorted(idle)[:-1])
            self.archive.purge(victim)
            del self.holds[victim]
            self.purged.add(f"{victim:08d}")

    def end(self):
        self.stop()
        self.harm.undo()
        self.look()
        self.repair()
        rows = self.archive.catalog.rows()
        assert set(rows) == set(self.holds)
        for info in self.archive.list():
            assert rows[info.id] == (
                info.channel,
                info.epoch,
                info.created_ns,
                info.start_position,
                info.synced_position,
            )
            assert info.synced_position == info.end_position


@pytest.fixture
def patience(monkeypatch):
    """Calls that may wait for a lock wait less here. Recorders never wait."""
    from penstock.record.format import archive_folder
    from penstock.record.keep import catalog_repair, truncate, verify

    for module in (archive_folder, catalog_repair, truncate, verify):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr("penstock.record.format.catalog.CLOSING_SECONDS", 0.2)


def test_whatever_happens_to_the_catalog_recordings_go_on(tmp_path, rng, tally, patience):
    harms = 0
    for life_number in range(LIVES):
        life = Life(tmp_path / f"{life_number}", rng)
        acts = [life.send] * 3 + [life.record] * 2 + [life.stop, life.look, life.verify, life.repair, life.purge]
        for _ in range(ACTS):
            if rng.random() < 0.35:
                life.harm.undo()
                life.harm.do(rng.choice(HARMS))
                harms += 1
            rng.choice(acts)()
        life.end()
        life.pub.close()
        penstock.remove("log:c")
    tally("acts beside harm to the catalog", LIVES * ACTS)
    tally("harms to the catalog", harms)


@pytest.mark.parametrize("harm", HARMS)
def test_a_recorder_does_not_notice(archive, harm, tally):
    """From its start to its end, whatever becomes of the catalog in between; its channel's writers never wait for it."""
    with penstock.publish("log:c", term_length=T) as pub:
        with archive.record("log:c") as recorder:
            pub.send(b"0")
        hurt = Harm(archive.catalog.path)
        hurt.do(harm)
        recorder = archive.record("log:c", sync_interval=0.001)
        for i in range(3000):
            if i == 1500:
                hurt.do(harm)
            pub.send(b"%06d" % i + bytes(100), timeout=20)
        (progress,) = recorder.stop()
        assert recorder.error is None
        info = archive.find("log:c")
        assert (info.state, info.messages, info.synced_position) == ("closed", 3000, progress.position)
        hurt.undo()
        archive.repair()
        assert archive.verify() == []
    tally("recorders beside a harmed catalog", 1)


def test_the_recorders_thread_never_touches_sqlite(archive, monkeypatch):
    """A lock is only one way to hold SQLite up: a stopped file system is another. So it is another thread's work."""
    users = set()
    plain = sqlite3.connect

    def connect(*arguments, **options):
        users.add(threading.current_thread().name)
        return plain(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    with penstock.publish("log:c", term_length=T) as pub:
        with archive.record("log:c", sync_interval=0.001):
            for _ in range(2000):
                pub.send(bytes(100))
        archive.record("log:c", extend=True).stop()
    assert users == {"penstock-catalog"}


def test_a_catalog_that_hangs_holds_up_no_recorder(archive, monkeypatch):
    let_go, inside = threading.Event(), threading.Event()

    def note(self, rows, *, wait=0.0):
        inside.set()
        let_go.wait(60)

    monkeypatch.setattr(Catalog, "note", note)
    with penstock.publish("log:c", term_length=T) as pub:
        recorder = archive.record("log:c", sync_interval=0.001)
        for i in range(3000):
            pub.send(b"%06d" % i + bytes(100), timeout=20)
        assert inside.wait(30)
        recorder.stop()
        assert archive.find("log:c").messages == 3000
        assert archive.find("log:c").state == "closed"
    let_go.set()


@pytest.mark.parametrize("harm", ["garbage", "empty", "another_table", "missing"])
def test_the_next_recorder_rebuilds_an_unusable_catalog(archive, harm, caplog):
    with penstock.publish("log:c", term_length=T) as pub:
        for _ in range(3):
            archive.record("log:c").stop()
        Harm(archive.catalog.path).do(harm)
        with archive.record("log:c"):
            pub.send(b"1")
    assert set(archive.catalog.rows()) == {1, 2, 3, 4}
    assert archive.verify() == []
    assert ("damaged" in caplog.text) == (harm != "missing")


def test_verify_names_each_difference_of_catalog_and_folders(archive, tmp_path):
    with penstock.publish("log:c", term_length=T) as pub, archive.record("log:c"):
        pub.send(b"1")
    changes = {
        "synced_position": "synced_position = start_position",
        "ahead": "synced_position = synced_position + 1",
        "channel": "channel = 'log:x'",
        "epoch": "epoch = epoch + 1",
        "created": "created_ns = created_ns + 1",
        "start": "start_position = start_position - 1",
        "number": "id = 7",
    }
    for name, change in changes.items():
        copy = penstock.Archive(shutil.copytree(archive.path, tmp_path / name))
        with contextlib.closing(sqlite3.connect(copy.catalog.path)) as db, db:
            db.execute(f"UPDATE recordings SET {change}")
        assert copy.verify(), name
        assert copy.verify(1), name
        assert copy.find(1).synced_position == archive.find(1).synced_position
        copy.repair()
        assert copy.verify() == []
    archive.catalog.path.unlink()
    assert "not in the catalog" in archive.verify()[0].what


def test_reading_an_archive_writes_nothing(archive):
    with penstock.publish("log:c", term_length=T) as pub, archive.record("log:c"):
        pub.send(b"1")
    archive.catalog.path.unlink()

    def state():
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_ino) for p in [archive.path, *archive.path.rglob("*")]}

    before = state()
    archive.list()
    archive.find("log:c")
    assert [m.data for m in archive.replay("log:c")] == [b"1"]
    archive.verify()
    plan(archive)
    assert state() == before


def test_notes_keep_the_newest_and_are_written_when_they_can_be(tmp_path, caplog):
    catalog = Catalog(tmp_path / "catalog.sqlite", dict)
    catalog.note({1: Row("log:a", 1, 2, 3, 3)})
    harm = Harm(catalog.path)
    harm.locked()
    notes = Notes(catalog)
    for position in range(4, 100):
        notes.put({1: Row("log:a", 1, 2, 3, position)})
    deadline = time.monotonic() + 30
    while "locked" not in caplog.text:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    harm.undo()
    assert notes.close(30)
    assert catalog.rows()[1].synced_position == 99
    assert len(caplog.records) == 1


def test_a_rebuild_overwrites_no_row_that_is_newer(tmp_path):
    """Of a recorder that goes on meanwhile: its folder was read before, and its row is written after."""
    path, row, noted = tmp_path / "catalog.sqlite", Row("log:x", 1, 2, 0, 64), []
    newer = row._replace(synced_position=128)

    def folders():
        with contextlib.suppress(penstock.Busy):
            noted.append(Catalog(path, dict).note({2: newer}))
        return {2: row}

    Catalog(path, folders).rebuild({})
    if not noted:
        Catalog(path, dict).note({2: newer})
    assert Catalog(path, dict).rows() == {2: newer}


def test_a_write_that_a_rebuild_disturbs_is_made_again(tmp_path, monkeypatch):
    rows = {1: Row("log:x", 1, 2, 0, 0)}
    made = Catalog(tmp_path / "catalog.sqlite", lambda: rows)
    made.note(rows)
    real, failures, rebuilds = sqlite3.connect, [], []

    class Disturbed(sqlite3.Connection):
        def close(self):
            super().close()
            if len(failures) < 2 and not rebuilds:
                rebuilds.append(True)
                failures.append(made.rebuild(rows))
                rebuilds.clear()
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error

    def connect(database, **named):
        return real(database, **named, **({"factory": Disturbed} if str(database).startswith("file:") else {}))

    monkeypatch.setattr(sqlite3, "connect", connect)
    made.note({2: Row("log:y", 1, 2, 0, 0)})
    assert len(failures) == 2
    assert set(made.rows()) == {1, 2}
    failures.clear()
    monkeypatch.setattr(Catalog, "_connect", mock.Mock(side_effect=penstock.SystemFailure(5, "disk I/O error")))
    with pytest.raises(penstock.SystemFailure, match="disk I/O error"):
        made.note({3: Row("log:z", 1, 2, 0, 0)})
