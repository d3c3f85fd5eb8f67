"""Penstock: messages between threads and processes at memory speed, recorded, and read by Spark as tables.

The front door. Everything here is documented to users; everything else is private. A name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module as _import_module

from penstock import kinds as kinds
from penstock.errors import (
    Busy,
    Closed,
    Corrupt,
    DecodeError,
    Disconnected,
    EndOfStream,
    Invalid,
    Mismatch,
    NotFound,
    PenstockError,
    ServerError,
    SystemFailure,
    TimedOut,
    TooLarge,
    TooSlow,
    Unsupported,
)

TYPE_CHECKING = False  # the module typing takes as long to load as all else here
if TYPE_CHECKING:
    from typing import Any as _Any

    from penstock import types as types
    from penstock.channels.publication import Publication
    from penstock.channels.subscription import Subscription
    from penstock.codecs import array, objects
    from penstock.front import typed as typed
    from penstock.front.discovery import inspect, list_channels, remove
    from penstock.front.joining import join
    from penstock.front.verbs import publish, subscribe
    from penstock.front.waiting import wait, wait_async
    from penstock.record.archive import Archive
    from penstock.threads import Mailbox, Pipe
    from penstock.util.clock import ManualClock

__version__ = "0.1.0"

_HOMES = {
    "Archive": "record.archive",
    "Mailbox": "threads",
    "ManualClock": "util.clock",
    "Pipe": "threads",
    "Publication": "channels.publication",
    "Subscription": "channels.subscription",
    "array": "codecs",
    "inspect": "front.discovery",
    "list_channels": "front.discovery",
    "join": "front.joining",
    "objects": "codecs",
    "publish": "front.verbs",
    "remove": "front.discovery",
    "subscribe": "front.verbs",
    "wait": "front.waiting",
    "wait_async": "front.waiting",
}
_MODULES = ("record", "testing", "typed", "types")  # public ones


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"penstock.{'front.typed' if name == 'typed' else name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}", name=name, obj=_import_module("penstock"))
    found = globals()[name] = getattr(_import_module(f"penstock.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__", "__doc__"])


__all__ = [
    "Archive",
    "Busy",
    "Closed",
    "Corrupt",
    "DecodeError",
    "Disconnected",
    "EndOfStream",
    "Invalid",
    "Mailbox",
    "ManualClock",
    "Mismatch",
    "NotFound",
    "PenstockError",
    "Pipe",
    "Publication",
    "ServerError",
    "Subscription",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
    "TooSlow",
    "Unsupported",
    "array",
    "inspect",
    "join",
    "list_channels",
    "objects",
    "publish",
    "remove",
    "subscribe",
    "wait",
    "wait_async",
]
