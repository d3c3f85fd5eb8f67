"""`penstock view` of a log that keeps last values: each viewer gets the newest message of each key when it subscribes."""

import json

import pytest
from viewer import Client, Serving

import penstock

pytest.importorskip("foxglove", reason="the view needs penstock[foxglove]")
CHANNEL = "log:params"


def shown(client, count):
    return [json.loads(client.next()[2]) for _ in range(count)]


@pytest.fixture
def pub():
    with penstock.publish(CHANNEL, codec="json", last="name", term_length=1 << 16) as made:
        made.send({"name": "gain", "value": 3})
        for number in range(3000):  # the log forgets the first one
            made.send({"name": "noise", "value": number})
        yield made


def test_a_late_viewer_gets_each_key_then_the_stream(pub):
    with Serving() as s:
        s.client.subscribe(CHANNEL)
        assert shown(s.client, 2) == [{"name": "gain", "value": 3}, {"name": "noise", "value": 2999}]
        pub.send({"name": "gain", "value": 4})
        assert shown(s.client, 1) == [{"name": "gain", "value": 4}]
        second = Client(s.viewed.port)
        second.subscribe(CHANNEL)
        assert shown(second, 2) == [{"name": "noise", "value": 2999}, {"name": "gain", "value": 4}]
        second.left.close()


def test_more_values_than_a_turn_shows_are_all_given(pub):
    for number in range(500):
        pub.send({"name": number, "value": number})
    with Serving() as s:
        s.client.subscribe(CHANNEL)
        assert [one["name"] for one in shown(s.client, 502)] == ["gain", "noise", *range(500)]


def test_a_channel_that_is_decided_later_is_latched_too():
    with penstock.subscribe("log:late"), Serving() as s, penstock.publish("log:late", codec="json", last="name") as pub:
        pub.send({"name": "a", "value": 1})
        pub.send({"name": "b", "value": 2})
        s.client.subscribe("log:late")
        assert {one["name"] for one in shown(s.client, 2)} == {"a", "b"}
