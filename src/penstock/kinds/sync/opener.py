"""`sync:` channels: every member reads the messages of the others; a message stays until all members that were present have read it.

A term log whose messages carry a sender and a type: how a queue is made, joined, published to, subscribed to, and removed by its
last member. A member's work is in `member.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.checks import flag, manual_clock, patience, seconds, whole
from penstock.channels.handles import NativePublication, NativeSubscription
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, inspection, memory, opening, reopening
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.codecs import Codec
from penstock.errors import Invalid, NotFound, SystemFailure
from penstock.kinds.sync.codec_member import CodecSyncMember
from penstock.kinds.sync.member import SyncMember
from penstock.kinds.sync.message import (
    Change,
    SyncMessage,
    SyncSubscription,
    bytes_of,
)
from penstock.kinds.sync.options import SyncOptions
from penstock.kinds.sync.reopen_args import MemberReopenArgs

SPILL_LIMIT = 64 << 20


def _format(options: SyncOptions, codec: Codec, fd: int, hold: _native.OpenHold | None = None) -> None:
    log = options.log
    _native.format_log(
        fd=fd,
        term_length=log.term_bytes,
        capacity=log.room,
        slots=log.max_members,
        stream_id=log.stream_id,
        initial_term_id=log.initial_term_id,
        start_position=log.start_position,
        epoch=files.new_epoch(),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
        sync=True,
        hold=hold,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    about = _native.inspect_log(fd, path, sync=True)
    return {**about, "max_members": about["slots"] // 2}


def _recorded_as(described: dict[str, Any]) -> dict[str, Any]:
    """A recorded message has its sender and its type."""
    return {**described, "codec": {"kind": "sync", "of": described["codec"]}}


# ---- the last member removes the queue ----


def _own_description(fd: int) -> int:
    """The file again, with its own locks: those of `fd` live as long as any mapping made of it."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def _has_name(channel: Channel, fd: int) -> bool:
    return memory.names(channel, fd) if channel.fake else os.fstat(fd).st_nlink > 0


def _remove_if_last(channel: Channel, identity: tuple[int, int]) -> None:
    """Removes the queue if it has no member, and no process is about to join. identity: the file of the member that has left. Another
    queue that was given its name stays, and so does one that this process may no longer open."""
    try:
        fd = files.open_existing(channel)
    except (NotFound, SystemFailure):
        return
    guard = _own_description(fd)
    try:
        if inspection.identity(fd) != identity:
            return
        if not _native.lock_byte(guard, _native.LIFE_BYTE, True, False):
            return  # a process is joining
        if _has_name(channel, fd) and not _native.inspect_log(fd, opening.place_of(channel), sync=True)["members"]:
            with contextlib.suppress(NotFound):  # somebody removed it at the same time
                files.unlink(channel)
    finally:
        os.close(fd)
        os.close(guard)


def _guard_file(channel: Channel, make: Callable[[int, str], Any]) -> Callable[[int, str], Any]:
    """The result of `make`, or None if the last member removed the file in the meantime."""

    def end(fd: int, path: str) -> Any:
        guard = _own_description(fd)
        try:
            _native.lock_byte(guard, _native.LIFE_BYTE, False, True)
            return make(fd, path) if _has_name(channel, fd) else None
        finally:
            os.close(guard)

    return end


def _open(
    channel: Channel, requested: dict[str, Any], codec: Any, make: Callable[[int, str], Any]
) -> tuple[Any, Codec]:
    """`opening.open_end`, repeated if the last member removed the file in between."""
    while True:
        made, found = opening.open_end(channel.kind, channel, requested, codec, _guard_file(channel, make))
        if made is not None:
            return made, found


# ---- options ----


def _encode_name(name: str | bytes | _native.MemberName | None) -> _native.MemberName:
    """A member's name. If none is given, one is drawn that no other member has."""
    if name is None:
        return _native.MemberName(b"")
    if isinstance(name, _native.MemberName):
        return name
    found = bytes_of(name, "a name")
    if not 1 <= len(found) <= _native.NAME_MAX or b"\0" in found:
        raise Invalid(f"name is {name!r}: it takes 1 to {_native.NAME_MAX} bytes, none of them 0")
    return _native.MemberName(found)


def _drop_unset(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


# ---- opening ----


def join(
    channel: Channel,
    *,
    name: str | bytes | None = None,
    own: bool = False,
    start: str | int = "newest",
    last: int | None = None,
    when_slow: str | None = None,
    drop_after: float | None = None,
    spill_limit: int = SPILL_LIMIT,
    spin: float = 20e-6,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> SyncMember:
    """A member of a queue. Creates the queue if it does not exist."""
    called, stamps = _encode_name(name), manual_clock(clock)
    own, spill_limit = flag(own, "own"), whole(spill_limit, "spill_limit")
    where, position = opening.start_of(start, ("newest", "earliest"), last)
    slow, looking = patience(when_slow, drop_after), seconds(spin, "spin")
    requested = _drop_unset(
        capacity=capacity, max_members=max_members, start_position=start_position, prefault=prefault
    )
    reader, found = _open(
        channel, requested, codec, lambda fd, path: _native.sync_reader(fd, path, called, where, position, slow)
    )
    # Its bodies go through the member, which knows the codec.
    sub = SyncSubscription(
        reader, reopening.ReopenArgs(channel.kind, channel, codecs.BYTES, join, {}), codecs.BYTES, looking
    )
    try:
        writer, _ = _open(channel, requested, codec, lambda fd, path: _native.sync_writer(fd, path, called, stamps))
        pub = NativePublication(writer, reopening.ReopenArgs(channel.kind, channel, codecs.BYTES, join, {}))
    except BaseException:
        sub.close()
        raise
    arguments = {
        "name": name,
        "own": own,
        "when_slow": when_slow,
        "drop_after": drop_after,
        "spill_limit": spill_limit,
        "spin": spin,
        **codecs.named(codec),
    }
    origin = MemberReopenArgs(channel, found, called, own, spill_limit, join, arguments, _remove_if_last)
    return (SyncMember if found.kind == "bytes" else CodecSyncMember)(pub, sub, origin)


def open_publication(
    channel: Channel,
    *,
    name: str | bytes | None = None,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> NativePublication:
    """A member that only writes, so that no writer waits for it. Creates the queue if it does not exist."""
    called, stamps = _encode_name(name), manual_clock(clock)
    requested = _drop_unset(
        capacity=capacity, max_members=max_members, start_position=start_position, prefault=prefault
    )
    writer, found = _open(channel, requested, codec, lambda fd, path: _native.sync_writer(fd, path, called, stamps))
    return handles.publication(
        writer,
        reopening.ReopenArgs(channel.kind, channel, found, open_publication, {"name": name, **codecs.named(codec)}),
    )


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    when_slow: str | None = None,
    drop_after: float | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> NativeSubscription:
    """A reader without a name, such as a recorder: writers wait for it as for any member. An open queue stays open."""
    where, position = opening.start_of(start, ("newest", "earliest"), last)
    slow, looking = patience(when_slow, drop_after), seconds(spin, "spin")
    nameless = _native.MemberName(b"", own=False)
    end = _guard_file(channel, lambda fd, path: _native.sync_reader(fd, path, nameless, where, position, slow))
    early = _guard_file(channel, lambda fd, path: _native.early_log(fd, path, "sync", b"", slow))
    requested = _drop_unset(
        capacity=capacity, max_members=max_members, start_position=start_position, prefault=prefault
    )
    reader = None
    while reader is None:
        reader, found = opening.open_reader(channel.kind, channel, requested, codec, end, early, (where, position))
    ends = flag(until_end, "until_end")
    arguments = {
        "start": start,
        "when_slow": when_slow,
        "drop_after": drop_after,
        "spin": spin,
        "until_end": ends,
        **codecs.named(codec),
    }
    origin = reopening.ReopenArgs(channel.kind, channel, found or codecs.BYTES, open_subscription, arguments)
    return SyncSubscription(reader, origin, found, looking, ends)


@dataclass(frozen=True, repr=False, kw_only=True)
class Sync(ChannelValue[Message]):
    """A `sync:` queue: a log in which every member reads the messages of the others.

    capacity: bytes that may be unread by the slowest member before writers wait, a power of two from 64 KiB to 1 GiB; the longest message
    is half of it. max_members: members at once, 1 to 512; a publication or a subscription counts for half a member.
    """

    _prefix: ClassVar[str] = "sync:"

    capacity: int | str | None = None
    max_members: int | None = None


KIND = Kind(
    name="sync",
    written="sync:NAME",
    options=SyncOptions,
    value_options=Sync.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    join=join,
    tap=open_subscription,
    recorded_as=_recorded_as,
    memory=Layout(
        format=_format,
        inspect=_inspect,
        open_slots=lambda options: int(options.log.max_members),
        member_slots=2,
        look=lambda fd, path: _native.log_look(fd, path, sync=True),
        waits=lambda fd, path: _native.log_waits(fd, path, sync=True),
    ),
    keeps=True,
)

__all__ = ["KIND", "Change", "SyncMember", "SyncMessage", "SyncSubscription", "join"]
