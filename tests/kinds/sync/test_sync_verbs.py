"""A sync queue by the verbs of every kind: publications and subscriptions, codecs, claims, timeouts, pickling, fakes."""

import asyncio
import os
import pickle
import select

import numpy as np
import pytest

import penstock
from penstock._native import core as _native
from penstock.testing import hold

S = 1 << 16


@pytest.fixture
def pair():
    """Two members of a small queue."""
    with penstock.join("sync:q", name="a", capacity=S) as a, penstock.join("sync:q", name="b") as b:
        yield a, b


def bodies(messages):
    return [message.body for message in messages]


def test_publications_and_subscriptions_take_part_as_on_any_kind(pair):
    a, b = pair
    with penstock.publish("sync:q", name="p") as pub, penstock.subscribe("sync:q") as sub:
        assert isinstance(pub, penstock.types.Publication)
        assert isinstance(sub, penstock.types.Subscription)
        assert sub.last[:3] == (0, 0, 0)
        assert pub.readers == 3, "the two members and the subscription; a publication does not read"
        end = pub.send(b"1")
        assert sub.recv(timeout=1) == b"1"
        assert (sub.last.sender, sub.last.type, sub.last.position, sub.last.session) == ("p", "", 0, pub.session)
        assert a.recv(timeout=1)[:3] == b.recv(timeout=1)[:3] == ("p", "", b"1")
        assert (a.last.sender, a.last.position) == ("p", 0)
        assert a.send(b"2", type="t") > end
        with sub.borrow(timeout=1) as view:
            assert bytes(view) == b"2"
        assert (sub.last.sender, sub.last.type) == ("a", "t")
        with pub.claim(3) as view:
            view[:] = b"abc"
        assert pub.offer_many([b"x", memoryview(b"yz")]) == 2
        large = bytes(range(256)) * (S // 1024)  # in fragments
        pub.send(large, timeout=1)
        assert sub.poll() == [b"abc", b"x", b"yz", large]
        assert [m.body for m in b.poll()] == [b"2", b"abc", b"x", b"yz", large]
        with penstock.subscribe("sync:q", start=end) as late, penstock.join("sync:q", start=end) as later:
            batch = late.poll_arrow()
            assert batch["payload"].to_pylist() == [b"2", b"abc", b"x", b"yz", large]
            assert batch["sender"].to_pylist() == ["a", "p", "p", "p", "p"]
            assert batch["type"].to_pylist() == ["t", "", "", "", ""]
            assert bodies(later.poll()) == [b"2", b"abc", b"x", b"yz", large]
        for too_large in (lambda: pub.offer(bytes(S // 4)), lambda: pub.send(bytes(S)), lambda: pub.claim(S // 4)):
            with pytest.raises(penstock.TooLarge):
                too_large()


def test_a_publication_waits_for_members_and_not_they_for_it():
    with penstock.publish("sync:alone2", capacity=S, name="p") as pub:
        for _ in range(200):
            pub.send(bytes(1000), timeout=1)
        with penstock.subscribe("sync:alone2") as sub:
            while pub.offer(bytes(1000)) is not None:
                pass
            with pytest.raises(TimeoutError):
                pub.send(bytes(1000), timeout=0.02)
            assert len(sub.poll(10**6)) > 10
            pub.send(bytes(1000), timeout=1)
        with (
            penstock.subscribe("sync:alone2", when_slow="fail"),
            pytest.raises(penstock.Busy, match="does not let writers wait"),
        ):
            for _ in range(200):
                pub.send(bytes(1000), timeout=10)
        with penstock.subscribe("sync:alone2", drop_after=0) as sub:
            for _ in range(200):
                pub.send(bytes(1000), timeout=10)
            with pytest.raises(penstock.TooSlow):
                sub.recv(timeout=0)
    penstock.remove("sync:alone2")  # no member was in it: it stays, as every channel does


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_bodies_go_through_the_queues_codec(codec):
    with (
        penstock.join("sync:codec", name="a", codec=codec, capacity=S) as a,
        penstock.join("sync:codec", name="b") as b,
        penstock.publish("sync:codec", name="p") as pub,
        penstock.subscribe("sync:codec") as sub,
    ):
        assert {handle.codec.kind for handle in (a, b, pub, sub)} == {codec}
        assert penstock.inspect("sync:codec").codec == codec
        a.send({"n": 1}, type="t")
        pub.send([2, None])
        a.offer("three")
        assert a.offer_many([4, 5.5], type="many") == 2
        expected = [{"n": 1}, [2, None], "three", 4, 5.5]
        assert b.recv(timeout=1)[:3] == ("a", "t", {"n": 1})
        assert b.try_recv()[:3] == ("p", "", [2, None])
        assert bodies(b.poll()) == ["three", 4, 5.5]
        assert [sub.recv(timeout=1), *sub.poll()] == expected
        assert sub.last.type == "many"
        assert a.recv(timeout=1).body == [2, None]
        with pytest.raises(penstock.Invalid, match="claim"):
            a.claim(4)
        with pytest.raises(penstock.Mismatch, match="sync:codec"):
            penstock.join("sync:codec", codec="bytes")

        async def both():
            await a.send_async({"last": True})
            return await b.recv_async(timeout=5)

        assert asyncio.run(both()).body == {"last": True}


def test_a_claim_in_a_queue_of_records():
    dtype = np.dtype([("x", "<i4")])
    with (
        penstock.join("sync:rec", name="a", codec=dtype, capacity=S) as a,
        penstock.join("sync:rec", name="b") as b,
    ):
        with a.claim(4, type="r") as view:
            view[:] = b"\7\0\0\0"
        message = b.recv(timeout=1)
        assert (message.type, message.body["x"]) == ("r", 7)
        with pytest.raises(penstock.Invalid, match="has 4 bytes"):
            a.claim(5)


def test_a_body_that_does_not_decode_costs_no_other():
    with (
        penstock.join("sync:bad", name="a", codec="json", capacity=S) as a,
        penstock.join("sync:bad", name="b") as b,
    ):
        good = lambda n: a.send(n)  # noqa: E731
        good(1)
        end = _native.SyncMember.send(a, b"{", type="bad")
        good(2)
        assert bodies(b.poll()) == [1]
        assert b.last.type == ""
        with pytest.raises(penstock.DecodeError) as caught:
            b.poll()
        assert 0 < caught.value.position < end
        assert bodies(b.poll()) == [2]


def test_claims_wait_for_room_and_never_for_themselves(pair):
    a, b = pair
    with a.claim(5, type="t") as view:
        view[:] = b"claim"
    assert b.recv(timeout=1)[:3] == ("a", "t", b"claim")
    with pytest.raises(KeyError), a.claim(5):
        raise KeyError
    assert b.try_recv() is None
    while b.offer(bytes(1000)) is not None:
        pass
    with a.claim(1000, timeout=0) as view:  # only its own unread messages were in its way
        view[:4] = b"room"
    assert a.spilled > 0
    assert b.recv(timeout=1).body.startswith(b"room")
    while a.offer(bytes(1000)) is not None:
        pass
    with pytest.raises(TimeoutError, match="member 'b'"):
        a.claim(1000, timeout=0.01)


def test_waiting_in_an_event_loop_has_a_timeout_everywhere(pair):
    a, b = pair

    async def waits():
        for wait in (
            lambda: b.recv_async(timeout=0.01),
            lambda: b.borrow_async(timeout=0.01),
            lambda: b.wait_for_async({"nobody"}, timeout=0.01),
            lambda: b.wait_for_readers_async(7, timeout=0.01),
        ):
            with pytest.raises(penstock.TimedOut, match="sync:q"):
                await wait()
        await b.wait_for_async({"a"}, timeout=5)
        await b.wait_for_readers_async(1, timeout=5)
        while a.offer(bytes(1000)) is not None:
            pass
        for wait in (lambda: a.send_async(bytes(1000), timeout=0.01), lambda: a.claim_async(1000, timeout=0.01)):
            with pytest.raises(penstock.TimedOut, match="no room"):
                await wait()
        b.poll()
        with await a.claim_async(4, timeout=5, type="c") as view:
            view[:] = b"abcd"
        with await b.borrow_async(timeout=5) as message:
            assert (message.type, bytes(message.body)) == ("c", b"abcd")

    asyncio.run(waits())


def test_readers_are_the_others(pair):
    a, b = pair
    assert a.readers == b.readers == 1
    a.wait_for_readers(1, timeout=5)
    with pytest.raises(penstock.TimedOut, match="fewer than 2"):
        a.wait_for_readers(2, timeout=0.01)
    with penstock.join("sync:q", own=True) as c:
        assert c.readers == 3
        assert a.readers == 2


def test_a_descriptor_is_readable_for_spilled_messages_too(pair):
    a, b = pair
    descriptor = a.fileno()
    assert not select.select([descriptor], [], [], 0)[0]
    b.send(b"unread")
    with pytest.raises(TimeoutError):
        for _ in range(100):
            a.send(bytes(1000), timeout=0)
    assert a.spilled > 0
    assert select.select([descriptor], [], [], 10)[0]
    assert penstock.wait([a], timeout=0) == [a]
    assert a.recv(timeout=0).body == b"unread"


def test_a_member_pickles_as_a_new_one_at_the_same_place(pair):
    a, b = pair
    b.screen(types=["noise"])
    a.send(b"read")
    a.send(b"unread")
    a.send(b"x", type="noise")
    assert b.recv(timeout=1).text == "read"
    data, position = pickle.dumps(b), b.position
    with pytest.raises(penstock.Busy, match="has the name 'b'"):  # it belongs to the one that lives
        pickle.loads(data)
    b.close()
    with pickle.loads(data) as copy:
        assert (copy.name, copy.position, copy.screened_types) == ("b", position, {"noise"})
        assert [m.text for m in copy.poll()] == ["unread"]
    with penstock.publish("sync:q") as pub, penstock.subscribe("sync:q") as sub:
        other, reader = pickle.loads(pickle.dumps((pub, sub)))
        with other, reader:
            other.send(b"again")
            assert reader.recv(timeout=1) == sub.recv(timeout=1) == b"again"
            assert reader.last.sender.startswith(f"{os.getpid()}-")
    with penstock.join("sync:q", name="c") as c:
        while c.offer(bytes(1000)) is not None:
            pass
        a.send(bytes(1000), timeout=0)
    assert a.spilled > 0
    with pytest.raises(penstock.Busy, match="read them before"):
        pickle.dumps(a)


def test_a_member_that_is_dropped_hears_of_it_where_it_happened():
    with (
        penstock.join("sync:where", name="a", capacity=S) as a,
        penstock.join("sync:where", name="slow", when_slow="drop", drop_after=1.0) as slow,
    ):
        a.send(b"first")  # soon enough that `slow` is not dropped before it spills
        assert slow.offer_many([bytes(1000)] * 100) < 100  # and so it spills
        assert slow.spilled > 0
        for _ in range(200):
            a.send(bytes(1000), timeout=10)
        while slow.offer(bytes(1000)) is None:  # drops itself, too, and spills on from there
            pass
        assert slow.recv(timeout=0).text == "first"
        with pytest.raises(penstock.TooSlow):
            slow.recv(timeout=0)
        assert slow.lost > 0
        assert slow.recv(timeout=5).body == bytes(1000)


def test_a_queue_within_this_process(channel_folder):
    with (
        penstock.join("fake:sync:q", name="a", capacity=S) as a,
        penstock.join("fake:sync:q", name="b") as b,
        penstock.subscribe("fake:sync:q") as sub,
    ):
        a.send(b"1", type="t")
        assert b.recv(timeout=1)[:3] == ("a", "t", b"1")
        assert sub.recv(timeout=1) == b"1"
        assert list(channel_folder.iterdir()) == []
        assert a.senders == {"a", "b"}
    with pytest.raises(penstock.NotFound):
        penstock.inspect("fake:sync:q")  # its last member removed it
    with (
        penstock.join("fake:sync:r", capacity=S) as b,
        penstock.publish("fake:sync:r") as pub,
        hold("fake:sync:r") as stepper,
    ):
        pub.send(b"1")
        assert b.try_recv() is None
        stepper.deliver(1)
        assert b.recv(timeout=1).body == b"1"


def test_a_value_that_the_codec_cannot_carry_names_the_queue():
    with penstock.join("sync:odd", codec="json") as member:
        calls = (member.send, member.offer, lambda value: member.offer_many([1, value]))
        for call in (*calls, lambda value: asyncio.run(member.send_async(value))):
            with pytest.raises(penstock.Invalid, match=r"^sync:odd: ") as caught:
                call(object())
            assert str(caught.value).count("sync:odd") == 1


def test_a_member_has_the_timeouts_and_end_of_any_handle(pair):
    a, b = pair
    a.send(b"there")
    calls = (
        lambda wrong: a.send(b"", timeout=wrong),
        lambda wrong: asyncio.run(a.send_async(b"", timeout=wrong)),
        lambda wrong: a.claim(1, wrong),
        lambda wrong: asyncio.run(a.claim_async(1, wrong)),
        b.recv,
        lambda wrong: asyncio.run(b.recv_async(wrong)),
        lambda wrong: b.borrow(wrong).__enter__(),
        lambda wrong: asyncio.run(b.borrow_async(wrong)),
        lambda wrong: b.wait_for(["a"], wrong),
        lambda wrong: asyncio.run(b.wait_for_async(["a"], wrong)),
    )
    for wrong in (-1, float("nan"), "soon"):
        for call in calls:
            with pytest.raises(penstock.Invalid, match="timeout"):
                call(wrong)
    for call in (b.poll, b.poll_arrow):
        with pytest.raises(TypeError, match="limit is a whole number"):
            call("a")
        with pytest.raises(penstock.Invalid, match="limit is -1"):
            call(-1)
    assert [message.text for message in b.poll()] == ["there"]
    b.close()
    with pytest.raises(penstock.Closed, match="sync:q"):
        pickle.dumps(b)
