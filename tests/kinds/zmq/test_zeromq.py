"""Channels over ZeroMQ: the same handles, against each other and against plain pyzmq sockets in other processes."""

import asyncio
import multiprocessing as mp
import pickle
import re
import signal
import threading

import pytest

import penstock

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")


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
        pub.wait_for_readers(1, timeout=10)
        yield pub, sub


def test_a_program_moves_to_the_network_by_changing_a_word(ends):
    pub, sub = ends
    assert pub.send(b"one") == 3
    pub.offer(bytearray(b"two"))
    with pub.claim(5) as view:
        view[:] = b"three"
    assert pub.offer_many([b"4", b"5"]) == 2
    assert [sub.recv(timeout=5) for _ in range(4)] == [b"one", b"two", b"three", b"4"]
    with sub.borrow(timeout=5) as view:
        assert bytes(view) == b"5"
    assert sub.try_recv() is None
    assert (pub.position, sub.position, sub.last.position) == (13, 13, 12)
    with pytest.raises(TimeoutError):
        sub.recv(timeout=0.02)
    with pytest.raises(TimeoutError):
        sub.recv(timeout=0)
    with pytest.raises(KeyError), pub.claim(3):
        raise KeyError
    for i in range(10):
        pub.send(b"%d" % i)
    assert penstock.wait([sub], timeout=5) == [sub]
    batch = None
    got = []
    while len(got) < 10:
        batch = sub.poll_arrow()
        got += batch.column("payload").to_pylist()
    assert got == [b"%d" % i for i in range(10)]
    with penstock.publish("log:schema") as log, penstock.subscribe("log:schema") as local:
        log.send(b"x")
        assert batch.schema == local.poll_arrow().schema


def test_readers_are_counted(ends, uri):
    pub, _ = ends
    with penstock.subscribe(uri):
        pub.wait_for_readers(2, timeout=10)
        assert pub.readers == 2
        with pytest.raises(TimeoutError, match="fewer than 3"):
            pub.wait_for_readers(3, timeout=0.05)
    while pub.readers > 1:
        pass
    assert pub.connected


def test_codecs_and_iteration(uri):
    with penstock.publish(uri, codec="json") as pub, penstock.subscribe(uri, codec="json") as sub:
        pub.wait_for_readers(1, timeout=10)
        pub.send({"a": [1, 2]})
        pub.send({"b": None})
        assert sub.recv(timeout=5) == {"a": [1, 2]}
        threading.Timer(0.2, sub.close).start()
        assert list(sub) == [{"b": None}]
        with pytest.raises(penstock.Closed):
            sub.recv(timeout=1)


def test_asyncio(ends):
    pub, sub = ends

    async def main():
        task = asyncio.create_task(sub.recv_async())
        await asyncio.sleep(0.02)
        pub.send(b"a")
        first = await asyncio.wait_for(task, 5)
        pub.send(b"b")
        async for message in sub:
            return first, message
        return None

    assert asyncio.run(main()) == (b"a", b"b")


def test_wait_over_zeromq_and_shared_memory(ends):
    pub, sub = ends
    with penstock.publish("ring:mixed") as ring, penstock.subscribe("ring:mixed") as local:
        assert penstock.wait([sub, local], timeout=0) == []
        assert penstock.wait([sub, local], timeout=0.02) == []
        ring.send(b"x")
        assert penstock.wait([sub, local], timeout=5) == [local]
        pub.send(b"y")
        local.recv(timeout=1)
        assert penstock.wait([sub, local], timeout=5) == [sub]


def test_only_the_newest(uri):
    with penstock.publish(uri) as pub, penstock.subscribe(uri, conflate=True) as sub:
        pub.wait_for_readers(1, timeout=10)
        for i in range(500):  # fewer than its queue holds: what is full drops the newest
            pub.send(b"%d" % i)
        pub.send(b"end")
        got = []
        while b"end" not in got:
            got.append(sub.recv(timeout=5))
        assert len(got) < 500


def _plain_publisher(endpoint):
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.bind(endpoint)
        while True:
            socket.send(b"from a stranger")
            signal.sigtimedwait([], 0.01)


def _plain_subscriber(endpoint, back):
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        back.put(socket.recv())


def test_strangers_who_know_only_zeromq(uri):
    endpoint = uri.removeprefix("zmq+")
    context = mp.get_context("spawn")
    publisher = context.Process(target=_plain_publisher, args=(endpoint,), daemon=True)
    publisher.start()
    with penstock.subscribe(uri) as sub:
        assert sub.recv(timeout=20) == b"from a stranger"
        with pytest.raises(penstock.Busy, match="cannot publish"):
            penstock.publish(uri)
    publisher.kill()
    publisher.join()
    back = context.Queue()
    with penstock.publish(uri) as pub:
        reader = context.Process(target=_plain_subscriber, args=(endpoint, back), daemon=True)
        reader.start()
        pub.wait_for_readers(1, timeout=20)
        pub.send(b"to a stranger")
        assert back.get(timeout=10) == b"to a stranger"
        reader.join()


def test_handles_go_to_children(ends, uri):
    pub, sub = ends
    with pickle.loads(pickle.dumps(sub)) as other:
        pub.wait_for_readers(2, timeout=10)
        pub.send(b"x")
        assert other.recv(timeout=5) == sub.recv(timeout=5) == b"x"


def test_nonsense_is_refused_with_a_reason():
    for wrong in ("zmq+tcp:127.0.0.1:5", "zmq+ipc://", "zmq+udp://x", "zmq+tcp://127.0.0.1:65536"):
        with pytest.raises(penstock.Invalid, match=re.escape(wrong)):
            penstock.publish(wrong)
    with pytest.raises(penstock.SystemFailure):
        penstock.publish("zmq+tcp://256.0.0.1:9999")
    with pytest.raises(penstock.Invalid, match="max_messages"):
        penstock.publish("zmq+tcp://127.0.0.1:*", max_messages=-1)
    with pytest.raises(penstock.Unsupported, match="past"):
        penstock.subscribe("zmq+tcp://127.0.0.1:5", start=7)
    for question in (penstock.inspect, penstock.remove):
        with pytest.raises(penstock.Unsupported, match="not in shared memory"):
            question("zmq+tcp://127.0.0.1:5")


def test_it_cannot_be_recorded(archive):
    with pytest.raises(penstock.Unsupported, match="not in shared memory"):
        archive.record("zmq+tcp://127.0.0.1:5")


def test_a_port_may_be_left_open():
    with penstock.publish("zmq+tcp://127.0.0.1:*") as pub:
        with penstock.subscribe(f"zmq+{pub.address}") as sub:
            pub.wait_for_readers(1, timeout=10)
            pub.send(b"x")
            assert sub.recv(timeout=5) == b"x"
        assert repr(pub) == "<ZmqPublication zmq+tcp://127.0.0.1:*>"


DECODING = {
    "recv": lambda sub: [sub.recv(timeout=0)],
    "try_recv": lambda sub: [m] if (m := sub.try_recv()) is not None else None,
    "iterate": lambda sub: [next(sub)] if sub.ready() else None,
    "recv_async": lambda sub: [asyncio.run(sub.recv_async())] if sub.ready() else None,
    "poll": lambda sub: sub.poll() or None,
    "poll of 2": lambda sub: sub.poll(2) or None,
}


@pytest.mark.parametrize("way", DECODING)
def test_a_bad_message_costs_only_itself(uri, way):
    sent = [b"0", b"{", b"{", b"1", b"2", b"{{", b"3"]
    with penstock.publish(uri) as pub, penstock.subscribe(uri, codec="json") as sub:
        pub.wait_for_readers(1, timeout=10)
        ends = [pub.send(message) for message in sent]
        got, errors = [], []
        while len(got) + len(errors) < len(sent) and penstock.wait([sub], timeout=10):
            try:
                found = DECODING[way](sub)
            except penstock.DecodeError as error:
                errors.append((len(got), sub.last.position, str(error)))
                continue
            except TimeoutError:
                continue
            got += found or []
            if found:  # of the message given out last, not of a bad one behind it
                assert sub.last.position + 1 == ends[sent.index(b"%d" % got[-1])]
        assert got == [0, 1, 2, 3]
        assert [after for after, _, _ in errors] == [1, 1, 3]
        assert [position for _, position, _ in errors] == [1, 2, 5]
        assert all(f"{uri}: the message at position {at} (" in text and "is not json" in text for _, at, text in errors)
