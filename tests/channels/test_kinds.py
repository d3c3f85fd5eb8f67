"""The registry of kinds: URIs, options, channels within one process, and kinds to come."""

import asyncio
import contextlib
import dataclasses
import pickle
import subprocess
import sys

import pytest

import penstock
from penstock import testing
from penstock.channels.uri import channel as channels
from penstock.channels.uri import registry
from penstock.channels.uri.registry import kind_named, kinds
from penstock.errors import Invalid
from penstock.kinds import log

SMALL = {
    "log": {"capacity": 1 << 16},
    "ring": {"capacity": 1 << 16},
    "sync": {"capacity": 1 << 16},
    "pipe": {"capacity": 1 << 16, "max_pipes": 4, "max_members": 4},
    "frames": {"shape": (8,), "dtype": "u1"},
}


def uri(kind):
    named = {"udp": "127.0.0.1:5000/7", "zmq+tcp": "127.0.0.1:5000", "zmq+ipc": "127.0.0.1:5000"}
    return f"{kind.name}:{kind.prefix}{named.get(kind.name, 'a')}"


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_every_kind_is_parsed_and_written_as_it_was(kind):
    for text in (uri(kind), f"fake:{uri(kind)}"):
        parsed = channels.parse(text)
        assert (parsed.kind, parsed.fake, str(parsed)) == (kind, text.startswith("fake:"), text)
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        assert str(pickle.loads(pickle.dumps(parsed))) == text
    assert pickle.loads(pickle.dumps(kind)) is kind


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("imu", "write 'log:imu'"),
        ("fake:imu", "fake:log:imu"),
        ("fake:", "fake:KIND:NAME"),
        ("fake:pond:a", "no kind 'pond'"),
        ("fake:fake:log:a", "no kind 'fake'"),
        ("pond:a", "no kind 'pond'; this version has log:NAME"),
        ("zmq+tcp:127.0.0.1:1", "write zmq.tcp://HOST:PORT"),
        ("zmq+ipc://", "names no address"),
        ("log:", "not a channel name"),
        ("log:a//b", "not a channel name"),
        ("frames:a/b/", "not a channel name"),
        (7, "not by int"),
    ],
)
def test_a_wrong_uri_says_what_to_write(wrong, says):
    with pytest.raises(Invalid, match=says):
        penstock.publish(wrong)


FAKED = [kind for kind in kinds() if kind.in_process]
NOT_FAKED = [kind for kind in kinds() if not kind.in_process]


@pytest.mark.parametrize("kind", FAKED, ids=lambda kind: kind.name)
def test_a_fake_channel_is_of_its_kind_and_in_no_folder(kind):
    name, options = f"fake:{kind.name}:own", SMALL[kind.name]
    open_one = penstock.join if kind.join is not None and not kind.has_roles else penstock.publish
    with open_one(name, **options) as handle:
        assert handle.channel == name
        status = penstock.inspect(name)
        assert (status.channel, status.kind, status.state) == (name, kind.name, "ready")
        assert name not in [found.channel for found in penstock.list_channels()]
        with testing.hold(name), pytest.raises(penstock.NotFound):
            penstock.inspect(f"{kind.name}:own")
    with contextlib.suppress(penstock.NotFound):  # the last member of a queue may have removed it
        penstock.remove(name)
    with pytest.raises(penstock.NotFound):
        penstock.inspect(name)


@pytest.mark.parametrize("kind", NOT_FAKED, ids=lambda kind: kind.name)
def test_a_kind_of_other_processes_is_never_faked_silently(kind, monkeypatch):
    with pytest.raises(penstock.Unsupported, match="within one process"):
        penstock.publish(f"fake:{uri(kind)}")
    monkeypatch.setenv("PENSTOCK_FAKE", "1")
    for open_one in (penstock.publish, penstock.subscribe):
        with pytest.raises(penstock.Unsupported, match="PENSTOCK_FAKE is set"):
            open_one(uri(kind))
    monkeypatch.setenv("PENSTOCK_FAKE", "log")
    assert not channels.parse(uri(kind)).fake


def test_a_switch_that_names_no_kind_is_refused(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAKE", "log,pond")
    with pytest.raises(Invalid, match="PENSTOCK_FAKE is 'log,pond'"):
        penstock.publish("log:a")
    monkeypatch.setenv("PENSTOCK_FAKE", "0")
    penstock.publish("log:a").close()
    assert [status.channel for status in penstock.list_channels()] == ["log:a"]


def test_a_switched_program_lists_its_own_channels(monkeypatch):
    penstock.publish("log:outside").close()
    penstock.publish("ring:outside").close()
    monkeypatch.setenv("PENSTOCK_FAKE", "log")
    with penstock.publish("log:inside"):
        assert [status.channel for status in penstock.list_channels()] == ["ring:outside", "log:inside"]
    penstock.remove("log:inside")
    assert [status.channel for status in penstock.list_channels()] == ["ring:outside"]


def test_another_process_cannot_record_a_fake_channel(archive):
    with penstock.publish("fake:log:a"), pytest.raises(penstock.Unsupported, match="within this process"):
        archive.record("fake:log:a", process=True)
    penstock.remove("fake:log:a")


def test_an_option_of_another_kind_is_named_with_the_kind():
    with pytest.raises(TypeError, match="ring:a: publish on channels of kind 'ring' has no option 'term_length'"):
        penstock.publish("ring:a", term_length=1 << 16)
    with pytest.raises(TypeError, match="no option 'role'"):
        penstock.join("sync:a", role="pair")
    with pytest.raises(TypeError, match="no option 'capcity'; did you mean 'capacity'"):
        penstock.publish("ring:a", capcity=1 << 16)
    assert penstock.list_channels() == []


@pytest.mark.parametrize("channel", ["log:a", "ring:a", "sync:a", "pipe:a"])
@pytest.mark.parametrize("capacity", [-1, 1, 1 << 40])
def test_a_wrong_capacity_is_named_so(channel, capacity):
    with pytest.raises(penstock.Invalid, match=f"^{channel}: capacity is {capacity}: it must be "):
        penstock.publish(channel, capacity=capacity)


def test_a_slow_readers_options_are_one_for_log_and_sync():
    for name in ("log:slow", "sync:slow"):
        penstock.subscribe(name, when_slow="drop", drop_after=0.1).close()
        penstock.subscribe(name, drop_after=0).close()
        penstock.subscribe(name, when_slow="wait").close()
        for wrong in ({"when_slow": "drop"}, {"when_slow": "wait", "drop_after": 1}, {"when_slow": "stop"}):
            with pytest.raises(Invalid, match="when_slow is"):
                penstock.subscribe(name, **wrong)
    penstock.subscribe("sync:slow", when_slow="fail").close()
    with pytest.raises(penstock.Unsupported, match="log:slow: when_slow='fail' is for sync channels"):
        penstock.subscribe("log:slow", when_slow="fail")


def test_joining_a_log_suggests_kinds_that_can_be_joined():
    with pytest.raises(penstock.Unsupported, match=r"log:a: there is nothing to join.*sync:NAME, pipe:NAME"):
        penstock.join("log:a")


@pytest.fixture
def to_come(monkeypatch):
    """A kind whose URIs are a network's and whose channels lie in shared memory, as those of `udp://HOST:PORT/STREAM` do."""

    def named(text):
        if "/" not in text:
            raise Invalid(f"{text!r} names no stream: write net://HOST:PORT/STREAM")
        return text

    kind = dataclasses.replace(log.KIND, name="log", written="net://HOST:PORT/STREAM", prefix="//", named=named)
    monkeypatch.setitem(registry._kinds, "log", kind)
    return kind


def test_a_networks_channel_may_lie_in_shared_memory(to_come, archive):
    """Inspected, listed, recorded, removed: nothing takes an address for a sign that there is no memory."""
    name = "log://127.0.0.1:4000/7"
    with penstock.publish(name, capacity=1 << 16) as pub, archive.record(name), penstock.subscribe(name) as sub:
        pub.send(b"x")
        assert sub.recv(timeout=20) == b"x"
        assert (pub.channel, penstock.inspect(name).channel) == (name, name)
        assert [status.channel for status in penstock.list_channels()] == [name]
    assert [message.data for message in archive.replay(name)] == [b"x"]
    with pytest.raises(Invalid, match="names no stream"):
        penstock.publish("log://127.0.0.1:4000")
    penstock.remove(name)
    assert penstock.list_channels() == []


def test_kinds_are_known_to_a_new_process():
    work = "from penstock.channels.uri.registry import kinds; print(*(kind.name for kind in kinds()))"
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [kind.name for kind in kinds()]
    assert kind_named("log") in kinds()


def test_waiting_in_asyncio_takes_what_waiting_takes():
    async def both():
        with (
            penstock.join("sync:wait", name="a") as one,
            penstock.join("sync:wait", name="b") as other,
            penstock.publish("log:wait") as pub,
            penstock.subscribe("log:wait") as sub,
        ):
            assert await penstock.wait_async([other, sub], timeout=0) == []
            waiting = asyncio.create_task(penstock.wait_async([other, sub]))
            await asyncio.sleep(0)
            one.send(b"x")
            assert await waiting == [other]
            pub.send(b"y")
            assert await penstock.wait_async([sub], timeout=20) == [sub]
            assert await penstock.wait_async([other, sub], timeout=20) == [other, sub]
        with pytest.raises(Invalid, match="nothing to wait for"):
            await penstock.wait_async([7])

    asyncio.run(both())
