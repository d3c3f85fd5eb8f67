"""Messages that do not fit their channel's codec: each costs its own `DecodeError` and nothing else, by every way of reading."""

import asyncio
import datetime
import os
import threading

import numpy as np
import pytest

import penstock
import penstock.codecs
from penstock._native import core

SIZES = {"log": "term_length", "ring": "capacity", "pipe": "capacity"}
OPTIONS = {kind: {SIZES[kind]: 1 << 20} for kind in SIZES}


def mixed(kind, good, bad):
    """A json channel with messages 0..good-1, a bad one before each number in `bad`: (publication, subscription)."""
    pub = penstock.publish(f"{kind}:x", codec="json", **OPTIONS[kind])
    sub = penstock.subscribe(f"{kind}:x")
    for number in range(good + 1):
        if number in bad:  # as a foreign program, or another version, would
            core.Publication.send(pub, b"{{{" + b"%d" % number)
        if number < good:
            pub.send(number)
    return pub, sub


WAYS = {
    "recv": lambda sub: [sub.recv(timeout=0)],
    "try_recv": lambda sub: [m] if (m := sub.try_recv()) is not None else None,
    "iterate": lambda sub: [next(sub)] if penstock.wait([sub], 0) else None,
    "recv_async": lambda sub: [asyncio.run(sub.recv_async())] if penstock.wait([sub], 0) else None,
    "poll": lambda sub: sub.poll() or None,
    "poll of 7": lambda sub: sub.poll(7) or None,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SIZES)
def test_a_bad_message_costs_no_other(kind, way):
    bad = (0, 1, 20, 21, 50)
    pub, sub = mixed(kind, 50, bad)
    with pub, sub:
        got, errors = [], []
        while True:
            try:
                found = WAYS[way](sub)
            except penstock.DecodeError as error:
                errors.append((len(got), str(error)))
                continue
            except TimeoutError:
                break
            if found is None:
                break
            got += found
        assert got == list(range(50))
        assert [after for after, _ in errors] == list(bad)
        assert all(f"{kind}:x: the message at position " in text and "is not json" in text for _, text in errors)


@pytest.mark.parametrize("kind", SIZES)
def test_the_error_says_where_and_is_seen_by_whoever_waits(kind):
    pub, sub = mixed(kind, 1, (1,))
    with pub, sub:
        assert sub.poll() == [0]
        first, bad = sub.last.position, None
        assert penstock.wait([sub], 0) == [sub]  # the error is news
        with pytest.raises(penstock.DecodeError) as caught:
            sub.recv(timeout=0)
        bad = sub.last.position
        assert f"position {bad} " in str(caught.value)
        assert bad > first
        assert sub.poll() == []
        with pytest.raises(TimeoutError):
            sub.recv(timeout=0)


def test_a_waiting_thread_gets_an_error_kept_by_another_call():
    pub, sub = mixed("log", 1, (1,))
    with pub, sub:
        heard = []

        def wait():
            try:
                sub.recv(timeout=60)
            except penstock.DecodeError as error:
                heard.append(error)

        assert sub.poll() == [0]
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(60)
        assert len(heard) == 1


def test_a_pipe_message_is_not_done_before_it_is_reported():
    pub, first = mixed("pipe", 3, (2,))
    with pub, penstock.subscribe("pipe:x") as second:
        assert first.poll() == [0, 1]  # and has the bad one, which it has not said
        first.close()
        assert pub.unread_messages == 2
        with pytest.raises(penstock.DecodeError):
            second.recv(timeout=60)
        assert second.redelivered
        assert second.recv(timeout=60) == 2
        second.acknowledge()
        assert pub.unread_messages == 0


def test_on_a_pipe_those_before_it_are_done_when_it_is_told():
    pub, first = mixed("pipe", 3, (2,))
    second = penstock.subscribe("pipe:x")
    with pub, second:
        with pytest.raises(penstock.DecodeError), first:
            assert first.poll() == [0, 1]
            first.poll()
        with pytest.raises(
            penstock.DecodeError
        ):  # the block ended by an exception: the bad one goes to another, 0 and 1 do not
            second.poll()
        assert second.poll() == [2]


def test_a_poll_that_meets_its_own_end_gives_what_it_has():
    """An error in the middle of a batch does not lose the batch either: here the subscription is let go while it decodes."""
    options = {"term_length": 1 << 16}
    with (
        penstock.publish("log:d", codec="json", **options) as pub,
        penstock.subscribe("log:d", drop_after=0) as sub,
    ):
        for number in range(10):
            pub.send(number)
        plain = sub._decode

        def decoded(message):
            if plain(message) == 4:  # another thread fills the log meanwhile
                for _ in range(200):
                    pub.send("x" * 1000)
            return plain(message)

        sub._decode = decoded
        got = sub.poll()
        assert got == [0, 1, 2, 3, 4]
        with pytest.raises(penstock.TooSlow):
            sub.poll()
        assert sub.poll()[-1] == "x" * 1000


@pytest.mark.parametrize("kind", SIZES)
def test_a_claim_where_messages_are_encoded_is_refused(kind):
    with (
        penstock.publish(f"{kind}:x", codec="json", **OPTIONS[kind]) as pub,
        pytest.raises(penstock.Invalid, match="send or offer"),
    ):
        pub.claim(3)


def test_a_claim_of_a_message_of_fixed_size_is_one():
    record = np.dtype([("a", "<i4"), ("b", "<f4")])
    for codec, size in ((record, 8), (penstock.array("<f4", (2, 3)), 24)):
        name = f"log:fixed{size}"
        with penstock.publish(name, codec=codec, term_length=1 << 16) as pub, penstock.subscribe(name) as sub:
            with pub.claim(size) as view:
                view[:] = bytes(size)
            assert np.asarray(sub.recv(timeout=60)).tobytes() == bytes(size)
            with pytest.raises(penstock.Invalid, match=f"{size} bytes, not 5"):
                pub.claim(5)


@pytest.fixture(params=SIZES)
def open_pair(request):
    """A publication and a subscription of bytes."""
    kind = request.param
    with penstock.publish(f"{kind}:c", **OPTIONS[kind]) as pub, penstock.subscribe(f"{kind}:c") as sub:
        yield pub, sub


def test_an_array_of_a_claim_cannot_change_what_was_sent(open_pair):
    pub, sub = open_pair
    with pytest.raises(BufferError, match="still in use"), pub.claim(64) as view:
        array = np.frombuffer(view, "u1")
        array[:] = 1
    array[:] = 2  # nobody reads it, and it lies over nobody's message
    del array, view
    with pub.claim(64) as view:
        np.frombuffer(view, "u1")[:] = 3
    pub.send(b"after")
    assert [sub.recv(timeout=60), sub.recv(timeout=60)] == [bytes([3]) * 64, b"after"]


def test_views_of_a_claim_lie_over_nothing_else(open_pair):
    """However much is sent meanwhile, and also if the block raised or the publication was closed in it."""
    pub, sub = open_pair
    with pytest.raises(ZeroDivisionError), pub.claim(64) as view:
        array = np.frombuffer(view, "u1")
        raise ZeroDivisionError
    sent = 0
    try:
        while sent < 3000 and pub.offer(bytes([sent % 251]) * 1000) is not None:
            sent += 1
            array[:] = 255
    except penstock.Busy:  # a ring's publication has one claim at a time
        assert pub.channel == "ring:c"
    del array, view
    got = []
    while (message := sub.try_recv()) is not None:
        got.append(message)
    assert got == [bytes([i % 251]) * 1000 for i in range(sent)]
    pub.send(b"goes on", timeout=60)
    assert sub.recv(timeout=60) == b"goes on"


def test_a_publication_closed_in_a_claim_leaves_with_its_arrays(open_pair):
    pub, _ = open_pair
    with pytest.raises(penstock.Closed), pub.claim(64) as view:
        array = np.frombuffer(view, "u1")
        pub.close()
    array[:] = 255
    mine = [m.role for m in penstock.inspect(pub.channel).members if m.role in ("publication", "push")]
    assert len(mine) == 1
    del array, view
    assert [m.role for m in penstock.inspect(pub.channel).members if m.role in ("publication", "push")] == []


def test_a_commit_waits_for_the_array_to_go(open_pair):
    pub, sub = open_pair
    claim = pub.claim(8)
    array = np.frombuffer(claim, "u1")
    array[:] = 7
    with pytest.raises(BufferError):
        claim.commit()
    del array
    claim.commit()
    assert sub.recv(timeout=60) == bytes([7]) * 8


ODD = [
    -1,
    0,
    1,
    2**31,
    2**64,
    2**100,
    -(2**63),
    1.5,
    float("nan"),
    float("inf"),
    True,
    "x",
    b"x",
    None,
    [],
    {},
    (),
    object(),
]
CALLS = {
    "log": lambda **o: penstock.publish("log:o", **{"term_length": 1 << 16, **o}),
    "read log": lambda **o: penstock.subscribe("log:o", **{"term_length": 1 << 16, **o}),
    "ring": lambda **o: penstock.publish("ring:o", **{"capacity": 1 << 16, **o}),
    "read ring": lambda **o: penstock.subscribe("ring:o", **{"capacity": 1 << 16, **o}),
    "frames": lambda **o: penstock.publish("frames:o", **{"shape": (4,), **o}),
    "read frames": lambda **o: penstock.subscribe("frames:o", **{"shape": (4,), **o}),
    "sync": lambda **o: penstock.join("sync:o", **{"capacity": 1 << 16, **o}),
    "pipe": lambda **o: penstock.publish("pipe:o", **{"capacity": 1 << 16, "max_pipes": 4, **o}),
    "read pipe": lambda **o: penstock.subscribe("pipe:o", **{"capacity": 1 << 16, "max_pipes": 4, **o}),
    "socket": lambda **o: penstock.join("pipe:o", **{"role": "dealer", "capacity": 1 << 16, "max_pipes": 4, **o}),
}
NAMES = {
    "log": (
        "term_length",
        "capacity",
        "max_members",
        "stream_id",
        "start_position",
        "exclusive",
        "clock",
        "codec",
    ),
    "read log": ("start", "spin", "drop_after", "codec"),
    "ring": ("capacity", "max_members", "start_position", "start_sequence", "clock"),
    "read ring": ("start", "conflate", "spin"),
    "frames": ("shape", "dtype", "buffers", "max_members", "attributes", "start_position", "start_sequence", "clock"),
    "read frames": ("start", "conflate", "spin", "connect_timeout", "pixels"),
    "sync": (
        "capacity",
        "max_members",
        "name",
        "own",
        "start",
        "last",
        "when_slow",
        "drop_after",
        "spill_limit",
        "spin",
        "clock",
    ),
    "pipe": ("capacity", "max_messages", "max_pipes", "max_members", "name", "when_full", "start_position", "clock"),
    "read pipe": ("acknowledge", "name", "start", "spin"),
    "socket": ("role", "name", "when_full", "spin", "capacity", "clock"),
}
NONSENSE = {
    "exclusive": 1,
    "conflate": 1.5,
    "own": None,
    "attributes": "x",
    "shape": b"x",
    "pixels": 1,
}


@pytest.mark.parametrize("what", CALLS)
def test_an_option_of_the_wrong_type_is_refused_in_one_sentence(what, channel_folder, tally):
    for name in NAMES[what]:
        for value in ODD:
            said = ""
            try:
                CALLS[what](**{name: value}).close()
            except (penstock.PenstockError, TypeError) as error:
                said = str(error)
            assert "incompatible function arguments" not in said, (name, value)
            assert "\n" not in said, (name, value)
            for file in channel_folder.iterdir():
                os.unlink(file)
            tally("odd values of options", 1)
        if name in NONSENSE:
            with pytest.raises(penstock.Invalid, match=name):
                CALLS[what](**{name: NONSENSE[name]})


def test_a_call_with_a_wrong_argument_is_refused_in_one_sentence():
    with (
        penstock.publish("log:o", term_length=1 << 16) as pub,
        penstock.subscribe("log:o") as sub,
        penstock.join("sync:o", capacity=1 << 16) as queue,
    ):
        calls = [pub.claim, pub.wait_for_readers, sub.poll, sub.poll_arrow, queue.poll, queue.poll_arrow, queue.claim]
        calls += [
            penstock.testing.ManualClock,
            lambda value: penstock.wait([value], 0),
            lambda value: sub.poll_arrow(1, value),
        ]
        for call in calls:
            for value in ("x", b"x", None, 1.5, [], object()):
                with pytest.raises((TypeError, penstock.Invalid)) as caught:
                    call(value)
                assert "incompatible" not in str(caught.value), call
                assert "\n" not in str(caught.value), call
            with pytest.raises(penstock.Invalid):
                call(2**100)
        assert sub.poll(np.int64(3)) == []


@pytest.mark.parametrize("kind", SIZES)
def test_threads_that_meet_bad_messages_at_once_cost_no_error(kind, monkeypatch):
    pub, sub = mixed(kind, 2, (2,))
    core.Publication.send(pub, b"{{{")
    both, decoded = threading.Barrier(2, timeout=30), type(sub)._decode

    def together(self, message):  # each thread has one good message and one bad one
        both.wait()
        return decoded(self, message)

    monkeypatch.setattr(type(sub), "_decode", together)
    got = []
    threads = [threading.Thread(target=lambda: got.extend(sub.poll())) for _ in range(2)]
    with pub, sub:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == [0, 1]
        said = set()
        for _ in range(2):
            with pytest.raises(penstock.DecodeError) as caught:
                sub.poll()
            said.add(str(caught.value))
        assert len(said) == 2
        assert sub.poll() == []


# ---- recordings, and the codec itself ----

ODD = (b"{", b"[" * 100_000, b"\xff")


def everything(found):
    """The items of an iterator, with the positions of errors where it raises and continues."""
    got = []
    while True:
        try:
            got.append(next(found).data)
        except penstock.DecodeError as error:
            got.append(("error", error.position))
        except StopIteration:
            return got


@pytest.mark.parametrize("way", ["replay", "follow", "follow while it is recorded"])
def test_a_recording_continues_behind_an_undecodable_message(archive, way):
    with penstock.publish("log:x", codec="json", term_length=1 << 20) as pub:
        recorder = archive.record("log:x")
        bad = []
        for number, data in enumerate(ODD):
            pub.send(number)
            bad.append(core.Publication.send(pub, data))
        pub.send(len(ODD))
        expected = [0, ("error", bad[0]), 1, ("error", bad[1]), 2, ("error", bad[2]), 3]
        if way == "follow while it is recorded":
            following, got = archive.follow("log:x", timeout=60), []
            while len(got) < len(expected):
                try:
                    got.append(next(following).data)
                except penstock.DecodeError as error:
                    got.append(("error", error.position))
            following.close()
            recorder.stop()
        else:
            recorder.stop()
            got = everything(getattr(archive, way)("log:x"))
    assert [one if isinstance(one, int) else one[0] for one in got] == [0, "error", 1, "error", 2, "error", 3]
    assert sum(isinstance(one, tuple) for one in got) == len(bad)
    assert got == everything(archive.replay("log:x"))
    with pytest.raises(penstock.DecodeError, match="position 64 ") as caught:
        next(archive.replay("log:x", start=1))
    assert caught.value.position == 64


NONE_OF_THEM = {
    "json": ODD,
    "msgpack": (b"", b"\xc1", b"\x91" * 100_000, b"\x81\x81\x01\x01\x01"),
    "struct": (b"12345",),
}


@pytest.mark.parametrize("kind", NONE_OF_THEM)
def test_a_codec_raises_this_librarys_error(kind):
    codec = penstock.codecs.resolve([("a", "<i4")] if kind == "struct" else kind)
    for data in NONE_OF_THEM[kind]:
        with pytest.raises(penstock.DecodeError, match=f"^{len(data)} bytes are not {kind}: "):
            codec.decode(data)


@pytest.mark.parametrize("kind", ["sync", "pipe", "frame"])
def test_envelopes_that_are_none_raise_this_librarys_error(kind):
    spec = {"kind": kind, "of": {"kind": "json"}, "dtype": "|u1", "shape": [2]}
    for data in (b"", b"\xff" * 8, b"\xff" * 40):
        with pytest.raises(penstock.DecodeError):
            penstock.codecs.from_spec(spec).decode(data)


def test_a_recording_is_asked_by_datetimes_too(archive):
    with penstock.publish("log:x", term_length=1 << 16) as pub:
        recorder = archive.record("log:x")
        pub.send(b"a")
        recorder.stop()
    (message,) = archive.replay("log:x")
    sent = datetime.datetime.fromtimestamp(message.time_ns // 1_000_000_000, datetime.UTC)
    hour = datetime.timedelta(hours=1)
    east = datetime.timezone(datetime.timedelta(hours=9))
    assert [m.data for m in archive.replay("log:x", since=sent, until=(sent + hour).astimezone(east))] == [b"a"]
    assert list(archive.replay("log:x", since=sent + hour)) == []
    assert archive.read("log:x", until=datetime.datetime.min.replace(tzinfo=datetime.UTC)).num_rows == 0
    for wrong in ({"since": sent.replace(tzinfo=None)}, {"until": 1.5}, {"since": 1 << 63}, {"until": None}):
        (name,) = wrong
        for ask in (archive.scan, archive.read, lambda *given, **options: list(archive.replay(*given, **options))):
            with pytest.raises(penstock.Invalid, match=f"^{name} is .*: it must be nanoseconds since the epoch"):
                ask("log:x", **wrong)
    for wrong in ({"start": -1}, {"start": "x"}, {"end": 1.5}):
        with pytest.raises(penstock.Invalid, match="it must be a whole number"):
            archive.scan("log:x", **wrong)
    assert archive.read("log:x", end=1 << 200).num_rows == 1


def test_a_members_name_need_not_be_utf8():
    """It is bytes. One such member must not keep others from joining, nor hide the channel."""
    with penstock.join("sync:n", name=b"\xff\xfe", when_slow="fail"), penstock.join("sync:n", name="b") as other:
        names = [member.name for member in penstock.inspect("sync:n").members]
        assert {os.fsencode(name) for name in names} == {b"\xff\xfe", b"b"}
        assert [status.channel for status in penstock.list_channels()] == ["sync:n"]
        with pytest.raises(penstock.Busy, match=r"member '\\xff\\xfe'"):
            for _ in range(100_000):
                other.send(b"x" * 1000, timeout=60)
    with penstock.join("pipe:n", role="dealer", name="\udcff"), penstock.join("pipe:n", role="router"):
        assert "\udcff" in [member.name for member in penstock.inspect("pipe:n").members]
