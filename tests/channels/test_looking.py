"""Looks at channels' memory: all that is there, nothing wrong, and no slot taken."""

import threading

import pyarrow as pa
import pytest

import penstock
from penstock.channels.storage.looking import COLUMNS, look_at
from penstock.channels.uri.opener import parse

KINDS = ("log", "ring", "sync")
SMALL = {"log": 65536, "ring": 65536, "sync": 65536}


def look(uri):
    found = look_at(parse(uri))
    assert found is not None
    return found


def numbers(batches):
    return [int(one) for batch in batches for one in batch.column("payload").to_pylist()]


@pytest.mark.parametrize("kind", ["log", "ring"])
def test_a_look_has_what_a_subscription_gets(kind):
    uri = f"{kind}:a"
    with penstock.publish(uri) as publication, penstock.subscribe(uri) as subscription:
        for number in range(500):
            publication.send(str(number).encode() * (number % 5 + 1))
        seen = look(uri)
        found = pa.Table.from_batches(seen.copy(seen.oldest(), seen.end()).batches)
        got = subscription.poll_arrow()
    assert found.column_names == list(COLUMNS)
    assert set(found["stream"].to_pylist()) == {uri}
    for name in ("position", "session", "payload"):
        assert found[name].to_pylist() == got[name].to_pylist()
    assert found["timestamp_ns"].to_pylist() == got["time"].cast(pa.int64()).to_pylist()


def test_a_look_at_a_full_channel_takes_no_slot():
    with penstock.publish("log:a", max_members=2) as publication, penstock.subscribe("log:a"):
        publication.send(b"1")
        with pytest.raises(penstock.Busy):
            penstock.subscribe("log:a")
        before = penstock.inspect("log:a")
        seen = look("log:a")
        assert numbers(seen.copy(seen.oldest(), seen.end()).batches) == [1]
        assert penstock.inspect("log:a").members == before.members


@pytest.mark.parametrize("kind", KINDS)
def test_messages_that_memory_has_no_more_are_missing(kind):
    uri = f"{kind}:a"
    with penstock.publish(uri, capacity=SMALL[kind]) as publication:
        seen = look(uri)
        begin = seen.end()
        for number in range(20_000):
            publication.send(str(number).encode())
        end = seen.end()
        found = seen.copy(begin, end)
        oldest = seen.copy(seen.oldest(), end)
    ((low, high),) = found.missing
    positions = [position for batch in found.batches for position in batch.column("position").to_pylist()]
    assert low == begin
    assert high == positions[0]
    assert found.end == found.resume == end
    assert (positions[-1] - positions[0]) % 32 == 0
    assert not oldest.missing
    assert sum(batch.num_rows for batch in oldest.batches) == len(positions) > 500
    if kind != "sync":  # whose messages are in envelopes
        assert numbers(found.batches) == list(range(20_000 - len(positions), 20_000))


@pytest.mark.parametrize("kind", ["log", "ring"])
def test_looks_beside_a_writer_are_right(kind, tally):
    """The writer laps its memory all the time: each message that comes through is whole, and positions tell which are missing."""
    uri, stop, looks = f"{kind}:a", threading.Event(), 0

    def write(publication):
        number = 0
        while not stop.is_set():
            publication.offer_many([str(at).encode().rjust(40, b"0") for at in range(number, number + 100)])
            number += 100

    with penstock.publish(uri, capacity=65536) as publication:
        seen = look(uri)
        begin = seen.end()
        writer = threading.Thread(target=write, args=(publication,))
        writer.start()
        try:
            while looks < 300:
                end = seen.end()
                found = seen.copy(begin, end)
                size = 0
                for batch in found.batches:
                    for payload in batch.column("payload").to_pylist():
                        assert payload.isdigit()
                        assert len(payload) == 40
                    size += batch.num_rows * 96
                got = numbers(found.batches)
                assert got == sorted(set(got))
                gone = sum(high - low for low, high in found.missing)
                assert size + gone <= found.end - begin
                assert found.end - begin - size - gone <= 96 * (1 + (found.end - begin) // 65536)  # pads
                begin, looks = found.end, looks + 1
        finally:
            stop.set()
            writer.join()
    tally("looks beside a writer", looks)


def test_a_message_in_fragments_is_whole_or_torn():
    with penstock.publish("log:a", capacity=65536) as publication:
        seen = look("log:a")
        begin = seen.end()
        publication.send(b"7" * 40_000)
        end = seen.end()
        found = seen.copy(begin, end)
        assert [len(one) for one in found.batches[0].column("payload").to_pylist()] == [40_000]
        assert not found.torn
        part = seen.copy(begin + 16384, end)
        assert part.batches == []
        assert part.torn
        half = seen.copy(begin, begin + 16384)
        assert (half.batches, half.end, half.resume) == ([], begin + 16384, begin)


def test_a_look_ends_at_a_claim_that_is_open():
    with penstock.publish("log:a") as publication:
        publication.send(b"1")
        at = publication.position
        with publication.claim(1) as view:
            publication.send(b"3")
            seen = look("log:a")
            end = seen.end()
            found = seen.copy(seen.oldest(), end)
            assert (numbers(found.batches), found.end) == ([1], at)
            view[:] = b"2"
        assert numbers(seen.copy(seen.oldest(), end).batches) == [1, 2, 3]


@pytest.mark.parametrize("uri", ["log:none", "pipe:a", "frames:a", "log:open"])
def test_there_is_nothing_to_look_at(uri):
    with penstock.subscribe("log:open"), penstock.publish("pipe:a"):
        assert look_at(parse(uri)) is None
