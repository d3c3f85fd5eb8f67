"""The black box of a set of programs: it watches for triggers and takes snapshots. `penstock blackbox CONFIG` runs it.

A public door, `penstock.blackbox` in programs: they call `penstock.trigger`, or `install` to have unhandled exceptions trigger it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, text_of
from penstock.watch.blackbox.calls import check_texts, trigger

if TYPE_CHECKING:
    from penstock.watch.blackbox.box import BlackBox
    from penstock.watch.blackbox.config import Config, Trigger, load, read
    from penstock.watch.blackbox.diary import Firing

_HOMES = {
    "BlackBox": "box",
    "Firing": "diary",
    "Config": "config",
    "Trigger": "config",
    "load": "config",
    "read": "config",
}

EXCEPTION = "exception"
NOTE_BYTES = 6000  # a call has room for it, its name and its numbers
_before: list[Any] = []
_lock = threading.Lock()


def install(name: str = EXCEPTION) -> None:
    """Has each unhandled exception of this process, in any thread, call `penstock.trigger(name)` before Python reports it.

    The hooks that were set before are called as before. KeyboardInterrupt and SystemExit trigger nothing. A second call changes the name.
    A black box that cannot be reached delays the report by a second at most. The exception that ends a `multiprocessing.Process` counts, too: in
    processes that are forked later, and in a process that calls this itself, as one that is spawned has to.
    """
    from penstock.watch.blackbox.process_end import ProcessEnd  # programs that only trigger need no multiprocessing

    check_texts(name, "")
    with _lock:
        uninstall()
        before, before_thread = sys.excepthook, threading.excepthook
        _before[:] = [before, before_thread]

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            _call(name, kind, error)
            before(kind, error, trace)

        def thread_hook(given: threading.ExceptHookArgs) -> None:
            _call(name, given.exc_type, given.exc_value)
            before_thread(given)

        _before.extend([hook, thread_hook, ProcessEnd(functools.partial(_call, name))])
        sys.excepthook, threading.excepthook = hook, thread_hook


def uninstall() -> None:
    """Sets the hooks that were there before `install`, unless others have been set since. Without `install` it does nothing."""
    if not _before:
        return
    before, before_thread, hook, thread_hook, process_end = _before
    process_end.cancel()
    if sys.excepthook is hook:
        sys.excepthook = before
    if threading.excepthook is thread_hook:
        threading.excepthook = before_thread
    _before.clear()


def _call(name: str, kind: type[BaseException], error: BaseException | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    note = f"{kind.__name__}: {text_of(error)}"[:2000]
    while len(json.dumps(note)) > NOTE_BYTES:  # no Latin letters: each is longer
        note = note[: len(note) // 2]
    with contextlib.suppress(PenstockError, OSError):
        trigger(name, note)


def __getattr__(name: str) -> Any:
    """A program that only triggers loads no archive."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = ["BlackBox", "Config", "Firing", "Trigger", "install", "load", "read", "trigger", "uninstall"]
