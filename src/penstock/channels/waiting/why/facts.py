"""Reads the waits of a channel out of its file. Takes no slot and changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock._native import core as _native
from penstock.channels.kind import Kind
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting.why.records import Participant, Wait, WaitedFor, stand_in
from penstock.errors import NotFound
from penstock.util import processes

_MONOTONIC_FLOOR = 1_000_000  # notes have milliseconds


Files = dict[tuple[int, int], tuple[int, ...]]  # that a process has open: descriptors by device and inode
CONTROL, SLOTS = 4096, 8192  # bytes of a channel's file: docs/design/channel_file.md


def participants_of(
    channel: Channel, files_of: Callable[[int], Files | None] = processes.open_files
) -> list[Participant]:
    """The participants of the channel that has this name now. Empty if there is none, or if its kind notes no waits."""
    kind = channel.kind
    if kind.memory is None:
        return []
    try:
        if kind.memory.network_waits is not None:
            return participants(channel, kind.memory.network_waits(channel))
        fd = files.open_existing(channel)
    except NotFound:
        return []
    try:
        found = found_in(kind, fd, opening.place_of(channel))
        tell_apart(channel, fd, found, files_of)
        return participants(channel, found)
    finally:
        os.close(fd)


def tell_apart(
    channel: Channel,
    fd: int,
    found: Iterable[dict[str, Any]],
    files_of: Callable[[int], Files | None] = processes.open_files,
) -> None:
    """Replaces the numbers of living participants whose processes are in another PID namespace by stand-ins, in place.

    A slot has the number of its owner's namespace. The process of that number here is the owner if it holds the lock on the slot's first byte.
    One that has left since its slot was read holds none either: so a slot is read again.
    """
    file, place = processes.identity(fd), opening.place_of(channel)
    away = [one for one in found if not one["dead"] and not _is_here(channel.kind, file, one, files_of)]
    there = {_owner(one) for one in found_in(channel.kind, fd, place)} if away else set()
    for one in away:
        if _owner(one) in there:
            one["pid"] = stand_in(one["pid"], str(channel), one["slot"])


def _owner(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["slot"], one["joined_ns"]


def _is_here(kind: Kind, file: tuple[int, int], one: dict[str, Any], files_of: Callable[[int], Files | None]) -> bool:
    pid = one["pid"]
    there = files_of(pid)
    if there is None:  # of another user: its files are not to be seen, its threads are
        return processes.exists(pid) and (one["wait"] is None or processes.has_thread(pid, one["wait"][2]))
    if file not in there:
        return False
    size = 256 if kind.name in ("ring", "frames") else 512
    only_writer = kind.name == "ring" and one["role"] == "publication"
    locked = processes.locked_bytes(pid, there[file])
    return not locked or (CONTROL if only_writer else SLOTS + one["slot"] * size) in locked


def found_in(kind: Kind, fd: int, place: str) -> list[dict[str, Any]]:
    """What the compiled part finds in a channel's open file."""
    layout = kind.layout
    if layout.waits is None:
        return []
    try:
        if layout.open_slots is not None and _native.is_open(fd, place, kind.name):
            return _native.open_waits(fd, place, kind.name)
        return layout.waits(fd, place)
    except NotFound:  # it is decided at this moment
        return []


def participants(channel: Channel, found: list[dict[str, Any]]) -> list[Participant]:
    """Records from what was found."""
    now = time.monotonic_ns()
    by_slot = {one["slot"]: one for one in found}
    return [
        Participant(
            channel=str(channel),
            slot=one["slot"],
            role=one["role"],
            name=one["name"],
            pid=one["pid"],
            joined_ns=one["joined_ns"],
            dead=one["dead"],
            holds=tuple(one["holds"]),
            wait=None if one["wait"] is None else _wait(channel, one, by_slot, now),
        )
        for one in found
    ]


def _wait(channel: Channel, one: dict[str, Any], by_slot: dict[int, dict[str, Any]], now: int) -> Wait:
    what, timed, thread, since_ns, alone = one["wait"]
    on = [
        WaitedFor(by_slot[slot]["pid"], None, how, amount, by_slot[slot]["dead"])
        for slot, how, amount in one["on"]
        if slot in by_slot
    ]
    on += [WaitedFor(None, peer, how, amount) for peer, how, amount in one.get("peers", ())]
    return Wait(
        channel=str(channel),
        pid=one["pid"],
        thread=thread,
        member=one["name"] or one["role"],
        what=_what(channel.kind, one["role"], what),
        since_ns=since_ns,
        seconds=max(0, now - max(since_ns, 0) - _MONOTONIC_FLOOR) / 1e9,
        timed=timed,
        any=one["any"],
        on=tuple(dict.fromkeys(on)),
        alone=alone,
    )


def _what(kind: Kind, role: str, what: str) -> str:
    if kind.by_reference:
        return {"messages": "frames", "room": "a buffer"}.get(what, what)
    return "a reply" if role == "request" and what == "messages" else what


def confirmed(before: list[Participant], after: list[Participant]) -> list[Participant]:
    """`after`, with the waits that were there before too: of the same owner of the slot, by the same thread, since the same time."""
    known = {_key(one) for one in before if one.wait is not None}
    return [one if one.wait is None or _key(one) in known else without_wait(one) for one in after]


def _key(one: Participant) -> tuple[Any, ...]:
    assert one.wait is not None
    return one.channel, one.slot, one.pid, one.joined_ns, one.wait.thread, one.wait.since_ns


def without_wait(one: Participant) -> Participant:
    """The same participant, as one that does not wait."""
    return replace(one, wait=None)
