"""A snapshot that goes on, of channels that are removed and made again meanwhile, as a supervisor's restart does."""

import threading
import time

import pytest
from watch.blackbox.boxes import until

import penstock
from penstock.record.write.snapshot import Snapshotter
from penstock.util.clock import SystemClock

SECOND = 10**9


class At(SystemClock):
    """The machine's clock, but for the time of day, which a test ends a snapshot with."""

    def __init__(self):
        self.at_ns = time.time_ns()

    def now_ns(self):
        return self.at_ns


def send(uri, *numbers):
    with penstock.publish(uri, codec="json") as pub:
        for number in numbers:
            pub.send(number)


@pytest.mark.parametrize("wanted", [["*"], ["log:b"], ["log:b", "*"]])
def test_a_channel_made_again_is_in_the_snapshot(tmp_path, wanted):
    clock = At()
    archive, found = penstock.Archive(tmp_path / "archive", clock=clock), []
    send("log:b", 1, 2)
    taken = threading.Thread(target=lambda: found.append(archive.snapshot(wanted, before=60, after=1)))
    taken.start()
    for count in ([2], [2, 1]):
        until(lambda count=count: [info.messages for info in archive.list()] == count, "what was sent is recorded")
        penstock.remove("log:b")
        send("log:b", 3)
    until(lambda: [info.messages for info in archive.list()] == [2, 1, 1], "what was sent is recorded")
    clock.at_ns += SECOND
    taken.join()
    (done,) = found
    assert [(part.channel, part.messages) for part in done.parts] == [("log:b", 2), ("log:b", 1), ("log:b", 1)]
    assert not done.left_out
    assert archive.verify() == []


@pytest.mark.parametrize("moment", ["_check_not_recorded", "_check_room"])
@pytest.mark.parametrize("wanted", ["log:b", "*"])
def test_a_channel_made_again_at_any_moment_is_in_it(tmp_path, monkeypatch, moment, wanted):
    """Before the snapshot has joined it, or right afterwards. What it joined is recorded once."""
    clock = At()
    archive, found = penstock.Archive(tmp_path / "archive", clock=clock), []
    plain = getattr(Snapshotter, moment)

    def again(*arguments):
        penstock.remove("log:b")
        send("log:b", 2)
        return plain(*arguments)

    monkeypatch.setattr(Snapshotter, moment, again)
    send("log:b", 1)
    taken = threading.Thread(target=lambda: found.append(archive.snapshot(wanted, before=60, after=1)))
    taken.start()
    wanted_parts = [1] if moment == "_check_not_recorded" else [1, 1]
    until(lambda: [info.messages for info in archive.list()] == wanted_parts, "what was sent is recorded")
    send("log:late", 1)
    if wanted == "*":
        until(lambda: any(info.channel == "log:late" for info in archive.list()), "the watch has looked again")
    clock.at_ns += SECOND
    taken.join()
    assert [part.channel for part in found[0].parts if part.channel == "log:b"] == ["log:b"] * len(wanted_parts)


def test_what_cannot_be_joined_later_is_told(tmp_path, monkeypatch):
    clock = At()
    archive, found = penstock.Archive(tmp_path / "archive", clock=clock), []
    send("log:a", 1)
    taken = threading.Thread(target=lambda: found.append(archive.snapshot("*", before=60, after=1)))
    taken.start()
    until(archive.list, "the recording")
    plain, refused = archive._connector.subscribe_past, threading.Event()

    def subscribe(channel, *arguments, **options):
        if channel == "log:b":
            refused.set()
            raise penstock.Busy("it is full")
        return plain(channel, *arguments, **options)

    monkeypatch.setattr(archive._connector, "subscribe_past", subscribe)
    send("log:b", 1)
    assert refused.wait(60)
    clock.at_ns += SECOND
    taken.join()
    assert found[0].left_out == ("log:b is left out: it is full",)


@pytest.mark.parametrize("wanted", [["log:*"], ["log:b", "log:*"]])
def test_a_recorder_of_a_pattern_takes_a_named_channel_again(archive, wanted):
    send("log:b", 1)
    with archive.record(wanted, start="earliest") as recorder:
        penstock.remove("log:b")
        send("log:b", 2)
        until(lambda: sum(row.bytes > 0 for row in recorder.progress()) == 2, "both are recorded")
    assert [info.messages for info in archive.list()] == [1, 1]
