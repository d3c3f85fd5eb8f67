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


@pytest.mark.parametrize("how", ["send", "offer", "offer_many", "claim"])
@pytest.mark.parametrize("kind", STREAMS)
def test_python_reads_what_cpp_writes(kind, how, end):
    """In order and complete, from before the first publication to the end of the stream."""
    with penstock.subscribe(f"{kind}:numbers", until_end=True) as sub:
        writer = end("send", f"{kind}:numbers", 300, how)
        assert [int(message) for message in drain(sub)] == list(range(300))
        assert sub.last.time_ns > 0
    assert writer.said() == "sent 300"


@pytest.mark.parametrize("how", ["recv", "poll", "borrow", "iterate"])
@pytest.mark.parametrize("kind", STREAMS)
def test_cpp_reads_what_python_writes(kind, how, end):
    """The subscription of C++ makes the channel, and Python decides it."""
    reader = end("recv", f"{kind}:numbers", 0, how, "ready=1")
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


def test_long_messages_are_whole_on_both_sides(end):
    """A log's messages above max_payload go out in fragments."""
    length = 100_000
    with penstock.subscribe("log:long", until_end=True, term_length=1 << 16) as sub:
        end("send", "log:long", 5, "send", f"length={length}")
        assert [(len(one), int(one)) for one in drain(sub)] == [(length, number) for number in range(5)]
    reader = end("recv", "log:back", 0, "recv", "ready=1", f"capacity={1 << 16}")
    reader.line()
    with penstock.publish("log:back") as pub:
        assert penstock.inspect("log:back").capacity == 1 << 16
        for number in range(5):
            pub.send(b"%d" % number + b" " * length, timeout=60)
    assert reader.said() == "end 0,1,2,3,4 lost 0 redelivered 0"


def test_a_full_log_makes_the_writer_wait(end):
    """Back pressure: neither side loses a message to a slow reader."""
    with penstock.subscribe("log:full", until_end=True, capacity=1 << 16) as sub:
        writer = end("send", "log:full", 3000, "offer", "length=100")
        got = drain(sub)
    assert [int(one) for one in got] == list(range(3000))
    writer.said()


def test_a_lapped_reader_counts_its_losses(end):
    """A ring's writer in C++ waits for nobody; Python's reader says how many messages it has missed."""
    with penstock.subscribe("ring:fast", until_end=True, capacity=1 << 16) as sub:
        end("send", "ring:fast", 5000, "send", "length=100").said()
        got = drain(sub)
        assert len(got) + sub.lost_messages == 5000
        assert sub.lost_messages > 0


def test_a_reader_that_conflates_gets_the_newest(end):
    """C++ reads only the newest message of a ring."""
    with penstock.publish("ring:newest") as pub:
        for number in range(10):
            pub.send(b"%d" % number)
        reader = end("recv", "ring:newest", 1, "recv", "conflate=1", "last=1", "ready=1")
        reader.line()
        pub.send(b"10")
        assert reader.said().split()[1] in {"9", "10"}


def test_a_late_reader_begins_where_it_asks(end):
    """A log keeps messages: earliest, the last ones, or a position."""
    with penstock.publish("log:past") as pub:
        positions = [pub.position, *(pub.send(b"%d" % number) for number in range(20))]
        assert end("recv", "log:past", 20, "recv", "start=earliest").said().split()[1] == text_of(range(20))
        assert end("recv", "log:past", 3, "recv", "last=3").said().split()[1] == "17,18,19"
        assert end("recv", "log:past", 15, "recv", f"position={positions[5]}").said().split()[1] == text_of(
            range(5, 20)
        )


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
    assert "frames:vary" in camera.said()
    viewer = end("recv_shapes", "frames:back", 20, "-")
    with penstock.publish("frames:back", shape=(8, 3), dtype="u2", varies=True) as pub:
        pub.wait_for_readers(timeout=60)
        for number in range(20):
            with pub.acquire(shape=(number % 9, 3), timeout=60) as frame:
                frame.array[...] = number
        assert viewer.said().split() == [f"{n % 9},3,{n % 9 * 3 * n}" for n in range(20)]


def test_cpp_refuses_frames_that_are_pythons_alone(end):
    with penstock.publish("frames:headed", shape=4, dtype="u2", header=[("n", "u1")]):
        assert "such frames are Python's alone" in end("recv_shapes", "frames:headed", 1, "-").failed()


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
