"""Start order does not matter: subscribing, recording or looking first decides nothing; the first publication does."""

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from contextlib import ExitStack

import pytest
from conftest import LONG, sized
from orders import KINDS, WISHES, Writer, answer, dawdle, ends_within, in_child, number_in, opened, receive, uri

import penstock

# ---- every order, one after the other ----

STEPS = ("subscribe", "record", "look", "publish", "second")


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_of_everything(kind, archive, tally):
    """Each order of: subscribe, record, look, publish, publish with other options."""
    orders = list(itertools.permutations(STEPS))
    for order in orders if LONG else orders[::3]:
        everything_in_this_order(kind, order, archive)
    tally("orders", len(orders) if LONG else len(orders[::3]))


def everything_in_this_order(kind: str, order: tuple[str, ...], archive: penstock.Archive) -> None:
    with ExitStack() as stack:
        writers: list[Writer | str] = []
        reader = recorder = None
        sent = missed = 0
        for step in order:
            if step == "subscribe":
                reader = stack.enter_context(penstock.subscribe(uri(kind)))
                assert (reader.codec is None) is (not writers)
                if (
                    kind != "pipe"
                ):  # which keeps unread messages for later readers; all others give the messages that come after
                    assert reader.try_recv() is None
                    missed = sent
            elif step == "record" and kind != "fake:log":
                recorder = stack.enter_context(archive.record(uri(kind)))
                assert bool(recorder.recordings) is bool(writers)
                recorded_from = sent
            elif step == "look":
                look(kind, bool(writers), order)
            elif step in ("publish", "second"):
                decides = not writers
                writers.append(opened(kind, WISHES[kind][step == "second"]))
                assert isinstance(writers[-1], Writer) is decides, (order, writers)
                if decides:
                    stack.callback(writers[-1].handle.close)
                    for _ in range(3):
                        writers[-1].send(sent)
                        sent += 1
        writer = next(made for made in writers if isinstance(made, Writer))
        for _ in range(3):
            writer.send(sent)
            sent += 1
        assert receive(reader, sent - missed) == list(range(missed, sent)), order
        assert reader.codec is not None
        if recorder is not None:
            number = recorder.stop()[0].recording
            assert [number_in(m.data) for m in archive.replay(number)] == list(range(recorded_from, sent)), order
            assert archive.verify(number) == []
    penstock.remove(uri(kind)) if kind != "sync" else remove_quietly(kind)


def remove_quietly(kind: str) -> None:
    with contextlib.suppress(penstock.NotFound):  # its last member did
        penstock.remove(uri(kind))


def look(kind: str, decided: bool, order: tuple[str, ...]) -> None:
    """Looking makes nothing and decides nothing."""
    came = [step for step in order[: order.index("look")] if not (step == "record" and kind == "fake:log")]
    if not came:
        with pytest.raises(penstock.NotFound):
            penstock.inspect(uri(kind))
        assert penstock.list_channels() == []
        return
    status = penstock.inspect(uri(kind))
    assert status.state == ("ready" if decided else "open")
    assert (status.codec is None) is (not decided)
    assert status.lag >= 0
    if not decided:
        assert status.size < 64 * 1024
        assert len(status.members) == len(came)
        assert all(member.pid == os.getpid() for member in status.members)


# ---- at once ----


@pytest.mark.parametrize("kind", KINDS)
def test_all_at_once_in_threads(kind, rng, tally):
    """Readers that are there before the decision get everything; exactly one wish is granted."""
    rounds = sized(6, 15, 150)
    early = 0
    for _ in range(rounds):
        early += all_at_once(kind, rng)
    tally("starts at once in threads", rounds)
    tally("subscriptions that were there first", early)


def all_at_once(kind: str, rng) -> int:
    barrier = threading.Barrier(5)
    made: dict[str, object] = {}
    problems: list[BaseException] = []

    def run(name: str, act) -> None:
        try:
            barrier.wait(20)
            dawdle(naps[name])
            made[name] = act()
        except BaseException as error:
            problems.append(error)

    def write(which: int) -> object:
        writer = opened(kind, WISHES[kind][which])
        if isinstance(writer, Writer):
            for i in range(5):
                writer.send(i)
        return writer

    def subscribe() -> tuple[penstock.types.Subscription, bool]:
        subscription = penstock.subscribe(uri(kind))
        return subscription, subscription.codec is None

    work = {"a": lambda: write(0), "b": lambda: write(1), **dict.fromkeys(("x", "y", "z"), subscribe)}
    naps = {name: random.Random(rng.random()) for name in work}
    threads = [threading.Thread(target=run, args=item) for item in work.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not problems, problems
    writers = [made[name] for name in "ab" if isinstance(made[name], Writer)]
    assert len(writers) == 1, made
    readers = [made[name] for name in "xyz"]
    if kind != "pipe":
        writers[0].send(5)
    got = []
    for reader, was_early in readers:
        if kind == "pipe":
            while (message := reader.try_recv()) is not None:
                got.append(number_in(message))
            continue
        numbers = [number_in(reader.recv(timeout=20))]
        while numbers[-1] != 5:
            numbers.append(number_in(reader.recv(timeout=20)))
        assert numbers == list(range(0 if was_early else numbers[0], 6))
    if kind == "pipe":
        deadline = time.monotonic() + 20
        while len(got) < 5 and time.monotonic() < deadline:
            for reader, _ in readers:
                if (message := reader.try_recv()) is not None:
                    got.append(number_in(message))
        assert sorted(got) == list(range(5))
    for handle in [*(reader for reader, _ in readers), writers[0].handle]:
        handle.close()
    remove_quietly(kind)
    return sum(was_early for _, was_early in readers)


# ---- processes, and deaths ----


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fake:log"])
def test_processes_in_every_order(kind, rng, tally):
    """A reader, a recording reader and two writers with different wishes, each a process, started in a random order."""
    rounds = sized(2, 5, 40)
    for _ in range(rounds):
        processes_once(kind, rng)
    tally("starts of processes", rounds)


def processes_once(kind: str, rng) -> None:
    def read(out: int) -> None:
        subscription = penstock.subscribe(uri(kind))
        early = subscription.codec is None
        numbers: list[int] = []
        while not numbers or numbers[-1] != 9:
            numbers.append(number_in(subscription.recv(timeout=30)))
        os.write(out, json.dumps([early, numbers]).encode())

    def write(out: int, which: int) -> None:
        writer = opened(kind, WISHES[kind][which])
        if isinstance(writer, Writer):
            for i in range(9):
                writer.send(i)
            while not ready():
                os.sched_yield()
            writer.send(9)
        os.write(out, json.dumps(isinstance(writer, Writer)).encode())

    def ready() -> bool:
        readers = [m for m in penstock.inspect(uri(kind)).members if m.role in ("subscription", "pull")]
        return any(kind != "sync" or not member.name for member in readers)

    roles = [("reader", read), ("first", lambda out: write(out, 0)), ("second", lambda out: write(out, 1))]
    rng.shuffle(roles)
    children = {}
    for name, act in roles:
        children[name] = in_child(act)
        dawdle(rng)
    answers = {name: answer(read_end, pid) for name, (pid, read_end) in children.items()}
    assert [answers["first"], answers["second"]].count(True) == 1, answers
    early, numbers = answers["reader"]
    assert numbers == list(range(0 if early else numbers[0], 10)), (roles, answers)
    remove_quietly(kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fake:log"])
def test_whoever_decides_is_killed(kind, rng, tally):
    """At a random moment: the next publication decides, with the same or with other options, and nothing is lost."""
    rounds = sized(8, 25, 150)
    open_still = 0
    begun = time.monotonic()
    Writer(kind, WISHES[kind][1]).handle.close()
    usual = min(time.monotonic() - begun, 0.05)
    remove_quietly(kind)
    for _ in range(rounds):
        open_still += killed_once(kind, rng, usual)
    tally("killed while they decide", rounds)
    tally("of which the channel was still open", open_still)


def killed_once(kind: str, rng, usual: float) -> bool:
    with penstock.subscribe(uri(kind)) as reader, ExitStack() as others:
        for _ in range(rng.randrange(12)):  # slots that were used before
            others.enter_context(penstock.subscribe(uri(kind)))
        others.close()

        def decide(out: int) -> None:
            ends_within(rng, 1.5 * usual)
            writer = Writer(kind, WISHES[kind][1])
            writer.send(0)
            signal.pause()

        pid, out = in_child(decide)
        rng.random()  # the child has gone on with a copy
        os.waitpid(pid, 0)
        os.close(out)
        state = penstock.inspect(uri(kind)).state
        writer = opened(kind, WISHES[kind][0])
        if state == "open":
            assert isinstance(writer, Writer), writer
        else:
            assert isinstance(writer, str)
            writer = Writer(kind, WISHES[kind][1])
        writer.send(7)
        first = number_in(reader.recv(timeout=20))
        assert first == 7 or (state == "ready" and first == 0 and receive(reader, 1) == [7])
        writer.handle.close()
    remove_quietly(kind)
    return state == "open"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fake:log"])
def test_whoever_joins_is_killed(kind, rng, tally):
    """Subscriptions that die while they join an open channel leave nothing that stays."""
    rounds = sized(5, 15, 60)

    def join_and_die(out: int) -> None:
        ends_within(rng, 0.01)
        _ = [penstock.subscribe(uri(kind)) for _ in range(20)]
        signal.pause()

    with penstock.subscribe(uri(kind)) as reader:
        for _ in range(rounds):
            pid, out = in_child(join_and_die)
            rng.random()
            os.waitpid(pid, 0)
            os.close(out)
        assert len(penstock.inspect(uri(kind)).members) == 1
        writer = Writer(kind, WISHES[kind][0])
        for i in range(2000 if kind in ("log", "sync") else 30):  # more than one window: nobody waits for the dead
            writer.send(i)
            assert number_in(reader.recv(timeout=20)) == i
        writer.handle.close()
    tally("killed while they join", rounds)
