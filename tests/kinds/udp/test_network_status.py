"""What the network does, in `statistics()` and from outside: sessions, receivers, losses, how sessions end."""

import contextlib
import subprocess
import sys

import pytest
from network.relay import relay
from people import until
from ports import free_port

import penstock
from penstock.watch.rates import Rates

PATIENCE = 60


@pytest.fixture
def lossy():
    """A subscription and a publication with a relay between them that loses a tenth, after 2,000 messages and a round trip."""
    target = free_port()
    with (
        penstock.subscribe(f"udp://127.0.0.1:{target}/7") as sub,
        relay(target, loss=0.1) as between,
        penstock.publish(f"udp://127.0.0.1:{between.port}/7") as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        for number in range(2000):
            pub.send(bytes(500), timeout=PATIENCE)
            if number % 100 == 99:
                for _ in range(100):
                    sub.recv(timeout=PATIENCE)
        until(lambda: _is_settled(sub, pub), "the counts stay apart")  # on a busy machine the data is often quicker
        yield sub, pub, between


def _is_settled(sub, pub):
    """Both sides know how long a round trip takes, and show all that they have counted: each shows its counts a moment later."""
    (session,), (receiver,) = sub.statistics().network.sessions, pub.statistics().network.receivers
    naks = sub.statistics().details["naks_sent"]
    is_shown = session.naks_sent == naks >= receiver.naks_received > 0 and receiver.lag < receiver.window
    return is_shown and session.round_trip_ns and receiver.round_trip_ns


def test_a_subscription_says_what_its_sessions_needed(lossy):
    sub, pub, _ = lossy
    (one,) = sub.statistics().network.sessions
    assert (one.session, one.state, one.bytes_lost, one.losses) == (pub.session, "open", 0, 0)
    assert one.source == sub.sessions[0].source
    assert one.naks_sent
    assert one.naks_sent == sub.statistics().details["naks_sent"]
    assert 0 < one.bytes_repaired < 2000 * 544
    assert one.round_trip_ns
    assert one.window == sub.statistics().details["window"]
    assert sub.statistics().network.arrives


def test_a_publication_says_what_its_receivers_needed(lossy):
    sub, pub, between = lossy
    (one,) = pub.statistics().network.receivers
    assert (one.session, one.address, one.readers) == (pub.session, f"127.0.0.1:{between.port}", 1)
    assert 0 < one.naks_received <= sub.statistics().details["naks_sent"]
    assert one.window == sub.statistics().details["window"]
    assert one.position + one.lag == pub.position
    assert one.lag < one.window
    assert one.round_trip_ns
    assert not pub.statistics().network.arrives


def test_another_process_sees_the_same(lossy):
    sub, pub, _ = lossy
    program = f"""
import penstock
(session,) = penstock.inspect({sub.channel!r}).network.sessions
(receiver,) = penstock.inspect({pub.channel!r}).network.receivers
print(session.session, session.source, receiver.session, receiver.address, bool(session.naks_sent), bool(receiver.round_trip_ns))
"""
    (session,) = sub.statistics().network.sessions
    (receiver,) = pub.statistics().network.receivers
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        str(session.session), session.source, str(session.session), receiver.address, "True", "True",
    ]  # fmt: skip


def test_the_receiving_machine_has_rates(lossy):
    """Nothing is sent there: its fastest reader says how many messages come."""
    sub, pub, _ = lossy
    now = iter([0.0, 2.0])
    rates = Rates(lambda: next(now))
    rates.update([sub.statistics()])
    for _ in range(10):
        pub.send(bytes(500), timeout=PATIENCE)
        sub.recv(timeout=PATIENCE)
    (rate,) = rates.update([sub.statistics()])
    assert (rate.messages, rate.bytes) == (5, 2500)
    assert rate.naks is not None


def test_sessions_that_have_closed_and_were_lost_are_counted():
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub:
        with penstock.publish(uri) as pub:
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send(b"x")
        assert sub.recv(timeout=PATIENCE) == b"x"
        while not sub.statistics().details["sessions_closed"]:
            with contextlib.suppress(penstock.TimedOut):
                sub.recv(timeout=0.05)
        assert sub.statistics().details["sessions_lost"] == 0
        program = f"""
import os, penstock
pub = penstock.publish({uri!r})
pub.wait_for_readers(1, timeout={PATIENCE})
pub.send(b"y")
print(flush=True)
input()
"""
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
            assert sub.recv(timeout=PATIENCE) == b"y"
            sender.kill()
        while not sub.statistics().details["sessions_lost"]:  # it is silent for ten seconds
            with contextlib.suppress(penstock.TimedOut):
                sub.recv(timeout=0.2)
        assert sub.statistics().details["sessions_closed"] == 1


def test_other_kinds_have_no_network():
    with penstock.publish("log:a") as pub:
        assert pub.statistics().network is None


def test_a_notebook_shows_the_peers(lossy):
    sub, pub, _ = lossy
    assert "NAKs" in sub.statistics()._repr_html_()
    assert f"to {pub.statistics().network.receivers[0].address}" in pub.statistics()._repr_html_()
