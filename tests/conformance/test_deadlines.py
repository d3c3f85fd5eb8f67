"""Deadlines of waits."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from conformance import deadlines
from conformance.deadlines import joining, keeps, killed, reading, writing
from conformance.subjects import PATIENCE, Place

import penstock

Steps = Iterator[tuple[list[deadlines.Call], Any]]


def _ending(place: Place) -> dict[str, Any]:
    return {} if place.subject.kind in ("zmq", "member") else {"until_end": True}


def _met(place: Place, **options: Any) -> tuple[Any, Any]:
    pub = place.publish()
    sub = place.subscribe(**options)
    pub.wait_for_readers(1, timeout=PATIENCE)
    return pub, sub


def _early(place: Place) -> Steps:
    for options in ({}, _ending(place)):
        sub = place.subscribe(**options)
        yield reading(sub), sub


def _empty(place: Place) -> Steps:
    for options in ({}, _ending(place)):
        pub, sub = _met(place, **options)
        yield [*reading(sub), *joining(pub)], sub
        pub.close()


def _decided_late(place: Place) -> Steps:
    for options in ({}, _ending(place)):
        sub = place.subscribe(**options)
        pub = place.publish()
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.close()  # it was there, and sent nothing
        yield reading(sub), sub


def _ended(place: Place) -> Steps:
    for sent in (0, 3):
        pub, sub = _met(place, **_ending(place))
        for number in range(sent):
            pub.send(place.message(number), timeout=PATIENCE)
        pub.close()
        yield reading(sub), sub
        sub.close()


def _dead_writer(place: Place) -> Steps:
    for options in ({}, _ending(place)):
        sub = None
        with contextlib.suppress(penstock.NotFound):
            sub = place.subscribe(**options)

        def write() -> None:
            with contextlib.suppress(penstock.PenstockError):
                pub = place.publish()
                pub.wait_for_readers(1, timeout=1)
                pub.send(place.message(1), timeout=1)

        killed(write)
        with contextlib.suppress(penstock.NotFound):  # a fake channel is within its process
            sub = sub or place.subscribe(**options)
        if sub is None:
            continue
        yield reading(sub), sub


def _full(place: Place) -> Steps:
    pub, sub = place.waiting_pair()
    with contextlib.suppress(AssertionError):  # a ring is never full
        place.fill(pub) if place.subject.kind != "ring" else None
    yield writing(pub, place.message(1)), None
    sub.close()
    yield writing(pub, place.message(1)), None


def _dead_reader(place: Place) -> Steps:
    pub = place.publish(**place.subject.waiting[0])

    def read() -> None:
        sub = place.subscribe(**place.subject.waiting[1])
        sub.try_recv()

    killed(read)
    yield writing(pub, place.message(1)), None


def _closed(place: Place) -> Steps:
    pub, sub = _met(place)
    pub.close()
    sub.close()
    yield [*reading(sub), *writing(pub, place.message(1))], sub


def _removed(place: Place) -> Steps:
    pub, sub = _met(place)
    penstock.remove(place.uri)
    yield [*reading(sub), *writing(pub, place.message(1))], sub


def _recorded(place: Place) -> Steps:
    with tempfile.TemporaryDirectory() as folder:
        archive, pub = penstock.Archive(folder), place.publish()
        recorder = archive.record(place.uri, start="newest")
        pub.send(place.message(1), timeout=PATIENCE)
        while not recorder.recordings:
            recorder.join(0.01)

        def follow(limit: float) -> None:
            for _ in archive.follow(min(recorder.recordings.values()), timeout=limit):
                pass

        yield [("join", recorder.join), ("follow", follow)], None
        recorder.stop()
        yield [("join", recorder.join), ("follow", follow)], None


def test_deadline_recorded(place):
    """`follow` and a recorder's `join` keep their deadlines, while the recorder runs and after its end."""
    keeps(place, _recorded)


def test_deadline_early(place):
    """A wait keeps its deadline on a subscription that is older than its channel."""
    keeps(place, _early, loops=True)


def test_deadline_empty(place):
    """A wait keeps its deadline where nothing was sent."""
    keeps(place, _empty, loops=True)


def test_deadline_decided_late(place):
    """A wait keeps its deadline where a publication came after the subscription and closed without a message."""
    keeps(place, _decided_late, loops=True)


def test_deadline_ended(place):
    """A wait ends at the end of the stream, whether or not it had a message."""
    keeps(place, _ended, loops=True)


def test_deadline_dead_writer(place):
    """A wait keeps its deadline when the publication's process was killed."""
    keeps(place, _dead_writer, loops=True)


def test_deadline_full(place):
    """A wait for room keeps its deadline, and goes on when the reader has left."""
    keeps(place, _full)


def test_deadline_dead_reader(place):
    """A wait for room or for readers keeps its deadline when the reader's process was killed."""
    keeps(place, _dead_reader)


def test_deadline_closed(place):
    """A call on a closed handle returns at once."""
    keeps(place, _closed, loops=True)


def test_deadline_removed(place):
    """A wait keeps its deadline on a channel that was removed."""
    keeps(place, _removed, loops=True)
