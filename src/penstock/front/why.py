"""Why programs wait: the waits of all channels as one graph of processes.

Reads shared memory and /proc. Takes no slot, changes nothing, and stops nobody.
"""

from __future__ import annotations

import errno
import functools

from penstock.channels.storage import discovery, inspection
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.opener import parse
from penstock.channels.uri.value import AnyChannel
from penstock.channels.waiting.why import facts, look
from penstock.channels.waiting.why.graph import Why, graph_of
from penstock.channels.waiting.why.records import Participant
from penstock.errors import Invalid, NotFound, PenstockError, Unsupported
from penstock.util import processes


def why(target: AnyChannel | int | None = None) -> Why:
    """Who waits on channels, on what, since when, and what the processes do that are waited for.

    target: a channel: its waits, and what they lead to; a process by its number: its waits, and those for it; None: all waits of this user's
    channels. Everything is read twice: a wait counts that was there both times. `NotFound` for a channel or a process that is not there,
    `Unsupported` for a channel that is not in shared memory. Safe in any thread.
    """
    if isinstance(target, bool) or (isinstance(target, int) and target < 1):
        raise Invalid(f"{target!r} is no process: give a number above 0, a channel, or nothing")
    return _of_process(target) if isinstance(target, int) else _of_channel(target)


def _of_process(pid: int) -> Why:
    found = processes.find(pid)
    if found is None:
        raise NotFound(errno.ESRCH, f"there is no process {pid}")
    participants, known = ([], {}) if found.state == "foreign" else look.look_twice(_read)
    known |= look.describe(participants, {pid: found}, also=[pid])
    return graph_of(participants, known, pid)


def _of_channel(target: AnyChannel | None) -> Why:
    named = None if target is None else parse(target)
    if named is not None:
        if named.kind.memory is None:
            raise Unsupported(f"{named} is not in shared memory: it has no waits to look at")
        inspection.inspect(named.kind, named)
    participants, known = look.look_twice(_read)
    return graph_of(participants, known, None if named is None else str(named))


def _read() -> list[Participant]:
    """The participants of all channels of this user. A channel that cannot be read is left out, as it is from lists."""
    found: list[Participant] = []
    files_of = functools.cache(processes.open_files)
    for channel in _channels():
        try:
            found += facts.participants_of(channel, files_of)
        except (PenstockError, OSError, ValueError):
            continue
    return found


def _channels() -> list[Channel]:
    return discovery.listing(["*"])[0]
