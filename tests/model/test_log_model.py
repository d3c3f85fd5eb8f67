"""The log against a plain model: any sequence of sends, claims, joins, reads and leaves gives what a list would."""

import numpy as np
from conftest import sized
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import penstock

T = 1 << 16
sizes = st.one_of(st.integers(0, 200), st.sampled_from([0, 31, 32, 33, T // 8, T // 4 - 32, T // 4 - 31, T // 3]))


class Model(RuleBasedStateMachine):
    """`sent` is all that was published; each reader is an index into it."""

    publications = Bundle("publications")
    claims = Bundle("claims")
    readers = Bundle("readers")
    count = 0

    @initialize(
        start=st.sampled_from([0, (1 << 31) - T, (1 << 47) - T, (1 << 48) - T]),
        term=st.sampled_from([0, -1, 2**31 - 1]),
    )
    def make(self, start, term):
        Model.count += 1
        self.name = f"log:model{Model.count}"
        self.first = penstock.publish(
            penstock.testing.channel(self.name, start_position=start, initial_term_id=term),
            term_length=T,
            max_members=16,
        )
        self.sent = []  # messages in the log's order; None where a claim is still open
        self.places = {}
        self.at = {}
        self.opened = [self.first]
        self.serial = 0

    def content(self, size):
        self.serial += 1
        return np.random.default_rng(self.serial).bytes(size)

    @rule(target=publications)
    def publish(self):
        if len(self.opened) > 10:
            return self.first
        pub = penstock.publish(self.name)
        self.opened.append(pub)
        return pub

    @rule(pub=publications, size=sizes)
    def offer(self, pub, size):
        data = self.content(size)
        if size > pub.max_payload:
            try:
                pub.offer(data)
            except penstock.TooLarge:
                return
            raise AssertionError("a message that cannot fit was taken")
        if pub.offer(data) is not None:
            self.sent.append(data)
        else:
            assert self.at, "back pressure without a reader"

    @rule(pub=publications, count=st.integers(0, 30), size=st.integers(0, 500))
    def offer_many(self, pub, count, size):
        messages = [self.content(size) for _ in range(count)]
        taken = pub.offer_many(messages)
        self.sent += messages[:taken]

    @rule(target=claims, pub=publications, size=st.integers(0, 300))
    def claim(self, pub, size):
        try:
            claim = pub.claim(size, timeout=0)
        except (TimeoutError, penstock.Busy):
            return None
        self.sent.append(None)
        self.places[id(claim)] = (claim, len(self.sent) - 1, size)
        return claim

    @rule(claim=consumes(claims), commit=st.booleans())
    def settle(self, claim, commit):
        if claim is None:
            return
        _, place, size = self.places.pop(id(claim))
        if commit:
            data = self.content(size)
            with claim as view:
                view[:] = data
            self.sent[place] = data
        else:
            claim.abort()
            self.sent[place] = b"aborted"  # readers never see this

    @rule(target=readers)
    def subscribe(self):
        if len(self.at) > 3:
            return None
        sub = penstock.subscribe(self.name)
        self.at[id(sub)] = [sub, len(self.sent)]
        return sub

    @rule(sub=readers, limit=st.integers(1, 50), arrow=st.booleans())
    def read(self, sub, limit, arrow):
        if sub is None or id(sub) not in self.at:
            return
        got = sub.poll_arrow(limit).column("payload").to_pylist() if arrow else sub.poll(limit)
        entry = self.at[id(sub)]
        for message in got:
            while self.sent[entry[1]] == b"aborted":
                entry[1] += 1
            assert self.sent[entry[1]] is not None, "read past an open claim"
            assert message == self.sent[entry[1]]
            entry[1] += 1
        if len(got) < limit:  # then there was no more to be had
            rest = [m for m in self.sent[entry[1] :] if m != b"aborted"]
            assert not rest or rest[0] is None

    @rule(sub=consumes(readers))
    def leave(self, sub):
        if sub is not None and self.at.pop(id(sub), None):
            sub.close()

    @invariant()
    def books_balance(self):
        if not hasattr(self, "name"):
            return
        totals = penstock.inspect(self.name).totals
        assert totals.messages_sent == sum(m is not None and m != b"aborted" for m in self.sent)

    def teardown(self):
        if not hasattr(self, "name"):
            return
        for claim, _, _ in self.places.values():
            claim.abort()
        for handle in [*self.opened, *(entry[0] for entry in self.at.values())]:
            handle.close()
        penstock.remove(self.name)


Model.TestCase.settings = settings(
    max_examples=sized(15, 40, 400),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLog = Model.TestCase
