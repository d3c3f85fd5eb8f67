"""What is known of a channel from outside: sizes, totals, members. Plain values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One publication or subscription. Positions in bytes, times in nanoseconds since the epoch. name: of a sync queue's member."""

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
    bytes_lost: int
    messages_lost: int | None
    name: str | None = None


@dataclass(frozen=True)
class Totals:
    """Counts over a channel's life, of members present and gone.

    A message counts as sent once, as received once per subscription. repaired: claims of dead writers that were padded.
    messages_lost: None for logs, which know only bytes. dropped: subscriptions let go for being slow. reaped: members that
    died without closing. restarts: publications that took over, as each subscription saw it. conflated: messages passed over
    on purpose.
    """

    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    back_pressure: int
    bytes_lost: int
    messages_lost: int | None
    repaired: int
    dropped: int
    reaped: int
    restarts: int = 0
    conflated: int = 0


@dataclass(frozen=True)
class ChannelStatus:
    """A channel at one moment, read without disturbing anyone.

    publishing: whether its publication lives (None for logs, which have many). buffers, leased: of frames, how many there
    are and how many readers hold.
    """

    channel: str
    path: str
    size: int
    term_length: int
    window: int
    slots: int
    created_ns: int
    codec: str
    tail: int
    limit: int
    totals: Totals
    members: tuple[Member, ...]
    publishing: bool | None = None
    buffers: int | None = None
    leased: int | None = None

    @property
    def lag(self) -> int:
        """Bytes by which the slowest subscription is behind."""
        return max(
            (self.tail - m.position for m in self.members if m.position is not None and not m.dropped), default=0
        )
