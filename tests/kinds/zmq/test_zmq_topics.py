"""PUB and SUB with parts and topics, and who counts as a reader: against each other and against plain pyzmq sockets."""

import threading

import pytest

import penstock

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")


@pytest.fixture(params=["tcp", "ipc"])
def pub(request, tmp_path):
    """A publication on an address of its own."""
    uri = f"zmq+ipc://{tmp_path}/z" if request.param == "ipc" else "zmq+tcp://127.0.0.1:*"
    with penstock.publish(uri) as made:
        yield made


def connect(pub, **options):
    return penstock.subscribe(f"zmq+{pub.address}", **options)


def receive(sub, count):
    return [sub.recv(timeout=10) for _ in range(count)]


def test_a_message_keeps_its_parts(pub):
    with connect(pub) as sub:
        pub.wait_for_readers(1, timeout=10)
        pub.send([b"topic", "bödy".encode(), memoryview(b"x")])
        pub.send(b"one part")
        pub.send(b"body", topic="t")
        assert pub.statistics().totals.messages_sent == 3
        assert receive(sub, 3) == [[b"topic", "bödy".encode(), b"x"], b"one part", [b"t", b"body"]]
        assert sub.last.topic == ""
        assert sub.statistics().totals.messages_received == 3
        with pytest.raises(penstock.Invalid, match="at least one part"):
            pub.send([])


def test_messages_of_plain_zeromq_keep_their_parts(tmp_path):
    with zmq.Context() as context, context.socket(zmq.XPUB) as plain:
        plain.bind(f"ipc://{tmp_path}/p")
        with (
            penstock.subscribe(f"zmq+ipc://{tmp_path}/p", topics=["a", b"b"]) as chosen,
            penstock.subscribe(f"zmq+ipc://{tmp_path}/p") as sub,
        ):
            assert sorted(plain.recv() for _ in range(3)) == [b"\1", b"\1a", b"\1b"]
            for topic in (b"a1", b"c", b"b"):
                plain.send_multipart([topic, b"body of " + topic])
            plain.send_multipart([b"b", b"two", b"bodies"])
            assert receive(sub, 3) == [[topic, b"body of " + topic] for topic in (b"a1", b"c", b"b")]
            assert (chosen.recv(timeout=10), chosen.last.topic) == (b"body of a1", "a1")
            assert (chosen.recv(timeout=10), chosen.last.topic) == (b"body of b", "b")
            assert chosen.recv(timeout=10) == [b"two", b"bodies"]
    with penstock.publish(f"zmq+ipc://{tmp_path}/q") as pub, zmq.Context() as context, context.socket(zmq.SUB) as plain:
        plain.subscribe(b"a")
        plain.connect(f"ipc://{tmp_path}/q")
        pub.wait_for_readers(1, timeout=10, topic="abc")
        pub.send(b"1", topic="abc")
        pub.offer(b"2", topic="b")
        with pub.claim(1, topic=b"a") as view:
            view[:] = b"3"
        assert pub.offer_many([b"4"], topic="a") == 1
        assert [plain.recv_multipart() for _ in range(3)] == [[b"abc", b"1"], [b"a", b"3"], [b"a", b"4"]]


def test_topics_choose_and_go_with_codecs(tmp_path):
    uri = f"zmq+ipc://{tmp_path}/z"
    with penstock.publish(uri, codec="json") as pub:
        with (
            penstock.subscribe(uri, codec="json", topics="imu/") as imu,
            penstock.subscribe(uri, codec="json") as every,
        ):
            pub.wait_for_readers(2, timeout=10)
            pub.send({"v": 1}, topic="gps/a")
            pub.send([1, 2], topic="imu/b")
            pub.send("plain")
            assert (imu.recv(timeout=10), imu.last.topic) == ([1, 2], "imu/b")
            got = [(every.recv(timeout=10), every.last.topic) for _ in range(3)]
            assert got == [({"v": 1}, "gps/a"), ([1, 2], "imu/b"), ("plain", "")]
            assert imu.try_recv() is None
        while pub.readers:  # until the network has said that they are gone
            pass
        with penstock.subscribe(uri, codec="json") as sub, penstock.subscribe(uri, topics="") as raw:
            pub.wait_for_readers(2, timeout=10)
            pub.send(1.5, topic="x")
            assert (raw.recv(timeout=10), raw.last.topic, sub.recv(timeout=10)) == (b"1.5", "x", 1.5)
    with penstock.publish(uri) as pub, penstock.subscribe(uri, codec="json") as sub:
        pub.wait_for_readers(1, timeout=10)
        pub.send([b"a", b"1", b"2"])
        pub.send(b"[1]")
        with pytest.raises(penstock.DecodeError, match="2 parts"):
            sub.recv(timeout=10)
        assert sub.recv(timeout=10) == [1]


def test_where_one_part_fits_a_message_of_several_is_not_lost(pub):
    with connect(pub) as sub, connect(pub, topics="") as topics:
        pub.wait_for_readers(2, timeout=10)
        for message in (b"1", [b"t", b"2"], b"3"):
            pub.send(message)
        pub.send(b"end")
        batch = sub.poll_arrow()
        while batch.num_rows == 0:
            batch = sub.poll_arrow()
        assert batch.column("payload").to_pylist() == [b"1"]
        for ask in (sub.poll_arrow, sub.borrow(timeout=5).__enter__, sub.poll_arrow):
            assert penstock.wait([sub], timeout=5) == [sub]
            with pytest.raises(penstock.Invalid, match="2 parts"):
                ask()
        assert receive(sub, 3) == [[b"t", b"2"], b"3", b"end"]
        with topics.borrow(timeout=5) as view:
            assert bytes(view) == b"1"
        rows = []
        while len(rows) < 3:
            rows += topics.poll_arrow().select(["topic", "payload"]).to_pylist()
        assert rows == [
            {"topic": "t", "payload": b"2"},
            {"topic": "", "payload": b"3"},
            {"topic": "", "payload": b"end"},
        ]


def test_polling_gives_messages_before_an_undecodable_one(tmp_path):
    uri = f"zmq+ipc://{tmp_path}/z"
    with penstock.publish(uri) as pub, penstock.subscribe(uri, codec="json") as sub:
        pub.wait_for_readers(1, timeout=10)
        for body in (b"1", b"2", b"no json {", b"3"):
            pub.send(body)
        got, errors = [], 0
        while len(got) < 3:
            try:
                got += sub.poll()
            except Exception:
                errors += 1
        assert (got, errors) == ([1, 2, 3], 1)


def test_readers_are_peers_and_not_topics(pub):
    with connect(pub, topics=["a", "b", "c"]):
        pub.wait_for_readers(1, timeout=10, topic="c")
        assert pub.readers == 1
        with pytest.raises(TimeoutError, match="fewer than 2"):
            pub.wait_for_readers(2, timeout=0.05)
        with connect(pub, topics=["a", "d"]), connect(pub):
            pub.wait_for_readers(2, timeout=10, topic="ab")
            pub.wait_for_readers(3, timeout=10)
            pub.wait_for_readers(2, timeout=10, topic="d")
            with pytest.raises(TimeoutError):
                pub.wait_for_readers(3, timeout=0.05, topic="d")
        while pub.readers > 1:
            pass
    while pub.connected:
        pass
    with pytest.raises(TimeoutError):
        pub.wait_for_readers(1, timeout=0)


def test_a_peer_that_takes_its_topics_back_is_no_reader(pub):
    with zmq.Context() as context, context.socket(zmq.SUB) as plain:
        for topic in (b"a", b"a", b"b"):
            plain.subscribe(topic)
        plain.connect(pub.address)
        pub.wait_for_readers(1, timeout=10, topic="b")
        plain.unsubscribe(b"b")
        plain.unsubscribe(b"a")
        while pub._readers(b"b"):
            pass
        assert pub.readers == 1, "it asked for 'a' twice"
        plain.unsubscribe(b"a")
        while pub.readers:
            pass
        assert pub.statistics().details["connected"] == 1


def test_multipart_messages_of_several_threads_are_not_mixed(pub):
    with connect(pub, max_messages=0) as sub:
        pub.wait_for_readers(1, timeout=10)
        threads = [
            threading.Thread(target=lambda n=n: [pub.send([b"%d" % n, b"%d" % i]) for i in range(200)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        got = receive(sub, 800)
        for n in range(4):
            assert [int(body) for who, body in got if int(who) == n] == list(range(200))


def test_nonsense_is_refused_with_a_reason():
    for wrong in ([], 5, [None]):
        with pytest.raises((penstock.Invalid, TypeError)):
            penstock.subscribe("zmq+tcp://127.0.0.1:5", topics=wrong)
    with pytest.raises(penstock.Invalid, match="conflate"):
        penstock.subscribe("zmq+tcp://127.0.0.1:5", topics="a", conflate=True)
    with pytest.raises(TypeError, match="'topics'"):
        penstock.publish("zmq+tcp://127.0.0.1:*", topics="a")
    with pytest.raises(TypeError, match="'topics'"):
        penstock.subscribe("log:x", topics="a")
