"""Recordings of `udp:` channels over a link that loses: what was lost for good is a gap, byte for byte."""

import os
import threading
from pathlib import Path

import pytest
from network.relay import relay
from network.test_bad_links import PATIENCE, message, uri
from people import until
from ports import free_port

import penstock
from penstock.record import plan

COUNT = 3_000


@pytest.mark.parametrize("lengths", [[64], [64, 1000, 5000]], ids=["whole", "fragments"])
def test_losses_of_unreliable_subscriptions_are_recorded_gaps(rng, archive, lengths):
    target = free_port()
    with (
        penstock.subscribe(uri(target), reliable=False, until_end=True) as sub,
        archive.record(uri(target)),
        relay(target, rng.randrange(1 << 30)) as between,
    ):
        got, came = [], threading.Event()

        def read():
            for data in sub:
                got.append(data)
                came.set()

        reader = threading.Thread(target=read)
        reader.start()
        with penstock.publish(uri(between.port), linger=20.0) as pub:
            pub.wait_for_readers(2, timeout=PATIENCE)
            between.set("there", loss=0.1)
            number = 0
            while number < COUNT or sub.lost == 0:
                pub.send(message(number, lengths[number % len(lengths)]), timeout=PATIENCE)
                number += 1
            between.set("there", loss=0)
            while (
                not got or int.from_bytes(got[-1][:8], "little") < number
            ):  # the last one arrives: a message is behind each gap
                came.clear()
                pub.send(message(number, 64), timeout=PATIENCE)
                came.wait(0.01)  # it may be lost: another one follows
            pub.send(message(number, 64), timeout=PATIENCE)
            end = pub.position
        reader.join()
        lost = sub.lost
    for data in got:
        number = int.from_bytes(data[:8], "little")
        assert data in (message(number, lengths[number % len(lengths)]), message(number, 64)), "fragments of two halves"
    info = archive.find(uri(target))
    assert [replayed.data for replayed in archive.replay(uri(target))] == got
    assert (info.lost_bytes, info.end_position, info.damage) == (lost, end, "")
    assert info.gaps > 0
    assert info.messages >= len(got)
    assert archive.verify() == []
    # The table's column says the same, read at once or, where messages are whole frames, in ranges, as Spark's tasks do.
    assert sum(archive.read(uri(target), columns=("position", "lost"))["lost"].to_pylist()) == lost
    by_range = 0
    for planned in plan(archive, range_bytes=1 << 14):
        for batch in planned.scan(("position", "lost"), batch_rows=100):
            by_range += sum(batch["lost"].to_pylist())
    # A loss counts for the message behind it. In a range that has only fragments of messages behind it, none counts it.
    assert by_range == lost if lengths == [64] else 0 < by_range <= lost


def test_a_session_that_closes_ends_its_recording(archive):
    """And gives its memory back, while the recorder goes on."""
    target = free_port()

    def images():
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(".image" in line and os.environ["PENSTOCK_DIR"] in line for line in lines)

    with archive.record(uri(target)) as recorder:
        for number in range(5):
            with penstock.publish(uri(target), codec="json") as pub:
                pub.wait_for_readers(1, timeout=PATIENCE)
                pub.send(number)
        until(lambda: [info.state for info in archive.list()] == ["closed"] * 5, "they are not closed")
        until(lambda: images() == 0, "their images are mapped")
        assert [m.data for info in archive.list() for m in archive.follow(info.id, timeout=PATIENCE)] == list(range(5))
        assert [row.messages for row in recorder.progress()] == [1] * 5
    assert archive.verify() == []


def test_retransmission_leaves_no_gap(rng, archive):
    target = free_port()
    with (
        penstock.subscribe(uri(target), until_end=True) as sub,
        archive.record(uri(target)),
        relay(target, rng.randrange(1 << 30), loss=0.05) as between,
    ):
        with penstock.publish(uri(between.port), linger=20.0) as pub:
            pub.wait_for_readers(2, timeout=PATIENCE)
            for number in range(COUNT):
                pub.send(message(number, 200), timeout=PATIENCE)
        assert list(sub) == [message(number, 200) for number in range(COUNT)]
    info = archive.find(uri(target))
    assert (info.messages, info.gaps, info.lost_bytes) == (COUNT, 0, 0)
