"""The arguments of a sync queue's member, kept to join again. Knows no handle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock._native import core as _native
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec


@dataclass(frozen=True)
class MemberReopenArgs:
    """The arguments that join a member again in another process. leave: called with the file's identity when the member has left."""

    channel: Channel
    codec: Codec
    name: _native.MemberName
    own: bool
    spill_limit: int
    opener: Callable[..., Any]
    arguments: dict[str, Any]
    leave: Callable[[Channel, tuple[int, int]], None]
