"""Messages in fragments that their writer gave up: nothing of one is taken for a part of the next, wherever a scan's range ends."""

import time

import pytest

import penstock
from penstock.record import plan

TERM = 1 << 16
PATIENCE = 60


def test_a_range_ends_behind_a_message_that_was_given_up(archive):
    sent = [b"a" * 20_000, b"b" * 40_000]
    with (
        penstock.subscribe("log:given-up") as slow,
        penstock.publish("log:given-up", term_length=TERM) as pub,
        archive.record("log:given-up", start="earliest", sync_interval=0.01) as recorder,
    ):
        for message in sent:
            pub.send(message, timeout=0)
        with pytest.raises(penstock.TimedOut):
            pub.send(b"given up" * 5000, timeout=0)
        slow.recv(timeout=PATIENCE)
        while pub.position == TERM:  # until there is room for its first fragment, and no more
            with pytest.raises(penstock.TimedOut):
                pub.send(b"given up" * 5000, timeout=0)
        cut = pub.position
        while recorder.progress()[0].position < cut:  # so that a block ends here
            time.sleep(0.001)
        while slow.try_recv() is not None:
            pass
        sent.append(b"next" * 10_000)
        pub.send(sent[-1], timeout=PATIENCE)
    (info,) = archive.list()
    before = [row for batch in archive.scan(info.id, end=cut) for row in batch.column("payload").to_pylist()]
    after = [row for batch in archive.scan(info.id, start=cut) for row in batch.column("payload").to_pylist()]
    assert before == sent[:-1]
    assert after == sent[-1:]
    assert [message.data for message in archive.replay(info.id)] == sent


@pytest.mark.parametrize("range_bytes", [1, 1 << 16])
def test_ranges_together_have_each_message_once(archive, range_bytes):
    test_a_range_ends_behind_a_message_that_was_given_up(archive)
    ranges = plan(archive, range_bytes=range_bytes)
    rows = [row for part in ranges for batch in part.scan(("payload",)) for row in batch.column("payload").to_pylist()]
    assert sorted(rows) == sorted(message.data for message in archive.replay(1))
