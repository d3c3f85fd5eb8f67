"""What the routes of a bridge have in common, and how far one has come. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.channels.uri.opener import parse
from penstock.channels.uri.value import shaping_of


@dataclass(frozen=True)
class Bridged:
    """How far a bridge has come with one channel.

    messages, bytes: what was passed on, and how long its bodies were. lost: bytes of the source's stream that the bridge missed, also
    between two of its runs. lost_messages: how many messages, where the kind counts them. refused: messages that the target cannot take.
    resent: messages that were sent again, since their receiver was restarted. waiting: messages that the receiver has yet to read.
    """

    source: str
    target: str
    messages: int
    bytes: int
    lost: int
    lost_messages: int
    refused: int
    resent: int
    waiting: int


@dataclass(frozen=True)
class Settings:
    """What the routes of a bridge have in common. name: of the bridge, for its bookmarks. strict: one channel's error ends the bridge.
    latch: last values from before the bridge began are passed on. values: channels that were given as values, by their URIs."""

    name: str
    start: Any = None
    codec: Any = None
    drop_after: float | None = None
    strict: bool = True
    latch: bool = True
    values: dict[str, Any] = field(default_factory=dict)

    def given(self, channel: str) -> Any:
        """A channel as it was given."""
        return self.values.get(str(parse(channel)), channel)

    def codec_of(self, channel: str) -> Any:
        """The codec of a channel's messages that do not say it; None if it is not known."""
        return self.codec if self.codec is not None else (shaping_of(self.given(channel)) or {}).get("codec")
