"""A channel seen from outside: sizes, totals, members. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.channels.latency import Latency
from penstock.util.markup import count, duration, moment, size, table

if TYPE_CHECKING:  # only channels of the network have one
    from penstock.channels.network import NetworkReceiver, NetworkSession, NetworkStatus

READS_ONLY = ("subscription", "pull", "tap")
WRITES_ONLY = ("publication", "exclusive", "push")


@dataclass(frozen=True)
class ChannelMember:
    """One publication or subscription. Positions in bytes, times in nanoseconds since the epoch.

    name: of a member of a sync queue or a pipe channel. lag: bytes that wait for a member of a pipe channel, which has more than
    one stream to read. latency: of the messages that it received, None of a member that only writes, and where none are counted.
    """

    slot: int
    role: str
    dropped: bool
    pid: int
    session: int
    joined_ns: int
    position: int | None
    messages: int
    bytes: int
    back_pressure: int
    bytes_lost: int | None
    messages_lost: int | None
    name: str | None = None
    lag: int | None = None
    latency: Latency | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> ChannelMember:
        """Converts the compiled core's description of a member."""
        return cls(**{**found, "latency": latency_of(found)})

    @property
    def reads(self) -> bool:
        """Whether it receives messages. A peer that answers reads and writes."""
        return self.role not in WRITES_ONLY

    @property
    def writes(self) -> bool:
        """Whether it sends messages."""
        return self.role not in READS_ONLY


@dataclass(frozen=True)
class Totals:
    """Counts over a channel's life, of present and former members.

    A message counts as sent once, as received once per subscription. bytes_sent, bytes_received: of messages alone, but those of a sync
    queue count with their sender's name and their type. repaired: claims of dead writers that were padded.
    messages_lost: None for logs, which count only bytes. ZeroMQ counts no losses: bytes_lost is None, too. dropped: slow subscriptions that were disconnected. reaped: members that
    died without closing. restarts: publications that took over, as each subscription saw it. conflated: messages skipped
    on purpose.
    """

    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    back_pressure: int
    bytes_lost: int | None
    messages_lost: int | None
    repaired: int
    dropped: int
    reaped: int
    restarts: int = 0
    conflated: int = 0


@dataclass(frozen=True)
class ChannelStatus:
    """A channel at one moment, read without locks. The fields mean the same for every kind.

    path: the channel's file. state: "open" while the channel waits for its first publication, then "ready"; until then its codec is
    None, and its capacity and position are 0. size: bytes of shared memory. capacity: bytes by which writers may be ahead of a slow
    reader. max_members: how many there may be at once. position: the end of the stream in bytes. details: the kind's own numbers under
    their own names. A log has `term_length` and `limit`, the position that writers may not pass; if it keeps last values, `last_values`,
    the keys that it keeps now, and `last_keys`, how many there may be. A frames channel has `buffers` and
    `leased`, the buffers that readers hold. A pipe channel has `pipes`, `max_pipes` and `max_messages`;
    `unread_messages`, those that no reader has finished; `redelivered`, those that were redelivered; and `taken_over`, the pipes of
    dead readers that held some. latency: of the messages of all subscriptions that there were; None where none are counted. network: its
    sessions and receivers, of a `udp:` channel; None of other kinds. last: the field of messages by which a log keeps the last value of
    each key; None: it keeps none.
    """

    channel: str
    path: str
    kind: str
    state: str
    codec: str | None
    size: int
    created_ns: int
    capacity: int
    max_members: int
    position: int
    totals: Totals
    members: tuple[ChannelMember, ...]
    details: Mapping[str, int]
    latency: Latency | None = None
    network: NetworkStatus | None = None
    last: str | None = None

    @property
    def lag(self) -> int:
        """Bytes by which the slowest reader is behind. Readers publish their positions from time to time, so this may be more than their own `lag`."""
        behind = [
            max(0, self.position - m.position) if m.lag is None else m.lag  # the reader may have gone on since
            for m in self.members
            if m.position is not None and not m.dropped
        ]
        return max(behind, default=0)

    @property
    def writers(self) -> int:
        """The number of publications."""
        return sum(member.writes for member in self.members)

    @property
    def readers(self) -> int:
        """How many members read."""
        return sum(member.reads for member in self.members)

    def _repr_html_(self) -> str:
        """For notebooks: the channel, and its members."""
        facts = {
            "state": self.state,
            "codec": self.codec or "(open)",
            "made": moment(self.created_ns),
            "memory": size(self.size),
            "capacity": size(self.capacity),
            "sent": f"{count(self.totals.messages_sent)} messages, {size(self.totals.bytes_sent)}",
            "received": f"{count(self.totals.messages_received)} messages, {size(self.totals.bytes_received)}",
            "lag": size(self.lag),
            "lost": _lost(self.totals),
            "latency": _latency(self.latency),
            "found no room": f"{count(self.totals.back_pressure)} sends",
            **{name.replace("_", " "): count(value) for name, value in self.details.items()},
        }
        members = table(
            ("role", "pid", "name", "messages", "bytes", "behind", "lost", "p50", "p99"),
            [
                (
                    member.role + (" (dropped)" if member.dropped else ""),
                    str(member.pid),
                    member.name or "",
                    count(member.messages),
                    size(member.bytes),
                    _behind(self, member),
                    "" if member.bytes_lost is None else size(member.bytes_lost),
                    *(
                        "" if member.latency is None else duration(member.latency.quantile_ns(share))
                        for share in (0.5, 0.99)
                    ),
                )
                for member in self.members
            ],
            ("pid", "messages", "bytes", "behind", "lost", "p50", "p99"),
        )
        shown = table(("", self.channel), facts.items()) + (members if self.members else "")
        return shown + ("" if self.network is None else _network(self.network))


def latency_of(found: Mapping[str, Any]) -> Latency | None:
    """The latencies that the compiled part found in a channel's file."""
    words = found.get("latency")
    return None if words is None else Latency.of(words)


def _behind(status: ChannelStatus, member: ChannelMember) -> str:
    if member.lag is not None:
        return size(member.lag)
    return "" if member.position is None or not member.reads else size(max(0, status.position - member.position))


def _latency(latency: Latency | None) -> str:
    if latency is None or not latency.measured:
        return "not measured"
    p50, p99 = (duration(latency.quantile_ns(share)) for share in (0.5, 0.99))
    return f"p50 {p50}, p99 {p99}, max {duration(latency.max_ns)}"


def _network(network: NetworkStatus) -> str:
    rows = [(peer_text(one),) for one in network.peers]
    return table(("network",), rows) if rows else ""


def peer_text(one: NetworkSession | NetworkReceiver) -> str:
    """A session or a receiver in one line, for people."""
    from penstock.channels.network import NetworkReceiver

    trip = "" if one.round_trip_ns is None else f"rtt {duration(one.round_trip_ns)}"
    window = f"window {size(one.window)}"
    if isinstance(one, NetworkReceiver):
        words = [
            f"to {one.address}",
            one.problem,
            trip,
            f"{count(one.naks_received)} NAKs",
            f"lag {size(one.lag)}",
            window,
        ]
    else:
        words = [f"from {one.source}", one.state, one.problem, trip, _clock(one), f"{count(one.naks_sent)} NAKs"]
        words += [f"repaired {size(one.bytes_repaired)}", f"lost {size(one.bytes_lost)}", window]
    return "  ".join(word for word in words if word)


def _clock(one: NetworkSession) -> str:
    """The measured offset of the sender's clock, and whether latencies are corrected by it. Empty: not measured."""
    if one.clock_offset_ns is None or one.clock_error_ns is None:
        return ""
    sign = "+" if one.clock_offset_ns >= 0 else "−"
    offset = f"{sign}{duration(abs(one.clock_offset_ns))} ± {duration(one.clock_error_ns)}"
    return f"corrected by {offset}" if one.clock_correction_ns else f"clock {offset}"


def _lost(totals: Totals) -> str:
    if totals.messages_lost is not None:
        return f"{count(totals.messages_lost)} messages"
    return "unknown" if totals.bytes_lost is None else size(totals.bytes_lost)


class Channels(list[ChannelStatus]):
    """Channels, as `penstock.list_channels` returns them: a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no channels</p>"
        right = ("memory", "writers", "readers", "messages sent", "bytes sent", "lag", "lost")
        rows = [
            (
                status.channel,
                status.codec or "(open)",
                size(status.size),
                count(status.writers),
                count(status.readers),
                count(status.totals.messages_sent),
                size(status.totals.bytes_sent),
                size(status.lag),
                _lost(status.totals),
            )
            for status in self
        ]
        return table(("channel", "codec", *right), rows, right)
