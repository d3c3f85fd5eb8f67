"""The roles of members that send work out, exchange messages or answer each other, on every kind of channel that has them.

A role is an abstract class. `pipe:` and ZeroMQ implement all of them, `sync:` has `Member`. Every implementation is thread-safe, a context
manager, and pickles to another process as a new member. Timeouts are in seconds: None waits for ever, 0 never waits, and `TimedOut` is
raised when it has passed. `name_async` is `name` in the running event loop. Knows no kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from penstock.channels.interfaces.patterns import Body, Routed
from penstock.channels.interfaces.publication import Claim, Publication
from penstock.channels.interfaces.subscription import Received, Subscription
from penstock.channels.status import ChannelMember, ChannelStatus
from penstock.codecs import Codec

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    Sent = TypeVar("Sent", contravariant=True, default=Any)
    Got = TypeVar("Got", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sent, Got = TypeVar("Sent", contravariant=True), TypeVar("Got", covariant=True)


class Pusher(Publication[Sent]):
    """Gives each message to one puller, in turn among those that have room. It receives nothing."""


class Puller(Subscription[Got]):
    """Takes messages that no other puller gets. It sends nothing."""


class Peer(ABC):
    """The methods that all roles share."""

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
    def name(self) -> str | None:
        """This member's name. None where ZeroMQ gives it one."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether `close` was called."""

    @property
    @abstractmethod
    def readers(self) -> int:
        """The number of live members that this member sends to."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Bytes that this member has read."""

    @property
    @abstractmethod
    def send_position(self) -> int:
        """Bytes that this member has written."""

    @property
    @abstractmethod
    def max_payload(self) -> int:
        """The largest message that `offer` and `claim` take, in bytes. The `send` of a sync queue's member takes larger ones."""

    @abstractmethod
    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until there are at least `count` members that this one sends to."""

    @abstractmethod
    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """The same in the running event loop."""

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that is readable while there is something to read."""

    @abstractmethod
    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the channel. Safe to call twice."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


class Receiver(Peer, Generic[Got]):
    """A member that gives the messages that it receives."""

    @property
    @abstractmethod
    def last(self) -> Received:
        """Where and when the message received last was sent, and by whom."""

    @property
    @abstractmethod
    def lag(self) -> int:
        """Bytes that wait for this member. `Unsupported` over ZeroMQ."""

    @property
    @abstractmethod
    def lost(self) -> int:
        """Bytes of messages to this member that were dropped. `Unsupported` over ZeroMQ."""

    @property
    @abstractmethod
    def lost_messages(self) -> int | None:
        """Messages to this member that were dropped. None where only the bytes are known."""

    @abstractmethod
    def recv(self, timeout: float | None = None) -> Got:
        """The next message. Waits for it."""

    @abstractmethod
    async def recv_async(self, timeout: float | None = None) -> Got:
        """The same in the running event loop. Cancelling it loses nothing."""

    @abstractmethod
    def try_recv(self) -> Got | None:
        """The next message, or None if there is none yet. Never blocks."""

    @abstractmethod
    def poll(self, limit: int = 1000) -> list[Any]:
        """The messages that are there now, at most `limit`. Never blocks."""

    @abstractmethod
    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now, as one Arrow batch. Never blocks."""

    @abstractmethod
    def borrow(self, timeout: float | None = None) -> AbstractContextManager[Any]:
        """The bytes of the next message in place: a context manager that gives a read-only memoryview."""

    @abstractmethod
    async def borrow_async(self, timeout: float | None = None) -> AbstractContextManager[Any]:
        """The same in the running event loop."""

    @abstractmethod
    def __iter__(self) -> Iterator[Got]: ...

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Got]: ...


class Talker(Receiver[Any]):
    """A member that sends and receives without naming others."""

    @abstractmethod
    def send(self, data: Body, timeout: float | None = None) -> int:
        """Sends one message. Waits while there is no room. Returns the bytes that this member has written."""

    @abstractmethod
    async def send_async(self, data: Body, timeout: float | None = None) -> int:
        """The same in the running event loop. A cancelled task has sent nothing."""

    @abstractmethod
    def offer(self, data: Body) -> int | None:
        """Sends one message, or returns None if there is no room. Never blocks."""

    @abstractmethod
    def offer_many(self, messages: Sequence[Body]) -> int:
        """Sends messages in order until there is no room. Returns how many were sent."""

    @abstractmethod
    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message of `length` bytes, to be written in place."""

    @abstractmethod
    async def claim_async(self, length: int, timeout: float | None = None) -> Claim:
        """The same in the running event loop. `Unsupported` over ZeroMQ."""


class Pair(Talker):
    """One of two members that exchange messages."""


class Dealer(Talker):
    """Sends to the routers in turn, and receives what any router sends to its name."""


class Router(Receiver[Routed]):
    """Receives from every dealer, and sends to the one that it names."""

    @abstractmethod
    def send(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends one message to the dealer of that name. `Disconnected` if there is no such dealer."""

    @abstractmethod
    async def send_async(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """The same in the running event loop. A cancelled task has sent nothing."""

    @abstractmethod
    def offer(self, data: Body, *, to: str) -> int | None:
        """Sends one message, or returns None if that dealer has no room. Never blocks."""

    @abstractmethod
    def offer_many(self, messages: Sequence[Body], *, to: str) -> int:
        """Sends messages to one dealer until it has no room. Returns how many were sent."""


class Pending(Protocol):
    """A request that was sent and awaits its reply."""

    def result(self, timeout: float | None = None) -> Any:
        """The reply. Waits for it. `ServerError` if the server failed."""

    async def result_async(self, timeout: float | None = None) -> Any:
        """The same in the running event loop."""

    def cancel(self) -> None:
        """Gives the reply up."""


class Requester(Peer):
    """A client: sends requests to the repliers in turn, and gets a reply to each."""

    late: int  # replies to abandoned requests

    @abstractmethod
    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and waits for its reply. `ServerError` if the server failed."""

    @abstractmethod
    async def request_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """The same in the running event loop."""

    @abstractmethod
    def submit(self, body: Body, timeout: float | None = None) -> Pending:
        """Sends a request; its reply is waited for later. Many may be under way."""

    @abstractmethod
    async def submit_async(self, body: Body, timeout: float | None = None) -> Pending:
        """The same in the running event loop."""


class Request(Protocol):
    """A request that was received."""

    @property
    def body(self) -> Any:
        """The request's body."""

    @property
    def sender(self) -> str:
        """The name of the requester."""

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply. Returns False if the requester has left."""

    async def reply_async(self, body: Body, timeout: float | None = None) -> bool:
        """The same in the running event loop."""


class Replier(Receiver[Request]):
    """A server: takes requests from all requesters in turn, and answers them in any order."""

    @abstractmethod
    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers each request with `answer(body)`, until the handle closes or `count` requests are answered."""

    @abstractmethod
    async def serve_async(self, answer: Callable[[Any], Awaitable[Body]], count: int | None = None) -> None:
        """The same in the running event loop, with a coroutine function."""


class Member(Receiver[Any]):
    """One member of a sync queue. It writes messages and reads those of the other members."""

    @abstractmethod
    def send(self, data: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        """Sends one message of that type to all members. Returns the stream's position after it, in bytes."""

    @abstractmethod
    async def send_async(self, data: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        """The same in the running event loop. A cancelled task has sent nothing."""

    @abstractmethod
    def offer(self, data: Any, *, type: str | bytes = "") -> int | None:
        """Sends one message, or returns None if there is no room. Never blocks."""

    @abstractmethod
    def offer_many(self, messages: Any, *, type: str | bytes = "") -> int:
        """Sends messages in order until there is no room. Returns how many were sent."""

    @abstractmethod
    def claim(self, length: int, timeout: float | None = None, *, type: str | bytes = "") -> Claim:
        """Room for one message of `length` bytes, to be written in place."""

    @abstractmethod
    async def claim_async(self, length: int, timeout: float | None = None, *, type: str | bytes = "") -> Claim:
        """The same in the running event loop."""

    @abstractmethod
    def members(self) -> list[ChannelMember]:
        """The live members, including this one."""

    @abstractmethod
    def wait_for(self, names: Iterable[str], timeout: float | None = None) -> None:
        """Waits until members of these names have joined."""

    @abstractmethod
    async def wait_for_async(self, names: Iterable[str], timeout: float | None = None) -> None:
        """The same in the running event loop."""


__all__ = [
    "Dealer",
    "Member",
    "Pair",
    "Peer",
    "Pending",
    "Puller",
    "Pusher",
    "Receiver",
    "Replier",
    "Request",
    "Requester",
    "Router",
    "Talker",
]
