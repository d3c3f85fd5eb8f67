"""Errors of this library out of the text of another library's error, which called its code: an engine of queries keeps nothing else of them."""

from __future__ import annotations

import re

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
