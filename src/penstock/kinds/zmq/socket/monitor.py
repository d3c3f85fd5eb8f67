"""ZeroMQ's events of a socket's connections: open connections, counts of connects and disconnects, and the end of the socket."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import socket
import stat
import struct
import termios
import time
from typing import Any

from penstock.channels.waiting import reasons

_numbers = itertools.count()
NAP, NAP_MAX = 0.001, 0.02
SLACK = 5.0  # seconds beyond the linger within which ZeroMQ must end


class Monitor:
    """Counts of connections. Used with the lock of its handle held. peers: the descriptors of those open now."""

    def __init__(self, module: Any, context: Any, socket: Any) -> None:
        self._module = module
        self._refusals = (
            module.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            module.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            module.EVENT_HANDSHAKE_FAILED_AUTH,
        )
        events = module.EVENT_LISTENING | module.EVENT_ACCEPTED | module.EVENT_CONNECTED | module.EVENT_DISCONNECTED
        for event in (module.EVENT_MONITOR_STOPPED, module.EVENT_HANDSHAKE_SUCCEEDED, *self._refusals):
            events |= event
        name = f"inproc://penstock-monitor-{next(_numbers)}"
        self._pair = context.socket(module.PAIR)
        try:
            for option, value in (("RCVHWM", 0), ("LINGER", 0)):  # without room ZeroMQ's own thread would wait for us
                self._pair.setsockopt(getattr(module, option), value)
            socket.monitor(name, events)
            self._pair.connect(name)
        except BaseException as error:
            if not isinstance(
                error, module.ZMQError
            ):  # interrupted: a monitor that has no peer would wait for one for ever
                self._pair.connect(name)
            self._pair.close(0)
            raise
        self.connections = self.disconnections = self.refused = 0
        self._greeted = self._failing = 0
        self.peers: set[int] = set()
        self._files: dict[int, int] = {}  # descriptors of this socket, and the inode of each
        self._duplicates: list[int] = []
        self._holding = self._over = False

    def fileno(self) -> int:
        """A descriptor that is readable after an event. `look` makes it unreadable."""
        descriptor: int = self._pair.getsockopt(self._module.FD)
        return descriptor

    @property
    def ready(self) -> int:
        """Peers that have shaken hands. A port scanner has not, and a peer of ZeroMQ before 4.0 (ZMTP 3) tells no end of it."""
        return min(self._greeted, len(self.peers))

    def peer_names(self) -> list[str]:
        """The peers that are connected: host and port, or over `ipc` the process and what it does."""
        copies = [copy for peer in sorted(self.peers) if (copy := self._copy_of(peer)) is not None]
        return [name for copy in copies if (name := _peer_name(copy)) is not None]

    def look(self) -> None:
        """Reads the events that happened. Never blocks."""
        while True:
            try:
                frames = self._pair.recv_multipart(self._module.NOBLOCK)
            except self._module.Again:
                return
            self._note(*struct.unpack("=HI", frames[0]))

    def _note(self, event: int, value: int) -> None:
        module = self._module
        if event in (module.EVENT_ACCEPTED, module.EVENT_CONNECTED):
            self.connections += 1
            self.peers.add(value)
            self._files[value] = _inode(value)
            if self._holding:
                self._duplicate(value)
        elif event == module.EVENT_LISTENING:
            self._files[value] = _inode(value)
        elif event == module.EVENT_DISCONNECTED:
            self.disconnections += 1
            self.peers.discard(value)
            self._files.pop(value, None)
            self._note_end()
        elif event == module.EVENT_MONITOR_STOPPED:
            self._over = True
        elif event == module.EVENT_HANDSHAKE_SUCCEEDED:
            self._greeted += 1
        elif event in self._refusals:
            self.refused += 1
            self._failing += 1

    def _note_end(self) -> None:
        """A connection ended. Reports of handshakes name no connection; one that failed is reported before the end of it."""
        if not self.peers:
            self._greeted = self._failing = 0
        elif self._failing:
            self._failing -= 1
        else:
            self._greeted -= 1

    def hold(self) -> None:
        """Before a socket is closed: its connections stay open until their peers have read everything in them.

        libzmq closes a connection as soon as the kernel has its bytes. If the peer's queue is full at that moment, the peer's
        libzmq drops its unread messages (seen over `ipc`).
        """
        self._holding = True
        for descriptor in self.peers:
            self._duplicate(descriptor)

    def _duplicate(self, descriptor: int) -> None:
        copy = self._copy_of(descriptor)
        if copy is not None:
            self._duplicates.append(copy)

    def _copy_of(self, descriptor: int) -> int | None:
        """A descriptor of our own for a connection, or None: libzmq's threads close connections, and open others, at any time."""
        try:
            copy = os.dup(descriptor)
        except OSError:
            return None
        if self._files.get(descriptor) == _inode(copy) != 0:
            return copy
        os.close(copy)
        return None

    def ended(self, deadline: float) -> bool:
        """Waits for the end of a socket that is being closed; returns whether everything was sent before the deadline of its linger."""
        nap = NAP
        try:
            while not self._over and (left := deadline + SLACK - time.monotonic()) > 0:
                self._pair.poll(-1 if left == math.inf else math.ceil(left * 1000))
                self.look()
            whole = self._over and time.monotonic() < deadline
            while whole and any(map(_unread, self._duplicates)):
                time.sleep(nap)
                nap = min(2 * nap, NAP_MAX)
                whole = time.monotonic() < deadline
            return whole
        finally:
            self._pair.close(0)
            for descriptor in self._duplicates:
                os.close(descriptor)
            self._duplicates.clear()

    def stop(self, socket: Any) -> None:
        """Ends the monitor: the socket may then be closed at any time."""
        socket.disable_monitor()
        self._pair.close(0)

    def close_duplicates(self) -> None:
        """In a forked child: closes its copies of the parent's connections."""
        for descriptor, inode in self._files.items():
            if inode and _inode(descriptor) == inode:
                os.close(descriptor)
        self._files.clear()


def _inode(descriptor: int) -> int:
    """Which socket a descriptor is; 0 if it is none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def _peer_name(descriptor: int) -> str | None:
    """The other end of a connection, for people; None if it has gone. Closes the descriptor."""
    try:
        with socket.socket(fileno=descriptor) as opened:
            if opened.family != socket.AF_UNIX:
                host, port = opened.getpeername()[:2]
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            pid = struct.unpack("=iII", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    except OSError:
        return None
    return reasons.process_text(pid)


def _unread(connection: int) -> bool:
    """Whether the peer has not read everything yet (TCP: not acknowledged)."""
    try:
        found: int = struct.unpack("=i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))[0]
    except OSError:
        return False
    return found > 0
