"""Values as JSON that every parser reads. `docs/watch/command.md` has a table of all types. Knows no channel."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import sys
from typing import Any

DIGITS = 10_000  # binary ones: the interpreter refuses to write longer numbers in decimal
DEPTH = 8  # how many levels of the interpreter's one level of a value takes, at most


def as_json(value: Any) -> str:
    """Any value that a channel, an archive or a status can hold as one line of ASCII JSON."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before * DEPTH)  # a message may be as deep as the interpreter allowed when it was decoded
    try:
        return json.dumps(plain(value), allow_nan=False)
    finally:
        sys.setrecursionlimit(before)


def plain(value: Any) -> Any:
    """A value made of JSON's types: None, booleans, numbers, text, lists, and dicts with text as keys."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < DIGITS else hex(value)
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, dict):
        return _mapping(value)
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_asdict"):
        return [plain(item) for item in value]
    return _special(value)


def text(value: str | bytes | bytearray | memoryview) -> str:
    r"""Text as it is; bytes that are not UTF-8 as \xff, and so the bytes of surrogate escapes."""
    if not isinstance(value, str):
        data = bytes(value)
    else:
        try:
            data = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = value.encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "backslashreplace")


def _number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _mapping(value: dict[Any, Any]) -> Any:
    made = {_key(key): plain(item) for key, item in value.items()}
    if len(made) == len(value):
        return made
    return [[plain(key), plain(item)] for key, item in value.items()]  # keys that are one text: none may be lost


def _key(key: Any) -> str:
    made = plain(key)
    return made if isinstance(made, str) else json.dumps(made)


def _special(value: Any) -> Any:
    numpy = sys.modules.get("numpy")  # another thread may be importing it: then there is no value of its yet
    if isinstance(value, (getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ()))):
        return _numpy(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return text(value)
    if isinstance(value, complex):
        return [_number(value.real), _number(value.imag)]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if hasattr(value, "read_bytes"):  # a path, here or on another machine
        return text(str(value))
    if hasattr(value, "summary"):  # a frame: its summary
        return plain(value.summary())
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "code") and hasattr(value, "data"):  # msgpack's extension types
        return {"ext": plain(value.code), "data": plain(value.data)}
    return text(str(value))


def _numpy(value: Any) -> Any:
    """NumPy's scalars and arrays; records by field."""
    import numpy as np

    if value.dtype.names is not None:
        if value.ndim:
            return [_numpy(item) for item in value]
        return {text(name): _numpy(np.asarray(value[name])) for name in value.dtype.names}
    if value.ndim:
        return [_numpy(item) for item in value] if value.ndim > 1 else [_scalar(item) for item in value]
    return _scalar(value[()])


def _scalar(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.datetime64 | np.timedelta64):
        if isinstance(value, np.datetime64) or np.isnat(value):
            return str(value)
        if np.datetime_data(value.dtype)[0] in ("generic", "Y", "M"):
            return int(value.astype("i8"))
        return _number(float(value / np.timedelta64(1, "s")))
    if isinstance(value, np.complexfloating):
        return [_number(float(value.real)), _number(float(value.imag))]
    if isinstance(value, np.floating):
        return _number(float(value))
    if isinstance(value, np.void):
        return text(value.tobytes())
    return plain(value.item())
