"""Limits of ZeroMQ's queues that would lose something without a word."""

from __future__ import annotations

import pytest

import penstock

pytest.importorskip("zmq")


@pytest.fixture
def uri(tmp_path):
    return f"zmq+ipc://{tmp_path}/peer"


@pytest.mark.parametrize("max_messages", [1, 1000, 0])
def test_each_of_many_topics_is_subscribed(uri, max_messages):
    """Subscriptions travel through a queue of their own, which `max_messages` does not bound."""
    topics = [f"t{i}/" for i in range(3000)]
    with (
        penstock.publish(uri, max_messages=0) as pub,
        penstock.subscribe(uri, topics=topics, max_messages=max_messages) as sub,
    ):
        pub.wait_for_readers(1, timeout=60, topic=topics[-1])
        for topic in topics[::100]:
            assert pub._readers(topic.encode()) == 1
            pub.send(b"x", topic=topic)
            assert sub.recv(timeout=60) == b"x"
            assert sub.last.topic == topic


def test_many_topics_are_subscribed_again_after_a_reconnection(uri):
    topics = [f"t{i}/" for i in range(3000)]
    with penstock.subscribe(uri, topics=topics) as sub:
        for _ in range(2):
            with penstock.publish(uri) as pub:
                for _ in range(1200):  # ZeroMQ connects again while its handle is used
                    assert sub.try_recv() is None
                    if pub._readers(topics[-1].encode()):
                        break
                    penstock.wait([sub], timeout=0.05)
                pub.send(b"x", topic=topics[0])
                assert sub.recv(timeout=60) == b"x"


def test_conflate_keeps_whole_messages(uri):
    """ZeroMQ conflates parts, so messages of bytes are conflated here. A codec's messages have one part."""
    with penstock.publish(uri) as pub, penstock.subscribe(uri, conflate=True) as sub:
        pub.wait_for_readers(1, timeout=60)
        for i in range(50):
            pub.send([b"head %d" % i, b"body %d" % i])
        got = [sub.recv(timeout=60)]
        while got[-1] != [b"head 49", b"body 49"]:
            got.append(sub.recv(timeout=60))
        assert all(head.split()[1] == body.split()[1] for head, body in got)
        pub.send(b"1")
        with sub.borrow(timeout=60) as view:
            assert bytes(view) == b"1"


def test_conflate_skips_what_is_older(uri):
    """A call passes over all waiting messages but the newest."""
    with (
        penstock.publish(uri) as pub,
        penstock.subscribe(uri) as all_of_it,
        penstock.subscribe(uri, conflate=True) as sub,
    ):
        pub.wait_for_readers(2, timeout=60)
        for i in range(200):
            pub.send([b"%d" % i, b""])
        while all_of_it.recv(timeout=60) != [b"199", b""]:
            pass
        got = [sub.recv(timeout=60)]
        while got[-1] != [b"199", b""]:
            got.append(sub.recv(timeout=60))
        numbers = [int(message[0]) for message in got]
        assert numbers == sorted(numbers)
        assert sub.try_recv() is None


def test_a_request_without_the_empty_part_is_dropped_and_counted(uri):
    """As REP does: it has no body to answer. The next request is served."""
    import zmq

    with penstock.join(uri, role="reply") as replier, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger, stranger.rcvtimeo = 0, 60_000
        stranger.connect(replier.address)
        for malformed in ([b"no empty part"], [b"no", b"empty", b"part"], [b""], [b"id", b""]):
            stranger.send_multipart(malformed)
        stranger.send_multipart([b"", b"a body"])
        request = replier.recv(timeout=60)
        assert request.body == b"a body"
        assert request.reply(b"an answer", timeout=60)
        assert stranger.recv_multipart() == [b"", b"an answer"]
        stranger.send_multipart([b"id", b"", b""])
        assert replier.recv(timeout=60).body == b""
        assert replier.statistics().details["malformed"] == 4
        assert replier.statistics().totals.messages_received == 2
        assert replier.try_recv() is None
