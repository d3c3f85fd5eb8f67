"""Many processes on one channel: every writer's messages arrive at every reader, in order, unchanged."""

import multiprocessing
import zlib

import pytest
from conftest import sized

import penstock

MESSAGES = sized(600, 2000, 20_000)


def write(name, writer, count):
    with penstock.publish(name) as pub:
        for i in range(count):
            body = b"%d %d " % (writer, i) + b"x" * ((writer * 31 + i) % 300)
            pub.send(body + b" %d" % zlib.crc32(body))


def read(name, writers, count, ready, results):
    with penstock.subscribe(name) as sub:
        ready.release()
        order = zlib.crc32(b"")
        expected = [0] * writers
        for _ in range(writers * count):
            data = sub.recv(timeout=120)
            body, _, total = data.rpartition(b" ")
            assert zlib.crc32(body) == int(total)
            writer, number = (int(part) for part in body.split(b" ")[:2])
            assert number == expected[writer]
            expected[writer] += 1
            order = zlib.crc32(data, order)
        results.put((expected, order, sub.lost))


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "readers"), [(1, 3), (4, 2)])
def test_every_message_to_everyone_in_one_order(writers, readers):
    context = multiprocessing.get_context("spawn")
    ready, results = context.Semaphore(0), context.SimpleQueue()
    penstock.publish("log:many", term_length=1 << 16).close()
    reading = [
        context.Process(target=read, args=("log:many", writers, MESSAGES, ready, results)) for _ in range(readers)
    ]
    for process in reading:
        process.start()
    for _ in reading:
        assert ready.acquire(timeout=60)
    writing = [context.Process(target=write, args=("log:many", i, MESSAGES)) for i in range(writers)]
    for process in writing:
        process.start()
    found = [results.get() for _ in reading]
    for process in (*reading, *writing):
        process.join(60)
        assert process.exitcode == 0
    assert all(expected == [MESSAGES] * writers and lost == 0 for expected, _, lost in found)
    assert len({order for _, order, _ in found}) == 1
