"""The subscription of a ZeroMQ channel: a SUB end. Knows topics; `opener` checks its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.channels.interfaces.subscription import Subscription
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Invalid
from penstock.kinds.zmq.receiving import Taken, ZmqReceiving
from penstock.kinds.zmq.socket.options import ZmqOptions

PASSED_MAX = 10_000  # messages that one call skips


class ZmqSubscription(ZmqReceiving, Subscription[Any]):
    """Receives the messages of publications. Thread-safe: each message goes to one caller; a context manager; pickles as a new subscription.

    A message of one part is the decoded value. Without a codec, a message of several parts is the list of them. With
    `topics`, and with a codec, the first of several parts is the topic: it is in `last.topic`, and not in the message.
    Positions are bytes that this subscription has received. Its losses are unknown: `lag`, `lost` and `lost_messages` raise
    `Unsupported`.
    """

    _role = "subscription"
    _heartbeat = True

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        options: ZmqOptions,
        *,
        bind: bool,
        conflate: bool,
        topics: list[bytes] | None,
        spin: float,
        opener: Callable[..., Any],
    ) -> None:
        self._conflate, self._topics, self._opener = conflate, topics, opener
        self._front = "topic" if topics is not None or codec.kind != "bytes" else ""
        self._column = "" if topics is None else "topic"
        super().__init__(channel, "SUB", codec, options, bind=bind, receives=True, spin=spin)

    def _prepare(self, socket: Any) -> None:
        if "sndhwm" in (self._options.options or ()):
            raise Invalid(
                f"{self.channel}: options has 'sndhwm', which is 0 here: topics for which it has no room are lost"
            )
        socket.setsockopt(self._zmq.SNDHWM, 0)
        if self._conflate and not self._plain:
            socket.setsockopt(self._zmq.CONFLATE, 1)
        for topic in [b""] if self._topics is None else self._topics:
            socket.setsockopt(self._zmq.SUBSCRIBE, topic)

    def _take(self) -> Taken | None:
        return self._newest(super()._take) if self._conflate and self._plain else super()._take()

    def _take_frames(self) -> Taken | None:
        return self._newest(super()._take_frames) if self._conflate and self._plain else super()._take_frames()

    def _newest(self, take: Callable[[], Taken | None]) -> Taken | None:
        """The newest message. ZeroMQ conflates parts, and a message of bytes may have several."""
        with self._lock:
            newest = take()
            for _ in range(PASSED_MAX if newest is not None else 0):
                newer = take()
                if newer is None:
                    break
                newest = newer
            return newest

    def _has_unsent(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {
            "conflate": self._conflate,
            "topics": self._topics,
            "codec": self._codec,
            "bind": self._bind,
            "spin": self._spin,
        }
        return self._reopening(self._opener, arguments)
