"""Bridges within one process: messages arrive as they were sent, in order, and losses are counted."""

import contextlib
import time
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from ports import free_port

import penstock
from penstock._native.core import describe_frame

SECONDS = 60.0


@dataclass
class Pose:
    x: float
    y: float


def step(*bridges, until, seconds=SECONDS):
    """Steps bridges until a function returns something true, which is returned."""
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, [row for one in bridges for row in one.progress()]
        for one in bridges:
            one.step(0.001)
    return found


def taken(subscription, count, *bridges):
    """The next `count` messages."""
    found = []

    def take():
        while len(found) < count and (message := subscription.try_recv()) is not None:
            found.append(message)
        return len(found) == count

    step(*bridges, until=take)
    return found


def address():
    return f"udp://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def crossing(source, target, **options):
    """A bridge to an address, and one from there."""
    at = f"{address()}/1"
    with penstock.Bridge(at, target) as here, penstock.Bridge(source, at, **options) as there:
        yield there, here


@pytest.mark.parametrize("source", ["log:a", "ring:a", "sync:a", "pipe:a"])
@pytest.mark.parametrize("target", ["log:b", "ring:b", "sync:b", "pipe:b"])
def test_messages_arrive_in_order_with_their_codec(source, target):
    with penstock.subscribe(target) as sub, penstock.Bridge(source, target) as bridge:
        with penstock.publish(source, codec="msgpack") as pub:
            for number in range(50):
                pub.send({"number": number})
            step(bridge, until=lambda: sub.codec)
            got = taken(sub, 50, bridge)
        assert [getattr(one, "body", one) for one in got] == [{"number": number} for number in range(50)]
        assert sub.codec.kind == "msgpack"
        row = bridge.progress()[0]
        assert (row.messages, row.lost, row.refused, row.waiting) == (50, 0, 0, 0)


@pytest.mark.parametrize("codec", ["json", Pose, np.dtype([("x", "<f8"), ("n", "<i4")]), penstock.array("f4", (2, -1))])
def test_codecs_cross_the_network(codec):
    message = {"json": [1, "ä"], Pose: Pose(1.5, 2)}.get(codec) if isinstance(codec, str | type) else None
    if isinstance(codec, np.dtype):
        message = np.array([(1.5, 7)], codec)[0]
    elif message is None:
        message = np.arange(6, dtype="f4").reshape(2, 3)
    with (
        penstock.subscribe("log:b") as sub,
        crossing("log:a", "log:b") as bridges,
        penstock.publish("log:a", codec=codec) as pub,
    ):
        pub.send(message)
        step(*bridges, until=lambda: sub.codec)
        (got,) = taken(sub, 1, *bridges)
        assert sub.codec.spec == pub.codec.spec
    assert np.array_equal(got, message) if hasattr(message, "dtype") else got in (message, {"x": 1.5, "y": 2})


def test_frames_cross_the_network_whole():
    with crossing("frames:a", "frames:b") as bridges, penstock.publish("frames:a", shape=(3, 4), dtype="u2") as pub:
        step(*bridges, until=lambda: pub.readers)
        pub.send(np.full((3, 4), 7, "u2"), id=5, start_ns=1, end_ns=2, meta={"gain": 1.5})
        step(*bridges, until=lambda: bridges[1].progress()[0].messages)
        with penstock.subscribe("frames:b", last=1) as sub, sub.recv(SECONDS) as frame:
            assert frame.array.tolist() == [[7] * 4] * 3
            assert (frame.id, frame.start_ns, frame.end_ns, frame.meta) == (5, 1, 2, {"gain": 1.5})


def test_frames_that_vary_cross_as_they_are():
    header = [("n", "<u2")]
    options = {"shape": (3, 4), "dtype": ("u1", "<u2"), "varies": True, "header": header}
    with crossing("frames:a", "frames:b") as bridges, penstock.publish("frames:a", **options) as pub:
        step(*bridges, until=lambda: pub.readers)
        pub.send(np.full((2, 1), 7, "<u2"), header=(5,), meta={"gain": 1.5})
        step(*bridges, until=lambda: bridges[1].progress()[0].messages)
        with penstock.subscribe("frames:b", last=1, **options) as sub, sub.recv(SECONDS) as frame:
            assert (frame.shape, frame.dtype, frame.array.tolist()) == ((2, 1), np.dtype("<u2"), [[7], [7]])
            assert (frame.header["n"], frame.meta) == (5, {"gain": 1.5})


def test_frames_keep_their_headers_on_another_channel():
    """Between two channels of one machine, where no message is encoded."""
    options = {"shape": (3, 4), "varies": True, "header": [("n", "<u2")]}
    with penstock.Bridge("frames:a", "frames:b") as bridge, penstock.publish("frames:a", **options) as pub:
        step(bridge, until=lambda: pub.readers)
        pub.send(np.full((2, 1), 7, "u1"), header=(5,), meta={"gain": 1.5}, id=9, start_ns=1, end_ns=2)
        step(bridge, until=lambda: bridge.progress()[0].messages)
        with penstock.subscribe("frames:b", last=1, **options) as sub, sub.recv(SECONDS) as frame:
            assert (frame.shape, frame.header["n"], frame.meta) == ((2, 1), 5, {"gain": 1.5})
            assert (frame.id, frame.start_ns, frame.end_ns) == (9, 1, 2)


def test_frames_are_messages_on_a_log():
    with penstock.Bridge("frames:a", "log:b") as bridge, penstock.publish("frames:a", shape=(2,), dtype="u1") as pub:
        step(bridge, until=lambda: pub.readers)
        with penstock.subscribe("log:b") as sub:
            pub.send(np.array([1, 2], "u1"), meta={"n": 1})
            step(bridge, until=lambda: sub.codec)
            (got,) = taken(sub, 1, bridge)
    assert got["pixels"].tolist() == [1, 2]
    assert got["meta"] == {"n": 1}


@pytest.mark.parametrize("fields", [b"not json", b"[1, 2]"])
@pytest.mark.parametrize("target", ["log:b", "frames:b"])
def test_a_frame_with_damaged_fields_costs_itself_alone(fields, target):
    with penstock.Bridge("frames:a", target) as bridge, penstock.publish("frames:a", shape=(2,), dtype="u1") as pub:
        step(bridge, until=lambda: pub.readers)
        with pub.acquire() as frame:
            describe_frame(frame, None, 0, 0, fields)
        pub.send(np.array([1, 2], "u1"), meta={"n": 1})
        step(bridge, until=lambda: bridge.progress()[0].messages)
        assert (bridge.progress()[0].messages, bridge.progress()[0].refused) == (1, 1)


def test_large_frames_and_messages_cross():
    frame, body = np.arange(3_000_000, dtype="u4"), bytes(range(256)) * 20_000
    with (
        crossing("frames:a", "frames:b") as bridges,
        penstock.publish("frames:a", shape=frame.shape, dtype="u4") as pub,
    ):
        step(*bridges, until=lambda: pub.readers)
        pub.send(frame)
        step(*bridges, until=lambda: bridges[1].progress()[0].messages)
        with penstock.subscribe("frames:b", last=1) as sub, sub.recv(SECONDS) as got:
            assert np.array_equal(got.array, frame)
    with crossing("log:a", "log:b") as bridges, penstock.publish("log:a") as pub, penstock.subscribe("log:b") as sub:
        pub.send(body)
        step(*bridges, until=lambda: sub.codec)
        assert taken(sub, 1, *bridges) == [body]


def test_zeromq_carries_bytes_and_the_codec_is_named():
    pytest.importorskip("zmq")
    at = f"zmq+tcp://127.0.0.1:{free_port()}"
    with (
        penstock.Bridge("log:a", at) as there,
        penstock.Bridge(at, "log:b", codec="json") as here,
        penstock.publish("log:a", codec="json") as pub,
        penstock.subscribe("log:b") as sub,
    ):

        def send_until_heard():
            pub.send({"n": 1})
            return sub.codec

        step(there, here, until=send_until_heard)
        assert taken(sub, 1, there, here) == [{"n": 1}]


def test_bridge_checks_its_arguments():
    with penstock.publish("log:a"), penstock.Bridge("log:a", "log:b") as bridge:
        for timeout in (-1, float("nan"), "1", True):
            with pytest.raises(penstock.Invalid, match=r"timeout is .*: it must be None or seconds from 0"):
                bridge.step(timeout)
        with pytest.raises(penstock.Invalid, match="until is 5: it must be a function"):
            bridge.run(5)
        assert bridge.step(0) == 0


def test_zeromq_that_nobody_hears_is_waited_for():
    """ZeroMQ drops such messages, and counts none. A subscription finds the bridge before the first one."""
    pytest.importorskip("zmq")
    at = f"zmq+tcp://127.0.0.1:{free_port()}"
    with penstock.publish("log:a", codec="json") as pub, penstock.Bridge("log:a", at) as bridge:
        for number in range(2500):
            pub.send(number)
        bridge.step()
        assert (bridge.progress()[0].messages, pub.lag > 0) == (0, True)
        with penstock.subscribe(at, codec="json") as sub:
            assert taken(sub, 2500, bridge) == list(range(2500))
        assert (bridge.progress()[0].messages, bridge.progress()[0].refused) == (2500, 0)


@pytest.mark.parametrize("way", ["here", "afar"])
def test_two_channels_never_become_one(way, caplog):
    at = address()
    with (
        penstock.publish("log:c/x", codec="json") as log,
        penstock.publish("ring:c/x", codec="json") as ring,
        penstock.Bridge("c/*", at if way == "afar" else "log:far/{name}") as there,
        penstock.Bridge(at, "log:far/{name}") if way == "afar" else contextlib.nullcontext(there) as here,
    ):
        log.send("log")
        ring.send("ring")
        step(there, here, until=lambda: "is not bridged: log:far/c/x has the messages of" in caplog.text)
        step(there, here, until=lambda: here.progress()[0].messages)
        with penstock.subscribe("log:far/c/x", start="earliest") as sub:
            got = taken(sub, 1, there, here)
            for _ in range(20):
                there.step(0)
                here.step(0)
            assert got + sub.poll() in (["log"], ["ring"])
        assert caplog.text.count("is not bridged") == 1


def params(*values):
    return [{"name": name, "value": value} for name, value in values]


@pytest.mark.parametrize("way", ["here", "network", "address"])
def test_last_values_go_with_their_log(way, caplog):
    """The target keeps those of the same field, those from before the bridge began among them; as many and as long."""
    with (
        contextlib.ExitStack() as opened,
        penstock.publish("log:a", codec="json", last="name", last_keys=5, last_max=200) as pub,
    ):
        for one in params(("x", 1), ("y", 2), ("x", 3)):
            pub.send(one)
        at, target = address(), "log:b" if way != "address" else "log:far/a"
        if way == "here":
            bridges = [opened.enter_context(penstock.Bridge("log:a", "log:b"))]
        elif way == "network":
            bridges = opened.enter_context(crossing("log:a", "log:b"))
        else:
            ends = (("a*", at), (at, "log:far/{name}"))
            bridges = [opened.enter_context(penstock.Bridge(*one)) for one in ends]
        sub = opened.enter_context(penstock.subscribe(target))
        pub.send({"name": "y", "value": 4})
        assert taken(sub, 3, *bridges) == params(("y", 2), ("x", 3), ("y", 4))
        with penstock.subscribe(target, start="last") as late:
            assert taken(late, 2) == params(("x", 3), ("y", 4))
        about = penstock.inspect(target).details
        assert (about["last_keys"], about["last_values"]) == (5, 2)
        assert sub.codec.spec == {"kind": "json"}
        assert not caplog.records


def test_last_values_come_once_and_after_a_hole():
    """A bridge that starts again sends those alone that changed in what the log no longer keeps."""
    with (
        penstock.publish("log:a", codec="json", last="name", term_length=1 << 16) as pub,
        penstock.subscribe("log:b") as sub,
    ):
        for one in params(("x", 1), ("y", 2)):
            pub.send(one)
        for _ in range(2):
            with penstock.Bridge("log:a", "log:b") as bridge:
                pub.send({"name": "z", "value": 0})
                step(bridge, until=lambda: bridge.step(0.01) == 0 and bridge.progress()[0].messages)
        assert sub.poll() == params(("x", 1), ("y", 2), ("z", 0), ("z", 0))
        pub.send({"name": "x", "value": 5})
        for number in range(1000):
            pub.send({"name": "z", "value": number, "more": "." * 500})
        with penstock.Bridge("log:a", "log:b") as bridge:
            assert taken(sub, 1, bridge) == params(("x", 5))
            step(bridge, until=lambda: bridge.step(0) == 0)
            assert bridge.progress()[0].lost > 0


def test_two_ends_do_not_exchange_their_last_values():
    with (
        penstock.publish("log:a", codec="json", last="name") as here,
        penstock.publish("log:b", codec="json", last="name") as there,
    ):
        here.send({"name": "x", "value": 1})
        there.send({"name": "y", "value": 2})
        with penstock.Bridge("log:a", "log:b", both=True) as bridge:
            there.send({"name": "z", "value": 3})
            with penstock.subscribe("log:a", start="last") as sub:
                assert taken(sub, 2, bridge) == params(("x", 1), ("z", 3))
            with penstock.subscribe("log:b", start="last") as sub:
                assert sorted(one["name"] for one in taken(sub, 3, bridge)) == ["x", "y", "z"]


def test_a_target_without_last_values_is_told_of(caplog):
    with (
        penstock.publish("log:a", codec="json", last="name") as pub,
        penstock.publish("log:b", codec="json"),
        penstock.subscribe("log:b") as sub,
        penstock.Bridge("log:a", "log:b") as bridge,
    ):
        pub.send({"name": "x", "value": 1})
        assert taken(sub, 1, bridge) == params(("x", 1))
    (said,) = caplog.records
    assert "log:b does not get the last values of its source: log:b" in said.getMessage()


@pytest.mark.parametrize("chain", [(), ("log:x",), ("ring:x", "log:y")])
def test_attributes_of_frames_go_with_them(chain):
    at = f"{address()}/1"
    stops = ["frames:a", *([at] if chain else []), *chain, "frames:b"]
    with contextlib.ExitStack() as opened:
        bridges = [opened.enter_context(penstock.Bridge(*ends)) for ends in reversed(list(pairwise(stops)))]
        pub = opened.enter_context(penstock.publish("frames:a", shape=(2,), dtype="u1", attributes={"lens": "wide"}))
        step(*bridges, until=lambda: pub.readers)
        pub.send(np.array([1, 2], "u1"))
        step(*bridges, until=lambda: bridges[0].progress()[0].messages)
        with penstock.subscribe("frames:b", last=1) as sub, sub.recv(SECONDS) as frame:
            assert (frame.array.tolist(), sub.attributes) == ([1, 2], {"lens": "wide"})


@pytest.mark.parametrize("length", [10, 2000])
def test_attributes_too_long_for_a_datagram_are_told_of(length, caplog):
    attributes = {"text": "." * length}
    with (
        crossing("frames:a", "frames:b") as bridges,
        penstock.publish("frames:a", shape=(2,), attributes=attributes) as pub,
    ):
        step(*bridges, until=lambda: pub.readers)
        pub.send(np.array([1, 2], "u1"))
        step(*bridges, until=lambda: bridges[1].progress()[0].messages)
        with penstock.subscribe("frames:b", last=1) as sub:
            assert sub.attributes == (attributes if length == 10 else {})
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["udp"] * (length > 10)
    assert ("does not get the attributes" in caplog.text) == (length > 10)


def test_a_pattern_sends_each_channel_under_its_name():
    def found():
        return {one.channel for one in penstock.list_channels("log:far/*")}

    at = address()
    with (
        penstock.Bridge(at, "log:far/{name}") as here,
        penstock.Bridge("robot/*", at) as there,
        penstock.publish("log:robot/imu", codec="json") as imu,
        penstock.publish("ring:robot/gps", codec="msgpack") as gps,
    ):
        imu.send({"imu": 1})
        step(there, here, until=lambda: found() == {"log:far/robot/imu"})
        step(there, here, until=lambda: gps.readers)
        gps.send({"gps": 2})
        step(there, here, until=lambda: len(found()) == 2)
        for channel, message, codec in (("imu", {"imu": 1}, "json"), ("gps", {"gps": 2}, "msgpack")):
            with penstock.subscribe(f"log:far/robot/{channel}", start="earliest") as sub:
                assert taken(sub, 1, there, here) == [message]
                assert sub.codec.kind == codec


def test_a_channel_made_again_is_read_from_its_beginning():
    with penstock.subscribe("log:b") as sub, penstock.Bridge("log:a", "log:b") as bridge:
        for number in range(2):
            with penstock.publish("log:a", codec="json") as pub:
                pub.send(number)
            step(bridge, until=lambda: sub.codec)
            assert taken(sub, 1, bridge) == [number]
            penstock.remove("log:a")


def test_both_directions_without_an_echo():
    here, there = f"{address()}/1", f"{address()}/1"
    with (
        penstock.Bridge("log:here", there, back=here) as one,
        penstock.Bridge("log:there", here, back=there) as other,
        penstock.publish("log:here", codec="json") as a,
        penstock.publish("log:there", codec="json") as b,
        penstock.subscribe("log:here") as at_a,
        penstock.subscribe("log:there") as at_b,
    ):
        for number in range(20):
            a.send(["a", number])
            b.send(["b", number])
        got_a, got_b = taken(at_a, 40, one, other), taken(at_b, 40, one, other)
        for _ in range(30):
            one.step(0.005), other.step(0.005)
        assert at_a.try_recv() is None
        assert at_b.try_recv() is None
    wanted = sorted([name, number] for name in "ab" for number in range(20))
    assert sorted(got_a) == wanted
    assert sorted(got_b) == wanted


def test_a_group_is_one_channel_of_several_machines():
    at = f"udp://239.255.7.7:{free_port()}/1"
    with (
        penstock.Bridge("log:one", at, both=True) as one,
        penstock.Bridge("log:two", at, both=True) as two,
        penstock.publish("log:one", codec="json") as pub,
        penstock.subscribe("log:two") as sub,
        penstock.subscribe("log:one") as own,
    ):
        pub.send("for all")
        step(one, two, until=lambda: sub.codec)
        assert taken(sub, 1, one, two) == ["for all"]
        assert taken(own, 1, one, two) == ["for all"]
        for _ in range(20):
            one.step(0.005), two.step(0.005)
        assert own.try_recv() is None
        assert sub.try_recv() is None


def test_a_slow_target_makes_the_writers_of_a_log_wait():
    small = {"term_length": 1 << 16}
    with (
        penstock.publish("log:a", **small) as pub,
        penstock.publish("log:b", **small),
        penstock.subscribe("log:b") as slow,
        penstock.Bridge("log:a", "log:b") as bridge,
    ):
        sent = 0
        for _ in range(40):
            while pub.offer(bytes(1000)) is not None:
                sent += 1
            bridge.step(0.001)
        assert pub.offer(bytes(1000)) is None, "nobody waits"
        assert taken(slow, sent, bridge) == [bytes(1000)] * sent
        assert bridge.progress()[0].lost == 0


def test_a_ring_that_laps_the_bridge_is_counted():
    with penstock.publish("ring:a", capacity=1 << 16) as pub, penstock.Bridge("ring:a", "log:b") as bridge:
        for _ in range(1000):
            pub.send(bytes(1000))
        bridge.step(0.1)
        row = bridge.progress()[0]
        assert row.lost_messages > 0
        assert row.messages + row.lost_messages == 1000


def test_drop_after_loses_and_counts_what_nobody_reads():
    small = {"term_length": 1 << 16}
    with (
        penstock.publish("log:a", **small) as pub,
        penstock.Bridge("log:a", (at := f"{address()}/1"), drop_after=0.0) as bridge,
    ):
        for _ in range(6000):
            pub.send(bytes(1000), timeout=SECONDS)
            bridge.step(0)
        with penstock.Bridge(at, "log:b") as far:
            step(bridge, far, until=lambda: bridge.progress()[0].lost)


def test_a_message_that_the_target_cannot_take_is_refused(caplog):
    with (
        penstock.publish("log:a") as pub,
        penstock.subscribe("ring:b", capacity=1 << 16),
        penstock.Bridge("log:a", "ring:b") as bridge,
    ):
        pub.send(bytes(1 << 17))
        pub.send(b"fits")
        step(bridge, until=lambda: bridge.progress()[0].messages)
        assert bridge.progress()[0].refused == 1
        assert "ring:b" in caplog.text


def test_a_bridge_goes_on_where_the_last_one_stopped():
    with penstock.publish("log:a", codec="json") as pub, penstock.subscribe("log:b") as sub:
        with penstock.Bridge("log:a", "log:b") as bridge:
            pub.send(0)
            step(bridge, until=lambda: bridge.progress()[0].messages)
        pub.send(1)
        with penstock.Bridge("log:a", "log:b") as bridge:
            pub.send(2)
            assert taken(sub, 3, bridge) == [0, 1, 2]
            assert bridge.progress()[0].lost == 0
        pub.send(3)
        with penstock.Bridge("log:a", "log:b", start="newest") as bridge:
            pub.send(4)
            assert taken(sub, 1, bridge) == [4]


@pytest.mark.parametrize(("source", "target"), [("log:r/new", "log:far/r/new"), ("r/*", "log:far/{name}")])
def test_a_channel_that_appears_between_two_runs_is_read_whole(source, target):
    with penstock.Bridge(source, target) as bridge:
        bridge.step(0.01)
    with penstock.subscribe("log:far/r/new") as sub, penstock.publish("log:r/new", codec="json") as pub:
        for number in range(3):
            pub.send(number)
        with penstock.Bridge(source, target) as bridge:
            pub.send(3)
            assert taken(sub, 4, bridge) == [0, 1, 2, 3]


def test_what_a_log_no_longer_keeps_is_counted_as_lost():
    with penstock.publish("log:a", term_length=1 << 16) as pub, penstock.subscribe("log:b") as sub:
        with penstock.Bridge("log:a", "log:b") as bridge:
            pub.send(b"first")
            step(bridge, until=lambda: bridge.progress()[0].messages)
        for _ in range(1000):
            pub.send(bytes(1000))
        with penstock.Bridge("log:a", "log:b") as bridge:
            step(bridge, until=lambda: bridge.step(0) == 0 and bridge.progress()[0].messages)
            row = bridge.progress()[0]
            assert row.lost > 500_000
            assert 0 <= pub.position - row.lost - 1056 * row.messages < 1 << 16
            assert taken(sub, 1 + row.messages) == [b"first"] + [bytes(1000)] * row.messages


def test_a_receiver_that_comes_late_gets_everything():
    at = f"{address()}/1"
    with penstock.publish("log:a", codec="json") as pub, penstock.Bridge("log:a", at) as there:
        for number in range(500):
            pub.send(number)
        for _ in range(20):
            there.step(0.001)
        with penstock.subscribe("log:b") as sub, penstock.Bridge(at, "log:b") as here:
            step(there, here, until=lambda: sub.codec)
            assert taken(sub, 500, there, here) == list(range(500))
            step(there, here, until=lambda: there.progress()[0].waiting == 0)


def test_a_receiver_replaced_unnoticed_gets_what_is_missing():
    at = f"{address()}/1"
    with (
        penstock.subscribe("log:b") as sub,
        penstock.publish("log:a", codec="json") as pub,
        penstock.Bridge("log:a", at) as there,
    ):
        with penstock.Bridge(at, "log:b") as first:
            pub.send(0)
            step(there, first, until=lambda: sub.codec and there.progress()[0].waiting == 0)
            for number in range(1, 100):
                pub.send(number)
            there.step(0)
        with penstock.Bridge(at, "log:b") as second:
            time.sleep(0.3)  # so that the second one is mostly heard before the bridge looks
            got = set()  # a number may come again

            def has_all():
                got.update(sub.poll())
                return len(got) == 100

            step(there, second, until=has_all)
            assert got == set(range(100))
            step(there, second, until=lambda: there.progress()[0].resent)


def test_a_bridge_of_the_same_two_is_busy():
    with penstock.Bridge("log:a", "log:b"), pytest.raises(penstock.Busy, match="log:a"):
        penstock.Bridge("log:a", "log:b")
    penstock.Bridge("log:a", "log:b").close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("log:a", "log:a"), "source and the target"),
        (("udp://127.0.0.1:40001/1", "udp://localhost:40001/1"), "source and the target"),
        (("udp://0.0.0.0:40001/1", "udp://127.0.0.2:40001/1"), "source and the target"),
        (("udp://0.0.0.0:40001", "udp://localhost:40001"), "source and the target"),
        (("log:a", "log:*"), "a pattern"),
        (("log:*", "log:a"), "several channels"),
        (("log:*", "log:{nam}"), "no {name}"),
        (("pond:a", "log:a"), "no kind"),
        (("log:a", "pond:a"), "no kind"),
        (("log:a", "udp://127.0.0.1:99999"), "99999"),
        (("log:a", "a"), "no kind"),
        (("x/*", "log:x/{name}"), "again and again"),
        (("*", "{kind}:far/{name}"), "again and again"),
    ],
)
def test_wrong_channels_are_refused_in_a_line(arguments, error):
    with pytest.raises(penstock.Invalid, match=error) as raised:
        penstock.Bridge(*arguments)
    assert "\n" not in str(raised.value)
    assert penstock.list_channels("log:*") == []


def test_a_target_host_that_nobody_knows_is_an_error_at_once():
    with pytest.raises(penstock.NotFound, match="no-such-host"):
        penstock.Bridge("log:a", "udp://no-such-host.invalid:40001/1")


def test_the_other_direction_is_named_once():
    with pytest.raises(penstock.Invalid, match="both and back"):
        penstock.Bridge("log:a", "log:b", both=True, back="log:c")


def test_directions_that_do_not_exist_are_unsupported():
    with pytest.raises(penstock.Unsupported, match="one reader"):
        penstock.Bridge("pipe:a", "log:b", both=True)
    with penstock.publish("log:a") as pub, penstock.Bridge("log:a", "frames:b") as bridge:
        pub.send(b"x")
        with pytest.raises(penstock.Unsupported, match="frames"):
            bridge.step(1)


def test_one_channels_error_leaves_the_others_of_a_pattern(caplog):
    with (
        penstock.publish("log:x/a") as a,
        penstock.publish("ring:x/b") as b,
        penstock.publish("ring:far/x/a"),
        penstock.Bridge("x/*", "ring:far/{name}") as bridge,
        penstock.subscribe("ring:far/x/b") as sub,
    ):
        a.send(b"nobody takes it")
        b.send(b"it arrives")
        step(bridge, until=lambda: sub.codec)
        assert taken(sub, 1, bridge) == [b"it arrives"]
        step(bridge, until=lambda: any(row.refused for row in bridge.progress()))
    assert "ring:far/x/a" in caplog.text


def test_a_program_within_a_process_needs_no_file(channel_folder):
    with (
        penstock.publish("fake:log:a") as pub,
        penstock.subscribe("fake:log:b") as sub,
        penstock.Bridge("fake:log:a", "fake:log:b") as bridge,
    ):
        pub.send(b"x")
        step(bridge, until=lambda: sub.codec)
        assert taken(sub, 1, bridge) == [b"x"]
    assert list(channel_folder.iterdir()) == []


def test_a_long_message_is_unread_until_the_target_has_it():
    """A bridge that is killed while the target has no room gets it again."""
    at, body = f"{address()}/1", bytes(range(256)) * 8000
    with (
        penstock.subscribe("log:b", term_length=1 << 16) as slow,
        penstock.publish("log:a") as pub,
        penstock.Bridge("log:a", at) as there,
        penstock.Bridge(at, "log:b") as here,
    ):
        pub.send(b"first")
        pub.send(body)
        step(there, here, until=lambda: here.progress()[0].messages == 1)
        step(there, until=lambda: there.progress()[0].waiting <= 1)  # it has heard that the first one was read
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            there.step(0.01)
        assert there.progress()[0].waiting == 1
        assert slow.recv(SECONDS) == b"first"


def test_a_closed_bridge_refuses_its_calls():
    with penstock.publish("log:a") as pub:
        bridge = penstock.Bridge("log:a", "log:b")
        pub.send(b"1")
        bridge.close()
        for call in (lambda: bridge.step(0), bridge.run, bridge.__enter__):
            with pytest.raises(penstock.Closed, match="log:a to log:b: the bridge is closed"):
                call()
    assert len(bridge.progress()) == 1


@pytest.mark.parametrize("timeout", ["1", -1, True, float("nan")])
def test_a_step_refuses_what_is_no_timeout(timeout):
    with penstock.Bridge("log:a", "log:b") as bridge, pytest.raises(penstock.Invalid, match="timeout is"):
        bridge.step(timeout)


def test_a_step_takes_the_timeouts_of_handles():
    with penstock.publish("log:a") as pub, penstock.Bridge("log:a", "log:b") as bridge:
        assert bridge.step(Decimal(0)) == 0
        pub.send(b"1")
        assert bridge.step(None) == 1


@pytest.mark.parametrize("source", ["ring:a", "frames:a", "pipe:a", "zmq+tcp://127.0.0.1:5999"])
def test_drop_after_is_refused_where_no_writer_waits(source):
    with pytest.raises(penstock.Unsupported, match="drop_after is for sources whose writers wait"):
        penstock.Bridge(source, "log:b", drop_after=1)
    penstock.Bridge("ring:*", "log:{name}", drop_after=1).close()


def test_the_options_of_a_bridge_are_checked():
    with pytest.raises(penstock.Invalid, match="both is 1"):
        penstock.Bridge("log:a", "log:b", both=1)
    with pytest.raises(penstock.Invalid, match="drop_after is 'x'"):
        penstock.Bridge("log:*", "ring:{name}", drop_after="x")
    with penstock.Bridge("log:a", "log:b") as bridge, pytest.raises(AttributeError, match="'drop_after' to set"):
        bridge.drop_after = 0


@pytest.mark.parametrize("source", ["log:*", "udp://127.0.0.1:1"])
def test_a_position_is_one_channels(source):
    with pytest.raises(penstock.Unsupported, match="start is 64, a position of one channel"):
        penstock.Bridge(source, "log:x/{name}", start=64)
