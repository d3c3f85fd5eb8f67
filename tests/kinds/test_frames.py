"""A frames channel: arrays by reference, leases that hold, streams under one name."""

import asyncio
import gc
import multiprocessing as mp
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from people import until

import penstock
from penstock._native.core import describe_frame

SHAPE = (4, 6, 3)
PATIENCE = 60  # seconds: only a hang takes so long
CARRIED_NS = 1000  # by which a time of the library differs from the system's at most: it is carried by a counter


@pytest.fixture
def cam():
    """A publication of three buffers and a subscription that reads in order."""
    with (
        penstock.publish("frames:cam", shape=SHAPE, buffers=3) as pub,
        penstock.subscribe("frames:cam", conflate=False) as sub,
    ):
        yield pub, sub


def publish(pub, value, **said):
    with pub.acquire(timeout=PATIENCE) as frame:
        frame.array[...] = value
        for name, what in said.items():
            setattr(frame, name, what)


def test_a_frame_arrives_with_what_is_said_of_it(cam):
    pub, sub = cam
    before = time.time_ns()
    with pub.acquire() as frame:
        assert frame.array.shape == SHAPE
        assert frame.array.dtype == np.uint8
        assert frame.array.flags.writeable
        frame.array[...] = np.arange(72).reshape(SHAPE)
        frame.id, frame.start_ns, frame.end_ns = 77, -5, 2**62
        frame.meta["exposure"] = {"gain": 1.5, "name": "süd"}
    got = sub.recv(timeout=1)
    assert np.array_equal(got.array, np.arange(72).reshape(SHAPE))
    assert (got.id, got.start_ns, got.end_ns, got.sequence) == (77, -5, 2**62, 0)
    assert got.meta == {"exposure": {"gain": 1.5, "name": "süd"}}
    assert before - CARRIED_NS <= got.time_ns <= time.time_ns() + CARRIED_NS
    assert sub.last.position == got.position == 0
    assert sub.try_recv() is None
    assert "Frame 0 id=77" in repr(got)


def test_received_arrays_are_read_only_and_share_memory(cam):
    pub, sub = cam
    publish(pub, 1)
    frame = sub.recv(timeout=1)
    with pytest.raises(ValueError, match="read-only"):
        frame.array[0, 0, 0] = 2
    assert np.shares_memory(frame.array, pub and frame.array[1:])
    assert not frame.array.flags.owndata
    assert np.asarray(frame).base is not None
    assert np.array(frame, dtype="f4").dtype == np.float32


def test_a_published_frame_cannot_be_written(cam):
    pub, sub = cam
    with pub.acquire() as frame:
        array = frame.array
        array[...] = 3
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 4
    with pytest.raises(penstock.Closed, match="acquire another"):
        _ = frame.array
    assert sub.recv(timeout=1).array.max() == 3


def test_a_raising_block_publishes_nothing_and_frees_the_buffer(cam):
    pub, sub = cam
    for _ in range(10):
        with pytest.raises(KeyError), pub.acquire(timeout=0) as frame:
            frame.array[...] = 1
            raise KeyError
    assert sub.try_recv() is None
    assert sub.lost_messages == 0
    publish(pub, 2)
    assert sub.recv(timeout=1).sequence == 0


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("meta", {"a": {1, 2, object()}}),
        ("meta", [5]),
        ("id", "seven"),
        ("id", -1),
        ("start_ns", 1.5),
        ("end_ns", 2**70),
    ],
)
def test_unencodable_fields_are_an_error_and_free_the_buffer(cam, what, value):
    pub, sub = cam
    for _ in range(5):
        with pytest.raises(penstock.Invalid, match=f"^{pub.channel}: ({what} is|cannot be sent|.* JSON)"):
            publish(pub, 1, **{what: value})
    assert sub.try_recv() is None
    with pytest.raises(penstock.TooLarge, match="fit"):
        publish(pub, 1, meta={"long": "x" * 100_000})
    publish(pub, 1)
    assert sub.recv(timeout=1).sequence == 0


@pytest.mark.parametrize("fields", [b"not json", b"[1, 2]", b"\xff"])
def test_damaged_fields_are_an_error_and_no_pixels_are_lost(cam, fields):
    """Another program's library can send them."""
    pub, sub = cam
    with pub.acquire(timeout=0) as frame:
        frame.array[...] = 3
        describe_frame(frame, None, 0, 0, fields)
    got = sub.recv(timeout=1)
    with pytest.raises(penstock.Corrupt, match=f"^{pub.channel}: the note of frame 0 is damaged"):
        got.meta
    assert got.array.max() == 3


def test_a_leased_frame_is_never_written_to(cam):
    pub, sub = cam
    publish(pub, 1)
    kept = sub.recv(timeout=1).array
    for value in range(2, 50):
        publish(pub, value)
        assert sub.recv(timeout=1).array.min() == value
        assert (kept == 1).all()
    assert sub.leases == 1
    assert sub.lost_messages == 0


def test_the_lease_lasts_as_long_as_anything_made_from_the_frame(cam):
    pub, sub = cam
    publish(pub, 1)
    view = sub.recv(timeout=1).array[1:, ::2][0].T
    gc.collect()
    assert sub.leases == 1 == penstock.inspect("frames:cam").details["leased"]
    del view
    assert sub.leases == 0 == penstock.inspect("frames:cam").details["leased"]


def test_a_frame_can_be_let_go_of_at_once(cam):
    pub, sub = cam
    publish(pub, 1)
    frame = sub.recv(timeout=1)
    array = frame.array
    with pytest.raises(BufferError, match="still in use"):
        frame.release()
    del array
    frame.release()
    frame.release()
    assert sub.leases == 0
    with pytest.raises((BufferError, ValueError)):
        _ = frame.array
    publish(pub, 2)
    with sub.recv(timeout=1) as frame:
        assert frame.array.max() == 2
    assert sub.leases == 0


def test_without_a_free_buffer_the_publication_waits(cam):
    pub, sub = cam
    held = []
    for value in range(3):
        publish(pub, value)
        held.append(sub.recv(timeout=1))
    assert pub.try_acquire() is None
    assert pub.offer(np.zeros(SHAPE, np.uint8)) is None
    with pytest.raises(TimeoutError):
        pub.acquire(timeout=0.05)
    assert [int(frame.array[0, 0, 0]) for frame in held] == [0, 1, 2]
    threading.Timer(0.1, held.pop).start()
    begun = time.monotonic()
    with pub.acquire(timeout=PATIENCE) as frame:
        frame.array[...] = 9
    assert time.monotonic() - begun < PATIENCE, "the buffer was found at the end of the wait"
    assert sub.recv(timeout=1).array.max() == 9


def test_several_buffers_may_be_open_at_once(cam):
    pub, sub = cam
    first, second = pub.acquire(), pub.acquire()
    first.array[...], second.array[...] = 1, 2
    third = pub.try_acquire()
    assert third is not None
    assert pub.try_acquire() is None
    third.abort()
    second.commit()
    first.commit()
    assert [int(sub.recv(timeout=1).array.max()) for _ in range(2)] == [2, 1]


def test_newest_only_is_the_default():
    with penstock.publish("frames:new", shape=(8,), dtype="f8") as pub, penstock.subscribe("frames:new") as sub:
        for value in range(5):
            pub.send(np.full(8, value, "f8"))
        assert sub.recv(timeout=1).array[0] == 4
        assert sub.conflated == 4
        assert sub.lost_messages == 0
        assert sub.try_recv() is None


def test_in_order_what_was_recycled_is_counted(cam):
    pub, sub = cam
    for value in range(20):
        publish(pub, value)
    got = [int(frame.array[0, 0, 0]) for frame in sub.poll()]
    assert got == [17, 18, 19]
    assert sub.lost_messages == 17
    assert sub.lost == 17 * pub.max_payload  # bytes of frames


@pytest.mark.parametrize("sent", [20, 100, 3000])  # more than are looked at one by one; more notes than are kept
def test_a_reader_far_behind_gets_what_is_left(sent):
    """The frames whose buffers were not reused come at once and in order, and the others are counted."""
    with (
        penstock.publish("frames:behind", shape=8, buffers=8) as pub,
        penstock.subscribe("frames:behind", conflate=False) as sub,
        penstock.subscribe("frames:behind", conflate=False) as other,
    ):
        pub.send(np.zeros(8, "u1"))
        held = sub.recv(timeout=5)
        for value in range(sent):
            pub.send(np.full(8, value % 256, "u1"))
        left = [value % 256 for value in range(sent)][-7:]
        assert sub.try_recv().array[0] == left[0]
        assert [int(frame.array[0]) for frame in sub.poll()] == left[1:]
        assert (sub.lost_messages, sub.lag, sub.try_recv()) == (sent - 7, 0, None)
        there = [int(frame.array[0]) for frame in other.poll()]
        assert there[-7:] == left  # and the one that is held, as long as its note is kept
        assert len(there) + other.lost_messages == sent + 1
        assert held.array.sum() == 0
        pub.send(np.full(8, 7, "u1"))
        assert sub.recv(timeout=5).array[0] == 7


def test_the_latest_frame_may_be_asked_for_again(cam):
    pub, sub = cam
    assert sub.latest() is None
    publish(pub, 1)
    with penstock.subscribe("frames:cam") as late:
        assert late.try_recv() is None
        assert late.latest().array.max() == 1 == late.latest().array.max()
        one, two = late.latest(), late.latest()
        assert late.leases == 1
        del one
        assert late.leases == 1
        assert two.array.max() == 1
        del two
        assert late.leases == 0
    assert sub.recv(timeout=1).sequence == 0


def test_arrays_are_sent_by_copy_too(cam):
    pub, sub = cam
    assert pub.send(np.ones(SHAPE, np.uint8), id=3, meta={"k": [1]}) == pub.position
    frame = sub.recv(timeout=1)
    assert (frame.id, frame.meta, frame.array.sum()) == (3, {"k": [1]}, 72)
    assert pub.offer(bytes(range(72))) is not None
    assert bytes(sub.recv(timeout=1).array.tobytes()) == bytes(range(72))
    assert pub.offer_many([np.zeros(SHAPE, np.uint8)] * 2) == 2
    for wrong in (np.zeros((4, 6), np.uint8), np.full(SHAPE, 300, np.int16), b"short", np.float64(1)):
        with pytest.raises(penstock.Invalid):
            pub.send(wrong)
    assert [frame.array.max() for frame in sub.poll()] == [0, 0]


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (4096,), (4097,), (3, 1000, 1001)])
@pytest.mark.parametrize("dtype", ["u1", ">f4", "c16", "M8[us]"])
def test_every_shape_and_dtype(shape, dtype):
    values = np.random.default_rng(1).integers(0, 255, np.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    values = values.view(dtype).reshape(shape)
    with (
        penstock.publish("frames:any", shape=shape, dtype=dtype, buffers=2) as pub,
        penstock.subscribe("frames:any") as sub,
    ):
        for _ in range(5):
            pub.send(values)
            assert sub.recv(timeout=1).array.tobytes() == values.tobytes()
        assert (sub.shape, sub.dtype, pub.shape, pub.dtype) == (shape, np.dtype(dtype), shape, np.dtype(dtype))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"shape": (0, 3)}, "shape"),
        ({"shape": (-1,)}, "shape"),
        ({"shape": ()}, "shape"),
        ({"shape": (3,), "buffers": 1}, "buffers"),
        ({"shape": (3,), "buffers": 1025}, "buffers"),
        ({"shape": (3,), "dtype": "O"}, "dtype"),
        ({"shape": (3,), "dtype": "no"}, "dtype"),
        ({"shape": (1 << 40,)}, "takes"),
        ({"shape": (3,), "codec": "json"}, "codec"),
    ],
)
def test_options_that_make_no_sense(options, wrong):
    with pytest.raises(penstock.Invalid, match=wrong):
        penstock.publish("frames:wrong", **options)
    with pytest.raises(penstock.NotFound):
        penstock.inspect("frames:wrong")


def test_attributes_that_differ_are_a_mismatch():
    left = {"cam": "left", "fov": [90, 60.5]}
    with penstock.publish("frames:c", shape=(2, 2), attributes=left):
        for other in ({"cam": "right"}, {}):
            with pytest.raises(penstock.Mismatch, match=r"frames:c .* exists with attributes="):
                penstock.publish("frames:c", shape=(2, 2), attributes=other)
        with pytest.raises(penstock.Mismatch, match="attributes"):
            penstock.subscribe(penstock.Frames("c", attributes={"cam": "right"}))
        penstock.publish("frames:c", attributes=left).close()
        penstock.subscribe("frames:c").close()


def test_who_comes_second_must_agree_or_not_say(cam):
    for options in ({"shape": (4, 6)}, {"dtype": "f4"}, {"buffers": 4}):
        with pytest.raises(penstock.Mismatch):
            penstock.subscribe("frames:cam", **options)
    with penstock.subscribe("frames:cam", shape=list(SHAPE), dtype=np.uint8, buffers=3) as sub:
        assert sub.shape == SHAPE
    with penstock.publish("frames:cam", shape=list(SHAPE)) as other:
        assert other.shape == SHAPE


def test_several_publications_share_the_buffers(cam):
    """An open buffer is nobody else's, and is free when its publication closes. Each publication counts what it has sent."""
    cam, _ = cam
    sub = penstock.subscribe("frames:cam", conflate=False)
    other = penstock.publish("frames:cam")
    mine, theirs = [cam.acquire(timeout=0), cam.acquire(timeout=0)], other.acquire(timeout=0)
    assert cam.try_acquire() is other.try_acquire() is None
    with pytest.raises(penstock.TimedOut, match="is filling 2 of the 3 buffers"):
        other.acquire(timeout=0)
    theirs.array[...] = 9
    mine[0].array[...] = 7
    theirs.commit()
    mine[0].commit()
    frames = sub.poll()
    assert [int(frame.array.max()) for frame in frames] == [9, 7]
    assert [frame.id for frame in frames] == [0, 1]
    members = penstock.inspect("frames:cam").members
    assert sorted(one.messages for one in members if one.role == "publication") == [1, 1]
    assert penstock.inspect("frames:cam").writers == 2
    assert sub.restarts == 1  # one came after the first
    del frames
    cam.close()  # with a buffer open
    assert [frame.array is not None for frame in (other.acquire(timeout=1) for _ in range(3))] == [True] * 3
    other.close()
    sub.close()


def test_a_publication_waits_for_the_buffers_of_another(cam):
    """It is woken when the other one publishes or gives back; and it gets those of one that died."""
    cam, _ = cam
    other = penstock.publish("frames:cam")
    held = [cam.acquire(timeout=0) for _ in range(3)]
    for end in (held[0].commit, held[1].abort):
        got = []
        waiter = threading.Thread(target=lambda got=got: got.append(other.acquire(timeout=PATIENCE)))
        waiter.start()
        end()
        waiter.join()
        assert len(got) == 1
        held.extend(got)
    other.close()


def test_the_stream_ends_with_the_last_publication(cam):
    cam, _ = cam
    other = penstock.publish("frames:cam")
    with penstock.subscribe("frames:cam", conflate=False, until_end=True) as sub:
        cam.close()
        assert sub.try_recv() is None
        other.send(np.full(SHAPE, 3, np.uint8))
        other.close()
        assert int(sub.recv(timeout=1).array.max()) == 3
        with pytest.raises(penstock.EndOfStream):
            sub.recv(timeout=1)


def test_a_subscription_waits_for_the_channel_if_it_is_told_to():
    with pytest.raises(penstock.NotFound, match="shape"):
        penstock.subscribe("frames:later")
    with pytest.raises(penstock.NotFound, match=r"frames:later: no publication has made it within 0\.05 s$"):
        penstock.subscribe("frames:later", connect_timeout=0.05)
    made = []
    timer = threading.Timer(0.1, lambda: made.append(penstock.publish("frames:later", shape=(2,))))
    timer.start()
    with penstock.subscribe("frames:later", connect_timeout=PATIENCE) as sub:
        timer.join()
        made[0].send(np.ones(2, np.uint8))
        assert sub.recv(timeout=1).array.sum() == 2
    made[0].close()


def test_streams_under_one_name():
    with (
        penstock.publish("frames:rig/road", shape=(2, 2), attributes={"stride": 2}) as road,
        penstock.publish("frames:rig/wide", shape=(3,), dtype="f4") as wide,
    ):
        assert [(c.channel, c.writers > 0) for c in penstock.list_channels("frames:rig/*")] == [
            ("frames:rig/road", True),
            ("frames:rig/wide", True),
        ]
        with penstock.subscribe("frames:rig/wide") as sub, penstock.subscribe("frames:rig/road") as other:
            wide.send(np.ones(3, "f4"))
            road.send(np.ones((2, 2), "u1"))
            assert sub.recv(timeout=1).array.dtype == np.float32
            assert other.recv(timeout=1).array.shape == (2, 2)
            assert other.attributes == {"stride": 2}
            assert sub.attributes == {}
    assert [c.writers for c in penstock.list_channels("frames:rig/*")] == [0, 0]
    for bad in ("frames:rig/", "frames:/road", "frames:rig//a", "frames:rig/../a", "frames:rig@road"):
        with pytest.raises(penstock.Invalid):
            penstock.publish(bad, shape=(1,))


def test_wait_selectors_and_asyncio(cam):
    pub, sub = cam
    assert penstock.wait([sub], timeout=0) == []
    publish(pub, 1)
    assert penstock.wait([sub], timeout=1) == [sub]
    assert sub.recv().array.max() == 1

    async def three():
        task = asyncio.create_task(sub.recv_async())
        await asyncio.sleep(0.02)
        publish(pub, 2)
        got = [int((await asyncio.wait_for(task, PATIENCE)).array.max())]
        publish(pub, 3)
        async for frame in sub:
            got.append(int(frame.array.max()))
            return got
        return None

    assert asyncio.run(three()) == [2, 3]


def test_iteration_ends_when_the_handle_closes(cam):
    pub, sub = cam
    publish(pub, 1)
    got = []
    for frame in sub:
        got.append(frame.sequence)
        threading.Timer(0.1, sub.close).start()
    assert got == [0]
    with pytest.raises(penstock.Closed):
        sub.recv(timeout=1)


def test_arrays_outlive_the_handles_and_keep_their_lease(cam):
    pub, sub = cam
    publish(pub, 5)
    array = sub.recv(timeout=1).array
    sub.close()
    for value in range(6, 30):
        publish(pub, value)
    assert (array == 5).all()
    assert penstock.inspect("frames:cam").details["leased"] == 1
    pub.close()
    del pub
    gc.collect()
    assert (array == 5).all()
    with penstock.publish("frames:cam") as again:
        for value in range(30, 50):
            publish(again, value)
        assert (array == 5).all()
        del array
        assert penstock.inspect("frames:cam").details["leased"] == 0


def test_a_closed_publication_ends_its_open_buffers(cam):
    pub, sub = cam
    frame = pub.acquire()
    pub.close()
    with pytest.raises(penstock.Closed):
        frame.commit()
    assert sub.try_recv() is None


def _hold_and_hang(ready):
    sub = penstock.subscribe("frames:cam", conflate=False)
    frames = [sub.recv(timeout=PATIENCE) for _ in range(3)]
    ready.put(len(frames))
    signal.pause()


def test_a_dead_readers_leases_return_at_once(cam):
    pub, sub = cam
    sub.close()
    context = mp.get_context("spawn")
    ready = context.Queue()
    child = context.Process(target=_hold_and_hang, args=(ready,))
    child.start()
    pub.wait_for_readers(1, timeout=PATIENCE)
    for value in range(3):
        publish(pub, value)
        until(lambda value=value: penstock.inspect("frames:cam").details["leased"] > value, "a frame was not leased")
    assert ready.get(timeout=PATIENCE) == 3
    assert pub.try_acquire() is None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with pub.acquire(timeout=0) as one, pub.acquire(timeout=0) as two, pub.acquire(timeout=0) as three:
        assert one.array is not None
        assert two is not None
        assert three is not None
    status = penstock.inspect("frames:cam")
    assert status.details["leased"] == 0
    assert status.totals.reaped == 1


def _child(sub, back):
    back.put((sub.channel, int(sub.recv(timeout=PATIENCE).array.max())))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_handles_go_to_children(cam, how):
    pub, sub = cam
    context = mp.get_context(how)
    back = context.Queue()
    child = context.Process(target=_child, args=(sub, back))
    child.start()
    pub.wait_for_readers(2, timeout=PATIENCE)
    for value in range(1, 200):
        publish(pub, value % 250)
        if not back.empty() or not child.is_alive():
            break
        child.join(0.02)
    channel, seen = back.get(timeout=PATIENCE)
    child.join()
    assert channel == "frames:cam"
    assert seen >= 1


def test_a_forked_childs_frames_are_its_parents(cam):
    pub, sub = cam
    publish(pub, 1)
    frame = sub.recv(timeout=1)
    pid = os.fork()
    if pid == 0:
        del frame
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    assert sub.leases == 1 == penstock.inspect("frames:cam").details["leased"]
    assert frame.array.max() == 1


def test_pickled_handles_name_the_channel(cam):
    pub, sub = cam
    publish(pub, 1)
    data = pickle.dumps(pub)
    pub.close()
    with pickle.loads(data) as again, pickle.loads(pickle.dumps(sub)) as other:
        publish(again, 2)
        assert other.recv(timeout=1).sequence in (0, 1)
        assert again.channel == "frames:cam"


def test_dlpack(cam):
    pub, sub = cam
    publish(pub, 4)
    frame = sub.recv(timeout=1)
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("NumPy before 2.1 does not export read-only arrays by DLPack")
    there = np.from_dlpack(frame)
    assert there.max() == 4
    assert not there.flags.writeable
    assert np.shares_memory(there, frame.array)
    del frame
    gc.collect()
    assert sub.leases == 1
    del there
    gc.collect()
    assert sub.leases == 0


def test_counting_may_begin_at_the_edge():
    for start_sequence in (2**32 - 3, 2**63 - 3, 2**64 - 3):
        edge = penstock.testing.channel("frames:edge", start_sequence=start_sequence, start_position=2**48)
        with (
            penstock.publish(edge, shape=(4,), buffers=3) as pub,
            penstock.subscribe("frames:edge", conflate=False) as sub,
        ):
            for i in range(8):
                pub.send(np.full(4, i, np.uint8))
                frame = sub.recv(timeout=1)
                assert frame.sequence == (start_sequence + i) % 2**64
                assert frame.array.max() == i
                if i == 4:
                    pub.close()
                    pub = penstock.publish("frames:edge")
            assert sub.lost_messages == 0
            assert sub.restarts == 1
            pub.close()
        penstock.remove("frames:edge")


def test_many_buffers():
    with (
        penstock.publish("frames:many", shape=(2,), dtype="u2", buffers=200) as pub,
        penstock.subscribe("frames:many", conflate=False) as sub,
    ):
        held = []
        for i in range(200):
            pub.send(np.full(2, i, "u2"))
            held.append(sub.recv(timeout=1))
        assert pub.try_acquire() is None
        assert sub.leases == 200
        assert [int(frame.array[1]) for frame in held] == list(range(200))
        del held[130]
        pub.send(np.full(2, 7, "u2"), timeout=PATIENCE)
        assert sub.recv(timeout=1).array[0] == 7


def test_counted_bytes_are_those_of_the_frames():
    with penstock.publish("frames:bytes", shape=(4, 3), dtype="f4") as pub, penstock.subscribe("frames:bytes") as sub:
        pub.send(np.ones((4, 3), "f4"))
        pub.send(np.ones((4, 3), "f4"))
        sub.recv(timeout=5).release()
        status = penstock.inspect("frames:bytes")
    assert (status.totals.messages_sent, status.totals.bytes_sent) == (2, 96)
    assert (status.totals.messages_received, status.totals.bytes_received) == (1, 48)
    assert {member.role: member.bytes for member in status.members} == {"publication": 96, "subscription": 48}


def test_offer_many_publishes_nothing_if_one_does_not_fit(cam):
    pub, sub = cam
    fits = np.zeros(SHAPE, np.uint8)
    with pytest.raises(penstock.Invalid, match=f"^{pub.channel}: .* does not fit uint8"):
        pub.offer_many([fits, fits + 0.5])
    assert sub.try_recv() is None
    assert pub.offer_many([fits, fits]) == 2
