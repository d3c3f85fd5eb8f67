"""The promises on which users of msgq's sockets and fake events rely."""

import os
import subprocess
import sys
import threading
import time

import pytest
from peers.bounds import ends

import penstock
from penstock.compat import msgq as ours


@pytest.fixture
def fake(msgq):
    """Sockets made in the test are fake ones, under a prefix of their own."""
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix("peers")
    yield msgq
    msgq.delete_fake_prefix()
    msgq.toggle_fake_events(False)


def test_readers_are_up_to_date_only_if_there_are_any(msgq, endpoint):
    pub = msgq.pub_sock(endpoint)
    assert not pub.all_readers_updated()
    sub = msgq.sub_sock(endpoint)
    pub.send(b"x")
    assert not pub.all_readers_updated()
    assert sub.receive(non_blocking=True) == b"x"
    assert pub.all_readers_updated()


def test_waiting_for_readers_is_in_seconds(msgq, endpoint):
    pub = msgq.pub_sock(endpoint)
    with ends("wait_for_readers") as took, pytest.raises(TimeoutError):
        pub.wait_for_readers(0.3, interval=0.01)
    assert took[0] >= 0.3
    subs = []
    timer = threading.Timer(0.05, lambda: subs.append(msgq.sub_sock(endpoint)))
    timer.start()
    with ends("wait_for_readers"):
        pub.wait_for_readers(timeout=8)
    timer.join()
    assert subs


def test_a_counted_reader_misses_nothing(msgq, endpoint):
    """Making an endpoint is no reading: a publisher that waited for readers may send at once."""
    for number in range(20):
        name, got = f"{endpoint}-{number}", []

        def read(name=name, got=got):
            sub = msgq.sub_sock(name, timeout=5000)
            got.append(sub.receive())

        pub, thread = msgq.pub_sock(name), threading.Thread(target=read)
        thread.start()
        with ends("wait_for_readers"):
            pub.wait_for_readers(8)
        pub.send(b"first")
        thread.join()
        assert got == [b"first"]


def test_polling_and_receive_timeouts_are_in_milliseconds(msgq, endpoint, tally):
    sub, poller = msgq.sub_sock(endpoint, timeout=60), msgq.Poller()
    poller.registerSocket(sub)
    with ends("receive") as took:
        assert sub.receive() is None
    assert took[0] >= 0.06
    with ends("poll") as took:
        assert poller.poll(60) == []
    assert took[0] >= 0.06
    sub.setTimeout(60)
    with ends("receive") as took:
        assert sub.receive() is None
    assert took[0] >= 0.06
    tally("calls whose unit of time was measured", 3)


def test_waiting_for_events_is_in_seconds(fake, endpoint, tally):
    handle = fake.fake_event_handle(endpoint)
    event = handle.recv_called_event
    with ends("Event.wait") as took, pytest.raises(RuntimeError):
        event.wait(1)
    assert took[0] >= 0.99
    with ends("wait_for_one_event") as took, pytest.raises(RuntimeError):
        fake.wait_for_one_event([event], 1)
    assert took[0] >= 0.99
    tally("calls whose unit of time was measured", 2)


def test_a_context_is_asked_for_and_ends(msgq, endpoint):
    context = msgq.Context()
    pub, sub = msgq.PubSocket(), msgq.SubSocket()
    with pytest.raises(TypeError):
        sub.connect(endpoint, endpoint)
    sub.connect(context, endpoint)
    pub.connect(context, endpoint)
    context.term()
    pub.wait_for_readers() if msgq is ours else sub.receive(non_blocking=True)
    pub.send(b"x")
    assert sub.receive() == b"x"
    assert isinstance(msgq.context, msgq.Context)
    assert msgq.NO_TRAVERSAL_LIMIT == (1 << 64) - 1
    assert issubclass(msgq.MultiplePublishersError, msgq.IpcError)


def test_an_ended_context_connects_nothing(endpoint):
    """The original's process ends here."""
    context = ours.Context()
    context.term()
    for socket in (ours.PubSocket(), ours.SubSocket()):
        with pytest.raises(ours.IpcError, match="terminated"):
            socket.connect(context, endpoint)


def test_names_are_text_or_bytes(msgq, endpoint):
    sub, pub = msgq.SubSocket(), msgq.PubSocket()
    pub.connect(msgq.context, endpoint.encode())
    sub.connect(msgq.context, endpoint, b"127.0.0.1", True)
    pub.send(b"1")
    pub.send(b"2")
    assert msgq.drain_sock_raw(sub) == [b"2"]
    for prefix in ("text", b"bytes"):
        msgq.set_fake_prefix(prefix)
        assert msgq.get_fake_prefix() == (prefix if isinstance(prefix, bytes) else prefix.encode())
    msgq.set_fake_prefix("")
    assert msgq.get_fake_prefix() == b""


@pytest.mark.parametrize("segment", [3 << 16, 1 << 20, 10 << 20])
def test_a_third_of_the_segment_is_one_message(msgq, endpoint, segment):
    pub, sub = msgq.pub_sock(endpoint, segment_size=segment), msgq.sub_sock(endpoint, segment_size=segment)
    data = os.urandom(segment // 3 - 64)
    for _ in range(3):
        pub.send(data)
        assert sub.receive() == data


def test_a_prefix_keeps_programs_apart(monkeypatch, endpoint):
    """The original does so too, in a folder that has to be made for it."""
    sub = ours.sub_sock(endpoint)
    monkeypatch.setenv("OPENPILOT_PREFIX", "other")
    pub, there = ours.pub_sock(endpoint), ours.sub_sock(endpoint)
    pub.send(b"x")
    assert there.receive(non_blocking=True) == b"x"
    assert sub.receive(non_blocking=True) is None
    assert {status.channel for status in penstock.list_channels()} == {f"ring:{endpoint}", f"ring:other.{endpoint}"}


# ---- fake events ----


def test_nobodys_events_have_no_descriptor(fake, endpoint):
    pub = fake.pub_sock(endpoint)
    handle = fake.fake_event_handle(endpoint, override=False)
    assert not handle.enabled
    assert handle.recv_called_event.fd == handle.recv_ready_event.fd == -1
    if fake is ours:  # the original's process ends here
        for call in (handle.recv_called_event.set, handle.recv_called_event.peek, handle.recv_ready_event.clear):
            with pytest.raises(RuntimeError, match="override"):
                call()
        with pytest.raises(RuntimeError, match="override"):
            handle.enabled = True
    del pub


def test_a_new_handle_begins_with_lowered_events(fake, endpoint):
    old = fake.fake_event_handle(endpoint, enable=True)
    old.recv_called_event.set()
    old.recv_ready_event.set()
    new = fake.fake_event_handle(endpoint)
    assert not new.recv_called_event.peek()
    assert not new.recv_ready_event.peek()
    assert not new.enabled
    assert not old.enabled  # there is one switch
    assert old.recv_called_event.peek()


def test_a_handle_takes_its_events_with_it(fake, endpoint):
    handle = fake.fake_event_handle(endpoint, enable=True)
    assert fake.fake_event_handle(endpoint, override=False).recv_called_event.fd >= 0
    del handle
    assert fake.fake_event_handle(endpoint, override=False).recv_called_event.fd == -1


def test_clearing_says_how_often_an_event_was_raised(fake, endpoint):
    handle = fake.fake_event_handle(endpoint)
    event = handle.recv_ready_event
    assert event.clear() == 0
    for _ in range(300):
        event.set()
    assert event.clear() == 300
    assert not event.peek()


def test_one_of_several_events(fake, endpoint):
    handles = [fake.fake_event_handle(f"{endpoint}{i}") for i in range(3)]
    events = [handle.recv_called_event for handle in handles]
    unmade = fake.fake_event_handle(endpoint, override=False).recv_called_event
    events[2].set()
    assert fake.wait_for_one_event(events, 5) == 2
    events[1].set()
    assert fake.wait_for_one_event([unmade, *events], 5) == 2


def test_sockets_are_fake_if_they_were_made_so(fake, endpoint):
    handle = fake.fake_event_handle(endpoint, enable=True)
    stepped, poller = fake.sub_sock(endpoint), fake.Poller()
    poller.registerSocket(stepped)
    fake.toggle_fake_events(False)
    plain, pub = fake.sub_sock(endpoint), fake.pub_sock(endpoint)
    plain.receive(non_blocking=True)
    assert not handle.recv_called_event.peek()
    handle.recv_ready_event.set()
    stepped.receive(non_blocking=True)
    assert handle.recv_called_event.clear() == 1
    assert len(poller.poll(0)) == 1  # a fake poller gives everything
    del pub


CHILD = """
import sys
import {module} as msgq
handle = msgq.fake_event_handle({endpoint!r}, identifier="peers", override=False)
handle.recv_called_event.set()
assert handle.recv_ready_event.fd >= 0
print(handle.enabled)
"""


def test_any_process_finds_the_events_by_name(fake, endpoint):
    handle = fake.fake_event_handle(endpoint, enable=True)
    code = CHILD.format(module=fake.__name__, endpoint=endpoint)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert handle.recv_called_event.clear() == 1


def test_events_leave_nothing_behind(channel_folder, endpoint):
    code = (
        f"import penstock.compat.msgq as m; h = m.fake_event_handle({endpoint!r}); g = m.fake_event_handle('g'); del h"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert list(channel_folder.iterdir()) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_copy_of_a_handle_takes_nothing_away(endpoint):
    handle = ours.fake_event_handle(endpoint)
    pid = os.fork()
    if pid == 0:
        del handle
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert ours.fake_event_handle(endpoint, override=False).recv_called_event.fd >= 0


def test_a_receive_is_let_go_when_its_handle_ends(monkeypatch, endpoint):
    """The original's receive waits for ever."""
    monkeypatch.setenv("CEREAL_FAKE", "1")
    handle, got = ours.fake_event_handle(endpoint, enable=True), []
    sub = ours.sub_sock(endpoint)
    thread = threading.Thread(target=lambda: got.append(sub.receive(non_blocking=True)))
    thread.start()
    handle.recv_called_event.wait(30)
    del handle
    with ends("a receive whose handle is gone"):
        thread.join()
    assert got == [None]


def test_a_socket_follows_the_newest_handle(monkeypatch, endpoint):
    """The original's socket stays with the events that it saw first."""
    monkeypatch.setenv("CEREAL_FAKE", "1")
    first = ours.fake_event_handle(endpoint, enable=True)
    sub = ours.sub_sock(endpoint)
    first.recv_ready_event.set()
    sub.receive(non_blocking=True)
    second = ours.fake_event_handle(endpoint, enable=True)
    second.recv_ready_event.set()
    sub.receive(non_blocking=True)
    assert (first.recv_called_event.clear(), second.recv_called_event.clear()) == (1, 1)
    del first, second
    before = time.monotonic()
    assert sub.receive(non_blocking=True) is None  # nobody steps it any more
    assert time.monotonic() - before < 60
