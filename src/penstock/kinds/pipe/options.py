"""The options of a new pipe channel. Knows numbers and units; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._native import core as _native
from penstock.channels.checks import MIB, check_whole, within


@dataclass(frozen=True, kw_only=True)
class PipeOptions:
    """The options of a new pipe channel. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes that one pipe holds, a power of two from 64 KiB to 1 GiB. The longest message is half of it.
    max_messages: messages that one pipe holds: its high-water mark.
    max_pipes: how many pipes there can be: one from each sender to each receiver, and one each way between members that answer.
    All of them are allocated now, so that no later write can fail.
    max_members: how many publications, subscriptions and sockets there can be at once, 2 to 1024.
    start_position: where the bytes of each pipe are counted from; for tests at the edges.
    """

    capacity: int = MIB // 2
    max_messages: int = 1000
    max_pipes: int = 64
    max_members: int = 32
    start_position: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "capacity", "max_messages", "max_pipes", "max_members", "start_position")
        within(self, 32, "capacity", "max_messages", "max_pipes", "max_members")
        within(self, 63, "start_position")
        _ = self.file_size

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.pipe_file_size(
            capacity=self.capacity,
            max_members=self.max_members,
            max_pipes=self.max_pipes,
            max_messages=self.max_messages,
            start_position=self.start_position,
        )
