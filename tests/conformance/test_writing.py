"""Writing."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
from conformance.subjects import LENGTH, PATIENCE

import penstock


def test_publication(place):
    """`publish` returns a `penstock.types.Publication`: it knows its channel, is a context manager and may be closed twice."""
    with place.publish() as pub:
        assert isinstance(pub, penstock.types.Publication)
        assert pub.channel == place.uri
        assert not pub.closed
        assert place.uri in repr(pub)
    assert pub.closed
    pub.close()
    with pytest.raises(penstock.Closed, match=place.pattern):
        pub.send(place.message(0))


def test_send(place):
    """`send` returns the position after the message, in bytes of the stream. Positions grow by at least the message's length."""
    pub, sub = place.pair()
    positions = [pub.send(place.message(i)) for i in range(5)]
    assert all(later - earlier >= LENGTH for earlier, later in itertools.pairwise(positions))
    assert (pub.send_position if place.subject.kind == "member" else pub.position) == positions[-1]
    assert place.take(sub, 5) == [0, 1, 2, 3, 4]


def test_offer(place):
    """`offer` never blocks. It returns the position after the message."""
    pub, sub = place.pair()
    first, second = pub.offer(place.message(1)), pub.offer(place.message(2))
    assert isinstance(first, int)
    assert second > first
    assert place.take(sub, 2) == [1, 2]


def test_full(place):
    """When there is no room, `offer` returns None and `send` raises `TimedOut` after its timeout. Nothing is lost. Readers of frames ask for it with `when_slow="wait"`, ZeroMQ's publications with `when_full="wait"`."""
    pub, sub = place.waiting_pair()
    sent = place.fill(pub)
    assert pub.offer(place.message(sent)) is None
    with pytest.raises(penstock.TimedOut, match=place.pattern):
        pub.send(place.message(sent), timeout=0.01)
    with pytest.raises(penstock.TimedOut):
        asyncio.run(pub.send_async(place.message(sent), timeout=0.01))
    assert pub.offer_many([place.message(sent)]) == 0
    assert place.take(sub, sent) == list(range(sent))
    assert pub.send(place.message(sent), timeout=PATIENCE)
    assert place.take(sub, 1) == [sent]


def test_asend_waits_for_room(place):
    """`send_async` waits for room in the event loop. The loop goes on meanwhile."""
    pub, sub = place.waiting_pair()
    if place.subject.kind == "ring":  # it is never full

        async def alone() -> int:
            return await pub.send_async(place.message(1), timeout=PATIENCE)

        assert asyncio.run(alone()) == pub.position
        assert place.take(sub, 1) == [1]
        return
    sent = place.fill(pub)

    async def work() -> list[int]:
        waiting = asyncio.ensure_future(pub.send_async(place.message(sent), timeout=PATIENCE))
        await asyncio.sleep(0)
        assert not waiting.done()
        got = [place.number(await sub.recv_async(timeout=PATIENCE)) for _ in range(sent)]
        await waiting
        return [*got, place.number(await sub.recv_async(timeout=PATIENCE))]

    assert asyncio.run(work()) == list(range(sent + 1))


def test_wrong_message(place):
    """A value that is no message is refused in the same way by `send`, `send_async`, `offer` and `offer_many`. The error names the channel. Nothing is sent."""
    pub, sub = place.pair()
    calls = (
        pub.send,
        lambda wrong: asyncio.run(pub.send_async(wrong)),
        pub.offer,
        lambda wrong: pub.offer_many([wrong]),
    )
    for wrong in (None, 1, [object()], object()):
        said = set()
        for call in calls:
            with pytest.raises((TypeError, penstock.Invalid), match=f"^{place.pattern}: ") as caught:
                call(wrong)
            said.add((type(caught.value), str(caught.value)))
        assert len(said) == 1
    with pytest.raises(TypeError, match=f"^{place.pattern}: offer_many takes a list of messages, not int"):
        pub.offer_many(3)
    pub.send(place.message(1), timeout=PATIENCE)
    assert place.take(sub, 1) == [1]


def test_unsendable(place):
    """A value that the codec cannot carry is `Invalid`, which names the channel. Nothing is sent."""
    codec, value, _ = place.subject.codec
    pub = place.publish(codec=codec)
    sub = place.subscribe(codec=codec)
    pub.wait_for_readers(1, timeout=PATIENCE)
    for wrong in (object(), {"a": [float("nan")]}):
        calls = (
            pub.send,
            pub.offer,
            lambda wrong: pub.offer_many([value, wrong]),
            lambda wrong: asyncio.run(pub.send_async(wrong)),
        )
        for call in calls:
            with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: ") as caught:
                call(wrong)
            assert str(caught.value).count(place.uri) == 1
    pub.send(value, timeout=PATIENCE)
    np.testing.assert_equal(place.body(sub.recv(timeout=PATIENCE)), value)


def test_bad_timeout(place):
    """A timeout that is no number from 0 on is `Invalid`, which names the channel, also in a call that need not wait. Nothing is sent, and nothing is taken."""
    pub, sub = place.pair()
    pub.send(place.message(1))
    assert penstock.wait([sub], PATIENCE) == [sub]
    message = place.message(2)
    calls = (
        lambda wrong: pub.send(message, timeout=wrong),
        lambda wrong: pub.send(message, wrong),
        lambda wrong: asyncio.run(pub.send_async(message, timeout=wrong)),
        lambda wrong: pub.claim(LENGTH, timeout=wrong),
        lambda wrong: asyncio.run(pub.claim_async(LENGTH, timeout=wrong)),
        lambda wrong: pub.wait_for_readers(1, timeout=wrong),
        lambda wrong: asyncio.run(pub.wait_for_readers_async(1, timeout=wrong)),
        lambda wrong: sub.recv(timeout=wrong),
        lambda wrong: sub.recv(wrong),
        lambda wrong: asyncio.run(sub.recv_async(timeout=wrong)),
        lambda wrong: sub.borrow(timeout=wrong).__enter__(),
        lambda wrong: asyncio.run(sub.borrow_async(timeout=wrong)),
        lambda wrong: penstock.wait([sub], wrong),
        lambda wrong: asyncio.run(penstock.wait_async([sub], wrong)),
    )
    for wrong in (-1, float("nan"), "soon"):
        for call in calls[:-2]:
            with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: timeout is "):
                call(wrong)
        for call in calls[-2:]:  # of several handles
            with pytest.raises(penstock.Invalid, match=r"^timeout is "):
                call(wrong)
    assert place.take(sub, 1) == [1]
    pub.send(place.message(3), timeout=PATIENCE)
    assert place.take(sub, 1) == [3]


def test_offer_many(place):
    """`offer_many` takes messages from the first on as long as there is room, and returns how many."""
    pub, sub = place.pair()
    assert pub.offer_many([place.message(i) for i in range(10)]) == 10
    assert place.take(sub, 10) == list(range(10))


def test_claim(place):
    """`claim` gives room to write in place. It commits at the end of the block, and aborts on an exception."""
    pub, sub = place.pair()
    with pytest.raises(KeyError), pub.claim(LENGTH):
        raise KeyError
    with pub.claim(LENGTH) as view:
        memoryview(view).cast("B")[:] = bytes(place.message(7))
    assert place.take(sub, 1) == [7]


def test_dropped_claim(place):
    """A claim that is dropped without a word, entered or not, is given up. The channel goes on."""
    pub, sub = place.pair()
    pub.claim(LENGTH)
    pub.claim(LENGTH).__enter__()
    pub.send(place.message(7), timeout=PATIENCE)
    assert place.take(sub, 1) == [7]


def test_aclaim(place):
    """`claim_async` does the same in an event loop."""
    pub, sub = place.pair()

    async def work() -> None:
        with await pub.claim_async(LENGTH, timeout=PATIENCE) as view:
            memoryview(view).cast("B")[:] = bytes(place.message(7))

    asyncio.run(work())
    assert place.take(sub, 1) == [7]


def test_max_payload(place):
    """A message of `max_payload` bytes fits. One byte more is `TooLarge`, and the channel goes on."""
    pub, sub = place.pair()
    with pytest.raises(penstock.TooLarge, match=place.pattern):
        pub.offer(bytes(pub.max_payload + 1))
    assert pub.offer(bytes(pub.max_payload)) is not None
    longest = place.body(sub.recv(timeout=PATIENCE))
    assert bytes(longest.array.data if place.subject.kind == "frames" else longest) == bytes(pub.max_payload)


def test_longer_than_max_payload(place):
    """A message longer than `max_payload` is refused by `send` too, or `send` takes it, and the error of `offer` and `offer_many` names `max_payload` and says to use `send`."""
    pub, sub = place.pair()
    longer = bytes(range(256)) * (pub.max_payload // 256 + 1)
    errors = []
    for call in (pub.offer, lambda message: pub.offer_many([message])):
        with pytest.raises(penstock.TooLarge, match=place.pattern) as caught:
            call(longer)
        errors.append(str(caught.value))
    try:
        pub.send(longer, timeout=PATIENCE)
    except penstock.TooLarge:
        assert not any("send" in error for error in errors)
    else:
        assert all("max_payload" in error and "Use send" in error for error in errors)
        assert bytes(place.body(sub.recv(timeout=PATIENCE))) == longer


def test_wait_for_readers(place):
    """`wait_for_readers(n)` returns once n readers are there, and raises `TimedOut` if they do not come. `readers` counts them."""
    pub = place.publish()
    with pytest.raises(penstock.TimedOut, match=place.pattern):
        pub.wait_for_readers(1, timeout=0.01)
    with pytest.raises(penstock.TimedOut):
        asyncio.run(pub.wait_for_readers_async(1, timeout=0.01))
    place.subscribe()
    pub.wait_for_readers(1, timeout=PATIENCE)
    asyncio.run(pub.wait_for_readers_async(1, timeout=PATIENCE))
    assert pub.readers == 1


def test_counts(place):
    """A count or a length that is no whole number is a `TypeError`, and one below 0 is `Invalid`. The error names the channel."""
    pub, _ = place.pair()
    for call, name in (
        (pub.wait_for_readers, "count"),
        (lambda wrong: asyncio.run(pub.wait_for_readers_async(wrong)), "count"),
        (pub.claim, "length"),
        (lambda wrong: asyncio.run(pub.claim_async(wrong)), "length"),
    ):
        for wrong in ("a", 1.5, None):
            with pytest.raises(TypeError, match=f"^{place.pattern}: .*{name} is a whole number, not "):
                call(wrong)
        with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: .*{name} is -1: it must be from 0 to "):
            call(-1)


def test_several_publications(place):
    """Several publications may write to one channel at a time."""
    pub, sub = place.pair()
    other = place.publish()
    other.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(1))
    other.send(place.message(2))
    assert sorted(place.take(sub, 2)) == [1, 2]


def test_unknown_option(place):
    """An option that the kind does not have is a `TypeError` that names it. A bad value is `Invalid`, which names option and channel."""
    with pytest.raises(TypeError, match="drop_aftr"):
        place.publish(drop_aftr=1)
    with pytest.raises(TypeError, match="drop_aftr"):
        place.subscribe(drop_aftr=1)
    with pytest.raises(penstock.Invalid, match=f"{place.pattern}.*spin"):
        place.subscribe(spin=-1)
