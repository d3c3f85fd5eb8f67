"""Logs that keep the last value of each key: `publish(..., last="name")` and `subscribe(..., start="last")`."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import pickle

import msgspec
import numpy as np
import pytest

import penstock
from penstock.channels import handles

CHANNEL = "log:params"


@dataclasses.dataclass
class Gain:
    name: str
    value: int


class Sparse(msgspec.Struct, omit_defaults=True):
    name: str = "gain"


class Measured(msgspec.Struct):
    name: float | None


class Renamed(msgspec.Struct, rename={"name": "Name"}):
    name: str


def values(messages):
    return {one["name"]: one["value"] for one in messages}


@pytest.fixture
def pub():
    with penstock.publish(CHANNEL, codec="json", last="name") as made:
        yield made


def late(**options):
    with penstock.subscribe(CHANNEL, start="last", **options) as sub:
        return sub.poll()


def test_a_late_reader_gets_each_key_once_then_the_stream(pub):
    for number, name in enumerate("abacb"):
        pub.send({"name": name, "value": number})
    with penstock.subscribe(CHANNEL, start="last") as sub:
        pub.send({"name": "a", "value": 5})
        assert sub.poll() == [
            {"name": "a", "value": 2},
            {"name": "c", "value": 3},
            {"name": "b", "value": 4},
            {"name": "a", "value": 5},
        ]


def test_values_outlive_what_the_log_forgets():
    with penstock.publish(CHANNEL, codec="json", last="name", term_length=1 << 16) as pub:
        pub.send({"name": "gain", "value": 3})
        for number in range(4000):
            pub.send({"name": "noise", "value": number, "filler": "x" * 60})
        with penstock.subscribe(CHANNEL, start="earliest") as sub:
            assert "gain" not in values(sub.poll())
    assert values(late()) == {"gain": 3, "noise": 3999}


def test_every_way_to_send_keeps_the_table(pub):
    async def send():
        await pub.send_async({"name": "async", "value": 1})

    pub.send({"name": "send", "value": 1})
    pub.offer({"name": "offer", "value": 1})
    assert pub.offer_many([{"name": "many", "value": 1}, {"name": "many", "value": 2}]) == 2
    asyncio.run(send())
    handles.send_encoded(pub, b'{"name":"encoded","value":1}', None)
    with pytest.raises(penstock.Unsupported, match="use send or offer"):
        pub.claim(10)
    assert values(late()) == {"send": 1, "offer": 1, "many": 2, "async": 1, "encoded": 1}


@pytest.mark.parametrize("way", ["recv", "iterate", "poll", "borrow", "arrow", "async"])
def test_every_way_to_read_begins_with_the_values(pub, way):
    pub.send({"name": "a", "value": 1})
    pub.send({"name": "a", "value": 2})
    with penstock.subscribe(CHANNEL, start="last") as sub:
        pub.send({"name": "b", "value": 3})
        if way == "recv":
            found = [sub.recv(1), sub.recv(1)]
        elif way == "iterate":
            iterator = iter(sub)
            found = [next(iterator), next(iterator)]
        elif way == "poll":
            found = sub.poll()
        elif way == "borrow":
            found = []
            for _ in range(2):
                with sub.borrow(1) as view:
                    found.append(msgspec.json.decode(bytes(view)))
        elif way == "arrow":
            found = [msgspec.json.decode(one) for one in sub.poll_arrow().column("payload").to_pylist()]
        else:

            async def receive():
                return [await sub.recv_async(1), await sub.recv_async(1)]

            found = asyncio.run(receive())
        assert [one["value"] for one in found] == [2, 3]
        assert sub.try_recv() is None


def test_a_kept_message_says_where_and_when_it_was_sent(pub):
    pub.send({"name": "a", "value": 1})
    with penstock.subscribe(CHANNEL, start="earliest") as steady, penstock.subscribe(CHANNEL, start="last") as sub:
        steady.recv(1)
        sub.recv(1)
        assert sub.last == steady.last


def test_wait_knows_that_a_value_is_there(pub):
    pub.send({"name": "a", "value": 1})
    with penstock.subscribe(CHANNEL, start="last") as sub:
        assert penstock.wait([sub], 0) == [sub]
        sub.recv(1)
        assert penstock.wait([sub], 0) == []


def test_a_value_is_there_after_its_writer_has_closed(pub):
    pub.send({"name": "a", "value": 1})
    pub.close()
    with penstock.subscribe(CHANNEL, start="last", until_end=True) as sub:
        assert [one["value"] for one in sub] == [1]


def test_a_reader_older_than_the_channel_gets_the_stream():
    with penstock.subscribe(CHANNEL, start="last") as sub, penstock.publish(CHANNEL, codec="json", last="name") as pub:
        pub.send({"name": "a", "value": 1})
        pub.send({"name": "a", "value": 2})
        assert [one["value"] for one in sub.poll()] == [1, 2]


def test_a_pickled_reader_begins_with_the_values_again(pub):
    pub.send({"name": "a", "value": 1})
    pub.send({"name": "b", "value": 2})
    with penstock.subscribe(CHANNEL, start="last") as sub:
        sub.recv(1)
        with pickle.loads(pickle.dumps(sub)) as copy:
            assert values(copy.poll()) == {"a": 1, "b": 2}
        sub.recv(1)
        with pickle.loads(pickle.dumps(sub)) as copy:
            assert copy.poll() == []


def test_later_publications_use_the_channels_field(pub):
    with penstock.publish(CHANNEL) as second, penstock.publish(CHANNEL, last="name") as third:
        second.send({"name": "a", "value": 1})
        third.send({"name": "b", "value": 2})
    with pickle.loads(pickle.dumps(pub)) as copy:
        copy.send({"name": "c", "value": 3})
    assert values(late()) == {"a": 1, "b": 2, "c": 3}


def test_another_field_is_a_mismatch_that_names_both(pub):
    with pytest.raises(penstock.Mismatch, match="last=name, not value"):
        penstock.publish(CHANNEL, last="value")
    with pytest.raises(penstock.Mismatch, match="last=name, not value"):
        penstock.subscribe(CHANNEL, last="value")
    with penstock.publish("log:plain", codec="json"), pytest.raises(penstock.Mismatch, match="last=None, not name"):
        penstock.publish("log:plain", last="name")


def test_a_message_without_the_key_is_refused_and_not_sent(pub):
    before = pub.position
    for message in ({"value": 1}, {"name": None}, {"name": [1]}, {"name": 1.5}, [1]):
        with pytest.raises(penstock.Invalid, match="log:params: this json message has no key 'name'"):
            pub.send(message)
    with pytest.raises(penstock.Invalid, match="no key"):
        pub.offer_many([{"name": "a", "value": 1}, {"value": 2}])
    assert pub.position == before
    assert late() == []


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"value": 1}, "it has no such field"),
        ({"name": None}, "'name' has no value; a key is a text, a whole number or a truth value"),
        ({"name": 1.5}, "'name' is a number with a fraction; a key is"),
        ({"name": [1]}, "'name' is a list; a key is"),
        ({"name": {"a": 1}}, "'name' has fields of its own; a key is"),
        ([1], "it has no fields"),
    ],
)
def test_a_missing_key_is_told_in_plain_words(form, message, said):
    with penstock.publish(CHANNEL, codec=form, last="name") as pub, pytest.raises(penstock.Invalid) as raised:
        pub.send(message)
    assert f"this {form} message has no key 'name', by which the channel keeps last values: {said}" in str(raised.value)


def test_a_key_beyond_64_bits_is_told(pub):
    for number in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(penstock.Invalid, match="'name' is a whole number of more than 64 bits"):
            pub.send({"name": number})
    pub.send({"name": (1 << 64) - 1})
    pub.send({"name": -(1 << 63)})
    assert [one["name"] for one in late()] == [(1 << 64) - 1, -(1 << 63)]


def test_text_number_and_truth_are_different_keys(pub):
    for name in ("1", 1, True, "1"):
        pub.send({"name": name, "value": 0})
    assert [one["name"] for one in late()] == [1, True, "1"]


def test_too_many_keys_and_too_long_messages_are_refused():
    with penstock.publish(CHANNEL, codec="json", last="name", last_keys=2, last_max=64) as pub:
        pub.send({"name": "a", "value": 1})
        pub.send({"name": "b", "value": 2})
        before = pub.position
        with pytest.raises(penstock.Invalid, match="create the channel with a larger last_keys"):
            pub.send({"name": "c", "value": 3})
        with pytest.raises(penstock.TooLarge, match="create it with a larger last_max"):
            pub.send({"name": "a", "value": "x" * 64})
        with pytest.raises(penstock.Invalid, match="keys of up to 128"):
            pub.send({"name": "a" * 127})
        assert pub.position == before
        pub.send({"name": "a", "value": 4})
        assert penstock.inspect(CHANNEL).details["last_values"] == 2
    assert values(late()) == {"a": 4, "b": 2}


def test_a_full_table_keeps_every_key_at_its_newest():
    with penstock.publish(CHANNEL, codec="json", last="name", last_keys=500) as pub:
        for number in range(1500):
            pub.send({"name": number % 500, "value": number})
    assert [one["value"] for one in late()] == list(range(1000, 1500))


@pytest.mark.parametrize(
    ("codec", "field", "text"),
    [
        ("bytes", "name", "messages of the codec bytes have no fields"),
        (penstock.array("float32", (3,)), "name", "messages of the codec array have no fields"),
        (Gain, "nome", "messages of Gain have no such field; they have name, value"),
        (Renamed, "name", "they have Name"),
        (Sparse, "name", "Sparse leaves this field out where it has its default"),
        (Measured, "name", "Measured has a field of another kind; a key is a whole number"),
        (np.dtype([("id", "i4"), ("x", "f8")]), "name", "they have id, x"),
        (np.dtype([("id", "i4"), ("x", "f8")]), "x", "a key is a whole number"),
        ("json", "", "last is ''"),
    ],
)
def test_a_codec_without_the_field_is_refused_at_opening(codec, field, text):
    with pytest.raises(penstock.Invalid, match=text):
        penstock.publish(CHANNEL, codec=codec, last=field)
    assert penstock.list_channels(CHANNEL) == []


def test_a_record_is_kept_by_a_field():
    kind = np.dtype([("id", "S4"), ("x", "f8")])
    with penstock.publish(CHANNEL, codec=kind, last="id") as pub:
        for name, x in ((b"a", 1), (b"b", 2), (b"a", 3)):
            pub.send(np.array([(name, x)], kind))
        with pytest.raises(penstock.Invalid, match="it has 2 records; send them one by one"):
            pub.send(np.array([(b"a", 1), (b"b", 2)], kind))
    assert [(bytes(one["id"]), float(one["x"])) for one in late()] == [(b"b", 2.0), (b"a", 3.0)]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_objects_are_kept_by_the_name_that_they_are_sent_with(form):
    with penstock.publish(CHANNEL, codec=penstock.objects(Renamed, form), last="Name") as pub:
        pub.send(Renamed("a"))
        pub.send(Renamed("b"))
        pub.send(Renamed("a"))
        with penstock.publish(CHANNEL) as other:
            other.send({"Name": "b"})
    assert late(codec=penstock.objects(Renamed, form)) == [Renamed("a"), Renamed("b")]


def test_protobuf_is_kept_by_a_field():
    pytest.importorskip("google.protobuf")
    from google.protobuf import type_pb2

    with penstock.publish(CHANNEL, codec=type_pb2.Option, last="name") as pub:
        pub.send(type_pb2.Option(name="a"))
        pub.send(type_pb2.Option(name="b"))
        pub.send(type_pb2.Option(name="a"))
    assert [one["name"] for one in late()] == ["b", "a"]
    with pytest.raises(penstock.Invalid, match="a key is a whole number"):
        penstock.publish("log:other", codec=type_pb2.Option, last="value")


@pytest.mark.parametrize("channel", ["ring:a", "sync:a", "udp://127.0.0.1:40123/1"])
def test_other_kinds_refuse_it(channel):
    with pytest.raises(penstock.Unsupported, match="only logs keep the last value"):
        penstock.subscribe(channel, start="last")
    with pytest.raises(TypeError, match="last"):
        penstock.publish(channel, codec="json", last="name")


def test_a_log_without_values_refuses_a_start_at_them():
    with penstock.publish("log:plain", codec="json"), pytest.raises(penstock.Unsupported, match="keeps no last values"):
        penstock.subscribe("log:plain", start="last")


@pytest.mark.parametrize(
    "options",
    [{"last_keys": 2}, {"last_max": 2}, {"last": 3}, {"last": "a", "last_keys": 0}, {"last": "a", "last_max": "4MiB"}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(penstock.Invalid, match="last"):
        penstock.publish(CHANNEL, codec="json", **options)


def test_the_status_says_the_field_and_how_many(pub):
    pub.send({"name": "a", "value": 1})
    status = penstock.inspect(CHANNEL)
    assert status.last == "name"
    assert (status.details["last_values"], status.details["last_keys"]) == (1, 1024)
    assert pub.statistics().last == "name"
    with penstock.publish("log:plain"):
        assert penstock.inspect("log:plain").last is None


def test_a_value_names_the_field():
    log = penstock.Log("params", dict, last="name", last_max="2KiB")
    with penstock.publish(log) as pub:
        pub.send({"name": "a", "value": "x" * 1500})
        with penstock.subscribe(log, start="last") as sub:
            assert len(sub.poll()) == 1


def write(number):
    with penstock.publish(CHANNEL) as pub:
        for count in range(300):
            pub.send({"name": f"{number}.{count % 7}", "value": count})


@pytest.mark.slow
def test_writers_and_late_readers_at_once(pub):
    """Every late reader has, of each key, an unbroken end of its numbers."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write, args=(number,)) for number in range(2)]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        newest = {}
        with penstock.subscribe(CHANNEL, start="last") as sub:
            for message in sub.poll():
                name = message["name"]
                assert message["value"] == newest.get(name, message["value"] - 7) + 7
                newest[name] = message["value"]
    for one in writers:
        one.join()
        assert one.exitcode == 0
    assert values(late()) == {
        f"{number}.{key}": 294 + key if key < 6 else 293 for number in range(2) for key in range(7)
    }
