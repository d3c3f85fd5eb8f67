"""Penstock: messages between threads and processes at memory speed, recorded, and read by Spark as tables.

The front door. Everything here is documented to users; everything else is private. A name is loaded when it is first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from penstock import channels as _package  # noqa: F401  (see below)
from penstock import registry as registry
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
    SystemFailure,
    TimedOut,
    TooLarge,
    TooSlow,
    Unsupported,
)

if TYPE_CHECKING:
    from penstock import typed as typed
    from penstock import types as types
    from penstock.archives import Archive
    from penstock.clock import ManualClock
    from penstock.codecs import array, objects
    from penstock.front import channels, inspect, remove, wait, wait_async
    from penstock.joining import join
    from penstock.pipes import Mailbox, Pipe
    from penstock.publication import Publication
    from penstock.subscription import Subscription
    from penstock.verbs import publish, subscribe
else:
    # `channels` is a function here. Its package of the same name, loaded above, would hide it.
    del channels

__version__ = "0.1.0"

_HOMES = {
    "Archive": "archives",
    "Mailbox": "pipes",
    "ManualClock": "clock",
    "Pipe": "pipes",
    "Publication": "publication",
    "Subscription": "subscription",
    "array": "codecs",
    "channels": "front",
    "inspect": "front",
    "join": "joining",
    "objects": "codecs",
    "publish": "verbs",
    "remove": "front",
    "subscribe": "verbs",
    "wait": "front",
    "wait_async": "front",
}
_MODULES = ("typed", "types")  # public ones


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"penstock.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}", name=name, obj=_import_module("penstock"))
    found = globals()[name] = getattr(_import_module(f"penstock.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "recording", "tools", "__version__", "__doc__"])


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
    "Subscription",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
    "TooSlow",
    "Unsupported",
    "array",
    "channels",
    "inspect",
    "join",
    "objects",
    "publish",
    "remove",
    "subscribe",
    "wait",
    "wait_async",
]
