"""Penstock: messages between threads and processes at memory speed, recorded, and read by Spark as tables.

The front door. Everything here is documented to users; everything else is private.
"""

from penstock.clock import ManualClock
from penstock.codecs import array
from penstock.errors import (
    Busy,
    Closed,
    Corrupt,
    Dropped,
    Invalid,
    Mismatch,
    NotFound,
    PenstockError,
    SystemFailure,
    TimedOut,
    TooLarge,
)
from penstock.front import Archive, channels, inspect, join, publish, remove, subscribe, wait
from penstock.pipes import Mailbox, Pipe
from penstock.shm.handles import Publication, Subscription

__version__ = "0.1.0"

__all__ = [
    "Archive",
    "Busy",
    "Closed",
    "Corrupt",
    "Dropped",
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
    "array",
    "channels",
    "inspect",
    "join",
    "publish",
    "remove",
    "subscribe",
    "wait",
]
