"""`penstock view`: every channel is a topic at once, a viewer gets the newest message of it, every codec is shown, and no topic starves another."""

import base64
import json
import logging
import socket
import threading
import time

import numpy as np
import pytest
from viewer import Client, Serving

import penstock
from penstock import cli
from penstock.export import live, viewers

pytest.importorskip("foxglove", reason="the view needs penstock[foxglove]")

BIG = np.dtype([("t", ">f8"), ("v", ">i2", (2,))])
RECORD = np.dtype([("a", "<f8")])
CODECS = {  # a channel's options, a message of it, and the viewer's JSON
    "bytes": ({}, b"abc", {"size": 3, "data": base64.b64encode(b"abc").decode()}),
    "json": ({"codec": "json"}, {"a": [1, None]}, {"a": [1, None]}),
    "msgpack": ({"codec": "msgpack"}, {"a": b"x", "b": float("nan")}, {"a": "eA==", "b": None}),
    "no-object": ({"codec": "msgpack"}, [1, 2], {"value": [1, 2]}),
    "array": (
        {"codec": penstock.array("f4", (3,))},
        np.arange(3, dtype="f4"),
        {"dtype": "<f4", "shape": [3], "values": [0, 1, 2]},
    ),
    "complex": (
        {"codec": penstock.array("c8", (1,))},
        np.array([1 + 2j], "c8"),
        {"dtype": "<c8", "shape": [1], "values": [[1, 2]]},
    ),
    "big-endian": ({"codec": BIG}, np.array((1.5, (3, -4)), BIG)[()], {"t": 1.5, "v": [3, -4]}),
}


@pytest.mark.parametrize("kind", ["log", "ring", "sync"])
@pytest.mark.parametrize("name", CODECS)
def test_a_viewer_gets_the_newest_message_of_every_codec(kind, name):
    options, message, shown = CODECS[name]
    with penstock.publish(f"{kind}:a", **options) as pub:
        pub.send(message)
        with Serving() as s:
            topic = s.client.topic(f"{kind}:a")
            assert (topic["encoding"], topic["schemaEncoding"]) == ("json", "jsonschema")
            s.client.subscribe(f"{kind}:a")
            assert json.loads(s.client.next()[2]) == shown
            pub.send(message)
            assert json.loads(s.client.next()[2]) == shown


def test_a_long_array_is_shown_as_its_bytes():
    pixels = np.arange(20_000, dtype="u2")
    with penstock.publish("log:a", codec=penstock.array("u2", (-1,))) as pub, Serving() as s:
        pub.send(pixels)
        s.client.subscribe("log:a")
        shown = json.loads(s.client.next()[2])
        assert base64.b64decode(shown["data"]) == pixels.tobytes()
        assert (shown["dtype"], shown["shape"], shown["size"]) == ("<u2", [20_000], 40_000)


def test_frames_that_are_no_pictures_are_shown_as_arrays():
    with penstock.publish("frames:a", shape=(2, 2), dtype="i4") as pub:
        pub.send(np.array([[1, 2], [3, 4]], "i4"))
        with Serving() as s:
            s.client.subscribe("frames:a")
            assert json.loads(s.client.next()[2])["values"] == [[1, 2], [3, 4]]


def test_a_message_that_does_not_decode_is_shown_as_one():
    with penstock.publish("log:a", codec="bytes") as pub, Serving() as s:
        shown = next(iter(s.viewed._topics.values()))
        from penstock.export.shown import display_of

        convert = display_of("log:a", {"kind": "msgpack"}).convert
        assert "is not msgpack" in json.loads(convert(b"\xc1"))["error"]
        assert shown.channel == "log:a"
        assert pub.offer(b"") is not None


def test_channels_without_a_message_and_later_ones_are_topics():
    with penstock.publish("log:idle"), penstock.publish("frames:cam", shape=(4, 4)), Serving() as s:
        s.client.topic("log:idle")
        assert s.client.topic("frames:cam")["schemaName"] == "foxglove.CompressedImage"
        with (
            penstock.subscribe("log:open"),  # no codec yet
            penstock.publish("ring:idle", codec="json"),
        ):
            s.client.topic("ring:idle")
            assert "log:open" not in s.client.topics
            with penstock.publish("log:open", codec="json") as pub:
                pub.send({"first": 1})
                s.client.subscribe("log:open")
                assert json.loads(s.client.next()[2]) == {"first": 1}


def test_each_viewer_that_comes_gets_the_newest_message():
    with (
        penstock.publish("log:map", codec="json") as pub,
        penstock.publish("frames:cam", shape=(4, 4), dtype="u2") as cam,
    ):
        pub.send({"n": 0})
        pub.send({"n": 1})
        cam.send(np.full((4, 4), 7, "u2"))
        with Serving() as s:
            for _ in range(3):
                client = Client(s.viewed.port)
                client.subscribe("log:map")
                assert json.loads(client.next()[2]) == {"n": 1}
                client.subscribe("frames:cam")
                assert np.full((4, 4), 7, "u2").tobytes() in client.next()[2]
                client.left.close()
            s.client.subscribe("log:map")
            assert json.loads(s.client.next()[2]) == {"n": 1}
            for n in range(2, 50):
                pub.send({"n": n})
            assert [json.loads(s.client.next()[2])["n"] for _ in range(2, 50)] == list(range(2, 50))
            assert not s.viewed.left_out


def test_topics_are_there_before_the_server_takes_viewers(monkeypatch):
    """The SDK advertises a topic to the viewers that there are before it takes their subscriptions to it."""
    with penstock.publish("log:a"), penstock.publish("frames:b", shape=(2, 2)):
        found = []
        start = live.Viewed._start_server
        monkeypatch.setattr(
            live.Viewed, "_start_server", lambda viewed, port: found.extend(viewed.channels) or start(viewed, port)
        )
        with Serving():
            assert sorted(found) == ["frames:b", "log:a"]


def test_a_refused_subscription_is_asked_for_again(caplog):
    """A viewer that subscribes before the SDK knows the topic is refused, and asks again only for a topic with a new number."""
    refused = logging.getLogger(viewers.CLIENTS)
    with penstock.publish("log:a", codec="json") as pub, Serving() as s:
        pub.send({"n": 0})
        number = s.client.topic("log:a")["id"]
        s.client.name, s.client.number = "log:a", number  # a viewer that wants it, and was refused
        refused.error("Client 127.0.0.1:1 attempted to subscribe to unknown channel: %d", number)
        assert json.loads(s.client.next()[2]) == {"n": 0}
        assert s.client.number != number
        refused.error("Client 127.0.0.1:1 attempted to subscribe to unknown channel: %d", 1 << 40)
    assert not caplog.messages
    refused.error("Client 127.0.0.1:1 attempted to subscribe to unknown channel: %d", number)
    assert len(caplog.messages) == 1  # no view is there to answer it


def test_a_viewer_gets_the_newest_frame_once():
    with penstock.publish("frames:cam", shape=(2, 2), dtype="i4") as cam:
        cam.send(np.full((2, 2), 1, "i4"))
        viewed = live.Viewed(["frames:cam"])
        with viewed:
            client = Client(viewed.port)
            client.subscribe("frames:cam")
            while not viewed._viewers.changes:  # the SDK has taken the subscription, and the view has not looked
                time.sleep(0.001)
            thread = threading.Thread(target=lambda: [viewed.step(0.05) for _ in range(3)])
            thread.start()
            thread.join()
            cam.send(np.full((2, 2), 2, "i4"))
            thread = threading.Thread(target=lambda: [viewed.step(0.05) for _ in range(3)])
            thread.start()
            thread.join()
            assert [json.loads(client.next()[2])["values"][0][0] for _ in range(2)] == [1, 2]
            client.left.close()


def test_a_channel_that_is_made_again_is_one_topic():
    with Serving() as s:
        for n in range(3):
            with penstock.publish("log:a", codec="json") as pub:
                pub.send({"n": n})
                client = Client(s.viewed.port)
                client.subscribe("log:a")
                while json.loads(client.next()[2]) != {"n": n}:
                    pass  # the one before, until the view has looked
                client.left.close()
            penstock.remove("log:a")
        assert s.viewed.channels == ["log:a"]


@pytest.mark.slow
def test_a_flooding_topic_starves_no_other():
    ended = threading.Event()

    def flood(pub):
        while not ended.is_set():
            pub.offer_many([b"x" * 100] * 100)

    def missing(channel):
        """Messages that the view left out, and, where the flood laps the view's subscription, bytes that it lost."""
        return s.viewed.left_out.get(channel, 0) + s.viewed.lost.get(channel, 0)

    with penstock.publish("log:flood") as flooding, penstock.publish("log:slow", codec="json") as slow, Serving() as s:
        flooded = s.client.subscribe("log:flood")
        number = s.client.subscribe("log:slow")
        thread = threading.Thread(target=flood, args=(flooding,), daemon=True)
        thread.start()
        try:
            for n in range(30):
                slow.send({"n": n})
                while True:
                    one, _, body = s.client.next()
                    if one == number:
                        break
                    assert one == flooded
                assert json.loads(body) == {"n": n}
            deadline = time.monotonic() + 60
            while not missing("log:flood") and time.monotonic() < deadline:
                s.client.next()
            assert missing("log:flood") > 0
            assert "log:slow" not in s.viewed.left_out
        finally:
            ended.set()
            thread.join()


def test_viewers_that_do_not_read_or_send_garbage_harm_nobody():
    with penstock.publish("log:a", codec="json") as pub, Serving() as s:
        pub.send({"n": 1})
        deaf = Client(s.viewed.port)
        deaf.subscribe("log:a")
        for said in (b"\xff" * 300, b"GET / HTTP/1.1\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", s.viewed.port)) as raw:
                raw.sendall(said)
        hostile = Client(s.viewed.port)
        for text in (
            "{",
            "[]",
            json.dumps({"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 1 << 40}]}),
            json.dumps({"op": "subscribe", "subscriptions": "x"}),
            b"\x00" * 100,
        ):
            hostile.socket.send(text)
        s.client.subscribe("log:a")
        for n in range(3000):
            pub.send({"n": n, "text": "x" * 1000}, timeout=60)
        while json.loads(s.client.next()[2])["n"] != 2999:
            pass
        hostile.socket.close_socket() if hasattr(hostile.socket, "close_socket") else hostile.left.close()
        deaf.left.close()


def test_many_channels_and_names_are_topics_at_once():
    names = [f"log:robot/a.b-c_{n}" for n in range(100)] + [f"ring:robot/a.b-c_{n}" for n in range(100)]
    pubs = [penstock.publish(name, codec="json", capacity=1 << 16, max_members=4) for name in names]
    for n, pub in enumerate(pubs):
        pub.send({"n": n})
    try:
        with Serving() as s:
            for n in (0, 7, 107, 199):
                s.client.subscribe(names[n])
                assert json.loads(s.client.next()[2]) == {"n": n}
            assert set(s.client.topics) == set(names)
    finally:
        for pub in pubs:
            pub.close()


def test_sub_begins_with_the_newest_messages(capfd):
    with penstock.publish("log:a", codec="json") as pub, penstock.publish("pipe:b"):
        for n in range(5):
            pub.send({"n": n})
        assert cli.run(["sub", "log:a", "--last", "2", "-n", "2"]) == 0
        assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == [{"n": 3}, {"n": 4}]
        assert cli.run(["sub", "pipe:b", "--last", "1", "-n", "1"]) == 1
        assert "keep no messages" in capfd.readouterr().err
