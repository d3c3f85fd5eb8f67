"""Moments, spans of time and sizes as people write them: the one place that reads `since`, `until`, "10m ago" and "20GB"."""

from __future__ import annotations

import contextlib
import datetime
import operator
import re
from collections.abc import Callable

from penstock.errors import Invalid, text_of
from penstock.util.clock import SystemClock

Moment = int | str | datetime.datetime  # nanoseconds since the epoch, a text, or a datetime with its time zone
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LEAST, MOST = -(1 << 63), (1 << 63) - 1
SECOND = 10**9
LONGEST_SECONDS = 36525 * 86400.0  # a century: a moment that is now and such a span is in 64 bits of nanoseconds
_CLOCK = SystemClock()
UNITS = {
    "ms": SECOND // 1000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86400 * SECOND,
    "w": 7 * 86400 * SECOND,
}
LONG = {"millisecond": "ms", "sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
SIZES = {"": 1, "b": 1, **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}}
SIZES |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_PART = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]+)", re.ASCII)
_FINE = re.compile(r"([.,][0-9]{6})([0-9]{1,3})(?![0-9])", re.ASCII)
_SECONDS = re.compile(r"@(-?)([0-9]{1,11})(?:\.([0-9]{1,9}))?", re.ASCII)
SAYS = (
    "a time such as '2026-01-31T12:00:00Z', '2026-01-31' (local time if it names no zone), '10m ago', 'yesterday' or "
    "'@1769860800' (seconds since the epoch)"
)


def nanoseconds(moment: Moment, name: str, now_ns: Callable[[], int] = _CLOCK.now_ns) -> int:
    """A moment in nanoseconds since the epoch. `Invalid` for anything else, and for a datetime without a time zone.

    A text is ISO 8601, in local time if it names no zone; now, today, yesterday, or a span as "1h 30m ago"; @SECONDS or nanoseconds
    since the epoch.
    """
    if isinstance(moment, str):
        found = _of_text(moment.strip(), now_ns)
        if found is None:
            raise Invalid(f"{name} is {moment!r}: it must be {SAYS}, or nanoseconds since the epoch")
        return min(max(found, LEAST), MOST)
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return min(max(_of_datetime(moment), LEAST), MOST)  # no message was sent beyond these
    try:
        count = operator.index(moment)  # type: ignore[arg-type]
    except TypeError:
        count = 1 << 63
    if isinstance(moment, bool) or not LEAST <= count <= MOST:
        raise Invalid(
            f"{name} is {moment!r}: it must be nanoseconds since the epoch, a whole number of 64 bits, or a datetime with a time zone, "
            f"or {SAYS}"
        )
    return count


def interval(
    since: Moment, until: Moment, now_ns: Callable[[], int] = _CLOCK.now_ns, names: tuple[str, str] = ("since", "until")
) -> tuple[int, int]:
    """Two moments in nanoseconds since the epoch. `Invalid` if the second is before the first: nothing is in between."""
    first, last = nanoseconds(since, names[0], now_ns), nanoseconds(until, names[1], now_ns)
    if first > last:
        raise Invalid(
            f"{names[0]} is later than {names[1]} ({shown(first)}, {shown(last)}): no message is in between; swap them"
        )
    return first, last


def _of_datetime(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1) * 1000


def _of_text(text: str, now_ns: Callable[[], int]) -> int | None:
    low = text.lower()
    if re.fullmatch(r"-?[0-9]{1,30}", text, re.ASCII):
        return int(text) if LEAST <= int(text) <= MOST else None
    if seconds := _SECONDS.fullmatch(text):
        count = int(seconds[2]) * SECOND + int((seconds[3] or "0").ljust(9, "0"))
        return -count if seconds[1] else count
    if low == "now":
        return now_ns()
    if low in ("today", "yesterday"):
        day = _local(now_ns()).date() - datetime.timedelta(days=low == "yesterday")
        return _of_datetime(datetime.datetime.combine(day, datetime.time()).astimezone())
    if low.endswith("ago"):
        span = _span(low.removesuffix("ago"))
        return None if span is None else now_ns() - span
    # Python's times have microseconds: the remaining digits are added afterwards.
    fine = _FINE.search(text)
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.datetime.fromisoformat(text if fine is None else text[: fine.end(1)] + text[fine.end() :])
        rest = 0 if fine is None else int(fine[2].ljust(3, "0"))
        return _of_datetime(found if found.tzinfo is not None else found.astimezone()) + rest
    return None


def _local(ns: int) -> datetime.datetime:
    return (EPOCH + datetime.timedelta(microseconds=ns // 1000)).astimezone()


def _span(text: str) -> int | None:
    """Nanoseconds of a span as 10m, 1h 30m or 2 days; None if it is none."""
    at, total = 0, 0
    text = text.rstrip()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        unit = UNITS.get(LONG.get(part[2].removesuffix("s"), part[2]))
        if unit is None:
            return None
        whole, _, rest = part[1].partition(".")
        total += int(whole) * unit + int(rest.ljust(9, "0") or 0) * unit // SECOND
        at = part.end()
    return total if at else None


def seconds(span: float | str | datetime.timedelta, name: str, *, zero: bool = False) -> float:
    """A span of time in seconds: a number of them, a timedelta, or a text as 90s, 10m, 1h 30m or 7 days. At most a century; 0 only where `zero`
    says so."""
    found: float | None = None
    if isinstance(span, datetime.timedelta):
        found = span.total_seconds()
    elif isinstance(span, str):
        with contextlib.suppress(ValueError):
            found = float(span)
        if found is None and (count := _span(span.strip().lower())) is not None:
            found = count / SECOND
    elif isinstance(span, int | float) and not isinstance(span, bool):
        found = float(span) if 0 <= span <= LONGEST_SECONDS else None  # there are integers beyond all floats
    if found is None or not 0 <= found <= LONGEST_SECONDS or (found == 0 and not zero):
        least = "0 or more seconds" if zero else "more than 0 seconds"
        raise Invalid(
            f"{name} is {text_of(span, repr)}: it must be {least}, or a text such as '90s', '10m' or '7 days', and at most 100 years"
        )
    return found


def size(count: int | str, name: str) -> int:
    """A number of bytes above 0: a number, or a text as 500MB, 20GB or 8MiB."""
    found = 0
    if isinstance(count, str):
        parts = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*([a-z]*)", count.strip().lower(), re.ASCII)
        if parts is not None and parts[3] in SIZES:
            unit = SIZES[parts[3]]
            found = int(parts[1]) * unit + int((parts[2] or "0").ljust(9, "0")) * unit // SECOND
    elif isinstance(count, int) and not isinstance(count, bool):
        found = count
    if not 0 < found < 1 << 63:
        raise Invalid(
            f"{name} is {count!r}: it must be a whole number of bytes, from 1 on, or a text such as '500MB' or '20GB'"
        )
    return found


def shown(ns: int) -> str:
    """A moment as people read it, in local time with its zone. `nanoseconds` reads it again, to the second."""
    try:
        return _local(ns).isoformat(" ", "seconds")
    except (ValueError, OverflowError):
        return f"@{ns // SECOND}"


__all__ = ["Moment", "interval", "nanoseconds", "seconds", "shown", "size"]
