"""The options of a new sync queue. Knows numbers and units; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._native import core as _native
from penstock.channels.checks import MIB, TERM_LENGTH_MAX, TERM_LENGTH_MIN, check_whole
from penstock.errors import Invalid
from penstock.kinds.log import LogOptions


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """The options of a new sync queue. The first member decides; `Mismatch` if a later one asks for something else.

    capacity: bytes that may be unread by the slowest member before writers wait, a power of two from 64 KiB to 1 GiB. The queue
    takes three times this in shared memory; the longest message is half of it.
    max_members: how many members may be in it at once, 1 to 512; a publication or a subscription counts for half a member.
    start_position: where counting begins; for tests at the edges.
    """

    capacity: int = MIB
    max_members: int = 32
    start_position: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "capacity", "max_members", "start_position")
        if not 1 <= self.max_members <= 512:
            raise Invalid(f"max_members is {self.max_members}: it must be from 1 to 512")
        if not TERM_LENGTH_MIN <= self.capacity <= TERM_LENGTH_MAX or self.capacity & (self.capacity - 1):
            raise Invalid(
                f"capacity is {self.capacity}: it must be a power of two from {TERM_LENGTH_MIN} to {TERM_LENGTH_MAX}"
            )
        if self.start_position % self.capacity:
            raise Invalid(f"start_position is {self.start_position}: it must be a multiple of the capacity below 2^63")
        _ = self.log

    @property
    def log(self) -> LogOptions:
        """The log that the queue is made of: each member takes two of its slots."""
        return LogOptions(
            term_length=self.capacity, max_members=2 * self.max_members, start_position=self.start_position
        )

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the queue takes."""
        return _native.log_file_size(self.log.max_members, self.log.term_bytes, sync=True)
