"""What a subscription that begins in the past asks an archive. Knows no recording: the archive's side is `penstock.record.session_history`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Invalid

Key = tuple[int, int]  # session, initial term id


class History(Protocol):
    """What an archive has: `penstock.record.session_history`."""

    lost: int
    why: str
    codec: Codec | None

    def sessions(self) -> list[Key]: ...

    def growing(self) -> set[Key]: ...

    def fill(self, key: Key, begin: int | None, end: int | None) -> Iterator[Any]: ...


def opened(archive: str | os.PathLike[str], channel: Channel, codec: Codec | None) -> History:
    """The history of a channel's sessions in an archive. Recordings are built upon channels: so this is called by its name."""
    if not isinstance(archive, str | os.PathLike):
        raise Invalid(f"{channel}: archive is {archive!r}: it must be the path or the URI of an archive")
    found: History = import_module("penstock.record.session_history").SessionHistory(archive, channel, codec)
    return found
