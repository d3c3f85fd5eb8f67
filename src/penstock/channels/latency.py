"""Latencies of messages, from send to receive, as a subscription counts them in its channel. Plain values, no I/O."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field

BUCKETS = 120
UNIT_NS, STEPS = 64, 4  # the first bucket ends at 64 ns; each power of two is cut into four
QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}


def floor_ns(bucket: int) -> int:
    """Where a bucket begins, in nanoseconds. The one before it ends there."""
    if bucket < STEPS:
        return bucket * UNIT_NS
    return (STEPS + bucket % STEPS) * UNIT_NS << bucket // STEPS - 1


@dataclass(frozen=True)
class Latency:
    """Latencies from send to receive, counted in buckets of which each ends a quarter, at most, above its beginning.

    The clock is not read for each message. A message that arrives at an idle reader is measured; of messages that were
    waiting, one in 61 is, and counts for all of them. Messages that are older than the subscription do not count. So `messages` is about the number
    of messages that were received.

    counts: messages in each of the 120 buckets; `floor_ns` returns where a bucket begins. sum_ns: of all latencies. max_ns: the longest that was
    measured. measured: how many messages were measured. Nanoseconds; the sender's clock and the reader's are both this machine's, but for `udp:`,
    where latencies are corrected by the measured offset of the sender's clock: `NetworkSession.clock_correction_ns`.
    """

    counts: tuple[int, ...] = field(repr=False)
    sum_ns: int
    max_ns: int
    measured: int

    @classmethod
    def of(cls, words: bytes) -> Latency:
        """From the words of a channel's file."""
        total, longest, measured, *counts = struct.unpack(f"<{BUCKETS + 3}Q", words)
        return cls(tuple(counts), total, longest, measured)

    @property
    def messages(self) -> int:
        """How many messages the buckets count."""
        return sum(self.counts)

    @property
    def mean_ns(self) -> float | None:
        """The mean. None if nothing was counted."""
        messages = self.messages
        return self.sum_ns / messages if messages else None

    def quantile_ns(self, share: float) -> float | None:
        """The latency that this share of the messages did not exceed: 0.99 for p99. None if nothing was counted.

        It is interpolated within a bucket, and so at most a quarter off. It is never above max_ns.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}: it must be from 0 to 1")
        wanted, below = share * self.messages, 0
        for bucket, count in enumerate(self.counts):
            if count and below + count >= wanted:
                start, end = floor_ns(bucket), min(floor_ns(bucket + 1), max(self.max_ns, floor_ns(bucket)))
                return min(start + (end - start) * (wanted - below) / count, self.max_ns)
            below += count
        return None

    def since(self, earlier: Latency) -> Latency:
        """The messages after an earlier look at the same counts. Its max_ns is the end of the highest bucket, or max_ns if that is less."""
        counts = tuple(max(0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True))
        highest = max((bucket for bucket, count in enumerate(counts) if count), default=None)
        longest = 0 if highest is None else min(self.max_ns, floor_ns(highest + 1))
        return Latency(counts, max(0, self.sum_ns - earlier.sum_ns), longest, max(0, self.measured - earlier.measured))

    def cumulative(self) -> list[tuple[int, int]]:
        """For each power of two of `UNIT_NS`, how many messages took less, as Prometheus wants its buckets; the last one is left out."""
        below = list(itertools.accumulate(self.counts))
        ends = [0, *range(STEPS - 1, BUCKETS - 1, STEPS)]
        return [(floor_ns(bucket + 1), below[bucket]) for bucket in ends]

    def summary(self) -> dict[str, float | None]:
        """The main figures, for JSON and tables."""
        quantiles = {name: self.quantile_ns(share) for name, share in QUANTILES.items()}
        shown = {name: None if value is None else round(value) for name, value in quantiles.items()}
        mean = self.mean_ns
        return {
            "messages": self.messages,
            "measured": self.measured,
            "mean_ns": None if mean is None else round(mean),
            **shown,
            "max_ns": self.max_ns if self.measured else None,
        }
