"""Pipes against a plain model: whatever comes, goes, sends, takes and dies, each message is done once, or said to come again."""

import multiprocessing
import os
import signal

from conftest import sized
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

import penstock
from penstock.channels.uri.channel import parse
from penstock.kinds.pipe import opener as pipe

C = 1 << 16
SIZES = st.one_of(st.integers(8, 300), st.sampled_from([4000, C // 4, C // 2 - 32]))
WAYS = st.sampled_from(["list", "arrow", "one", "borrow"])


def _take_and_die(channel, count, there, path):
    os.environ["PENSTOCK_DIR"] = path
    sub = penstock.subscribe(channel, acknowledge="manual")
    there.send(
        [(message, sub.redelivered) for message in (sub.try_recv() for _ in range(count)) if message is not None]
    )
    signal.pause()


class Model(RuleBasedStateMachine):
    """`waiting`: sent, and in nobody's hands. `held`: what each reader has taken and not acknowledged. `again`: given out before."""

    pushers, pullers = Bundle("pushers"), Bundle("pullers")
    count = 0

    @initialize(
        start=st.sampled_from([0, (1 << 31) - C, (1 << 32) - C, (1 << 48) - C]), mark=st.sampled_from([1, 5, 1000])
    )
    def make(self, start, mark):
        Model.count += 1
        self.name = f"pipe:model{Model.count}"
        self.first = penstock.publish(
            penstock.testing.channel(self.name, start_position=start),
            capacity=C,
            max_messages=mark,
            max_members=64,
            max_pipes=512,
        )
        self.open = {self.first}
        self.waiting, self.held, self.again, self.done = set(), {}, set(), set()
        self.by_hand = {}  # whether a reader acknowledges by hand
        self.tap, self.copies = None, set()
        self.serial = self.recorded = 0

    def body(self, size):
        self.serial += 1
        return (b"%d." % self.serial).ljust(size, b"-")

    def sent(self, bodies):
        assert len(set(bodies)) == len(bodies)
        self.waiting |= set(bodies)
        if self.tap is not None:
            self.copies |= set(bodies)

    def took(self, puller, bodies, last_again=None):
        """Messages given to a reader. Those that it had before are acknowledged by now, unless it acknowledges by hand."""
        if not self.by_hand[puller]:
            self.done |= self.held[puller]
            self.held[puller] = set()
        for body in bodies:
            assert body in self.waiting
            self.waiting.remove(body)
        if bodies and last_again is not None:
            assert last_again == (bodies[-1] in self.again)
        self.held[puller] |= set(bodies)

    @rule(target=pushers)
    def push(self):
        if len(self.open) > 12:
            return self.first
        pusher = penstock.publish(self.name)
        self.open.add(pusher)
        return pusher

    @rule(target=pullers, by_hand=st.booleans())
    def pull(self, by_hand):
        if len(self.held) > 8:
            return next(iter(self.held))
        puller = penstock.subscribe(self.name, acknowledge="manual" if by_hand else "next")
        self.by_hand[puller] = by_hand
        self.held[puller] = set()
        return puller

    @rule(pusher=pushers, size=SIZES)
    def send(self, pusher, size):
        if pusher in self.open:
            body = self.body(size)
            if pusher.offer(body) is not None:
                self.sent([body])

    @rule(count=st.integers(0, 30), size=st.integers(8, 600))
    def send_many(self, count, size):
        bodies = [self.body(size) for _ in range(count)]
        self.sent(bodies[: self.first.offer_many(bodies)])

    @rule(size=st.integers(8, 3000), gives_up=st.booleans())
    def claim(self, size, gives_up):
        body = self.body(size)
        try:
            with self.first.claim(size, timeout=0) as view:
                view[:] = body
                if gives_up:
                    raise ZeroDivisionError
        except TimeoutError:
            return
        except ZeroDivisionError:
            return
        self.sent([body])

    @rule(puller=pullers, count=st.integers(1, 40), way=WAYS)
    def take(self, puller, count, way):
        if puller not in self.held:
            return
        again = None
        if way == "list":
            got = puller.poll(count)
        elif way == "arrow":
            got = puller.poll_arrow(limit=count)["payload"].to_pylist()
        elif way == "one":
            message = puller.try_recv()
            got = [] if message is None else [message]
        else:
            try:
                with puller.borrow(0) as view:
                    got = [bytes(view)]
            except TimeoutError:
                got = []
        if got:
            again = puller.redelivered
        self.took(puller, got, again)

    @rule(puller=pullers)
    def acknowledge(self, puller):
        if puller in self.held:
            puller.acknowledge()
            self.done |= self.held[puller]
            self.held[puller] = set()

    @rule(pusher=consumes(pushers))
    def leave(self, pusher):
        if pusher is not self.first and pusher in self.open:
            pusher.close()
            self.open.remove(pusher)

    def given_back(self, bodies):
        self.waiting |= bodies
        self.again |= bodies

    @rule(puller=consumes(pullers), fails=st.booleans())
    def give_up(self, puller, fails):
        if puller not in self.held:
            return
        held = self.held.pop(puller)
        if fails:
            try:
                with puller:
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        else:
            puller.close()
        if fails or self.by_hand[puller]:
            self.given_back(held)
        else:
            self.done |= held

    @rule(count=st.integers(0, 4))
    def a_process_takes_some_and_is_killed(self, count):
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=_take_and_die, args=(self.name, count, there, os.environ["PENSTOCK_DIR"])
        )
        child.start()
        assert here.poll(30)
        got = here.recv()
        child.kill()
        child.join()
        for body, again in got:
            assert body in self.waiting
            assert again == (body in self.again)
        self.given_back({body for body, _ in got})

    @rule()
    def record(self):
        if self.tap is None:
            self.tap = pipe.open_tap(parse(self.name))
        else:
            self.listen()
            assert not self.copies
            self.tap.close()
            self.tap = None

    @rule()
    def listen(self):
        if self.tap is None:
            return
        self.segment = penstock._native.core.RecordingSegment(
            data_fd=os.memfd_create("data"),
            data_path="data",
            index_fd=os.memfd_create("index"),
            index_path="index",
            base=self.tap.position,
            term_length=0,
            initial_term_id=0,
            stream_id=1,
            recording=1,
            messages_before=0,
            entries=0,
            data_length=0,
        )
        while self.segment.record(self.tap, 1 << 20) > 0:
            pass
        assert self.segment.messages == len(self.copies)
        self.copies = set()

    def teardown(self):
        if not hasattr(self, "first"):
            return
        if self.tap is not None:
            self.tap.close()
        for puller, held in self.held.items():
            puller.close()
            if self.by_hand[puller]:
                self.given_back(held)
            else:
                self.done |= held
        with penstock.subscribe(self.name) as last:
            rest, quiet = [], 0
            while quiet < 5:
                got = last.poll()
                rest += got
                quiet = 0 if got else quiet + 1
                if not got:
                    quiet += not penstock.wait([last], 0.005)
        assert sorted(rest) == sorted(self.waiting)
        assert not self.done & self.waiting
        for pusher in self.open:
            pusher.close()
        totals = penstock.inspect(self.name).totals
        assert (totals.messages_sent, totals.messages_lost) == (len(self.done | self.waiting), 0)
        penstock.remove(self.name)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=sized(10, 30, 400),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
