"""What the network of a channel does, seen from one machine: the sessions that it receives, the receivers of its publications. Plain values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkSession:
    """One publication as this machine receives it. Positions and lengths in bytes, times in nanoseconds.

    session, source: its number, and where it sends from. state: "open", "closed" if its sender said that it has ended, "lost" if the sender fell
    silent before. position, end: up to where all subscriptions have read, and the highest position seen. window: what the sender may be ahead.
    silent_ns: since its last datagram. naks_sent: requests for what is missing. bytes_repaired: what arrived after it was asked for. losses,
    bytes_lost: gaps that were given up. round_trip_ns: to the sender and back, None if not measured; of a sender that is no Penstock peer, it is measured
    while something is missing. clock_offset_ns: by how much the sender's clock is ahead of this machine's, None if not measured, as of a sender
    that is no Penstock peer; it is off by clock_error_ns at most. clock_correction_ns: what is added to latencies because of it; 0 where the clocks may be
    the same one. problem: what stops it, as that nothing is heard from it, and what to do; None: nothing is known.
    """

    session: int
    source: str
    state: str
    position: int
    end: int
    window: int
    mtu: int
    silent_ns: int
    datagrams_received: int
    bytes_received: int
    duplicates: int
    naks_sent: int
    bytes_repaired: int
    losses: int
    bytes_lost: int
    round_trip_ns: int | None
    clock_offset_ns: int | None
    clock_error_ns: int | None
    clock_correction_ns: int
    problem: str | None


@dataclass(frozen=True)
class NetworkReceiver:
    """One receiver of a publication of this machine. Positions and lengths in bytes, times in nanoseconds.

    session: the publication's number. address, receiver: where the receiver is, and its id. position: its subscriptions have read up to there. lag: from
    there to the end of the publication's log. window: what the publication may be ahead. readers: its subscriptions. silent_ns: since its last
    status message. naks_received: its requests for what is missing. round_trip_ns: as it measured it, None if it reported none. problem: what stops it, and
    what to do; None: nothing is known.
    """

    session: int
    address: str
    receiver: int
    position: int
    lag: int
    window: int
    readers: int
    silent_ns: int
    naks_received: int
    round_trip_ns: int | None
    problem: str | None


@dataclass(frozen=True)
class NetworkStatus:
    """What the network of a channel does, seen from this machine.

    sessions: the publications that it receives, until their messages are read. receivers: those of its publications. arrives: messages come from
    other publications, and none writes here.
    """

    sessions: tuple[NetworkSession, ...]
    receivers: tuple[NetworkReceiver, ...]
    arrives: bool

    @property
    def peers(self) -> tuple[NetworkSession | NetworkReceiver, ...]:
        """The sessions and the receivers."""
        return (*self.sessions, *self.receivers)

    @property
    def round_trip_ns(self) -> int | None:
        """The longest round trip. None if none is known."""
        known = [one.round_trip_ns for one in self.peers if one.round_trip_ns is not None]
        return max(known, default=None)

    @property
    def problems(self) -> tuple[str, ...]:
        """What stops sessions and receivers, and what to do. Empty: nothing is known."""
        return tuple(dict.fromkeys(one.problem for one in self.peers if one.problem))
