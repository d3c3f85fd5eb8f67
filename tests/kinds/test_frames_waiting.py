"""Frames without loss: publications wait for subscriptions that say so, and for nobody else."""

import asyncio
import gc
import multiprocessing as mp
import os
import signal
import threading

import numpy as np
import pytest

import penstock

SHAPE = (64,)


@pytest.fixture
def batches():
    """A publication of three buffers and a subscription that it waits for."""
    with (
        penstock.publish("frames:batches", shape=SHAPE, dtype="u4", buffers=3) as pub,
        penstock.subscribe("frames:batches", when_slow="wait") as sub,
    ):
        yield pub, sub


def frame(value):
    return np.full(SHAPE, value, "u4")


def fill(pub):
    """Sends until there is no room; how many were sent."""
    count = 0
    while pub.offer(frame(count)) is not None:
        count += 1
    return count


def test_unreceived_frames_are_not_overwritten(batches):
    pub, sub = batches
    assert fill(pub) == 3
    assert pub.try_acquire() is None
    with pytest.raises(penstock.TimedOut, match=r"process \d+ .* has 3 frames yet to receive of the 3 buffers"):
        pub.send(frame(9), timeout=0.01)
    assert [int(got.array[0]) for got in sub.poll()] == [0, 1, 2]
    assert fill(pub) == 3
    assert sub.lost_messages == 0 == sub.conflated


def test_held_and_unread_frames_take_room(batches):
    pub, sub = batches
    assert fill(pub) == 3
    held = sub.recv(timeout=0)
    with pytest.raises(penstock.TimedOut, match=r"has 2 frames yet to receive and holds a lease on 1 of the 3 buffers"):
        pub.acquire(timeout=0)
    held.release()
    assert fill(pub) == 1


def test_a_subscription_that_skips_makes_nobody_wait(batches):
    pub, sub = batches
    with penstock.subscribe("frames:batches", conflate=False) as viewer, penstock.subscribe("frames:batches") as newest:
        for value in range(30):
            pub.send(frame(value), timeout=0)
            assert sub.recv(timeout=0).array[0] == value
        assert viewer.poll()[-1].array[0] == newest.recv(timeout=0).array[0] == 29
        assert viewer.lost_messages == 27
    assert sub.lost_messages == 0


def test_room_wakes_a_sender_and_an_event_loop(batches):
    pub, sub = batches
    assert fill(pub) == 3

    def take():
        for _ in range(4):
            sub.recv(timeout=10).release()

    taker = threading.Thread(target=take)
    taker.start()
    pub.send(frame(3), timeout=10)
    taker.join()
    assert fill(pub) == 3

    async def send():
        task = asyncio.create_task(pub.send_async(frame(4), timeout=10))
        await asyncio.sleep(0)
        assert not task.done()
        sub.recv(timeout=0).release()
        await task
        cancelled = asyncio.create_task(pub.send_async(frame(5)))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(send())
    assert [int(got.array[0]) for got in sub.poll()] == [1, 2, 4]
    assert fill(pub) == 3  # the cancelled call kept no buffer


def test_a_closed_subscription_with_held_frames_blocks_no_writer(batches):
    pub, sub = batches
    assert fill(pub) == 3
    kept = sub.recv(timeout=0).array
    sub.close()
    for value in range(20):
        pub.send(frame(value + 100), timeout=0)
    assert (kept == 0).all()
    del kept
    gc.collect()
    assert penstock.inspect("frames:batches").details["leased"] == 0


def test_closing_wakes_a_sender(batches):
    pub, sub = batches
    assert fill(pub) == 3
    threading.Timer(0.02, sub.close).start()
    pub.send(frame(3), timeout=10)


def _wait_for_nothing(ready, hold):
    sub = penstock.subscribe("frames:batches", when_slow="wait")
    ready.set()
    kept = sub.recv(timeout=30) if hold else None
    signal.pause()
    del kept


@pytest.mark.parametrize("hold", [False, True])
def test_a_dead_subscription_holds_nobody_up(batches, hold):
    pub, sub = batches
    sub.close()
    context = mp.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_wait_for_nothing, args=(ready, hold))
    child.start()
    assert ready.wait(30)
    assert fill(pub) == 3
    with pytest.raises(penstock.TimedOut, match=rf"process {child.pid} \(.*python"):
        pub.send(frame(3), timeout=0.02)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(penstock.TimedOut, match=rf"process {child.pid} "):
        pub.send(frame(3), timeout=0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    for value in range(10):
        pub.send(frame(value), timeout=10)
    assert penstock.inspect("frames:batches").totals.reaped == 1


def test_a_new_publication_overwrites_nothing_unread(batches):
    pub, sub = batches
    assert fill(pub) == 3
    pub.close()
    with penstock.publish("frames:batches") as again:
        assert again.offer(frame(3)) is None
        assert [int(got.array[0]) for got in sub.poll()] == [0, 1, 2]
        assert fill(again) == 3
    assert sub.lost_messages == 0


def test_late_subscriptions_miss_nothing_from_the_end_on(batches):
    pub, sub = batches
    pub.send(frame(0), timeout=0)
    with penstock.subscribe("frames:batches", when_slow="wait") as late:
        pub.send(frame(1), timeout=0)
        pub.send(frame(2), timeout=0)
        assert len(sub.poll()) == 3
        pub.send(frame(3), timeout=0)  # into the first one's buffer
        assert pub.offer(frame(4)) is None
        assert [int(got.array[0]) for got in late.poll()] == [1, 2, 3]
        sub.poll()


def test_fields_of_any_length_that_is_taken_are_not_lapped(batches):
    pub, sub = batches
    longest = "x" * (64 * 1024 // 6 // 32 * 32 - 64 - len('{"k":""}'))
    with pytest.raises(penstock.TooLarge, match="fields take"):
        pub.send(frame(0), meta={"k": longest + "x"})
    for _ in range(10):
        for _ in range(3):
            pub.send(frame(7), timeout=0, meta={"k": longest})
        assert [got.meta["k"] == longest for got in sub.poll()] == [True] * 3
    assert sub.lost_messages == 0


def test_options():
    with penstock.publish("frames:options", shape=SHAPE):
        with pytest.raises(penstock.Invalid, match="conflate=True for the newest one"):
            penstock.subscribe("frames:options", when_slow="wait", conflate=True)
        with pytest.raises(penstock.Invalid, match="must be 'skip' or 'wait'"):
            penstock.subscribe("frames:options", when_slow="stop")
        with pytest.raises(penstock.Unsupported, match="when_slow='drop' is for other kinds"):
            penstock.subscribe("frames:options", when_slow="drop")
        penstock.subscribe("frames:options", when_slow="skip", conflate=True).close()


def _receive_all(sub, count, back):
    back.put([int(sub.recv(timeout=30).array[0]) for _ in range(count)])


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_eighty_batches_sent_eighty_arrive(batches, how):
    pub, sub = batches
    context = mp.get_context(how)
    back = context.Queue()
    child = context.Process(target=_receive_all, args=(sub, 80, back))
    child.start()
    pub.wait_for_readers(2, timeout=30)
    sub.close()
    for value in range(80):
        pub.send(frame(value), timeout=30)
    assert back.get(timeout=30) == list(range(80))
    child.join()
