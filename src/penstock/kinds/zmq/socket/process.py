"""Shared by a process's handles over ZeroMQ: pyzmq, the context, and the work around a fork and at exit."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import threading
import weakref
from typing import Any

from penstock.channels.waiting import loops
from penstock.kinds.zmq.socket import zap
from penstock.util.at_exit import at_exit
from penstock.util.extras import explain_missing

logger = logging.getLogger("penstock")

SOCKETS_MAX = 1 << 14  # each handle needs three, and keeps them for a moment after it is closed
_live: weakref.WeakSet[Any] = weakref.WeakSet()  # the handles; used with `_forks` held
_making = threading.Lock()
_context: Any = None
_abandoned: list[Any] = []  # a parent's objects, which a child must never end
_ending = False
_forking: list[Any] = []
_forks = threading.RLock()  # held while this process forks


def pyzmq() -> Any:
    """pyzmq, or an error with the command that installs it."""
    with explain_missing("a channel over ZeroMQ"):
        import zmq

    return zmq


def context() -> Any:
    """One per process: a forked child creates its own. It ends with the process, after its handles have sent their messages."""
    global _context
    with _making:
        if _context is None:
            module = pyzmq()
            _context = module.Context()
            _context.set(module.MAX_SOCKETS, SOCKETS_MAX)
            at_exit(_end)
        return _context


def enlist(handle: Any) -> None:
    """Registers this handle for forks and for the end of the process. Waits while another thread forks."""
    with _forks:
        _live.add(handle)


def sleep_on(descriptor: int, timeout: float) -> None:
    """Until a descriptor is readable, at most `timeout` seconds."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll(math.ceil(min(timeout, loops.POLL_MAX) * 1000))


def abandon(*things: Any) -> None:
    """Keeps objects of a forked child's parent from ever ending."""
    _abandoned.extend(things)


def park_at_exit(lock: Any) -> None:
    """Keeps a daemon thread, which holds this lock, from waking up into an error while the interpreter ends; it ends with the process."""
    if _ending and threading.current_thread().daemon:
        threading.Condition(lock).wait()  # without the lock


def _end() -> None:
    global _context, _ending
    if _context is None:
        return
    _ending = True
    with _forks:
        handles = list(_live)
    ended, _context = _context, None
    try:
        for handle in handles:
            handle._close_quietly()
        ended.term()
    except KeyboardInterrupt:
        logger.warning("Ctrl-C ended the wait for ZeroMQ's peers: messages that none of them took are lost")


def _before_fork() -> None:
    _forks.acquire()
    for handle in list(_live):
        with contextlib.suppress(Exception):
            handle._before_fork()
        _forking.append(handle)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop()._after_fork_in_parent()
    _forks.release()


def _after_fork_in_child() -> None:
    global _context, _making, _forks
    _making, _forks = threading.Lock(), threading.RLock()
    abandon(_context, zap.abandon())
    _context = None
    while _forking:
        _forking.pop()._after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
