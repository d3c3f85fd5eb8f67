"""Pipes and mailboxes between threads: objects by reference, in order, without a lock on the reader's side."""

import asyncio
import gc
import queue
import select
import subprocess
import sys
import threading
import time
import weakref

import pytest

import penstock

KINDS = (penstock.threads.Pipe, penstock.threads.Mailbox)
kinds = pytest.mark.parametrize("kind", KINDS)


class Thing:
    """An object that can be watched."""


@kinds
def test_objects_are_handed_over_by_reference_and_in_order(kind):
    pipe = kind()
    things = [Thing() for _ in range(1000)]
    for thing in things:
        pipe.put(thing)
    assert pipe.qsize() == 1000
    assert all(pipe.get() is thing for thing in things)
    assert pipe.empty()
    with pytest.raises(queue.Empty):
        pipe.get_nowait()
    with pytest.raises(TimeoutError):
        pipe.get(timeout=0.01)
    with pytest.raises(queue.Empty):
        pipe.get(block=False)
    pipe.put_nowait(None)
    assert pipe.get(timeout=1) is None


@pytest.mark.slow
@kinds
def test_nothing_leaks(kind):
    pipe, thing = kind(), Thing()
    gone = weakref.ref(thing)
    pipe.put(thing)
    del thing
    assert gone() is not None
    pipe.get()
    gc.collect()
    assert gone() is None
    pipe.put(left := Thing())
    gone = weakref.ref(left)
    del left, pipe
    gc.collect()
    assert gone() is None


@kinds
def test_a_thread_waits_and_is_woken(kind):
    pipe, got = kind(), []
    reader = threading.Thread(target=lambda: got.extend(pipe))
    reader.start()
    for i in range(20_000):
        pipe.put(i)
    pipe.close()
    reader.join(20)
    assert got == list(range(20_000))
    with pytest.raises(penstock.Closed):
        pipe.put(1)
    with pytest.raises(penstock.Closed):
        pipe.get()


def test_many_writers_and_many_readers_of_a_mailbox():
    box, got = penstock.threads.Mailbox(), [[] for _ in range(3)]
    readers = [threading.Thread(target=lambda mine=mine: mine.extend(box)) for mine in got]
    writers = [threading.Thread(target=lambda w=w: [box.put((w, i)) for i in range(3000)]) for w in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(20)
    box.close()
    for thread in readers:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(item for mine in got for item in mine) == [(w, i) for w in range(4) for i in range(3000)]
    for mine in got:
        for w in range(4):
            numbers = [i for by, i in mine if by == w]
            assert numbers == sorted(numbers)


@kinds
def test_its_descriptor_is_readable_while_there_is_something(kind):
    pipe = kind()
    pipe.put(1)
    pipe.put(2)
    poller = select.poll()
    poller.register(pipe.fileno(), select.POLLIN)
    assert poller.poll(0)
    assert pipe.get() == 1
    assert poller.poll(0)  # level-triggered
    assert pipe.get() == 2
    with pytest.raises(queue.Empty):
        pipe.get_nowait()
    assert not poller.poll(0)
    threading.Timer(0.02, pipe.put, [3]).start()
    assert poller.poll(5000)
    assert pipe.get_nowait() == 3
    pipe.close()
    assert poller.poll(0)


@kinds
def test_asyncio(kind):
    async def both():
        pipe = kind()
        task = asyncio.create_task(pipe.get_async())
        await asyncio.sleep(0)
        task.cancel()
        thread = threading.Thread(target=lambda: [pipe.put(i) for i in range(500)] and pipe.close())
        thread.start()
        got = [item async for item in pipe]
        thread.join()
        return got

    assert asyncio.run(asyncio.wait_for(both(), 20)) == list(range(500))


def test_interrupts_and_the_end_of_the_process_are_heeded():
    program = """
import _thread, threading, penstock
threading.Timer(0.2, _thread.interrupt_main).start()
try:
    penstock.threads.{kind}().get()
except KeyboardInterrupt:
    print("heeded")
waits = threading.Thread(target=penstock.threads.{kind}().get, daemon=True)
waits.start()
"""
    for kind in ("Pipe", "Mailbox"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(kind=kind)], capture_output=True, text=True, timeout=20
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "heeded\n", "")


def test_arguments_are_checked():
    pipe = penstock.threads.Pipe()
    with pytest.raises(penstock.Invalid):
        pipe.get(timeout=-1)
    with pytest.raises(TypeError):
        pipe.put()
    with pytest.raises(TypeError, match="takes an optional block"):
        pipe.get(1, 2, 3)
    begun = time.monotonic()
    with pytest.raises(penstock.TimedOut):
        pipe.get(timeout=0.05)
    assert time.monotonic() - begun < 5
