"""The file of a `udp:` endpoint: made by the first subscription on a machine, which decides its options, checked by the others.

A subscription that cannot open decides nothing: its file is removed again. docs/design/network_log.md.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from penstock._native import core as _native
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.errors import Busy, Mismatch, NotFound, PenstockError, SystemFailure
from penstock.kinds.udp import address as udp_address
from penstock.kinds.udp import hosts as udp_hosts
from penstock.kinds.udp import peers as udp_peers
from penstock.kinds.udp import status as udp_status
from penstock.kinds.udp.options import UdpReaderOptions

DECIDED = ("window", "reliable", "group_tag", "receive_buffer", "control", "interface", "sealed", "max_members")
T = TypeVar("T")


def join_endpoint(
    channel: Channel, options: UdpReaderOptions, join: Callable[[int, list[bytes]], T], *, strict: bool = True
) -> T:
    """The result of `join(descriptor, keys)`, for the endpoint's file. The first subscription on this machine creates it.

    strict: `Mismatch` if the endpoint has other options; otherwise the endpoint's options apply.
    """
    at, stream = udp_address.split(channel.name)
    interface = udp_hosts.interface(options.interface, at)
    keys = options.keys()
    requested: dict[str, Any] = {
        "at": udp_hosts.group(udp_hosts.resolved(at), interface),
        "stream": stream,
        "window": options.window,
        "reliable": options.reliable,
        "group_tag": options.group_tag,
        "receive_buffer": options.receive_buffer or 0,
        "control": udp_hosts.control(options.control),
        "interface": (bytes(16), interface[1], 0),
        "sealed": bool(keys),
    }
    udp_hosts.check_control(at, requested["at"], requested["control"])
    while True:
        with contextlib.ExitStack() as stack:
            fd, spare = _open_file(channel, requested, options)
            stack.callback(os.close, fd)
            try:
                if strict:
                    _check_agreement(channel, fd, {**requested, "max_members": options.max_members})
                end = join(fd, keys)
                try:
                    _check_spelling(channel, requested["at"], interface)
                except BaseException:
                    del end  # it leaves
                    raise
            except BaseException as error:
                _close(spare)
                named = _has_name(fd)
                made = spare is not None
                gone = _remove_unused(channel, fd, made)
                others = not named or (isinstance(error, Mismatch) and not made)
                if gone and isinstance(error, PenstockError) and others:
                    continue  # the file was of another subscription, which could not open: it decides nothing
                raise
            _close(spare)
            if _has_name(fd):
                return end
            del end  # the same, but after joining there: leave, and begin again


def _check_spelling(channel: Channel, at: udp_hosts.Packed, interface: udp_hosts.Packed) -> None:
    """`Busy` if another channel has subscriptions at this address and stream: the host is spelled in another way there.

    One socket receives for an address. The endpoint of another name beside it would get nothing. Looked at after joining: of two that
    come at once, each sees the other.
    """
    mine, stream = udp_address.split(channel.name)
    for other in files.listing()[0]:
        if other != Channel(channel.kind, other.name) or other.name == channel.name:
            continue
        theirs, their_stream = udp_address.split(other.name)
        if (theirs.port, their_stream) != (mine.port, stream):
            continue
        with contextlib.suppress(NotFound):  # a host that has no address any longer
            if udp_hosts.group(udp_hosts.resolved(theirs), interface) == at and udp_status.received(other):
                why = f"is the address of {other}, which has subscriptions on this machine: use that URI here, too"
                raise Busy(f"{channel} {why}")


def _open_file(channel: Channel, requested: dict[str, Any], options: UdpReaderOptions) -> tuple[int, int | None]:
    """A descriptor of the endpoint's file, and a spare one if this has made it: when the process has no other left."""
    spare: list[int] = []

    def fill(new: int) -> None:
        _native.format_endpoint(fd=new, slots=_slots(options), metadata=b"{}", boot_id=files.boot_id(), **requested)
        try:
            spare.append(os.dup(new))
        except OSError as error:
            raise SystemFailure(error.errno, f"cannot make {opening.place_of(channel)}: {error.strerror}") from error

    while True:
        try:
            return files.open_existing(channel), spare.pop() if spare else None
        except NotFound:
            _close(spare.pop() if spare else None)
            _forget_images(channel)
        try:
            made = files.create(channel, _native.endpoint_file_size(_slots(options)), fill)
        except BaseException:
            _close(spare.pop() if spare else None)
            raise
        if not made:  # another process was faster
            _close(spare.pop())


def _check_agreement(channel: Channel, fd: int, requested: dict[str, Any]) -> None:
    there = _native.inspect_endpoint(fd, opening.place_of(channel))
    for name in DECIDED:
        if there[name] != requested[name]:
            if name == "sealed":
                how = "with a key, not without one" if there[name] else "without a key, not with one"
                raise Mismatch(
                    f"{opening.place_of(channel)} exists {how}: all subscriptions of one endpoint on a machine share its socket. "
                    f"Give the same key_file, or {opening.start_over(channel)}"
                )
            raise Mismatch(
                f"{opening.place_of(channel)} exists with {name}={_describe_option(name, there)}, not {_describe_option(name, requested)}: all subscriptions of one "
                f"endpoint on a machine share its socket. Give the same options, or {opening.start_over(channel)}"
            )


def _remove_unused(channel: Channel, fd: int, made: bool) -> bool:
    """Whether the file's name is removed. It is removed if there is no subscription, and this call created it or it never received anything."""
    with contextlib.suppress(PenstockError):  # there is a member for each slot, or one that is stopped: then it is used
        return _native.forget_endpoint(fd, opening.place_of(channel), made)
    return not _has_name(fd)


def _has_name(fd: int) -> bool:
    return os.fstat(fd).st_nlink != 0


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _describe_option(name: str, options: dict[str, Any]) -> str:
    """An option's value for people."""
    value = options[name]
    if name == "interface":
        return str(udp_hosts.interface_name(value[1]))
    return udp_peers.source_of(value[0], value[2]) if isinstance(value, tuple) else str(value)


def _forget_images(channel: Channel) -> None:
    """Images of an endpoint that was removed, and whose processes were killed: a new endpoint numbers its images from 1."""
    for name in udp_status.images(channel):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(files.folder() / name)


def _slots(options: UdpReaderOptions) -> int:
    """A subscription takes one, and its process another, since it may hold the socket."""
    return 2 * options.max_members
