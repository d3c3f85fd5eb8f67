"""Checks of the options of `Archive.record`: each makes sense, and has an effect on at least one of the channels. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.channels.checks import flag, seconds, texts, whole
from penstock.channels.kind import Kind
from penstock.channels.uri.channel import parse
from penstock.channels.uri.registry import kind_of, kinds
from penstock.channels.uri.value import AnyChannels, uris_of
from penstock.channels.uri.wildcards import STAR, is_pattern
from penstock.codecs import pixels as encodings
from penstock.errors import Invalid, Unsupported


def check_names(channels: AnyChannels) -> list[str]:
    """The channels and patterns to record. `Invalid` for none, for one that is not text, and for one that is named twice."""
    named = uris_of(channels)
    names = [named] if isinstance(named, str) else texts(named, "channels", "channels such as 'log:imu'")
    if not names:
        raise Invalid("record at least one channel")
    seen = set()
    for name in names:
        same = name if is_pattern(name) else str(parse(name))
        if same in seen:
            raise Invalid(f"{name} is named twice: name each channel once")
        seen.add(same)
    return names


def check_start(start: Any, names: Sequence[str], extend: Any) -> str | int:
    """The start of recordings. The subscription checks whether its channel keeps a position."""
    if isinstance(start, str):
        if start not in ("newest", "earliest"):
            raise Invalid(f"start is {start!r}: it must be 'newest' or 'earliest' or a position")
        if start == "earliest" and not any(not is_pattern(name) or _keeps(name) for name in names):
            raise Unsupported(
                f"start is 'earliest', and {', '.join(names)} keeps no message that was read: leave start out"
            )
        return start
    try:
        position = whole(start, "start")
    except Invalid:
        raise Invalid(
            f"start is {start!r}: it must be 'newest' or 'earliest' or a position, from 0 to below 2**63"
        ) from None
    if extend:
        raise Invalid(f"start is {position}, and extend continues a recording at its end: give one of them")
    for name in names:
        if is_pattern(name):
            raise Unsupported(
                f"start is {position}, a position of one channel: with {name}, give 'newest' or 'earliest'"
            )
    return position


def check_options(
    names: Sequence[str], drop_after: Any, when_slow: Any, *, process: Any, extend: Any, pixels: Any, sent: Any
) -> None:
    """`Invalid` for a wrong value, `Unsupported` for an option that none of the channels has."""
    for name, value in (("process", process), ("extend", extend), ("sent", sent)):
        flag(value, name)
    encoding = encodings.encoding_of(pixels) if pixels is not False else None
    if encoding is not None:
        encodings.check_package(encoding)
    if when_slow not in (None, "wait", "skip"):
        raise Invalid(f"when_slow is {when_slow!r}: it must be 'wait' or 'skip'")
    if drop_after is not None:
        seconds(drop_after, "drop_after")
    if when_slow is None and drop_after is None and pixels is True and not sent:
        return
    kinds = [kind for name in names for kind in kinds_of(name)]
    if when_slow is not None and not any(kind.by_reference for kind in kinds):
        raise Unsupported("record: when_slow= is for frames channels; drop_after= is for all others")
    if pixels is not True and not any(kind.by_reference for kind in kinds):
        raise Unsupported(f"record: pixels={pixels!r} is for frames channels: leave it out")
    if drop_after is not None and all(kind.lossy for kind in kinds):
        raise Unsupported(
            "record: drop_after= is for channels whose writers wait for a recorder (log, sync, pipe, udp): leave it out"
            + ("; for frames channels, give when_slow='skip'" if any(kind.by_reference for kind in kinds) else "")
        )
    if sent and all(kind.sent_tap is None for kind in kinds):
        raise Unsupported("record: sent=True is for udp channels: here readers and writers see the same. Leave it out")


def _keeps(pattern: str) -> bool:
    return any(kind.keeps for kind in kinds_of(pattern))


def kinds_of(text: str) -> list[Kind]:
    """The kind of a channel, or the kinds that a pattern may find channels of."""
    if not is_pattern(text):
        return [parse(text).kind]
    word, colon, _ = text.removeprefix("fake:").partition(":")
    if colon and STAR not in word:
        return [kind_of(word)[0]]
    return [kind for kind in kinds() if kind.memory is not None]
