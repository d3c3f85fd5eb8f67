"""Senders of a log with last values are killed at random instants, while readers join late: each gets every key's newest message, and then the stream."""

import os
import threading
import time

import pytest
from conftest import sized
from crash.victims import kill, start

import penstock

KILLS = sized(20, 60, 2000)
KEYS, CHANNEL = 10, "log:params"


def send(writer, seed):
    """Numbers of each key grow, over all senders that this writer has had."""
    with penstock.publish(CHANNEL) as pub:
        for number in range(seed, 1 << 62):
            pub.send({"name": f"{writer}.{number % KEYS}", "number": number, "pad": "x" * (number % 150)})


@pytest.mark.slow
def test_readers_join_while_senders_are_killed(rng, tally):
    """A number that goes back, or that is there twice, was given twice; at the end no key lacks its newest message."""
    options = {"codec": "json", "last": "name", "term_length": 1 << 16, "last_keys": 2 * KEYS, "last_max": 256}
    failed, joins, done = [], [0], threading.Event()

    def join():
        try:
            while not done.is_set():
                seen = {}
                with penstock.subscribe(CHANNEL, start="last") as sub:
                    for _ in range(200):
                        one = sub.recv(timeout=60)
                        assert seen.get(one["name"], -2) < one["number"], (one, seen)
                        seen[one["name"]] = one["number"]
                joins[0] += 1
        except BaseException as error:
            failed.append(error)

    with penstock.publish(CHANNEL, **options) as pub:
        pub.send({"name": "0.0", "number": -1, "pad": ""})
        senders = {writer: start(send, writer, time.monotonic_ns()) for writer in range(2)}
        joiner = threading.Thread(target=join)
        joiner.start()
        for _ in range(KILLS):
            time.sleep(rng.random() * 0.01)
            writer = rng.randrange(2)
            kill(senders[writer])
            senders[writer] = start(send, writer, time.monotonic_ns())
        done.set()
        joiner.join()
        for pid in senders.values():
            kill(pid)
        with penstock.subscribe(CHANNEL, start="last") as sub:
            kept = {one["name"]: one for one in sub.poll(1000)}
        with penstock.subscribe(CHANNEL, start="earliest") as sub:
            stream = {one["name"]: one for one in sub.poll(1_000_000)}
    assert not failed
    assert stream
    assert {name: kept[name] for name in stream} == stream
    tally("kills of senders with last values", KILLS)
    tally("joins meanwhile", joins[0])


@pytest.mark.slow
def test_table_has_what_a_killed_sender_sent_last():
    """Nobody reads or sends when it dies: the next reader finishes its message."""
    with penstock.publish(CHANNEL, codec="json", last="name", term_length=1 << 16):
        for _ in range(20):
            before = penstock.inspect(CHANNEL).position
            pid = start(send, 0, time.monotonic_ns())
            while penstock.inspect(CHANNEL).position < before + 4096:
                os.sched_yield()
            kill(pid)
            with penstock.subscribe(CHANNEL, start="last") as sub:
                kept = [one["number"] for one in sub.poll(1000)]
            assert kept == list(range(kept[0], kept[0] + KEYS))
            with penstock.subscribe(CHANNEL, start="earliest") as sub:
                assert [one["number"] for one in sub.poll(1_000_000)][-1] == kept[-1]
