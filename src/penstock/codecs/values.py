"""Values that go into arrays and records: the same there, or refused with what to do. No value is ever changed in silence.

Knows NumPy's dtypes; knows no channel.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid, text_of

if TYPE_CHECKING:
    import numpy as np

_ADDRESS = re.compile(r"[O&PzX]|Z(?![fdg])")  # Zd is a complex number, Z alone a wide text's address


def reason_of(error: Exception) -> str:
    """Why a value cannot be encoded, in a line."""
    return "it is nested too deep" if isinstance(error, RecursionError) else text_of(error).split("\n")[0][:300]


OBJECTS = (
    "an array of Python objects has no bytes to send, only addresses: give it a dtype of numbers or text (array.astype), or give "
    'the channel codec="json" and send array.tolist()'
)


def sizes_of(shape: Any) -> tuple[int, ...]:
    """The whole numbers of a shape, NumPy's too; a single one is a shape of one dimension. `Invalid` for anything else."""
    several = shape if isinstance(shape, Iterable) and not isinstance(shape, str | bytes) else (shape,)
    try:
        sizes = [operator.index(size) for size in several if not isinstance(size, bool)]
    except TypeError:
        sizes = []
    if len(sizes) != len(list(several)):
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, a whole number")
    return tuple(sizes)


def has_addresses(layout: str) -> bool:
    """Whether a buffer of this format (PEP 3118) holds addresses: of objects, texts, functions, anything. Names of fields are between
    colons."""
    return any(_ADDRESS.search(part) for part in layout.split(":")[::2])


def refuse_unsendable(array: Any) -> None:
    """`Invalid` for arrays of Python objects and masked arrays."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise Invalid("a masked array has no value where it is masked: send array.filled(value)")
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise Invalid(OBJECTS)


def _array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """An array, or the array of an object that has one: a tensor, a column. None for all else. `Invalid` if it cannot be had."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        if isinstance(value, np.generic) or not hasattr(type(value), "__array__"):
            return None
        try:
            value = np.asarray(value.__array__())  # NumPy itself would warn of classes whose method takes no `copy`
        except Exception as error:
            why, advice = (
                reason_of(error).rstrip("."),
                "Convert it first: of a tensor take .detach(), .cpu() or .float()",
            )
            raise Invalid(f"this {type(value).__name__} gives no NumPy array: {why}. {advice}") from error
    return value  # type: ignore[no-any-return]


def fitted(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A value as an array of a dtype, in C order. `Invalid` if a number, a text or a time would not be the same in it.

    Only Python's floats are rounded, to the nearest that the dtype has. An array of longer floats is refused: its owner rounds it.
    """
    import numpy as np

    array = _array_of(value)
    value = value if array is None else array
    refuse_unsendable(value)
    found = getattr(value, "dtype", None)
    if dtype.names and isinstance(value, dict):
        raise _no_record(value, dtype.names, "")
    if found is not None and found == dtype:
        return np.asarray(value, order="C")
    if array is not None or isinstance(
        value, np.complexfloating
    ):  # a complex number beside floats, which NumPy warns of
        _refuse_rounding(value.dtype, dtype)
    try:
        with np.errstate(all="ignore"):  # a conversion that NumPy would warn of is refused
            made = np.array(value, dtype=dtype, order="C")
            if _has_times(dtype) or not _is_plainly_same(value, made.tolist()):
                _compare(value, made, "")
    except Invalid:
        raise
    except (TypeError, ValueError, ArithmeticError, RuntimeError, Warning) as error:  # UnicodeError is a ValueError
        raise Invalid(f"{_short(value)} does not fit the dtype {_describe_dtype(dtype)}: {reason_of(error)}") from error
    return made


def _refuse_rounding(given: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    import numpy as np

    if given.kind in "fc" and dtype.kind in "fc" and not np.can_cast(given, dtype, "safe"):
        raise Invalid(
            f"an array of {given} does not fit the dtype {_describe_dtype(dtype)}: it would be rounded; send array.astype({dtype.str!r})"
        )


@functools.lru_cache(256)
def _has_times(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has times, some of which Python reads as whole numbers."""
    base = dtype.base
    return base.kind in "Mm" or any(_has_times(base[name]) for name in base.names or ())


def _is_plainly_same(given: Any, read: Any) -> bool:
    """A quick look at plain Python values: what is read back is what was given. False where that needs a closer look."""
    kind = type(given)
    if kind is tuple or kind is list:
        if type(read) is not tuple and type(read) is not list:
            if not hasattr(read, "tolist"):
                return False
            read = read.tolist()  # a field that is an array
        return len(given) == len(read) and all(map(_is_plainly_same, given, read))
    if kind is float:
        other = type(read)
        return (other is float and (read - read == 0 or given - given != 0)) or (other is int and given == read)
    return kind in _PLAIN and type(read) in _PLAIN[kind] and bool(given == read)


_PLAIN: dict[type, tuple[type, ...]] = {int: (int, float), bool: (bool, int, float), str: (str,), bytes: (bytes,)}


def _no_record(given: Any, names: tuple[str, ...], field: str) -> Invalid:
    return Invalid(
        f"{_short(given)} is not a record{_at(field)}: send a tuple of its {len(names)} fields {', '.join(names)}"
    )


def _compare(given: Any, made: np.ndarray[Any, Any], field: str) -> None:
    """Raises `Invalid` if `made` is not what was given."""
    import numpy as np

    names = made.dtype.names
    if names is None:
        _compare_plain(given, made, field)
    elif getattr(given, "dtype", None) is not None and given.dtype.names is not None:
        if given.dtype.names != names:
            raise Invalid(f"a record with the fields {', '.join(given.dtype.names)} is not one with {', '.join(names)}")
        for name in names:
            _refuse_rounding(given.dtype[name].base, made.dtype[name].base)
            _compare(given[name], made[name], f"{field}.{name}")
    elif made.ndim:
        for one, other in zip(given, made, strict=True):
            _compare(one, np.asarray(other), field)
    elif not isinstance(given, tuple) or len(given) != len(names):
        raise _no_record(given, names, field)
    else:
        for name, part in zip(names, given, strict=True):
            _compare(part, np.asarray(made[name]), f"{field}.{name}")


def _compare_plain(given: Any, made: np.ndarray[Any, Any], field: str) -> None:
    import numpy as np

    kind = made.dtype.kind
    if kind == "V":
        _compare_raw(given, made, field)
        return
    found = np.asarray(given)
    if isinstance(given, list | tuple) and kind in "fc" and found.dtype.kind in "fc":
        found = np.asarray(given, object)  # whole numbers among floats have been rounded by now
    if kind in "Mm":
        fits = _are_same_times(found, made)
    elif kind in "SU":
        if _ends_in_nul(given):
            raise Invalid(
                f"{_short(given)}{_at(field)} ends in NUL, which {_describe_dtype(made.dtype)} cannot tell from its padding: use a V dtype for"
                " raw bytes"
            )
        fits = found.dtype.kind in "SU" and bool((found.astype(kind) == made).all())
    elif found.dtype.kind in "SU" or made.shape != found.shape:
        fits = False
    elif found.dtype.kind == "O":
        pairs = list(zip(found.reshape(-1).tolist(), made.reshape(-1).tolist(), strict=True))
        fits = all(_is_plainly_same(one, other) or _rounded(one, other) for one, other in pairs)
    elif kind in "biu":
        fits = _is_same_integer(found, made)
    else:
        fits = _are_same_floats(found, made)
    if not fits:
        raise Invalid(f"{_short(given)} does not fit {_describe_dtype(made.dtype)}{_at(field)}{_advice(made.dtype)}")


def _compare_raw(given: Any, made: np.ndarray[Any, Any], field: str) -> None:
    """Raw bytes are neither cut nor filled up."""
    if isinstance(given, list | tuple) and made.ndim:
        import numpy as np

        for one, other in zip(given, made, strict=True):
            _compare_raw(one, np.asarray(other), field)
    elif bytes(given) != made.tobytes():
        raise Invalid(
            f"{_short(given)} does not fit {_describe_dtype(made.dtype)}{_at(field)}: send {made.nbytes} bytes"
        )


def _ends_in_nul(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return any(map(_ends_in_nul, given))
    return (
        isinstance(given, str | bytes)
        and bool(given)
        and ((isinstance(given, bytes) and given[-1] == 0) or (isinstance(given, str) and given[-1] == "\0"))
    )


def _are_same_times(found: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> bool:
    """Times of the same kind, texts that state them, datetimes, and whole numbers of the unit: nothing else is a time."""
    import numpy as np

    if made.shape != found.shape:
        return False
    kind = made.dtype.kind
    if found.dtype.kind == "O":  # datetimes, None, times of several units
        return all(_is_same_time(one, there) for one, there in zip(found.reshape(-1), made.reshape(-1), strict=True))
    if found.dtype.kind in "iu":
        whole = made.astype(np.int64)
        return not np.isnat(made).any() and _is_same_integer(found, whole) and bool((whole == found).all())
    if found.dtype.kind in "SU":
        found = found.astype(f"{kind}8")
    if found.dtype.kind != kind:
        return False
    back = made.astype(found.dtype)
    return bool(((back == found) | (np.isnat(back) & np.isnat(found))).all())


def _is_same_time(one: Any, there: Any) -> bool:
    import datetime

    import numpy as np

    if one is None or isinstance(one, datetime.date | datetime.timedelta):
        one = np.asarray(one, dtype=f"{there.dtype.kind}8")
    one = np.asarray(one)
    return one.dtype.kind != "O" and _are_same_times(one, np.asarray(there))


def _is_same_integer(found: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> bool:
    """Whole numbers and truth values: each is equal to what was given."""
    import numpy as np

    if found.dtype.kind == "c":
        return bool((found.imag == 0).all()) and _is_same_integer(found.real, made)
    low, high = (0, 1) if made.dtype.kind == "b" else (np.iinfo(made.dtype).min, np.iinfo(made.dtype).max)
    if found.dtype.kind == "f":  # both bounds are powers of two, which floats hold
        inside = (found >= float(low)) & (found < float(high + 1)) & (found == np.floor(found))
        return bool(inside.all())
    if found.dtype.kind not in "biu":
        return False
    return found.size == 0 or (int(found.min()) >= low and int(found.max()) <= high)


def _rounded(one: Any, other: Any) -> bool:
    """Whether the second is a float that the first was rounded to; or just the same."""
    import numpy as np

    if isinstance(one, float | complex | np.inexact) and isinstance(other, float | complex | np.inexact):
        return bool(np.isfinite(other) or not np.isfinite(one)) and (np.imag(one) == 0 or np.iscomplexobj(other))
    return bool(one == other) and not isinstance(one, str | bytes)


def _are_same_floats(found: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> bool:
    """Floats may be rounded, but stay finite; whole numbers are exact; a real number has no imaginary part to lose."""
    import numpy as np

    kind = found.dtype.kind
    if kind == "c":
        if made.dtype.kind == "f" and not (found.imag == 0).all():
            return False
        return bool((np.isfinite(made) | ~np.isfinite(found)).all())
    if kind == "f":
        return bool((np.isfinite(made) | ~np.isfinite(found)).all())
    if kind not in "biu":
        return False
    real = made.real if made.dtype.kind == "c" else made
    if not np.isfinite(real).all():
        return False
    held = 1 << (np.finfo(real.dtype).nmant + 1)
    large = np.asarray((found > held) | (found < -held)) if found.dtype.kind == "i" else np.asarray(found > held)
    return all(int(one) == int(other) for one, other in zip(found[large], real[large], strict=True))


def _short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _describe_dtype(dtype: np.dtype[Any]) -> str:
    return str(dtype) if len(str(dtype)) <= 100 else f"{str(dtype)[:97]}..."


def _at(field: str) -> str:
    return f", the field {field.removeprefix('.')}" if field else ""


def _advice(dtype: np.dtype[Any]) -> str:
    import numpy as np

    if dtype.kind in "iu":
        about = np.iinfo(dtype)
        return f": send whole numbers from {about.min} to {about.max}, or give the channel another dtype"
    if dtype.kind in "Mm":
        what = "datetime64" if dtype.kind == "M" else "timedelta64"
        return f": send {what} of this unit or a longer one, or whole numbers of the unit"
    if dtype.kind in "SU":
        return f": send at most {dtype.itemsize // (4 if dtype.kind == 'U' else 1)} characters, or give the channel a longer one"
    return ": it would become another value; give the channel another dtype"
