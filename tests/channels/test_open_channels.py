"""Channels that wait for their first publication: what handles do meanwhile, what can be named, who decides."""

import asyncio
import contextlib
import json
import os
import pickle
import select
import subprocess
import threading

import pytest
from orders import KINDS, SMALL, WISHES, Writer, answer, in_child, number_in, receive, uri

import penstock
from penstock._native import core

# ---- what handles do before the first message ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_of_an_open_channel(kind):
    with penstock.subscribe(penstock.testing.channel(uri(kind), prefault=True), spin=0) as sub:
        assert sub.codec is None
        assert sub.try_recv() is None
        assert sub.poll() == []
        assert (sub.position, sub.lag, sub.lost) == (0, 0, 0)
        assert penstock.wait([sub], timeout=0) == []
        with pytest.raises(TimeoutError):
            sub.recv(timeout=0.01)
        with pytest.raises(TimeoutError), sub.borrow(timeout=0.01):
            pass
        assert sub.poll_arrow().num_rows == 0
        assert not select.select([sub], [], [], 0)[0]
        writer = Writer(kind, WISHES[kind][0])
        writer.send(1)
        assert select.select([sub], [], [], 20)[0]
        assert penstock.wait([sub], timeout=20) == [sub]
        assert receive(sub, 1) == [1]
        assert sub.codec is not None
        if kind != "ring":
            writer.send(2)
            with sub.borrow(timeout=20) as view:
                assert bytes(view).endswith(b"2")
        writer.handle.close()


@pytest.mark.parametrize("kind", KINDS)
def test_all_waits_end_with_the_first_message(kind):
    """recv in a thread, wait for several, asyncio: begun on an open channel."""
    got: list[int] = []

    async def await_one(subscription) -> None:
        got.append(number_in(await subscription.recv_async()))

    readers = [penstock.subscribe(uri(kind)) for _ in range(4)]
    count = 1 if kind == "pipe" else 4

    def wait_for_any() -> None:
        ready = penstock.wait([readers[1]], timeout=30)
        got.extend(receive(subscription, 1)[0] for subscription in ready)

    threads = [
        threading.Thread(target=lambda: got.extend(receive(readers[0], 1))),
        threading.Thread(target=wait_for_any),
        threading.Thread(target=lambda: asyncio.run(asyncio.wait_for(await_one(readers[2]), 30))),
        threading.Thread(target=lambda: got.append(number_in(next(iter(readers[3]))))),
    ]
    for thread in threads:
        thread.start()
    writer = Writer(kind, WISHES[kind][0])
    for i in range(4 if kind == "pipe" else 1):
        writer.send(i)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(got) == ([0] * 4 if count == 4 else [0, 1, 2, 3])
    for handle in [*readers, writer.handle]:
        handle.close()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_an_early_subscription(kind):
    got: list[int] = []
    problems: list[BaseException] = []

    def read(subscription, way: int) -> None:
        try:
            while len(got) < 40:
                if way == 0:
                    with contextlib.suppress(TimeoutError):
                        got.append(number_in(subscription.recv(timeout=0.05)))
                elif way == 1:
                    got.extend(number_in(message) for message in subscription.poll())
                elif (message := subscription.try_recv()) is not None:
                    got.append(number_in(message))
        except BaseException as error:
            problems.append(error)

    for _ in range(5):
        got.clear()
        with penstock.subscribe(uri(kind)) as sub:
            threads = [threading.Thread(target=read, args=(sub, way)) for way in (0, 0, 1, 2)]
            for thread in threads:
                thread.start()
            writer = Writer(kind, WISHES[kind][0])
            for i in range(40):
                writer.send(i)
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            assert not problems, problems
            assert sorted(got) == list(range(40))
            writer.handle.close()
        with contextlib.suppress(penstock.NotFound):
            penstock.remove(uri(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_closing_wakes_whoever_waits(kind):
    sub = penstock.subscribe(uri(kind))
    ended: list[object] = []
    waiter = threading.Thread(target=lambda: ended.extend(sub))
    waiter.start()
    sub.close()
    waiter.join(30)
    assert not waiter.is_alive()
    assert penstock.inspect(uri(kind)).members == ()
    with pytest.raises(penstock.Closed):
        sub.recv()


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_pickled_and_forked_before_the_first_message(kind):
    with penstock.subscribe(uri(kind)) as sub:
        other = pickle.loads(pickle.dumps(sub))
        assert len(penstock.inspect(uri(kind)).members) == 2

        def child(out: int) -> None:
            assert sub.try_recv() is None  # takes a slot of its own
            os.write(out, b"1")
            os.write(out, json.dumps(receive(sub, 1)).encode())
            sub.close()  # acknowledges: else another reader may get the message of a pipe again

        pid, out = in_child(child)
        assert os.read(out, 1) == b"1"
        assert len(penstock.inspect(uri(kind)).members) == 3
        writer = Writer(kind, WISHES[kind][0])
        for i in range(3 if kind == "pipe" else 1):
            writer.send(i)
        numbers = [*answer(out, pid), *receive(sub, 1), *receive(other, 1)]
        assert sorted(numbers) == ([0, 1, 2] if kind == "pipe" else [0, 0, 0])
        other.close()
        writer.handle.close()


def test_forked_before_and_used_after_the_decision():
    with penstock.subscribe("log:order") as sub:
        gate_read, gate_write = os.pipe()

        def child(out: int) -> None:
            os.read(gate_read, 1)
            os.write(out, json.dumps(receive(sub, 2)).encode())

        pid, out = in_child(child)
        with penstock.publish("log:order", codec="json", term_length=SMALL) as pub:
            pub.send(1)
            pub.send(2)
            os.write(gate_write, b"1")
            assert answer(out, pid) == [1, 2]
            assert receive(sub, 2) == [1, 2]


def test_a_ring_counts_its_early_readers_and_keeps_its_counting():
    order = penstock.testing.channel("ring:order", start_sequence=7, start_position=3 * SMALL)
    with penstock.subscribe("ring:order") as sub, penstock.publish(order, capacity=SMALL) as pub:
        pub.wait_for_readers(1, timeout=20)
        for i in range(5000):  # several times around
            pub.send(b"%d" % i)
        assert sub.try_recv() is None  # lapped: it goes on with the newest
        assert sub.lost_messages == 5000
        pub.send(b"on")
        assert sub.recv(timeout=20) == b"on"


def test_drop_after_counts_from_the_first_message():
    with (
        penstock.subscribe("log:order", drop_after=0.01) as sub,
        penstock.publish("log:order", term_length=SMALL) as pub,
    ):
        for _ in range(200):
            pub.send(bytes(1000), timeout=20)
        with pytest.raises(penstock.TooSlow):
            while True:
                sub.recv(timeout=1)


# ---- what can be named ----


def test_subscriptions_add_what_they_name():
    with (
        penstock.subscribe("log:order", codec="json") as one,
        penstock.subscribe("log:order", capacity=SMALL, term_length=SMALL) as two,
        penstock.subscribe("log:order") as three,
    ):
        assert penstock.inspect("log:order").state == "open"
        with penstock.publish("log:order", max_members=10) as pub:
            status = penstock.inspect("log:order")
            assert (status.codec, status.details["term_length"], status.max_members) == ("json", SMALL, 10)
            pub.send([1])
            assert [sub.recv(timeout=20) for sub in (one, two, three)] == [[1]] * 3


def test_conflicts_name_the_remedy_and_leave_the_channel_open():
    with penstock.subscribe("log:order", codec="json", term_length=SMALL):
        for wish in ({"codec": "msgpack"}, {"term_length": 2 * SMALL}):
            for open_one in (penstock.publish, penstock.subscribe):
                with pytest.raises(
                    penstock.Mismatch, match=r"penstock\.remove\('log:order'\), or penstock rm log:order"
                ):
                    open_one("log:order", **wish)
        assert penstock.inspect("log:order").state == "open"
        penstock.publish("log:order").close()
        assert penstock.inspect("log:order").codec == "json"
    told = pytest.raises(penstock.Mismatch, match="subscriptions named capacity=8388608")
    with penstock.subscribe("log:other", capacity=8 << 20), told:
        penstock.publish("log:other", term_length=SMALL)


@pytest.mark.parametrize("kind", ["log", "ring", "pipe"])
def test_too_few_slots_for_those_who_are_there(kind):
    subs = [penstock.subscribe(uri(kind)) for _ in range(5)]
    for open_one in (penstock.publish, penstock.subscribe):
        with pytest.raises(penstock.Busy, match=r"max_members=[0-9]+ leaves them no room: ask for [0-9]+ at least"):
            open_one(uri(kind), max_members=3)
    assert penstock.inspect(uri(kind)).state == "open"
    for sub in subs[2:]:
        sub.close()
    with penstock.publish(uri(kind), max_members=3) as pub:
        pub.send(b"x")
        if kind != "pipe":
            assert [sub.recv(timeout=20) for sub in subs[:2]] == [b"x"] * 2


@pytest.mark.parametrize("kind", ["log", "ring", "pipe"])
def test_slots_that_were_used_before_are_no_messages(kind):
    """The channel's table becomes smaller: where slots were, there are messages now."""
    many = [penstock.subscribe(uri(kind)) for _ in range(30)]
    for sub in many[1:]:
        sub.close()
    wish = {"max_members": 2, "max_pipes": 1, "capacity": SMALL} if kind == "pipe" else {"max_members": 2}
    size = {"log": {"term_length": SMALL}, "ring": {"capacity": SMALL}}.get(kind, {})
    with penstock.publish(uri(kind), **wish, **size) as pub:
        for i in range(3000):
            pub.send(b"%d" % i)
            assert many[0].recv(timeout=20) == b"%d" % i


def test_positions_of_an_open_channel():
    with pytest.raises(penstock.Invalid, match="nothing was published yet"):
        penstock.subscribe("log:order", start=64)
    with (
        penstock.subscribe("log:order", start=0) as zero,
        penstock.subscribe(penstock.testing.channel("log:order", start_position=4 * SMALL), term_length=SMALL),
        penstock.subscribe("log:order", start=4 * SMALL) as there,
        penstock.subscribe("log:order", start="earliest") as earliest,
        penstock.publish("log:order") as pub,
    ):
        assert pub.send(b"x") == 4 * SMALL + 64
        for sub in (zero, there, earliest):
            assert sub.recv(timeout=20) == b"x"
            assert sub.last.position == 4 * SMALL


def test_a_full_memory_leaves_the_channel_open(tmp_path, monkeypatch):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path / "channels"))
        with penstock.subscribe("log:order") as sub:
            with pytest.raises(penstock.SystemFailure, match="smaller capacity"):
                penstock.publish("log:order", codec="json")
            assert penstock.inspect("log:order").state == "open"
            assert penstock.inspect("log:order").size < SMALL  # memory that could not be used was given back
            with penstock.publish("log:order", term_length=SMALL) as pub:
                pub.send(b"x")
                assert sub.recv(timeout=20) == b"x"
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


OPEN_BYTE = 16


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_whoever_joins_or_decides_holds_the_open_byte(kind, monkeypatch):
    held: list[str] = []

    def watched(name: str):
        plain = getattr(core, name)

        def call(*args, **named):
            if not name.startswith("format") or named.get("hold") is not None:
                fd = os.open(channel_file, os.O_RDWR)
                held.append(name)
                assert not core.lock_byte(fd, OPEN_BYTE, True, False), f"{name} without the open byte"
                os.close(fd)
            return plain(*args, **named)

        monkeypatch.setattr(core, name, call)

    channel_file = os.path.join(os.environ["PENSTOCK_DIR"], f"order.{kind}")
    for name in ("early_log", "early_ring", "early_pipe", "write_notes", "format_log", "format_ring", "format_pipe"):
        watched(name)
    with penstock.subscribe(uri(kind)), penstock.subscribe(penstock.testing.channel(uri(kind), start_position=0)):
        Writer(kind, WISHES[kind][0]).handle.close()
    file = {"sync": "log"}.get(kind, kind)
    assert held == [f"early_{file}", "write_notes", f"early_{file}", f"format_{file}"]


# ---- recorders ----


def test_a_typo_is_not_recorded(archive):
    with archive.record(["log:order", "ring:order"]) as recorder:
        assert recorder.progress() == []
        with penstock.publish("ring:order", codec="json", capacity=SMALL) as pub:
            pub.send(1)
    assert [info.channel for info in archive.list()] == ["ring:order"]
    assert list(recorder.recordings) == ["ring:order"]


def test_a_recorder_in_a_process_of_its_own_may_come_first(archive):
    with (
        archive.record("log:order", process=True) as recorder,
        penstock.publish("log:order", codec="json", term_length=SMALL) as pub,
    ):
        for i in range(10):
            pub.send(i)
    assert [message.data for message in archive.replay(recorder.recordings["log:order"])] == list(range(10))


# ---- both sides write ----


def test_a_role_decides():
    with penstock.subscribe("pipe:order") as waits:
        assert waits.codec is None
        with pytest.raises(penstock.Invalid, match="cannot join a channel with a member of role"):
            penstock.join("pipe:order", role="reply")
    with penstock.join("pipe:reply", role="reply", max_messages=5), penstock.join("pipe:reply", role="request"):
        assert penstock.inspect("pipe:reply").state == "ready"
