"""Channels that are removed and made again under a recorder of patterns: the recorder may meet any moment of it."""

from __future__ import annotations

import pytest

import penstock
from penstock.channels.storage.discovery import ChannelDiscovery


class Told:
    """Says that channels came when a test says so."""

    def __init__(self) -> None:
        self.news: list[str] = []

    def new(self) -> list[str]:
        told, self.news = self.news, []
        return told


def _recorded(archive, told: Told, monkeypatch) -> penstock.Recorder:
    monkeypatch.setattr(ChannelDiscovery, "new", lambda _: told.new())
    return archive.record("log:*")


def _until(archive, recorder, count: int) -> None:
    while len(recorder.recordings) < count and recorder.error is None:
        recorder.join(0.01)


def test_a_channel_that_was_seen_twice_is_recorded_once(archive, monkeypatch):
    """It was made again after the first look, and the recorder joined the new one; the second look sees that it is new."""
    told = Told()
    with penstock.publish("log:a") as pub:
        told.news = ["log:a"]
        with _recorded(archive, told, monkeypatch) as recorder:
            _until(archive, recorder, 1)
            told.news = ["log:a"]
            pub.send(b"1")
            while told.news:
                recorder.join(0.01)
            pub.send(b"2")
        assert pub.readers == 0
    assert [one.messages for one in archive.list()] == [2]
    assert archive.verify() == []


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_a_channel_removed_after_joining_is_recorded(archive, monkeypatch, kind, again):
    """The recording is made of the channel that was joined, though it has no name any more, or another has it."""
    uri, others = f"{kind}:a", []
    plain = archive._connector.subscribe

    def subscribe(channel: str, **options: object) -> object:
        made = plain(channel, **options)
        penstock.remove(channel)
        if again:
            others.append(penstock.publish(channel, codec="msgpack"))
        return made

    monkeypatch.setattr(archive._connector, "subscribe", subscribe)
    with penstock.publish(uri, codec="json") as pub, archive.record("*") as recorder:
        _until(archive, recorder, 1)
        monkeypatch.setattr(archive._connector, "subscribe", plain)
        pub.send({"x": 1})
    for other in others:
        other.close()
    (found,) = [one for one in archive.list() if one.messages]
    assert (found.channel, found.codec.get("of", found.codec)["kind"]) == (uri, "json")
    assert [getattr(message, "data", message) for message in archive.replay(found.id)]
    assert archive.verify() == []
