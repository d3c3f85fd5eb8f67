"""Channels as values: they print as their URI, compare, pickle, and every function that takes a URI takes them."""

import dataclasses
import pickle

import msgspec
import pytest

import penstock
from penstock.channels.uri.registry import kinds
from penstock.testing import ManualClock, channel


class Imu(msgspec.Struct):
    t: int


VALUES = {
    "log:robot/imu": penstock.Log("robot/imu", Imu, capacity="1MiB"),
    "ring:a": penstock.Ring("a", Imu, capacity=1 << 16),
    "sync:a": penstock.Sync("a", dict, max_members=4),
    "pipe:a": penstock.Pipe("a", dict, max_messages=10),
    "frames:a": penstock.Frames("a", shape=(2, 3), dtype="f4", buffers=3),
    "udp://127.0.0.1:4000/1": penstock.Udp("127.0.0.1:4000/1", Imu, mtu=1024),
    "zmq+tcp://127.0.0.1:5555": penstock.Zmq("tcp://127.0.0.1:5555", dict),
    "zmq+ipc:///tmp/a": penstock.Zmq("ipc:///tmp/a"),
}


@pytest.fixture(params=VALUES, ids=str)
def value(request):
    return VALUES[request.param]


def test_every_kind_has_a_class():
    assert {kind.name for kind in kinds()} == {uri.partition(":")[0] for uri in VALUES}


def test_a_value_prints_as_its_uri():
    assert [str(value) for value in VALUES.values()] == list(VALUES)


def test_a_value_equals_another_of_the_same_call(value):
    names = {name: getattr(penstock, name) for name in ("Frames", "Log", "Pipe", "Ring", "Sync", "Udp", "Zmq")}
    again = eval(repr(value), {**names, "Imu": Imu, "dict": dict})
    assert again == value
    assert hash(again) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value
    assert value != dataclasses.replace(value, name=value.name[:-1] + "9")


@pytest.mark.parametrize("make", [lambda: penstock.array("f4", (2, 3)), lambda: penstock.objects(Imu, "msgpack")])
def test_a_value_compares_by_what_its_codec_is(make):
    value, again = penstock.Log("a", make()), penstock.Log("a", make())
    for other in (again, pickle.loads(pickle.dumps(value))):
        assert other == value
        assert hash(other) == hash(value)
    assert value != penstock.Log("a", penstock.array("f4", (3, 2)))
    assert value != penstock.Log("a", penstock.objects(Imu))


def test_a_value_cannot_change(value):
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"


def test_a_size_may_be_a_text():
    assert penstock.Log("a", capacity="1MiB") == penstock.Log("a", capacity=1 << 20)
    with penstock.publish("log:a", capacity="64KiB") as pub:
        assert pub.statistics().capacity == 1 << 16
    with pytest.raises(penstock.Invalid, match="log:b: capacity is '3 potatoes'"):
        penstock.publish("log:b", capacity="3 potatoes")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: penstock.Log("a b"), "'log:a b': 'a b' is not a channel name"),
        (lambda: penstock.Log("a", capacity=7), "log:a: .*capacity"),
        (lambda: penstock.Log("a", codec="yaml"), "log:a: .*yaml"),
        (lambda: penstock.Frames("a", dict), "frames:a: frames have no codec"),
        (lambda: penstock.Frames("a", shape=(0,)), "shape"),
        (lambda: penstock.Zmq("127.0.0.1:1"), "zmq"),
        (lambda: penstock.Udp("127.0.0.1:4000/1", mtu=100), "mtu is 100"),
        (lambda: penstock.Fake(penstock.Fake(penstock.Log("a"))), "within this process already"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(make, why):
    with pytest.raises(penstock.Invalid, match=why):
        make()


def test_a_kind_that_cannot_be_faked_is_refused():
    with pytest.raises(penstock.Unsupported, match="cannot be a channel within one process"):
        penstock.Fake(penstock.Zmq("tcp://127.0.0.1:1"))


def test_messages_pass_between_equal_values():
    imu = VALUES["log:robot/imu"]
    with penstock.publish(imu) as pub, penstock.subscribe(pickle.loads(pickle.dumps(imu)), start="earliest") as sub:
        pub.send(Imu(7))
        assert sub.recv(timeout=20) == Imu(7)
        assert pub.statistics().capacity == 1 << 20
    assert penstock.inspect(imu).channel == "log:robot/imu"
    penstock.remove(imu)
    assert penstock.list_channels() == []


def test_a_value_that_differs_from_its_channel_is_a_mismatch():
    with (
        penstock.publish(penstock.Frames("a", shape=(2, 3))),
        pytest.raises(penstock.Mismatch, match="shape"),
    ):
        penstock.subscribe(penstock.Frames("a", shape=(3, 2)))


def test_shaping_options_belong_to_the_value():
    imu = penstock.Log("a", Imu)
    for option in ({"capacity": 1 << 16}, {"codec": "json"}, {"max_members": 3}):
        with pytest.raises(TypeError, match=r"log:a: \w+ shapes the channel, which was given as a value"):
            penstock.publish(imu, **option)
    with pytest.raises(TypeError, match=r"log:a: .*no option 'exclusiv'.*did you mean 'exclusive'"):
        penstock.publish(imu, exclusiv=True)
    assert penstock.list_channels() == []


def test_a_fake_of_a_value_stays_in_the_process():
    fake = penstock.Fake(penstock.Frames("a", shape=(2,)))
    with penstock.publish(fake) as pub, penstock.subscribe(fake) as sub, penstock.testing.hold(fake) as step:
        pub.acquire().commit()
        assert sub.try_recv() is None
        step.deliver()
        assert sub.recv(timeout=20) is not None
    assert str(fake) == "fake:frames:a"


def test_roles_are_those_of_the_value():
    jobs = penstock.Pipe("jobs", dict)
    with penstock.join(jobs, role="reply") as server, penstock.join(jobs, role="request") as client:
        pending = client.submit({"a": 1})
        server.recv(timeout=20).reply({"b": 2})
        assert pending.result(timeout=20) == {"b": 2}


def test_options_of_tests_come_by_a_channel_of_tests():
    late = channel(penstock.Log("a", bytes, capacity="1MiB"), start_position=1 << 20, clock=ManualClock(5))
    with penstock.publish(late) as pub, penstock.subscribe(late) as sub:
        pub.send(b"x")
        assert sub.recv(timeout=20) == b"x"
        assert (sub.last.position, sub.last.time_ns) == (1 << 20, 5)
    with pytest.raises(
        TypeError, match=r"log:b: clock is for tests: open penstock.testing.channel\('log:b', clock=...\)"
    ):
        penstock.publish("log:b", clock=ManualClock(5))
    with pytest.raises(TypeError, match=r"log:b: .*no option 'start_sequence'"):
        channel("log:b", start_sequence=1)


def test_archives_take_values(tmp_path):
    archive, imu = penstock.Archive(tmp_path / "a"), penstock.Log("imu", Imu)
    with penstock.publish(imu) as pub:
        with archive.record(imu):
            for t in range(3):
                pub.send(Imu(t))
        assert archive.read(imu).num_rows == 3
    assert archive.channels([imu]) == {"log:imu"}
    again = penstock.Log("again", Imu)
    with penstock.subscribe(again, start="earliest") as sub:
        assert archive.replay_onto(imu, again) == 3
        assert [message.t for message in sub.poll()] == [0, 1, 2]


SMALL = penstock.Log("small", "msgpack", capacity="128KiB")


@pytest.fixture
def archive(tmp_path):
    """An archive with a message of log:a, whose codec is json."""
    archive = penstock.Archive(tmp_path / "a")
    with penstock.publish("log:a", codec="json") as pub, archive.record("log:a"):
        pub.send({"n": 1})
    return archive


def test_a_replay_makes_its_target_as_the_value_says(archive):
    target = penstock.Log("b", dict, capacity="128KiB")
    assert archive.replay_onto("log:a", channel(target, start_position=1 << 20)) == 1
    assert penstock.inspect("log:b").position > 1 << 20
    assert archive.play(onto={"log:a": penstock.Log("c", capacity="128KiB")}).total == 1
    assert [penstock.inspect(uri).capacity for uri in ("log:b", "log:c")] == [128 << 10] * 2
    for call in (lambda: archive.replay_onto("log:a", SMALL), lambda: archive.play(onto={"log:a": SMALL})):
        with pytest.raises(
            penstock.Mismatch, match=r"log:small is given with codec=.*msgpack.*json.*: leave codec out"
        ):
            call()
    with pytest.raises(penstock.Mismatch, match="log:small is given with codec="):
        archive.play(onto="again/", clock=SMALL)
    assert not penstock.list_channels("log:small")


def test_a_bridge_passes_the_options_of_values():
    with penstock.publish("log:a", codec="msgpack") as pub, penstock.Bridge("log:a", SMALL) as bridge:
        pub.send({"n": 1})
        assert bridge.step(20) == 1
        assert penstock.inspect("log:small").capacity == 128 << 10
    with penstock.publish("log:j", codec="json") as pub:
        with pytest.raises(penstock.Mismatch, match="codec"):
            penstock.Bridge(penstock.Log("j", "msgpack"), "log:k")
        with penstock.Bridge("log:j", penstock.Log("l", "msgpack")) as bridge, pytest.raises(penstock.Mismatch):
            pub.send({"n": 1})
            bridge.step(20)


@pytest.mark.parametrize(
    "value", [penstock.Log("a", "msgpack"), penstock.Log("a", dict, capacity="128KiB"), penstock.Fake(SMALL)], ids=repr
)
def test_a_recorder_refuses_a_value_that_its_channel_is_not(value, tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    with (
        penstock.publish(str(value), codec="json"),
        pytest.raises(penstock.Mismatch, match=r"exists with|codec"),
    ):
        archive.record(iter([value]))
    with penstock.publish(str(value)), pytest.raises(penstock.Mismatch):
        archive.snapshot(iter([value]), before=1)
    assert not archive.list()


@pytest.mark.parametrize(
    "value",
    [
        SMALL,
        penstock.Ring("a", dict),
        penstock.Sync("a", dict),
        penstock.Frames("a", shape=(2,)),
        penstock.Pipe("a", dict),
    ],
    ids=str,
)
def test_a_recorder_decides_a_channel_that_nobody_made(value, tmp_path):
    with penstock.Archive(tmp_path / "a").record(value):
        with pytest.raises(penstock.Mismatch):
            penstock.publish(str(value), **({"shape": (3,)} if str(value).startswith("frames") else {"codec": "bytes"}))
        penstock.publish(value).close()


def test_options_of_tests_are_given_once():
    late = channel("log:a", start_position=4096)
    for wrap in (channel, penstock.Fake):
        with pytest.raises(penstock.Invalid, match="options of tests"):
            wrap(late)


def test_a_value_is_a_name_of_channels_and_streams(archive, tmp_path):
    a, out = penstock.Log("a", dict), tmp_path / "out"
    assert [one.channel for one in penstock.list_channels([a, penstock.Log("b")])] == ["log:a"]
    watch = archive.watch([a])
    assert watch.refresh()
    assert archive.play(onto={a: "log:u"}).total == 1
    assert archive.append(penstock.Log("out", dict), [{"n": 1}]).messages == 1
    assert [one.data for one in archive.replay("log:out")] == [{"n": 1}]
    with pytest.raises(TypeError, match="log:out was given as a value: give codec to the value"):
        archive.append(penstock.Log("out", dict), [], codec="json")

    tables = pytest.importorskip("penstock.tables")
    for rebuild in ([], [a]):
        tables.run(archive.path, out, schema={a: "n int"}, keep={a: "90d", None: "90d"}, rebuild=rebuild)
    assert tables.read(out, a).num_rows == tables.read(out, "messages", stream=a).num_rows == 1
    assert len(tables.uris(out, "messages", stream=a)) == 1
    for call in (
        lambda: tables.run(archive.path, out, schema={5: "n int"}),
        lambda: tables.run(archive.path, out, keep={5: "9d"}),
        lambda: tables.erase(out, 5),
        lambda: tables.read(out, 5),
    ):
        with pytest.raises(penstock.Invalid):
            call()
    assert tables.erase(out, a) == 1


def test_a_lake_takes_values(archive):
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    a, lake = penstock.Log("a", dict), penstock.lake(archive=archive.path, live=False)
    cut = lake.cut(a)
    assert list(cut) == ["log:a"]
    assert cut[a].stream == "log:a"
    assert lake.reader(a).read_all().num_rows == lake.align(a, [a]).num_rows == cut.align(a, [a]).num_rows == 1
    assert lake.polars(a).collect().height == 1
