"""kill -9 in an archive that several use: recorders, supervisors that restart with `extend`, readers, repairs, purges, a locked catalog,
foreign files among recordings and channels, copies that miss parts.

A live recorder is never disturbed, nothing that was reported synced is lost, readers get right rows or an error.
"""

import contextlib
import os
import random
import shutil
import sqlite3
import struct
import time
import traceback
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import sized
from crash.victims import check, kill, message, start

import penstock
from penstock.record import plan

T = 1 << 16
ROUNDS = sized(3, 12, 1500)
SAYS = struct.Struct("<qq")  # recording, position up to which it was synced


def write(name, seed):
    """Numbered messages for ever, by one writer: no number is left out."""
    pub = penstock.publish(name, term_length=T)
    rng, number = random.Random(seed), 0
    while True:
        pub.send(message(1, number, rng.randrange(300)))
        number += 1


def supervise(path, name, extend, tell, seed):
    """Begins a recorder whenever it can and reports each synced position; restarts it, sometimes while it runs."""
    rng = random.Random(seed)
    archive = penstock.Archive(path)
    recorder = None
    while True:
        try:
            made = archive.record(name, start="newest", extend=extend, sync_interval=0.002, segment_length=T)
        except (penstock.Busy, penstock.NotFound):
            made = None
        if made is not None and recorder is not None:
            recorder.stop()
        recorder = made or recorder
        for _ in range(rng.randrange(1, 6)):
            if recorder is not None:
                if recorder.error is not None:
                    raise recorder.error
                recorder.join(0.002)
                for row in recorder.progress():
                    os.write(tell, SAYS.pack(row.recording, row.synced))
        if recorder is not None and rng.random() < 0.3:
            recorder.stop()
            recorder = None


def framed(data):
    return -(-(32 + len(data)) // 32) * 32


def counted(rows, *about):
    """Each message follows the one before it, but where it counts lost bytes: there, and only there, some are missing. These bytes are
    all that is between the two, but for the unused rest of a term. A recorder that died before such a rest, and was extended behind it,
    cannot know that nothing was there: it counts the rest as lost."""
    for (position, _, before), (after, lost, data) in pairwise(rows):
        end, number, following = position + framed(before), check(before)[1], check(data)[1]
        said = position, after, lost, number, following, *about
        rest = after % T == 0 and lost < framed(data)
        assert (following > number + 1 or rest) if lost else (following == number + 1), said
        assert after - lost == end or (after - lost > end and 0 in ((after - lost) % T, after % T)), said


def read(path, _):
    """Right rows or an error, beside repairs and purges."""
    archive = penstock.Archive(path)
    while True:
        for info in archive.list():
            assert info.state in ("live", "closed", "crashed", "damaged"), info
            try:
                counted([(m.position, m.lost, m.data) for m in archive.replay(info.id)], info)
            except penstock.PenstockError:
                continue
        plan(archive)


def litter(path, name, seed):
    """Foreign things among recordings and channels, made and taken away again: they hide no channel and no recording."""
    rng = random.Random(seed)
    archive = penstock.Archive(path)
    folders = [path / "recordings", Path(os.environ["PENSTOCK_DIR"])]
    while True:
        foreign = rng.choice(folders) / rng.choice(("777", "notes.txt", "x.log", "a b\n[red].ring", "\udcff.log", "²"))
        try:
            if rng.random() < 0.5:
                foreign.write_bytes(rng.randbytes(rng.choice((0, 100, 10_000))))
            else:
                foreign.mkdir()
        except OSError:  # it is there, or a repair has just moved it away
            pass
        assert name in [status.channel for status in penstock.list_channels()]
        archive.list()
        if foreign.parent == folders[1] or rng.random() < 0.5:
            with contextlib.suppress(OSError):
                foreign.rmdir() if foreign.is_dir() else foreign.unlink()


def read_copies(path, seed):
    """Copies that were made while others wrote, and that miss a part: right rows from the recording's first on, or an error."""
    rng = random.Random(seed)
    place = path.with_name(f"{path.name}-copy-{os.getpid()}")
    while True:
        with contextlib.suppress(shutil.Error, OSError):  # files go while they are copied
            shutil.copytree(path, place)
        files = sorted((place / "recordings").glob("*/*.???")) if place.exists() else []
        if files:
            harmed = rng.choice(files)
            if rng.random() < 0.5:
                harmed.unlink()
            else:
                os.truncate(harmed, rng.randrange(harmed.stat().st_size + 1))
            copy = penstock.Archive(place)
            for info in copy.list():
                rows = []
                try:
                    for m in copy.replay(info.id):
                        rows.append((m.position, m.lost, m.data))  # noqa: PERF401
                except penstock.PenstockError:
                    pass
                counted(rows, harmed, info)
            plan(copy)
        shutil.rmtree(place, ignore_errors=True)


def mend(path, seed):
    """Repairs, purges what nobody writes but the newest, locks the catalog."""
    rng = random.Random(seed)
    archive = penstock.Archive(path)
    while True:
        act = rng.random()
        if act < 0.5:
            archive.repair()
        elif act < 0.8:
            idle = [info.id for info in archive.list()[:-4] if info.state != "live"]
            if idle:
                try:
                    archive.purge(rng.choice(idle))
                except (penstock.Busy, penstock.NotFound):
                    continue
        else:
            try:
                db = sqlite3.connect(archive.catalog.path, isolation_level=None, timeout=0.1)
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error:
                continue
            archive.list()
            db.close()


def begin(job, seed, errors):
    """A process for one of them; its own error is kept for the test."""

    def run():
        try:
            job(seed)
        except BaseException:
            with open(errors, "a") as file:
                traceback.print_exc(file=file)
            raise

    return start(run)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_archive_that_several_use_survives_their_deaths(tmp_path, rng, tally):
    kills = 0
    for number in range(ROUNDS):
        name, path = f"log:k{number}", tmp_path / f"{number}"
        archive = penstock.Archive(path)
        penstock.publish(name, term_length=T).close()
        tellers = [os.pipe() for _ in range(2)]
        for say, _ in tellers:
            os.set_blocking(say, False)
        jobs = {
            "writer": partial(write, name),
            "first": partial(supervise, path, name, True, tellers[0][1]),
            "second": partial(supervise, path, name, False, tellers[1][1]),
            "reader": partial(read, path),
            "mender": partial(mend, path),
            "litterer": partial(litter, path, name),
            "copier": partial(read_copies, path),
        }
        errors = tmp_path / f"errors{number}"
        running = {what: begin(job, rng.random(), errors) for what, job in jobs.items()}
        promised, purged = {}, set()
        deadline = time.monotonic() + rng.uniform(0.2, 0.5)
        while time.monotonic() < deadline:
            victim = rng.choice([what for what in running if what != "writer"])
            kill(running[victim])
            kills += 1
            running[victim] = begin(jobs[victim], rng.random(), errors)
            penstock.wait([], rng.uniform(0.005, 0.06))
            for say, _ in tellers:
                _hear(say, promised)
        for pid in running.values():
            kill(pid)
        assert not errors.exists(), errors.read_text()
        for say, tell in tellers:
            _hear(say, promised)
            os.close(say)
            os.close(tell)
        found = {info.id: info for info in archive.list()}
        for recording, position in promised.items():
            if recording not in found:
                purged.add(recording)
                continue
            info = found[recording]
            assert info.state in ("closed", "crashed"), info.damage
            assert info.end_position >= position, f"{recording}: {position} was synced, it ends at {info.end_position}"
        assert len(found) >= 1
        assert purged <= set(range(1, max(found) + 1)) - set(sorted(found)[-4:])
        wrong = [d for d in archive.verify() if any(f"/recordings/{n:08d}" in str(d.path) for n in found)]
        assert not wrong, wrong
        before = {n: [(m.position, m.lost, m.data) for m in archive.replay(n)] for n in found}
        for n, rows in before.items():
            counted(rows, found[n])
        archive.repair()
        assert archive.verify() == []
        assert {n: [(m.position, m.lost, m.data) for m in archive.replay(n)] for n in found} == before
        penstock.remove(name)
    tally("kills among those who use one archive", kills)


def _hear(say, promised):
    """The reports of recorders; each fits a pipe's atomic write."""
    while True:
        try:
            heard = os.read(say, SAYS.size * 1000)
        except BlockingIOError:
            return
        for recording, position in SAYS.iter_unpack(heard):
            promised[recording] = max(position, promised.get(recording, 0))
