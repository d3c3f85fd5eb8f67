"""The sync queue against a plain model: any sequence of joins, appends, screens, reads, deaths and leaves gives what lists would."""

import multiprocessing
import os
import signal

import pytest
from conftest import sized
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import penstock

S = 1 << 16
NAMES = st.sampled_from(["ann", "bob", "cid", "dan"])
TYPES = st.sampled_from(["", "x", "y", "größe"])
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([4000, S // 4 - 80, S // 3]))


def _die(channel, name, bodies, ready, path):
    os.environ["PENSTOCK_DIR"] = path
    member = penstock.join(channel, name=name)
    sent = sum(member.offer(body, type="x") is not None for body in bodies)
    ready.send(sent)
    signal.pause()


class Model(RuleBasedStateMachine):
    """`written` is every message in order; each member is an index into it, and what it screens."""

    members = Bundle("members")
    count = 0

    @initialize(start=st.sampled_from([0, (1 << 31) - S, (1 << 32) - S, (1 << 48) - S]))
    def make(self, start):
        Model.count += 1
        self.name = f"sync:model{Model.count}"
        self.first = penstock.join(
            penstock.testing.channel(self.name, start_position=start),
            name="first",
            capacity=S,
            max_members=32,
            own=True,
        )
        self.written = []  # (member or None, sender, type, body)
        self.at = {self.first: 0}
        self.own = {self.first: True}
        self.screens = {self.first: (set(), set())}
        self.serial = 0

    def body(self, size):
        self.serial += 1
        return (b"%d." % self.serial).ljust(size, b"-")

    def wants(self, member, entry):
        writer, sender, kind, _ = entry
        senders, types = self.screens[member]
        return (self.own[member] or writer is not member) and sender not in senders and kind not in types

    @rule(target=members, name=NAMES, own=st.booleans())
    def join(self, name, own):
        if len(self.at) > 8:
            return self.first
        if name in {member.name for member in self.at}:  # a name belongs to one living member
            with pytest.raises(penstock.Busy, match=f"has the name '{name}'"):
                penstock.join(self.name, name=name, own=own)
            return multiple()
        member = penstock.join(self.name, name=name, own=own)
        self.at[member], self.own[member], self.screens[member] = len(self.written), own, (set(), set())
        return member

    @rule(member=members, kind=TYPES, size=SIZES)
    def send(self, member, kind, size):
        body = self.body(size)
        try:  # large ones go in fragments, which offer does not do
            fits = (member.send(body, 0, type=kind) if size > S // 8 else member.offer(body, type=kind)) is not None
        except TimeoutError:
            fits = False
        if fits:
            self.written.append((member, member.name, kind, body))

    @rule(member=members, kind=TYPES, count=st.integers(0, 40), size=st.integers(0, 600))
    def offer_many(self, member, kind, count, size):
        bodies = [self.body(size) for _ in range(count)]
        done = member.offer_many(bodies, type=kind)
        self.written += [(member, member.name, kind, body) for body in bodies[:done]]

    @rule(member=members, senders=st.sets(NAMES), types=st.sets(TYPES))
    def screen(self, member, senders, types):
        # Messages that the member has already passed over with the old screens stay passed over: read them first.
        self.read(member, 10**6, "list")
        member.screen(senders=senders, types=types)
        self.screens[member] = (senders, types)

    @rule(member=members, count=st.integers(1, 60), way=st.sampled_from(["list", "arrow", "one", "borrow"]))
    def read(self, member, count, way):
        if way == "list":
            got = [m[:3] for m in member.poll(count)]
        elif way == "arrow":
            batch = member.poll_arrow(limit=count)
            got = list(zip(*(batch[name].to_pylist() for name in ("sender", "type", "payload")), strict=True))
        elif way == "one":
            message = member.try_recv()
            got = [] if message is None else [message[:3]]
        else:
            try:
                with member.borrow(0) as message:
                    got = [(message.sender, message.type, bytes(message.body))]
            except TimeoutError:
                got = []
        expected, at = [], self.at[member]
        limit = 1 if way in ("one", "borrow") else count
        while at < len(self.written) and len(expected) < limit:
            entry = self.written[at]
            if self.wants(member, entry):
                expected.append(entry[1:])
            at += 1
        self.at[member] = at
        assert got == expected

    @rule(member=consumes(members))
    def leave(self, member):
        if member is not self.first and member in self.at:
            member.close()
            del self.at[member]

    @rule(count=st.integers(0, 5))
    def a_process_comes_writes_and_is_killed(self, count):
        if len(self.at) > 8:
            return
        bodies = [self.body(100) for _ in range(count)]
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=_die, args=(self.name, "dead", bodies, there, os.environ["PENSTOCK_DIR"])
        )
        child.start()
        assert here.poll(30)
        sent = here.recv()
        child.kill()
        child.join()
        self.written += [(None, "dead", "x", body) for body in bodies[:sent]]

    @invariant()
    def everybody_is_known(self):
        if hasattr(self, "first"):
            here = sorted(member.name for member in self.first.members())
            assert here == sorted(member.name for member in self.at)

    def teardown(self):
        for member in getattr(self, "at", ()):
            if member is not self.first:
                member.close()
        if hasattr(self, "first"):
            self.first.close()
            assert not penstock.list_channels(self.name)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=sized(8, 30, 400),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
