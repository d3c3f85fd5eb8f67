"""Frames of their own shape and dtype, with a header: what arrives, what is refused, what is counted, recorded and bridged."""

import asyncio
import json
import subprocess
import sys

import numpy as np
import pytest

import penstock
from penstock import codecs
from penstock.codecs.frames import NOTE

POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("ring", "<u2")])
HEADER = np.dtype([("gain", "<f8"), ("origin", [("row", "<u4"), ("column", "<u4")]), ("flags", "u1", (2,))])
SHAPES = [(8, 6, 3), (1, 1, 1), (0, 6, 3), (8, 0, 0), (5, 2, 3), (8, 6, 1)]


@pytest.fixture
def crops():
    """A publication of frames up to 8 × 6 × 3, and a subscription that reads in order."""
    with (
        penstock.publish("frames:crops", shape=(8, 6, 3), varies=True, buffers=4) as pub,
        penstock.subscribe("frames:crops", when_slow="wait") as sub,
    ):
        yield pub, sub


def filled(shape, dtype="u1"):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_has_its_own_shape(crops, shape):
    pub, sub = crops
    pub.send(filled(shape))
    with pub.acquire(shape=shape) as open_frame:
        assert open_frame.array.shape == open_frame.shape == shape
        open_frame.array[...] = filled(shape) + 1
        open_frame.meta["n"] = 1
    frame, other = sub.recv(timeout=5), sub.recv(timeout=5)
    assert frame.shape == frame.array.shape == shape
    assert np.array_equal(frame.array, filled(shape))
    assert np.array_equal(other.array, filled(shape) + 1)
    assert other.meta == {"n": 1}
    assert not frame.array.flags.writeable
    assert (frame.header, frame.dtype, frame.summary()["shape"]) == (None, np.uint8, list(shape))
    assert str(shape) in repr(frame)


def test_both_ends_say_what_frames_may_be(crops):
    for end in crops:
        assert (end.shape, end.dtypes, end.varies, end.header) == ((8, 6, 3), (np.dtype("u1"),), True, None)


def test_a_small_frame_after_a_large_one_shows_nothing_of_it(crops):
    pub, sub = crops
    for _ in range(4):
        pub.send(np.full((8, 6, 3), 255, "u1"))
        assert sub.recv(timeout=5).array.min() == 255
    pub.send(np.zeros((2, 2, 3), "u1"))
    with sub.borrow(timeout=5) as seen:
        assert bytes(seen) == bytes(12)


@pytest.mark.parametrize("shape", [(9, 6, 3), (8, 7, 3), (8, 6), (8, 6, 3, 1), (6, 8, 3)])
def test_a_frame_above_the_largest_shape_is_refused(crops, shape):
    pub, sub = crops
    for send in (pub.send, pub.offer, lambda array: pub.acquire(shape=array.shape)):
        with pytest.raises(penstock.Invalid, match=r"frames:crops: frames here have at most the shape \(8, 6, 3\)"):
            send(np.zeros(shape, "u1"))
    assert sub.try_recv() is None
    assert pub.offer(filled((1, 1, 1))) is not None  # no buffer was kept


def test_a_fixed_channel_says_how_to_take_smaller_frames():
    with penstock.publish("frames:fixed", shape=(4, 4)) as pub:
        assert (pub.varies, pub.header) == (False, None)
        for send in (pub.send, lambda array: pub.acquire(shape=array.shape)):
            with pytest.raises(penstock.Invalid, match=r"have the shape \(4, 4\), not \(2, 4\) .*varies=True"):
                send(np.zeros((2, 4), "u1"))
        with pytest.raises(penstock.Invalid, match="no header: the channel was made without header="):
            pub.send(np.zeros((4, 4), "u1"), header=(1,))
        assert pub.offer(np.zeros((4, 4), "u1")) is not None


def test_bytes_of_any_length_go_where_there_is_one_dimension():
    with (
        penstock.publish("frames:jpeg", shape=1000, varies=True) as pub,
        penstock.subscribe("frames:jpeg", when_slow="wait") as sub,
    ):
        for body in (b"", b"x", bytes(range(200)), bytes(1000)):
            pub.send(body)
            assert sub.recv(timeout=5).array.tobytes() == body
        with pytest.raises(penstock.Invalid, match="a frame here has at most 1000 bytes, not 1001"):
            pub.send(bytes(1001))


def test_bytes_have_no_more_of_the_first_dtype_than_fit():
    """Of several dtypes the largest one makes the buffers, and bytes are of the first one."""
    with penstock.publish("frames:both", shape=4, dtype=("<u2", "<f8"), varies=True) as pub:
        pub.send(bytes(8))
        for body in (bytes(10), bytes(3)):
            with pytest.raises(penstock.Invalid, match=f"at most 8 bytes, a multiple of 2, not {len(body)}"):
                pub.send(body)
        assert penstock.inspect("frames:both").totals.messages_sent == 1


def test_point_clouds_are_structs():
    cloud = np.zeros(5, POINT)
    cloud["x"], cloud["ring"] = np.arange(5) / 2, 3
    with (
        penstock.publish("frames:cloud", shape=100, dtype=POINT, varies=True) as pub,
        penstock.subscribe("frames:cloud", when_slow="wait") as sub,
    ):
        pub.send(cloud)
        pub.send(cloud[:0])
        frame = sub.recv(timeout=5)
        assert frame.array.dtype == POINT
        assert np.array_equal(frame.array, cloud)
        assert sub.recv(timeout=5).shape == (0,)
        with pytest.raises(penstock.Invalid):
            pub.send(np.zeros(5, "u1"))


def test_each_frame_has_one_of_several_dtypes():
    with (
        penstock.publish("frames:mixed", shape=(2, 2), dtype=("u1", "<u2", "<f4"), varies=True) as pub,
        penstock.subscribe("frames:mixed", when_slow="wait") as sub,
    ):
        assert pub.dtypes == sub.dtypes == (np.dtype("u1"), np.dtype("<u2"), np.dtype("<f4"))
        for dtype in ("<f4", "u1", "<u2"):
            pub.send(filled((2, 2), dtype))
            with pub.acquire(dtype=dtype, shape=(1, 2)) as frame:
                frame.array[...] = 7
            for shape in ((2, 2), (1, 2)):
                frame = sub.recv(timeout=5)
                assert (frame.dtype, frame.array.dtype, frame.shape) == (np.dtype(dtype), np.dtype(dtype), shape)
        pub.send([[1, 2], [3, 4]])  # a list has no dtype: the first one
        assert sub.recv(timeout=5).dtype == np.uint8
        for send in (pub.send, lambda array: pub.acquire(dtype=array.dtype)):
            with pytest.raises(penstock.Invalid, match="frames here are of uint8 or uint16 or float32, not float64"):
                send(np.zeros((2, 2), "f8"))


def test_a_fixed_shape_may_have_several_dtypes():
    with (
        penstock.publish("frames:two", shape=4, dtype=["u1", "<u4"]) as pub,
        penstock.subscribe("frames:two", when_slow="wait") as sub,
    ):
        for dtype in ("u1", "<u4"):
            pub.send(filled((4,), dtype))
            frame = sub.recv(timeout=5)
            assert frame.dtype == np.dtype(dtype)
            assert np.array_equal(frame.array, filled((4,), dtype))


def test_a_header_goes_with_each_frame():
    with (
        penstock.publish("frames:headed", shape=(2, 3), header=HEADER, varies=True) as pub,
        penstock.subscribe("frames:headed", when_slow="wait") as sub,
    ):
        pub.send(filled((2, 3)), header=(1.5, (7, 8), (1, 0)), meta={"a": 1})
        pub.send(filled((1, 2)))
        with pub.acquire(shape=(2, 1)) as frame:
            frame.header["gain"] = 2.5
            frame.header["origin"]["row"] = 9
        first, second, third = (sub.recv(timeout=5) for _ in range(3))
        assert (first.header["gain"], first.header["origin"]["column"], first.meta) == (1.5, 8, {"a": 1})
        assert second.header == np.zeros((), HEADER)[()]
        assert (third.header["gain"], third.header["origin"]["row"], third.meta) == (2.5, 9, {})
        assert sub.header == HEADER
        expected = {"gain": 1.5, "origin": {"row": 7, "column": 8}, "flags": [1, 0]}
        assert json.loads(json.dumps(first.summary()))["header"] == expected
        with pytest.raises(penstock.Invalid, match="frames:headed"):
            pub.send(filled((2, 3)), header=(1, 2))
        assert pub.offer(filled((2, 3))) is not None


def test_another_program_that_wants_something_else_is_told(crops):
    there = {"shape": (8, 6, 3), "varies": True, "dtype": "u1"}
    for name, value in (("varies", False), ("shape", (8, 6)), ("dtype", ("u1", "u2")), ("header", HEADER)):
        with pytest.raises(penstock.Mismatch, match=f"exists with {name}="):
            penstock.subscribe("frames:crops", **{**there, name: value})
    penstock.subscribe("frames:crops", **there).close()


def test_a_header_that_never_fits_makes_no_channel():
    """The error's advice works: a smaller header, or fewer buffers."""
    with pytest.raises(penstock.TooLarge, match="make the header smaller, or give fewer buffers"):
        penstock.publish("frames:wide", shape=3, varies=True, header=[("a", "u1", (4017,))])
    assert penstock.list_channels() == []
    for bytes_, buffers in ((4016, 8), (4017, 4)):
        with penstock.publish(
            "frames:wide", shape=3, varies=True, buffers=buffers, header=[("a", "u1", (bytes_,))]
        ) as pub:
            assert pub.offer(b"ab") is not None
        penstock.remove("frames:wide")


def test_errors_say_what_a_frame_has_here(crops):
    pub, _ = crops
    with pytest.raises(penstock.Invalid, match=r"the shape \(8, 6, 3\) in as many dimensions"):
        pub.send(np.zeros((8, 6), "u1"))
    with pytest.raises(penstock.Invalid, match="Python objects"):
        penstock.publish("frames:objects", shape=3, dtype=[("a", "O")])
    with (
        penstock.publish("frames:headed", shape=2, header=HEADER) as headed,
        pytest.raises(penstock.Invalid, match="send a tuple of its 3 fields gain, origin, flags"),
    ):
        headed.send(b"ab", header={"gain": 1.0})


def test_a_value_of_structs_has_a_hash():
    made = [penstock.Frames("lidar", shape=9, dtype=POINT, header=HEADER, attributes={"a": 1}) for _ in range(2)]
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": ("u1", "u1")},
        {"dtype": ()},
        {"dtype": "O"},
        {"dtype": [("a", "O")]},
        {"header": "u1"},
        {"header": [("a", "O")]},
        {"header": 5},
        {"varies": 1},
    ],
)
def test_bad_options_name_the_option(given):
    with pytest.raises(penstock.Invalid, match=r"dtype|header|varies|Python objects"):
        penstock.publish("frames:bad", shape=3, **given)
    assert penstock.list_channels() == []


def test_bytes_are_those_of_the_frames(crops):
    pub, sub = crops
    for shape in SHAPES:
        pub.send(filled(shape))
        sub.recv(timeout=5).release()
    sent = sum(int(np.prod(shape)) for shape in SHAPES)
    totals = penstock.inspect("frames:crops").totals
    assert (totals.bytes_sent, totals.bytes_received) == (sent, sent)


def test_frames_are_awaited():
    async def main():
        with (
            penstock.publish("frames:aio", shape=(4, 4), varies=True, header=[("n", "u1")]) as pub,
            penstock.subscribe("frames:aio", when_slow="wait") as sub,
        ):
            await pub.send_async(filled((2, 1)), header=(5,))
            with await pub.acquire_async(shape=(1, 1)) as frame:
                frame.array[...] = 3
            first, second = await sub.recv_async(5), await sub.recv_async(5)
            assert (first.shape, first.header["n"], second.shape, second.array[0, 0]) == ((2, 1), 5, (1, 1), 3)

    asyncio.run(main())


def test_a_killed_writer_leaves_whole_frames(crops):
    """Another process takes over the channel after a kill in the middle of frames; every frame that arrives is whole."""
    pub, sub = crops
    pub.close()
    program = """
import numpy as np, penstock
with penstock.publish("frames:crops") as pub:
    number = 0
    while True:
        shape = (number % 9, number % 7, 3)
        pub.send(np.full(shape, number % 251, "u1"), id=number)
        number += 1
"""
    seen = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", program]) as child:
            try:
                for _ in range(100):
                    with sub.recv(timeout=60) as frame:
                        assert frame.shape == (frame.id % 9, frame.id % 7, 3)
                        assert (frame.array == frame.id % 251).all()
                        seen += 1
            finally:
                child.kill()
    assert seen == 300


def test_recordings_hold_each_frame_as_it_was(tmp_path):
    sent = []
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish(
            "frames:rec", shape=(4, 5), dtype=("u1", "<f4"), varies=True, header=[("n", "<u2")], when_slow="wait"
        ) as pub,
    ):
        with archive.record("frames:rec"):
            pub.wait_for_readers(1, timeout=60)
            for number, (shape, dtype) in enumerate([((4, 5), "<f4"), ((2, 1), "u1"), ((0, 5), "u1"), ((4, 5), "u1")]):
                sent.append(filled(shape, dtype))
                pub.send(sent[-1], header=(number,), meta={"number": number}, timeout=60)
        found = [message.data for message in archive.replay("frames:rec")]
        with penstock.subscribe(
            "frames:again", shape=(4, 5), dtype=("u1", "<f4"), varies=True, header=[("n", "<u2")], when_slow="wait"
        ) as sub:
            assert archive.replay_onto("frames:rec", "frames:again") == 4
            again = [sub.recv(timeout=60) for _ in range(4)]
    for number, (array, message, frame) in enumerate(zip(sent, found, again, strict=True)):
        for other in (message["pixels"], frame.array):
            assert (other.dtype, other.shape) == (array.dtype, array.shape)
            assert np.array_equal(other, array)
        assert (message["header"]["n"], message["meta"], frame.header["n"]) == (number, {"number": number}, number)


def test_tables_say_each_shape(tmp_path):
    tables = pytest.importorskip("penstock.tables")
    archive = penstock.Archive(tmp_path / "archive")
    with (
        penstock.publish("frames:tab", shape=(4, 5), varies=True, header=[("n", "<u2")], when_slow="wait") as pub,
        archive.record("frames:tab"),
    ):
        pub.wait_for_readers(1, timeout=60)
        for number, shape in enumerate([(4, 5), (2, 1), (0, 5)]):
            pub.send(filled(shape), header=(number,), timeout=60)
    tables.run(tmp_path / "archive", tmp_path / "tables")
    rows = tables.read(tmp_path / "tables", "frames:tab").to_pylist()
    assert [row["shape"] for row in rows] == [[4, 5], [2, 1], [0, 5]]
    assert [(row["dtype"], json.loads(row["header"]), len(row["pixels"])) for row in rows] == [
        ("|u1", {"n": 0}, 20),
        ("|u1", {"n": 1}, 2),
        ("|u1", {"n": 2}, 0),
    ]


def test_a_value_names_the_channel():
    crops = penstock.Frames("value", shape=(3, 3), varies=True, header=[("n", "u1")], dtype=("u1", "u2"))
    assert (
        penstock.Frames("value", shape=[3, 3], varies=True, header=np.dtype([("n", "u1")]), dtype=["u1", "u2"]) == crops
    )
    with penstock.publish(crops) as pub, penstock.subscribe(crops) as sub:
        pub.send(np.ones((1, 2), "u2"), header=(9,))
        assert sub.recv(timeout=5).header["n"] == 9


@pytest.mark.parametrize(
    ("number", "words", "pixels"),
    [
        (0, (9, 3, 3), 8),
        (0, (8, 3, 3), 8),
        (2, (9, 3, 3), 9),
        (0, (9, 9), 9),
        (0, (16, 4, 4), 16),
        (1, (9, 3, 3), 9),
        (0, (), 9),
    ],
)
def test_a_note_that_contradicts_itself_is_no_frame(number, words, pixels):
    """Recorded notes: which dtype, bytes and sizes, bytes of pixels. The largest frame is 3 × 3 of two bytes."""
    spec = {"kind": "frame", "dtype": "|u1", "dtypes": ["|u1", "<u2"], "shape": [3, 3], "varies": True, "pixels": True}
    rest = b"".join(word.to_bytes(8, "little") for word in words)
    note = NOTE.pack(0, number, max(0, len(words) - 1), len(rest), 0, 0, 0)
    with pytest.raises(penstock.DecodeError):
        codecs.from_spec(spec).decode(note + rest + bytes(pixels))


def test_a_recorded_note_is_read():
    spec = {"kind": "frame", "dtype": "|u1", "shape": [3, 3], "varies": True, "pixels": True}
    rest = b"".join(word.to_bytes(8, "little") for word in (2, 1, 2)) + b'{"a":1}'
    found = codecs.from_spec(spec).decode(NOTE.pack(0, 0, 2, len(rest), 5, 6, 7) + rest + b"xy")
    assert (found["id"], found["meta"], found["pixels"].tolist()) == (5, {"a": 1}, [[120, 121]])
