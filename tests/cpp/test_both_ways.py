"""The promises of every kind, with one end in C++ and the other one in Python, both ways."""

import threading

import numpy as np
import pytest

import penstock

STREAMS = ("log", "ring", "pipe", "sync")
READING = np.dtype(
    [
        ("unit", "i1"),
        ("value", "<f8"),
        ("axes", "<f4", (3,)),
        ("name", "S8"),
        ("inner", [("a", "<u2"), ("b", "<i8")]),
    ]
)


def text_of(numbers):
    return ",".join(map(str, numbers))


def drain(sub):
    """All messages until the end of the stream."""
    got = []
    while True:
        try:
            got.append(sub.recv(timeout=60))
        except penstock.EndOfStream:
            return got


@pytest.mark.slow
@pytest.mark.parametrize("kind", STREAMS)
def test_python_reads_what_cpp_writes(kind, end):
    """In order and complete, from before the first publication to the end of the stream."""
    with penstock.subscribe(f"{kind}:numbers", until_end=True) as sub:
        writer = end("send", f"{kind}:numbers", 300, "-")
        assert [int(message) for message in drain(sub)] == list(range(300))
        assert sub.last.time_ns > 0
    assert writer.said() == "sent 300"


@pytest.mark.parametrize("kind", STREAMS)
def test_cpp_reads_what_python_writes(kind, end):
    """The subscription of C++ makes the channel, and Python decides it."""
    reader = end("recv", f"{kind}:numbers", 0, "-", "ready=1")
    assert reader.line() == "ready"
    with penstock.publish(f"{kind}:numbers") as pub:
        pub.wait_for_readers(timeout=60)
        assert [member.pid for member in penstock.inspect(pub.channel).members if member.pid == reader.pid] == [
            reader.pid
        ]
        for number in range(300):
            pub.send(b"%d" % number, timeout=60)
    assert reader.said() == f"end {text_of(range(300))} lost 0 redelivered 0"


@pytest.mark.parametrize("kind", STREAMS)
def test_structs_are_equal_on_both_sides(kind, end):
    """A struct with gaps, text, arrays and a struct in it is a NumPy record of its fields, both ways."""
    with penstock.subscribe(f"{kind}:out", codec=READING, until_end=True) as sub:
        end("send_reading", f"{kind}:out", 3, "-")
        got = drain(sub)
    assert [one.tolist()[:2] for one in got] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert got[2]["axes"].tolist() == [1, 2, 3]
    assert (got[2]["name"], got[2]["inner"].tolist()) == (b"north", (7, -2))
    reader = end("recv_reading", f"{kind}:in", 0, "-")
    with penstock.publish(f"{kind}:in", codec=READING) as pub:
        pub.wait_for_readers(timeout=60)
        for one in got:
            pub.send(one)
    assert reader.said() == "0 0.0 3 north 7 0;1 0.5 3 north 7 -1;2 1.0 3 north 7 -2;"


def test_a_reader_that_conflates_gets_the_newest(end):
    """C++ reads only the newest message of a ring."""
    with penstock.publish("ring:newest") as pub:
        for number in range(10):
            pub.send(b"%d" % number)
        reader = end("recv", "ring:newest", 1, "recv", "conflate=1", "last=1", "ready=1")
        reader.line()
        pub.send(b"10")
        assert reader.said().split()[1] in {"9", "10"}


def test_a_json_channel_is_text_in_cpp(end):
    """C++ has a channel's bytes, whatever the codec; a codec that it names is checked."""
    with penstock.publish("log:words", codec="json") as pub:
        pub.send({"n": 1})
        assert end("recv", "log:words", 1, "recv", "start=earliest", "codec=json").said().split()[1] == '{"n":1}'
        error = end("recv", "log:words", 1, "recv", "codec=msgpack").failed()
    assert "exists with the codec json, and this program has" in error


def test_members_of_a_queue_meet(end):
    """Senders and types are seen on both sides, and the last member removes the queue."""
    with penstock.join("sync:room", name="python") as member:
        other = end("meet", "sync:room", 0, "cpp")
        message = member.recv(timeout=60)
        assert (message.sender, message.type, message.body) == ("cpp", "greeting", b"from cpp")
        member.send(b"welcome", type="answer")
        assert other.said() == "python answer welcome"
    one, two = end("meet", "sync:both", 0, "one"), end("meet", "sync:both", 0, "two")
    assert (one.said(), two.said()) == ("two greeting from two", "one greeting from one")
    assert penstock.list_channels() == []


def test_frames_are_read_in_place_on_both_sides(end):
    """A frame that is held stays as it is while the camera goes on."""
    camera = end("send_frames", "frames:out", 12, "-")
    with penstock.subscribe("frames:out", connect_timeout=60, conflate=False, when_slow="wait") as sub:
        seen = [sub.recv(timeout=60) for _ in range(2)]
        assert [(one.array[0, 0], one.id, one.meta) for one in seen] == [
            (0, 100, {"gain": 1.5}),
            (1, 101, {"gain": 1.5}),
        ]
        kept = seen[0].array
        del seen
        assert [sub.recv(timeout=60).array.max() for _ in range(10)] == list(range(2, 12))
        assert kept.min() == kept.max() == 0
        del kept
    camera.said()
    viewer = end("recv_frames", "frames:in", 12, "-")
    with penstock.publish("frames:in", shape=(4, 6), dtype="u2", buffers=3) as pub:
        pub.wait_for_readers(timeout=60)
        for number in range(12):
            with pub.acquire(timeout=60) as frame:
                frame.array[...] = number
        assert viewer.said() == "12 frames of 4 x 6, the first still 0"


def test_frames_that_vary_are_read_on_both_sides(end):
    camera = end("send_shapes", "frames:vary", 20, "-")
    with penstock.subscribe("frames:vary", connect_timeout=60, when_slow="wait") as sub:
        for number in range(20):
            with sub.recv(timeout=60) as frame:
                assert (frame.shape, frame.id, frame.meta) == ((number % 9, 3), number + 100, {"n": 1})
                assert (frame.array == number).all()
    camera.said()
    viewer = end("recv_shapes", "frames:back", 20, "-")
    with penstock.publish("frames:back", shape=(8, 3), dtype="u2", varies=True) as pub:
        pub.wait_for_readers(timeout=60)
        for number in range(20):
            with pub.acquire(shape=(number % 9, 3), timeout=60) as frame:
                frame.array[...] = number
        assert viewer.said().split() == [f"{n % 9},3,{n % 9 * 3 * n}" for n in range(20)]


SHOT = np.dtype([("gain", "<f4"), ("kind", "u1"), ("x", "<u2")])
POINT = np.dtype([("at", "<f4", (3,)), ("echo", "<u4")])


def test_headers_and_types_of_frames_are_equal_on_both_sides(end):
    """Each frame has one of two types, and a struct with gaps in C++ as its header, beside its own fields."""
    camera = end("send_shots", "frames:out", 6, "-")
    with penstock.subscribe("frames:out", connect_timeout=60, when_slow="wait") as sub:
        for number in range(6):
            with sub.recv(timeout=60) as frame:
                assert (frame.shape, frame.dtype) == (((2, 3), "u1") if number % 2 == 0 else ((1, 3), "f4"))
                assert (frame.array == number).all()
                assert frame.header.tolist() == (number / 2, number, 7)
                assert (frame.header.dtype, frame.id, frame.meta) == (SHOT, number + 100, {"n": number})
    camera.said()
    viewer = end("recv_shots", "frames:in", 6, "-")
    options = {"shape": (2, 3), "dtype": ("u1", "f4"), "varies": True, "header": SHOT, "buffers": 3}
    with penstock.publish("frames:in", **options) as pub:
        pub.wait_for_readers(timeout=60)
        for number in range(6):
            kind, shape = ("u1", (2, 3)) if number % 2 == 0 else ("f4", (1, 3))
            with pub.acquire(shape=shape, dtype=kind, timeout=60) as frame:
                frame.array[...] = number
                frame.header = (number / 2, number, 7)
                frame.meta = {"n": number}
        assert viewer.said().split(";") == [
            f'{n % 2} {2 - n % 2}x3 {n} {n / 2:.1f} {n} 7 {{"n":{n}}}' for n in range(6)
        ] + [""]


def test_frames_of_structs_are_equal_on_both_sides(end):
    """A cloud of points, each a struct: as many as there are."""
    lidar = end("send_points", "frames:out", 5, "-")
    with penstock.subscribe("frames:out", connect_timeout=60, when_slow="wait") as sub:
        for number in range(5):
            with sub.recv(timeout=60) as frame:
                assert (frame.shape, frame.dtype) == ((number,), POINT)
                assert frame.array["echo"].tolist() == list(range(number))
                assert (frame.array["at"] == number).all()
    lidar.said()
    viewer = end("recv_points", "frames:in", 5, "-")
    with penstock.publish("frames:in", shape=8, dtype=POINT, varies=True) as pub:
        pub.wait_for_readers(timeout=60)
        for number in range(5):
            pub.send(np.array([((1, 2, 3), echo) for echo in range(number)], POINT), timeout=60)
    assert viewer.said() == "0 1:0 2:1 3:3 4:6"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "u1"}, 'has frames of "|u1", and this program has "|u1" or "<f4"'),
        ({"dtype": ("f4", "u1")}, 'has frames of "<f4" or "|u1", and this program has "|u1" or "<f4"'),
        ({"dtype": ("u1", "f4")}, "has frames with no header, and this program has Shot"),
        (
            {"dtype": ("u1", "f4"), "header": [("gain", "f4"), ("kind", "u1"), ("x", "i2")]},
            'and this program has Shot: field 3 is ["x","<i2"] there and ["x","<u2"] in Shot',
        ),
    ],
)
def test_frames_of_other_types_are_refused(options, text, end):
    """A type, a header, or a field of it that differs: one line that names both."""
    with penstock.publish("frames:other", shape=(2, 3), **options):
        for what in ("send_shots", "recv_shots"):
            error = end(what, "frames:other", 1, "-").failed()
            assert "frames:other" in error
            if what == "recv_shots":
                assert text in error
    penstock.remove("frames:other")


def test_a_frame_above_the_maximum_is_refused(end):
    """One line names both shapes."""
    with penstock.publish("frames:vary", shape=(8, 3), dtype="u2", varies=True):
        pass
    error = end("send_too_large", "frames:vary", 1, "-").failed()
    assert (
        "frames:vary: frames here have at most the shape [8,3] in as many dimensions, and this one has [9,3]" in error
    )


def test_cpp_removes_a_channel(end):
    with penstock.publish("log:gone"):
        end("remove", "log:gone", 0, "-").said()
        assert penstock.list_channels() == []
    assert "there is no channel log:gone" in end("remove", "log:gone", 0, "-").failed()


def test_two_languages_share_the_work_of_a_pipe(end):
    """Each message of a pipe goes to one of the pullers."""
    workers = [end("recv", "pipe:work", 0, "recv", "ready=1") for _ in range(2)]
    for worker in workers:
        worker.line()
    taken = []
    with penstock.subscribe("pipe:work", until_end=True) as mine:
        thread = threading.Thread(target=lambda: taken.extend(int(one) for one in drain(mine)))
        with penstock.publish("pipe:work") as pub:
            thread.start()
            pub.wait_for_readers(3, timeout=60)
            for number in range(600):
                pub.send(b"%d" % number, timeout=60)
        thread.join()
    for worker in workers:
        numbers = worker.said().split(" ")[1]  # empty where the others were quicker
        taken += [int(one) for one in numbers.split(",") if one]
    assert sorted(taken) == list(range(600))
