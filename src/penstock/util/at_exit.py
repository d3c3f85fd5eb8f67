"""Calls at the end of a process, also of one of multiprocessing, which ends without atexit, and begins without its parent's finalizers."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

_calls: list[Callable[[], None]] = []
_is_inherited = False  # whether a process that multiprocessing begins registers the calls by itself


def at_exit(call: Callable[[], None]) -> None:
    """Calls at the end of this process, and of each process that is forked from it, unless `os._exit` ends it. It may be called twice
    there."""
    if call not in _calls:
        _calls.append(call)
        atexit.register(call)
        _register()
    _inherit()


def _register(_: object = None) -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        for call in _calls:
            util.Finalize(None, call, exitpriority=0)


def _inherit() -> None:
    """A process of multiprocessing drops the finalizers that there were, also those of what it was given, and then runs these."""
    global _is_inherited
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _calls and not _is_inherited:
        _is_inherited = True
        util.register_after_fork(_register, _register)


os.register_at_fork(after_in_child=_inherit)

__all__ = ["at_exit"]
