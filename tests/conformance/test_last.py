"""Last values."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading

import pytest
from conformance.subjects import LENGTH, PATIENCE

import penstock

AROUND = 3 * (1 << 16) // LENGTH  # further than any of these channels is large


def sent_and_read(place, count):
    """A publication whose `count` messages were read by its only reader."""
    pub, first = place.waiting_pair()
    for number in range(count):
        pub.send(place.message(number), timeout=PATIENCE)
        assert place.take(first, 1) == [number]
    return pub, first


def test_last_message(place):
    """`last=1` begins with the newest message, though it was sent long ago and read by everybody. The newer ones follow."""
    pub, first = sent_and_read(place, 5)
    sub = place.subscribe(last=1)
    assert place.take(sub, 1) == [4]
    assert sub.try_recv() is None
    pub.send(place.message(5), timeout=PATIENCE)
    pub.send(place.message(6), timeout=PATIENCE)
    assert place.take(sub, 2) == place.take(first, 2) == [5, 6]
    assert not sub.lost_messages


@pytest.mark.parametrize("count", [2, 3, 7])
def test_last_messages(place, count):
    """`last=N` begins with the newest N messages, wherever the channel's memory begins again. None comes twice."""
    pub, first = sent_and_read(place, 1)
    for number in range(1, 60):
        for more in range((number - 1) * 17 + 1, number * 17 + 1):  # no multiple of what a part of the memory holds
            pub.send(place.message(more), timeout=PATIENCE)
            assert place.take(first, 1) == [more]
        with place.subscribe(last=count) as sub:
            assert place.take(sub, count) == list(range(number * 17 + 1 - count, number * 17 + 1))
            assert sub.try_recv() is None


def test_last_more_than_kept(place):
    """`last=N` with fewer than N messages kept begins with the oldest of them."""
    pub, first = sent_and_read(place, 3)
    with place.subscribe(last=1 << 40) as sub:
        assert place.take(sub, 3) == [0, 1, 2]
    for number in range(3, AROUND):
        pub.send(place.message(number), timeout=PATIENCE)
        assert place.take(first, 1) == [number]
    sub = place.subscribe(last=1 << 40)
    kept = []
    while (message := sub.try_recv()) is not None:
        kept.append(place.number(message))
        del message
    assert kept == list(range(AROUND - len(kept), AROUND))
    assert len(kept) > 4
    assert not sub.lost_messages


def test_last_nothing(place):
    """`last=0` is `start="newest"`; `last=N` of a channel without a message begins with its first one."""
    pub, first = place.waiting_pair()
    early = place.subscribe(last=2)
    assert early.try_recv() is None
    pub.wait_for_readers(2, timeout=PATIENCE)
    pub.send(place.message(1), timeout=PATIENCE)
    assert place.take(early, 1) == place.take(first, 1) == [1]
    late = place.subscribe(last=0)
    assert late.try_recv() is None
    pub.send(place.message(2), timeout=PATIENCE)
    assert place.take(late, 1) == place.take(early, 1) == [2]


def test_last_of_an_open_channel(place):
    """A subscription with `last=1` that is older than the channel begins with the first message."""
    sub = place.subscribe(last=1)
    assert sub.try_recv() is None
    pub = place.publish(**place.subject.waiting[0])
    for number in range(3):
        pub.send(place.message(number), timeout=PATIENCE)
    assert place.take(sub, 3) == [0, 1, 2]


def test_last_after_the_end(place):
    """`last=1` gives the newest message after its publication has closed, too."""
    pub, _ = sent_and_read(place, 3)
    pub.close()
    assert place.take(place.subscribe(last=1), 1) == [2]


def test_last_of_fragments(place):
    """`last=1` gives the newest message whole, also if it takes several fragments, and passes those that stand between them."""
    pub, first = place.waiting_pair()
    place.subscribe(last=1).close()
    long = bytes(range(256)) * (pub.max_payload // 256 + 10)
    for body in (b"before", long):
        pub.send(body, timeout=PATIENCE)
        assert bytes(place.body(first.recv(timeout=PATIENCE))) == body
    sub = place.subscribe(last=1)
    assert bytes(place.body(sub.recv(timeout=PATIENCE))) == long
    pub.send(b"after", timeout=PATIENCE)
    assert bytes(place.body(first.recv(timeout=PATIENCE))) == b"after"
    assert bytes(place.body(sub.recv(timeout=PATIENCE))) == b"after"
    two = place.subscribe(last=2)
    assert [bytes(place.body(two.recv(timeout=PATIENCE))) for _ in range(2)] == [long, b"after"]


def test_last_awaited(place):
    """`last=1` works in an event loop, in batches and in place."""
    sent_and_read(place, 3)

    async def newest() -> int:
        return place.number(await place.subscribe(last=1).recv_async(timeout=PATIENCE))

    assert asyncio.run(newest()) == 2
    assert [place.number(message) for message in place.subscribe(last=2).poll()] == [1, 2]
    with place.subscribe(last=1).borrow(timeout=PATIENCE) as view:
        assert bytes(place.body(view)) == bytes(place.message(2))
    assert place.subscribe(last=2).poll_arrow().num_rows == 2


def test_bad_last(place):
    """`last` is a whole number from 0 on, and no other `start` goes with it. Anything else is `Invalid`."""
    sent_and_read(place, 1)
    place.subscribe(last=1)
    for wrong in (-1, 1 << 63, 1.5, "1", True):
        with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: .*last is "):
            place.subscribe(last=wrong)
    for start in ("earliest", 0):
        with pytest.raises(penstock.Invalid, match="either last or start"):
            place.subscribe(last=1, start=start)


def test_last_while_written(place):
    """A reader that comes with `last=1` while a writer is busy begins with a message that is as new as its opening, and misses none from there on."""
    pub, first = place.waiting_pair()
    newest, ended = 0, threading.Event()
    pub.send(place.message(0), timeout=PATIENCE)
    assert place.take(first, 1) == [0]

    def write() -> None:
        nonlocal newest
        for number in itertools.count(1):
            if ended.is_set():
                return
            pub.send(place.message(number), timeout=PATIENCE)
            assert place.take(first, 1) == [number]
            newest = number
            os.sched_yield()  # the reader gets the interpreter

    writer = threading.Thread(target=write, daemon=True)
    place.subscribe(last=1).close()
    writer.start()
    try:
        for _ in range(60):
            before = newest
            with place.subscribe(last=1, **place.subject.waiting[1]) as sub:
                after = newest + 1
                got, lost = [], 0
                while len(got) < 8:
                    got.append(place.number(sub.recv(timeout=PATIENCE)))
                    lost = sub.lost_messages or 0
                assert got[0] >= before
                assert got[0] <= after + lost
                assert got[-1] - got[0] + 1 <= len(got) + lost
                assert got == sorted(set(got))
    finally:
        ended.set()
        writer.join(PATIENCE)
    assert not writer.is_alive()
