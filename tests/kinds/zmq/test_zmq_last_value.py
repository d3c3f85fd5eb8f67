"""A publication with `last_value` sends the newest message of each topic to subscriptions that come late."""

from __future__ import annotations

import gc
import threading
import time

import pytest

import penstock
from penstock.kinds.zmq import last_values

zmq = pytest.importorskip("zmq")
PATIENCE = 60


@pytest.fixture
def uri(tmp_path):
    return f"zmq+ipc://{tmp_path}/peer"


def test_a_late_subscription_gets_each_topics_newest_message(uri):
    """The publication makes no call meanwhile: it rests, as one does whose value seldom changes."""
    with penstock.publish(uri, last_value=True) as pub:
        for i in range(3):
            pub.send(b"a%d" % i, topic="a")
            pub.send(b"b%d" % i, topic="b")
        with penstock.subscribe(uri, topics=["a", "b"]) as late:
            got = {late.recv(timeout=PATIENCE) for _ in range(2)}
            assert got == {b"a2", b"b2"}
        with penstock.subscribe(uri, topics="b") as only_b:
            assert only_b.recv(timeout=PATIENCE) == b"b2"
            assert only_b.last.topic == "b"


def test_a_message_without_a_topic_has_one_value(uri):
    with penstock.publish(uri, codec="json", last_value=True) as pub:
        pub.send({"mode": "off"})
        pub.send({"mode": "auto"})
        with penstock.subscribe(uri, codec="json") as late:
            assert late.recv(timeout=PATIENCE) == {"mode": "auto"}
            pub.send({"mode": "manual"})
            while late.recv(timeout=PATIENCE) != {"mode": "manual"}:
                pass


def test_a_pyzmq_subscriber_gets_it_too(uri):
    with penstock.publish(uri, last_value=True) as pub, zmq.Context() as context:
        with pub.claim(4, topic="a") as view:
            view[:] = b"kept"
        assert pub.offer_many([b"1", b"2"], topic="b") == 2
        with context.socket(zmq.SUB) as socket:
            socket.rcvtimeo = PATIENCE * 1000
            socket.subscribe(b"a")
            socket.connect(pub.address)
            assert socket.recv_multipart() == [b"a", b"kept"]


def test_without_the_option_a_late_subscription_gets_nothing(uri):
    with penstock.publish(uri) as pub:
        pub.send(b"old", topic="a")
        with penstock.subscribe(uri, topics="a") as late:
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send(b"new", topic="a")
            assert late.recv(timeout=PATIENCE) == b"new"


def test_values_are_newest_last_and_bounded():
    values = last_values.LastValues()
    for i in range(last_values.TOPICS_MAX):
        values.keep([b"%d" % i, b"x"])
    values.keep([b"0", b"again"])
    values.keep([b"new", b"y"])
    assert len(values.find([b""])) == last_values.TOPICS_MAX
    assert values.find([b"new"]) == [[b"new", b"y"]]
    assert values.find([b"0"]) == [[b"0", b"again"]]
    assert [b"1", b"x"] not in values.find([b"1"])
    assert values.find([]) == []


def test_it_excludes_waiting_for_room(uri):
    with pytest.raises(penstock.Unsupported, match="last_value=True and when_full="):
        penstock.publish(uri, last_value=True, when_full="wait")
    with pytest.raises(penstock.Invalid, match="last_value is 3"):
        penstock.publish(uri, last_value=3)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "penstock-last-value"]


def test_the_thread_ends_with_the_publication(uri):
    pub = penstock.publish(uri, last_value=True)
    (thread,) = threads()
    pub.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    pub = penstock.publish(uri, last_value=True)
    (thread,) = threads()
    del pub
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive():
        assert time.monotonic() < deadline, "a forgotten publication lives on"
        gc.collect()
        thread.join(0.05)
