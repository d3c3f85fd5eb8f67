"""The exception that ends a process of multiprocessing, which catches and reports it without calling a hook. Knows no trigger."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import util
from typing import Any

FIRST = 1 << 30  # before a program's own finalizers, which may take long


class ProcessEnd:
    """Calls with the exception's class and the exception, in this process and in those that multiprocessing forks later, until `cancel`.

    A process runs its finalizers while it handles the exception that ends it.
    """

    def __init__(self, call: Callable[[Any, Any], None]) -> None:
        self._call: Callable[[Any, Any], None] | None = call
        self._watch()
        util.register_after_fork(self, ProcessEnd._watch)  # a forked process begins without finalizers

    def _watch(self) -> None:
        self._finalizer = util.Finalize(None, self._end, exitpriority=FIRST)

    def _end(self) -> None:
        kind, error, _ = sys.exc_info()
        if error is not None and self._call is not None:
            self._call(kind, error)

    def cancel(self) -> None:
        """Calls no more."""
        self._finalizer.cancel()
        self._call = None
