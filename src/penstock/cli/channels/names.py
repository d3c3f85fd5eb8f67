"""Channels by name: those that a shell offers, and those of which nothing is known yet."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable
from typing import Annotated

import typer

import penstock
from penstock.channels.status import ChannelStatus
from penstock.channels.uri.channel import parse
from penstock.channels.uri.wildcards import is_pattern


def names(incomplete: str) -> list[str]:
    """Names of channels that a shell offers while a user types. Never an error: it could not be shown."""
    try:
        return [status.channel for status in penstock.list_channels() if status.channel.startswith(incomplete)]
    except Exception:
        return []


Channel = Annotated[str, typer.Argument(help="A channel such as log:imu.", autocompletion=names)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value per line, for programs.")]


def is_awaited(channel: str) -> bool:
    """Whether a subscription must wait for the channel's publication, since nothing is known of it before."""
    if not parse(channel).kind.by_reference:
        return False
    try:
        penstock.inspect(channel)
    except penstock.NotFound:
        return True
    return False


def missing(asked: Iterable[str], found: Iterable[ChannelStatus]) -> list[str]:
    """The channels that are asked for by name, and not by a pattern, and are not among those found."""
    return sorted({one for one in asked if not is_pattern(one)} - {status.channel for status in found})


def nothing_yet(channel: str) -> str:
    """The text for a command that waits for a channel's first publication. It names a channel that is written almost the same."""
    own = channel
    with contextlib.suppress(penstock.PenstockError):  # a channel may be written in several ways
        own = penstock.inspect(channel).channel
    others = [
        status.channel for status in penstock.list_channels() if status.state == "ready" and status.channel != own
    ]
    close = difflib.get_close_matches(channel, others, 1, 0.75)
    return f"{channel}: nothing was published yet; waiting for its first publication" + (
        f". Did you mean {close[0]}?" if close else ""
    )
