"""Three machines as network namespaces, and the wire between them: a process that has the other end of each one's TUN device.

It loses, doubles, delays, reorders and cuts packets, each history's its own way. Knows packets; knows no channel.

Addresses are `10.77.SLOT.HOST`; HOST + 10 and more are addresses to which that machine may move. A slot is one history's share of the
three machines, so that many histories run in one set of them. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

HOSTS = 3
MOVES = 10  # from one of a machine's addresses to its next
NEW_NET, NEW_TIME = 0x40000000, 0x80  # of unshare(2)
TUNSETIFF, TUN, NO_INFORMATION = 0x400454CA, 0x0001, 0x1000
UDP = 17
QUEUE_MAX = 20_000  # packets on their way
CLOCKS = (0, 86_400, 40_000_000)  # seconds by which the machines' monotonic clocks are ahead of this one's
_libc = ctypes.CDLL(None, use_errno=True)


def address(slot: int, host: int, moved: int = 0) -> str:
    """A machine's address in a history. host: 0 to 2; moved: how often it has another one."""
    return f"10.77.{slot}.{host + 1 + moved * MOVES}"


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def why_not() -> str:
    """Why there can be no machines here; empty: there can."""
    pid = os.fork()
    if pid == 0:
        try:
            _call("unshare", NEW_NET)
            os.close(_tun())
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "" if code == 0 else f"no network namespaces with TUN devices to be had: {os.strerror(code)}"


def _tun() -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"wire", TUN | NO_INFORMATION))
    except OSError:
        os.close(fd)
        raise
    return fd


@dataclass
class Way:
    """What happens to packets from one machine to another. Shares of 1, and seconds; longest: bytes of a datagram."""

    loss: float = 0.0
    double: float = 0.0
    hold: float = 0.0  # a share that is late, so that others overtake it
    delay: float = 0.0
    late: float = 0.0
    cut: bool = False
    longest: int = 65_535


class Wire:
    """The machines' namespaces, and a process that carries their packets. `close` ends it; nothing is left behind."""

    def __init__(self, slots: int, seed: int) -> None:
        here, time_here = os.open("/proc/self/ns/net", os.O_RDONLY), _open_time()
        self._nets: list[int] = []
        self._times: list[int] = []
        tuns = []
        for host in range(HOSTS):
            _call("unshare", NEW_NET)
            tuns.append(_tun())
            self._nets.append(os.open("/proc/self/ns/net", os.O_RDONLY))
            lines = ["link set lo up", "link set wire mtu 1500 txqueuelen 5000", "link set wire up"]
            lines += [f"addr add {address(slot, host)}/24 dev wire" for slot in range(slots)]
            subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)
            if time_here is not None:
                self._times.append(_clock(CLOCKS[host]))
        _call("setns", here, NEW_NET)
        os.close(here)
        if time_here is not None:
            _call("unshare", NEW_TIME)  # children of this process have this machine's clock again
            os.close(time_here)
        self._talk, heard = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._pid = os.fork()
        if self._pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._talk.close()
            with contextlib.suppress(BaseException):
                _Carrier(tuns, heard, seed).run()
            os._exit(0)
        heard.close()
        for fd in tuns:
            os.close(fd)

    def enter(self, host: int) -> None:
        """This process is on that machine from now on. It must have one thread."""
        _call("setns", self._nets[host], NEW_NET)
        if self._times:
            _call("setns", self._times[host], NEW_TIME)

    def set(self, slot: int, ways: dict[tuple[int, int], Way]) -> None:
        """The ways of a history, by (from, to); others are as they are."""
        told = [[slot, *hosts, vars(way)] for hosts, way in ways.items()]
        self._talk.send(json.dumps(told).encode())

    def address(self, host: int, lines: list[str]) -> None:
        """Runs lines of `ip -batch` on a machine."""
        subprocess.run(
            ["ip", "-batch", "-"],
            input="\n".join(lines),
            text=True,
            check=True,
            capture_output=True,
            preexec_fn=lambda: self.enter(host),
        )

    def close(self) -> None:
        """The machines are gone once their last process is."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._talk.close()
        for fd in (*self._nets, *self._times):
            os.close(fd)


def _open_time() -> int | None:
    """This machine's clock; None where the kernel has no namespaces of time."""
    with contextlib.suppress(OSError):
        return os.open("/proc/self/ns/time", os.O_RDONLY)
    return None


def _clock(ahead: int) -> int:
    """A namespace whose monotonic clock is that many seconds ahead."""
    _call("unshare", NEW_TIME)
    with open("/proc/self/timens_offsets", "w") as file:
        file.write(f"monotonic {ahead} 0\nboottime {ahead} 0\n")
    return os.open("/proc/self/ns/time_for_children", os.O_RDONLY)


class _Carrier:
    """Reads packets from the machines' devices, and writes them into others after what their way does to them."""

    def __init__(self, tuns: list[int], heard: socket.socket, seed: int) -> None:
        self._tuns, self._heard = tuns, heard
        self._random = random.Random(seed)
        self._ways: dict[tuple[int, int, int], Way] = {}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self._parent = os.getppid()

    def run(self) -> None:
        """Until its parent is gone. It comes before the machines' programs: a wire that waits for a processor would be a slow one, with
        seconds of packets in its queues."""
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        poll = select.epoll()
        does: dict[int, Callable[[], None]] = {self._heard.fileno(): self._hear}
        for host, fd in enumerate(self._tuns):
            does[fd] = lambda host=host: self._read(host)  # type: ignore[misc]
        for fd in does:
            poll.register(fd, select.EPOLLIN)
        while os.getppid() == self._parent:
            wait = 1.0 if not self._due else max(0.0, self._due[0][0] - time.monotonic())
            for fd, _ in poll.poll(min(wait, 1.0)):
                does[fd]()
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, target, packet = heapq.heappop(self._due)
                self._write(target, packet)

    def _hear(self) -> None:
        for slot, source, target, way in json.loads(self._heard.recv(1 << 16)):
            self._ways[slot, source, target] = Way(**way)

    def _read(self, host: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._tuns[host], 65_535)
            except BlockingIOError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:18] != b"\x0a\x4d":
                continue
            target = (packet[19] - 1) % MOVES
            if target < HOSTS:
                self._carry(self._ways.get((packet[18], host, target), _GOOD), target, packet)

    def _carry(self, way: Way, target: int, packet: bytes) -> None:
        if way.cut:
            return
        now, dice = time.monotonic(), self._random.random
        if packet[9] != UDP:  # TCP repairs what it loses, after long waits: it meets delays and cuts alone
            self._later(now + way.delay, target, packet)
            return
        if len(packet) > way.longest or dice() < way.loss:
            return
        for _ in range(1 + (dice() < way.double)):
            late = way.late * dice() if dice() < way.hold else 0.0
            self._later(now + way.delay + late, target, packet)

    def _later(self, at: float, target: int, packet: bytes) -> None:
        if at <= time.monotonic():
            self._write(target, packet)
        elif len(self._due) < QUEUE_MAX:
            self._number += 1
            heapq.heappush(self._due, (at, self._number, target, packet))

    def _write(self, target: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # its queue is full: one more that is lost
            os.write(self._tuns[target], packet)


_GOOD = Way()
