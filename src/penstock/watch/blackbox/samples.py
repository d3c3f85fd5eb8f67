"""Conditions on a channel's counters, sampled now and then: its rate, its latency, its silence. Each begins once and is armed again when it is over.

Plain values: knows no clock but the times it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.channels.latency import Latency
from penstock.channels.status import latency_of
from penstock.util import units
from penstock.watch.blackbox.config import Trigger

OVER_SECONDS = 1.0
PARTS = 4  # looks for silence within the time that is too long
QUANTILE = 0.99


@dataclass
class _Before:
    at: float
    messages: int
    latency: Latency | None


class Sampled:
    """One trigger of rate, latency or silence. `interval`: seconds between samples."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.interval = self._longer / PARTS if trigger.silence is not None else self._over
        self.next = 0.0
        self._before: _Before | None = None
        self._has_begun = False  # a channel that has not begun yet is neither slow nor silent
        self._is_wrong = False
        self._changed_at = 0.0

    @property
    def _over(self) -> float:
        return OVER_SECONDS if self.trigger.over is None else units.seconds(self.trigger.over, "over")

    @property
    def _longer(self) -> float:
        assert self.trigger.longer is not None
        return units.seconds(self.trigger.longer, "longer")

    def sample(self, now: float, about: dict[str, Any] | None) -> str:
        """A text if the condition begins with this sample; else nothing. about: what the channel's file says; None if there is none."""
        if about is None or "totals" not in about:  # it is not there, or has no first publication
            self._before, self._has_begun, self._is_wrong = None, False, False
            return ""
        latest = _Before(now, about["totals"]["messages_sent"], latency_of(about))
        before, self._before = self._before, latest
        if before is None or latest.messages < before.messages:  # the first one, or of another channel of this name
            self._changed_at, self._has_begun = now, latest.messages > 0
            return ""
        if self.trigger.silence is not None:
            text = self._silence(latest, before)
        elif self.trigger.latency is not None:
            text = self._latency(latest, before)
        else:
            text = self._rate(latest, before)
        begins, self._is_wrong = bool(text) and not self._is_wrong, bool(text)
        return text if begins else ""

    def _silence(self, latest: _Before, before: _Before) -> str:
        if latest.messages > before.messages:
            self._changed_at, self._has_begun = latest.at, True
        silent = latest.at - self._changed_at
        if not self._has_begun or silent < self._longer:
            return ""
        return f"{self.trigger.target} has been silent for {silent:.1f} s"

    def _rate(self, latest: _Before, before: _Before) -> str:
        rate = (latest.messages - before.messages) / max(latest.at - before.at, 1e-9)
        above, below = self.trigger.above, self.trigger.below
        low = isinstance(below, int | float) and rate < below
        high = isinstance(above, int | float) and rate > above
        began, self._has_begun = self._has_begun, self._has_begun or latest.messages > before.messages
        if not high and not (low and began):  # the sample with the first message covers a part of its time
            return ""
        limit = f"less than {below}" if low else f"more than {above}"
        return f"{self.trigger.target} has {rate:,.1f} messages per second, {limit}"

    def _latency(self, latest: _Before, before: _Before) -> str:
        share = QUANTILE if self.trigger.quantile is None else self.trigger.quantile
        if latest.latency is None or before.latency is None:
            return ""
        took = latest.latency.since(before.latency).quantile_ns(share)
        assert self.trigger.above is not None
        limit = units.seconds(self.trigger.above, "above")
        if took is None or took <= limit * 1e9:
            return ""
        took_text = f"up to {took / 1e6:,.2f} ms, more than {limit * 1e3:g} ms"
        return f"{self.trigger.target}: the latency of {share:.1%} of the messages is {took_text}"
