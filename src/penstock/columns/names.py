"""Names of columns: safe everywhere, none twice, also where readers do not tell capitals from small letters."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Names of the pipeline's own columns, and names that readers reserve.
RESERVED = frozenset(
    [
        "stream",
        "session",
        "position",
        "time",
        "timestamp_ns",
        "recorded_ns",
        "interval_ns",
        "lost",
        "bytes",
        "payload",
        "decode_error",
        "_metadata",
    ]
)
LONGEST = 120


def clean(key: str) -> str:
    """A key as a name of plain letters, digits and `_`. Readers keep names that begin with two `_` for themselves."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", key[:LONGEST]) or "_"
    return f"key{name}" if name.startswith("__") else name


def free(key: str, taken: set[str]) -> str:
    """A column's name for a key, beside those taken (in small letters); it is taken then. `time` becomes `time_`."""
    name = clean(key)
    if name.lower() in RESERVED:
        name = f"{name}_"
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_" if number == 2 and f"{name}_".lower() not in taken else f"{name}_{number}"
        found = f"_{number}" if found.startswith("__") else found  # of "_" itself
    taken.add(found.lower())
    return found


def unique(keys: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """A name for each key, in their order."""
    there = {name.lower() for name in taken} | RESERVED
    return [free(key, there) for key in keys]
