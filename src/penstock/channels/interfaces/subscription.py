"""The interface of every subscription, for channels of all kinds: `penstock.subscribe` returns one.

Knows codecs and status. It must never know a kind, an end of the compiled core, or a socket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from penstock.channels.status import ChannelStatus
from penstock.channels.waiting.iteration import until_closed, until_closed_async
from penstock.codecs import Codec

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    Message = TypeVar("Message", covariant=True, default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message", covariant=True)  # Python has no defaults here before 3.13


class Received(NamedTuple):
    """Where and when a message was sent, and by whom.

    position: of its first byte in the stream. time_ns: when it was sent, nanoseconds since the epoch. session: the
    publication that sent it. sender, type: the sender's name and the message's type, empty where the kind has none.
    """

    position: int
    time_ns: int
    session: int
    sender: str = ""
    type: str = ""


class Subscription(ABC, Generic[Message]):
    """A handle that reads messages from a channel, at its own position.

    Thread-safe: each message goes to one caller. A context manager. Pickles to another process as a new subscription that goes
    on at the same position, where the kind has positions to start at.

    A `timeout` is in seconds: None waits for ever, 0 never waits. `TimedOut` is raised when it has passed, and nothing was read.
    Every call on a closed handle raises `Closed`. A method that a kind does not support raises `Unsupported` with the reason.
    A subscription that was dropped for being slow raises `TooSlow` once, and continues at the oldest position that is kept. A
    message that does not fit the codec raises `DecodeError`, and the next call continues behind it. The methods that begin with
    `a` are coroutines: they wait in the running event loop and do not block it. Cancelling one loses no message.

    With `until_end=True` the stream may end: there has been a publication, all of them have closed or died, and everything was
    read. Then iteration ends, and `recv`, `try_recv`, `poll`, `poll_arrow`, `borrow` and their async twins raise `EndOfStream`.
    On `udp:` they raise `Disconnected` if a sender fell silent before it closed; the handle goes on when the sender comes back.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def channel(self) -> str:
        """The channel's URI."""

    @property
    @abstractmethod
    def codec(self) -> Codec | None:
        """How messages are decoded. None until the channel's first publication decides it."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Where reading continues: bytes of the stream."""

    @property
    @abstractmethod
    def lag(self) -> int:
        """Bytes of the stream that are not read yet."""

    @property
    @abstractmethod
    def lost(self) -> int:
        """Bytes of the stream that this subscription missed."""

    @property
    @abstractmethod
    def lost_messages(self) -> int | None:
        """Messages that this subscription missed. None where only the bytes are known."""

    @property
    @abstractmethod
    def last(self) -> Received:
        """Where and when the message received last was sent, and by whom."""

    @abstractmethod
    def recv(self, timeout: float | None = None) -> Message:
        """The next message. Waits for it. `TimedOut` after `timeout` seconds."""

    @abstractmethod
    async def recv_async(self, timeout: float | None = None) -> Message:
        """The next message as `recv` gives it, awaited in the running event loop."""

    @abstractmethod
    def try_recv(self) -> Message | None:
        """The next message, or None if there is none yet. Never blocks."""

    @abstractmethod
    def poll(self, limit: int = 1000) -> list[Any]:  # of messages; a list would make Message invariant
        """The messages that are there now, at most `limit` of them. Never blocks.

        An error after the first message is raised by the next call, so that no message is lost.
        """

    @abstractmethod
    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now, as one Arrow batch with a row for each. Never blocks.

        At most `limit` rows, and about `max_bytes` of payload unless a single message is longer.
        """

    @abstractmethod
    def borrow(self, timeout: float | None = None) -> AbstractContextManager[Any]:
        """The bytes of the next message, read in place: a context manager that gives a read-only memoryview.

        Waits as `recv` does. The view ends with the block.
        """

    @abstractmethod
    async def borrow_async(self, timeout: float | None = None) -> AbstractContextManager[Any]:
        """The next message as `borrow` gives it, awaited in the running event loop: `with await sub.borrow_async() as view`."""

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that is readable while there is something to read, for selectors and event loops."""

    @abstractmethod
    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment, read without locks."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the channel. Writers no longer wait for this subscription. Safe to call twice, and from any thread."""

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for it. Ends when the handle closes, or at the end of the stream."""
        return until_closed(self.recv)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, awaited in the running event loop. Ends as `for` does."""
        return until_closed_async(self.recv_async)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"
