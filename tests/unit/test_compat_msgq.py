"""The sockets of msgq by their names: what programs that use it expect."""

import os
import random
import signal
import threading
import time

import pytest

import penstock
from penstock.compat import msgq


@pytest.mark.parametrize("length", [0, 1, 1000, 100_000, 1_000_000])
def test_a_message_arrives_as_it_was_sent(length):
    pub, sub = msgq.pub_sock("e"), msgq.sub_sock("e")
    data = random.Random(length).randbytes(length)
    pub.send(data)
    assert sub.receive() == data
    assert sub.receive(non_blocking=True) is None


def test_order_and_draining():
    pub, sub = msgq.pub_sock("e"), msgq.sub_sock("e")
    sent = [b"%d" % i for i in range(1000)]
    for data in sent:
        pub.send(data)
    assert msgq.drain_sock_raw(sub) == sent
    assert msgq.drain_sock_raw(sub) == []
    threading.Timer(0.05, pub.send, (b"later",)).start()
    assert msgq.drain_sock_raw(sub, wait_for_one=True) == [b"later"]


def test_conflate():
    pub, latest, every = msgq.pub_sock("e"), msgq.sub_sock("e", conflate=True), msgq.sub_sock("e")
    for i in range(10):
        pub.send(b"%d" % i)
    assert msgq.drain_sock_raw(latest) == [b"9"]
    assert len(msgq.drain_sock_raw(every)) == 10
    assert latest.subscription.conflated == 9


def test_timeouts_are_milliseconds():
    sub = msgq.sub_sock("e", timeout=50)
    begun = time.monotonic()
    assert sub.receive() is None
    assert 0.05 <= time.monotonic() - begun < 5
    assert msgq.drain_sock_raw(sub, wait_for_one=True) == []


def test_a_reader_hears_only_what_comes_after_it():
    pub = msgq.pub_sock("e")
    pub.send(b"before")
    sub = msgq.sub_sock("e")
    pub.send(b"after")
    assert sub.receive() == b"after"


def test_all_readers_updated():
    pub = msgq.pub_sock("e")
    assert pub.all_readers_updated()
    one, two = msgq.sub_sock("e"), msgq.sub_sock("e")
    pub.send(b"a")
    assert not pub.all_readers_updated()
    one.receive()
    assert not pub.all_readers_updated()
    two.receive()
    assert pub.all_readers_updated()


def test_many_readers_and_none_is_evicted():  # the original has room for 15, and the 16th makes all others begin anew
    pub = msgq.pub_sock("e")
    readers = [msgq.sub_sock("e") for _ in range(60)]
    pub.send(b"x")
    assert all(reader.receive(non_blocking=True) == b"x" for reader in readers)


def test_polling():
    poller = msgq.Poller()
    assert poller.poll(0) == []
    pubs = [msgq.pub_sock(f"e{i}") for i in range(20)]
    subs = [msgq.sub_sock(f"e{i}", poller=poller) for i in range(20)]
    begun = time.monotonic()
    assert poller.poll(50) == []
    assert time.monotonic() - begun >= 0.05
    pubs[3].send(b"3")
    pubs[17].send(b"17")
    assert poller.poll(1000) == [subs[3], subs[17]]
    assert [sub.receive(non_blocking=True) for sub in (subs[3], subs[17])] == [b"3", b"17"]
    threading.Timer(0.05, pubs[5].send, (b"5",)).start()
    assert poller.poll(-1) == [subs[5]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_publishers_one_after_the_other():
    sub = msgq.sub_sock("e")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        msgq.pub_sock("e").send(b"child")
        keep = msgq.pub_sock("e2")
        keep.send(b"")
        os.write(write, b"r")
        signal.pause()
    assert os.read(read, 1) == b"r"
    assert sub.receive() == b"child"
    with pytest.raises(msgq.MultiplePublishersError, match=str(pid)):
        msgq.pub_sock("e2")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    msgq.pub_sock("e2").send(b"mine")
    msgq.pub_sock("e").send(b"parent")
    assert sub.receive() == b"parent"


def test_sizes_and_errors():
    with pytest.raises(msgq.IpcError, match="not connected"):
        msgq.PubSocket().send(b"x")
    with pytest.raises(msgq.IpcError, match="not connected"):
        msgq.SubSocket().receive()
    with pytest.raises(msgq.IpcError, match="segment_size"):
        msgq.pub_sock("e", segment_size=1 << 31)
    with pytest.raises(msgq.IpcError, match="no channel name"):
        msgq.pub_sock("a/b")
    sub = msgq.sub_sock("small", segment_size=100_000)
    assert penstock.inspect("ring:small").term_length == 1 << 17
    pub = msgq.pub_sock("small", segment_size=50 << 20)  # the first one chose
    with pytest.raises(msgq.IpcError, match="larger capacity"):
        pub.send(bytes(1 << 16))
    pub.send(b"fits")
    assert sub.receive() == b"fits"
    assert [status.channel for status in penstock.channels()] == ["ring:small"]
