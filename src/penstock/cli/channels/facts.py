"""Facts of a channel in a table's words: its codec, and how far back its messages reach. For ls and top."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.channels.storage.holding import held
from penstock.channels.uri.opener import parse
from penstock.cli.terminal import output

if TYPE_CHECKING:
    from penstock.channels.status import ChannelStatus


def holds(seconds: float | None) -> str:
    """How far back the messages reach that a channel keeps."""
    return "–" if seconds is None else output.duration(seconds * 1e9)


def held_seconds(channel: str) -> float | None:
    """How far back they reach; None if it keeps none, or if that is not known."""
    found = held(parse(channel), time.time_ns())
    return None if found is None else found.seconds


def codec(status: ChannelStatus) -> str:
    """The channel's codec, and of a log that keeps last values their key and number."""
    name = status.codec or "(open)"
    return name if status.last is None else f"{name}, last {status.last}: {output.count(status.details['last_values'])}"
