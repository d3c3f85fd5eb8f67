"""The file of a `udp:` endpoint: made by the first subscription on a machine, which decides its options, checked by the others."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from penstock._native import core as _native
from penstock.channel import Channel
from penstock.channels import files, opening
from penstock.errors import Mismatch, NotFound
from penstock.net import udp_address, udp_hosts, udp_status
from penstock.net.udp_options import UdpReaderOptions

DECIDED = ("window", "reliable", "group_tag", "receive_buffer", "control")


def opened(channel: Channel, options: UdpReaderOptions, *, strict: bool = True) -> int:
    """A descriptor of the endpoint's file, which the first subscription on this machine makes.

    strict: `Mismatch` if the endpoint has other options; else what it has is taken.
    """
    at, stream = udp_address.split(channel.name)
    asked = {
        "at": udp_hosts.resolved(at),
        "stream": stream,
        "window": options.window,
        "reliable": options.reliable,
        "group_tag": options.group_tag,
        "receive_buffer": options.receive_buffer or 0,
        "control": udp_hosts.control(options.control),
        "interface": udp_hosts.interface(options.interface, at),
    }
    while True:
        try:
            fd = files.open_existing(channel)
        except NotFound:
            _forget_images(channel)
            size = _native.endpoint_file_size(_slots(options))
            files.create(channel, size, lambda new: _format(new, asked, options))
            continue
        try:
            there = _native.inspect_endpoint(fd, opening.place_of(channel))
            for name in DECIDED if strict else ():
                if there[name] != asked[name]:
                    raise Mismatch(
                        f"{opening.place_of(channel)} exists with {name}={_shown(there[name])}, not {_shown(asked[name])}: all subscriptions of one "
                        f"endpoint on a machine share its socket. Give the same options, or {opening.start_over(channel)}"
                    )
        except BaseException:
            os.close(fd)
            raise
        return fd


def _shown(value: Any) -> str:
    """An option's value for people."""
    return udp_status.source_of(value[0], value[2]) if isinstance(value, tuple) else str(value)


def _forget_images(channel: Channel) -> None:
    """Images of an endpoint that was removed, and whose processes were killed: a new endpoint numbers its own from 1 on."""
    for name in udp_status.images(channel):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(files.folder() / name)


def _slots(options: UdpReaderOptions) -> int:
    """A subscription takes one, and its process another, since it may hold the socket."""
    return 2 * options.max_members


def _format(fd: int, asked: dict[str, Any], options: UdpReaderOptions) -> None:
    _native.format_endpoint(fd=fd, slots=_slots(options), metadata=b"{}", boot_id=files.boot_id(), **asked)
