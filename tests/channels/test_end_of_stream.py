"""The end of a stream: with `until_end=True` a reader is told when the last publication has gone and everything was read."""

import asyncio
import contextlib
import multiprocessing as mp
import os
import pickle
import select
import signal
import threading

import pytest

import penstock
from penstock import testing
from penstock.channels.storage import discovery
from penstock.channels.uri.registry import kinds
from penstock.channels.waiting import readiness

FORK = mp.get_context("fork")
HANG = 60
SHARED = ("log", "ring", "frames", "sync", "pipe")
KINDS = (*SHARED, *(f"fake:{kind.name}" for kind in kinds() if kind.in_process and kind.name in SHARED))
between_processes = pytest.mark.parametrize("kind", SHARED, indirect=True)
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Kind:
    """One kind of channel: how its publications and subscriptions are opened, and how number n is sent and read."""

    def __init__(self, kind):
        self.kind, self.uri = kind.removeprefix("fake:"), f"{kind}:end"

    def publish(self):
        if self.kind == "frames":
            return penstock.publish(self.uri, shape=(4,), dtype="u4", buffers=16)
        return penstock.publish(self.uri)

    def subscribe(self, **options):
        if self.kind == "frames":
            options = {"conflate": False, "shape": (4,), "dtype": "u4", "buffers": 16, **options}
        return penstock.subscribe(self.uri, until_end=True, **options)

    def send(self, pub, number):
        if self.kind == "frames":
            import numpy as np

            pub.send(np.full(4, number, "u4"))
        else:
            pub.send(b"%d" % number)

    def number(self, message):
        if self.kind == "frames":
            with message:
                return int(message.array[0])
        return int(message)


@pytest.fixture(params=KINDS)
def kind(request):
    yield Kind(request.param)
    if request.param.startswith("fake:"):
        with contextlib.suppress(penstock.NotFound):  # the last member that leaves a sync queue removes it
            penstock.remove(f"{request.param}:end")


def test_a_loop_ends_after_the_last_publication_and_message(kind):
    with kind.subscribe() as sub:
        with kind.publish() as pub:
            for n in range(5):
                kind.send(pub, n)
        assert [kind.number(message) for message in sub] == list(range(5))
        assert not sub.closed
        for call in (sub.recv, sub.try_recv, sub.poll, sub.poll_arrow, lambda: sub.recv(0), lambda: sub.recv(1)):
            with pytest.raises(penstock.EndOfStream):
                call()
        with pytest.raises(penstock.EndOfStream), sub.borrow():
            pass
        assert list(sub) == []


def test_it_waits_before_the_first_and_during_a_publication(kind):
    with kind.subscribe() as sub:
        assert sub.try_recv() is None
        with pytest.raises(penstock.TimedOut):
            sub.recv(0.01)
        with kind.publish() as pub:
            assert sub.poll() == []
            assert sub.poll_arrow().num_rows == 0
            with pytest.raises(penstock.TimedOut):
                sub.recv(0.12)  # longer than it takes to look who lives
            kind.send(pub, 1)
            assert kind.number(sub.recv(HANG)) == 1
            assert sub.try_recv() is None
        with pytest.raises(penstock.EndOfStream):
            sub.try_recv()


def test_only_who_asks_for_the_end_is_told(kind):
    options = {"conflate": False} if kind.kind == "frames" else {}
    with kind.publish() as pub, penstock.subscribe(kind.uri, **options) as sub:
        kind.send(pub, 1)
        pub.close()
        assert kind.number(sub.recv(HANG)) == 1
        assert (sub.try_recv(), sub.poll()) == (None, [])
        with pytest.raises(penstock.TimedOut):
            sub.recv(0.01)
        assert readiness.wait([sub], 0) == []


def test_a_publication_before_the_end_is_reported_continues(kind):
    with kind.subscribe() as sub:
        with kind.publish() as pub:
            kind.send(pub, 1)
        with kind.publish() as pub:
            assert kind.number(sub.recv(HANG)) == 1
            assert sub.try_recv() is None
            kind.send(pub, 2)
        assert [kind.number(message) for message in sub] == [2]
        with kind.publish() as pub:  # and the next call reads one that comes after it
            kind.send(pub, 3)
            assert kind.number(sub.recv(HANG)) == 3


def test_a_waiting_thread_wakes_when_the_last_publication_closes(kind):
    with kind.publish() as pub, kind.subscribe() as sub:
        got = []
        reader = threading.Thread(target=lambda: got.extend(kind.number(message) for message in sub))
        reader.start()
        kind.send(pub, 7)
        pub.close()
        reader.join(HANG)
        assert not reader.is_alive()
        assert got == [7]


def test_descriptors_and_wait_say_that_the_end_is_there(kind):
    with kind.publish() as pub, kind.subscribe() as sub:
        poller = select.poll()
        poller.register(sub.fileno(), select.POLLIN)
        assert sub.try_recv() is None
        assert poller.poll(0) == []
        assert readiness.wait([sub], 0) == []
        pub.close()
        assert len(poller.poll(HANG * 1000)) == 1
        assert readiness.wait([sub], HANG) == [sub]
        with pytest.raises(penstock.EndOfStream):
            sub.try_recv()
        assert len(poller.poll(0)) == 1  # level-triggered: it stays the end


def test_asyncio_is_told_too(kind):
    async def main():
        with kind.publish() as pub, kind.subscribe() as sub:
            listening = asyncio.create_task(_listen(sub))
            borrowing = asyncio.create_task(sub.borrow_async())
            waiting = asyncio.create_task(readiness.wait_async([sub]))
            await asyncio.sleep(0)
            pub.close()
            assert await asyncio.wait_for(listening, HANG) == []
            with pytest.raises(penstock.EndOfStream):
                await asyncio.wait_for(borrowing, HANG)
            with pytest.raises(penstock.EndOfStream):
                await sub.recv_async()
            assert await asyncio.wait_for(waiting, HANG) == [sub]

    async def _listen(sub):
        return [kind.number(message) async for message in sub]

    asyncio.run(main())


def test_a_pickled_subscription_ends_as_well(kind):
    with kind.publish() as pub, kind.subscribe() as sub:
        kind.send(pub, 1)
        with pickle.loads(pickle.dumps(sub)) as again:
            kind.send(pub, 2)
            pub.close()
            numbers = {kind.number(message) for message in again} | {kind.number(message) for message in sub}
            assert numbers == {1, 2}


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_objects_end_too(codec):
    with penstock.subscribe("log:objects", until_end=True) as sub:
        with penstock.publish("log:objects", codec=codec) as pub:
            pub.send({"n": 1})
        assert list(sub) == [{"n": 1}]
        with pytest.raises(penstock.EndOfStream):
            sub.poll()


def test_a_log_that_is_over_is_read_from_its_beginning():
    with penstock.publish("log:over", codec="json") as pub:
        for n in range(3):
            pub.send(n)
    with penstock.subscribe("log:over", start="earliest", until_end=True) as sub:
        assert list(sub) == [0, 1, 2]


def test_every_publication_has_to_go():
    with (
        penstock.publish("log:two") as one,
        penstock.publish("log:two") as two,
        penstock.subscribe("log:two", until_end=True) as sub,
    ):
        one.send(b"1")
        one.close()
        assert sub.recv(HANG) == b"1"
        assert sub.try_recv() is None
        two.send(b"2")
        two.close()
        assert list(sub) == [b"2"]


def test_an_aborted_claim_is_nothing_to_read(kind):
    with kind.subscribe() as sub:
        with kind.publish() as pub:
            kind.send(pub, 1)
            claim = pub.claim(pub.max_payload if kind.kind == "frames" else 16)
            claim.abort()
        assert [kind.number(message) for message in sub] == [1]


def test_a_claim_that_is_open_at_the_close_is_nothing_to_read():
    with penstock.subscribe("log:open", until_end=True) as sub:
        pub = penstock.publish("log:open")
        claim = pub.claim(16)
        pub.close()
        assert list(sub) == []
        del claim


def test_under_a_stepper_the_end_comes_after_what_is_delivered():
    with (
        penstock.publish("fake:log:stepped") as pub,
        penstock.subscribe("fake:log:stepped", until_end=True) as sub,
        testing.hold("fake:log:stepped") as step,
    ):
        pub.send(b"1")
        pub.close()
        assert sub.try_recv() is None
        step.deliver()
        assert sub.try_recv() == b"1"
        with pytest.raises(penstock.EndOfStream):
            sub.try_recv()


def test_several_readers_are_all_told():
    readers = 4
    with penstock.publish("log:all") as pub:
        subs = [penstock.subscribe("log:all", until_end=True) for _ in range(readers)]
        got = []
        threads = [threading.Thread(target=lambda sub=sub: got.append(list(sub))) for sub in subs]
        for thread in threads:
            thread.start()
        pub.send(b"x")
        pub.close()
        for thread in threads:
            thread.join(HANG)
        assert got == [[b"x"]] * readers
        for sub in subs:
            sub.close()


def _writes_and_waits_to_be_killed(kind, count, ready):
    pub = kind.publish()
    for n in range(count):
        kind.send(pub, n)
    ready.set()
    signal.pause()


@forks
@between_processes
def test_a_reader_of_a_killed_writer_gets_all_then_the_end(kind):
    """kill -9 of the last of two writers; no writer closes."""
    with kind.subscribe() as sub:
        children, due = [], []
        for _ in range(1 if kind.kind in ("ring", "frames") else 2):
            ready = FORK.Event()
            child = FORK.Process(target=_writes_and_waits_to_be_killed, args=(kind, 9, ready), daemon=True)
            child.start()
            assert ready.wait(HANG)
            children.append(child)
            due += range(9)
        for child in children:
            assert sub.try_recv() is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join()
        rest = [kind.number(message) for message in sub]
        assert len(rest) == len(due) - len(children)


@forks
@between_processes
@pytest.mark.parametrize("way", ["recv", "fileno", "wait", "recv_async"])
def test_who_waits_is_told_of_a_death(kind, way):
    with kind.subscribe() as sub:
        ready = FORK.Event()
        child = FORK.Process(target=_writes_and_waits_to_be_killed, args=(kind, 1, ready), daemon=True)
        child.start()
        assert ready.wait(HANG)
        assert kind.number(sub.recv(HANG)) == 0
        assert sub.try_recv() is None
        killer = threading.Thread(target=lambda: (os.kill(child.pid, signal.SIGKILL), child.join()))
        killer.start()
        if way == "recv":
            with pytest.raises(penstock.EndOfStream):
                sub.recv(HANG)
        elif way == "recv_async":

            async def main():
                with pytest.raises(penstock.EndOfStream):
                    await sub.recv_async(HANG)

            asyncio.run(main())
        elif way == "wait":
            assert readiness.wait([sub], HANG) == [sub]
        else:
            poller = select.poll()
            poller.register(sub.fileno(), select.POLLIN)
            assert poller.poll(HANG * 1000)
        killer.join()
        with pytest.raises(penstock.EndOfStream):
            sub.recv(HANG)


@pytest.mark.parametrize("name", [name for name in SHARED if name != "frames"])
def test_a_channel_without_a_publication_has_no_end(name):
    """A channel that is decided waits for its first publication. A log's reader was told of an end in that moment."""
    discovery.make(f"{name}:made")
    with penstock.subscribe(f"{name}:made", until_end=True) as sub:
        assert sub.try_recv() is None
        with pytest.raises(penstock.TimedOut):
            sub.recv(timeout=0.05)
