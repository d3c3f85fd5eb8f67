"""Members that live are counted, and no others."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.children import Child, Link
from conformance.subjects import PATIENCE, Place

import penstock
from penstock.watch import metrics
from penstock.watch.rates import Rates

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
ALIVE = ("shm", "udp")  # backends that `channels`, and with it every list of channels, looks at


@pytest.fixture
def start(place: Place) -> Iterator[Callable[[Callable[[Link], Any]], Child]]:
    """Starts children, and leaves none behind."""
    children: list[Child] = []

    def forked(work: Callable[[Link], Any]) -> Child:
        children.append(Child(work, late=place.subject.backend == "fake"))
        return children[-1]

    yield forked
    for child in children:
        child.close()


def read(place: Place, link: Link) -> None:
    """A reader that says when it is there, and receives one message when the test says so."""
    link.heed()
    sub = place.subscribe()
    link.say()
    link.heed()
    place.take(sub, 1)
    link.say()
    link.heed()


def listen(place: Place, link: Link) -> None:
    """The README's `listen.py`: three messages. It is wrong if one is missing."""
    link.heed()
    sub = place.subscribe()
    link.say()
    assert place.take(sub, 3) == [0, 1, 2]


def write(place: Place, link: Link) -> None:
    """A writer that says when it is there."""
    link.heed()
    place.publish()
    link.say()
    link.heed()


def joined(place: Place, child: Child, pub: Any, count: int = 1) -> None:
    """The child's handle is open, and counted by the publication."""
    child.go()
    child.hear()
    pub.wait_for_readers(count, timeout=PATIENCE)


def asked(place: Place, pub: Any) -> dict[str, tuple[int, int]]:
    """(writers, readers) by every way of asking. A member both writes and reads: only others are counted here, as its handle does."""
    own = place.subject.kind == "member"
    found = {"readers": (1, pub.readers)}
    if place.subject.kind != "zmq":
        statuses = {"statistics": pub.statistics(), "inspect": penstock.inspect(place.uri)}
        if place.subject.backend in ALIVE:
            (statuses["channels"],) = penstock.list_channels()
            (rate,) = Rates(time.monotonic).update(penstock.list_channels())  # of `top` and the monitor
            statuses["rates"] = rate.status
            found["rates of members"] = (
                sum(one.member.writes for one in rate.members),
                sum(one.member.reads for one in rate.members) - own,
            )
            gauges = dict(
                line.split(" ") for line in metrics.text().splitlines() if "_channel_" in line and line[0] != "#"
            )
            of = next(name for name in gauges if name.startswith("penstock_channel_readers"))
            writers = gauges[of.replace("_readers", "_writers")]
            found["metrics"] = (int(float(writers)), int(float(gauges[of])) - own)
        for way, status in statuses.items():
            found[way] = (status.writers, status.readers - own)
            reading = [member for member in status.members if member.reads]
            assert len(reading) == status.readers
    return found


def counted(place: Place, pub: Any, readers: int) -> None:
    """Every way of asking says now that there are so many readers and one writer. ZeroMQ says later that a reader has gone."""
    deadline = time.monotonic() + PATIENCE
    while place.subject.kind == "zmq" and pub.readers != readers:
        assert time.monotonic() < deadline
    if place.subject.kind == "zmq":
        assert pub.readers == readers
        return
    found = asked(place, pub)
    wanted = (1 + readers if place.subject.kind == "member" else 1, readers)  # each member writes, too
    assert found == {way: (1, readers) if way == "readers" else wanted for way in found}
    assert pub.connected == (readers > 0) if place.subject.kind != "member" else True


def refuses(pub: Any, count: int) -> None:
    """A wait for so many readers says no, in both forms."""
    with pytest.raises(penstock.TimedOut):
        pub.wait_for_readers(count, timeout=0)
    with pytest.raises(penstock.TimedOut):
        asyncio.run(pub.wait_for_readers_async(count, timeout=0))


def test_a_killed_reader_is_not_counted(place, start):
    """A reader that was killed is not counted, by any way of asking; a wait for readers does not end by it."""
    child = start(lambda link: read(place, link))
    pub = place.publish()
    joined(place, child, pub)
    counted(place, pub, 1)
    child.kill()
    counted(place, pub, 0)
    refuses(pub, 1)


def test_a_killed_reader_has_no_lag(place, start):
    """A reader that was killed is behind nobody: its lag goes with it, and does not grow."""
    child = start(lambda link: read(place, link))
    pub = place.publish()
    joined(place, child, pub)
    for number in range(3):
        pub.send(place.message(number), timeout=PATIENCE)
    child.kill()
    for number in range(3):
        pub.offer(place.message(number))
    status = pub.statistics()
    assert {member.pid for member in status.members} == {os.getpid()}
    if place.subject.kind != "member":  # which reads, too
        assert status.lag == 0
    if place.subject.kind not in (
        "member",
        "pipe",
        "udp",
    ):  # a pipe counts what waits for any reader, udp what is not sent
        assert pub.lag == 0


def test_a_stopped_reader_is_counted(place, start):
    """A reader that is stopped is counted: it lives. When it continues it receives."""
    child = start(lambda link: read(place, link))
    pub = place.publish()
    joined(place, child, pub)
    child.stop()
    counted(place, pub, 1)
    pub.wait_for_readers(1, timeout=0)
    child.go_on()
    counted(place, pub, 1)
    pub.send(place.message(7), timeout=PATIENCE)
    child.go()
    child.hear()


def test_a_killed_writer_is_not_counted(place, start):
    """A writer that was killed is not counted."""
    child = start(lambda link: write(place, link))
    if place.subject.backend == "fake":
        place.publish().close()  # a child has this process's fakes
    child.go()
    child.hear()
    sub = place.subscribe()
    own = place.subject.kind == "member"
    assert (sub.statistics().writers, penstock.inspect(place.uri).writers) == (1 + own, 1 + own)
    child.stop()
    assert (sub.statistics().writers, penstock.inspect(place.uri).writers) == (1 + own, 1 + own)
    child.go_on()
    child.kill()
    assert (sub.statistics().writers, penstock.inspect(place.uri).writers) == (own, own)


def test_a_listener_killed_before_the_sensor_starts(place, start):
    """A listener is killed, the sensor starts and waits, the listener starts again: it gets every message."""
    first, second = start(lambda link: listen(place, link)), start(lambda link: listen(place, link))
    if place.subject.kind == "frames" or place.subject.backend == "fake":
        place.publish().close()  # a frame's size is unknown before the first publication; a child has this process's fakes
    first.go()
    first.hear()
    first.kill()
    with place.publish() as pub:
        refuses(pub, 1)
        second.go()
        pub.wait_for_readers(1, timeout=PATIENCE)
        for number in range(3):
            pub.send(place.message(number), timeout=PATIENCE)
        assert second.wait() == 0


def test_a_listener_killed_beside_the_sensor(place, start):
    """A listener that the sensor has seen is killed. The sensor waits for a reader: it gets every message."""
    first, second = start(lambda link: listen(place, link)), start(lambda link: listen(place, link))
    pub = place.publish()
    joined(place, first, pub)
    first.kill()
    if place.subject.kind == "zmq":
        counted(place, pub, 0)
    waited = threading.Thread(target=pub.wait_for_readers, args=(1, PATIENCE))
    waited.start()
    second.go()
    waited.join(PATIENCE)
    for number in range(3):
        pub.send(place.message(number), timeout=PATIENCE)
    assert second.wait() == 0


def test_one_of_two_readers_is_killed(place, start):
    """Of two readers one is killed: the other one is counted, and a new one beside it."""
    first, second, third = (start(lambda link: read(place, link)) for _ in range(3))
    pub = place.publish()
    joined(place, first, pub)
    joined(place, second, pub, 2)
    first.kill()
    if place.subject.kind == "udp":  # another process takes the socket over, and says how many read
        until(lambda: pub.readers == 1)
    counted(place, pub, 1)
    joined(place, third, pub, 2)
    if place.subject.kind == "udp":
        until(lambda: pub.readers == 2)
    counted(place, pub, 2)


def test_ends_of_one_process_count(place):
    """Several ends of one process count, each; those that are closed do not."""
    pub = place.publish()
    subs = [place.subscribe() for _ in range(3)]
    place.meet(pub, *subs)
    counted(place, pub, 3)
    threads = [threading.Thread(target=sub.close) for sub in subs[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if place.subject.kind in ("udp", "zmq"):
        until(lambda: pub.readers == 1)
    counted(place, pub, 1)


def test_counts_never_fall(place, start):
    """Counts of a killed reader stay in the channel's totals, also when another one has taken its place."""
    child = start(lambda link: read(place, link))
    pub = place.publish()
    joined(place, child, pub)
    pub.send(place.message(1), timeout=PATIENCE)
    child.go()
    child.hear()
    before = penstock.inspect(place.uri).totals
    assert before.messages_received == 1
    child.kill()
    dead = penstock.inspect(place.uri).totals
    sub = place.subscribe()
    place.meet(pub, sub)
    after = penstock.inspect(place.uri).totals
    sub.close()
    closed = penstock.inspect(place.uri).totals
    counts = [
        (t.messages_sent, t.bytes_sent, t.messages_received, t.bytes_received) for t in (before, dead, after, closed)
    ]
    assert counts == [counts[0]] * 4
    assert closed.reaped >= 1


def test_series_of_the_dead_vanish(place, start):
    """A member that was killed has no series in the metrics, and no counter of its channel falls."""
    child = start(lambda link: read(place, link))
    pub = place.publish()
    joined(place, child, pub)
    pub.send(place.message(1), timeout=PATIENCE)
    child.go()
    child.hear()
    before = metrics.text(members=True)
    assert f'pid="{child.pid}"' in before
    child.kill()
    after = metrics.text(members=True)
    assert f'pid="{child.pid}"' not in after
    assert f'pid="{os.getpid()}"' in after
    totals = [
        {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}
        for text in (before, after)
    ]
    fell = {
        name
        for name, value in totals[0].items()
        if name.startswith("penstock_channel_") and "_total" in name and totals[1][name] < value
    }
    assert fell == set()


def until(so: Callable[[], bool]) -> None:
    """Looks until it is so; a network says so later."""
    deadline = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < deadline
