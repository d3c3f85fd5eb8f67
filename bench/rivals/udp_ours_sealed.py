"""Penstock's network log with a key, one message at a time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import penstock
from bench.rivals import loopback, udp_ours
from bench.rivals.udp_ours import uri
from penstock.kinds.udp import keys

__all__ = ["clean", "prepare", "receiver", "sender"]
_keys: dict[str, Path] = {}  # by the channel's name


def prepare(name: str, readers: int, size: int) -> None:
    """A port and a key, before any process is forked."""
    loopback.prepare(name, readers, size)
    _keys[name] = keys.create(Path(tempfile.mkdtemp(prefix="penstock-bench-")) / "key")


def clean(name: str) -> None:
    """Forgets both."""
    loopback.clean(name)
    shutil.rmtree(_keys.pop(name).parent)


class _Sender(udp_ours._Sender):
    def __init__(self, name: str) -> None:
        self.pub = penstock.publish(uri(name), key_file=_keys[name])
        self.send, self.close = self.pub.send, self.pub.close


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **given: float) -> penstock.types.Subscription:
    """A subscription."""
    return penstock.subscribe(uri(name), key_file=_keys[name], **{**udp_ours.options, **given})
