"""What the network log promises, to be watched: `python -m evidence.network show`. Needs root, for network namespaces.

Two machines, and a cut of the network for 20 s between a served archive and its reader; a dump of the packets of a session with a key and
of one without; how long an honest pair needs to meet and talk while strangers attack.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import penstock
from evidence.network_room.wire import Way, Wire, address, why_not
from penstock.kinds.udp import keys

CUT_SECONDS, MESSAGES, PAUSE = 20.0, 3000, 0.01
MARK = b"the payload of this message"
EVERY_PACKET = 3  # ETH_P_ALL
ATTACKS = "tests/network/test_strangers.py"
ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def _program(wire: Wire, host: int, folder: Path, work: Callable[[int], None]) -> Iterator[int]:
    """A program on a machine, which gets a descriptor to write to; its other end. Killed at the end."""
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ["PENSTOCK_DIR"] = str(folder / f"m{host}")
        wire.enter(host)
        try:
            work(here)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(here)
    try:
        yield there
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(there)


def _lines(fd: int) -> Iterator[str]:
    with open(fd, closefd=False) as file:
        for line in file:
            yield line.rstrip()


def outage(wire: Wire, folder: Path) -> bool:
    """Whether every message arrives once, in order, though the network is cut for longer than the sender keeps messages."""
    here, uri = address(0, 0), f"udp://{address(0, 1)}:20000/7"

    def sends(say: int) -> None:
        archive = penstock.Archive(folder / "archive")
        with (
            penstock.publish(uri, codec="json", term_length=1 << 16) as pub,
            archive.record(uri, sent=True, start="earliest"),
            archive.serve(f"{here}:4860", insecure=True),
        ):
            for number in range(MESSAGES):
                while True:  # while nobody is heard, a sender waits some seconds before it goes on alone
                    with contextlib.suppress(penstock.TimedOut):
                        pub.send(number, timeout=1)
                        break
                os.write(say, b"%d\n" % number)
                time.sleep(PAUSE)
            threading.Event().wait()  # it serves until it is killed

    def reads(say: int) -> None:
        past = {"start": "earliest", "archive": f"grpc://{here}:4860"}
        sub = penstock.subscribe("udp://0.0.0.0:20000/7", **past)  # type: ignore[call-overload]
        while True:
            os.write(say, b"%d %d\n" % (sub.recv(), sub.lost))

    both = {(0, 1): Way(cut=True), (1, 0): Way(cut=True)}
    with _program(wire, 0, folder, sends) as sent:
        lines = _lines(sent)
        while int(next(lines)) < 100:  # the reader begins in the past
            pass
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        with _program(wire, 1, folder, reads) as read:
            got, begun, longest, lost = list[int](), time.monotonic(), 0.0, 0
            cutting = threading.Timer(2.0, lambda: wire.set(0, both))
            mending = threading.Timer(2.0 + CUT_SECONDS, lambda: wire.set(0, {way: Way() for way in both}))
            cutting.start()
            mending.start()
            for line in _lines(read):
                longest, begun = max(longest, time.monotonic() - begun), time.monotonic()
                number, lost = map(int, line.split())
                got.append(number)
                if number == MESSAGES - 1:
                    break
    right = got == list(range(MESSAGES)) and lost == 0
    print(
        f"a cut of {CUT_SECONDS:.0f} s: {len(got)} messages, {len(set(got))} of them different, in order: {got == sorted(got)}"
    )
    print(f"    lost: {lost} bytes; nothing arrived for {longest:.1f} s; {'every message once' if right else 'WRONG'}")
    return right


def dump(wire: Wire, folder: Path, *, keyed: bool) -> bool:
    """Whether the payload is in a session's packets, as the receiver's machine sees them: only without a key."""
    uri = f"udp://{address(0, 1)}:{20_001 + keyed}/7"
    options = {"key_file": folder / "key"} if keyed else {}

    def watches(say: int) -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERY_PACKET)) as raw:
            raw.bind(("wire", EVERY_PACKET))
            os.write(say, b"watches\n")
            while True:
                os.write(say, raw.recv(65_535).hex().encode() + b"\n")

    def reads(say: int) -> None:
        with penstock.subscribe(uri, codec="bytes", **options) as sub:  # type: ignore[call-overload]
            os.write(say, b"reads\n")
            assert all(sub.recv() == MARK for _ in range(100))
        os.write(say, b"100 messages\n")

    def sends(say: int) -> None:
        with penstock.publish(uri, codec="bytes", **options) as pub:  # type: ignore[call-overload]
            for _ in range(100):
                pub.send(MARK)
            threading.Event().wait()  # for what is to be sent again

    packets: list[bytes] = []
    with _program(wire, 1, folder, watches) as watched, _program(wire, 1, folder, reads) as read:
        seen, got = _lines(watched), _lines(read)
        next(seen)
        next(got)
        threading.Thread(target=lambda: packets.extend(map(bytes.fromhex, seen)), daemon=True).start()
        with _program(wire, 0, folder, sends):
            arrived = next(got)
        time.sleep(0.5)  # the last packets are on their way
    found = sum(MARK in packet for packet in packets)
    name = "with a key" if keyed else "without a key"
    print(
        f"{name}: {arrived}, {len(packets)} packets of {sum(map(len, packets))} bytes, the payload is in {found} of them"
    )
    print(f"    the longest one begins {max(packets, key=len)[28:68].hex(' ', 4)}")
    return bool(found) != keyed


def attacks() -> bool:
    """How long an honest pair took while strangers hold sessions, flood with SETUP, and take destinations."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", "-p", "no:cacheprovider", ATTACKS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    for line in re.findall(r"^\.*(.*: \d+ messages after .*)$", done.stdout, re.MULTILINE):
        print(line)
    print("    all tests of strangers passed" if done.returncode == 0 else done.stdout[-2000:])
    return done.returncode == 0


def main() -> bool:
    """Whether all went as promised."""
    if reason := why_not():
        print(f"skipped: {reason}")
        return True
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-show-") as name:
        folder, wire = Path(name), Wire(1, seed=1)
        keys.create(folder / "key")
        try:
            right = [outage(wire, folder), dump(wire, folder, keyed=False), dump(wire, folder, keyed=True)]
        finally:
            wire.close()
    return all([*right, attacks()])
