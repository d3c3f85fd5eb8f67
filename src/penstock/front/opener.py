"""Shared by `penstock.publish`, `subscribe` and `join`: a URI, the options that were given, the kind that opens.

Knows no kind. `PENSTOCK_FAKE` is read here.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from penstock.channels import channel as channels
from penstock.channels.channel import Channel
from penstock.channels.kind import Kind
from penstock.channels.registry import kind_names, kinds
from penstock.errors import Invalid, Unsupported
from penstock.util import strict

FAKE_VARIABLE = "PENSTOCK_FAKE"

WhenFull = Literal["wait", "drop_newest", "drop_oldest"]
WhenSlow = Literal["skip", "wait", "drop", "fail"]
Start = Literal["newest", "earliest"] | int
Key = str | bytes | None
Topics = str | bytes | Sequence[str | bytes] | None


class _KindsOwn:
    """The default of an option that not every kind has."""

    def __repr__(self) -> str:
        return "..."


OWN: Any = _KindsOwn()


def parse(uri: str) -> Channel:
    """The channel that a URI names. `PENSTOCK_FAKE` (1, or kinds such as `ring,log`) keeps them all within this process.

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
    asked = os.environ.get(FAKE_VARIABLE, "")
    if asked in ("", "0"):
        return False
    if asked in ("1", "all"):
        return True
    names = asked.split(",")
    for name in names:
        if name not in kind_names():
            raise Invalid(f"{FAKE_VARIABLE} is {asked!r}: set it to 1, or to kinds of channels such as 'ring,log'")
    return kind.name in names


def open_handle(verb: str, uri: str, asked: dict[str, Any]) -> Any:
    """Opens a handle. `TypeError` for an option that the kind does not have."""
    parsed = parse(uri)
    opener = getattr(parsed.kind, verb)
    if opener is None:
        able = ", ".join(kind.written for kind in kinds() if getattr(kind, verb) is not None)
        raise Unsupported(f"{parsed}: there is nothing to {verb}: use publish and subscribe. To {verb}, write {able}")
    known = parsed.kind.option_names(verb)
    for name in asked:
        if name not in known:
            having = [kind.written for kind in kinds() if getattr(kind, verb) and name in kind.option_names(verb)]
            others = f"; these have it: {', '.join(having)}" if having else ""
            raise TypeError(
                f"{parsed}: channels of kind {parsed.kind.name!r} have no option {name!r} for {verb}{strict.near(name, known)}{others}"
            )
    try:
        return opener(parsed, **{name: _plain(value) for name, value in asked.items()})
    except (Invalid, Unsupported) as error:  # an option is checked where its channel may not be known
        if str(parsed) not in str(error):
            error.args = (f"{parsed}: {error}",)
        raise


def _plain(value: Any) -> Any:
    """A whole number of another library, NumPy's for one, as Python's, wherever an option takes one. Anything else as it is."""
    if isinstance(value, int) or not hasattr(type(value), "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def subscription_options(channel: str) -> frozenset[str]:
    """The options that `subscribe` takes for a channel of this kind."""
    return parse(channel).kind.option_names("subscribe")


def takes_messages(channel: str) -> bool:
    """Whether a subscription takes the messages that it reads away from others, as a pipe's does."""
    return parse(channel).kind.one_reader


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options that were given to a function."""
    return {name: value for name, value in arguments.items() if value is not OWN and name != "channel"}
