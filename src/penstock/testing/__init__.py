"""For tests of programs that use Penstock: when each message is delivered, when each wait returns, and options that only tests have."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Protocol, Self

from penstock import errors
from penstock.channels.checks import counted, deadline_of
from penstock.channels.storage import memory
from penstock.channels.uri.opener import TEST_ONLY, parse
from penstock.channels.uri.value import AnyChannel, ChannelValue, Fake, Tested
from penstock.util.clock import ManualClock
from penstock.util.strict import Strict

__all__ = ["Gate", "ManualClock", "Stepper", "channel", "gate", "hold"]


def channel(
    channel: ChannelValue[Any] | Fake[Any] | str,
    *,
    clock: ManualClock | None = None,
    start_position: int | None = None,
    initial_term_id: int | None = None,
    start_sequence: int | None = None,
    prefault: bool | None = None,
) -> Tested:
    """A channel, by its URI or as a value, with options that only tests have. `publish`, `subscribe` and `join` take it in its place.

    clock: stamps messages. start_position, initial_term_id, start_sequence: the first values of a new channel's counts, for tests at the
    edges. prefault: touches all of the channel's memory now, so that no later page fault disturbs a measurement. `TypeError` for an
    option that the kind does not have.

    >>> import penstock, penstock.testing
    >>> late = penstock.testing.channel("fake:log:late", start_position=1 << 40)
    >>> with penstock.publish(late) as pub:
    ...     pub.position == 1 << 40
    True
    """
    given = {
        "clock": clock,
        "start_position": start_position,
        "initial_term_id": initial_term_id,
        "start_sequence": start_sequence,
        "prefault": prefault,
    }
    tested = {name: value for name, value in given.items() if value is not None}
    kind = parse(channel).kind
    known = {
        name for verb in ("publish", "subscribe", "join") if getattr(kind, verb) for name in kind.option_names(verb)
    }
    for name in tested:
        if name not in known:
            raise TypeError(
                f"{channel}: channels of kind {kind.name!r} have no option {name!r}; of {', '.join(sorted(TEST_ONLY))} they have "
                f"{', '.join(sorted(TEST_ONLY & known)) or 'none'}"
            )
    return Tested(channel, tested)


class Gate(Protocol):
    """A gate between a fake channel and its subscriptions. While closed, it delivers messages and ends waits only on request."""

    @property
    def waiting(self) -> int:
        """How many threads wait for a message of this channel now."""
        ...

    def hold(self) -> None:
        """Closes the gate."""
        ...

    def deliver(self, count: int) -> None:
        """Delivers `count` more messages to every subscription."""
        ...

    def expire(self) -> None:
        """Ends every wait that is under way as if its timeout had passed."""
        ...

    def release(self) -> None:
        """Opens the gate."""
        ...


def gate(channel: AnyChannel) -> Gate:
    """The gate of a fake channel. `Invalid` for a channel that other processes share, `NotFound` if there is none."""
    parsed = parse(channel)
    if not parsed.fake:
        raise errors.Invalid(f"{channel} is shared with other processes: a test can only hold fake channels")
    return memory.gate(parsed)


class Stepper(Strict):
    """A test's control of a channel of this process; as a context manager it releases the channel at the end.

    While it holds, subscriptions get what `deliver` allows and nothing else, and their waits (`recv`, iteration, `wait`,
    `recv_async`) end with a message or by `expire`, never by the clock. Publications are not affected. Use it from one thread.
    """

    channel: str

    def __init__(self, channel: AnyChannel) -> None:
        self._gate = gate(channel)
        self._gate.hold()
        self.channel = str(parse(channel))

    def deliver(self, count: int = 1) -> None:
        """Delivers `count` more messages to every subscription of the channel."""
        self._gate.deliver(counted(count, "deliver", "count", self))

    def deliver_all(self) -> None:
        """Delivers all messages to every subscription, until the next `hold`."""
        self._gate.deliver((1 << 64) - 1)

    def expire(self) -> None:
        """Ends every wait that is under way as if its timeout had passed."""
        self._gate.expire()

    @property
    def waiting(self) -> int:
        """How many threads wait for a message of this channel now."""
        return self._gate.waiting

    def await_waiting(self, count: int = 1, timeout: float | None = 10) -> None:
        """Waits until that many threads wait, and so cannot continue. `TimedOut` after `timeout` seconds; None: it waits for ever."""
        count, deadline = counted(count, "await_waiting", "count", self), deadline_of(timeout, self)
        while self._gate.waiting < count:
            if deadline is not None and time.monotonic() > deadline:
                raise errors.TimedOut(f"{self.channel}: {self._gate.waiting} threads wait, not {count}")
            time.sleep(0.0005)

    def release(self) -> None:
        """Releases the channel: messages are delivered as usual again."""
        self._gate.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold(channel: AnyChannel) -> Stepper:
    """Puts a channel of this process under the test's control: `fake:KIND:NAME`, or any while `PENSTOCK_FAKE` is set.

    >>> import penstock, penstock.testing
    >>> with penstock.publish("fake:log:doc") as pub, penstock.subscribe("fake:log:doc") as sub:
    ...     with penstock.testing.hold("fake:log:doc") as step:
    ...         position = pub.send(b"one")
    ...         before = sub.try_recv()
    ...         step.deliver()
    ...         before, sub.try_recv()
    (None, b'one')
    """
    return Stepper(channel)
