"""Options of channels and their checks. Knows numbers and units; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from penstock._native import core as _native
from penstock.errors import Invalid

MIB = 1 << 20


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
        for name in ("term_length", "slots", "stream_id", "initial_term_id", "start_position"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise Invalid(f"{name} is a whole number, not {value!r}")
        for name in ("stream_id", "initial_term_id"):
            if not -(1 << 31) <= getattr(self, name) < 1 << 31:
                raise Invalid(f"{name} is {getattr(self, name)}: it must fit in 32 bits with a sign")
        for name, value in (
            ("term_length", self.term_length),
            ("window", self.effective_window),
            ("slots", self.slots),
        ):
            if not isinstance(value, int) or not 0 <= value < 1 << 32:
                raise Invalid(f"{name} is {value!r}: it must be a whole number that fits in 32 bits")
        if not 0 <= self.start_position < 1 << 63:
            raise Invalid(f"start_position is {self.start_position}: it must be from 0 to below 2**63")
        _native.check_log_options(self.term_length, self.effective_window, self.slots, self.start_position)

    @property
    def effective_window(self) -> int:
        """The window in bytes; a whole term unless chosen."""
        return self.term_length if self.window is None else self.window

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.log_file_size(self.slots, self.term_length)


def seconds(value: float | None, name: str) -> float:
    """A duration in seconds; 0 for None. `Invalid` for negative or not a number."""
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not value >= 0:
        raise Invalid(f"{name} is {value!r}: it must be None or seconds from 0 on")
    return float(value)
