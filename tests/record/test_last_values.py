"""Recordings of a log that keeps last values: they have the newest message of each key from before they begin, and show it on request."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import penstock
from penstock.export.mcap import export_mcap
from penstock.record.format import last_values

SMALL = {"codec": "json", "last": "name", "term_length": 1 << 16}
CHANNEL = "log:params"
FIRST = [{"name": "gain", "value": 3}, {"name": "mode", "value": "auto"}]


def forget(pub: penstock.types.Publication) -> None:
    """Sends until the log has forgotten what was sent before."""
    for number in range(3000):
        pub.send({"name": "noise", "value": number})


def begin(pub: penstock.types.Publication) -> None:
    for message in FIRST:
        pub.send(message)
    forget(pub)


def values_of(archive: penstock.Archive, **options: object) -> list[object]:
    return [message.data["value"] for message in archive.replay(CHANNEL, start="last", **options)]


@pytest.fixture
def archive(tmp_path: Path) -> penstock.Archive:
    return penstock.Archive(tmp_path / "archive")


def test_recording_begun_late_has_each_key(archive: penstock.Archive) -> None:
    """In front of the stream on request, with their positions and times; otherwise not."""
    whole = penstock.Archive(archive.path.with_name("whole"))
    with penstock.publish(CHANNEL, **SMALL) as pub, whole.record(CHANNEL):
        begin(pub)
        with archive.record(CHANNEL):
            pub.send({"name": "gain", "value": 4})
    assert values_of(archive) == [3, "auto", 2999, 4]
    assert [message.data["value"] for message in archive.replay(CHANNEL)] == [4]
    table = archive.read(CHANNEL, start="last", decode=True)
    assert table.column("value").to_pylist()[-1] == 4
    assert table.column("name").to_pylist() == ["gain", "mode", "noise", "gain"]
    there = whole.read(CHANNEL, columns=["position", "timestamp_ns", "session", "payload"]).to_pylist()
    assert [one for one in archive.read(CHANNEL, start="last").to_pylist() if one in there] == archive.read(
        CHANNEL, start="last"
    ).to_pylist()
    assert archive.verify() == []


def test_window_begins_with_the_newest_of_each_key(archive: penstock.Archive) -> None:
    """Of those that the recording began without, and of its own messages from before the window."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        with archive.record(CHANNEL):
            for value in (5, 6, 7):
                pub.send({"name": "gain", "value": value})
            times = None
    times = [message.time_ns for message in archive.replay(CHANNEL)]
    assert values_of(archive, since=times[2]) == ["auto", 2999, 6, 7]
    assert values_of(archive, since=times[2], until=times[2]) == ["auto", 2999, 6, 7]
    assert values_of(archive, until=times[0]) == [3, "auto", 2999, 5]


def test_snapshot_of_a_quiet_channel_has_its_values(archive: penstock.Archive) -> None:
    """No message was sent in the time, and all of the state is there."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
    done = archive.snapshot("*", before=1e-6)
    (part,) = done.parts
    assert (part.messages, part.last_values) == (0, 3)
    assert values_of(archive) == [3, "auto", 2999]
    assert archive.find(CHANNEL).messages == 0


def test_snapshot_has_what_a_late_reader_gets(archive: penstock.Archive) -> None:
    """The messages in time, and before them those of the other keys."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        pub.send({"name": "mode", "value": "off"})
        archive.snapshot(CHANNEL, before=3600)
        with penstock.subscribe(CHANNEL, start="last") as sub:
            late = {message["name"]: message["value"] for message in sub.poll()}
    newest = {message.data["name"]: message.data["value"] for message in archive.replay(CHANNEL, start="last")}
    assert newest == late == {"gain": 3, "mode": "off", "noise": 2999}


def test_next_recording_of_a_recorder_has_its_own(archive: penstock.Archive) -> None:
    """A recorder with a limit begins others, and deletes the first ones."""
    with penstock.publish(CHANNEL, **SMALL) as pub, archive.record(CHANNEL, max_bytes=1 << 20):
        pub.send(FIRST[0])
        while archive.list()[-1].id < 3:
            pub.send({"name": "noise", "value": "x" * 900}, timeout=60)
    kept = last_values.read(archive.list()[-1].path)
    assert kept is not None
    found = [b'"gain"' in one.payload for one in kept.values]
    assert found in ([True], [True, False])  # the newest of the other key is mostly behind its begin


def test_recording_of_another_channel_has_none(archive: penstock.Archive) -> None:
    """To ask for its last values is an error that says so."""
    with penstock.publish("log:plain", codec="json") as pub, archive.record("log:plain"):
        pub.send({"name": 1})
    with pytest.raises(penstock.Unsupported, match="has no last values"):
        next(archive.replay("log:plain", start="last"))
    with pytest.raises(penstock.Unsupported, match="has no last values"):
        archive.read("log:plain", start="last")
    with pytest.raises(penstock.Invalid, match="start is 'first'"):
        archive.read("log:plain", start="first")


def test_copies_have_them(archive: penstock.Archive, tmp_path: Path) -> None:
    """A replica has the same file, and a server shows it."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        archive.snapshot(CHANNEL, before=1e-6)
    assert not [one.error for one in archive.replicate(tmp_path / "copy") if one.error]
    assert values_of(penstock.Archive(tmp_path / "copy")) == [3, "auto", 2999]
    with archive.serve("127.0.0.1:0") as server:
        assert values_of(penstock.Archive(server.uri)) == [3, "auto", 2999]


def test_damage_to_them_is_found_and_set_aside(archive: penstock.Archive) -> None:
    """`verify` names each flipped bit, readers refuse the file, and `repair` keeps the rest of the recording."""
    with penstock.publish(CHANNEL, **SMALL) as pub, archive.record(CHANNEL):
        pub.send(FIRST[0])
        with penstock.Archive(archive.path).record(CHANNEL):
            pub.send(FIRST[1])
    path = archive.list()[-1].path / last_values.NAME
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        assert [damage.path for damage in archive.verify()] == [path]
    with pytest.raises(penstock.Corrupt, match="Run repair"):
        values_of(archive)
    assert archive.repair()
    assert archive.verify() == []
    assert [message.data["value"] for message in archive.replay(CHANNEL)] == ["auto"]


# ---- MCAP ----


def logged(path: Path) -> list[tuple[str, object, int, int]]:
    """Topic, value, log time and publish time of each message of a file, in the order of the file's log times."""
    reader = pytest.importorskip("mcap.reader", reason="needs penstock[mcap]")
    import json

    found = reader.make_reader(io.BytesIO(path.read_bytes())).iter_messages()
    return [
        (channel.topic, json.loads(message.data)["value"], message.log_time, message.publish_time)
        for _, channel, message in found
    ]


def test_play_publishes_them_first(archive: penstock.Archive) -> None:
    """A reader gets the state and then the stream; a late one gets the state from a log that keeps it."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        with archive.record(CHANNEL):
            for value in (5, 6, 7):
                pub.send({"name": "gain", "value": value})
    times = [message.time_ns for message in archive.replay(CHANNEL)]
    for span, values in (({}, [3, "auto", 2999, 5, 6, 7]), ({"since": times[2]}, ["auto", 2999, 6, 7])):
        penstock.remove(CHANNEL)
        with penstock.publish(CHANNEL, **SMALL), penstock.subscribe(CHANNEL) as sub:
            assert archive.play(speed=1e9, **span).messages == {CHANNEL: len(values)}
            assert [message["value"] for message in sub.poll(100)] == values
            with penstock.subscribe(CHANNEL, start="last") as late:
                assert [message["value"] for message in late.poll(100)] == ["auto", 2999, 7]


def test_play_of_a_quiet_snapshot_has_them_once(archive: penstock.Archive) -> None:
    """They have no stream behind them, so a loop ends."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        archive.snapshot(CHANNEL, before=1e-9)
    penstock.remove(CHANNEL)
    with penstock.subscribe(CHANNEL) as sub:
        assert archive.play(loop=True).messages == {CHANNEL: 3}
        assert [message["value"] for message in sub.poll(100)] == [3, "auto", 2999]


def test_mcap_begins_with_them(archive: penstock.Archive, tmp_path: Path) -> None:
    """They are logged at the file's first moment, and keep their own times as the publish time."""
    with penstock.publish(CHANNEL, **SMALL) as pub, penstock.publish("log:imu", codec="json") as imu:
        begin(pub)
        with archive.record(["log:imu", CHANNEL]):
            imu.send({"value": 0})
            pub.send({"name": "gain", "value": 4})
    export_mcap(archive.path, tmp_path / "it.mcap")
    found = logged(tmp_path / "it.mcap")
    first = archive.find("log:imu").time_min
    assert [value for topic, value, *_ in found if topic == CHANNEL] == [3, "auto", 2999, 4]
    assert [log for _, value, log, _ in found if value in (3, "auto", 2999)] == [first] * 3
    assert all(publish < first for _, value, _, publish in found if value in (3, "auto", 2999))
    assert [(log == publish) for _, value, log, publish in found if value in (0, 4)] == [True, True]


def test_mcap_of_a_window_begins_with_them(archive: penstock.Archive, tmp_path: Path) -> None:
    """Also with messages that the recording has from before the window."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        with archive.record(CHANNEL):
            for value in (5, 6, 7):
                pub.send({"name": "gain", "value": value})
    since = [message.time_ns for message in archive.replay(CHANNEL)][2]
    export_mcap(archive.path, tmp_path / "it.mcap", since=since)
    found = logged(tmp_path / "it.mcap")
    assert [value for _, value, *_ in found] == ["auto", 2999, 6, 7]
    assert {log for _, _, log, _ in found} == {since}


def test_mcap_of_a_quiet_snapshot_has_them(archive: penstock.Archive, tmp_path: Path) -> None:
    """A recording without a message has a topic."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
    archive.snapshot(CHANNEL, before=1e-6)
    export_mcap(archive.path, tmp_path / "it.mcap")
    assert [value for _, value, *_ in logged(tmp_path / "it.mcap")] == [3, "auto", 2999]


def test_mcap_of_overlapping_recordings_has_each_message_once(archive: penstock.Archive, tmp_path: Path) -> None:
    """What one recording has is no last value of another; what none has comes at its own time."""
    with penstock.publish(CHANNEL, **SMALL) as pub:
        begin(pub)
        with archive.record(CHANNEL):
            pub.send({"name": "gain", "value": 4})
            with penstock.Archive(archive.path).record(CHANNEL):
                pub.send({"name": "gain", "value": 5})
        pub.send({"name": "mode", "value": "between"})
        with archive.record(CHANNEL):
            pub.send({"name": "gain", "value": 6})
    export_mcap(archive.path, tmp_path / "it.mcap")
    assert [value for _, value, *_ in logged(tmp_path / "it.mcap")] == [3, "auto", 2999, 4, 5, "between", 6]
