"""Patterns of channels: `robot/*`, `log:*`, `*`. Knows URIs; opens nothing.

`*` matches any text, slashes included. A pattern with a colon is compared with the whole URI, any other pattern with the name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from penstock.channels.uri.registry import kind_named, kind_names, kind_of
from penstock.errors import Invalid

STAR = "*"


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern. `zmq+tcp://*:5555` is not: the star is part of an address. `Invalid` if no kind
    can be meant."""
    if STAR not in text:
        return False
    word, colon, _ = text.removeprefix("fake:").partition(":")
    try:
        return not colon or kind_of(word)[0].memory is not None
    except Invalid:
        if STAR not in word:
            raise
        return True


def check_patterns(patterns: Iterable[str]) -> None:
    """`Invalid` for a pattern, or a URI, of a kind that does not exist; `Unsupported` for one of a kind that is in no list."""
    for text in patterns:
        if not isinstance(text, str):
            raise Invalid(f"a pattern of channels is text such as 'log:*', not {type(text).__name__}")
        word, colon, _ = text.removeprefix("fake:").partition(":")
        if not colon or STAR in word:
            continue
        try:
            kind = kind_of(word)[0]
        except Invalid as error:
            raise Invalid(f"{text!r}: {error}") from None
        _ = kind.layout


def may_match(pattern: str) -> bool:
    """Whether any channel in shared memory could match, by its kind."""
    if pattern.startswith("fake:"):
        return False
    word, colon, _ = pattern.partition(":")
    if not colon or STAR not in word:
        return not colon or kind_of(word)[0].memory is not None
    return any(_compile(word).fullmatch(name) and kind_named(name).memory is not None for name in kind_names())


@functools.lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*"), re.DOTALL)


def matches(pattern: str, channel: str) -> bool:
    """Whether a channel's URI matches the pattern. A pattern without a star matches only itself."""
    if ":" not in pattern:
        channel = channel.removeprefix("fake:").partition(":")[2].removeprefix("//")
    return _compile(pattern).fullmatch(channel) is not None


def matches_any(patterns: Iterable[str], channel: str) -> bool:
    """Whether one of the patterns matches the channel."""
    return any(matches(pattern, channel) for pattern in patterns)


__all__ = ["check_patterns", "is_pattern", "matches", "matches_any", "may_match"]
