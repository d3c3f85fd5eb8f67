"""Queries beside writers, a recorder, a pipeline and other queries that are killed at any moment, and an oracle that saw every send."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from conftest import LONG
from tables.lake import victims

import penstock
from penstock.channels.storage.looking import look_at
from penstock.channels.uri.opener import parse

pytest.importorskip("duckdb")
LIVES = int(os.environ.get("PENSTOCK_LIVES", "1000" if LONG else "1"))
QUERIES = 40  # of a life
ROLES = {"write": 2, "record": 1, "commit": 1, "query": 1}


class Life:
    """One channel, its archive and its tables, and the processes that use them."""

    def __init__(self, folder, rng):
        self.folder, self.rng, self.lives, self.killed = folder, rng, [], 0
        self.writers = 0
        penstock.Archive(folder / "archive")
        self.lake = penstock.lake(folder / "tables", folder / "archive")
        for role, count in ROLES.items():
            for _ in range(count):
                self.start(role)

    def wait_for_writers(self):
        while not all(map(len, self.sent())):
            self.check_alive()
            time.sleep(0.01)

    def start(self, role):
        number = self.writers
        if role == "write":
            victims.notes(self.folder, number, "w+")
            self.writers += 1
        command = [sys.executable, victims.__file__, role, str(self.folder), str(number)]
        self.lives.append((role, subprocess.Popen(command, stderr=subprocess.PIPE)))

    def kill(self):
        """Kills one, and starts another in its place."""
        role, child = self.lives.pop(self.rng.randrange(len(self.lives)))
        child.send_signal(signal.SIGKILL)
        with child:
            pass
        assert child.returncode == -signal.SIGKILL
        self.killed += 1
        self.start(role)

    def end(self):
        for _, child in self.lives:
            child.kill()
            with child:
                pass

    def check_alive(self):
        for role, child in self.lives:
            if child.poll() is not None:
                raise AssertionError(f"{role} ended: {child.stderr.read().decode()}")

    # ---- the oracle ----

    def sent(self):
        """For each writer where its messages ended, as far as it has begun them; 0 where its send has not returned."""
        found = []
        for number in range(self.writers):
            noted = victims.notes(self.folder, number)
            found.append(np.array(noted[1 : 1 + int(noted[0])]))
        return found

    def recorded(self):
        """Positions that recordings have."""
        with contextlib.suppress(penstock.PenstockError):
            return [
                (info.start_position, info.end_position) for info in penstock.Archive(self.folder / "archive").list()
            ]
        return []

    def query(self):
        """One query, and all that the oracle demands of it."""
        before, recorded = self.sent(), self.recorded()
        cut = self.lake.cut(victims.URI)
        rows = cut.sql(f"select w, n, position, decode_error from '{victims.URI}'")
        after, oldest, later = self.sent(), look_at(parse(victims.URI)).oldest(), self.recorded()
        assert rows["decode_error"].null_count == rows.num_rows
        writer, number = (rows[name].cast(pa.int64()).to_numpy() for name in ("w", "n"))
        position = rows["position"].to_numpy()
        end_recorded = max((end for _, end in later), default=None)
        for one, (early, late) in enumerate(itertools.zip_longest(before, after, fillvalue=np.zeros(0, np.int64))):
            got, at = number[writer == one], position[writer == one]
            assert len(np.unique(got)) == len(got), "a row is there twice"
            assert (got < len(late)).all(), "nobody sent it"
            known = late[got] != 0
            assert (late[got][known] == at[known] + victims.FRAME).all()
            lost = np.setdiff1d(np.flatnonzero(early), got)
            for end in early[lost].tolist():
                start = end - victims.FRAME
                assert not any(low <= start and end <= high for low, high in recorded), "a recorded message is missing"
                assert start < oldest, "a message of memory is missing"
                if end_recorded is not None and start >= end_recorded:
                    assert any(span.start <= start and end <= span.end for span in cut.missing), "it is not told"
        assert (writer < len(after)).all()
        return rows.num_rows


@pytest.mark.slow
def test_queries_are_right_whoever_dies(tmp_path, rng, tally):
    queries, killed = 0, 0
    for number in range(LIVES):
        folder = tmp_path / str(number)
        folder.mkdir()
        life = Life(folder, random.Random(rng.randrange(1 << 32)))
        try:
            life.wait_for_writers()
            for _ in range(QUERIES):
                life.check_alive()
                assert life.query() >= 0
                queries += 1
                if life.rng.random() < 0.3:
                    life.kill()
        finally:
            life.end()
            penstock.remove(victims.URI)
        killed += life.killed
    tally("queries beside deaths", queries)
    tally("processes killed beside queries", killed)
