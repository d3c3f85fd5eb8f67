"""The publication of a ZeroMQ channel: a PUB end (XPUB, which receives subscriptions). Knows topics; `opener` checks its options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.channels.checks import counted, seconds, text_bytes
from penstock.channels.interfaces.publication import Publication
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting.long_waits import untold
from penstock.codecs import Codec
from penstock.errors import Invalid, TimedOut, Unsupported
from penstock.kinds.zmq import last_values
from penstock.kinds.zmq.last_values import LastValues
from penstock.kinds.zmq.sending import ZmqClaim, ZmqSending
from penstock.kinds.zmq.socket.handle import LOOK_MASK
from penstock.kinds.zmq.socket.monitor import Monitor
from penstock.kinds.zmq.socket.options import ZmqOptions

SUBSCRIBES = b"\1"
Topic = str | bytes | None


class ZmqPublication(ZmqSending, Publication[Any]):
    """Sends to every subscription whose topics fit. Thread-safe; a context manager; pickles to another process.

    With `last_value`, a subscription that comes late gets the newest message of each of its topics at once. So do the
    subscriptions that have it already: ZeroMQ sends to all. With `when_full="drop_newest"`, ZeroMQ's rule, sending never waits: a subscription whose queue is full misses the message, and
    ZeroMQ does not count it. With `when_full="wait"` a sender waits until every such queue has room. Positions are bytes that
    this publication has sent: ZeroMQ keeps no past, so no subscription can start at one.
    """

    _role = "publication"
    _complains = False

    def __init__(
        self,
        channel: Channel,
        codec: Codec,
        options: ZmqOptions,
        *,
        bind: bool,
        when_full: str,
        last_value: bool,
        opener: Callable[..., Any],
    ) -> None:
        self._values = LastValues() if last_value else None
        self._topics: dict[int, Counter[bytes]] = {}  # of each connection
        self._when_full, self._opener = when_full, opener
        self._heartbeat = when_full != "wait"
        super().__init__(channel, "XPUB", codec, options, bind=bind, receives=False)

    def _prepare(self, socket: Any) -> None:
        super()._prepare(socket)
        socket.setsockopt(self._zmq.XPUB_VERBOSER, 1)
        if self._when_full == "wait":
            socket.setsockopt(self._zmq.XPUB_NODROP, 1)

    def _start(self, patience: float) -> None:
        super()._start(patience)
        if self._values is not None:
            last_values.serve(self)

    def _inherit(self) -> None:
        self._topics.clear()
        if self._values is not None:
            self._values.clear()

    def _no_room(self) -> str:
        return f"a subscription's queue (max_messages={self._options.max_messages}) was full until the timeout"

    # ---- sending ----

    def send(self, data: Any, timeout: float | None = None, *, topic: Topic = None) -> int:
        """Sends one message. Returns the bytes that this publication has sent so far, topics included.

        topic: sent as a separate part in front of the message; subscriptions filter by it. Without a codec a list is a message of several
        parts. It waits with `when_full="wait"` only: `TimedOut` if a queue was full for `timeout` seconds.
        """
        if timeout is not None:
            seconds(timeout, "timeout", self)
        if type(data) is bytes and topic is None and self._plain and self._values is None:
            with self._lock:
                if self._socket is not None:
                    try:
                        self._put(data, self._noblock)
                    except self._zmq.ZMQError:  # the slow path waits, or raises the error
                        pass
                    else:
                        self._sent += 1
                        self._written = position = self._written + len(data)
                        if self._sleepers or self._lent or not self._sent & LOOK_MASK:
                            self._read_reports()
                            self._refresh()
                        return position
        return self._send_blocking(self._frames(data, topic), timeout)

    async def send_async(self, data: Any, timeout: float | None = None, *, topic: Topic = None) -> int:
        """`send` in the running event loop. Cancelled, it has sent the whole message or nothing."""
        return await self._send_blocking_async(self._frames(data, topic), timeout)

    def offer(self, data: Any, *, topic: Topic = None) -> int | None:
        """Sends as `send` does. With `when_full="wait"`, None if a queue is full. Never blocks."""
        return self._try(self._frames(data, topic))

    def offer_many(self, messages: Sequence[Any], *, topic: Topic = None) -> int:
        """Sends messages in order until there is no room. Returns how many were sent. Never blocks."""
        return self._try_all(messages, lambda message: self._frames(message, topic))

    def claim(self, length: int, timeout: float | None = None, *, topic: Topic = None) -> ZmqClaim:
        """Memory for one message of `length` bytes. The end of the block sends a copy of it, and waits as `send` does.

        The bytes are sent unchanged. With a codec only arrays of a fixed shape and single records can be written so: `Invalid` for
        other codecs and lengths.
        """
        return self._create_claim(length, [] if topic is None else [self._topic(topic)], timeout)

    async def claim_async(self, length: int, timeout: float | None = None, *, topic: Topic = None) -> ZmqClaim:
        """`claim`, for `with await pub.claim_async(10) as view`. `Unsupported` with `when_full="wait"`: use `send_async`."""
        if self._when_full == "wait":
            raise Unsupported(
                f"{self.channel}: ZeroMQ reports only during a send whether there is room, so the end of the block would block "
                f"the event loop: use send_async; log: and pipe: channels have claim_async"
            )
        return self.claim(length, timeout, topic=topic)

    def _try(self, frames: list[Any]) -> int | None:
        if self._values is None:
            return super()._try(frames)
        with self._lock:
            if self._socket is not None:
                self._read_reports()  # a subscription that came before gets the message before
            kept = [bytes(frame) for frame in frames]
            position = super()._try(kept)
            if position is not None:
                self._values.keep(kept)
            return position

    def _frames(self, data: Any, topic: Topic) -> list[Any]:
        body = self._body(data)
        return body if topic is None else [self._topic(topic), *body]

    def _topic(self, topic: Any) -> bytes:
        """A topic as it travels. TypeError, and `Invalid` for text that is none, with the channel's URI."""
        if not isinstance(topic, str | bytes):
            raise TypeError(f"{self.channel}: a topic is text or bytes, not {type(topic).__name__}")
        try:
            return text_bytes(topic, "a topic")
        except Invalid as error:
            raise Invalid(f"{self.channel}: {error}") from None

    # ---- subscribers ----

    @property
    def readers(self) -> int:
        """Peers that subscribe to anything here. A peer with several topics counts once."""
        return self._readers(None)

    @property
    def connected(self) -> bool:
        """Whether any peer subscribes."""
        return self.readers != 0

    def _readers(self, topic: bytes | None) -> int:
        with self._lock:
            self._open()
            self._read_reports()
            self._refresh()
            return sum(
                any(topic is None or topic.startswith(wanted) for wanted, count in topics.items() if count > 0)
                for topics in self._topics.values()
            )

    def _read_reports(self) -> Monitor:
        socket, news = self._socket, []
        while socket is not None:
            try:
                news.append(socket.recv(self._noblock, copy=False))
            except self._zmq.ZMQError:
                break
        monitor = super()._read_reports()  # the monitor hears of a connection before its peer subscribes
        for gone in self._topics.keys() - monitor.peers:
            del self._topics[gone]
        for frame in news:
            self._note(frame, monitor.peers)
        if socket is not None and self._values is not None:
            for message in self._values.find({frame.bytes[1:] for frame in news if frame.bytes[:1] == SUBSCRIBES}):
                socket.send_multipart(message, self._noblock)
        return monitor

    def _wait_for_subscriptions(self, timeout: float) -> None:
        """Sends the last values to subscriptions that come within `timeout` seconds."""
        self._until(self._note_subscriptions, self._zmq.POLLIN, timeout, untold)

    def _note_subscriptions(self) -> None:
        with self._lock:
            self._open()
            self._read_reports()
            self._refresh()

    def _note(self, frame: Any, peers: set[int]) -> None:
        """Notes that a peer subscribes, or no longer does. A frame made by the end of a connection names no peer."""
        try:
            peer = int(frame.get(self._zmq.SRCFD))
        except self._zmq.ZMQError:
            return
        what = frame.bytes
        if peer in peers and what[:1] in (b"\0", SUBSCRIBES):
            self._topics.setdefault(peer, Counter())[what[1:]] += 1 if what[:1] == SUBSCRIBES else -1

    def wait_for_readers(self, count: int = 1, timeout: float | None = None, *, topic: Topic = None) -> None:
        """Waits until at least `count` peers subscribe. `TimedOut` after `timeout` seconds. With a topic only those count that it reaches."""
        self._check_count(count, self._until(self._create_readers_check(count, topic), self._zmq.POLLIN, timeout))

    async def wait_for_readers_async(
        self, count: int = 1, timeout: float | None = None, *, topic: Topic = None
    ) -> None:
        """`wait_for_readers` in the running event loop."""
        self._check_count(
            count, await self._until_async(self._create_readers_check(count, topic), self._zmq.POLLIN, timeout)
        )

    def _create_readers_check(self, count: int, topic: Topic) -> Callable[[], bool | None]:
        wanted = None if topic is None else self._topic(topic)
        enough = counted(count, "wait_for_readers", "count", self)
        return lambda: True if self._readers(wanted) >= enough else None

    def _check_count(self, count: int, found: bool | None) -> None:
        if found is None:
            raise TimedOut(
                f"{self.channel}: fewer than {count} subscriptions joined within the timeout{self._explain_wait()}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {"codec": self._codec, "bind": self._bind, "when_full": self._when_full}
        arguments["last_value"] = self._values is not None
        return self._reopening(self._opener, arguments)
