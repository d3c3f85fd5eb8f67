"""The frame pool against a plain model: any sequence of fills, give-backs, leases, joins, leaves and restarts.

The model knows every frame and its holders. A frame that is held does not change; a reader gets its next frame unless that was
recycled, which is counted; and the publication gets a buffer exactly when one is neither held nor open.
"""

import numpy as np
from conftest import sized
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import penstock

BUFFERS = 4


class Model(RuleBasedStateMachine):
    """`sent` counts what was published; each reader is an index into it; `held` are frames with what they must show."""

    readers = Bundle("readers")
    count = 0

    @initialize(
        start=st.sampled_from([0, (1 << 31) - (1 << 16), (1 << 63) - (1 << 35)]),
        sequence=st.sampled_from([0, (1 << 32) - 5, (1 << 63) - 5, (1 << 64) - 5]),
    )
    def make(self, start, sequence):
        Model.count += 1
        self.name, self.first = f"frames:model{Model.count}", sequence
        self.pub = penstock.publish(
            penstock.testing.channel(self.name, start_position=start, start_sequence=sequence),
            shape=(16,),
            dtype="<u8",
            buffers=BUFFERS,
            max_members=8,
        )
        self.sent, self.open, self.at, self.held = 0, [], {}, []

    def busy(self):
        """Buffers that cannot be had: open ones, and those of frames that somebody holds."""
        return len(self.open) + len({frame.sequence for _, frame, _ in self.held})

    @rule()
    def acquire(self):
        frame = self.pub.try_acquire()
        assert (frame is None) == (self.busy() == BUFFERS)
        if frame is not None:
            frame.array[...] = 2**64 - 1
            self.open.append(frame)

    @rule(which=st.integers(0, BUFFERS), commit=st.booleans())
    def end(self, which, commit):
        if not self.open:
            return
        frame = self.open.pop(which % len(self.open))
        if commit:
            frame.array[...] = self.sent
            frame.meta["number"] = self.sent
            frame.commit()
            self.sent += 1
        else:
            frame.abort()

    @rule(count=st.integers(1, 2 * BUFFERS))
    def publish(self, count):
        for _ in range(count):
            sent = self.pub.offer(np.full(16, self.sent, "<u8"))
            assert (sent is None) == (self.busy() == BUFFERS)
            self.sent += sent is not None

    @rule()
    def restart(self):
        self.pub.close()
        self.open.clear()
        self.pub = penstock.publish(self.name)

    @rule(target=readers, conflate=st.booleans())
    def subscribe(self, conflate):
        leaving = {id(sub) for sub, _, _ in self.held} - self.at.keys()  # closed, and still members by their frames
        if len(self.at) + len(leaving) > 3:
            return None
        sub = penstock.subscribe(self.name, conflate=conflate)
        self.at[id(sub)] = [sub, self.sent, conflate]
        return sub

    @rule(sub=readers, keep=st.booleans())
    def read(self, sub, keep):
        if sub is None or id(sub) not in self.at:
            return
        entry = self.at[id(sub)]
        lost, passed = sub.lost_messages, sub.conflated
        frame = sub.try_recv()
        lost, passed = sub.lost_messages - lost, sub.conflated - passed
        if frame is None:
            entry[1] += lost + passed
            assert entry[1] == self.sent
            return
        number = entry[1] + lost + passed
        assert frame.sequence == (self.first + number) % 2**64
        assert passed == 0 or entry[2]
        entry[1] = number + 1
        if keep:
            self.held.append((sub, frame, number))
        assert (frame.array == number).all()

    @rule(sub=readers, keep=st.booleans())
    def latest(self, sub, keep):
        if sub is None or id(sub) not in self.at:
            return
        frame = sub.latest()
        if frame is not None:
            number = self.sent - 1
            assert (frame.array == number).all()
            if keep:
                self.held.append((sub, frame, number))

    @rule(which=st.integers(0, 100))
    def let_go(self, which):
        if self.held:
            self.held.pop(which % len(self.held))

    @rule(sub=consumes(readers))
    def leave(self, sub):
        if sub is not None and self.at.pop(id(sub), None):
            sub.close()

    @invariant()
    def what_is_held_stays(self):
        if not hasattr(self, "name"):
            return
        for _, frame, number in self.held:
            assert (frame.array == number).all()
        status = penstock.inspect(self.name)
        assert status.details["leased"] == len({frame.sequence for _, frame, _ in self.held})
        assert status.totals.messages_sent == self.sent

    def teardown(self):
        if not hasattr(self, "name"):
            return
        self.held.clear()
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
TestFrames = Model.TestCase
