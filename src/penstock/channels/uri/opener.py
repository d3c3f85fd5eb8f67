"""Shared by `penstock.publish`, `subscribe` and `join`: a URI, the options that were given, the kind that opens.

Knows no kind. `PENSTOCK_FAKE` is read here.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from penstock.channels.kind import Kind
from penstock.channels.uri import channel as channels
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.registry import kind_names, kinds
from penstock.errors import Invalid, Unsupported
from penstock.util import strict
from penstock.util.units import size

FAKE_VARIABLE = "PENSTOCK_FAKE"
SIZES = ("capacity", "term_length", "rate", "memory_max", "last_max")  # options in bytes, which may be texts as "8MiB"

WhenFull = Literal["wait", "drop_newest", "drop_oldest"]
WhenSlow = Literal["skip", "wait", "drop", "fail"]
Start = Literal["newest", "earliest"] | int
Key = str | bytes | None
Topics = str | bytes | Sequence[str | bytes] | None


TEST_ONLY = frozenset({"clock", "start_position", "initial_term_id", "start_sequence", "prefault"})


def parse(uri: Any) -> Channel:
    """The channel that a URI names, or a value with one. `PENSTOCK_FAKE` (1, or kinds such as `ring,log`) keeps them all within this process.

    `Unsupported` for one that should be within this process and cannot be.
    """
    parsed = channels.parse(uri)
    switched = not parsed.fake and faked(parsed.kind)
    if (parsed.fake or switched) and not parsed.kind.in_process:
        able = ", ".join(kind.name for kind in kinds() if kind.in_process)
        why = f": {FAKE_VARIABLE} is set" if switched else ""
        raise Unsupported(f"{parsed} cannot be a channel within one process{why}. Channels of these kinds can: {able}")
    return replace(parsed, fake=True) if switched else parsed


def faked(kind: Kind) -> bool:
    """Whether `PENSTOCK_FAKE` keeps channels of this kind within the process. `Invalid` if it names a kind that does not exist."""
    requested = os.environ.get(FAKE_VARIABLE, "")
    if requested in ("", "0"):
        return False
    if requested in ("1", "all"):
        return True
    names = requested.split(",")
    for name in names:
        if name not in kind_names():
            raise Invalid(f"{FAKE_VARIABLE} is {requested!r}: set it to 1, or to kinds of channels such as 'ring,log'")
    return kind.name in names


def open_handle(
    verb: str,
    uri: str,
    requested: dict[str, Any],
    shaping: dict[str, Any] | None = None,
    tested: dict[str, Any] | None = None,
) -> Any:
    """Opens a handle. `TypeError` for an option that the kind does not have.

    shaping: the codec and the options of a channel that was given as a value; None for a URI, whose options may be in `requested`.
    tested: options that only tests have.
    """
    parsed = parse(uri)
    opener = getattr(parsed.kind, verb)
    if opener is None:
        able = ", ".join(kind.written for kind in kinds() if getattr(kind, verb) is not None)
        raise Unsupported(f"{parsed}: there is nothing to {verb}: use publish and subscribe. To {verb}, write {able}")
    known = parsed.kind.option_names(verb) - TEST_ONLY
    for name in requested:
        _check_option(parsed, verb, name, known)
        if shaping is not None and (name in shaping or name in parsed.kind.shaping):
            raise TypeError(
                f"{parsed}: {name} shapes the channel, which was given as a value: give {name} to the value, or open the channel by its URI"
            )
    options = {name: value for name, value in (shaping or {}).items() if name in known} | requested
    options |= {name: value for name, value in (tested or {}).items() if name in parsed.kind.option_names(verb)}
    try:
        return opener(parsed, **{name: _convert_option(name, value) for name, value in options.items()})
    except (Invalid, Unsupported) as error:  # an option is checked where its channel may not be known
        if str(parsed) not in str(error):
            error.args = (f"{parsed}: {error}",)
        raise


def _check_option(channel: Channel, verb: str, name: str, known: frozenset[str]) -> None:
    """`TypeError` unless the verb takes the option for this kind."""
    if name in known:
        return
    if name in TEST_ONLY:
        raise TypeError(
            f"{channel}: {name} is for tests: open penstock.testing.channel({str(channel)!r}, {name}=...) in place of the channel"
        )
    having = [kind.written for kind in kinds() if getattr(kind, verb) and name in kind.option_names(verb)]
    others = f"; these have it: {', '.join(having)}" if having else ""
    raise TypeError(
        f"{channel}: {verb} on channels of kind {channel.kind.name!r} has no option {name!r}{strict.near(name, known)}{others}"
    )


def _convert_option(name: str, value: Any) -> Any:
    """An option in the form that kinds expect: sizes as texts become numbers, and integers of other libraries become Python's."""
    return size(value, name) if name in SIZES and isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    """An integer of another library, such as NumPy's, as Python's. Any other value unchanged."""
    if isinstance(value, int) or not hasattr(type(value), "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def subscription_options(channel: str) -> frozenset[str]:
    """The options that `subscribe` takes for a channel of this kind."""
    return parse(channel).kind.option_names("subscribe") - TEST_ONLY


def takes_messages(channel: str) -> bool:
    """Whether a message that a subscription reads is not delivered to others, as with a pipe."""
    return parse(channel).kind.one_reader
