"""Publications and subscriptions of all kinds: the parts of the handles that are Python.

Codecs, asyncio, pickling, Arrow. A kind passes in its ends (`log.py`). The classes are registered as roles.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Self

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.arrow import to_batch
from penstock.channels.interfaces.publication import Publication
from penstock.channels.interfaces.subscription import Received, Subscription
from penstock.channels.kind import Kind
from penstock.channels.status import ChannelStatus
from penstock.channels.storage.inspection import inspect_opened
from penstock.channels.storage.reopening import ReopenArgs, check_open, opened_file, reopen
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting import awaiting
from penstock.channels.waiting.iteration import until_closed_async
from penstock.channels.waiting.loops import readable as readable
from penstock.codecs import Codec, buffers, keys
from penstock.errors import Invalid, TimedOut

if os.environ.get("PENSTOCK_WARN_AFTER"):
    from penstock.channels.waiting import reasons

    reasons.read_warn_after()

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)

    class _WritingHandle(_native.Publication, Publication[Message]):
        def send(self, data: Message, timeout: float | None = None) -> int: ...  # type: ignore[override]
        def offer(self, data: Message) -> int | None: ...  # type: ignore[override]
        def offer_many(self, messages: Sequence[Message]) -> int: ...  # type: ignore[override]

    class _ReadingHandle(_native.Subscription, Subscription[Message]):
        def recv(self, timeout: float | None = None) -> Message: ...  # type: ignore[override]
        def try_recv(self) -> Message | None: ...  # type: ignore[override]
        def __iter__(self) -> Iterator[Message]: ...  # type: ignore[override]
else:  # a compiled class takes no parameter, and can have no second base that does
    from typing import TypeVar

    Message = TypeVar("Message")
    _WritingHandle, _ReadingHandle = {Message: _native.Publication}, {Message: _native.Subscription}


class NativePublication(_WritingHandle[Message]):
    """A handle that writes to a channel. Thread-safe; a context manager; pickles to a child process as a new publication.

    `send(data, timeout=None)`, `offer(data)`, `offer_many(messages)` and `claim(length, timeout=None)` take bytes or any
    contiguous buffer and copy it once, into shared memory. Positions count bytes of the stream. A ring is never full: there
    all of these succeed at once.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, writer: _native.WriterEnd, origin: ReopenArgs) -> None:
        super().__init__(writer)
        self._origin = origin

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._origin.channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded; the channel's first publication decides it."""
        return self._origin.codec

    async def send_async(self, data: Any, timeout: float | None = None) -> int:
        """Sends one message as `send` does, and waits for room in the running event loop.

        When the task is cancelled, the whole message was sent or nothing was.
        """
        attempt = _native.SendAttempt(self, data)
        try:
            return await awaiting.room(self, attempt.step, timeout, self._no_room)
        finally:
            attempt.end()

    def _no_room(self, what: str = "no room") -> str:
        """The error of a send whose timeout has passed."""
        return f"{self.channel}: {what} within the timeout: {_native.why_full(self)}{_native.take_reason(self)}"

    async def claim_async(self, length: int, timeout: float | None = None) -> _native.Claim:
        """Room for one message as `claim` gives it, awaited in the running event loop: `with await pub.claim_async(10) as view`."""

        def attempt() -> _native.Claim | None:
            try:
                return self.claim(length, 0)
            except TimedOut:
                return None

        return await awaiting.room(self, attempt, timeout, lambda: self._no_room("no room for the claim"))

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits for subscriptions as `wait_for_readers` does, in the running event loop."""

        def attempt() -> bool | None:
            try:
                self.wait_for_readers(count, 0)
            except TimedOut:
                return None
            return True

        def why() -> str:
            no_readers = _native.why_no_readers(self)
            return f"{self.channel}: fewer than {count} subscriptions joined within the timeout{no_readers}"

        await awaiting.members(self, attempt, timeout, why)

    def statistics(self) -> ChannelStatus:
        """The counters at this moment of the channel that this handle has open, also after another one was given its name."""
        return inspect_opened(self._origin.kind, self._origin.channel, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        check_open(self)
        about = self._origin
        return reopen, (about.opener, about.channel, about.arguments, opened_file(about.channel, self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class EncodingPublication(NativePublication[Message]):
    """A publication on a channel with a codec: takes objects."""

    def _encode(self, data: Any) -> Any:
        try:
            return self._origin.codec.encode(data)
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__

    def send(self, data: Any, timeout: float | None = None) -> int:
        """Encodes and sends one object; see `Publication.send`."""
        return super().send(self._encode(data), timeout)

    async def send_async(self, data: Any, timeout: float | None = None) -> int:
        """Encodes and sends one object; see `Publication.send_async`."""
        return await super().send_async(self._encode(data), timeout)

    def offer(self, data: Any) -> int | None:
        """Encodes and offers one object; see `Publication.offer`."""
        return super().offer(self._encode(data))

    def offer_many(self, messages: Any) -> int:
        """Encodes and offers objects; see `Publication.offer_many`."""
        encoded: list[Any] = codecs.encoded_all(self._origin.codec, self.channel, messages)
        return super().offer_many(encoded)

    def claim(self, length: int, timeout: float | None = None) -> _native.Claim:
        """Room to write the bytes of one message in place; see `Publication.claim`.

        Only where any bytes of that length are a message: on channels of arrays of a fixed shape and of single records. `Invalid`
        elsewhere: use `send` and `offer`, which encode.
        """
        codecs.check_claim(self._origin.codec, self.channel, length)
        return super().claim(length, timeout)


class LastValuePublication(EncodingPublication[Message]):
    """A publication on a log that keeps the last value of each key. The compiled end takes the key in front of each message."""

    def __init__(self, writer: _native.WriterEnd, origin: ReopenArgs, field: str) -> None:
        super().__init__(writer, origin)
        self._key_of = keys.reader(origin.codec, field)

    def with_key(self, body: Any) -> bytes:
        """An encoded message with its key in front. `Invalid` if it has none."""
        try:
            key = self._key_of(body)
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__
        return b"".join((bytes((len(key),)), key, body))

    def _encode(self, data: Any) -> Any:
        return self.with_key(super()._encode(data))

    def offer_many(self, messages: Any) -> int:
        """Encodes and offers objects; see `Publication.offer_many`. Without the key of one of them, none is sent."""
        bodies: list[Any] = [self._encode(message) for message in buffers.several(self.channel, messages)]
        return _native.Publication.offer_many(self, bodies)

    def claim(self, length: int, timeout: float | None = None) -> _native.Claim:
        """Refused with `Unsupported`: bytes written in place have no key yet."""
        return _native.Publication.claim(self, length, timeout)


class NativeSubscription(_ReadingHandle[Message]):
    """A handle that reads a channel from its own position. Thread-safe: each message goes to one caller.

    `recv(timeout=None)`, `try_recv()`, `poll(limit=1000)`, iteration, `async for`, `poll_arrow`, `borrow`, `fileno`. A
    context manager; pickles to a child process as a new subscription that continues at the same position.

    On a channel with a codec it gives objects. A message that does not decode raises `DecodeError`, which has its position; the next
    call continues behind it. `poll` ends before such a message, and the next call raises. Made before the channel's first publication,
    it takes the codec from that publication.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self, reader: _native.ReaderEnd, origin: ReopenArgs, codec: Codec | None, spin: float, until_end: bool = False
    ) -> None:
        """codec: None until the channel's first publication decides it."""
        super().__init__(reader, spin, until_end, None if codec is None else codec.kind != "bytes")
        self._origin = origin
        self._is_decided = codec is not None

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._origin.channel)

    @property
    def codec(self) -> Codec | None:
        """How messages are decoded; the channel's first publication decides it. None until then."""
        if not self._is_decided and _native.decided(self):
            self._decide()
        return self._origin.codec if self._is_decided else None

    def _decide(self) -> None:
        """Takes over the codec of the channel's first publication: from now on messages are decoded with it."""
        kept = codecs.from_metadata(_native.metadata_of(self), self.channel)
        codec = codecs.agreed(kept, self._origin.arguments.get("codec")) or kept
        self._origin = replace(self._origin, codec=codec)
        self._is_decided = True
        _native.decide(self, codec.kind != "bytes")

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent."""
        return Received(*_native.last_of(self)[:3])

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now, as one Arrow batch: position, session, payload, time. Never blocks.

        At most `limit` rows, and about `max_bytes` of payload unless a single message is longer.
        """
        return to_batch(_native.poll_arrow(self, limit, max_bytes))

    async def recv_async(self, timeout: float | None = None) -> Any:
        """The next message as `recv` gives it, awaited in the running event loop. Cancelling it loses nothing."""
        why = f"{self.channel}: no message within the timeout"
        message = await awaiting.message(self, lambda: _native.next_bytes(self), timeout, why)
        return self._decode(message)

    async def borrow_async(self, timeout: float | None = None) -> _native.Borrow:
        """The next message as `borrow` gives it, awaited in the running event loop: `with await sub.borrow_async() as view`."""

        def attempt() -> _native.Borrow | None:
            try:
                return self.borrow(0)
            except TimedOut:
                return None

        return await awaiting.message(self, attempt, timeout, f"{self.channel}: no message within the timeout")

    def _decode(self, message: bytes) -> Any:
        """The message taken last by this thread, as its codec understands it."""
        try:
            return self._origin.codec.parse(message)
        except Exception as error:
            position = _native.position_of(self, message)
            raise codecs.undecodable(self._origin.codec, self.channel, position, message, error) from error

    def __aiter__(self) -> AsyncIterator[Any]:
        return until_closed_async(self.recv_async)

    def statistics(self) -> ChannelStatus:
        """The counters at this moment of the channel that this handle has open, also after another one was given its name."""
        return inspect_opened(self._origin.kind, self._origin.channel, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        check_open(self)
        about = self._origin
        place: Any
        if self.codec is None:  # from its beginning, like this subscription
            place = "earliest" if about.channel.kind.keeps else "newest"
        else:  # with the same last values again, or from here on
            place = "last" if _native.has_kept(self) else self.position
        arguments = {**about.arguments, "start": place}
        return reopen, (about.opener, about.channel, arguments, opened_file(about.channel, self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


Publication.register(NativePublication)
Subscription.register(NativeSubscription)


def publication(writer: _native.WriterEnd, origin: ReopenArgs, last: str | None = None) -> NativePublication:
    """A publication that encodes if the channel has a codec. last: the field of its messages by which the channel keeps last values."""
    if last is not None:
        return LastValuePublication(writer, origin, last)
    return (NativePublication if origin.codec.kind == "bytes" else EncodingPublication)(writer, origin)


def send_encoded(publication: Any, body: Any, timeout: float | None) -> int:
    """Sends a message that the channel's codec has encoded already, on a compiled publication."""
    if isinstance(publication, LastValuePublication):
        body = publication.with_key(body)
    return _native.Publication.send(publication, body, timeout)


def subscription(
    reader: _native.ReaderEnd,
    kind: Kind,
    channel: Channel,
    codec: Codec | None,
    opener: Callable[..., Any],
    arguments: dict[str, Any],
    spin: float,
    until_end: bool = False,
) -> NativeSubscription:
    """A subscription that decodes if the channel has a codec. codec: None while the channel is open."""
    origin = ReopenArgs(kind, channel, codec or codecs.BYTES, opener, arguments)
    return NativeSubscription(reader, origin, codec, spin, until_end)
