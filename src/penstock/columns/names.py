"""Names of columns: safe everywhere, none twice, also where readers ignore case."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

# Names of the pipeline's own columns, and names that readers reserve.
RESERVED = frozenset(
    [
        "stream",
        "epoch",
        "position",
        "recording",
        "session",
        "time",
        "timestamp_ns",
        "recorded_ns",
        "ingested_at",
        "interval_ns",
        "lost",
        "bytes",
        "payload",
        "decode_error",
        "_rescued",
        "_metadata",
    ]
)
LONGEST = 120


def clean(key: str) -> str:
    """A key as a column's name: letters, digits and signs of any script stay; ASCII punctuation, spaces and controls become `_`.

    Readers keep names that begin with two `_` for themselves.
    """
    key = unicodedata.normalize("NFC", key)
    name = "".join(one if _is_plain(one) else "_" for one in key[:LONGEST]) or "_"
    return f"key{name}" if name.startswith("__") else name


def _is_plain(one: str) -> bool:
    """Whether a character is allowed in a column's name."""
    return one.isalnum() or one == "_" if one.isascii() else unicodedata.category(one)[0] not in "CZ"


def folded(name: str) -> str:
    """A name without its capitals, by the widest rule: no two columns share it, so no reader that ignores case confuses them."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def free(key: str, taken: set[str]) -> str:
    """A column's name for a key, beside those taken (as `folded`); it is taken then. `time` becomes `time_`."""
    name = clean(key)
    if folded(name) in RESERVED:
        name = f"{name}_"
    found, number = name, 1
    while folded(found) in taken:
        number += 1
        found = f"{name}_" if number == 2 and folded(f"{name}_") not in taken else f"{name}_{number}"
        found = f"_{number}" if found.startswith("__") else found  # of "_" itself
    taken.add(folded(found))
    return found


def unique(keys: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """A name for each key, in their order."""
    there = {folded(name) for name in taken} | RESERVED
    return [free(key, there) for key in keys]
