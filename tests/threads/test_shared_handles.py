"""Threads that share a handle while the collector runs finalizers that let other threads in: each message once, whole, with its own
position, by every way of taking and of writing."""

import gc
import select
import threading
from collections import Counter

import pytest
from conftest import LONG, sized

import penstock

MESSAGES = sized(500, 1500, 40_000)
ROUNDS = 20 if LONG else 2
THREADS = 4


class Litter:
    """A cycle whose finalizer lets go of the interpreter, as one that logs, locks or closes a file does."""

    def __init__(self):
        self.me = self

    def __del__(self):
        select.select([], [], [], 0)


@pytest.fixture
def collector():
    """The collector runs at about every twentieth allocation."""
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(20, 1000, 1000)
    yield
    gc.set_threshold(*before)


def together(work):
    """Runs `work(number)` in several threads; raises what one of them raised."""
    failed = []
    barrier = threading.Barrier(THREADS)

    def run(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def body(number):
    return b"%d" % number * (1 + number % 7)


def number_of(text):
    text = bytes(text)
    size = next(n for n in range(1, len(text) + 1) if text == body(int(text[:n])))
    return int(text[:size])


def once(received, sent):
    twice = {number: count for number, count in Counter(received).items() if count != 1}
    assert not twice, f"given to several threads: {dict(list(twice.items())[:5])}"
    assert sorted(received) == list(range(sent))


def borrowed(queue):
    with queue.borrow(timeout=0) as message:
        return [(message.sender, message.type, bytes(message.body), message.position)]


def arrow_rows(queue):
    batch = queue.poll_arrow(limit=7)
    return list(zip(*(batch[name].to_pylist() for name in ("sender", "type", "payload", "position")), strict=True))


QUEUE_WAYS = {
    "try_recv": lambda q: [m] if (m := q.try_recv()) is not None else [],
    "recv": lambda q: [q.recv(timeout=0)],
    "poll": lambda q: q.poll(7),
    "borrow": borrowed,
    "poll_arrow": arrow_rows,
}


@pytest.mark.parametrize("way", QUEUE_WAYS)
def test_a_queue_gives_each_message_once(way, collector, tally):
    for turn in range(ROUNDS):
        name = f"sync:g{turn}"
        with (
            penstock.join(name, name="w", capacity=1 << 20) as writer,
            penstock.join(name, name="r") as reader,
            penstock.join(name, name="check") as check,
        ):
            for number in range(MESSAGES):  # names that are no UTF-8 take a longer way into Python's text
                writer.send(body(number), type=b"t" if number % 4 else b"t\xff%d" % (number % 70))
            where = {m.position: m for m in iter(check.try_recv, None)}
            got = []

            def work(_, reader=reader, got=got):
                mine = []
                while reader.lag:
                    try:
                        found = QUEUE_WAYS[way](reader)
                    except TimeoutError:
                        continue
                    mine += found
                    if len(mine) % 5 == 0:
                        Litter()
                got.extend(mine)

            together(work)
            for _, kind, text, position, *_ in got:
                expected = where[position]
                assert (
                    bytes(text),
                    kind.encode("utf-8", "surrogateescape" if way != "poll_arrow" else "replace")[:1],
                ) == (
                    expected.body,
                    b"t",
                ), "another message's position"
            once([number_of(text) for _, _, text, *_ in got], MESSAGES)
            tally("messages taken by threads that share a handle", MESSAGES)


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in QUEUE_WAYS if way != "borrow"])
def test_a_take_inside_a_take_gets_another_message(way, tally):
    """A finalizer may run wherever a take allocates, and take a message itself: no thread is needed for that, and no luck."""
    with (
        penstock.join("sync:inside", name="w", capacity=1 << 20) as writer,
        penstock.join("sync:inside", name="r") as reader,
    ):
        for number in range(MESSAGES):
            writer.send(body(number))
        got, inside = [], 0

        class Taker:
            """A cycle that takes a message when it is collected."""

            def __init__(self):
                self.me = self

            def __del__(self):
                nonlocal inside
                if (message := reader.try_recv()) is not None:
                    got.append(message)
                    inside += 1

        before = gc.get_threshold()
        gc.collect()
        gc.disable()
        turn = 0
        try:
            while reader.lag:
                gc.set_threshold(1 + (turn := turn + 1) % 6)  # the allocation at which the collector runs
                Taker()
                gc.enable()
                try:
                    found = QUEUE_WAYS[way](reader)
                except TimeoutError:
                    found = []
                gc.disable()
                got += found
        finally:
            gc.set_threshold(*before)
            gc.enable()
        gc.collect()
        once([number_of(message[2]) for message in got], MESSAGES)
        in_order = sorted(got, key=lambda message: message[3])
        assert [number_of(message[2]) for message in in_order] == list(range(MESSAGES)), "another message's position"
        assert inside > MESSAGES // 10
        tally("messages taken inside of a take", inside)


WAYS = {
    "try_recv": lambda sub: [m] if (m := sub.try_recv()) is not None else [],
    "recv": lambda sub: [sub.recv(timeout=0)],
    "poll": lambda sub: sub.poll(7),
    "borrow": lambda sub: borrow_bytes(sub),
    "poll_arrow": lambda sub: sub.poll_arrow(limit=7)["payload"].to_pylist(),
}


def borrow_bytes(sub):
    with sub.borrow(timeout=0) as view:
        return [bytes(view)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["log", "ring", "pipe", "log json"])
def test_a_subscription_gives_each_message_once(kind, way, collector, tally):
    name, _, codec = kind.partition(" ")
    if codec and way in ("borrow", "poll_arrow"):
        pytest.skip("these give bytes whatever the codec")
    options = {"codec": codec or None, **({"term_length": 1 << 22} if name == "log" else {"capacity": 1 << 22})}
    if name == "pipe":
        options["max_messages"] = MESSAGES
    for turn in range(ROUNDS):
        with penstock.publish(f"{name}:g{turn}", **options) as pub, penstock.subscribe(f"{name}:g{turn}") as sub:
            for number in range(MESSAGES):
                pub.send({"n": number} if codec else body(number))
            got, last = [], threading.Event()

            def work(_, sub=sub, got=got, last=last):
                mine = []
                while not last.is_set():
                    try:
                        found = WAYS[way](sub)
                    except TimeoutError:
                        found = []
                    if not found:
                        last.set()
                    mine += found
                    if len(mine) % 5 == 0:
                        Litter()
                got.extend(mine)

            together(work)
            once([message["n"] if codec else number_of(message) for message in got], MESSAGES)
            tally("messages taken by threads that share a handle", MESSAGES)


def test_a_socket_gives_each_message_once(collector, tally):
    options = {"capacity": 1 << 22, "max_messages": MESSAGES, "max_pipes": 4, "max_members": 4}
    for turn in range(ROUNDS):
        with (
            penstock.join(f"pipe:g{turn}", role="router", **options) as router,
            penstock.join(f"pipe:g{turn}", role="dealer", **options) as dealer,
        ):
            for number in range(MESSAGES):
                dealer.send(body(number))
            got, last = [], threading.Event()

            def work(_, router=router, got=got, last=last):
                while not last.is_set():
                    try:
                        got.append(number_of(router.recv(timeout=0).body))
                    except TimeoutError:
                        last.set()
                    if len(got) % 5 == 0:
                        Litter()

            together(work)
            once(got, MESSAGES)
            tally("messages taken by threads that share a handle", MESSAGES)


def test_frames_are_given_once(collector, tally):
    with (
        penstock.publish("frames:g", shape=(8,), dtype="u1", buffers=200) as pub,
        penstock.subscribe("frames:g", conflate=False) as sub,
    ):
        for _ in range(ROUNDS):
            first = pub.send(bytes(8)) and sub.recv(timeout=10).sequence + 1
            for number in range(150):
                pub.send(bytes([number] * 8))
            got = []

            def work(_, got=got):
                while (frame := sub.try_recv()) is not None:
                    got.append((frame.sequence, int(frame.array[0]), int(frame.array[7])))
                    Litter()

            together(work)
            assert sorted(got) == [(first + number, number, number) for number in range(150)]
            tally("messages taken by threads that share a handle", 150)


def test_a_queue_writes_each_message_as_it_was_given(collector, tally):
    """Bodies and types whose encoding needs Python code, written by threads that share a member, alone and many at once."""
    each = MESSAGES // THREADS // 20 * 20
    with (
        penstock.join("sync:g", name="w", capacity=1 << 22) as writer,
        penstock.join("sync:g", name="r") as reader,
    ):

        def work(number):
            for begin in range(0, each, 20):
                bodies = [b"%d:%d:\xff%s" % (number, i, b"x" * (i % 9)) for i in range(begin, begin + 20)]
                if begin % 40:
                    assert writer.offer_many(bodies, type=f"type {number} \udcfe") == 20
                else:
                    for body in bodies:
                        writer.send(body, type=f"type {number} \udcfe")
                Litter()

        together(work)
        got = reader.poll(each * THREADS + 1)
        for message in got:
            number, i, rest = message.text.split(":")
            assert message.type == f"type {number} \udcfe"
            assert rest == "\udcff" + "x" * (int(i) % 9)
        for number in range(THREADS):
            mine = [int(m.text.split(":")[1]) for m in got if m.text.startswith(f"{number}:")]
            assert mine == list(range(each))
    tally("messages written by threads that share a handle", each * THREADS)
