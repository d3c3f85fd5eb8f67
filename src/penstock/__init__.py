"""Penstock: messages between threads and processes at memory speed, recorded, and read by Spark as tables.

The front door. Everything here is documented to users; everything else is private. A name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module as _import_module

from penstock import kinds as kinds
from penstock._native import core as _core
from penstock.errors import (
    Busy,
    Closed,
    Corrupt,
    DecodeError,
    Disconnected,
    EndOfStream,
    Invalid,
    Mismatch,
    MissingPackage,
    NotFound,
    PenstockError,
    ServerError,
    SystemFailure,
    TimedOut,
    TooLarge,
    TooSlow,
    Unsupported,
)
from penstock.util.version import __version__ as __version__

_core.register_errors(
    corrupt=Corrupt,
    mismatch=Mismatch,
    busy=Busy,
    closed=Closed,
    disconnected=Disconnected,
    too_slow=TooSlow,
    end_of_stream=EndOfStream,
    too_large=TooLarge,
    invalid=Invalid,
    unsupported=Unsupported,
    system=SystemFailure,
    timeout=TimedOut,
)

TYPE_CHECKING = False  # the module typing takes as long to load as all else here
if TYPE_CHECKING:
    from typing import Any as _Any

    from penstock import types as types
    from penstock.channels.storage.discovery import inspect, list_channels, remove
    from penstock.channels.uri.value import Fake
    from penstock.codecs import array, objects
    from penstock.codecs.ros2_messages import ros2msg
    from penstock.export.datasets.building import dataset
    from penstock.export.datasets.live import live_dataset
    from penstock.export.datasets.reading import open_dataset
    from penstock.front.bridge import Bridge
    from penstock.front.counters import counter
    from penstock.front.logs import LogHandler
    from penstock.front.opening import join, publish, subscribe
    from penstock.front.stacks import install_stack_handler
    from penstock.front.waiting import wait, wait_async
    from penstock.front.why import why
    from penstock.kinds.frames.opener import Frames
    from penstock.kinds.log import Log
    from penstock.kinds.pipe.sockets import Pipe
    from penstock.kinds.ring import Ring
    from penstock.kinds.sync.opener import Sync
    from penstock.kinds.udp.opener import Udp
    from penstock.kinds.zmq.opener import Zmq
    from penstock.record.archive import Archive
    from penstock.tables.lake import lake
    from penstock.util.headers import get_include
    from penstock.watch import blackbox as blackbox
    from penstock.watch.blackbox.calls import trigger

_HOMES = {
    "Archive": "record.archive",
    "Bridge": "front.bridge",
    "Fake": "channels.uri.value",
    "Frames": "kinds.frames.opener",
    "Log": "kinds.log",
    "LogHandler": "front.logs",
    "Pipe": "kinds.pipe.sockets",
    "Ring": "kinds.ring",
    "Sync": "kinds.sync.opener",
    "Udp": "kinds.udp.opener",
    "Zmq": "kinds.zmq.opener",
    "array": "codecs",
    "counter": "front.counters",
    "dataset": "export.datasets.building",
    "get_include": "util.headers",
    "inspect": "channels.storage.discovery",
    "install_stack_handler": "front.stacks",
    "join": "front.opening",
    "lake": "tables.lake",
    "live_dataset": "export.datasets.live",
    "list_channels": "channels.storage.discovery",
    "objects": "codecs",
    "open_dataset": "export.datasets.reading",
    "publish": "front.opening",
    "remove": "channels.storage.discovery",
    "ros2msg": "codecs.ros2_messages",
    "subscribe": "front.opening",
    "trigger": "watch.blackbox.calls",
    "wait": "front.waiting",
    "wait_async": "front.waiting",
    "why": "front.why",
}
_MODULES = {  # public ones
    "blackbox": "watch.blackbox",
    "record": "record",
    "testing": "testing",
    "threads": "threads",
    "types": "types",
}


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"penstock.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}", name=name, obj=_import_module("penstock"))
    try:
        found = globals()[name] = getattr(_import_module(f"penstock.{_HOMES[name]}"), name)
    except MissingPackage as error:  # the name is there, for imports and for `help`: a call of it says what to install
        return _unusable(name, str(error))
    return found


def _unusable(name: str, why: str) -> _Any:
    def missing(*_: object, **__: object) -> None:
        raise MissingPackage(why)

    missing.__name__, missing.__doc__ = name, why
    return missing


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__", "__doc__"])


__all__ = [
    "Archive",
    "Bridge",
    "Busy",
    "Closed",
    "Corrupt",
    "DecodeError",
    "Disconnected",
    "EndOfStream",
    "Fake",
    "Frames",
    "Invalid",
    "Log",
    "LogHandler",
    "Mismatch",
    "MissingPackage",
    "NotFound",
    "PenstockError",
    "Pipe",
    "Ring",
    "ServerError",
    "Sync",
    "SystemFailure",
    "TimedOut",
    "TooLarge",
    "TooSlow",
    "Udp",
    "Unsupported",
    "Zmq",
    "array",
    "counter",
    "dataset",
    "get_include",
    "inspect",
    "install_stack_handler",
    "join",
    "lake",
    "list_channels",
    "live_dataset",
    "objects",
    "open_dataset",
    "publish",
    "remove",
    "ros2msg",
    "subscribe",
    "trigger",
    "wait",
    "wait_async",
    "why",
]
