"""Join: one signature for every kind of channel in which members read and write. `verbs.py` has publish and subscribe.

The overloads are what editors and type checkers read. `tools/openers.py` writes the lists of options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.front.opener import OWN, given, open_handle
from penstock.util.strict import checks_names

if TYPE_CHECKING:
    from penstock.front.opener import Key, Start, WhenFull, WhenSlow
    from penstock.kinds.pipe.sockets import Dealer, Pair, Replier, Requester, Router
    from penstock.kinds.sync.opener import SyncMember
    from penstock.kinds.zmq.sockets import ZmqTalker
    from penstock.util.clock import ManualClock


@overload
def join(
    channel: str,
    *,
    role: Literal["request"],
    name: str | None = ...,
    when_full: WhenFull = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Requester: ...
@overload
def join(
    channel: str,
    *,
    role: Literal["reply"],
    name: str | None = ...,
    when_full: WhenFull = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Replier: ...
@overload
def join(
    channel: str,
    *,
    role: Literal["pair"],
    name: str | None = ...,
    when_full: WhenFull = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Pair: ...
@overload
def join(
    channel: str,
    *,
    role: Literal["dealer"],
    name: str | None = ...,
    when_full: WhenFull = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Dealer: ...
@overload
def join(
    channel: str,
    *,
    role: Literal["router"],
    name: str | None = ...,
    when_full: WhenFull = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Router: ...
@overload
def join(
    channel: str,
    *,
    role: Literal["push", "pull"],
    name: str | None = ...,
    codec: Any = ...,
    spin: float = ...,
    max_messages: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
) -> ZmqTalker: ...
@overload
def join(
    channel: str,
    *,
    name: str | bytes | None = ...,
    own: bool = ...,
    start: Start = ...,
    last: int | None = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    spill_limit: int = ...,
    spin: float = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> SyncMember: ...
@checks_names
def join(
    channel: str,
    *,
    name: Any = OWN,
    own: Any = OWN,
    start: Any = OWN,
    last: Any = OWN,
    when_slow: Any = OWN,
    drop_after: Any = OWN,
    spill_limit: Any = OWN,
    spin: Any = OWN,
    codec: Any = OWN,
    capacity: Any = OWN,
    max_members: Any = OWN,
    start_position: Any = OWN,
    role: Any = OWN,
    when_full: Any = OWN,
    max_messages: Any = OWN,
    max_pipes: Any = OWN,
    linger: Any = OWN,
    bind: Any = OWN,
    secret_key: Any = OWN,
    server_key: Any = OWN,
    clock: Any = OWN,
    prefault: Any = OWN,
) -> Any:
    """Joins a channel in which every member reads and writes. The channel is made now if it does not exist.

    Joining an open channel decides its options, as a publication does.

    `sync:NAME` is a queue in which every member reads what the others write. name: the sender in this member's messages, 1 to 64 bytes; the
    process id and random digits unless given, and `Busy` if a living member has it. own: whether it reads its own messages too. start: "newest" (messages from now on), "earliest" (what
    the queue still keeps), or a position. last: instead, how many of the newest kept messages to read first. when_slow: what
    writers do when this member is a whole queue behind: "wait" for it, "drop" it after `drop_after` seconds, or "fail". spill_limit:
    bytes of unread messages that this member may take into its own memory while it waits to write. A new queue has `capacity` and
    `max_members` (see `SyncOptions`).

    `pipe:NAME` has roles: "request" and "reply", "pair", "dealer" and "router". codec: how bodies are encoded, as in `publish`; the
    first socket decides it. name: the name of this member, 1 to 64 bytes, `Busy` if a living one has it. when_full: "wait",
    "drop_newest" or "drop_oldest" when a pipe is full. A new channel has `capacity`, `max_messages`, `max_pipes` and `max_members`
    (see `PipeOptions`). To share work out, use `publish` and `subscribe`.

    `zmq+tcp://HOST:PORT` and `zmq+ipc://PATH` have the same roles, and "push" and "pull". Peers may be any ZeroMQ programs. bind:
    whether this end binds; pull, reply and router do by default. name: its ZeroMQ identity. codec: how messages are encoded;
    ZeroMQ does not carry it, so both ends name it. `max_messages`, `linger`, `secret_key` and `server_key`: see `ZmqOptions`.

    >>> with penstock.join("sync:doc", name="a") as a, penstock.join("sync:doc", name="b") as b:
    ...     position = a.send(b"hello", type="greeting")
    ...     message = b.recv(timeout=1)
    ...     message.sender, message.type, message.text
    ('a', 'greeting', 'hello')
    """
    return open_handle("join", channel, given(locals()))
