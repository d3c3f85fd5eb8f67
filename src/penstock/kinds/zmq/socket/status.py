"""The status of a handle over ZeroMQ, in the words that every kind has. It knows only the handle's own observations."""

from __future__ import annotations

import os
from typing import Any

from penstock.channels.status import ChannelMember, ChannelStatus, Totals
from penstock.errors import Unsupported
from penstock.kinds.zmq.socket.monitor import Monitor


class ZmqStatus(ChannelStatus):
    """A handle over ZeroMQ at one moment.

    totals, members: of this handle alone; losses are None, since ZeroMQ does not count them. path is "", and size, capacity and
    max_members are 0: there is no shared memory. created_ns: when the handle was opened. details: `connected`, peers now;
    `connections`, ever made, repeated ones included; `disconnections`; `refused`, handshakes that failed, for instance with a
    wrong key; `malformed`, requests that had no empty part in front of their body, and were dropped; `max_messages`.
    """

    @property
    def lag(self) -> int:
        """Raises `Unsupported`: ZeroMQ does not report the content of its queues."""
        raise Unsupported(
            f"{self.channel}: ZeroMQ does not report unread messages; channels in shared memory have a lag"
        )


def of(handle: Any, seen: Monitor) -> ZmqStatus:
    """The status of a handle, whose lock is held."""
    totals = Totals(
        messages_sent=handle._sent,
        bytes_sent=handle._written,
        messages_received=handle._received,
        bytes_received=handle._read,
        back_pressure=0,
        bytes_lost=None,
        messages_lost=None,
        repaired=0,
        dropped=0,
        reaped=0,
    )
    own = ChannelMember(
        slot=0,
        role=handle._role,
        dropped=False,
        pid=os.getpid(),
        session=0,
        joined_ns=handle._made_ns,
        position=handle.position,
        messages=handle._sent + handle._received,
        bytes=handle._written + handle._read,
        back_pressure=0,
        bytes_lost=None,
        messages_lost=None,
    )
    return ZmqStatus(
        channel=handle.channel,
        path="",
        kind=handle._channel.kind.name,
        state="ready",
        codec=handle.codec.kind,
        size=0,
        created_ns=handle._made_ns,
        capacity=0,
        max_members=0,
        position=handle.position,
        totals=totals,
        members=(own,),
        details={
            "connected": seen.ready,
            "connections": seen.connections,
            "disconnections": seen.disconnections,
            "refused": seen.refused,
            "malformed": handle._malformed,
            "max_messages": handle._options.max_messages,
        },
    )
