"""A log with one publisher and its subscribers, in one process."""

import os
import threading
import time

import numpy as np
import pytest
from channel_files import terms_at

import penstock

T = 1 << 16


def test_messages_arrive_in_order(pair):
    pub, sub = pair
    positions = [pub.send(b"%d" % i) for i in range(100)]
    assert positions == sorted(positions)
    assert [sub.recv(timeout=1) for _ in range(100)] == [b"%d" % i for i in range(100)]
    assert sub.position == positions[-1] == pub.position
    assert sub.try_recv() is None
    assert sub.lag == 0


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 64, T // 8, T // 4 - 32])
def test_every_size_that_fits_one_frame(pair, size):
    pub, sub = pair
    data = bytes(i % 251 for i in range(size))
    for _ in range(20):
        assert pub.offer(data) is not None
        assert sub.recv(timeout=1) == data


@pytest.mark.parametrize("size", [T // 4 - 31, T // 4, T, 3 * T, 10 * T + 7])
def test_larger_messages_go_in_fragments(pair, size):
    pub, sub = pair
    data = np.random.default_rng(size).bytes(size)
    sender = threading.Thread(target=lambda: [pub.send(data), pub.send(b"after")])
    sender.start()
    assert sub.recv(timeout=10) == data
    assert sub.recv(timeout=10) == b"after"
    sender.join()
    with pytest.raises(penstock.TooLarge, match="send"):
        pub.offer(data)


def test_buffers_of_any_kind(pair):
    pub, sub = pair
    array = np.arange(12, dtype="i4").reshape(3, 4)
    for data in (bytearray(b"abc"), memoryview(b"abcd")[1:3], array, array.data):
        pub.send(data)
        assert sub.recv(timeout=1) == bytes(memoryview(data).cast("B")) if not isinstance(data, np.ndarray) else True
    pub.send(array.T)
    assert [sub.recv(timeout=1) for _ in range(2)][1] == array.T.tobytes()
    with pytest.raises(TypeError, match="str"):
        pub.send("text")
    with pytest.raises(TypeError):
        pub.send(3)


def test_back_pressure_is_a_value_and_then_an_error(pair):
    pub, sub = pair
    count = 0
    while pub.offer(b"x" * 100) is not None:
        count += 1
    assert count * 160 <= T
    assert count * 160 > T * 0.9
    with pytest.raises(TimeoutError):
        pub.send(b"x", timeout=0)
    begun = time.monotonic()
    with pytest.raises(penstock.TimedOut, match=rf"process {os.getpid()} .* bytes behind"):
        pub.send(b"x", timeout=0.05)
    assert time.monotonic() - begun >= 0.05
    assert len(sub.poll(limit=10**6)) == count
    assert pub.offer(b"x") is not None
    assert pub.statistics().totals.back_pressure >= 3


def test_a_blocked_send_goes_on_when_there_is_room(pair):
    pub, sub = pair
    while pub.offer(b"x" * 1000) is not None:
        pass
    done = threading.Event()
    threading.Thread(target=lambda: (pub.send(b"last"), done.set())).start()
    assert not done.wait(0.05)
    sub.poll(limit=10**6)
    assert done.wait(5)
    assert sub.recv(timeout=1) == b"last"


def test_claim_commits_and_aborts(pair):
    pub, sub = pair
    with pub.claim(4) as view:
        assert not view.readonly
        view[:] = b"good"
    with pytest.raises(RuntimeError, match="oops"), pub.claim(4) as view:
        view[:] = b"evil"
        raise RuntimeError("oops")
    pub.send(b"next")
    assert [sub.recv(timeout=1), sub.recv(timeout=1)] == [b"good", b"next"]
    assert sub.try_recv() is None
    with pytest.raises(ValueError, match="released"):
        view[0] = 1


def test_an_open_claim_holds_back_what_comes_later(pair):
    pub, sub = pair
    with pub.claim(4) as view:
        pub.send(b"later")
        assert sub.try_recv() is None
        view[:] = b"soon"
    assert sub.poll() == [b"soon", b"later"]


def test_too_many_open_claims_is_an_error(pair):
    pub, _sub = pair
    claims = [pub.claim(1) for _ in range(7)]
    with pytest.raises(penstock.Busy, match="claims"):
        pub.claim(1)
    claims[0].abort()
    claims[0] = pub.claim(1)
    for claim in claims:
        claim.commit()
    with pytest.raises(penstock.Closed):
        claims[0].commit()
    with pytest.raises(penstock.TooLarge):
        pub.claim(T)
    with pytest.raises(penstock.Invalid):
        pub.claim(-1)


def test_closing_aborts_open_claims():
    pub = penstock.publish("log:test", term_length=T)
    sub = penstock.subscribe("log:test")
    claim = pub.claim(8)
    pub.close()
    with penstock.publish("log:test") as other:
        other.send(b"goes on")
        assert sub.recv(timeout=1) == b"goes on"
    with pytest.raises(penstock.Closed):
        claim.commit()


def test_offer_many_takes_what_fits(pair):
    pub, sub = pair
    messages = [b"%05d" % i for i in range(5000)]
    sent = got = 0
    received = []
    while got < len(messages):
        sent += pub.offer_many(messages[sent:])
        new = sub.poll(limit=10**6)
        received += new
        got += len(new)
    assert received == messages
    assert pub.offer_many([]) == 0
    rows = np.arange(12, dtype="u2").reshape(3, 4)
    assert pub.offer_many(rows) == 3
    assert sub.poll() == [row.tobytes() for row in rows]
    with pytest.raises(penstock.TooLarge):
        pub.offer_many([b"fine", b"x" * T])
    assert sub.try_recv() is None  # all or nothing where an argument is wrong
    with pytest.raises(penstock.Invalid, match="offer"):
        pub.offer_many(b"one message")


def test_borrow_reads_in_place_and_keeps_what_is_held(pair):
    pub, sub = pair
    pub.send(np.arange(4.0))
    with sub.borrow(timeout=1) as view:
        assert view.readonly
        kept = np.frombuffer(view)
    assert not kept.flags.writeable
    blocked = 0
    for _ in range(1000):
        if pub.offer(b"x" * 1000) is None:
            blocked += 1
        sub.poll()
    assert blocked > 0  # the array is still held: its room is not given away
    assert kept.tolist() == [0, 1, 2, 3]
    del kept, view
    assert sub.try_recv() is None
    for _ in range(1000):
        assert pub.offer(b"x" * 1000) is not None
        sub.poll()


def test_borrowing_fragments_gives_a_copy(pair):
    pub, sub = pair
    data = bytes(range(256)) * 200
    thread = threading.Thread(target=pub.send, args=(data,))
    thread.start()
    with sub.borrow(timeout=5) as view:
        assert view == data
    thread.join()


def test_poll_arrow_is_a_record_batch(pair):
    import pyarrow as pa

    pub, sub = pair
    ends = [pub.send(b"m%d" % i) for i in range(5)]
    batch = sub.poll_arrow(limit=3)
    assert isinstance(batch, pa.RecordBatch)
    batch.validate(full=True)
    assert batch.column("payload").to_pylist() == [b"m0", b"m1", b"m2"]
    assert batch.column("position").to_pylist() == [0, *ends[:2]]
    assert set(batch.column("session").to_pylist()) == {pub.session}
    assert sub.poll_arrow().num_rows == 2
    empty = sub.poll_arrow()
    empty.validate(full=True)
    assert (empty.num_rows, empty.schema) == (0, batch.schema)


def test_batches_that_are_kept_stay_as_they_are():
    """Their memory is used again when they are gone, and not before."""
    with penstock.publish("log:test", term_length=1 << 20) as pub, penstock.subscribe("log:test") as sub:
        kept = {}
        for turn in range(24):
            payloads = [bytes([turn, i % 256]) * 40 for i in range(2000)]  # 160 kB: more than what is small
            assert pub.offer_many(payloads) == 2000
            kept[turn] = sub.poll_arrow(), payloads
            if turn % 3 == 2:
                del kept[turn - 1]
            for batch, expected in kept.values():
                assert batch.column("payload").to_pylist() == expected
                batch.validate(full=True)


def test_subscribers_each_have_their_own_pace(pair):
    pub, first = pair
    with penstock.subscribe("log:test") as second:
        pub.send(b"a")
        pub.send(b"b")
        assert first.recv(timeout=1) == b"a"
        assert second.poll() == [b"a", b"b"]
        assert first.recv(timeout=1) == b"b"


def test_where_a_subscription_starts():
    with penstock.publish("log:test", term_length=T) as pub:
        positions = [pub.send(b"%d" % i) for i in range(10)]
        with penstock.subscribe("log:test") as newest, penstock.subscribe("log:test", start="earliest") as earliest:
            assert newest.try_recv() is None
            assert earliest.recv(timeout=1) == b"0"
        with penstock.subscribe("log:test", start=positions[4]) as middle:
            assert middle.recv(timeout=1) == b"5"
        with pytest.raises(penstock.Invalid, match="begins at"):
            penstock.subscribe(
                "log:test", start=positions[4] + 32 if positions[5] - positions[4] > 32 else positions[4] + 1
            )
        with pytest.raises(penstock.Invalid, match="not kept"):
            penstock.subscribe("log:test", start=positions[-1] + 32)
        for wrong in ("oldest", -1, 1.5, True, None):
            with pytest.raises(penstock.Invalid):
                penstock.subscribe("log:test", start=wrong)


def test_late_joiners_find_at_least_a_term_of_history():
    with penstock.publish("log:test", term_length=T) as pub:
        for i in range(20000):
            pub.send(b"%064d" % i)
        with penstock.subscribe("log:test", start="earliest") as sub:
            assert sub.lag >= T
            numbers = [int(m) for m in sub.poll(limit=10**6)]
            assert numbers == list(range(20000 - len(numbers), 20000))


def test_a_slow_subscription_may_be_dropped_and_is_told():
    with (
        penstock.publish("log:test", term_length=T) as pub,
        penstock.subscribe("log:test", drop_after=0.01) as slow,
        penstock.subscribe("log:test") as steady,
    ):
        for i in range(5000):
            pub.send(b"%064d" % i, timeout=10)
            steady.recv(timeout=1)
        with pytest.raises(penstock.TooSlow, match="lost") as caught:
            slow.recv(timeout=1)
        assert isinstance(caught.value, ConnectionResetError)
        first = int(slow.recv(timeout=1))
        assert slow.lost == slow.last.position  # it had read nothing and goes on right there
        assert [first, *map(int, slow.poll(limit=10**6))] == list(range(first, 5000))
        totals = pub.statistics().totals
        assert totals.dropped == 1
        assert totals.bytes_lost == slow.lost


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("arrow", [False, True])
def test_messages_read_before_a_drop_are_delivered(arrow):
    """A subscription that another process's writer lets go in the middle of a batch: every byte is got or counted as lost."""
    with penstock.publish("log:d", term_length=T) as pub, penstock.subscribe("log:d", drop_after=1e-9) as sub:
        child = os.fork()
        if child == 0:
            batch = [bytes(32)] * 200
            for _ in range(3000):
                left = len(batch)
                while left:
                    left -= pub.offer_many(batch[:left])
            os._exit(0)
        got = drops = 0
        running = True
        while running or sub.lag:
            try:
                got += sub.poll_arrow(1000).num_rows if arrow else len(sub.poll(1000))
            except penstock.TooSlow:
                drops += 1
            running = running and os.waitpid(child, os.WNOHANG)[0] == 0
        assert drops
        assert got * 64 + sub.lost == pub.position


def test_exclusive_publications():
    with penstock.publish("log:test", exclusive=True, term_length=T) as only:
        with pytest.raises(penstock.Busy, match="exclusive"):
            penstock.publish("log:test")
        with penstock.subscribe("log:test") as sub:
            for i in range(10_000):
                only.send(b"%d" % i)
                assert sub.recv(timeout=1) == b"%d" % i
    with penstock.publish("log:test"), pytest.raises(penstock.Busy, match="already publishes"):
        penstock.publish("log:test", exclusive=True)


def test_many_publications_make_one_order():
    pubs = [penstock.publish("log:test", term_length=T) for _ in range(4)]
    subs = [penstock.subscribe("log:test") for _ in range(3)]
    assert len({pub.session for pub in pubs}) == 4
    for i in range(100):
        pubs[i % 4].send(b"%d" % i)
    for sub in subs:
        assert sub.poll() == [b"%d" % i for i in range(100)]
    for handle in (*pubs, *subs):
        handle.close()


def test_iteration_ends_when_the_handle_closes(pair):
    pub, sub = pair
    got = []
    reader = threading.Thread(target=lambda: got.extend(sub))
    reader.start()
    pub.send(b"a")
    pub.send(b"b")
    while len(got) < 2:
        reader.join(0.001)
    sub.close()
    reader.join(5)
    assert got == [b"a", b"b"]
    assert list(sub) == []


def test_closed_handles_say_so(pair):
    pub, sub = pair
    pub.close()
    pub.close()
    sub.close()
    for call in (lambda: pub.send(b""), lambda: pub.offer(b""), lambda: pub.claim(1), lambda: pub.session):
        with pytest.raises(penstock.Closed, match="closed"):
            call()
    for call in (
        sub.recv,
        sub.try_recv,
        sub.poll,
        sub.fileno,
        sub.borrow,
        sub.poll_arrow,
        lambda: penstock.wait([sub]),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_closing_wakes_a_blocked_send():
    pub = penstock.publish("log:test", term_length=T)
    with penstock.subscribe("log:test"):
        while pub.offer(b"x" * 1000) is not None:
            pass
        errors = []

        def blocked():
            try:
                pub.send(b"x")
            except penstock.Closed as error:
                errors.append(error)

        thread = threading.Thread(target=blocked)
        thread.start()
        thread.join(0.05)
        pub.close()
        thread.join(5)
        assert len(errors) == 1


def test_timestamps_come_from_the_clock_that_is_given():
    clock = penstock.testing.ManualClock(1_700_000_000_123_456_789)
    with (
        penstock.publish(penstock.testing.channel("log:test", clock=clock)) as pub,
        penstock.subscribe("log:test") as sub,
    ):
        pub.send(b"a")
        clock.now_ns += 5
        pub.send(b"b")
        sub.recv(timeout=1)
        assert sub.last.time_ns == 1_700_000_000_123_456_789
        sub.recv(timeout=1)
        assert sub.last.time_ns == 1_700_000_000_123_456_794
        assert sub.last.session == pub.session


def test_the_real_clock_follows_the_system(pair):
    pub, sub = pair
    for _ in range(2000):
        before = time.time_ns()
        pub.send(b"x")
        after = time.time_ns()
        sub.recv(timeout=1)
        assert before - 2_000_000 <= sub.last.time_ns <= after + 2_000_000


def test_counters_add_up(pair):
    pub, sub = pair
    for i in range(10):
        pub.send(b"x" * i)
    sub.poll(limit=4)
    status = penstock.inspect("log:test")
    assert (status.totals.messages_sent, status.totals.bytes_sent) == (10, 45)
    assert (status.totals.messages_received, status.totals.bytes_received) == (4, 6)
    assert {m.role for m in status.members} == {"publication", "subscription"}
    assert [c.channel for c in penstock.list_channels()] == ["log:test"]
    pub.close()
    assert penstock.inspect("log:test").totals.messages_sent == 10
    assert sub.statistics().totals.messages_sent == 10


def test_positions_and_terms_at_the_edges():
    for start in (0, (1 << 31) - T, (1 << 32) - T, (1 << 47) - T, (1 << 48) - T, (1 << 62)):
        for term_id in (0, 2**31 - 1, -1, -(2**31)):
            name = f"log:edge-{start}-{term_id}"
            with (
                penstock.publish(
                    penstock.testing.channel(name, start_position=start, initial_term_id=term_id),
                    term_length=T,
                    max_members=4,
                ) as pub,
                penstock.subscribe(name) as sub,
            ):
                for i in range(3000):
                    pub.send(b"%064d" % i)
                    assert int(sub.recv(timeout=1)) == i
                assert sub.position == pub.position > start
                with penstock.subscribe(name, start="earliest") as late:
                    assert len(late.poll(limit=10**6)) * 96 >= T
            penstock.remove(name)


def test_the_frame_on_memory_is_the_frame_on_the_wire(channel_folder):
    """A decoder written from the protocol's page reads what the core wrote."""
    import struct

    clock = penstock.testing.ManualClock(42)
    wire = penstock.testing.channel("log:wire", clock=clock, initial_term_id=7)
    with penstock.publish(wire, term_length=T, stream_id=1001) as pub:
        pub.send(b"y" * 1000)
        with pub.claim(32) as _:
            pass
        session = pub.session
    path = channel_folder / "wire.log"
    terms = path.read_bytes()[terms_at(path) :]
    length, version, flags, kind, offset, sid, stream, term, reserved = struct.unpack_from("<iBBhiiiiq", terms, 0)
    assert bytes.fromhex("08040000 00c00100 00000000") == terms[:12]  # the captured DATA header
    assert (length, version, flags, kind, offset, sid, stream, term, reserved) == (
        1032,
        0,
        0xC0,
        1,
        0,
        session,
        1001,
        7,
        42,
    )
    assert terms[32:1032] == b"y" * 1000
    assert struct.unpack_from("<iBBhiiiiq", terms, 1056) == (64, 0, 0xC0, 1, 1056, session, 1001, 7, 42)
