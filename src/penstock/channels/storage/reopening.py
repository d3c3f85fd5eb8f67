"""Handles opened again: what a pickled handle keeps, and the check that its channel is still the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.channels.kind import Kind, nothing_beside
from penstock.channels.storage import files
from penstock.channels.storage.inspection import identity_opened
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Closed, NotFound


@dataclass(frozen=True)
class ReopenArgs:
    """The arguments that open a handle again in another process, or inspect its channel."""

    kind: Kind
    channel: Channel
    codec: Codec
    opener: Callable[..., Any]
    arguments: dict[str, Any]


def check_open(handle: Any) -> None:
    """`Closed` if the handle is closed: another process has nothing to continue."""
    if handle.closed:
        raise Closed(f"{handle.channel}: the handle is closed")


class Opened(NamedTuple):
    """A pickled handle's note of its channel. file: `files.identity` of it, which may be 0."""

    folder: str
    file: int


NOTHING = Opened("", 0)


def opened_file(channel: Channel, handle: Any) -> Opened:
    """Identifies the channel that a compiled handle has open among others of its name."""
    file = 0 if channel.kind.layout.beside is not nothing_beside else identity_opened(handle)[1]
    return Opened("" if channel.fake else str(files.folder()), file)


def check_same(channel: Channel, opened: Opened) -> None:
    """`NotFound` if the channel was removed, or created again since `opened_file`: a pickled handle never opens another channel."""
    if opened.folder and opened.folder != (here := str(files.folder())):
        raise NotFound(
            f"{channel}: the channel that the pickled handle had open is in the folder {opened.folder}, and this process has its channels "
            f"in {here}. Start it with PENSTOCK_DIR={opened.folder}: a fork server has the environment that it was started with"
        )
    if opened.file and files.identity(channel) != opened.file:
        raise NotFound(
            f"{channel}: the channel that the pickled or copied handle had open was removed. To use the one that has its name now, open "
            "it by its name"
        )


def reopen(opener: Callable[..., Any], channel: Channel, arguments: dict[str, Any], opened: Opened = NOTHING) -> Any:
    """Opens a pickled handle again. opened: see `check_same`."""
    check_same(channel, opened)
    return opener(channel, **arguments)
