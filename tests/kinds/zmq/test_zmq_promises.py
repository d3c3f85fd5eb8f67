"""ZeroMQ's handles keep the promises of every kind, and raise `Unsupported`, with the reason, where ZeroMQ cannot."""

import asyncio
import pickle
import sys
import threading

import numpy as np
import pytest

import penstock
from penstock import Unsupported
from penstock.channels.uri import channel
from penstock.kinds.zmq import opener as zeromq
from penstock.types import Publication, Subscription

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")

WAIT = 20  # seconds: a hang, not a slow machine


@pytest.fixture(params=["tcp", "ipc"])
def uri(request, tmp_path):
    """An address that is free."""
    if request.param == "ipc":
        return f"zmq+ipc://{tmp_path}/z"
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return f"zmq+tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@pytest.fixture
def ends(uri):
    """A publication and a subscription that have found each other."""
    with penstock.publish(uri) as pub, penstock.subscribe(uri) as sub:
        pub.wait_for_readers(1, timeout=WAIT)
        yield pub, sub


def run(coroutine):
    """Runs it in a loop of its own, with a bound on a hang."""
    return asyncio.run(asyncio.wait_for(coroutine, 2 * WAIT))


# ---- publications ----


def test_they_are_publications_and_subscriptions(ends, uri):
    pub, sub = ends
    assert isinstance(pub, Publication)
    assert isinstance(sub, Subscription)
    assert pub.max_payload == sys.maxsize
    assert (pub.channel, pub.codec.kind, pub.closed, pub.position, pub.readers) == (uri, "bytes", False, 0, 1)
    assert (sub.channel, sub.codec.kind, sub.closed, sub.position) == (uri, "bytes", False, 0)
    with pytest.raises(TypeError, match="not str: encode it"):
        pub.send("text")
    with pytest.raises(TypeError):
        pub.send(5)
    assert pub.position == 0


def test_every_way_to_send_returns_a_position(ends):
    pub, sub = ends
    assert pub.send(b"one") == 3
    assert run(pub.send_async(b"four")) == 7
    assert pub.offer(memoryview(b"x")) == 8
    assert pub.send([b"t", b"opic"], timeout=0) == 13
    assert pub.send(b"opic", topic="t") == 18
    assert pub.offer_many([b"a", bytearray(b"b")]) == 2
    claim = pub.claim(2)
    with claim as view:
        view[:] = b"ab"
    assert pub.position == 22
    assert pub.claim(0).commit() == 22
    expected = [b"one", b"four", b"x", [b"t", b"opic"], [b"t", b"opic"], b"a", b"b", b"ab", b""]
    assert [sub.recv(WAIT) for _ in range(9)] == expected
    assert sub.position == 22


def test_a_claim_is_sent_once_or_not_at_all(ends):
    pub, sub = ends
    claim = pub.claim(3)
    with claim as view:
        view[:] = b"abc"
        assert claim.commit() == 3
    with pytest.raises(penstock.Closed, match="committed or aborted already"):
        claim.commit()
    pub.claim(5).abort()
    with pytest.raises(KeyError), pub.claim(5):
        raise KeyError
    array = None
    with pytest.raises(BufferError, match="still in use"), pub.claim(4) as view:
        array = np.frombuffer(view, "u1")
    with pytest.raises(penstock.Invalid, match="length"):
        pub.claim(-1)
    late = pub.claim(1)
    assert (pub.send(b"end"), pub.position, array.size) == (6, 6, 4)
    assert [sub.recv(WAIT), sub.recv(WAIT)] == [b"abc", b"end"]
    pub.close()
    for use in (
        lambda: pub.claim(1),
        late.commit,
        lambda: pub.send(b"x"),
        lambda: pub.offer(b"x"),
        lambda: pub.readers,
    ):
        with pytest.raises(penstock.Closed):
            use()
    with pytest.raises(penstock.Closed):
        run(pub.send_async(b"x"))


def test_a_claim_and_the_codec(uri):
    with penstock.publish(uri, codec=penstock.array("u4", (2,))) as pub:
        with penstock.subscribe(uri, codec=penstock.array("u4", (2,))) as sub:
            pub.wait_for_readers(1, WAIT)
            with pub.claim(8) as view:
                np.frombuffer(view, "u4")[:] = (1, 2)
            with run(pub.claim_async(8)) as view:
                view[:] = np.array([3, 4], "u4").tobytes()
            assert [sub.recv(WAIT).tolist(), sub.recv(WAIT).tolist()] == [[1, 2], [3, 4]]
        with pytest.raises(penstock.Invalid, match="8 bytes, not 9"):
            pub.claim(9)
    with penstock.publish("zmq+tcp://127.0.0.1:*", codec="json") as pub, pytest.raises(penstock.Invalid, match="json"):
        pub.claim(4)


def test_readers_are_awaited(uri):
    async def main():
        with penstock.publish(uri) as pub:
            waiting = asyncio.create_task(pub.wait_for_readers_async(1, timeout=WAIT))
            with pytest.raises(penstock.TimedOut, match="fewer than 1"):
                await pub.wait_for_readers_async(1, 0.01)
            with pytest.raises(penstock.TimedOut):
                await pub.wait_for_readers_async(1, 0)
            with penstock.subscribe(uri, topics="a"):
                await waiting
                await pub.wait_for_readers_async(topic="ab")
                with pytest.raises(penstock.TimedOut):
                    await pub.wait_for_readers_async(1, 0.01, topic="b")

    run(main())


def fill(pub):
    """Sends until a queue is full. How many it took."""
    for count in range(2000):
        if pub.offer(bytes(1 << 16)) is None:
            return count
    raise AssertionError("a queue of one message is never full")


def test_when_full_wait_loses_nothing(uri):
    with (
        penstock.publish(uri, max_messages=1, when_full="wait") as pub,
        penstock.subscribe(uri, max_messages=1) as sub,
    ):
        pub.wait_for_readers(1, WAIT)
        count = fill(pub)
        assert pub.position == count << 16
        with pytest.raises(penstock.TimedOut, match="max_messages=1"):
            while True:  # the network may take one more meanwhile
                pub.send(bytes(1 << 16), timeout=0.01)
        with pytest.raises(penstock.TimedOut):
            while True:
                run(pub.send_async(bytes(1 << 16), 0.01))
        with pytest.raises(penstock.TimedOut):
            while True:
                with pub.claim(1 << 16, timeout=0.01):
                    pass
        with pytest.raises(Unsupported, match="use send_async"):
            run(pub.claim_async(5))
        sent = pub.position >> 16
        more = 20

        async def main():
            for _ in range(more):
                await pub.send_async(bytes(1 << 16), WAIT)

        threads = [
            threading.Thread(target=lambda: [pub.send(bytes(1 << 16), WAIT) for _ in range(more)]),
            threading.Thread(target=lambda: run(main())),
        ]
        for thread in threads:
            thread.start()
        assert all(len(sub.recv(WAIT)) == 1 << 16 for _ in range(sent + 2 * more))
        for thread in threads:
            thread.join(WAIT)
        assert pub.position == sub.position == (sent + 2 * more) << 16
        assert sub.try_recv() is None


def test_a_publication_that_drops_never_waits(uri):
    with penstock.publish(uri, max_messages=1) as pub, penstock.subscribe(uri, max_messages=1) as sub:
        pub.wait_for_readers(1, WAIT)
        for _ in range(400):
            assert pub.send(bytes(1 << 16), timeout=0) == pub.position
        assert pub.offer_many([bytes(1 << 16)] * 5) == 5
        got = 0
        while penstock.wait([sub], 0.3):
            got += len(sub.poll())
        assert 0 < got < 405
        assert sub.position == got << 16 < pub.position


def greet(sub, pub):
    """Until a subscription that binds has subscribed at a new publication: it does so in its calls."""
    while not pub.readers:
        sub.ready()


def test_a_subscription_may_bind(uri):
    """Many publications, and one subscription at a known address."""
    with penstock.subscribe(uri, bind=True) as sub:
        pubs = [penstock.publish(uri, bind=False) for _ in range(2)]
        for number, pub in enumerate(pubs):
            greet(sub, pub)
            pub.send(b"%d" % number)
        assert sorted(sub.recv(WAIT) for _ in pubs) == [b"0", b"1"]
        again = pickle.loads(pickle.dumps(pubs[0]))
        greet(sub, again)
        again.send(b"again")
        assert sub.recv(WAIT) == b"again"
        for pub in (*pubs, again):
            pub.close()


# ---- subscriptions ----


def test_unknown_values_are_not_shown(ends):
    _, sub = ends
    for name in ("lag", "lost", "lost_messages"):
        with pytest.raises(Unsupported, match=f"ZeroMQ does not report .* {name} is known on log:"):
            getattr(sub, name)


def test_last_says_when_and_with_which_topic(uri):
    with penstock.publish(uri) as pub, penstock.subscribe(uri, topics="t") as sub:
        pub.wait_for_readers(1, WAIT)
        pub.send(b"abc", topic="t1")
        pub.send(b"de", topic="t2")
        assert sub.recv(WAIT) == b"abc"
        first = sub.last
        assert sub.recv(WAIT) == b"de"
        assert isinstance(first, penstock.channels.interfaces.subscription.Received)
        assert (first.position, first.topic, first.sender, first.session) == (0, "t1", "", 0)
        assert (sub.last.position, sub.last.topic, sub.last.type) == (5, "t2", "t2")
        assert sub.last.time_ns >= first.time_ns > 0


def test_borrowing_copies_nothing_and_survives_its_block(ends):
    pub, sub = ends
    for body in (b"one", b"two", b"three"):
        pub.send(body)
    with sub.borrow(WAIT) as view:
        assert (bytes(view), view.readonly) == (b"one", True)
    with pytest.raises(ValueError, match="released"):
        bytes(view)
    with run(sub.borrow_async(WAIT)) as view:
        array = np.frombuffer(view, "u1")
    assert bytes(array) == b"two"
    assert sub.last.position == 3
    assert sub.recv(WAIT) == b"three"
    with pytest.raises(penstock.TimedOut):
        sub.borrow(0).__enter__()
    for timeout in (0, 0.01):
        with pytest.raises(penstock.TimedOut, match="no message"):
            run(sub.borrow_async(timeout))
    pub.send([b"a", b"b"])
    with pytest.raises(penstock.Invalid, match="2 parts"):
        run(sub.borrow_async(WAIT))
    assert sub.recv(WAIT) == [b"a", b"b"]


def test_arecv_has_a_timeout(ends):
    pub, sub = ends

    async def main():
        for timeout in (0, 0.01):
            with pytest.raises(penstock.TimedOut, match="no message within the timeout"):
                await sub.recv_async(timeout)
        with pytest.raises(penstock.Invalid, match="timeout"):
            await sub.recv_async(-1)
        waiting = asyncio.create_task(sub.recv_async(timeout=WAIT))
        await asyncio.sleep(0)
        pub.send(b"x")
        return await waiting

    assert run(main()) == b"x"


def test_spinning_finds_messages_without_sleeping(uri, monkeypatch):
    with penstock.publish(uri) as pub, penstock.subscribe(uri, spin=float("inf")) as sub:
        pub.wait_for_readers(1, WAIT)
        monkeypatch.setattr(sub, "_sleep_between_attempts", None)  # would be called to sleep
        threading.Timer(0.02, pub.send, [b"x"]).start()
        assert sub.recv(WAIT) == b"x"
        with pytest.raises(TypeError):  # it spins no longer than the timeout, and then looks a last time
            sub.recv(0.01)


def test_handles_pickle_with_their_options(uri):
    with (
        penstock.subscribe(uri, codec="json", topics=["a", b"\xff"], max_messages=7, spin=0.5) as sub,
        pickle.loads(pickle.dumps(sub)) as other,
    ):
        assert (other._topics, other._options, other._spin) == (sub._topics, sub._options, 0.5)
        assert other.codec.kind == "json"
    pub = penstock.publish(uri, codec="json", max_messages=7, when_full="wait", linger=2)
    data = pickle.dumps(pub)
    pub.close()
    with pickle.loads(data) as other:
        assert (other.codec.kind, other._when_full, other._options) == ("json", "wait", pub._options)


# ---- what ZeroMQ cannot do ----


@pytest.mark.parametrize(
    ("opener", "options", "why"),
    [
        ("subscribe", {"start": "earliest"}, "keeps no past"),
        ("subscribe", {"start": 5}, "keeps no past"),
        ("subscribe", {"prefault": True}, "shared memory"),
        ("subscribe", {"conflate": True, "topics": "a"}, "conflate"),
        ("publish", {"prefault": True}, "shared memory"),
        ("publish", {"when_full": "drop_oldest"}, "pipe: can drop the oldest"),
        ("publish", {"clock": penstock.testing.ManualClock(1)}, "carry no time"),
    ],
)
def test_calls_that_zeromq_lacks_are_unsupported(uri, opener, options, why):
    tested = {name: options[name] for name in ("clock", "prefault") if name in options}
    given = {name: value for name, value in options.items() if name not in tested}
    at = penstock.testing.channel(uri, **tested) if tested else uri
    with pytest.raises(Unsupported, match=why) as raised:
        getattr(penstock, opener)(at, **given)
    assert str(raised.value).startswith(uri)


def test_a_stream_of_zeromq_never_ends(uri):
    with pytest.raises(Unsupported, match="does not report that a publication has closed"):
        zeromq.open_subscription(channel.parse(uri), until_end=True)


@pytest.mark.parametrize(
    ("opener", "options"),
    [
        ("publish", {"when_full": "sometimes"}),
        ("publish", {"max_messages": -1}),
        ("publish", {"max_messages": 1.5}),
        ("publish", {"bind": "yes"}),
        ("subscribe", {"bind": 3}),
        ("subscribe", {"conflate": "no"}),
        ("subscribe", {"spin": -1}),
    ],
)
def test_values_that_make_no_sense_are_named(uri, opener, options):
    with pytest.raises(penstock.Invalid, match=next(iter(options))):
        getattr(penstock, opener)(uri, **options)
