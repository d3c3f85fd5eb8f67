"""Zenoh peers on one machine, publishing with back pressure that blocks; the receiver's callback fills a queue."""

from __future__ import annotations

import importlib
import json
import queue

zenoh = importlib.import_module("zenoh")

SETTLE = 1.0  # peers find each other by scouting


def _session():
    zenoh.init_log_from_env_or("error")
    config = zenoh.Config()
    config.insert_json5("mode", json.dumps("peer"))
    return zenoh.open(config)


class _Sender:
    def __init__(self, name: str) -> None:
        self.session = _session()
        self.publisher = self.session.declare_publisher(
            f"bench/{name}",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        self.send, self.close = self.publisher.put, self.session.close


class _Receiver:
    def __init__(self, name: str) -> None:
        self.session = _session()
        self.queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        put = self.queue.put
        self.subscriber = self.session.declare_subscriber(f"bench/{name}", lambda s: put(s.payload.to_bytes()))
        self.recv, self.close = self.queue.get, self.session.close


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publisher."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A subscriber."""
    return _Receiver(name)
