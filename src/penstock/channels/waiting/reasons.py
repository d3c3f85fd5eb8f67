"""Why a wait ended in vain, in one sentence for its error, or for the log.

Called by the compiled part while the wait is still noted in shared memory. It looks at one channel and at a few processes, which takes about a
millisecond. So that a program may wait with short timeouts again and again, a thread's reason is given again for ten times as long as its look took.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from dataclasses import replace
from typing import Any

from penstock._native import core as _native
from penstock.channels.uri.channel import Channel, parse
from penstock.channels.waiting import long_waits
from penstock.channels.waiting.why import facts, look, words
from penstock.channels.waiting.why.facts import without_wait
from penstock.channels.waiting.why.graph import ordered
from penstock.channels.waiting.why.records import Participant, Wait, WaitingProcess
from penstock.errors import Invalid, PenstockError

_logger = logging.getLogger("penstock")
FULL = ("room", "a buffer")
_SHOWN, _LOOKED = 2, 6  # of those that a wait is for


_Key = tuple[str, int, str | int]  # a channel's place, a thread, and what it waits for
_known: dict[_Key, tuple[float, str]] = {}  # reasons of a moment ago, and until when they are given again
KNOWN_MAX = 256


def explain(fd: int, place: str, what: str | int, warned_after_ns: int = 0) -> str:
    """The reason of this thread's wait on the channel whose file is open. With `warned_after_ns` it is logged as well."""
    key, begun = (place, threading.get_ident(), what), time.monotonic()
    until, text = _known.get(key, (0.0, ""))
    if warned_after_ns or begun >= until:
        text = _look(fd, place, warned_after_ns)
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        ended = time.monotonic()
        _known[key] = ended + 10 * (ended - begun), text
    return text


def _look(fd: int, place: str, warned_after_ns: int) -> str:
    wait, found, channel = _own_wait(fd, place)
    text = "" if wait is None else sentence(wait, found, alone=bool(warned_after_ns))
    if warned_after_ns:
        tell(str(channel) if wait is None else words.purpose(wait), warned_after_ns / 1e9, text)
    return text


def tell(what: str, seconds: float, reason: str) -> None:
    """Logs a long wait. what: it is for."""
    _logger.warning("a wait for %s has taken %s%s", what, words.seconds_text(seconds), f": {reason}" if reason else "")


def of_noted(handle: _native.Publication | _native.Subscription, what: str) -> str:
    """The end of the text of an error: the reason of a wait on this handle that is noted. Empty if nothing is known. what: it waits for."""
    with contextlib.suppress(PenstockError, OSError, ValueError):
        text: str = _native.look_at_file(handle, lambda fd, place: explain(fd, place, what))
        return f"; {text}" if text else ""
    return ""


def tell_noted(handle: _native.Publication | _native.Subscription, what: str, seconds: float) -> None:
    """Logs a wait on this handle that is noted, with its reason. what: it waits for."""
    with contextlib.suppress(PenstockError, OSError, ValueError):
        _native.look_at_file(handle, lambda fd, place: explain(fd, place, what, max(int(seconds * 1e9), 1)))


def _own_wait(fd: int, place: str) -> tuple[Wait | None, list[Participant], Channel]:
    channel, me, thread = parse(place.partition(" (")[0]), os.getpid(), threading.get_native_id()
    if channel.kind.layout.network_waits is not None:
        found = facts.participants_of(channel)
    else:
        raw = facts.found_in(channel.kind, fd, place)
        facts.tell_apart(channel, fd, [one for one in raw if one["pid"] == me])
        waited = {slot for one in raw if _is_of(one, me, thread) for slot, *_ in one["on"]}
        facts.tell_apart(channel, fd, [one for one in raw if one["slot"] in waited and one["pid"] > 0])
        found = facts.participants(channel, raw)
    own = [one.wait for one in found if one.wait is not None and one.pid == me and one.wait.thread == thread]
    return (own[0] if own else None), found, channel


def _is_of(one: dict[str, Any], pid: int, thread: int) -> bool:
    """Whether a participant's wait is of this thread."""
    return one["pid"] == pid and one["wait"] is not None and one["wait"][2] == thread


def sentence(wait: Wait, found: list[Participant], *, alone: bool = False) -> str:
    """For whom a wait is, and what they do: "4711 slow.py has 8.0 MB to read, and is stopped". Looks at a few of them at most.

    alone: there is no error in front of it, which has said of this process how far behind it is."""
    if not wait.on:
        return words.nobody_text(wait)
    looked = sorted(wait.on, key=lambda one: -one.amount)[:_LOOKED]
    near = replace(wait, on=tuple(looked))
    pids = {one.pid for one in looked}
    others = [one for one in found if one.pid in pids and one.wait is not wait]
    waiting = {one.pid: one.wait for one in others if one.wait is not None}
    quiet = [without_wait(one) if one.wait is not None else one for one in others]
    processes = look.describe(quiet, {}, also=[pid for pid in pids if pid is not None])
    parts = []
    for one in ordered(near, {pid: process.state for pid, process in processes.items()})[:_SHOWN]:
        part = words.part_text(wait, one)
        if one.pid is None:
            parts.append(f"{one.peer} {part}")
        elif one.pid == os.getpid():
            if wait.is_for_itself:
                parts.append(f"this process itself {part}, and its only thread waits here: a deadlock with itself")
            elif alone or wait.what not in FULL:
                parts.append(f"this process itself {part}")
        else:
            parts.append(f"process {processes[one.pid].name} {part}{_doing(processes[one.pid], waiting.get(one.pid))}")
    more = len(wait.on) - _SHOWN
    return ", ".join(parts) + (f", and {more} more" if more > 0 and parts else "")


def process_text(pid: int) -> str:
    """A process and what it does: "process 4711 slow.py is stopped". This process: its number alone."""
    if pid == os.getpid():
        return "this process itself"
    process = look.describe((), {}, also=[pid])[pid]
    return f"process {process.name} {words.state_text(process)}"


def _doing(process: WaitingProcess, wait: Wait | None) -> str:
    """What a process does. Its waits on other channels are not looked at."""
    if wait is not None and process.state not in ("stopped", "dead", "foreign"):
        return f", and {words.wait_text(wait)}"
    return "" if process.state == "sleeping" else f", and {words.state_text(process)}"


def read_warn_after() -> None:
    """Takes over PENSTOCK_WARN_AFTER: seconds after which a wait is logged once. `Invalid` if that is no time."""
    given = os.environ.get("PENSTOCK_WARN_AFTER", "")
    try:
        seconds = float(given) if given else 0.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise Invalid(f"PENSTOCK_WARN_AFTER is {given!r}: give seconds above 0, or unset it")
    _native.set_warn_after(int(seconds * 1e9))
    long_waits.tell_after(seconds)
