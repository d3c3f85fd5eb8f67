"""Streaming queries whose driver, JVM, executors and Python processes are killed at any moment, while recorders begin and end and read
recordings are purged: nothing is lost, and nothing comes twice.

`PENSTOCK_LONG=1` kills 500 times, in slices of 10. A slice is a test of its own, with its own world: `-k "slice7 or slice8"` runs some.
A JVM that was not killed goes on with the next slice's query, and this process' own session reads the rest: most kills cost no JVM.
"""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading

import duckdb
import polars
import psutil
import pytest
from conftest import LONG, sized
from spark import stream_victim

import penstock
from penstock import tables
from penstock.tables.consumer import name_of
from penstock.tables.delta.places import Place

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CHANNELS = ("log:k1", "log:k2", "log:keys")
LOCAL, CLUSTER = "local[2,8]", "local-cluster[2,1,512]"
KILLS = sized(1, 3, 10)
SLICES = range(50 if LONG else 1)
# How often what is killed. The query goes on without an executor, a daemon or a worker; the others take a new session.
WEIGHTS = {
    LOCAL: {"worker": 9, "daemon": 5, "planner": 3, "jvm": 1, "driver": 2},
    CLUSTER: {"executor": 9, "worker": 3, "daemon": 3, "planner": 2, "jvm": 1, "driver": 1},
}


def kind_of(process, root):
    """The role of a process of the query, by its command."""
    if process.pid == root:
        return "driver"
    words = " ".join(process.cmdline())
    if process.name() == "java":
        return "executor" if "CoarseGrainedExecutorBackend" in words else "jvm"
    if "streaming_source_runner" in words:
        return "planner"
    if "daemon" in words:
        return "worker" if "daemon" in " ".join(process.parent().cmdline()) else "daemon"
    return "other"


class Victim:
    """The process of a session and all that it starts. It runs one query after another."""

    def __init__(self, master, folder):
        self.master, self.path = master, folder / f"{master.partition('[')[0]}.log"
        self.log = self.path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, stream_victim.__file__, master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "SPARK_WORKER_DIR": str(folder / "work")},
            start_new_session=True,
        )
        self.family: dict[int, psutil.Process] = {}
        self.batches, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self):
        for line in self.process.stdout:
            (self.ended if line.startswith(b"ended") else self.batches).release()
        self.ended.release()
        for _ in range(1000):
            self.batches.release()  # it has ended: nobody waits for a batch

    def _tell(self, line):
        with contextlib.suppress(BrokenPipeError):  # it may have been killed
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
            self.process.stdin.flush()

    def begin(self, what, archive, out):
        """Begins a query."""
        self._tell([what, str(archive), str(out)])

    def stop(self):
        """Ends the query. Whether the session lives on."""
        if self.lives():
            self._tell(None)
            self.ended.acquire()
        if not self.lives():
            self.end()
        return self.lives()

    def lives(self):
        """Whether its driver and its JVM are there."""
        return self.process.poll() is None and "jvm" in self.known()

    def known(self):
        """Every process that it has started, by what it is."""
        found = collections.defaultdict(list)
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for one in [root, *root.children(recursive=True)]:
                self.family[one.pid] = one
                with contextlib.suppress(psutil.NoSuchProcess):
                    found[kind_of(one, root.pid)].append(one)
        return found

    def kill(self, weights, rng):
        """Kills one process, and says what it was. None if there is none."""
        there = {kind: victims for kind, victims in self.known().items() if kind in weights}
        if not there:
            return None
        kind = rng.choices(sorted(there), [weights[kind] for kind in sorted(there)])[0]
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(there[kind]).send_signal(signal.SIGKILL)
        return kind

    def end(self):
        """Ends it, and makes sure that nothing of it is left: a query that goes on unseen would write beside the next one."""
        if self.log.closed:
            return
        self.known()
        for one in self.family.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        psutil.wait_procs(list(self.family.values()))
        self.reading.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()


class Sessions:
    """The victim of a master: the one that is there, or a new one."""

    def __init__(self, folder):
        self.folder, self.there = folder, None

    def of(self, master):
        """A victim that runs no query. One of another master ends: only one JVM besides the test's own is there at a time."""
        if self.there is not None and (self.there.master != master or not self.there.lives()):
            self.there.end()
            self.there = None
        if self.there is None:
            self.there = Victim(master, self.folder)
        return self.there

    def close(self):
        if self.there is not None:
            self.there.end()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    made = Sessions(tmp_path_factory.mktemp("victims"))
    yield made
    made.close()


class World:
    """Publications, recorders, a subscriber, purges. Messages of log:keys bring a new key now and then."""

    def __init__(self, archive, out, what, rng):
        self.archive, self.rng = archive, rng
        codecs = {"log:keys": "json"}
        self.pubs = {name: penstock.publish(name, codec=codecs.get(name), term_length=1 << 18) for name in CHANNELS}
        self.subs = {name: penstock.subscribe(name) for name in CHANNELS}
        self.sent = {name: [] for name in CHANNELS}
        self.heard = {name: [] for name in CHANNELS}
        self.purged = 0
        self.out = penstock.subscribe("log:out") if what == "messages" else None
        self.published = []
        reader = name_of(str(Place.of(out))) if what == "tables" else "victim"  # keeps all from the first message on
        archive.note_consumer(penstock.record.Consumer(reader, None, 0, {}))
        self.recorder = archive.record(list(CHANNELS))

    def message(self, name):
        number = len(self.sent[name])
        if name == "log:keys":
            return {"n": number, f"k{number // 200}": number / 2}
        return b"%s %d %s" % (name.encode(), number, bytes(self.rng.choice([0, 40])))

    def act(self):
        """Something that happens beside the query."""
        for name, pub in self.pubs.items():
            for _ in range(self.rng.choice([0, 1, 50, 200])):
                self.sent[name].append(self.message(name))
                pub.send(self.sent[name][-1])
            self.heard[name] += self.subs[name].poll(100_000)
        self.listen()
        if self.rng.random() < 0.3:
            self.recorder.stop()
            self.recorder = self.archive.record(list(CHANNELS))
        for info in self.archive.list():
            if info.state == "closed" and self.rng.random() < 0.3:
                with contextlib.suppress(penstock.Busy):
                    self.archive.purge(info.id)
                    self.purged += 1

    def listen(self):
        """Takes what the query has published."""
        while self.out is not None and (found := self.out.poll(100_000)):
            self.published += found

    def payloads(self):
        """The messages as they were recorded."""
        encoded = [json.dumps(found, separators=(",", ":")).encode() for found in self.sent["log:keys"]]
        return sorted([*encoded, *(one for name in CHANNELS[:2] for one in self.sent[name])])

    def close(self):
        self.recorder.stop()
        for handle in (*self.pubs.values(), *self.subs.values()):
            handle.close()


def campaign(world, sessions, out, what, master, kills, rng):
    """Kills a query so often. How often what was killed."""
    weights, done = dict(WEIGHTS[master]), collections.Counter()

    def begun():
        found = sessions.of(master)
        found.begin(what, world.archive.path, out)
        return found

    victim = begun()
    try:
        while done.total() < kills:
            if not victim.lives():
                victim = begun()
            if rng.random() < 0.9:  # else while it starts
                world.act()
                victim.batches.acquire()
            while victim.batches.acquire(blocking=False):
                pass  # those of before
            for _ in range(rng.randrange(4)):
                world.act()
                victim.batches.acquire(timeout=rng.random() / 2)  # in the middle of any of its work
            kind = victim.kill(weights, rng)
            if kind is not None:
                done[kind] += 1
                print(f"killed: {kind}", flush=True)
                weights[kind] *= 0.7  # all kinds get their turn
            if kind in ("jvm", "driver"):
                victim.end()
        world.act()
        victim.stop()
    except BaseException:
        victim.end()
        raise
    finally:
        world.close()
    return done


def check_published(world):
    """A subscriber of the query's own channel heard every message once."""
    world.listen()
    world.out.close()
    assert sorted(world.published) == world.payloads()


def read_the_rest(spark, world, out, what):
    """Reads all there is. Spark gives a Python process ten seconds to connect, which a busy machine may not keep: then a run is repeated,
    as after a kill."""
    for left in reversed(range(5)):
        try:
            stream_victim.QUERIES[what](spark, str(world.archive.path), str(out), lambda _: None)
            break
        except Exception as error:
            if left == 0 or "failed to connect back" not in str(error):
                raise


def check_files(spark, world, files, label):
    """Spark, DuckDB and Polars find every message once in these files."""
    expected = world.payloads()
    by_polars = polars.concat([polars.read_parquet(file, columns=["payload"]) for file in files])["payload"].to_list()
    by_duckdb = duckdb.sql("select payload from read_parquet(?)", params=[files]).fetchall()
    by_spark = spark.read.parquet(*files).select("payload").collect()
    for payloads in (by_polars, [row[0] for row in by_duckdb], [bytes(row.payload) for row in by_spark]):
        assert sorted(payloads) == expected, label


def check_tables(spark, world, out):
    """The built-in tables have every message once, and decoded columns, also those of keys that came later."""
    from penstock.spark import table

    check_files(spark, world, [uri.removeprefix("file://") for uri in tables.uris(out, "messages")], "messages")
    sent = world.sent["log:keys"]
    wanted = [(found["n"], next(value for key, value in found.items() if key != "n")) for found in sent]
    keys = sorted({key for found in sent for key in found} - {"n"})
    frame = polars.scan_delta(str(out / "streams" / "log_keys")).sort("n").collect()
    assert sorted(set(frame.columns) & {f"k{number}" for number in range(len(sent) + 1)}) == keys
    assert frame.select("n", polars.coalesce(keys)).rows() == wanted
    rows = table(spark, out, "log:keys").selectExpr("n", f"coalesce({', '.join(keys)}) as v").orderBy("n").collect()
    assert [tuple(row) for row in rows] == wanted
    counted = dict(table(spark, out, "stats").groupBy("stream").sum("messages").collect())
    assert counted == {name: len(found) for name, found in world.sent.items() if found}


@pytest.mark.slow
@pytest.mark.parametrize("number", SLICES, ids=lambda number: f"slice{number}")
def test_a_killed_query_loses_and_doubles_nothing(spark, channels, sessions, archive, tmp_path, rng, tally, number):
    """Slices take turns: a query whose batches become files, the pipeline, and a query that publishes; in one JVM, and with executors of
    their own. All of them share the folder of channels of this process' own session."""
    rng = random.Random(rng.getrandbits(32) + number)
    what, master = ("rows", "tables", "messages")[number % 3], (LOCAL, CLUSTER)[number // 3 % 2]
    out = tmp_path / "out"
    out.mkdir()
    world = World(archive, out, what, rng)
    done = campaign(world, sessions, out, what, master, KILLS, rng)
    read_the_rest(spark, world, out, what)
    for name in CHANNELS:
        assert world.heard[name] == world.sent[name], name
    if what == "rows":
        check_files(spark, world, sorted(map(str, out.glob("batch-*.parquet"))), "batches")
    elif what == "messages":
        check_published(world)
    else:
        check_tables(spark, world, out)
    for kind, count in sorted(done.items()):
        tally(f"kills of a streaming query's processes: {kind}", count)
    print(f"{what} {master}: {dict(done)}, {len(world.payloads())} messages, {world.purged} recordings purged")
    assert not archive.verify()
