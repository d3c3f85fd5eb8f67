"""Reads a channel's file: its status, its identity, and the description that a recording keeps."""

from __future__ import annotations

import errno
import os
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.kind import Kind as Kind
from penstock.channels.status import ChannelMember, ChannelStatus, Totals, latency_of
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.codecs.names import name_in
from penstock.errors import NotFound

PIXELS_EPOCH = 1 << 62


def about(kind: Kind, fd: int, place: str) -> dict[str, Any]:
    """The content of a channel's header, and its `size`, read without locks.

    Of an open channel: `created_ns`, `max_members`, `members` and nothing else.
    """
    if kind.layout.open_slots is not None and _native.is_open(fd, place, kind.name):
        found = {**_native.inspect_open(fd, place, kind.name), "open": True}
        found["max_members"] = found["slots"] // kind.layout.member_slots
    else:
        found = kind.layout.inspect(fd, place)
    return {**found, "size": os.fstat(fd).st_size}


def about_opened(kind: Kind, handle: Any) -> dict[str, Any]:
    """The same of the channel that a compiled handle has open, whatever has its name now. `Closed` if the handle is closed."""
    found: dict[str, Any] = _native.look_at_file(handle, lambda fd, place: about(kind, fd, place))
    return found


def identity(fd: int) -> tuple[int, int]:
    """Identifies a file among all that exist now."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def identity_opened(handle: Any) -> tuple[int, int]:
    """The same of the file that a compiled handle has open."""
    found: tuple[int, int] = _native.look_at_file(handle, lambda fd, _: identity(fd))
    return found


def owners(kind: Kind, channel: Channel) -> list[tuple[int, str, bool]]:
    """The members that the channel's file names: each one's process, its role, and whether it lives. Those of the dead are there until a
    member clears their slots."""
    try:
        found = [(member.pid, member.role, True) for member in inspect(kind, channel).members]
    except NotFound:
        with files.opened_folder(create=False) as at:
            if kind.sent_tap is None or not files.files_beside(channel, at):
                raise
        return []  # publications whose messages leave the machine have files of their own, and these ones are dead
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return found
    try:
        dead = about(kind, fd, opening.place_of(channel)).get("dead", ())
    finally:
        os.close(fd)
    return found + [(member["pid"], member["role"], False) for member in dead]


def inspect(kind: Kind, channel: Channel) -> ChannelStatus:
    """The status of the channel that has this name now, read without locks. `NotFound` if there is none."""
    if kind.layout.status is not None:
        found_there: ChannelStatus = kind.layout.status(channel)
        return found_there
    fd, place = files.open_existing(channel), opening.place_of(channel)
    try:
        return _status(kind, channel, fd, place)
    finally:
        os.close(fd)


def inspect_opened(kind: Kind, channel: Channel, handle: Any) -> ChannelStatus:
    """The status of the channel that a compiled handle has open, whatever has its name now. `Closed` if the handle is closed."""
    found: ChannelStatus
    if kind.layout.status is not None:
        found = kind.layout.status(channel, handle)
    else:
        found = _native.look_at_file(handle, lambda fd, place: _status(kind, channel, fd, place))
    return found


def path_in(channel: Channel, place: str) -> str:
    """The path in a place that `place_of` made."""
    return place if channel.fake else place.removeprefix(f"{channel} (")[:-1]


def _status(kind: Kind, channel: Channel, fd: int, place: str) -> ChannelStatus:
    found = about(kind, fd, place)
    is_open = "open" in found
    return ChannelStatus(
        channel=str(channel),
        path=path_in(channel, place),
        kind=channel.kind.name,
        state="open" if is_open else "ready",
        codec=None if is_open else name_in(found["metadata"], place),
        totals=Totals(*[0] * 10) if is_open else Totals(**found["totals"]),
        members=tuple(ChannelMember.of(member) for member in found["members"]),
        capacity=0 if is_open else found["capacity"],
        position=0 if is_open else found["position"],
        details={} if is_open else {name: found[name] for name in kind.layout.details} | found.get("last_counts", {}),
        latency=latency_of(found),
        last=found.get("last"),
        **{name: found[name] for name in ("size", "created_ns", "max_members")},
    )


def describe(kind: Kind, channel: Channel, *, pixels: bool = False) -> dict[str, Any]:
    """The description of the channel that has this name now, for a recording. `NotFound` if there is none.

    pixels: of frames, with them. Such a recording has no terms and its own positions, so it has its own epoch.
    """
    fd = files.open_existing(channel)
    try:
        return describe_file(kind, channel, fd, pixels=pixels)
    finally:
        os.close(fd)


def describe_file(kind: Kind, channel: Channel, fd: int, *, pixels: bool = False) -> dict[str, Any]:
    """The same of the channel whose file is open. `NotFound` if it has no first publication yet."""
    return description(kind, channel, about(kind, fd, opening.place_of(channel)), pixels=pixels)


def describe_opened(kind: Kind, channel: Channel, handle: Any, *, pixels: bool = False) -> dict[str, Any]:
    """The same of the channel that a compiled handle has open, whatever has its name now."""
    return description(kind, channel, about_opened(kind, handle), pixels=pixels)


def description(kind: Kind, channel: Channel, found: dict[str, Any], *, pixels: bool = False) -> dict[str, Any]:
    """The same from what `about` found."""
    if "open" in found:
        raise NotFound(
            errno.ENOENT, f"{channel} has no first publication yet, so its options are not decided: publish to it first"
        )
    described = {
        **{name: found[name] for name in ("epoch", "term_length", "initial_term_id", "stream_id")},
        "codec": codecs.from_metadata(found["metadata"], str(channel)).spec,
    }
    if pixels:
        described["term_length"] = 0
        described["codec"] |= {
            "pixels": True,
            "cell": found["cell"],
        }  # cell: bytes that each frame takes in a recording
        described["epoch"] ^= PIXELS_EPOCH
    return kind.recorded_as(described)
