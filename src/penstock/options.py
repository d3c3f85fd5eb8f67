"""Options of channels and their checks. Knows numbers and units; opens nothing."""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass
from typing import Any

from penstock._native import core as _native
from penstock.errors import Invalid, NotFound

MIB = 1 << 20


def _whole(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Invalid(f"{name} is a whole number, not {value!r}")


def _within(options: object, bits: int, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < 1 << bits:
            raise Invalid(f"{name} is {value!r}: it must be from 0 to below 2**{bits}")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How a log is made. Whoever comes second gets what the first one chose, and an error if it asked for another.

    term_length: bytes of one of the three terms, a power of two from 64 KiB to 1 GiB. The channel takes three times
        this in shared memory; the longest message that `offer` and `claim` take is a quarter of it.
    window: how far in bytes writers may be ahead of the slowest subscription, from half a term to a term.
    slots: how many publications and subscriptions may exist at once, 2 to 1024.
    initial_term_id, start_position: where counting begins; for tests at the edges.
    """

    term_length: int = 8 * MIB
    window: int | None = None
    slots: int = 64
    stream_id: int = 1
    initial_term_id: int = 0
    start_position: int = 0

    def __post_init__(self) -> None:
        _whole(self, "term_length", "effective_window", "slots", "stream_id", "initial_term_id", "start_position")
        for name in ("stream_id", "initial_term_id"):
            if not -(1 << 31) <= getattr(self, name) < 1 << 31:
                raise Invalid(f"{name} is {getattr(self, name)}: it must fit in 32 bits with a sign")
        _within(self, 32, "term_length", "effective_window", "slots")
        _within(self, 63, "start_position")
        _native.check_log_options(self.term_length, self.effective_window, self.slots, self.start_position)

    @property
    def effective_window(self) -> int:
        """The window in bytes; a whole term unless chosen."""
        return self.term_length if self.window is None else self.window

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.log_file_size(self.slots, self.term_length)


@dataclass(frozen=True, kw_only=True)
class RingOptions:
    """How a ring is made. Whoever comes second gets what the first one chose, and an error if it asked for another.

    capacity: bytes of the ring, a power of two from 64 KiB to 1 GiB: how far a reader may fall behind before it is lapped.
        The longest message is a quarter of it. All of it is allocated now, so that no later write can fail.
    slots: how many subscriptions may exist at once, 1 to 1024.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    capacity: int = 8 * MIB
    slots: int = 64
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        _whole(self, "capacity", "slots", "start_position", "start_sequence")
        _within(self, 32, "capacity", "slots")
        _within(self, 63, "start_position")
        _within(self, 64, "start_sequence")
        _native.check_ring_options(self.capacity, self.slots, self.start_position)

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.ring_file_size(self.slots, self.capacity)


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """How a sync queue is made. Whoever comes second gets what the first one chose, and an error if it asked for another.

    size: bytes that may be unread by the slowest member before writers wait, a power of two from 64 KiB to 1 GiB. The queue
        takes three times this in shared memory; the longest message is half of it.
    slots: how many members may be in it at once, 1 to 512.
    start_position: where counting begins; for tests at the edges.
    """

    size: int = MIB
    slots: int = 32
    start_position: int = 0

    def __post_init__(self) -> None:
        _whole(self, "size", "slots", "start_position")
        if not 1 <= self.slots <= 512:
            raise Invalid(f"slots is {self.slots}: it must be from 1 to 512")
        _ = self.log

    @property
    def log(self) -> LogOptions:
        """The log that the queue is made of: each member takes two of its slots."""
        return LogOptions(term_length=self.size, slots=2 * self.slots, start_position=self.start_position)

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the queue takes."""
        return self.log.file_size


@dataclass(frozen=True, kw_only=True)
class PipeOptions:
    """How a pipe channel is made. Whoever comes second gets what the first one chose, and an error if it asked for another.

    capacity: bytes that one pipe holds, a power of two from 64 KiB to 1 GiB. The longest message is half of it.
    mark: messages that one pipe holds at most: its high-water mark.
    pipes: how many there can be: one from each sender to each receiver, and one each way between peers that answer. All of them
        are allocated now, so that no later write can fail.
    peers: how many may be there at once, 2 to 1024.
    start_position: where counting begins; for tests at the edges.
    """

    capacity: int = MIB // 2
    mark: int = 1000
    pipes: int = 64
    peers: int = 32
    start_position: int = 0

    def __post_init__(self) -> None:
        _whole(self, "capacity", "mark", "pipes", "peers", "start_position")
        _within(self, 32, "capacity", "mark", "pipes", "peers")
        _within(self, 63, "start_position")
        _ = self.file_size

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.pipe_file_size(
            capacity=self.capacity,
            peers=self.peers,
            pipes=self.pipes,
            mark=self.mark,
            start_position=self.start_position,
        )


@dataclass(frozen=True, kw_only=True)
class FrameOptions:
    """How a frames channel is made. Whoever comes second gets what the first one chose, and an error if it asked for another.

    shape, dtype: of every frame; plain numbers, every dimension fixed. dtype is "u1" unless chosen.
    buffers: frames that exist at once, 2 to 1024: one is filled, one is the newest, the rest may be leased by readers. All
        of them are allocated now, so that no later write can fail.
    slots: how many subscriptions may exist at once, 1 to 1024.
    attributes: what else is to be known of the stream, plain JSON; kept in the channel.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = "|u1"
    buffers: int = 8
    slots: int = 64
    attributes: dict[str, Any] | None = None
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        _whole(self, "buffers", "slots", "start_position", "start_sequence")
        _within(self, 32, "buffers", "slots")
        _within(self, 63, "start_position")
        _within(self, 64, "start_sequence")
        if self.shape is not None:
            _ = self.file_size

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        import numpy as np

        if self.shape is None:
            raise NotFound(errno.ENOENT, "there is no such channel yet, and only who gives a shape can make it")
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def capacity(self) -> int:
        """Bytes of the ring that carries what is said of the frames: twice as many as there are buffers, 4 KiB for each."""
        return max(64 * 1024, 1 << (2 * self.buffers * 4096 - 1).bit_length())

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.frames_file_size(
            capacity=self.capacity,
            slots=self.slots,
            buffers=self.buffers,
            frame_bytes=self.frame_bytes,
            start_position=self.start_position,
        )


def seconds(value: float | None, name: str) -> float:
    """A duration in seconds; 0 for None. `Invalid` for negative or not a number."""
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not value >= 0:
        raise Invalid(f"{name} is {value!r}: it must be None or seconds from 0 on")
    return float(value)


def frame_dtype_name(dtype: Any) -> str:
    """How a frames channel keeps a dtype. `Invalid` for what is no plain number."""
    import numpy as np

    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise Invalid(f"{dtype!r} is no dtype") from error
    if found.hasobject or found.names or found.subdtype or found.itemsize == 0:
        raise Invalid(f"dtype {found} cannot be shared: frames are arrays of plain numbers")
    return str(found.str)


def frame_shape(shape: Any) -> tuple[int, ...]:
    """A shape of fixed sizes from 1 on; `Invalid` for anything else."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if (
        not sizes
        or len(sizes) > 32
        or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes)
    ):
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, whole numbers from 1 on")
    return sizes
