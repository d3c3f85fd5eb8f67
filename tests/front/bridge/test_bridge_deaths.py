"""Bridges of processes that are killed: what their source keeps arrives, at least once, in order."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import heed_interrupts
from ports import free_port

import penstock

SECONDS = 60.0


class Command:
    """A `penstock bridge` that a test may kill and start again."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "bridge", *self.arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_interrupts,
        )

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        """Asks it to end. Its status, and a row for each channel."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        assert "Traceback" not in err
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]


@contextlib.contextmanager
def commands(*calls):
    with contextlib.ExitStack() as stack:
        made = []
        for call in calls:
            made.append(Command(*call))
            stack.callback(made[-1].kill)
        yield made


class Sink:
    """What has arrived at a channel: the highest number of a row without a gap. A number may come again, and none may be left out."""

    def __init__(self, channel):
        self.sub, self.next, self.again = penstock.subscribe(channel), 0, 0

    def take(self):
        if self.sub.codec is None:
            return
        for number in self.sub.poll():
            assert number <= self.next, f"{number} came, and {self.next} did not"
            self.again += number < self.next
            self.next = max(self.next, number + 1)

    def wait_for(self, count):
        end = time.monotonic() + SECONDS
        while self.next < count:
            assert time.monotonic() < end, f"{self.next} of {count} have come"
            self.take()
            penstock.wait([self.sub], 0.05)


def send(pub, sink, numbers, every=0.0005):
    for number in numbers:
        pub.send(number, timeout=SECONDS)
        if every:
            time.sleep(every)
        if sink is not None:
            sink.take()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1, 2], ids=["sender", "receiver", "both"])
def test_killed_bridges_of_two_machines_lose_nothing(killed):
    at = f"udp://127.0.0.1:{free_port()}/1"
    sink = Sink("log:b")
    with commands((at, "log:b"), ("log:a", at)) as (far, near), penstock.publish("log:a", codec="json") as pub:
        sent = 100
        pub.wait_for_readers(1, timeout=SECONDS)
        send(pub, sink, range(sent))
        for _ in range(3):
            victims = [[near], [far], [near, far]][killed]
            for one in victims:
                one.kill()
            send(pub, sink, range(sent, sent + 300))
            for one in victims:
                one.start()
            send(pub, sink, range(sent + 300, sent + 600))
            sent += 600
            sink.wait_for(sent)
        assert near.end()[1][0]["lost"] == 0
        assert far.end()[1][0]["lost"] == 0


def test_a_killed_bridge_within_a_machine_repeats_one_message():
    sink = Sink("log:b")
    with commands(("log:a", "log:b")) as (bridge,), penstock.publish("log:a", codec="json") as pub:
        pub.wait_for_readers(1, timeout=SECONDS)
        for turn in range(4):
            send(pub, sink, range(turn * 500, turn * 500 + 500), every=0)
            sink.wait_for(turn * 500 + 100)
            bridge.kill()
            bridge.start()
        sink.wait_for(2000)
        assert sink.again <= 4
        pub.wait_for_readers(1, timeout=SECONDS)
        assert bridge.end()[1][0]["lost"] == 0


@pytest.mark.slow
def test_a_killed_pattern_bridge_goes_on_with_all_channels():
    at = f"udp://127.0.0.1:{free_port()}"
    sinks = [Sink(f"log:far/r/{name}") for name in "xy"]
    with (
        commands((at, "log:far/{name}"), ("r/*", at)) as (far, near),
        penstock.publish("log:r/x", codec="json") as x,
        penstock.publish("log:r/y", codec="msgpack") as y,
    ):
        for turn in range(3):
            numbers = range(turn * 200, turn * 200 + 200)
            x.wait_for_readers(1, timeout=SECONDS), y.wait_for_readers(1, timeout=SECONDS)
            for pub, sink in zip((x, y), sinks, strict=True):
                send(pub, None, numbers, every=0)
                sink.wait_for(turn * 200 + 1)
            victim = (near, far, near)[turn]
            victim.kill()
            victim.start()
        for sink in sinks:
            sink.wait_for(600)


@pytest.mark.slow
def test_a_killed_receiver_of_several_channels_keeps_their_order():
    """The sending bridge goes on all the time: what arrives at a machine whose bridge begins again is not taken for read."""
    at = f"udp://127.0.0.1:{free_port()}"
    sinks = [Sink(f"log:far/r/{name}") for name in "xyz"]
    with commands((at, "log:far/{name}"), ("r/*", at)) as (far, _), contextlib.ExitStack() as stack:
        pubs = [stack.enter_context(penstock.publish(f"log:r/{name}", codec="json")) for name in "xyz"]
        for pub in pubs:
            pub.wait_for_readers(1, timeout=SECONDS)
        sent = 0
        for turn in range(16):
            if turn % 5 == 4:
                far.kill()
                far.start()
            for number in range(sent, sent + 300):
                for pub, sink in zip(pubs, sinks, strict=True):
                    pub.send(number, timeout=SECONDS)
                    sink.take()
                time.sleep(0.0005)
            sent += 300
        for sink in sinks:
            sink.wait_for(sent)


@pytest.mark.slow
def test_a_killed_bridge_of_both_directions_echoes_nothing():
    with (
        commands(("log:a", "log:b", "--both")) as (bridge,),
        penstock.publish("log:a", codec="json") as a,
        penstock.publish("log:b", codec="json") as b,
    ):
        at_a, at_b = penstock.subscribe("log:a"), penstock.subscribe("log:b")
        a.wait_for_readers(2, timeout=SECONDS), b.wait_for_readers(2, timeout=SECONDS)
        got_a, got_b = [], []
        for turn in range(3):
            for number in range(turn * 100, turn * 100 + 100):
                a.send(["a", number]), b.send(["b", number])
            end = time.monotonic() + SECONDS
            while not (["a", turn * 100 + 99] in got_b and ["b", turn * 100 + 99] in got_a):
                assert time.monotonic() < end
                got_a += at_a.poll()
                got_b += at_b.poll()
            bridge.kill()
            bridge.start()
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            got_a += at_a.poll()
            got_b += at_b.poll()
        for got in (got_a, got_b):
            assert len(got) <= 600 + 3
            assert {tuple(one) for one in got} == {(name, n) for name in "ab" for n in range(300)}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_a_summary(number, status):
    with (
        commands(("log:a", "log:b")) as (bridge,),
        penstock.publish("log:a", codec="json") as pub,
        Sink("log:b").sub as sub,
    ):
        pub.wait_for_readers(1, timeout=SECONDS)
        pub.send(1)
        penstock.wait([sub], SECONDS)
        ended, (row,) = bridge.end(number)
        assert ended == status
        assert (row["source"], row["target"], row["messages"], row["lost"]) == ("log:a", "log:b", 1, 0)
    assert not [name for name in os.listdir(os.environ["PENSTOCK_DIR"]) if name.endswith(".new")]


def test_an_error_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bridge", "log:a", "log:a"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("penstock: log:a is the source")
