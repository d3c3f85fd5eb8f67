"""Waits on a `udp:` channel of this machine: of its subscriptions for sessions, of its publications for receivers. Reads files without locks."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from penstock._native import core as _native
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.errors import NotFound, PenstockError
from penstock.kinds.udp import status

ENDED = "closed"


def waits(channel: Channel) -> list[dict[str, Any]]:
    """The participants, and their peers on the network: `peers` has (host and port, how, amount)."""
    try:
        network = status.status(channel).network
    except NotFound:
        return []
    assert network is not None
    senders = [(one.source, "sends", 0) for one in network.sessions if one.state != ENDED]
    found = []
    with contextlib.suppress(NotFound):
        fd = files.open_existing(channel)
        with status.closing(fd):
            found += [
                {**one, "slot": ("endpoint", one["slot"]), "peers": senders}
                for one in _native.endpoint_waits(fd, opening.place_of(channel))
            ]
    for path in status.logs(channel):
        session = status.session_of(path)
        receivers = [(one.address, "receives", one.lag) for one in network.receivers if one.session == session]
        slowest = [one for one in receivers if one[2]] or receivers
        found += [
            {**one, "slot": (session, one["slot"]), "peers": slowest, "on": [], "any": False}
            for one in _log_waits(path)
            if one["role"] != status.SENDER_ROLE
        ]
    return found


def _log_waits(path: str) -> list[dict[str, Any]]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # the publication has just closed
        return []
    with status.closing(fd), contextlib.suppress(PenstockError):
        return _native.log_waits(fd, path)
    return []
