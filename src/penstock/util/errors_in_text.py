"""Errors as text: of another library in one line, of this library within it, of which an engine of queries keeps nothing else; many as one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock import errors
from penstock.errors import PenstockError

NAMED = re.compile(r"penstock\.errors\.([A-Z][A-Za-z]+): (.*)")
BARE = re.compile(r"\A(?:Python error: \[[^\]\n]*\] )?([A-Z][A-Za-z]+): (.*)")  # Sail leaves out the module


def find(text: str) -> PenstockError | None:
    """The last one that a text names; None if there is none."""
    found = NAMED.findall(text) or [one for one in BARE.findall(text) if hasattr(errors, one[0])]
    if not found:
        return None
    name, words = found[-1]
    kind = getattr(errors, name, PenstockError)
    # Some of them are made of more than a text.
    own = issubclass(kind, PenstockError) and not issubclass(kind, errors.DecodeError | errors.SystemFailure)
    made: PenstockError = (kind if own else PenstockError)(words.strip())
    return made


def in_one_line(error: BaseException) -> str:
    """An error in one line, of limited length. Those of native code are trees of causes, in colours, with their calls."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    plain = re.split(r"(?i)\s*(?:stack )?backtrace:?\s|\n\s*0: ", plain)[0]
    lines = [line.strip(" ↳") for line in plain.splitlines() if line.strip(" ↳")]
    return ": ".join(lines)[:300] or type(error).__name__


def first_of(found: Sequence[object]) -> str:
    """The first of at least one, and how many more there are."""
    return f"{found[0]} (and {len(found) - 1} more)" if len(found) > 1 else str(found[0])
