"""The interface of every publication, for channels of all kinds: `penstock.publish` returns one.

Knows codecs and status. It must never know a kind, an end of the compiled core, or a socket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from penstock.channels.status import ChannelStatus
from penstock.codecs import Codec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", contravariant=True, default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message", contravariant=True)  # Python has no defaults here before 3.13


class Claim(Protocol):
    """Room for one message that is written in place.

    As a context manager it gives a writable memoryview. The end of the block sends the message. An exception in the block gives
    the room up: nothing is sent.
    """

    def __enter__(self) -> memoryview: ...

    def __exit__(self, kind: object | None, error: object | None, trace: object | None, /) -> bool | None: ...

    def commit(self) -> int:
        """Sends the message. Returns the position of the stream after it, in bytes."""
        ...

    def abort(self) -> None:
        """Gives the room up. Nothing is sent."""
        ...


class Publication(ABC, Generic[Message]):
    """A handle that writes messages to a channel.

    Thread-safe. A context manager. Pickles to another process as a new publication on the same channel.

    A `timeout` is in seconds: None waits for ever, 0 never waits. `TimedOut` is raised when it has passed, and nothing was sent.
    A position counts bytes of the stream. Every call on a closed handle raises `Closed`. A promise that a kind does not keep
    raises `Unsupported` with the reason. The methods that begin with `a` are coroutines: they wait in the running event loop
    and do not block it.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def channel(self) -> str:
        """The channel's URI."""

    @property
    @abstractmethod
    def codec(self) -> Codec:
        """How messages are encoded."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called."""

    @property
    @abstractmethod
    def position(self) -> int:
        """The end of the stream, in bytes: the position of the next message."""

    @property
    @abstractmethod
    def readers(self) -> int:
        """How many subscriptions the channel has now."""

    @property
    @abstractmethod
    def max_payload(self) -> int:
        """The largest message that `offer` and `claim` take, in bytes. `send` may take larger ones, in several frames."""

    @abstractmethod
    def send(self, data: Message, timeout: float | None = None) -> int:
        """Sends one message. Waits while there is no room for it.

        Returns the position of the stream after the message, in bytes: a subscription with this `start=` reads the messages that
        follow. `TimedOut` if there was no room within `timeout` seconds. `TooLarge` for a message that can never fit.
        """

    @abstractmethod
    async def send_async(self, data: Message, timeout: float | None = None) -> int:
        """Sends one message as `send` does, and waits in the running event loop.

        When the task is cancelled, the whole message was sent or nothing was.
        """

    @abstractmethod
    def offer(self, data: Message) -> int | None:
        """Sends one message of at most `max_payload` bytes, or returns None if there is no room. Never blocks.

        Returns the position of the stream after the message, in bytes.
        """

    @abstractmethod
    def offer_many(self, messages: Sequence[Message]) -> int:
        """Sends messages in order until there is no room. Returns how many were sent. Never blocks."""

    @abstractmethod
    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message of `length` bytes, to be written in place. Waits for room as `send` does.

        The bytes are sent unchanged, without the codec. `Invalid` if not every message of that length fits the channel's codec.
        """

    @abstractmethod
    async def claim_async(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message as `claim` gives it, awaited in the running event loop: `with await pub.claim_async(10) as view`.

        When the task is cancelled, nothing is claimed.
        """

    @abstractmethod
    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until the channel has at least `count` subscriptions. `TimedOut` after `timeout` seconds."""

    @abstractmethod
    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits for subscriptions as `wait_for_readers` does, in the running event loop."""

    @abstractmethod
    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment, read without locks."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the channel and aborts claims that are open. Safe to call twice, and from any thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"
