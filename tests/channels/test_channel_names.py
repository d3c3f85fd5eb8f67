"""Channels' names with parts, and patterns of them: every kind, fake ones, recordings and tables."""

import contextlib
import threading
import time

import pytest

import penstock
from penstock.channels.storage.discovery import ChannelDiscovery
from penstock.channels.uri import registry as kinds
from penstock.channels.uri import wildcards
from penstock.errors import Invalid
from penstock.export import export
from penstock.spark.parsing.naming import Names

PATIENCE = 60
MEMORY = [kind for kind in kinds.kinds() if kind.memory is not None and not kind.prefix]
SMALL = {
    "log": {"capacity": 1 << 16},
    "ring": {"capacity": 1 << 16},
    "sync": {"capacity": 1 << 16},
    "pipe": {"capacity": 1 << 16, "max_pipes": 4, "max_members": 4},
    "frames": {"shape": (8,), "dtype": "u1"},
}


def opened(name, **options):
    kind = name.removeprefix("fake:").partition(":")[0]
    join = kinds.kind_named(kind).join is not None and not kinds.kind_named(kind).has_roles
    return (penstock.join if join else penstock.publish)(name, **SMALL[kind], **options)


def until(ready):
    """Looks again and again for something that a recorder does. It looks for channels in turns of its own."""
    deadline, turn = time.monotonic() + PATIENCE, threading.Event()
    while not ready():
        assert time.monotonic() < deadline
        turn.wait(0.005)


@pytest.mark.parametrize("fake", ["", "fake:"])
@pytest.mark.parametrize("kind", MEMORY, ids=lambda kind: kind.name)
def test_a_name_may_have_parts(kind, fake):
    name = f"{fake}{kind.name}:robot/left/imu.0"
    with opened(name) as handle:
        assert handle.channel == name
        assert penstock.inspect(name).channel == name
        assert [found.channel for found in penstock.list_channels(f"{fake}{kind.name}:robot/*")] == [name]
        penstock.remove(name)
        with pytest.raises(penstock.NotFound):
            penstock.inspect(name)


@pytest.mark.parametrize(
    "wrong", ["/a", "a/", "a//b", "a/../b", "./a", "a/.", "..", "a b", "a@b", "", "a" * 129, "a/" * 64 + "ab"]
)
def test_a_wrong_name_makes_no_channel(wrong):
    with pytest.raises(Invalid, match="not a channel name"):
        penstock.publish(f"log:{wrong}")
    assert penstock.list_channels() == []


@pytest.mark.parametrize("kind", MEMORY, ids=lambda kind: kind.name)
def test_the_longest_name_has_a_file(kind):
    name = f"{kind.name}:" + "a/" * 63 + "ab"
    with opened(name):
        assert [found.channel for found in penstock.list_channels()] == [name]


@pytest.mark.parametrize(
    ("pattern", "channel", "fits"),
    [
        ("*", "log:imu", True),
        ("*", "udp://127.0.0.1:4000/7", True),
        ("robot/*", "log:robot/imu", True),
        ("robot/*", "ring:robot/left/imu", True),
        ("robot/*", "log:robot", False),
        ("robot/*", "log:my/robot/imu", False),
        ("*/imu", "log:robot/left/imu", True),
        ("*/imu", "log:robot/imu2", False),
        ("log:*", "log:robot/imu", True),
        ("log:*", "ring:imu", False),
        ("*:imu", "ring:imu", True),
        ("imu", "ring:imu", True),
        ("imu", "ring:imu2", False),
        ("127.0.0.1:*", "udp://127.0.0.1:4000/7", False),  # with a colon it is a URI
        ("udp://*/7", "udp://127.0.0.1:4000/7", True),
        ("fake:log:*", "fake:log:imu", True),
        ("log:*", "fake:log:imu", False),
        ("a.c*", "log:abc", False),
        ("log:[ab]*", "log:a", False),
    ],
)
def test_a_star_stands_for_any_text(pattern, channel, fits):
    assert wildcards.matches(pattern, channel) is fits


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("robot/*", True),
        ("*", True),
        ("log:*", True),
        ("fake:log:*", True),
        ("*:imu", True),
        ("log:imu", False),
        ("zmq+tcp://*:5555", False),
        ("aeron:udp?endpoint=127.0.0.1:4000|*", True),
        ("udp://[::1]:4000/7", False),
    ],
)
def test_pattern_syntax(text, several):
    assert wildcards.is_pattern(text) is several


@pytest.mark.parametrize("text", ["nope:*", "fake:nope:a*", ":*"])
def test_a_pattern_of_no_kind_is_an_error(text):
    with pytest.raises(penstock.Invalid, match="there is no kind"):
        wildcards.is_pattern(text)


def listed(*patterns):
    return [found.channel for found in penstock.list_channels(*patterns)]


def test_channels_are_listed_by_patterns():
    with contextlib.ExitStack() as held:
        for name in ("log:robot/imu", "ring:robot/gps", "log:other", "fake:log:robot/own"):
            held.enter_context(opened(name))
        assert listed() == ["log:other", "ring:robot/gps", "log:robot/imu"]
        assert listed("robot/*") == ["ring:robot/gps", "log:robot/imu"]
        assert listed(["other", "ring:*"]) == ["log:other", "ring:robot/gps"]
        assert listed("fake:*") == ["fake:log:robot/own"]
        assert listed("log:robot/imu") == ["log:robot/imu"]
        assert listed("nothing*") == []


def test_those_that_come_are_told_once():
    coming = ChannelDiscovery(["robot/*", "fake:ring:*"])
    assert coming.new() == []
    with opened("log:robot/imu"), opened("log:other"), opened("fake:ring:a"):
        assert coming.new() == ["fake:ring:a", "log:robot/imu"]
        assert coming.new() == []
        penstock.remove("log:robot/imu")
        penstock.remove("fake:ring:a")
        with opened("log:robot/imu"), opened("fake:ring:a"):
            assert coming.new() == ["fake:ring:a", "log:robot/imu"]  # others of the same names
    penstock.remove("log:robot/imu")
    assert coming.new() == []


def test_a_change_is_seen_long_after_the_last(channel_folder, monkeypatch):
    """A folder that was not changed for a while is not listed again, until it is changed."""
    from penstock.channels.storage import discovery

    looked = []
    listing = discovery.listing
    monkeypatch.setattr(discovery, "listing", lambda patterns: looked.append(1) or listing(patterns))
    with opened("log:a"):
        coming = ChannelDiscovery(["*"])
        monkeypatch.setattr(discovery, "SETTLED_NS", 0)
        assert coming.new() == ["log:a"]
        assert coming.new() == coming.new() == []
        assert len(looked) == 1
        with opened("log:b"):
            assert coming.new() == ["log:b"]


@pytest.mark.parametrize("process", [False, True])
def test_a_recorder_takes_channels_that_appear_later(archive, process):
    with opened("log:robot/imu") as imu, opened("log:other") as other:
        imu.send(b"before")
        recorder = archive.record("robot/*", process=process)
        imu.send(b"imu")
        other.send(b"not asked for")
        with opened("log:robot/left/late") as late, opened("fake:log:robot/own") as own:
            late.send(b"its first")
            own.send(b"of this process alone")
            until(lambda: any(row.channel == "log:robot/left/late" for row in recorder.progress()))
            late.send(b"its second")
        with opened("ring:robot/gps") as gps:
            until(lambda: any(row.channel == "ring:robot/gps" for row in recorder.progress()))
            gps.send(b"gps")
        recorder.stop()
    told = {info.channel: [message.data for message in archive.replay(info.id)] for info in archive.list()}
    assert told == {
        "log:robot/imu": [b"imu"],
        "log:robot/left/late": [b"its first", b"its second"],
        "ring:robot/gps": [b"gps"],
    }


def test_a_channel_made_again_gets_another_recording(archive):
    with archive.record("*") as recorder:
        for number in range(3):
            with opened("log:again") as pub:
                pub.send(b"%d" % number)
                until(lambda made=number + 1: len(recorder.progress()) == made)
            penstock.remove("log:again")
    assert [[message.data for message in archive.replay(info.id)] for info in archive.list()] == [
        [b"0"],
        [b"1"],
        [b"2"],
    ]


def test_a_channel_without_a_publication_is_taken_too(archive):
    with (
        archive.record("*") as recorder,
        penstock.subscribe("log:open") as sub,
        opened("log:open", codec="json") as pub,
    ):
        pub.send({"n": 1})
        assert sub.recv(timeout=PATIENCE) == {"n": 1}
        until(lambda: [row.messages for row in recorder.progress()] == [1])
    assert [message.data for message in archive.replay("log:open")] == [{"n": 1}]


def test_fake_channels_are_recorded_by_a_pattern(archive):
    with archive.record("fake:*") as recorder, opened("fake:log:robot/imu") as pub:
        pub.send(b"x")
        until(lambda: recorder.recordings == {"fake:log:robot/imu": 1})
    assert [message.data for message in archive.replay("fake:log:robot/imu")] == [b"x"]
    with pytest.raises(penstock.Unsupported, match="within this process"):
        archive.record("fake:*", process=True)


def test_a_channel_that_cannot_be_recorded_ends_no_recording(archive, caplog):
    """Here every place of it is taken. The others are recorded, and the log says so."""
    with (
        penstock.publish("ring:full", capacity=1 << 16, max_members=1) as full,
        penstock.subscribe("ring:full"),
        archive.record("*") as recorder,
        opened("log:well") as pub,
    ):
        pub.send(b"x")
        until(lambda: recorder.recordings == {"log:well": 1})
        full.send(b"y")
    assert "ring:full is not recorded" in caplog.text
    assert [info.channel for info in archive.list()] == ["log:well"]


def test_names_with_parts_in_tables(archive, tmp_path):
    with opened("log:robot/imu", codec="json") as pub, archive.record("log:robot/imu"):
        pub.send({"n": 1})
    outcome = export(archive.path, tmp_path / "out", form="csv")
    assert [(one.stream, one.folder) for one in outcome.streams] == [("log:robot/imu", "log_robot__imu")]
    names = Names(["log:robot/imu"])
    assert names.find("log_robot__imu") == names.find("log:robot/imu") == "log:robot/imu"
