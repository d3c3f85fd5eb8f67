"""Conversations with a real C driver, in both directions: every message once, in order, whole; and the end of the stream."""

from __future__ import annotations

import contextlib
import random

import pytest
from conftest import LONG
from interop import aeron
from interop.aeron import PATIENCE_S
from interop.bodies import body, size_of
from interop.ours import STREAM, Core, Udp, lengths
from network.relay import relay
from ports import free_port

import penstock

PYTHON, WHY_NOT = aeron.interpreter()
pytestmark = pytest.mark.skipif(not PYTHON, reason=WHY_NOT)
PEERS = {"udp": Udp, "core": Core} if LONG else {"udp": Udp}
SHORT = [
    9,
    33,
    100,
    1376,
    1377,
    5000,
    8000,
]  # one frame, the longest frame, fragments; the longest that a term of 64 KiB takes
TERM = {"term_length": 1 << 16}


@pytest.fixture(params=PEERS)
def peer(request):
    return PEERS[request.param]


@pytest.fixture
def at():
    return f"127.0.0.1:{free_port()}"


def channel(at, options=""):
    return f"aeron:udp?endpoint={at}{options}"


def ours_to_aeron(peer, at, sizes, count, *, to=None, environment=None, **options):
    """`count` messages from us to a driver's subscription; `to`: where we send them, if not straight to it."""
    with aeron.driver(environment) as driver:
        driver.call("subscribe", channel=channel(at), stream=STREAM, sizes=sizes, first=0)
        ours = peer(sizes)
        ours.publish(to or at, count, **options)
        found = driver.call("read", count=count, sessions=1, ends=True, seconds=PATIENCE_S)
        said = ours.finish()
    assert "error" not in said, said
    assert found["wrong"] == []
    assert (found["counts"], found["firsts"], found["ended"]) == ([count], [0], True)
    assert (said["sent"], said["closed"]) == (count, True)


def aeron_to_ours(peer, at, sizes, count, channel_options="", *, to=None, environment=None, **options):
    """`count` messages from a driver's publication to us."""
    ours = peer(sizes)
    ours.subscribe(at, **options)
    with aeron.driver(environment) as driver:
        driver.call("publish", channel=channel(to or at, channel_options), stream=STREAM)
        connected = driver.call("await_connected", seconds=PATIENCE_S)
        sent = (
            driver.call("send", first=0, count=count, sizes=sizes, seconds=PATIENCE_S) if connected["connected"] else {}
        )
        driver.call("close_publication")
        found = ours.finish()
    assert connected["connected"]
    assert "error" not in found, found
    assert sent["sent"] == count
    assert (found["messages"], found["wrong"], found["ended"]) == (count, "", 1)


def test_aeron_to_aeron_so_the_comparison_itself_is_sound(at):
    with aeron.driver() as one, aeron.driver() as other:
        one.call("subscribe", channel=channel(at), stream=STREAM, sizes=SHORT, first=0)
        other.call("publish", channel=channel(at, "|term-length=64k"), stream=STREAM)
        assert other.call("await_connected", seconds=PATIENCE_S)["connected"]
        one.begin("read", count=1000, sessions=1, ends=True, seconds=PATIENCE_S)
        assert other.call("send", first=0, count=999, sizes=SHORT, seconds=PATIENCE_S)["sent"] == 999
        other.call("send", first=1000, count=1, sizes=SHORT, seconds=PATIENCE_S)  # 999 is left out: it must be noticed
        found = one.answer()
    assert found["wrong"] == ["message 999 was expected; 8000 bytes came that say that they are message 1000"]


def test_ten_thousand_messages_through_many_terms(peer, at):
    ours_to_aeron(peer, at, SHORT, 10_000, **TERM)


def test_ten_thousand_messages_from_aeron_through_many_terms(peer, at):
    aeron_to_ours(peer, at, SHORT, 10_000, "|term-length=64k")


def long_and_short(seed):
    sizes = lengths(9, 4000, 990, random.Random(seed)) + lengths(4000, 1 << 20, 10, random.Random(seed + 1))
    random.Random(seed).shuffle(sizes)
    return sizes


def test_ten_thousand_messages_from_9_bytes_to_1_mib(peer, at):
    ours_to_aeron(peer, at, long_and_short(1), 10_000, term_length=1 << 24)


def test_ten_thousand_messages_from_aeron_from_9_bytes_to_1_mib(peer, at):
    aeron_to_ours(peer, at, long_and_short(2), 10_000, "|term-length=16m")


def test_five_percent_lost_on_the_way_to_aeron(peer, at):
    ours_to_aeron(peer, at, SHORT, 2_000, environment=aeron.loses(0.05, 1), term_length=1 << 20)


def test_status_messages_and_naks_of_aeron_are_lost(peer, at):
    with relay(int(at.split(":")[1]), 1) as between:
        between.set("back", loss=0.05)
        ours_to_aeron(peer, at, SHORT, 2_000, to=f"127.0.0.1:{between.port}", term_length=1 << 20)
        assert between.stats()["back"]["lost"] > 0


def test_five_percent_of_aerons_data_is_lost(peer, at):
    with relay(int(at.split(":")[1]), 2) as between:
        between.set("there", loss=0.05)
        aeron_to_ours(peer, at, SHORT, 2_000, "|term-length=1m", to=f"127.0.0.1:{between.port}")
        assert between.stats()["there"]["lost"] > 0


def test_five_percent_of_our_status_messages_and_naks_are_lost(peer, at):
    aeron_to_ours(peer, at, SHORT, 2_000, "|term-length=1m", environment=aeron.loses(0.05, 2, 3))


def test_doubled_reordered_and_lost_both_ways(peer, at):
    with relay(int(at.split(":")[1]), 3, loss=0.05, double=0.1, hold=0.1, hold_us=300) as between:
        ours_to_aeron(peer, at, SHORT, 1_000, to=f"127.0.0.1:{between.port}", term_length=1 << 20)


def test_term_ids_of_aeron_wrap(peer, at):
    options = "|term-length=64k|init-term-id=2147483645|term-id=2147483645|term-offset=0"
    aeron_to_ours(peer, at, SHORT, 1_000, options)


def test_large_datagrams_from_aeron(peer, at):
    aeron_to_ours(peer, at, [60_000, 64, 4_000], 1_000, "|mtu=8k|term-length=1m")


def test_large_datagrams_to_aeron(peer, at):
    ours_to_aeron(peer, at, [60_000, 64, 4_000], 1_000, mtu=8192, term_length=1 << 20)


def test_term_ids_of_ours_wrap(at):
    ours_to_aeron(Udp, at, SHORT, 1_000, initial_term_id=2147483645, **TERM)


def test_the_state_machines_alone_over_a_plain_socket(at):
    """A failure above and not here is one of the product's sockets, threads or shared memory."""
    ours_to_aeron(Core, at, SHORT, 1_000, initial=2147483645)


@pytest.mark.parametrize(
    "killed",
    [False, pytest.param(True, marks=pytest.mark.skipif(not LONG, reason="waits 10 s for silence: long mode"))],
)
def test_a_new_session_after_a_restart_of_aeron(peer, at, killed):
    """killed: the first driver ends before it has told the end of the stream, so the session ends by silence."""
    ours = peer(SHORT)
    ours.subscribe(at, sessions=2)
    with contextlib.ExitStack() as stack:
        for turn in range(2):
            driver = stack.enter_context(aeron.driver())
            driver.call("publish", channel=channel(at, "|term-length=64k"), stream=STREAM)
            assert driver.call("await_connected", seconds=PATIENCE_S)["connected"]
            assert driver.call("send", first=0, count=500, sizes=SHORT, seconds=PATIENCE_S)["sent"] == 500
            if turn == 0 and killed:
                driver.process.kill()
                driver.process.wait()
            else:
                driver.call("close_publication")
        found = ours.finish()
    assert "error" not in found, found
    assert (found["wrong"], found["ended"]) == ("", 2)
    assert 500 <= found["messages"] <= 1_000 if killed else found["messages"] == 1_000


def test_a_new_session_after_a_restart_of_ours(peer, at):
    with aeron.driver() as driver:
        driver.call("subscribe", channel=channel(at), stream=STREAM, sizes=SHORT, first=0)
        for turn in (1, 2):
            ours = peer(SHORT)
            ours.publish(at, 500, **TERM, session=turn)
            found = driver.call("read", count=500 * turn, sessions=turn, ends=True, seconds=PATIENCE_S)
            assert ours.finish()["sent"] == 500
    assert (found["sessions"], found["counts"], found["firsts"], found["wrong"]) == ([1, 2], [500, 500], [0, 0], [])


def test_a_late_joiner_of_ours_begins_where_aeron_is(peer, at):
    with aeron.driver() as driver, aeron.driver() as early:
        early.call("subscribe", channel=channel(at), stream=STREAM, sizes=SHORT, first=0)
        driver.call("publish", channel=channel(at, "|term-length=64k"), stream=STREAM)
        assert driver.call("await_connected", seconds=PATIENCE_S)["connected"]
        early.begin("read", count=400, sessions=1, ends=False, seconds=PATIENCE_S)
        assert driver.call("send", first=0, count=400, sizes=SHORT, seconds=PATIENCE_S)["sent"] == 400
        assert early.answer()["counts"] == [400]
        early.close()
        ours = peer(SHORT)
        ours.subscribe(at)
        driver.call("send", first=400, count=600, sizes=SHORT, seconds=PATIENCE_S)
        driver.call("close_publication")
        found = ours.finish()
    assert found["wrong"] == ""
    assert 0 < found["messages"] <= 600


def test_a_late_joiner_of_aerons_begins_where_we_are(at):
    """A receiver of ours is there from the start. The driver comes when 400 messages have been read, to a group of two."""
    other = f"127.0.0.1:{free_port()}"
    with (
        penstock.subscribe(f"udp://{at}/{STREAM}") as sub,
        penstock.publish(f"udp://{at}/{STREAM}", destinations=[other], flow_control="min", **TERM) as ours,
        aeron.driver() as late,
    ):
        ours.wait_for_readers(1, timeout=PATIENCE_S)
        for number in range(400):
            ours.send(body(number, size_of(number, SHORT)), timeout=PATIENCE_S)
            assert sub.recv(timeout=PATIENCE_S) == body(number, size_of(number, SHORT))
        late.call("subscribe", channel=channel(other), stream=STREAM, sizes=SHORT, first=400)
        ours.wait_for_readers(2, timeout=PATIENCE_S)
        late.begin("read", count=600, sessions=1, ends=True, seconds=PATIENCE_S)
        for number in range(400, 1_000):
            ours.send(body(number, size_of(number, SHORT)), timeout=PATIENCE_S)
            assert sub.recv(timeout=PATIENCE_S) == body(number, size_of(number, SHORT))
        ours.close()
        found = late.answer()
    assert (found["wrong"], found["counts"], found["firsts"], found["ended"]) == ([], [600], [400], True)


def test_aerons_receivers_ask_at_our_control_address(at):
    """Dynamic multi-destination: two drivers get everything from one publication of ours."""
    with aeron.driver() as one, aeron.driver() as other, contextlib.ExitStack() as stack:
        for driver in (one, other):
            own = channel(f"127.0.0.1:{free_port()}", f"|control={at}|control-mode=dynamic")
            driver.call("subscribe", channel=own, stream=STREAM, sizes=SHORT, first=0)
        ours = stack.enter_context(penstock.publish(f"udp://{at}/{STREAM}", control=at, flow_control="min", **TERM))
        ours.wait_for_readers(2, timeout=PATIENCE_S)
        for driver in (one, other):
            driver.begin("read", count=1_000, sessions=1, ends=True, seconds=PATIENCE_S)
        for number in range(1_000):
            ours.send(body(number, size_of(number, SHORT)), timeout=PATIENCE_S)
        ours.close()
        for driver in (one, other):
            found = driver.answer()
            assert (found["wrong"], found["counts"], found["ended"]) == ([], [1_000], True)


def test_we_ask_at_aerons_control_address(at):
    ours = [Udp(SHORT), Udp(SHORT)]
    for peer in ours:
        peer.subscribe(f"127.0.0.1:{free_port()}", control=at)
    with aeron.driver() as driver:
        driver.call(
            "publish", channel=f"aeron:udp?control={at}|control-mode=dynamic|term-length=64k|fc=min,g:/2", stream=STREAM
        )
        assert driver.call("await_connected", seconds=PATIENCE_S)["connected"]
        assert driver.call("send", first=0, count=1_000, sizes=SHORT, seconds=PATIENCE_S)["sent"] == 1_000
        driver.call("close_publication")
        for peer in ours:
            found = peer.finish()
            assert "error" not in found, found
            assert (found["messages"], found["wrong"], found["ended"]) == (1_000, "", 1)


def test_aerons_receivers_as_destinations_of_ours():
    """Manual multi-destination."""
    ats = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with aeron.driver() as one, aeron.driver() as other:
        for driver, at in zip((one, other), ats, strict=True):
            driver.call("subscribe", channel=channel(at), stream=STREAM, sizes=SHORT, first=0)
        with penstock.publish(f"udp://{ats[0]}/{STREAM}", destinations=[ats[1]], flow_control="min", **TERM) as ours:
            ours.wait_for_readers(2, timeout=PATIENCE_S)
            for driver in (one, other):
                driver.begin("read", count=1_000, sessions=1, ends=True, seconds=PATIENCE_S)
            for number in range(1_000):
                ours.send(body(number, size_of(number, SHORT)), timeout=PATIENCE_S)
        for driver in (one, other):
            found = driver.answer()
            assert (found["wrong"], found["counts"], found["ended"]) == ([], [1_000], True)
