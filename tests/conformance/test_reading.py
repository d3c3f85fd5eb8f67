"""Reading."""

from __future__ import annotations

import asyncio
import select
import threading

import pytest
from conformance.subjects import LENGTH, PATIENCE

import penstock


def test_subscription(place):
    """`subscribe` returns a `penstock.types.Subscription`: it knows its channel, is a context manager and may be closed twice."""
    place.publish()
    with place.subscribe() as sub:
        assert isinstance(sub, penstock.types.Subscription)
        assert sub.channel == place.uri
        assert not sub.closed
        assert place.uri in repr(sub)
    assert sub.closed
    sub.close()
    with pytest.raises(penstock.Closed, match=place.pattern):
        sub.recv(timeout=0)


def test_recv(place):
    """`recv` returns the messages of one writer in the order in which they were sent."""
    pub, sub = place.pair()
    for i in range(20):
        pub.send(place.message(i))
        assert place.take(sub, 1) == [i]


def test_nothing_yet(place):
    """While there is nothing, `recv` raises `TimedOut` (a `TimeoutError`) after its timeout, `try_recv` returns None, `poll` an empty list."""
    _, sub = place.pair()
    for timeout in (0, 0.01):
        with pytest.raises(penstock.TimedOut, match=place.pattern) as caught:
            sub.recv(timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
    assert sub.try_recv() is None
    assert sub.poll() == []
    assert sub.poll_arrow().num_rows == 0
    with pytest.raises(penstock.TimedOut):
        sub.borrow(timeout=0.01).__enter__()


def test_bad_timeout(place):
    """A `timeout` is None or seconds from 0 on. Anything else is `Invalid`, in every call that waits for messages or readers."""
    pub, sub = place.pair()
    for wrong in (-1, float("nan"), -float("inf"), -(10**400), "1", b"1", [], object()):
        for call in (
            lambda wrong=wrong: sub.recv(timeout=wrong),
            lambda wrong=wrong: asyncio.run(sub.recv_async(timeout=wrong)),
            lambda wrong=wrong: sub.borrow(timeout=wrong).__enter__(),
            lambda wrong=wrong: asyncio.run(sub.borrow_async(timeout=wrong)),
            lambda wrong=wrong: pub.wait_for_readers(2, timeout=wrong),
            lambda wrong=wrong: asyncio.run(pub.wait_for_readers_async(2, timeout=wrong)),
            lambda wrong=wrong: penstock.wait([sub], timeout=wrong),
        ):
            with pytest.raises(penstock.Invalid, match="timeout is"):
                call()
    pub.send(place.message(1), timeout=10**400)
    assert place.number(sub.recv(timeout=10**400)) == 1


def test_poll(place):
    """`poll(limit)` takes what is there, up to the limit. It never blocks."""
    pub, sub = place.pair()
    for i in range(8):
        pub.send(place.message(i))
    got = place.take(sub, 1)
    while len(got) < 8:
        some = sub.poll(3)
        assert len(some) <= 3
        got += [place.number(message) for message in some]
    assert got == list(range(8))


def test_iteration(place):
    """`for message in sub` waits for messages. It ends when the handle is closed, by another thread too."""
    pub, sub = place.pair()
    got: list[int] = []
    second = threading.Event()

    def read() -> None:
        for message in sub:
            got.append(place.number(message))
            if len(got) == 2:
                second.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    pub.send(place.message(1))
    pub.send(place.message(2))
    assert second.wait(PATIENCE)
    sub.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert got == [1, 2]


def test_arecv(place):
    """`recv_async` and `async for` wait in an event loop. `recv_async(timeout=…)` raises `TimedOut`, as `recv` does."""
    pub, sub = place.pair()

    async def work() -> list[int]:
        with pytest.raises(penstock.TimedOut, match=place.pattern):
            await sub.recv_async(timeout=0.01)
        first = asyncio.ensure_future(sub.recv_async())
        await asyncio.sleep(0)
        pub.send(place.message(1))
        got = [place.number(await asyncio.wait_for(first, PATIENCE))]
        pub.send(place.message(2))
        async for message in sub:
            got.append(place.number(message))
            break
        return got

    assert asyncio.run(work()) == [1, 2]


def test_cancelled_arecv(place):
    """Cancelling `recv_async` loses nothing."""
    pub, sub = place.pair()

    async def work() -> int:
        first = asyncio.ensure_future(sub.recv_async())
        await asyncio.sleep(0)
        pub.send(place.message(1))
        first.cancel()
        try:
            return place.number(await first)
        except asyncio.CancelledError:
            return place.number(await sub.recv_async(timeout=PATIENCE))

    assert asyncio.run(work()) == 1


def test_poll_arrow(place):
    """`poll_arrow` returns one Arrow batch with at least position, session, payload and time."""
    pub, sub = place.pair()
    for i in range(4):
        pub.send(place.message(i))
    rows = 0
    while rows < 4:
        assert penstock.wait([sub], PATIENCE) == [sub]
        batch = sub.poll_arrow()
        assert {"position", "session", "payload", "time"} <= set(batch.schema.names)
        rows += batch.num_rows
    assert rows == 4


def test_limits(place):
    """A limit that is no whole number is a `TypeError`; one below 0 is `Invalid`. The error names the channel. With 0, `poll` and `poll_arrow` return nothing."""
    pub, sub = place.pair()

    def check() -> None:
        for call, names in ((sub.poll, ("limit",)), (sub.poll_arrow, ("limit", "max_bytes"))):
            for name in names:
                for wrong in ("a", 1.5, None):
                    with pytest.raises(TypeError, match=f"^{place.pattern}: .*{name} is a whole number, not "):
                        call(**{name: wrong})
                for wrong in (-1, 1 << 63):
                    with pytest.raises(
                        penstock.Invalid, match=f"^{place.pattern}: .*{name} is {wrong}: it must be from 0 to "
                    ):
                        call(**{name: wrong})

    check()
    pub.send(place.message(1))
    assert penstock.wait([sub], PATIENCE) == [sub]
    check()
    assert sub.poll(0) == []
    assert sub.poll_arrow(0).num_rows == 0
    assert place.take(sub, 1) == [1]


def test_borrow(place):
    """`borrow` reads the next message in place. `borrow_async` does so in an event loop."""
    pub, sub = place.pair()
    pub.send(place.message(9))
    with sub.borrow(timeout=PATIENCE) as view:
        assert bytes(place.body(view)) == bytes(place.message(9))
    assert sub.try_recv() is None

    async def work() -> bytes:
        pub.send(place.message(8))
        with await sub.borrow_async(timeout=PATIENCE) as view:
            return bytes(place.body(view))

    assert asyncio.run(work()) == bytes(place.message(8))


def test_dropped_borrow(place):
    """A message that was borrowed and dropped without a word keeps nobody waiting."""
    pub, sub = place.pair()
    for i in range(3 * (1 << 16) // LENGTH):  # further than any of these channels is large
        pub.send(place.message(i), timeout=PATIENCE)
        sub.borrow(timeout=PATIENCE).__enter__()


def test_fileno(place):
    """`fileno()` is readable as long as there is something to read, and only then."""
    pub, sub = place.pair()
    assert select.select([sub], [], [], 0)[0] == []
    pub.send(place.message(1))
    assert select.select([sub], [], [], PATIENCE)[0] == [sub]
    assert select.select([sub], [], [], PATIENCE)[0] == [sub]  # level-triggered
    assert place.take(sub, 1) == [1]
    deadline = threading.Event()
    while select.select([sub], [], [], 0)[0]:  # a wake-up may linger for a moment after the message was read
        assert sub.try_recv() is None
        deadline.wait(0.001)


def test_wait(place):
    """`penstock.wait` returns the handles that have something to read. `wait_async` does so in an event loop."""
    pub, sub = place.pair()
    for handle in (pub, sub):  # to iterate over it would take its messages
        with pytest.raises(penstock.Invalid, match=place.pattern):
            penstock.wait(handle, timeout=0)
    with pytest.raises(penstock.Invalid, match=place.pattern):
        asyncio.run(penstock.wait_async(sub, timeout=0))
    assert penstock.wait([sub], 0) == []
    pub.send(place.message(1))
    assert penstock.wait([sub], PATIENCE) == [sub]
    assert asyncio.run(penstock.wait_async([sub], PATIENCE)) == [sub]


def test_last(place):
    """`last` has the position, the time and the session of the message received last."""
    pub, sub = place.pair()
    before = pub.position
    after = pub.send(place.message(1))
    sub.recv(timeout=PATIENCE)
    assert before <= sub.last.position < after
    assert sub.last.time_ns > 1_600_000_000_000_000_000
    assert isinstance(sub.last.session, int)


def test_start_newest(place):
    """`start="newest"`, the default, begins with the messages that are sent from now on."""
    pub = place.publish()
    pub.send(place.message(1), timeout=0.1) if place.subject.kind != "pipe" else None
    sub = place.subscribe(start="newest")
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(2))
    assert place.take(sub, 1) == [2]


def test_start_earliest(place):
    """`start="earliest"` begins with the oldest message that the channel keeps."""
    pub, _ = place.pair()
    pub.send(place.message(1))
    pub.send(place.message(2))
    sub = place.subscribe(start="earliest")
    assert place.take(sub, 2) == [1, 2]


def test_start_position(place):
    """`start=` takes a position that `send` returned."""
    pub, first = place.pair()
    pub.send(place.message(1))
    after = pub.send(place.message(2))
    pub.send(place.message(3))
    assert place.take(first, 3) == [1, 2, 3]  # over a network they have arrived by now
    sub = place.subscribe(start=after)
    assert place.take(sub, 1) == [3]


def test_unkept_position(place):
    """A position that the channel does not keep is `Invalid`, or `Unsupported` where it keeps none. The error names the channel."""
    place.publish()
    with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: "):
        place.subscribe(start=1 << 40)


def test_lag(place):
    """`lag` is the number of bytes that were sent and not yet read."""
    pub, sub = place.pair()
    before = pub.position
    after = pub.send(place.message(1))
    place.arrive(sub)
    assert sub.lag == after - before
    sub.recv(timeout=PATIENCE)
    assert sub.lag == 0
    assert sub.position >= 0


def test_received_or_counted(place):
    """A slow reader receives every message, or `lost_messages` counts it; `lost` counts the bytes."""
    pub, sub = place.pair()
    sent = 0
    while sent < 5000 and pub.offer(place.message(sent)) is not None:
        sent += 1
    got = [place.number(message) for message in sub.poll(10_000)]
    while len(got) + (sub.lost_messages or 0) < sent:  # over a network the last ones come when there is room
        got.append(place.number(sub.recv(timeout=PATIENCE)))
    assert sub.try_recv() is None
    assert got == sorted(set(got))
    assert len(got) + sub.lost_messages == sent
    assert (sub.lost == 0) == (sub.lost_messages == 0)


def test_every_reader_gets_every_message(place):
    """Every reader gets every message."""
    pub, sub = place.pair()
    other = place.subscribe()
    pub.wait_for_readers(2, timeout=PATIENCE)
    for i in range(5):
        pub.send(place.message(i))
    assert place.take(sub, 5) == place.take(other, 5) == [0, 1, 2, 3, 4]
