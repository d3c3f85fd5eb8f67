"""Live channels as data sets: the parent opens nothing, workers share the messages, killed ones lose none of a pipe, and the end ends it."""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock

sys.path.insert(0, str(Path(__file__).parent))
import fake_torch

PATIENCE = 120  # seconds; only a hang takes so long
VECTOR = penstock.array("f4", (4,))
KINDS = {
    "log": {},
    "ring": {"capacity": 1 << 22},
    "sync": {},
    "pipe": {},
    "frames": {"shape": (4,), "dtype": "f4", "buffers": 200},
}


def publish(kind, name="live"):
    options = dict(KINDS[kind]) if kind == "frames" else {**KINDS[kind], "codec": VECTOR}
    return penstock.publish(f"{kind}:{name}", **options)


def send(pub, count, first=0):
    for n in range(first, first + count):
        pub.send(np.full(4, n, "f4"))


def numbers(rows):
    return [int(row[0]) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_opens_nothing_until_it_is_iterated(kind):
    with publish(kind) as pub:
        data = penstock.live_dataset(f"{kind}:live")
        again = pickle.loads(pickle.dumps(data))
        assert penstock.inspect(f"{kind}:live").readers == 0
        rows = iter(again)
        assert penstock.inspect(f"{kind}:live").readers == 1
        send(pub, 5)
    assert numbers(rows) == [0, 1, 2, 3, 4]
    assert penstock.inspect(f"{kind}:live").readers == 0
    with pytest.raises(StopIteration):
        next(rows)


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "frames"])
def test_it_begins_where_the_channel_was(kind):
    """Messages sent after the data set was made are in it, whenever its iteration begins; and again in the next iteration."""
    with publish(kind) as pub:
        send(pub, 3)
        data = penstock.live_dataset(f"{kind}:live")
        send(pub, 5, first=3)
        rows = iter(data)
        send(pub, 2, first=8)
    assert numbers(rows) == list(range(3, 10))
    if kind != "frames":
        assert numbers(data) == list(range(3, 10))


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_it_may_come_before_the_channel(kind):
    data = penstock.live_dataset(f"{kind}:live")
    rows = iter(data)
    with publish(kind) as pub:
        send(pub, 4)
    assert numbers(rows) == [0, 1, 2, 3]


def test_what_a_channel_no_longer_has_is_counted(caplog):
    with penstock.publish("ring:live", capacity=1 << 16) as pub:
        data = penstock.live_dataset("ring:live")
        for _ in range(1000):
            pub.send(b"x" * 100)
        rows = iter(data)
        assert rows.lost == penstock.inspect("ring:live").position > 0
        pub.send(b"y")
    assert list(rows) == [b"y"]
    assert rows.lost > 0
    assert "too slow" in caplog.text


def test_options_are_those_of_the_kind():
    with penstock.publish("log:live") as pub:
        data = penstock.live_dataset("log:live", until_end=False, timeout=0)
        pub.send(b"x")
        rows = iter(data)
        assert next(rows) == b"x"
        with pytest.raises(penstock.TimedOut):
            next(rows)
        pub.send(b"y")
        assert next(rows) == b"y"
        rows.close()
        rows.close()
    assert list(penstock.live_dataset("log:live", start="earliest")) == [b"x", b"y"]
    with pytest.raises(TypeError, match=r"no option 'until_ned'; did you mean 'until_end'"):
        penstock.live_dataset("log:live", until_ned=True)
    with pytest.raises(penstock.Invalid, match="timeout"):
        penstock.live_dataset("log:live", timeout=-1)


def test_a_message_that_does_not_decode_is_not_the_end():
    with penstock.publish("log:live", codec="json") as pub:
        data = penstock.live_dataset("log:live")
        pub.send({"n": 1})
        penstock._native.core.Publication.send(pub, b"{no json")
        pub.send({"n": 2})
        rows = iter(data)
    assert next(rows) == {"n": 1}
    with pytest.raises(penstock.DecodeError):
        next(rows)
    assert list(rows) == [{"n": 2}]


def work(data, index, count, answers, die_after=None):
    """A worker: tells each message; is killed by itself with one in its hands."""
    if index is not None:
        fake_torch.become_worker(index, count)
    answers.send("begun")
    for number, row in enumerate(data):
        if number == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        answers.send(int(row[0]))
    answers.send("ended")


class Workers:
    """Children that iterate over one data set, and what each has told."""

    def __init__(self, data, count, *, as_torch, method="fork", dying=None):
        context = multiprocessing.get_context(method)
        self.pipes, self.children = [], []
        for index in range(count):
            reads, writes = context.Pipe(duplex=False)
            die_after = 5 if dying == index else None
            given = (data, index if as_torch else None, count, writes, die_after)
            child = context.Process(target=work, args=given)
            child.start()
            writes.close()
            self.pipes.append(reads)
            self.children.append(child)
        for pipe in self.pipes:
            assert pipe.poll(PATIENCE)
            assert pipe.recv() == "begun"

    def told(self):
        """What each child told up to its end."""
        found = [[] for _ in self.pipes]
        for pipe, mine in zip(self.pipes, found, strict=True):
            with contextlib.suppress(EOFError):
                while True:
                    assert pipe.poll(PATIENCE), "a worker does not end"
                    mine.append(pipe.recv())
        for child in self.children:
            child.join()
        return found


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "frames"])
def test_workers_yield_each_message_once(kind):
    with publish(kind) as pub:
        data = penstock.live_dataset(f"{kind}:live")
        workers = Workers(data, 3, as_torch=True)
        pub.wait_for_readers(3)
        send(pub, 150)
    told = workers.told()
    assert all(mine[-1] == "ended" for mine in told)
    assert sorted(one for mine in told for one in mine[:-1]) == list(range(150))
    assert all(len(mine) > 20 for mine in told)  # each has a fair part


@pytest.mark.slow
@pytest.mark.parametrize("as_torch", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_a_pipe(method, as_torch):
    with publish("pipe") as pub:
        data = penstock.live_dataset("pipe:live")
        workers = Workers(data, 3, as_torch=as_torch, method=method)
        send(pub, 300)
    told = workers.told()
    assert all(mine[-1] == "ended" for mine in told)
    assert sorted(one for mine in told for one in mine[:-1]) == list(range(300))


def test_a_killed_worker_loses_no_message_of_a_pipe():
    """What it had in its hands, and what waited for it, goes to the others."""
    with publish("pipe") as pub:
        workers = Workers(penstock.live_dataset("pipe:live"), 3, as_torch=False, dying=1)
        pub.wait_for_readers(1)
        send(pub, 300)
    told = workers.told()
    assert [mine[-1] == "ended" for mine in told] == [True, workers.children[1].exitcode == 0, True]
    assert sorted(one for mine in told for one in mine if one != "ended") == list(range(300))


def test_a_worker_that_is_not_asked_keeps_nothing():
    """As a DataLoader's worker whose turn it is not: what waits for it goes to the worker that is asked, which then ends."""
    with publish("pipe") as pub, pytest.MonkeyPatch.context() as patched:
        data = penstock.live_dataset("pipe:live", timeout=PATIENCE)
        patched.setattr("penstock.export.datasets.live.in_worker", lambda: True)
        first, second = iter(data), iter(data)
        send(pub, 40)
        seen = [int(next(first)[0])]
    seen += numbers(second)
    assert sorted(seen) == list(range(40))
    assert list(first) == []


def test_a_paused_worker_reads_again():
    with publish("pipe") as pub, pytest.MonkeyPatch.context() as patched:
        data = penstock.live_dataset("pipe:live")
        patched.setattr("penstock.export.datasets.live.in_worker", lambda: True)
        both = [iter(data), iter(data)]
        seen = []
        for n in range(200):
            send(pub, 2, first=2 * n)
            seen += [int(next(rows)[0]) for rows in both]
        assert sorted(seen) == list(range(400))
        status = penstock.inspect("pipe:live")
        assert status.details["unread_messages"] == 0
        assert status.details["pipes"] <= 8


def test_workers_of_a_channel_without_positions_are_refused(tmp_path):
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq")
    data = penstock.live_dataset(f"zmq+ipc://{tmp_path}/s")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.export.datasets.live.worker", lambda: penstock.export.datasets.workers.Share(0, 2))
        with pytest.raises(penstock.Unsupported, match="2 workers"):
            iter(data)


@pytest.mark.parametrize("kind", ["log", "pipe"])
def test_torch_loads_each_message_once_without_a_warning(kind):
    """With the DataLoader's own defaults: it asks its workers in turn, and waits for the one whose turn it is."""
    torch_data = pytest.importorskip("torch.utils.data", reason="torch is not installed: pip install torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = torch_data.DataLoader(penstock.live_dataset(f"{kind}:live").torch(), batch_size=8, num_workers=2)
        feeder = threading.Thread(target=feed, args=(kind,))
        seen = []
        feeder.start()
        for batch in loader:
            assert batch.shape[1:] == (4,)
            seen += batch[:, 0].int().tolist()
        feeder.join()
    assert sorted(seen) == list(range(1000))


def feed(kind):
    with publish(kind) as pub:
        send(pub, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_have_each_message_once(kind):
    """For processes that are no workers of a DataLoader. A pipe shares its messages out itself, and says so."""
    with publish(kind) as pub:
        data = penstock.live_dataset(f"{kind}:live")
        if kind == "pipe":
            with pytest.raises(penstock.Unsupported, match="each message goes to one process anyway"):
                data.shard(0, 2)
            return
        parts = [iter(pickle.loads(pickle.dumps(data.shard(rank, 3)))) for rank in range(3)]
        send(pub, 60)
    found = [numbers(part) for part in parts]
    assert sorted(itertools.chain(*found)) == list(range(60))
    assert all(found)
