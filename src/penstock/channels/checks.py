"""Options of channels and their checks. Knows numbers and units; opens nothing."""

from __future__ import annotations

import json
import math
import operator
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from penstock._native import core as _native
from penstock.errors import Invalid, text_of

MIB = 1 << 20
TERM_LENGTH_MIN, TERM_LENGTH_MAX = 64 * 1024, 1 << 30
_GIVEN_AS = {"term_bytes": "term_length", "room": "capacity"}  # a log's computed values, by the option that gives them


def check_whole(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Invalid(f"{_GIVEN_AS.get(name, name)} is a whole number, not {value!r}")


def within(options: object, bits: int, *names: str) -> None:
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
    """A list of texts from any iterable of them; `Invalid` for anything else, also for a single text. what: a name of the texts, for the error."""
    found = None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        found = list(value)
    if found is None or not all(isinstance(one, str) for one in found):
        raise Invalid(f"{name} is {value!r}: it must be a list of {what}")
    return found


def callback(value: Any, name: str) -> None:
    """`Invalid` unless the value is a function or None."""
    if value is not None and not callable(value):
        raise Invalid(f"{name} is {value!r}: it must be a function")


def text_bytes(value: Any, what: str) -> bytes:
    """A name, a type or a topic as bytes: text becomes UTF-8, and surrogate escapes become the bytes that they encode."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Invalid(f"{what} is text or bytes, not {type(value).__name__}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{what} is {value!r}, which has half of a character at {error.start}: UTF-8 cannot encode it"
        ) from None


class HasChannel(Protocol):
    """A handle, which errors about its arguments name by its channel."""

    @property
    def channel(self) -> str:
        """The channel's URI."""


def counted(value: Any, method: str, name: str, handle: HasChannel) -> int:
    """An argument of a handle's method that counts, checked as compiled methods check it. The error names the channel.

    TypeError for anything that is not a whole number, `Invalid` below 0.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{handle.channel}: {method}(): {name} is a whole number, not {type(value).__name__}") from None
    if not 0 <= number < 1 << 63:
        raise Invalid(f"{handle.channel}: {method}(): {name} is {number}: it must be from 0 to {(1 << 63) - 1}")
    return number


def more_than_zero(value: Any, name: str) -> None:
    """`Invalid` unless the argument is a number greater than 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise Invalid(f"{name} is {value!r}: it must be a number more than 0")


def manual_clock(value: Any) -> _native.ManualClock | None:
    """A clock that a test sets, or None; `Invalid` for anything else."""
    if value is None or isinstance(value, _native.ManualClock):
        return value
    raise Invalid(f"clock is {value!r}: it must be a penstock.testing.ManualClock or None")


def plain_json(value: Any, name: str) -> dict[str, Any] | None:
    """A dictionary of JSON values, or None; `Invalid` for anything else."""
    if value is None:
        return None
    try:
        if isinstance(value, dict) and json.loads(json.dumps(value, allow_nan=False)) == value:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    raise Invalid(
        f"{name} is {value!r}: it must be a dictionary of JSON values: texts, finite numbers, true, false, null, lists, and "
        "dictionaries whose keys are texts"
    )


_FOR_EVER = 9e9  # seconds, 285 years: a longer timeout is none. Clocks and polls overflow
_REAL_DTYPE = re.compile(r"(^|\.)(u?int|b?float)\d")


def seconds(value: float | None, name: str, handle: HasChannel | str | None = None) -> float:
    """A duration in seconds; 0 for None. Takes any real number: an int, a float, NumPy's, a Decimal, a Fraction.

    `Invalid` for anything else: text, True, NaN, negative numbers. handle: a handle or a channel, which the error names.
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
    """A timeout in seconds; None: wait for ever, as a huge number does. `Invalid` as for `seconds`. Compiled calls use it, too."""
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
