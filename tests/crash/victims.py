"""Shared by kill campaigns: messages that prove themselves, children that are killed."""

import os
import select
import signal
import zlib


def message(writer, number, size):
    body = (b"%08x%08x" % (writer, number)) + bytes((number + i) & 0xFF for i in range(size))
    return body + zlib.crc32(body).to_bytes(4, "little")


def check(data):
    body, total = data[:-4], int.from_bytes(data[-4:], "little")
    assert zlib.crc32(body) == total, "a torn message was delivered"
    return int(body[:8], 16), int(body[8:16], 16)


ALIVE: dict[int, int] = {}  # pidfds of victims by number. A test that failed leaves some, and they would go on


def start(target, *args):
    pid = os.fork()
    if pid == 0:
        try:
            target(*args)
        finally:
            os._exit(1)
    for ended in [one for one, fd in ALIVE.items() if _has_ended(fd)]:
        os.close(ALIVE.pop(ended))
    ALIVE[pid] = os.pidfd_open(pid)
    return pid


def _has_ended(fd):
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(0))


def end_all():
    """Kills victims that are left. By their pidfds: a number that was waited for may be another process's by now, or a thread's."""
    while ALIVE:
        pid, fd = ALIVE.popitem()
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.waitpid(pid, 0)
        except ProcessLookupError:  # it has ended, and the test has seen that
            pass
        finally:
            os.close(fd)


def kill(pid):
    if (fd := ALIVE.pop(pid, None)) is not None:
        os.close(fd)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
