"""The ring against a plain model: any sequence of sends, claims, joins, reads, leaves and restarts.

The model knows every message and each reader's place in them. A reader gets exactly the next one, or finds itself at the newest
end with everything between counted as lost; that only if it was behind by nearly the ring.
"""

import numpy as np
from conftest import sized
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import penstock

C = 1 << 16
sizes = st.one_of(st.integers(0, 200), st.sampled_from([0, 31, 32, 33, C // 8, C // 4 - 33, C // 4 - 32]))


class Model(RuleBasedStateMachine):
    """`sent` is all that was published; each reader is an index into it."""

    readers = Bundle("readers")
    count = 0

    @initialize(
        start=st.sampled_from([0, (1 << 31) - C, (1 << 32) - C, (1 << 63) - (1 << 35)]),
        sequence=st.sampled_from([0, (1 << 32) - 5, (1 << 64) - 5]),
    )
    def make(self, start, sequence):
        Model.count += 1
        self.name = f"ring:model{Model.count}"
        self.pub = penstock.publish(
            penstock.testing.channel(self.name, start_position=start, start_sequence=sequence),
            capacity=C,
            max_members=8,
        )
        self.sent = []
        self.ends = []  # the position after each message
        self.at = {}
        self.restarts = 0

    def content(self, size):
        return np.random.default_rng(len(self.sent)).bytes(size)

    @rule(size=sizes)
    def send(self, size):
        data = self.content(size)
        self.ends.append(self.pub.send(data))
        self.sent.append(data)

    @rule(count=st.integers(0, 400), size=st.integers(0, 500))
    def send_many(self, count, size):
        messages = [self.content(size) for _ in range(count)]
        assert self.pub.offer_many(messages) == count
        self.sent += messages
        self.ends += [None] * count
        if count:
            self.ends[-1] = self.pub.position

    @rule(size=sizes, commit=st.booleans())
    def claim(self, size, commit):
        claim = self.pub.claim(size)
        data = self.content(size)
        with_view = claim.__enter__()
        with_view[:] = data
        if commit:
            self.ends.append(claim.commit())
            self.sent.append(data)
        else:
            claim.abort()

    @rule()
    def restart(self):
        self.pub.close()
        self.pub = penstock.publish(self.name)
        self.restarts += 1

    @rule(target=readers, conflate=st.booleans())
    def subscribe(self, conflate):
        if len(self.at) > 3:
            return None
        sub = penstock.subscribe(self.name, conflate=conflate)
        self.at[id(sub)] = [sub, len(self.sent), conflate, 0, 0]  # handle, next index, kind, lost, conflated
        return sub

    @rule(sub=readers, limit=st.integers(1, 50), arrow=st.booleans())
    def read(self, sub, limit, arrow):
        if sub is None or id(sub) not in self.at:
            return
        entry = self.at[id(sub)]
        behind = self.pub.position - sub.position
        got = sub.poll_arrow(limit).column("payload").to_pylist() if arrow else sub.poll(limit)
        if sub.lost_messages != entry[3]:  # lapped: to the newest end, all between counted, nothing read
            assert behind > C - C // 32 - C // 4 - 64
            assert sub.lost_messages - entry[3] == len(self.sent) - entry[1]
            assert got == []
            assert sub.position == self.pub.position
            entry[3], entry[1] = sub.lost_messages, len(self.sent)
        elif entry[2]:
            assert got == ([self.sent[-1]] if entry[1] < len(self.sent) else [])
            passed = max(len(self.sent) - entry[1] - 1, 0)
            assert sub.conflated - entry[4] == passed
            entry[4], entry[1] = sub.conflated, len(self.sent)
        else:
            assert got == self.sent[entry[1] : entry[1] + limit]
            entry[1] += len(got)

    @rule(sub=consumes(readers))
    def leave(self, sub):
        if sub is not None and self.at.pop(id(sub), None):
            sub.close()

    @invariant()
    def books_balance(self):
        if not hasattr(self, "name"):
            return
        assert penstock.inspect(self.name).totals.messages_sent == len(self.sent)
        assert self.pub.readers == len(self.at)
        assert self.pub.all_read == all(entry[0].position == self.pub.position for entry in self.at.values())

    def teardown(self):
        if not hasattr(self, "name"):
            return
        for handle in [self.pub, *(entry[0] for entry in self.at.values())]:
            handle.close()
        penstock.remove(self.name)


Model.TestCase.settings = settings(
    max_examples=sized(15, 40, 400),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestRing = Model.TestCase
