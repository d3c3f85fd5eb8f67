"""Opening channels of any kind: made by whoever comes first, agreed on by whoever comes later.

Knows files and metadata; what a kind's file looks like its `Kind` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Invalid, Mismatch, NotFound
from penstock.shm import files, memory
from penstock.status import ChannelStatus, Member, Totals

PIXELS_EPOCH = 1 << 62


@dataclass(frozen=True)
class Kind:
    """What is particular to channels of one kind.

    options: makes the checked options of a new channel, with a `file_size`. format: fills a new file's descriptor.
    inspect: what a file says of itself.
    """

    options: Callable[..., Any]
    format: Callable[[Any, Codec, int], None]
    inspect: Callable[[int, str], dict[str, Any]]


def where(channel: Channel) -> str:
    """The path of a channel's file."""
    if channel.fake:
        return f"{channel} (in process {os.getpid()})"
    return str(files.folder() / files.file_name(channel))


def open_end(
    kind: Kind, channel: Channel, asked: dict[str, Any], codec: Any, end: Callable[[int, str], Any]
) -> tuple[Any, Codec]:
    """What `end` makes of a descriptor and a path, and the channel's codec. Makes the channel if there is none.

    Whatever the kind, `asked` may have `prefault`: bring the channel's memory into this process now, not when it is first used.
    """
    asked = dict(asked)
    prefault = asked.pop("prefault", False)
    fd, found = _open_or_make(kind, channel, asked, codec)
    try:
        made = end(fd, where(channel))
    finally:
        os.close(fd)
    if prefault:
        made.prefault()
    if channel.fake and isinstance(made, _native.Receiver):
        made.lead_through(memory.gate(channel))
    return made, found


def _open_or_make(kind: Kind, channel: Channel, asked: dict[str, Any], codec: Any) -> tuple[int, Codec]:
    wanted = kind.options(**asked)
    while True:
        try:
            fd = files.open_existing(channel)
        except NotFound:
            chosen = codecs.resolve(codec)
            try:
                size = wanted.file_size
            except NotFound as error:
                raise NotFound(error.errno, f"there is no channel {channel}: {error.strerror}") from None
            files.create(channel, size, lambda new, chosen=chosen: kind.format(wanted, chosen, new))  # type: ignore[misc]
            continue
        try:
            return fd, _agree(kind, channel, fd, asked, codec)
        except BaseException:
            os.close(fd)
            raise


def _agree(kind: Kind, channel: Channel, fd: int, asked: dict[str, Any], codec: Any) -> Codec:
    """The channel's codec, or `Mismatch` if what was asked for is not what the channel is."""
    place = f"{channel} ({where(channel)})"
    there = kind.inspect(fd, place)
    for name, value in asked.items():
        if value is not None and name in there and there[name] != value:
            raise Mismatch(
                f"{place} exists with {name}={there[name]}, not {value}. Ask for that, or remove the channel first"
            )
    found = codecs.from_metadata(there["metadata"], place)
    if codec is not None and codecs.resolve(codec).spec != found.spec:
        raise Mismatch(f"{place} exists with codec {found.spec}, not {codecs.resolve(codec).spec}")
    return found


def start_of(start: Any, names: tuple[str, ...]) -> tuple[str, int]:
    """How the compiled ends want it: a name and a position. `Invalid` for anything else."""
    wanted = " or ".join([*(repr(name) for name in names), "a position"])
    if isinstance(start, bool) or not isinstance(start, str | int) or (isinstance(start, str) and start not in names):
        raise Invalid(f"start is {start!r}: it must be {wanted}")
    if isinstance(start, str):
        return start, 0
    if not 0 <= start < 1 << 63:
        raise Invalid(f"start is {start}: positions are from 0 to below 2**63")
    return "position", start


def about(kind: Kind, channel: Channel) -> dict[str, Any]:
    """What a channel's file says, and its `size`; read without disturbing anyone. `NotFound` if there is none."""
    fd = files.open_existing(channel)
    try:
        return {**kind.inspect(fd, where(channel)), "size": os.fstat(fd).st_size}
    finally:
        os.close(fd)


def inspect(kind: Kind, channel: Channel) -> ChannelStatus:
    """A channel's sizes, totals and members, read without disturbing anyone. `NotFound` if there is none."""
    path, found = where(channel), about(kind, channel)
    return ChannelStatus(
        channel=str(channel),
        path=path,
        codec=codecs.from_metadata(found["metadata"], path).kind,
        totals=Totals(**found["totals"]),
        members=tuple(Member(**member) for member in found["members"]),
        **{name: found[name] for name in ("size", "term_length", "window", "slots", "created_ns", "tail", "limit")},
        publishing=found.get("publishing"),
        buffers=found.get("buffers"),
        leased=found.get("leased"),
    )


def describe(kind: Kind, channel: Channel, *, pixels: bool = False) -> dict[str, Any]:
    """What a recording keeps of its channel.

    pixels: of frames, with them. Such a recording has no terms, and its positions are its own: so it has an epoch of its own.
    """
    found = about(kind, channel)
    described = {
        **{name: found[name] for name in ("epoch", "term_length", "initial_term_id", "stream_id")},
        "codec": codecs.from_metadata(found["metadata"], where(channel)).spec,
    }
    if pixels:
        described["term_length"], described["codec"]["pixels"] = 0, True
        described["epoch"] ^= PIXELS_EPOCH
    return described
