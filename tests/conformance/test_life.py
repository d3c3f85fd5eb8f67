"""From the first handle to the last."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from conformance.subjects import PATIENCE, Place, Subject

import penstock

spawn = multiprocessing.get_context("spawn")


def _write_until_killed(subject: Subject, uri: str) -> None:
    with penstock.publish(uri, **subject.small) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(subject.message(1), timeout=PATIENCE)
        threading.Event().wait()


def _read_until_killed(subject: Subject, uri: str, there: object) -> None:
    with penstock.subscribe(uri, **subject.reader) as sub:
        sub.recv(timeout=PATIENCE)
        there.set()
        threading.Event().wait()


def test_codec(place):
    """A channel carries a codec: readers that name none receive what was sent, as it was. A frames channel's is `penstock.array`."""
    codec, value, _ = place.subject.codec
    pub = place.publish(codec=codec)
    sub = place.subscribe()
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(value)
    np.testing.assert_equal(place.body(sub.recv(timeout=PATIENCE)), value)
    assert pub.codec.spec == sub.codec.spec


def test_objects(place):
    """A codec may be one for objects: `"json"`, `"msgpack"`, a class."""
    pub = place.publish(codec="json")
    sub = place.subscribe(codec="json")
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send({"a": [1, 2.5, None]})
    assert place.body(sub.recv(timeout=PATIENCE)) == {"a": [1, 2.5, None]}


def test_another_codec(place):
    """Another codec than the channel's is a `Mismatch`."""
    codec, _, other = place.subject.codec
    pub = place.publish(codec=codec)
    with pytest.raises(penstock.Mismatch, match=place.pattern):
        place.subscribe(codec=other)
    assert not pub.closed


def test_pickle_publication(place):
    """A publication pickles into a new publication on the same channel."""
    pub, sub = place.pair()
    data = pickle.dumps(pub)
    pub.close()
    with pickle.loads(data) as again:
        place.meet(again, sub)
        again.send(place.message(4), timeout=PATIENCE)
        assert place.take(sub, 1) == [4]


def test_pickle_subscription(place):
    """A subscription pickles into a new one. It continues at the same position where the channel keeps messages."""
    pub, sub = place.pair()
    with pickle.loads(pickle.dumps(sub)) as again:
        pub.wait_for_readers(2, timeout=PATIENCE)
        sub.close()
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(place.message(2), timeout=PATIENCE)
        assert place.take(again, 1) == [2]


def test_pickle_closed(place):
    """A closed handle does not pickle: `Closed`, which names the channel."""
    pub, sub = place.pair()
    for handle in (pub, sub):
        handle.close()
        with pytest.raises(penstock.Closed, match=place.pattern):
            pickle.dumps(handle)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork(place):
    """Handles that a forked child inherits work in the child."""
    pub, sub = place.pair()
    child = os.fork()
    if child == 0:
        number = 99
        try:
            number = place.number(sub.recv(timeout=PATIENCE))
        finally:
            os._exit(number)
    pub.wait_for_readers(2, timeout=PATIENCE)
    for _ in range(2):
        pub.send(place.message(5), timeout=PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert place.take(sub, 1) == [5]


def test_killed_writer(place):
    """Messages that a writer sent before `kill -9` arrive. Another writer continues."""
    place.publish().close()
    sub = place.subscribe()
    child = spawn.Process(target=_write_until_killed, args=(place.subject, place.uri))
    child.start()
    try:
        assert place.take(sub, 1) == [1]
    finally:
        child.kill()
        child.join()
    pub = place.publish()
    place.meet(pub, sub)
    pub.send(place.message(2), timeout=PATIENCE)
    assert place.take(sub, 1) == [2]


def test_killed_reader(place):
    """A reader that is killed delays no writer."""
    pub = place.publish()
    there = spawn.Event()
    child = spawn.Process(target=_read_until_killed, args=(place.subject, place.uri, there))
    child.start()
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(0), timeout=PATIENCE)
    assert there.wait(PATIENCE)
    sub = place.subscribe()
    pub.wait_for_readers(2, timeout=PATIENCE)
    child.kill()
    child.join()
    for i in range(3000):
        pub.send(place.message(i), timeout=PATIENCE)
        if place.subject.kind == "pipe":
            while sub.try_recv() is not None:
                pass
        else:
            assert place.take(sub, 1) == [i]


def test_inspect(place):
    """`inspect` and `statistics()` say the same: writers and readers, messages and bytes sent and received, lags."""
    pub, sub = place.pair()
    pub.send(place.message(1))
    end = pub.send(place.message(2))
    sub.recv(timeout=PATIENCE)
    status = penstock.inspect(place.uri)
    assert status.kind == {"member": "sync"}.get(place.subject.kind, place.subject.kind)
    assert status.totals.messages_sent == 2
    assert status.totals.messages_received == 1
    assert status.position == end
    assert status.lag >= sub.lag > 0  # readers say where they are now and then
    assert {member.pid for member in status.members} == {os.getpid()}
    if place.subject.backend in ("shm", "udp"):
        assert [found.channel for found in penstock.list_channels()] == [status.channel]
    assert pub.statistics().totals == sub.statistics().totals == status.totals


def test_latency(place):
    """How long messages take from send to receive is counted for each subscription, and in all for the channel."""
    pub, sub = place.pair()
    pub.send(place.message(1))
    sub.recv(timeout=PATIENCE)
    status = sub.statistics()
    (latency,) = [member.latency for member in status.members if member.reads and member.latency.messages]
    assert (latency.messages, latency.measured) == (1, 1), "the first message found a reader that had nothing to read"
    assert 0 <= latency.max_ns == latency.sum_ns
    assert latency == status.latency == penstock.inspect(place.uri).latency


def test_recorded(place, tmp_path):
    """A channel can be recorded. The recording has every message."""
    archive = penstock.Archive(tmp_path / "archive")
    pub = place.publish()
    with archive.record(place.uri):
        for i in range(10):
            pub.send(place.message(i), timeout=PATIENCE)
        place.settle(pub)
    (recording,) = archive.list()
    assert recording.messages == 10
    assert archive.verify() == []


def test_until_end(place):
    """With `until_end=True`, iteration ends once the last publication has closed and everything was read."""
    pub = place.publish()
    sub = place.subscribe(until_end=True)
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(1))
    pub.close()
    assert [place.number(message) for message in sub] == [1]
    with pytest.raises(penstock.EndOfStream, match=place.pattern):
        sub.recv(timeout=PATIENCE)


def test_remove(place):
    """`remove` takes the name away. Handles that are open keep the channel."""
    pub, sub = place.pair()
    penstock.remove(place.uri)
    pub.send(place.message(1))
    assert place.take(sub, 1) == [1]
    with pytest.raises(penstock.NotFound, match=place.pattern):
        penstock.inspect(place.uri)
    with pytest.raises(penstock.NotFound, match=place.pattern):
        penstock.remove(place.uri)


def test_any_order(place: Place):
    """A subscription may come before the first publication. It misses nothing."""
    got: list[int] = []
    sub = place.subscribe()
    thread = threading.Thread(target=lambda: got.extend(place.take(sub, 1)))
    thread.start()
    pub = place.publish()
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(1))
    thread.join(PATIENCE)
    assert got == [1]
