"""Mistakes that a process makes with what it holds."""

from __future__ import annotations

import ctypes
import faulthandler
import os

from conformance.subjects import LENGTH


def write_in_a_child(address: int) -> int:
    """The signal that ended a forked child that wrote to an address; 0 if none did."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.memset(address, 0xEE, LENGTH)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
