"""Publish, subscribe and join: they open a handle on a channel, which is a value (`penstock.Log`) or a URI.

The overloads are what editors and type checkers read: one for each kind, and for URIs one for each thing that may come of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.channels.uri.value import open_channel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import TypeVar, Unpack

    from penstock.channels.handles import NativePublication, NativeSubscription
    from penstock.channels.interfaces.publication import Publication
    from penstock.channels.interfaces.roles import Dealer, Pair, Puller, Pusher, Replier, Requester, Router
    from penstock.channels.interfaces.subscription import Subscription
    from penstock.channels.uri.value import AnyChannel, Fake, Tested
    from penstock.codecs import Codec
    from penstock.front.options import (
        Key,
        LogStart,
        MemberOptions,
        PublishOptions,
        SocketOptions,
        Start,
        SubscribeOptions,
        Topics,
        WhenFull,
        WhenSlow,
    )
    from penstock.kinds.frames.handles import FramePublication, FrameSubscription
    from penstock.kinds.frames.opener import Frames
    from penstock.kinds.log import Log
    from penstock.kinds.pipe.opener import PipePuller, PipePusher
    from penstock.kinds.pipe.sockets import Pipe
    from penstock.kinds.ring import Ring
    from penstock.kinds.sync.member import SyncMember
    from penstock.kinds.sync.opener import Sync
    from penstock.kinds.udp.handle import UdpPublication, UdpSubscription
    from penstock.kinds.udp.history.subscription import HistorySubscription
    from penstock.kinds.udp.opener import Udp
    from penstock.kinds.zmq.opener import Zmq
    from penstock.kinds.zmq.publication import ZmqPublication
    from penstock.kinds.zmq.subscription import ZmqSubscription

    M = TypeVar("M")


@overload
def publish(channel: Log[M], *, exclusive: bool = ...) -> NativePublication[M]: ...
@overload
def publish(channel: Ring[M]) -> NativePublication[M]: ...
@overload
def publish(channel: Sync[M], *, name: str | bytes | None = ...) -> NativePublication[M]: ...
@overload
def publish(channel: Pipe[M], *, name: str | None = ..., when_full: WhenFull = ...) -> PipePusher[M]: ...
@overload
def publish(channel: Frames, *, when_slow: WhenSlow = ...) -> FramePublication: ...
@overload
def publish(
    channel: Udp[M],
    *,
    session: int | None = ...,
    max_members: int = ...,
    linger: float = ...,
    send_buffer: int | None = ...,
    receive_buffer: int | None = ...,
) -> UdpPublication[M]: ...
@overload
def publish(
    channel: Zmq[M],
    *,
    max_messages: int = ...,
    when_full: WhenFull = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    client_keys: Sequence[str | bytes] | None = ...,
    endpoints: Sequence[str] = ...,
    options: Mapping[str, int | str | bytes] | None = ...,
    last_value: bool = ...,
) -> ZmqPublication: ...
@overload
def publish(
    channel: str, *, shape: Sequence[int] | int, codec: None = ..., **options: Unpack[PublishOptions]
) -> FramePublication: ...
@overload
def publish(channel: str, *, codec: type[M] | Codec[M], **options: Unpack[PublishOptions]) -> Publication[M]: ...
@overload
def publish(
    channel: str | Fake | Tested, *, codec: Any = ..., **options: Unpack[PublishOptions]
) -> Publication[Any]: ...
def publish(channel: AnyChannel, **options: Any) -> Any:
    """A publication on a channel, which is made now if it does not exist.

    channel: a value as `penstock.Log("imu", Imu, capacity="8MiB")`, or a URI as "log:imu", beside which the options that shape
    the channel may stand. The first publication decides the channel's codec and options. `Mismatch` if a channel that exists has
    others, `TypeError` for an option that the kind does not have. `penstock.types` names the handles.

    codec: "bytes" (default), "json", "msgpack", a structured dtype, `penstock.array(...)`, a msgspec.Struct, dataclass or other
    type, `penstock.objects(cls, form)`, a protobuf message class, or `penstock.ros2msg(name)`.

    What this publication wants:

    - log: exclusive: the only publication, which is cheaper; `Busy` if there is another.
    - sync: name: the sender in its messages.
    - pipe: name; when_full: "wait", "drop_newest" or "drop_oldest".
    - frames: when_slow: "skip", or "wait" for every subscription that reads every frame.
    - udp: session, linger, max_members, send_buffer, receive_buffer.
    - zmq: when_full: "drop_newest" or "wait"; last_value: late subscriptions get each topic's newest message; endpoints: more
      addresses; options: libzmq's socket options by name; max_messages, linger, bind, secret_key, server_key, client_keys.

    >>> imu = penstock.Log("doc", dict)
    >>> with penstock.publish(imu) as pub, penstock.subscribe(imu) as sub:
    ...     position = pub.send({"speed": 3.5})
    ...     sub.recv(timeout=1)
    {'speed': 3.5}
    """
    return open_channel("publish", channel, options)


@overload
def subscribe(
    channel: Log[M] | Sync[M],
    *,
    start: LogStart = ...,
    last: int | None = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    spin: float = ...,
    until_end: bool = ...,
) -> NativeSubscription[M]: ...
@overload
def subscribe(
    channel: Ring[M],
    *,
    start: Start = ...,
    last: int | None = ...,
    conflate: bool = ...,
    spin: float = ...,
    until_end: bool = ...,
) -> NativeSubscription[M]: ...
@overload
def subscribe(
    channel: Pipe[M],
    *,
    name: str | None = ...,
    acknowledge: Literal["next", "manual"] = ...,
    spin: float = ...,
    until_end: bool = ...,
) -> PipePuller[M]: ...
@overload
def subscribe(
    channel: Frames,
    *,
    start: Literal["newest"] | int = ...,
    last: int | None = ...,
    conflate: bool | None = ...,
    when_slow: WhenSlow = ...,
    connect_timeout: float | None = ...,
    spin: float = ...,
    until_end: bool = ...,
    pixels: bool = ...,
) -> FrameSubscription: ...
@overload
def subscribe(
    channel: Udp[M],
    *,
    archive: str | PathLike[str],
    start: Literal["newest", "earliest"] = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    window: int = ...,
    reliable: bool = ...,
    receive_buffer: int | None = ...,
    group_tag: int | None = ...,
    max_members: int = ...,
    spin: float = ...,
    until_end: bool = ...,
) -> HistorySubscription[M]: ...
@overload
def subscribe(
    channel: Udp[M],
    *,
    start: Start = ...,
    last: int | None = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    window: int = ...,
    reliable: bool = ...,
    receive_buffer: int | None = ...,
    group_tag: int | None = ...,
    max_members: int = ...,
    spin: float = ...,
    until_end: bool = ...,
) -> UdpSubscription[M]: ...
@overload
def subscribe(
    channel: Zmq[M],
    *,
    topics: Topics = ...,
    conflate: bool = ...,
    max_messages: int = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    client_keys: Sequence[str | bytes] | None = ...,
    endpoints: Sequence[str] = ...,
    options: Mapping[str, int | str | bytes] | None = ...,
    spin: float = ...,
) -> ZmqSubscription: ...
@overload
def subscribe(
    channel: str, *, acknowledge: Literal["next", "manual"], codec: Any = ..., **options: Unpack[SubscribeOptions]
) -> PipePuller: ...
@overload
def subscribe(channel: str, *, codec: type[M] | Codec[M], **options: Unpack[SubscribeOptions]) -> Subscription[M]: ...
@overload
def subscribe(
    channel: str | Fake | Tested, *, codec: Any = ..., **options: Unpack[SubscribeOptions]
) -> Subscription[Any]: ...
def subscribe(channel: AnyChannel, **options: Any) -> Any:
    """A subscription to a channel given as a value or by its URI; see `publish`.

    Without a first publication the channel is open, or made so now. Then `codec` is None until the first publication decides it,
    and this subscription gets every message from the first one on.

    What this subscription wants:

    - every kind: spin: seconds to spin before sleeping. until_end: iteration ends when all publications have closed or died and
      everything was read, and `recv` raises `EndOfStream` (not zmq).
    - log, sync, udp: start: "newest", "earliest" or a position; last: how many of the newest messages come first; when_slow: "wait", or
      "drop" after drop_after seconds (sync: "fail" too). A log that keeps last values: start="last", first the newest message of each
      key, then the stream, each message once.
    - ring: start, last; conflate: only the newest message.
    - frames: conflate, unless last or conflate=False is given; when_slow: "wait" or "skip"; connect_timeout: seconds to wait for the
      channel to be made; pixels.
    - pipe: acknowledge: "next" (taking a message acknowledges the one before) or "manual"; name.
    - udp: window, reliable, receive_buffer, group_tag, max_members: the first subscription on a machine decides. archive: begins
      with its messages if start is "earliest", and reads what the network lost from it.
    - zmq: topics, conflate; endpoints, options, max_messages, linger, bind, secret_key, server_key, client_keys.
    """
    return open_channel("subscribe", channel, options)


@overload
def join(
    channel: Pipe[Any] | Zmq[Any] | Fake | Tested | str, *, role: Literal["request"], **options: Unpack[SocketOptions]
) -> Requester: ...
@overload
def join(
    channel: Pipe[Any] | Zmq[Any] | Fake | Tested | str, *, role: Literal["reply"], **options: Unpack[SocketOptions]
) -> Replier: ...
@overload
def join(
    channel: Pipe[Any] | Zmq[Any] | Fake | Tested | str, *, role: Literal["pair"], **options: Unpack[SocketOptions]
) -> Pair: ...
@overload
def join(
    channel: Pipe[Any] | Zmq[Any] | Fake | Tested | str, *, role: Literal["dealer"], **options: Unpack[SocketOptions]
) -> Dealer: ...
@overload
def join(
    channel: Pipe[Any] | Zmq[Any] | Fake | Tested | str, *, role: Literal["router"], **options: Unpack[SocketOptions]
) -> Router: ...
@overload
def join(channel: Zmq[M] | str, *, role: Literal["push"], **options: Unpack[SocketOptions]) -> Pusher[Any]: ...
@overload
def join(channel: Zmq[M] | str, *, role: Literal["pull"], **options: Unpack[SocketOptions]) -> Puller[Any]: ...
@overload
def join(channel: Sync[M] | Fake | Tested | str, **options: Unpack[MemberOptions]) -> SyncMember: ...
def join(channel: AnyChannel, **options: Any) -> Any:
    """Joins a channel whose members read and write, given as a value or by its URI; see `publish`. It is made now if it does not exist.

    - sync: a queue in which every member reads what the others write. name: the sender in this member's messages, `Busy` if a living
      member has it; own: whether it reads its own messages too; start, last, when_slow, drop_after as in `subscribe`; spill_limit: bytes
      of unread messages that it may take into its own memory while it waits to write.
    - pipe: role: "request", "reply", "pair", "dealer" or "router". name: of this member, for routers; when_full: "wait",
      "drop_newest" or "drop_oldest". To share work out, use `publish` and `subscribe`.
    - zmq: the same roles, "push" and "pull". bind: whether this end binds; pull, reply and router do by default. name: its ZeroMQ
      identity; endpoints, options, max_messages, linger, secret_key, server_key, client_keys.

    >>> with penstock.join("sync:doc", name="a") as a, penstock.join("sync:doc", name="b") as b:
    ...     position = a.send(b"hello", type="greeting")
    ...     message = b.recv(timeout=1)
    ...     message.sender, message.type, message.text
    ('a', 'greeting', 'hello')
    """
    return open_channel("join", channel, options)
