"""A ring: the writer never waits, and a lapped reader knows exactly what it lost."""

import os
import resource
import signal
import struct
import threading
import time

import numpy as np
import pytest

import penstock

C = 1 << 16
FRAME = 64  # bytes of the ring that a message of 8 bytes takes
# A reader may be behind by the capacity, less what the writer has claimed ahead: a 32nd of it, a message and the word after.
WINDOW = C - C // 32 - FRAME - 32


def number(i):
    return struct.pack("<Q", i)


def numbers(messages):
    return [struct.unpack("<Q", m)[0] for m in messages]


@pytest.fixture
def ring():
    """A publication and a subscription on a small ring."""
    with penstock.publish("ring:test", capacity=C) as pub, penstock.subscribe("ring:test") as sub:
        yield pub, sub


def test_messages_arrive_in_order(ring):
    pub, sub = ring
    positions = [pub.send(number(i)) for i in range(100)]
    assert positions == [FRAME * (i + 1) for i in range(100)]
    assert numbers(sub.poll(1000)) == list(range(100))
    assert sub.position == pub.position == positions[-1]
    assert (sub.lag, sub.lost, sub.lost_messages, sub.restarts, sub.conflated) == (0, 0, 0, 0, 0)
    assert sub.try_recv() is None
    with pytest.raises(TimeoutError):
        sub.recv(timeout=0)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 33, 1000, C // 8, C // 4 - 33, C // 4 - 32])
def test_every_size_that_fits(ring, size):
    pub, sub = ring
    data = bytes(i % 251 for i in range(size))
    for _ in range(50):  # goes round, with pads of every length
        pub.send(data)
        assert sub.recv(timeout=1) == data
        pub.send(b"x" * (size % 97))
        assert sub.recv(timeout=1) == b"x" * (size % 97)
    assert sub.lost == 0


def test_a_message_too_large_to_fit_changes_nothing(ring):
    pub, sub = ring
    assert pub.max_payload == C // 4 - 32
    for call in (pub.send, pub.offer, lambda data: pub.offer_many([b"ok", data]), lambda data: pub.claim(len(data))):
        with pytest.raises(penstock.TooLarge, match=r"larger capacity|claim takes"):
            call(bytes(C // 4 - 31))
    pub.send(b"fine")
    assert sub.poll() == [b"fine"]


def test_a_lapped_reader_is_told_exactly_what_it_lost(ring):
    pub, sub = ring
    for i in range(3):
        pub.send(number(i))
    assert numbers(sub.poll(2)) == [0, 1]
    for i in range(3, 5000):
        pub.send(number(i))
    assert sub.try_recv() is None  # it goes on at the newest end
    assert sub.lost_messages == 4998
    assert sub.lost == pub.position - 2 * FRAME
    pub.send(number(5000))
    assert numbers([sub.recv(timeout=1)]) == [5000]
    assert sub.lost_messages == 4998
    totals = pub.statistics().totals
    assert (totals.messages_sent, totals.messages_received, totals.messages_lost) == (5001, 3, 4998)
    assert totals.bytes_lost == sub.lost


def test_nothing_is_lost_within_the_window(ring):
    pub, sub = ring
    for lap in range(20):
        count = WINDOW // FRAME
        for i in range(count):
            pub.send(number(lap * count + i))
        assert numbers(sub.poll(10_000)) == list(range(lap * count, (lap + 1) * count))
    assert sub.lost == 0


def test_conflate_reads_only_the_newest(ring):
    pub, _ = ring
    with penstock.subscribe("ring:test", conflate=True) as latest:
        assert latest.try_recv() is None
        for i in range(10):
            pub.send(number(i))
        assert numbers(latest.poll()) == [9]
        assert (latest.conflated, latest.lost_messages) == (9, 0)
        for i in range(10, 50_000):
            pub.send(number(i))
        assert numbers(latest.poll()) == [49_999]
        assert latest.conflated + latest.lost_messages == 49_998
        pub.offer_many([number(i) for i in range(50_000, 50_010)])
        assert numbers(latest.poll()) == [50_009]


def test_batches_longer_than_the_ring_become_visible_in_order(ring):
    pub, sub = ring
    assert pub.offer_many([number(i) for i in range(500)]) == 500
    assert numbers(sub.poll(1000)) == list(range(500))
    rows = np.arange(500, 600, dtype="<u8").reshape(100, 1)
    assert pub.offer_many(rows) == 100
    assert numbers(sub.poll(1000)) == list(range(500, 600))
    assert pub.offer_many([number(i) for i in range(600, 5000)]) == 4400
    got = numbers(sub.poll(10_000))
    assert len(got) + sub.lost_messages == 4400
    assert pub.offer_many([]) == 0


def test_poll_arrow(ring):
    pub, sub = ring
    for i in range(100):
        pub.send(number(i))
    batch = sub.poll_arrow(limit=60)
    assert batch.schema.names == ["session", "position", "payload", "time"]
    assert numbers(batch.column("payload").to_pylist()) == list(range(60))
    assert batch.column("position").to_pylist() == [FRAME * i for i in range(60)]
    assert sub.poll_arrow().num_rows == 40
    assert sub.poll_arrow().num_rows == 0
    for i in range(5000):
        pub.send(number(i))
    assert sub.poll_arrow().num_rows == 0
    assert sub.lost_messages == 5000


def test_claims(ring):
    pub, sub = ring
    with pub.claim(4) as view:
        view[:] = b"good"
        for call in (lambda: pub.send(b"x"), lambda: pub.offer_many([b"x"]), lambda: pub.claim(1)):
            with pytest.raises(penstock.Busy, match="claim"):
                call()
        assert sub.try_recv() is None
    with pytest.raises(RuntimeError, match="oops"), pub.claim(4) as view:
        view[:] = b"evil"
        raise RuntimeError("oops")
    pub.send(b"next")
    assert sub.poll() == [b"good", b"next"]
    assert sub.lost_messages == 0


def test_borrow_reads_in_place(ring):
    pub, sub = ring
    pub.send(b"abc")
    with sub.borrow(timeout=1) as view:
        assert view.readonly
        assert bytes(view) == b"abc"
    pub.send(b"overwritten")
    with pytest.raises(penstock.TooSlow, match="overwritten"), sub.borrow() as view:
        for i in range(3000):
            pub.send(number(i))
    assert sub.lost_messages == 1
    sub.poll()
    assert sub.lost_messages == 3001
    pub.send(b"kept")
    with pytest.raises(penstock.Invalid, match="copy what you keep"), sub.borrow() as view:
        kept = np.frombuffer(view, "u1")
    assert bytes(kept) == b"kept"
    totals = pub.statistics().totals
    assert totals.messages_received + totals.messages_lost == totals.messages_sent


def test_one_publication_at_a_time(ring):
    pub, sub = ring
    with pytest.raises(penstock.Busy, match=f"process {os.getpid()} publishes"):
        penstock.publish("ring:test")
    pub.send(b"first")
    pub.close()
    with penstock.publish("ring:test") as second:
        second.send(b"second")
        assert sub.poll() == [b"first", b"second"]
        assert sub.restarts == 1
    with pytest.raises(penstock.Closed):
        pub.send(b"x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_killed_publication_is_succeeded(ring):
    pub, sub = ring
    pub.close()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = penstock.publish("ring:test")
        for i in range(100):
            child.send(number(i))
        claim = child.claim(100)
        claim.__enter__()[:] = b"x" * 100
        os.write(write, b"r")
        signal.pause()
    assert os.read(read, 1) == b"r"
    with pytest.raises(penstock.Busy, match=str(pid)):
        penstock.publish("ring:test")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with penstock.publish("ring:test") as successor:
        successor.send(number(100))
        assert numbers(sub.poll()) == list(range(101))
    assert (sub.restarts, sub.lost) == (2, 0)  # the child, and its successor


def test_hundreds_of_readers_come_and_go_and_nobody_is_evicted():
    with penstock.publish("ring:many", capacity=C, max_members=256) as pub:
        readers = [penstock.subscribe("ring:many") for _ in range(200)]
        assert pub.readers == 200
        pub.send(b"to all")
        assert all(reader.recv(timeout=1) == b"to all" for reader in readers)
        for reader in readers[::2]:
            reader.close()
        assert pub.readers == 100
        joined = [penstock.subscribe("ring:many") for _ in range(156)]
        with pytest.raises(penstock.Busy, match="it has 256 members"):
            penstock.subscribe("ring:many")
        pub.send(b"again")
        assert all(reader.poll() == [b"again"] for reader in [*readers[1::2], *joined])
        assert pub.all_read
        for reader in [*readers, *joined]:
            reader.close()


def test_readers_are_known_and_waited_for(ring):
    pub, sub = ring
    assert pub.readers == 1
    assert pub.connected
    assert pub.all_read
    pub.send(b"x")
    assert not pub.all_read
    sub.recv()
    assert pub.all_read
    pub.wait_for_readers()
    with pytest.raises(TimeoutError, match="fewer than 2"):
        pub.wait_for_readers(2, timeout=0.01)
    opened = []
    opening = threading.Timer(0.05, lambda: opened.append(penstock.subscribe("ring:test")))
    opening.start()
    pub.wait_for_readers(2, timeout=10)
    assert pub.readers == 2
    opening.join()
    opened[0].close()
    sub.close()
    assert pub.readers == 0
    assert not pub.connected
    assert pub.all_read


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dead_readers_do_not_count(ring):
    pub, _ = ring
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        reader = penstock.subscribe("ring:test")
        os.write(write, b"r" if reader.lost == 0 else b"?")
        signal.pause()
    assert os.read(read, 1) == b"r"
    assert pub.readers == 2
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert pub.readers == 1
    assert pub.statistics().totals.reaped == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_goes_on_where_its_parent_was(ring):
    pub, sub = ring
    for i in range(10):
        pub.send(number(i))
    assert numbers(sub.poll(4)) == [0, 1, 2, 3]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        good = numbers(sub.poll()) == [4, 5, 6, 7, 8, 9]
        try:
            pub.send(b"x")
            good = False
        except penstock.Busy:
            pass
        os.write(write, b"y" if good else b"n")
        os._exit(0)
    assert os.read(read, 1) == b"y"
    os.waitpid(pid, 0)
    assert numbers(sub.poll()) == [4, 5, 6, 7, 8, 9]


def test_where_a_subscription_starts(ring):
    pub, _ = ring
    ends = [pub.send(number(i)) for i in range(10)]
    with penstock.subscribe("ring:test", start=ends[3]) as sub:
        assert numbers(sub.poll()) == [4, 5, 6, 7, 8, 9]
        assert sub.lost_messages == 0
    with penstock.subscribe("ring:test", start=ends[-1]) as sub:
        pub.send(number(10))
        assert numbers(sub.poll()) == [10]
    for start in (ends[3] + 32, ends[3] + 1, pub.position + FRAME):
        with pytest.raises(penstock.Invalid, match="is not kept"):
            penstock.subscribe("ring:test", start=start)
    for start in ("earliest", "oldest", -1, 1.5, None):
        with pytest.raises(penstock.Invalid, match="start is"):
            penstock.subscribe("ring:test", start=start)
    for i in range(3000):
        pub.send(number(i))
    with pytest.raises(penstock.Invalid, match="is not kept"):
        penstock.subscribe("ring:test", start=ends[3])


@pytest.mark.parametrize("position", [0, (1 << 31) - C, (1 << 32) - C, (1 << 48) - C, (1 << 63) - (1 << 35)])
@pytest.mark.parametrize("sequence", [0, (1 << 32) - 50, (1 << 63) - 50, (1 << 64) - 50])
def test_counters_at_their_edges(position, sequence):
    with (
        penstock.publish(
            penstock.testing.channel("ring:edge", start_position=position, start_sequence=sequence), capacity=C
        ) as pub,
        penstock.subscribe("ring:edge") as sub,
        penstock.subscribe("ring:edge", conflate=True) as latest,
    ):
        for i in range(900):
            pub.send(number(i))
        assert numbers(sub.poll(1000)) == list(range(900))
        assert numbers(latest.poll()) == [899]
        for i in range(2000):
            pub.send(number(i))
        assert sub.try_recv() is None
        assert (sub.lost_messages, sub.lost) == (2000, 2000 * FRAME)
        assert pub.statistics().totals.messages_sent == 2900


def test_large_messages_are_whole_or_lost():
    """Copied without the GIL, while another thread overwrites."""
    with penstock.publish("ring:large", capacity=1 << 22) as pub, penstock.subscribe("ring:large") as sub:
        stop = threading.Event()

        def write():
            i = 0
            while not stop.is_set():
                i += 1
                pub.send(np.full(125_000, i, "<u8"))

        thread = threading.Thread(target=write)
        thread.start()
        got = 0
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline or got < 5:
            values = np.frombuffer(sub.recv(timeout=5), "<u8")
            assert values[0] == values[-1]
            assert (values == values[0]).all()
            got += 1
        stop.set()
        thread.join()
        got += len(sub.poll())
        assert got + sub.lost_messages == pub.statistics().totals.messages_sent


def test_codecs_and_options(ring):
    with penstock.publish("ring:json", codec="json", capacity=C) as pub, penstock.subscribe("ring:json") as sub:
        pub.send({"speed": 3.5})
        assert sub.recv() == {"speed": 3.5}
        assert penstock.inspect("ring:json").codec == "json"
        with pytest.raises(penstock.Mismatch, match="codec"):
            penstock.subscribe("ring:json", codec="msgpack")
        with pytest.raises(penstock.Mismatch, match="capacity=65536"):
            penstock.subscribe("ring:json", capacity=2 * C)
    for options in (
        {"capacity": 3 << 16},
        {"capacity": 0},
        {"max_members": 0},
        {"max_members": 5000},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.publish("ring:bad", **options)
    with pytest.raises(penstock.Invalid):
        penstock.publish(penstock.testing.channel("ring:bad", start_position=1))
    with pytest.raises(TypeError, match="'ring' has no option 'term_length'"):
        penstock.publish("ring:bad", term_length=1)
    with pytest.raises(TypeError, match="'log' has no option 'conflate'"):
        penstock.subscribe("log:bad", conflate=True)
    assert {status.channel for status in penstock.list_channels()} == {"ring:json", "ring:test"}


def test_waiting_on_rings_and_logs_at_once(ring):
    pub, sub = ring
    with penstock.publish("log:other", term_length=1 << 16) as log, penstock.subscribe("log:other") as other:
        assert penstock.wait([sub, other], timeout=0) == []
        pub.send(b"x")
        assert penstock.wait([sub, other], timeout=1) == [sub]
        log.send(b"y")
        assert penstock.wait([sub, other], timeout=1) == [sub, other]


def test_another_kind_under_the_same_file_name_is_refused(channel_folder):
    penstock.publish("log:x", term_length=1 << 16).close()
    os.rename(channel_folder / "x.log", channel_folder / "x.ring")
    with pytest.raises(penstock.Mismatch, match=r"kind 1 \(log\), not a ring"):
        penstock.subscribe("ring:x")


@pytest.mark.parametrize("word", ["write", "claimed", "frame"])
def test_memory_that_somebody_overwrote_is_an_error_not_a_crash(ring, channel_folder, word):
    pub, sub = ring
    for i in range(10):
        pub.send(number(i))
    at = {"write": 4096, "claimed": 4096 + 128, "frame": 8192 + 64 * 256}[word]
    with open(channel_folder / "test.ring", "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 8)
    seen = []
    for call in (lambda: sub.poll(), lambda: sub.lag, lambda: penstock.subscribe("ring:test"), lambda: pub.send(b"x")):
        try:
            call()
        except penstock.Corrupt as error:
            seen.append(str(error))
    assert seen
    assert all("overwritten" in text for text in seen)


@pytest.mark.parametrize("kind", ["log", "ring", "frames"])
def test_memory_can_be_brought_in_at_once(kind):
    options = {
        "log": {"term_length": 1 << 20},
        "ring": {"capacity": 1 << 22},
        "frames": {"shape": (1 << 20,), "buffers": 4},
    }

    def faults(**more):
        with (
            penstock.publish(penstock.testing.channel(f"{kind}:faults", **more), **options[kind]) as pub,
            penstock.subscribe(f"{kind}:faults") as sub,
        ):
            message = bytes(pub.max_payload) if kind == "frames" else bytes(100_000)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(25):
                pub.send(message)
                sub.try_recv()
            found = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        penstock.remove(f"{kind}:faults")
        return found

    faults()
    assert (
        faults() - faults(prefault=True) > 250
    )  # of the 600 and more pages that are touched; a sanitizer's own come to both
