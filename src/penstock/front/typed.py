"""One opener for each kind, with exactly its options and exactly its type of handle.

`penstock.publish("frames:cam")` and `publish_frames("frames:cam")` open the same handle. An editor and a type checker know more of the
second one. `tools/openers.py` writes the lists of options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.channels.channel import parse
from penstock.errors import Invalid
from penstock.front.opener import OWN, given, open_handle
from penstock.util.strict import checks_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.channels.handles import NativePublication, NativeSubscription
    from penstock.channels.subscription import Subscription
    from penstock.front.opener import Key, Start, Topics, WhenFull, WhenSlow
    from penstock.kinds.frames.opener import FramePublication, FrameSubscription
    from penstock.kinds.pipe.opener import PullSubscription, PushPublication
    from penstock.kinds.sync.member import SyncMember
    from penstock.kinds.udp.handle import UdpPublication, UdpSubscription
    from penstock.kinds.udp.options import FlowControl
    from penstock.kinds.zmq.peers import ZmqRouter, ZmqTalker
    from penstock.kinds.zmq.publication import ZmqPublication
    from penstock.kinds.zmq.requests import ZmqReplier, ZmqRequester
    from penstock.kinds.zmq.subscription import ZmqSubscription
    from penstock.util.clock import ManualClock


def _checked(channel: str, *names: str) -> str:
    """The URI, if it names a channel of one of these kinds. `Invalid` if not."""
    kind = parse(channel).kind
    if kind.name not in names:
        raise Invalid(
            f"{channel} is of kind {kind.name!r}, and this opens only {' and '.join(names)}: use penstock.publish and subscribe"
        )
    return channel


@checks_names
def publish_log(
    channel: str,
    *,
    exclusive: bool = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    term_length: int = OWN,
    max_members: int = OWN,
    stream_id: int = OWN,
    initial_term_id: int = OWN,
    start_position: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> NativePublication:
    """A publication on `log:NAME`. Options as in `penstock.publish`."""
    opened: NativePublication = open_handle("publish", _checked(channel, "log"), given(locals()))
    return opened


@checks_names
def publish_ring(
    channel: str,
    *,
    codec: Any = OWN,
    capacity: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    start_sequence: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> NativePublication:
    """The publication of `ring:NAME`. Options as in `penstock.publish`."""
    opened: NativePublication = open_handle("publish", _checked(channel, "ring"), given(locals()))
    return opened


@checks_names
def publish_frames(
    channel: str,
    *,
    when_slow: WhenSlow = OWN,
    shape: Sequence[int] | int = OWN,
    dtype: Any = OWN,
    buffers: int = OWN,
    max_members: int = OWN,
    attributes: dict[str, Any] | None = OWN,
    start_position: int = OWN,
    start_sequence: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> FramePublication:
    """The publication of `frames:NAME`. Options as in `penstock.publish`."""
    opened: FramePublication = open_handle("publish", _checked(channel, "frames"), given(locals()))
    return opened


@checks_names
def publish_pipe(
    channel: str,
    *,
    name: str | None = OWN,
    when_full: WhenFull = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_messages: int = OWN,
    max_pipes: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> PushPublication:
    """A publication on `pipe:NAME`: each message goes to one subscription. Options as in `penstock.publish`."""
    opened: PushPublication = open_handle("publish", _checked(channel, "pipe"), given(locals()))
    return opened


@checks_names
def publish_sync(
    channel: str,
    *,
    name: str | bytes | None = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> NativePublication:
    """A publication on `sync:NAME`, which only writes. Options as in `penstock.publish`."""
    opened: NativePublication = open_handle("publish", _checked(channel, "sync"), given(locals()))
    return opened


@checks_names
def publish_zmq(
    channel: str,
    *,
    codec: Any = OWN,
    max_messages: int = OWN,
    when_full: WhenFull = OWN,
    linger: float | None = OWN,
    bind: bool = OWN,
    secret_key: Key = OWN,
    server_key: Key = OWN,
) -> ZmqPublication:
    """The publication of `zmq+tcp://HOST:PORT` or `zmq+ipc://PATH`. Options as in `penstock.publish`."""
    opened: ZmqPublication = open_handle("publish", _checked(channel, "zmq+tcp", "zmq+ipc"), given(locals()))
    return opened


@checks_names
def publish_udp(
    channel: str,
    *,
    codec: Any = OWN,
    mtu: int = OWN,
    term_length: int | None = OWN,
    capacity: int | None = OWN,
    max_members: int = OWN,
    session: int | None = OWN,
    linger: float = OWN,
    interface: str | None = OWN,
    ttl: int = OWN,
    send_buffer: int | None = OWN,
    receive_buffer: int | None = OWN,
    flow_control: FlowControl = OWN,
    control: str | None = OWN,
    destinations: Sequence[str] | None = OWN,
    initial_term_id: int = OWN,
    start_position: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> UdpPublication:
    """A publication on `udp://HOST:PORT/STREAM`. Options as in `penstock.publish`."""
    opened: UdpPublication = open_handle("publish", _checked(channel, "udp"), given(locals()))
    return opened


@checks_names
def subscribe_log(
    channel: str,
    *,
    start: Start = OWN,
    last: int | None = OWN,
    when_slow: WhenSlow = OWN,
    drop_after: float | None = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    term_length: int = OWN,
    max_members: int = OWN,
    stream_id: int = OWN,
    initial_term_id: int = OWN,
    start_position: int = OWN,
    prefault: bool = OWN,
) -> NativeSubscription:
    """A subscription to `log:NAME`. Options as in `penstock.subscribe`."""
    opened: NativeSubscription = open_handle("subscribe", _checked(channel, "log"), given(locals()))
    return opened


@checks_names
def subscribe_ring(
    channel: str,
    *,
    start: Start = OWN,
    last: int | None = OWN,
    conflate: bool = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    start_sequence: int = OWN,
    prefault: bool = OWN,
) -> NativeSubscription:
    """A subscription to `ring:NAME`. Options as in `penstock.subscribe`."""
    opened: NativeSubscription = open_handle("subscribe", _checked(channel, "ring"), given(locals()))
    return opened


@checks_names
def subscribe_frames(
    channel: str,
    *,
    start: Start = OWN,
    last: int | None = OWN,
    conflate: bool | None = OWN,
    when_slow: WhenSlow = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    connect_timeout: float | None = OWN,
    pixels: bool = OWN,
    shape: Sequence[int] | int = OWN,
    dtype: Any = OWN,
    buffers: int = OWN,
    max_members: int = OWN,
    attributes: dict[str, Any] | None = OWN,
    start_position: int = OWN,
    start_sequence: int = OWN,
    prefault: bool = OWN,
) -> FrameSubscription:
    """A subscription to `frames:NAME`. Options as in `penstock.subscribe`."""
    opened: FrameSubscription = open_handle("subscribe", _checked(channel, "frames"), given(locals()))
    return opened


@checks_names
def subscribe_pipe(
    channel: str,
    *,
    start: Start = OWN,
    name: str | None = OWN,
    acknowledge: Literal["next", "manual"] = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_messages: int = OWN,
    max_pipes: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    prefault: bool = OWN,
) -> PullSubscription:
    """A subscription to `pipe:NAME`: it takes messages that no other gets. Options as in `penstock.subscribe`."""
    opened: PullSubscription = open_handle("subscribe", _checked(channel, "pipe"), given(locals()))
    return opened


@checks_names
def subscribe_sync(
    channel: str,
    *,
    start: Start = OWN,
    last: int | None = OWN,
    when_slow: WhenSlow = OWN,
    drop_after: float | None = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    prefault: bool = OWN,
) -> Subscription[Any]:
    """A reader of `sync:NAME` that has no name and writes nothing. Options as in `penstock.subscribe`."""
    opened: Subscription[Any] = open_handle("subscribe", _checked(channel, "sync"), given(locals()))
    return opened


@checks_names
def subscribe_zmq(
    channel: str,
    *,
    start: Literal["newest"] = OWN,
    spin: float = OWN,
    codec: Any = OWN,
    max_messages: int = OWN,
    conflate: bool = OWN,
    topics: Topics = OWN,
    linger: float | None = OWN,
    bind: bool = OWN,
    secret_key: Key = OWN,
    server_key: Key = OWN,
) -> ZmqSubscription:
    """A subscription to `zmq+tcp://HOST:PORT` or `zmq+ipc://PATH`. Options as in `penstock.subscribe`."""
    opened: ZmqSubscription = open_handle("subscribe", _checked(channel, "zmq+tcp", "zmq+ipc"), given(locals()))
    return opened


@checks_names
def subscribe_udp(
    channel: str,
    *,
    start: Start = OWN,
    last: int | None = OWN,
    when_slow: WhenSlow = OWN,
    drop_after: float | None = OWN,
    spin: float = OWN,
    until_end: bool = OWN,
    codec: Any = OWN,
    window: int = OWN,
    reliable: bool = OWN,
    interface: str | None = OWN,
    receive_buffer: int | None = OWN,
    group_tag: int | None = OWN,
    control: str | None = OWN,
    max_members: int = OWN,
    prefault: bool = OWN,
) -> UdpSubscription:
    """A subscription to `udp://HOST:PORT/STREAM`. Options as in `penstock.subscribe`."""
    opened: UdpSubscription = open_handle("subscribe", _checked(channel, "udp"), given(locals()))
    return opened


@checks_names
def join_sync(
    channel: str,
    *,
    name: str | bytes | None = OWN,
    own: bool = OWN,
    start: Start = OWN,
    last: int | None = OWN,
    when_slow: WhenSlow = OWN,
    drop_after: float | None = OWN,
    spill_limit: int = OWN,
    spin: float = OWN,
    codec: Any = OWN,
    capacity: int = OWN,
    max_members: int = OWN,
    start_position: int = OWN,
    clock: ManualClock | None = OWN,
    prefault: bool = OWN,
) -> SyncMember:
    """A member of `sync:NAME`. Options as in `penstock.join`."""
    opened: SyncMember = open_handle("join", _checked(channel, "sync"), given(locals()))
    return opened


@overload
def join_zmq(
    channel: str,
    *,
    role: Literal["push", "pull", "pair", "dealer"],
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
def join_zmq(
    channel: str,
    *,
    role: Literal["router"],
    name: str | None = ...,
    codec: Any = ...,
    spin: float = ...,
    max_messages: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
) -> ZmqRouter: ...
@overload
def join_zmq(
    channel: str,
    *,
    role: Literal["request"],
    name: str | None = ...,
    codec: Any = ...,
    spin: float = ...,
    max_messages: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
) -> ZmqRequester: ...
@overload
def join_zmq(
    channel: str,
    *,
    role: Literal["reply"],
    name: str | None = ...,
    codec: Any = ...,
    spin: float = ...,
    max_messages: int = ...,
    linger: float | None = ...,
    bind: bool | None = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
) -> ZmqReplier: ...
@checks_names
def join_zmq(
    channel: str,
    *,
    role: str,
    name: str | None = OWN,
    codec: Any = OWN,
    spin: float = OWN,
    max_messages: int = OWN,
    linger: float | None = OWN,
    bind: bool | None = OWN,
    secret_key: Key = OWN,
    server_key: Key = OWN,
) -> Any:
    """A socket of `zmq+tcp://HOST:PORT` or `zmq+ipc://PATH` in that role. Options as in `penstock.join`."""
    return open_handle("join", _checked(channel, "zmq+tcp", "zmq+ipc"), given(locals()))
