"""Options of channels and their checks. Knows numbers and units; opens nothing."""

from __future__ import annotations

import errno
import json
import math
import operator
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock._native import core as _native
from penstock.codecs.values import sizes_of
from penstock.errors import Invalid, NotFound, text_of

MIB = 1 << 20
TERM_LENGTH_MIN, TERM_LENGTH_MAX = 64 * 1024, 1 << 30
_GIVEN_AS = {"term_bytes": "term_length", "room": "capacity"}  # a log's computed values, by the option that gives them


def _whole(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Invalid(f"{_GIVEN_AS.get(name, name)} is a whole number, not {value!r}")


def _within(options: object, bits: int, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < 1 << bits:
            raise Invalid(f"{_GIVEN_AS.get(name, name)} is {value!r}: it must be from 0 to below 2**{bits}")


def flag(value: Any, name: str) -> bool:
    """True or False, NumPy's too; `Invalid` for anything else."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise Invalid(f"{name} is {value!r}: it must be True or False")


def whole(value: Any, name: str, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """A whole number within its range; `Invalid` for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise Invalid(f"{name} is {value!r}: it must be a whole number from {least} to {most}")
    return number


def texts(value: Any, name: str, what: str) -> list[str]:
    """A list of texts from any iterable of them; `Invalid` for anything else, also for one text. what: for the error."""
    found = None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        found = list(value)
    if found is None or not all(isinstance(one, str) for one in found):
        raise Invalid(f"{name} is {value!r}: it must be a list of {what}")
    return found


def callback(value: Any, name: str) -> None:
    """`Invalid` for what is neither a function nor None."""
    if value is not None and not callable(value):
        raise Invalid(f"{name} is {value!r}: it must be a function")


def text_bytes(value: Any, what: str) -> bytes:
    """A name, a type or a topic as it travels: text as UTF-8. Escapes that stand for other bytes become those again."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Invalid(f"{what} is text or bytes, not {type(value).__name__}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{what} is {value!r}, which has half of a character at {error.start}: no UTF-8 says that"
        ) from None


class HasChannel(Protocol):
    """A handle, which errors about its arguments name by its channel."""

    @property
    def channel(self) -> str:
        """The channel's URI."""


def counted(value: Any, method: str, name: str, handle: HasChannel) -> int:
    """An argument of a handle's method that counts, checked as compiled methods check it. The error names the channel.

    TypeError for what is no whole number, `Invalid` below 0.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{handle.channel}: {method}(): {name} is a whole number, not {type(value).__name__}") from None
    if not 0 <= number < 1 << 63:
        raise Invalid(f"{handle.channel}: {method}(): {name} is {number}: it must be from 0 to {(1 << 63) - 1}")
    return number


def more_than_zero(value: Any, name: str) -> None:
    """`Invalid` for an argument that is no number more than 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise Invalid(f"{name} is {value!r}: it must be a number more than 0")


def manual_clock(value: Any) -> _native.ManualClock | None:
    """A clock that a test sets, or None; `Invalid` for anything else."""
    if value is None or isinstance(value, _native.ManualClock):
        return value
    raise Invalid(f"clock is {value!r}: it must be a penstock.testing.ManualClock or None")


def plain_json(value: Any, name: str) -> dict[str, Any] | None:
    """A dictionary that JSON keeps as it is, or None; `Invalid` for anything else."""
    if value is None:
        return None
    try:
        if isinstance(value, dict) and json.loads(json.dumps(value, allow_nan=False)) == value:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    raise Invalid(
        f"{name} is {value!r}: it must be a dictionary of what JSON keeps: texts, finite numbers, true, false, null, lists, and "
        "dictionaries whose keys are texts"
    )


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How a log is made. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes by which writers may be ahead of the slowest subscription, from half a term to a term; a whole term unless given.
    term_length: bytes of one of the three terms, a power of two from 64 KiB to 1 GiB; unless given, the smallest that `capacity`
    fits in, or 8 MiB. The channel takes three times this in shared memory; the longest message that `offer` and `claim` take is a
    quarter of it.
    max_members: how many publications and subscriptions may exist at once, 2 to 1024.
    initial_term_id, start_position: where counting begins; for tests at the edges.
    """

    capacity: int | None = None
    term_length: int | None = None
    max_members: int = 64
    stream_id: int = 1
    initial_term_id: int = 0
    start_position: int = 0

    def __post_init__(self) -> None:
        _whole(self, "term_bytes", "room", "max_members", "stream_id", "initial_term_id", "start_position")
        for name in ("stream_id", "initial_term_id"):
            if not -(1 << 31) <= getattr(self, name) < 1 << 31:
                raise Invalid(f"{name} is {getattr(self, name)}: it must fit in 32 bits with a sign")
        if self.term_length is None and self.room > TERM_LENGTH_MAX:
            raise Invalid(f"capacity is {self.room}: it must be at most {TERM_LENGTH_MAX}")
        _within(self, 32, "room", "term_bytes", "max_members")
        _within(self, 63, "start_position")
        _native.check_log_options(self.term_bytes, self.room, self.max_members, self.start_position)

    @property
    def term_bytes(self) -> int:
        """`term_length`, or what it is unless given."""
        if self.term_length is not None:
            return self.term_length
        if not isinstance(self.capacity, int):
            return 8 * MIB
        return max(TERM_LENGTH_MIN, 1 << max(self.capacity - 1, 0).bit_length())

    @property
    def room(self) -> int:
        """`capacity`, or what it is unless given."""
        return self.term_bytes if self.capacity is None else self.capacity

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.log_file_size(self.max_members, self.term_bytes)


@dataclass(frozen=True, kw_only=True)
class RingOptions:
    """How a ring is made. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes of the ring, a power of two from 64 KiB to 1 GiB: how far a reader may fall behind before it is lapped.
    The longest message is a quarter of it. All of it is allocated now, so that no later write can fail.
    max_members: how many subscriptions may exist at once, 1 to 1024.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    capacity: int = 8 * MIB
    max_members: int = 64
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        _whole(self, "capacity", "max_members", "start_position", "start_sequence")
        _within(self, 32, "capacity", "max_members")
        _within(self, 63, "start_position")
        _within(self, 64, "start_sequence")
        _native.check_ring_options(self.capacity, self.max_members, self.start_position)

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.ring_file_size(self.max_members, self.capacity)


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """How a sync queue is made. The first member decides; `Mismatch` if a later one asks for something else.

    capacity: bytes that may be unread by the slowest member before writers wait, a power of two from 64 KiB to 1 GiB. The queue
    takes three times this in shared memory; the longest message is half of it.
    max_members: how many members may be in it at once, 1 to 512; a publication or a subscription counts for half a member.
    start_position: where counting begins; for tests at the edges.
    """

    capacity: int = MIB
    max_members: int = 32
    start_position: int = 0

    def __post_init__(self) -> None:
        _whole(self, "capacity", "max_members", "start_position")
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


@dataclass(frozen=True, kw_only=True)
class PipeOptions:
    """How a pipe channel is made. The first publication decides; `Mismatch` if a later one asks for something else.

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
        _whole(self, "capacity", "max_messages", "max_pipes", "max_members", "start_position")
        _within(self, 32, "capacity", "max_messages", "max_pipes", "max_members")
        _within(self, 63, "start_position")
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


@dataclass(frozen=True, kw_only=True)
class FrameOptions:
    """How a frames channel is made. The first publication decides; `Mismatch` if a later one asks for something else.

    shape, dtype: of every frame; plain numbers, every dimension fixed. dtype is "u1" unless chosen.
    buffers: frames that exist at once, 2 to 1024: one is filled, one is the newest, the rest may be leased by readers. All
    of them are allocated now, so that no later write can fail.
    max_members: how many subscriptions may exist at once, 1 to 1024.
    attributes: what else is to be known of the stream, plain JSON; kept in the channel.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = "|u1"
    buffers: int = 8
    max_members: int = 64
    attributes: dict[str, Any] | None = None
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        _whole(self, "buffers", "max_members", "start_position", "start_sequence")
        _within(self, 32, "max_members")
        if not 2 <= self.buffers <= 1024:
            raise Invalid(f"buffers is {self.buffers}: it must be from 2 to 1024")
        _within(self, 63, "start_position")
        _within(self, 64, "start_sequence")
        plain_json(self.attributes, "attributes")
        if self.shape is not None:
            _ = self.file_size

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        import numpy as np

        if self.shape is None:
            raise NotFound(
                errno.ENOENT,
                "to publish a new one, give shape=(HEIGHT, WIDTH, ...); to wait for it, subscribe with connect_timeout=SECONDS",
            )
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if size >= 1 << 63:
            raise Invalid(f"shape is {self.shape}: a frame of {size} bytes is larger than any memory")
        return size

    @property
    def notes_capacity(self) -> int:
        """Bytes of the ring that carries what is said of the frames: twice as many as there are buffers, 4 KiB for each."""
        return max(64 * 1024, 1 << (2 * self.buffers * 4096 - 1).bit_length())

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.frames_file_size(
            capacity=self.notes_capacity,
            slots=self.max_members,
            buffers=self.buffers,
            frame_bytes=self.frame_bytes,
            start_position=self.start_position,
        )


_FOR_EVER = 9e9  # seconds, 285 years: a longer timeout is none. Clocks and polls overflow
_REAL_DTYPE = re.compile(r"(^|\.)(u?int|b?float)\d")


def seconds(value: float | None, name: str, handle: HasChannel | str | None = None) -> float:
    """A duration in seconds; 0 for None. Takes any real number: an int, a float, NumPy's, a Decimal, a Fraction.

    `Invalid` for anything else: text, True, NaN, negative numbers. handle: the one whose channel the error names, or the channel.
    """
    if value is None:
        return 0.0
    found = _real(value)
    if not found >= 0:
        where = "" if handle is None else f"{handle if isinstance(handle, str) else handle.channel}: "
        raise Invalid(f"{where}{name} is {text_of(value, repr)}: it must be None or seconds from 0 on")
    return found


def _real(value: Any) -> float:
    """A real number as a float, or infinity beyond all floats. NaN for any other object."""
    if type(value) is float:
        return value
    if isinstance(value, bool | str | bytes | bytearray | complex) or not hasattr(type(value), "__float__"):
        return math.nan
    dtype = getattr(value, "dtype", None)  # of NumPy's numbers, and of tensors
    if dtype is not None and (getattr(value, "ndim", 0) != 0 or not _REAL_DTYPE.search(str(dtype))):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # there are larger integers
        return math.inf if value > 0 else math.nan
    except Exception:
        return math.nan


def limit_of(timeout: float | None, handle: HasChannel | str | None = None) -> float | None:
    """A timeout in seconds; None: wait for ever, which a huge one does, too. `Invalid` as for `seconds`. Compiled calls ask it, too."""
    limit = math.inf if timeout is None else seconds(timeout, "timeout", handle)
    return limit if limit <= _FOR_EVER else None


def deadline_of(timeout: float | None, handle: HasChannel | str | None = None) -> float | None:
    """When a timeout that begins now is over, on the clock of `time.monotonic`; None: never. `Invalid` as for `seconds`."""
    limit = limit_of(timeout, handle)
    return None if limit is None else time.monotonic() + limit


def patience(when_slow: str | None, drop_after: float | None) -> float:
    """A reader's rule for slow readers, as the compiled ends take it.

    0: they wait. Below 0: they fail. Else seconds until they drop the reader. Giving `drop_after` means "drop".
    """
    way = when_slow if when_slow is not None else "wait" if drop_after is None else "drop"
    if way not in ("wait", "drop", "fail") or (way == "drop") != (drop_after is not None):
        raise Invalid(f"when_slow is {when_slow!r}: it must be 'wait', 'fail', or 'drop' with drop_after=SECONDS")
    return -1.0 if way == "fail" else max(seconds(drop_after, "drop_after"), 1e-9) if way == "drop" else 0.0


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
    if isinstance(shape, (bytearray, memoryview)):
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, whole numbers from 1 on")
    sizes = sizes_of(shape)
    if not sizes or len(sizes) > 32 or min(sizes) < 1:
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, whole numbers from 1 on")
    return sizes
