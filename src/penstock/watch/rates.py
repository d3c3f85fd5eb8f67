"""Rates of channels, from samples of their counts. Plain values: knows no screen and no clock but the one it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from penstock.channels.latency import Latency
from penstock.channels.network import NetworkReceiver, NetworkSession
from penstock.channels.status import ChannelMember, ChannelStatus, peer_text
from penstock.channels.waiting.why import words
from penstock.channels.waiting.why.records import Wait

HISTORY = 240  # samples


class Sample(NamedTuple):
    """One sample of a channel: rates per second since the previous sample; lag in bytes. lost: 0 where the kind counts no losses. p99_ns: of the
    latencies since the previous sample; None without messages."""

    messages: float
    bytes: float
    lag: int
    lost: float
    refused: float
    p99_ns: float | None


@dataclass(frozen=True)
class MemberRate:
    """A member and its messages and bytes per second. behind: the bytes that it has yet to read; None if unknown. latency:
    since the look before."""

    member: ChannelMember
    messages: float
    bytes: float
    behind: int | None
    latency: Latency | None


@dataclass(frozen=True)
class Rate:
    """A channel and its rates per second since the previous sample.

    messages, bytes: those that were sent. Of a channel whose messages come from other machines, they are what its fastest reader received.
    lost: messages, or bytes where the kind counts bytes alone (`loses_bytes`); None where it counts no losses. refused: sends that found no
    room. naks: requests for what the network lost, sent and received; None of a channel without a network. latency: from send to receive, of the messages since the previous sample; None where none are counted. history: the samples so far, the
    newest last. waits: of threads and tasks on this channel, the longest first. held_s: how far back the messages reach that it keeps, in seconds; None if that is not known.
    """

    status: ChannelStatus
    messages: float
    bytes: float
    refused: float
    lost: float | None
    loses_bytes: bool
    naks: float | None
    latency: Latency | None
    members: tuple[MemberRate, ...]
    history: tuple[Sample, ...]
    waits: tuple[Wait, ...] = ()
    held_s: float | None = None


@dataclass
class _Known:
    status: ChannelStatus
    at: float
    history: deque[Sample] = field(default_factory=lambda: deque(maxlen=HISTORY))


class Rates:
    """Turns samples of channels into rates. A channel's first sample has rates of 0. One thread at a time.

    clock: seconds that only grow, such as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[str, int], _Known] = {}

    def update(
        self,
        found: Iterable[ChannelStatus],
        waits: Iterable[Wait] = (),
        held_s: Callable[[str], float | None] = lambda channel: None,
    ) -> list[Rate]:
        """The rates of these channels, in their order, with the waits on them. Channels that are not among them any more are forgotten.

        held_s: asked once for each channel.
        """
        now, before = self._clock(), self._known
        on: dict[str, list[Wait]] = {}
        for wait in waits:
            on.setdefault(wait.channel, []).append(wait)
        self._known, rates = {}, []
        for status in found:
            key = (status.path, status.created_ns)  # a channel created again is another one
            old = before.get(key)
            known = _Known(status, now, old.history) if old else _Known(status, now)
            self._known[key] = known
            those = tuple(on.get(status.channel, ()))
            rates.append(replace(_rate(known, old), waits=those, held_s=held_s(status.channel)))
        return rates


def _rate(new: _Known, old: _Known | None) -> Rate:
    passed = new.at - old.at if old else 0.0
    after, before = new.status.totals, (old or new).status.totals

    def per_second(more: float) -> float:
        return max(0.0, more) / passed if passed > 0 else 0.0

    loses_bytes = after.messages_lost is None
    now_lost, then_lost = (
        (after.bytes_lost, before.bytes_lost) if loses_bytes else (after.messages_lost, before.messages_lost)
    )
    naks = per_second(_naks(new.status) - _naks((old or new).status)) if new.status.network is not None else None
    seen = {(member.slot, member.joined_ns): member for member in (old.status.members if old else ())}
    members = []
    for member in new.status.members:
        then = seen.get((member.slot, member.joined_ns), member)
        members.append(
            MemberRate(
                member,
                per_second(member.messages - then.messages),
                per_second(member.bytes - then.bytes),
                _behind(new.status, member),
                _subtract_latency(member.latency, then.latency),
            )
        )
    messages = per_second(after.messages_sent - before.messages_sent)
    sent = per_second(after.bytes_sent - before.bytes_sent)
    if new.status.network is not None and new.status.network.arrives:
        readers = [one for one in members if one.member.reads]
        messages = max((one.messages for one in readers), default=0.0)
        sent = max((one.bytes for one in readers), default=0.0)
    refused = per_second(after.back_pressure - before.back_pressure)
    lost = None if now_lost is None or then_lost is None else per_second(now_lost - then_lost)
    latency = _subtract_latency(new.status.latency, (old or new).status.latency)
    if old is not None:
        p99 = None if latency is None else latency.quantile_ns(0.99)
        new.history.append(Sample(messages, sent, new.status.lag, lost or 0.0, refused, p99))
    return Rate(
        new.status,
        messages,
        sent,
        refused,
        lost,
        loses_bytes,
        naks,
        latency,
        tuple(members),
        tuple(new.history),
    )


def _naks(status: ChannelStatus) -> int:
    return status.details.get("naks_sent", 0) + status.details.get("naks_received", 0)


def _subtract_latency(now: Latency | None, then: Latency | None) -> Latency | None:
    return now if now is None or then is None else now.since(then)


def _behind(status: ChannelStatus, member: ChannelMember) -> int | None:
    if member.dropped or not member.reads:
        return None
    if member.lag is not None:
        return member.lag
    return None if member.position is None else max(0, status.position - member.position)


def _network(status: ChannelStatus) -> dict[str, Any] | None:
    """The sessions and the receivers, and the counters of the network in all."""
    if status.network is None:
        return None
    return {
        "counts": dict(status.details),
        "round_trip_ns": status.network.round_trip_ns,
        "sessions": [_peer(one) for one in status.network.sessions],
        "receivers": [_peer(one) for one in status.network.receivers],
        "problems": list(status.network.problems),
    }


def _peer(one: NetworkSession | NetworkReceiver) -> dict[str, Any]:
    return {**asdict(one), "text": peer_text(one)}


def as_row(rate: Rate) -> dict[str, Any]:
    """A channel at this sample, for programs. Times in nanoseconds, lengths in bytes."""
    status = rate.status
    return {
        "channel": status.channel,
        "kind": status.kind,
        "codec": status.codec,
        "state": status.state,
        "created_ns": status.created_ns,
        "messages_per_s": rate.messages,
        "bytes_per_s": rate.bytes,
        "refused_per_s": rate.refused,
        "lost_per_s": rate.lost,
        "naks_per_s": rate.naks,
        "lost_unit": "bytes" if rate.loses_bytes else "messages",
        "lag": status.lag,
        "latency": None if rate.latency is None else rate.latency.summary(),
        "writers": status.writers,
        "readers": status.readers,
        "size": status.size,
        "capacity": status.capacity,
        "messages_sent": status.totals.messages_sent,
        "bytes_sent": status.totals.bytes_sent,
        "lost": status.totals.bytes_lost if rate.loses_bytes else status.totals.messages_lost,
        "network": _network(status),
        "waits": [
            {"pid": one.pid, "what": one.what, "seconds": one.seconds, "text": words.wait_text(one)}
            for one in rate.waits
        ],
        "members": [
            {
                "role": one.member.role,
                "pid": one.member.pid,
                "name": one.member.name,
                "reads": one.member.reads,
                "writes": one.member.writes,
                "messages_per_s": one.messages,
                "bytes_per_s": one.bytes,
                "lag": one.behind,
                "latency": None if one.latency is None else one.latency.summary(),
                "dropped": one.member.dropped,
            }
            for one in rate.members
        ],
    }
