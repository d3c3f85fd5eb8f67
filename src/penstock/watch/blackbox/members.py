"""Watches the processes that have channels open, and says which of them end, at once and without looking again and again.

The kernel reports each: inotify that a channel's file was opened or closed, a pidfd that a process has ended. Whether a member died or closed is what
its slot says, whose lock is gone. Knows channel files; knows no trigger.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import selectors
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock._native import core as _native
from penstock.channels.status import READS_ONLY
from penstock.channels.storage import files, inspection, opening
from penstock.channels.uri.channel import Channel
from penstock.errors import NotFound, PenstockError, SystemFailure
from penstock.util import processes

log = logging.getLogger("penstock")

IN_CLOSE_WRITE, IN_OPEN, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_ISDIR = 0x8, 0x20, 0x80, 0x100, 0x200, 0x40000000
WATCHED = IN_CLOSE_WRITE | IN_OPEN | IN_MOVED_TO | IN_CREATE | IN_DELETE
EVENT = struct.Struct("iIII")
LOG_ENDING = ".log"  # of a publication whose messages leave the machine, beside its channel's file
REPORTED_MAX = 10_000
LOOKS = (0.01, 0.1, 1.0)  # seconds after a file was opened or closed: its opener joins in the meantime, or its locks go
LOOKS_AGAIN = 100  # at most, at a file whose members die one after the other


@dataclass(frozen=True)
class Member:
    """A member that a file names."""

    pid: int
    role: str
    joined_ns: int

    @property
    def writes(self) -> bool:
        """Whether it sends messages."""
        return self.role not in READS_ONLY


@dataclass(frozen=True)
class Ended:
    """A process that has ended. died: the channels in which it died without closing; wrote: those of them that it wrote. pid: 0 if others
    cleared its place before it was looked at."""

    pid: int
    command: str
    died: tuple[str, ...]
    wrote: tuple[str, ...]


@dataclass
class _Held:
    """A file that is kept open, so that no look at it opens anything."""

    channel: str
    fd: int
    inspect: Callable[[int], dict[str, Any]]
    members: frozenset[Member] = frozenset()
    dead: frozenset[Member] = frozenset()
    deaths: int = 0
    beside: bool = False  # a publication's own log


@dataclass
class _Process:
    pid: int
    fd: int
    command: str
    names: set[str] = field(default_factory=set)

    @property
    def described(self) -> str:
        """Its command line, and its names in channels that have such."""
        return " ".join([self.command, *sorted(self.names)])


class MemberWatch:
    """Watches all channels of this user. One thread at a time.

    selector: gets descriptors with functions to call as their data. on_end: called with each process that has ended. on_looks: called with the
    times at which `look` is to be called.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_end: Callable[[Ended], None],
        on_looks: Callable[[list[float]], None],
    ) -> None:
        self._selector, self._on_end, self._on_looks = selector, on_end, on_looks
        self._held: dict[str, _Held] = {}
        self._left_alone: set[str] = set()
        self._processes: dict[int, _Process] = {}
        self._reported: dict[int, int] = {}  # pid → when its end was reported; ns
        self._inotify = _watch_folder()
        selector.register(self._inotify, selectors.EVENT_READ, self._on_files)
        self.look(first=True)

    def close(self) -> None:
        """Releases all descriptors."""
        for fd in [
            self._inotify,
            *(one.fd for one in self._held.values()),
            *(one.fd for one in self._processes.values()),
        ]:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fd)
            os.close(fd)
        self._held, self._processes = {}, {}

    def look(self, *, first: bool = False) -> None:
        """Finds new files and new members, and members that died before they were seen."""
        self._find_files()
        ended: dict[int, Ended] = {}
        for held in list(self._held.values()):
            try:
                self._look_at(held, ended, first=first)
            except (PenstockError, OSError) as error:  # the others are looked at
                log.warning("the members of %s are not watched: %s", held.channel, error)
        for one in ended.values():
            self._report(one)

    def about(self, channel: str) -> dict[str, Any] | None:
        """What a channel's file says now; None if there is none."""
        held = next((one for one in self._held.values() if one.channel == channel and not one.beside), None)
        return None if held is None else held.inspect(held.fd)

    def _on_files(self) -> None:
        names = _read_events(self._inotify)
        if names:
            self._on_looks([time.monotonic() + seconds for seconds in LOOKS])

    def _find_files(self) -> None:
        try:
            with files.opened_folder(create=False) as at:
                owners = _watched_files(at)
                there = {}
                for name in owners:
                    with contextlib.suppress(FileNotFoundError):
                        there[name] = os.stat(name, dir_fd=at, follow_symlinks=False).st_ino
        except NotFound:
            return
        for name, held in list(self._held.items()):
            if there.get(name) != os.fstat(held.fd).st_ino and all(one.pid == os.getpid() for one in held.members):
                os.close(held.fd)
                del self._held[name]
        for name, inode in there.items():
            key = f"{name}\0{inode}"
            if key in self._left_alone or (name in self._held and os.fstat(self._held[name].fd).st_ino == inode):
                continue
            if (
                before := self._held.pop(name, None)
            ) is not None:  # of a channel that was removed and still has members
                self._held[f"{name}\0{os.fstat(before.fd).st_ino}"] = before
            try:
                channel, beside = owners[name]
                self._held[name] = _hold(name, channel, beside=beside)
            except (PenstockError, OSError) as error:
                if not isinstance(error, NotFound):
                    self._left_alone.add(key)
                    log.warning("%s is not watched: %s", files.folder() / name, error)

    def _look_at(self, held: _Held, ended: dict[int, Ended], *, first: bool = False) -> None:
        try:
            found = _settled(held)
        except PenstockError as error:
            log.debug("%s could not be looked at: %s", held.channel, error)
            return
        members = frozenset(Member(one["pid"], one["role"], one["joined_ns"]) for one in found["members"])
        dead = frozenset(Member(one["pid"], one["role"], one["joined_ns"]) for one in found.get("dead", ()))
        deaths = _deaths(found)
        if not first:
            gone = (held.members - members - dead) if deaths > held.deaths else frozenset()
            died = (dead - held.dead) | gone
            unknown = deaths - held.deaths - len(died)
            for member in died:
                if member.joined_ns <= self._reported.get(member.pid, 0):
                    continue
                _add(ended, member.pid, self._command_of(member.pid), held.channel, writes=member.writes)
            for _ in range(unknown):  # each joined and died between two looks, and others have cleared its slot
                _add(ended, -1 - len(ended), "", held.channel, writes=True)
        held.members, held.dead, held.deaths = members, dead, deaths
        for one in found["members"]:
            if one["pid"] != os.getpid() and one["joined_ns"] > self._reported.get(one["pid"], 0):
                self._watch(one["pid"], one.get("name") or "", held)

    def _command_of(self, pid: int) -> str:
        known = self._processes.get(pid)
        return "" if known is None else known.described

    def _watch(self, pid: int, name: str, held: _Held) -> None:
        known = self._processes.get(pid)
        if known is None:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:  # it has just ended
                self._on_looks([time.monotonic() + LOOKS[0]])
                return
            except OSError as error:
                raise SystemFailure(error.errno or 0, f"cannot watch process {pid}: {error.strerror}") from error
            if processes.identity(held.fd) not in (processes.open_files(pid) or ()):
                os.close(fd)
                if (key := f"{held.channel} {pid}") not in self._left_alone and os.path.exists(f"/proc/{pid}"):
                    self._left_alone.add(key)
                    log.warning(
                        "process %d has %s open in another PID namespace, or as another user: its end is seen only when "
                        "channels are opened",
                        pid,
                        held.channel,
                    )
                return
            known = self._processes[pid] = _Process(pid, fd, _command(pid))
            self._selector.register(fd, selectors.EVENT_READ, lambda: self._on_exit(pid))
        if name:
            known.names.add(name)

    def _on_exit(self, pid: int) -> None:
        process = self._processes[pid]
        ended = {pid: Ended(pid, process.described, (), ())}
        for held in list(self._held.values()):
            if any(member.pid == pid for member in held.members):
                self._look_at(held, ended)
        for one in ended.values():
            self._report(one)

    def _report(self, ended: Ended) -> None:
        """Each process is reported once, whether its end was seen by its pidfd or by a look before."""
        if ended.pid:
            self._reported[ended.pid] = time.time_ns()
        process = self._processes.pop(ended.pid, None)
        if process is not None:
            self._selector.unregister(process.fd)
            os.close(process.fd)
        while len(self._reported) > REPORTED_MAX:
            del self._reported[next(iter(self._reported))]
        self._on_end(ended)


def _deaths(found: dict[str, Any]) -> int:
    """How many members have died, as a file says."""
    return int(found.get("totals", {}).get("reaped", 0))


def _settled(held: _Held) -> dict[str, Any]:
    """What a file says while none of its members dies. One that dies while the file is read may be among the deaths and among the living: it would
    be a death of somebody unknown now, and one of its own at the next look."""
    found = held.inspect(held.fd)
    for _ in range(LOOKS_AGAIN):
        before, found = _deaths(found), held.inspect(held.fd)
        if _deaths(found) == before:
            break
    return found


def _add(ended: dict[int, Ended], pid: int, command: str, channel: str, *, writes: bool) -> None:
    known = ended.get(pid, Ended(max(pid, 0), command, (), ()))
    died = tuple(dict.fromkeys([*known.died, channel]))
    wrote = tuple(dict.fromkeys([*known.wrote, channel])) if writes else known.wrote
    ended[pid] = Ended(known.pid, known.command, died, wrote)


def _hold(name: str, channel: Channel, *, beside: bool) -> _Held:
    """Opens a file of the channel folder for good. beside: a publication's own log, beside the channel's file."""
    if beside:
        with files.opened_folder(create=False) as at:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        path = str(files.folder() / name)
        return _Held(str(channel), fd, lambda fd: _native.inspect_log(fd, path), beside=True)
    place, kind = opening.place_of(channel), channel.kind
    return _Held(str(channel), files.open_existing(channel), lambda fd: inspection.about(kind, fd, place))


def _watched_files(at: int) -> dict[str, tuple[Channel, bool]]:
    """The files that name members, and for each its channel and whether it is beside the channel's own."""
    found = {}
    for name in os.listdir(at):
        owner = files.owner_of(name)
        if owner is not None and (not owner[1] or name.endswith(LOG_ENDING)):
            found[name] = owner
    return found


def _watch_folder() -> int:
    """An inotify descriptor of the channel folder, which is made if it does not exist."""
    with files.opened_folder(create=True):
        pass
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(files.folder()), WATCHED) < 0:
        number = ctypes.get_errno()
        if fd >= 0:
            os.close(fd)
        raise SystemFailure(number, f"cannot watch {files.folder()}: {os.strerror(number)}")
    return int(fd)


def _read_events(fd: int) -> set[str]:
    """The names of files that were opened, closed, made or removed."""
    found: set[str] = set()
    while True:
        try:
            raw = os.read(fd, 1 << 16)
        except BlockingIOError:
            return found
        at = 0
        while at < len(raw):
            _, mask, _, length = EVENT.unpack_from(raw, at)
            at += EVENT.size
            name = os.fsdecode(raw[at : at + length].rstrip(b"\0"))
            at += length
            if not mask & IN_ISDIR and name and not name.startswith("."):
                found.add(name)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
