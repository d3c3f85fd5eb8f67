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
    assert not pub.all_readers_updated()  # nobody is there
    one, two = msgq.sub_sock("e"), msgq.sub_sock("e")
    pub.send(b"a")
    assert not pub.all_readers_updated()
    one.receive()
    assert not pub.all_readers_updated()
    two.receive()
    assert pub.all_readers_updated()


def test_many_readers_and_none_is_evicted():  # the original has room for 15, and the 16th makes all others start again
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
    with pytest.raises(msgq.IpcError, match="not a channel name"):
        msgq.pub_sock("a//b")
    sub = msgq.sub_sock("small", segment_size=90_000)
    pub = msgq.pub_sock("small", segment_size=50 << 20)  # the first one named another
    assert penstock.inspect("ring:small").capacity == 1 << 17
    with pytest.raises(msgq.IpcError, match="larger capacity"):
        pub.send(bytes(1 << 16))
    pub.send(b"fits")
    assert sub.receive() == b"fits"
    assert [status.channel for status in penstock.list_channels()] == ["ring:small"]


WAIT = 30  # seconds


@pytest.fixture
def fake_events():
    """Fake events under a name of their own."""
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix(f"test{random.random()}")
    yield
    msgq.delete_fake_prefix()
    msgq.toggle_fake_events(False)


def test_an_event_is_raised_and_lowered(fake_events):
    event = msgq.fake_event_handle("e").recv_called_event
    assert not event.peek()
    event.set()
    assert event.peek()
    event.wait(WAIT)
    assert msgq.wait_for_one_event([msgq.fake_event_handle("f").recv_ready_event, event], WAIT) == 1
    event.clear()
    assert not event.peek()
    for seconds in (0, 0.01):
        with pytest.raises(RuntimeError):
            event.wait(seconds)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_event_is_raised_by_a_child(fake_events):
    event = msgq.fake_event_handle("e").recv_called_event
    pid = os.fork()
    if pid == 0:
        event.set()
        os._exit(0)
    event.wait(WAIT)
    assert event.peek()
    os.waitpid(pid, 0)


def test_events_exist_where_they_were_made(fake_events):
    handle = msgq.fake_event_handle("e", override=True)
    assert not handle.enabled
    assert handle.recv_called_event.fd > 0
    assert handle.recv_ready_event.fd > 0
    handle.enabled = True
    before = handle.enabled, handle.recv_called_event.fd, handle.recv_ready_event.fd
    msgq.pub_sock("e")
    assert (handle.enabled, handle.recv_called_event.fd, handle.recv_ready_event.fd) == before
    msgq.pub_sock("other")
    unmanaged = msgq.fake_event_handle("other", override=False)
    assert not unmanaged.enabled
    assert unmanaged.recv_called_event.fd == unmanaged.recv_ready_event.fd == -1
    with pytest.raises(RuntimeError, match="override"):
        unmanaged.recv_called_event.set()


def test_stepping_is_switched_on_and_off(fake_events):
    handle = msgq.fake_event_handle("e", enable=True)
    pub, sub = msgq.pub_sock("e"), msgq.sub_sock("e")
    handle.recv_ready_event.set()
    pub.send(b"test")
    assert sub.receive() == b"test"
    assert handle.recv_called_event.peek()
    handle.recv_called_event.clear()
    handle.enabled = False
    pub.send(b"again")
    assert sub.receive() == b"again"
    assert not handle.recv_called_event.peek()
    poller = msgq.Poller()
    poller.registerSocket(sub)
    assert poller.poll(0) == [sub]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_another_process_is_stepped_receive_by_receive(fake_events):
    handle = msgq.fake_event_handle("there", enable=True)
    called, ready = handle.recv_called_event, handle.recv_ready_event
    pid = os.fork()
    if pid == 0:
        pub, sub = msgq.pub_sock("back"), msgq.sub_sock("there")
        frame = -1
        while True:
            frame += 1
            if sub.receive(non_blocking=True) is not None:
                pub.send(frame.to_bytes(8, "little"))
    try:
        pub, sub = msgq.pub_sock("there"), msgq.sub_sock("back")
        for i in range(10):
            called.wait(WAIT)
            called.clear()
            if i == 0:
                sub.receive(non_blocking=True)
            pub.send(i.to_bytes(8, "little"))
            ready.set()
            called.wait(WAIT)
            message = sub.receive(non_blocking=True)
            assert int.from_bytes(message, "little") == i
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
