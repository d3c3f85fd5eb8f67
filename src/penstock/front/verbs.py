"""Publish and subscribe: one signature each for every kind of channel. The kind says which of the options it has.

The overloads are what editors and type checkers read. `tools/openers.py` writes the lists of options. `joining.py` has join, `penstock.typed` has an exact
opener for each kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.front.opener import OWN, given, open_handle
from penstock.util.strict import checks_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from penstock.channels.publication import Publication
    from penstock.channels.subscription import Subscription
    from penstock.codecs import Codec
    from penstock.front.opener import Key, Start, Topics, WhenFull, WhenSlow
    from penstock.kinds.frames.opener import FramePublication, FrameSubscription
    from penstock.kinds.pipe.opener import PullSubscription
    from penstock.kinds.udp.options import FlowControl
    from penstock.kinds.zmq.opener import ZmqSubscription
    from penstock.util.clock import ManualClock

    Message = TypeVar("Message")


@overload
def publish(
    channel: str,
    *,
    shape: Sequence[int] | int,
    when_slow: WhenSlow = ...,
    dtype: Any = ...,
    buffers: int = ...,
    max_members: int = ...,
    attributes: dict[str, Any] | None = ...,
    start_position: int = ...,
    start_sequence: int = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> FramePublication: ...
@overload
def publish(
    channel: str,
    *,
    codec: type[Message] | Codec[Message],
    exclusive: bool = ...,
    capacity: int = ...,
    term_length: int = ...,
    max_members: int = ...,
    stream_id: int = ...,
    initial_term_id: int = ...,
    start_position: int = ...,
    start_sequence: int = ...,
    name: str | bytes | None = ...,
    when_full: WhenFull = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    mtu: int = ...,
    session: int | None = ...,
    interface: str | None = ...,
    ttl: int = ...,
    send_buffer: int | None = ...,
    receive_buffer: int | None = ...,
    flow_control: FlowControl = ...,
    control: str | None = ...,
    destinations: Sequence[str] | None = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Publication[Message]: ...
@overload
def publish(
    channel: str,
    *,
    exclusive: bool = ...,
    codec: Any = ...,
    capacity: int = ...,
    term_length: int = ...,
    max_members: int = ...,
    stream_id: int = ...,
    initial_term_id: int = ...,
    start_position: int = ...,
    start_sequence: int = ...,
    name: str | bytes | None = ...,
    when_full: WhenFull = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    when_slow: WhenSlow = ...,
    dtype: Any = ...,
    buffers: int = ...,
    attributes: dict[str, Any] | None = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    mtu: int = ...,
    session: int | None = ...,
    interface: str | None = ...,
    ttl: int = ...,
    send_buffer: int | None = ...,
    receive_buffer: int | None = ...,
    flow_control: FlowControl = ...,
    control: str | None = ...,
    destinations: Sequence[str] | None = ...,
    clock: ManualClock | None = ...,
    prefault: bool = ...,
) -> Publication[Any]: ...
@checks_names
def publish(
    channel: str,
    *,
    exclusive: Any = OWN,
    codec: Any = OWN,
    capacity: Any = OWN,
    term_length: Any = OWN,
    max_members: Any = OWN,
    stream_id: Any = OWN,
    initial_term_id: Any = OWN,
    start_position: Any = OWN,
    start_sequence: Any = OWN,
    name: Any = OWN,
    when_full: Any = OWN,
    max_messages: Any = OWN,
    max_pipes: Any = OWN,
    when_slow: Any = OWN,
    shape: Any = OWN,
    dtype: Any = OWN,
    buffers: Any = OWN,
    attributes: Any = OWN,
    linger: Any = OWN,
    bind: Any = OWN,
    secret_key: Any = OWN,
    server_key: Any = OWN,
    mtu: Any = OWN,
    session: Any = OWN,
    interface: Any = OWN,
    ttl: Any = OWN,
    send_buffer: Any = OWN,
    receive_buffer: Any = OWN,
    flow_control: Any = OWN,
    control: Any = OWN,
    destinations: Any = OWN,
    clock: Any = OWN,
    prefault: Any = OWN,
) -> Any:
    """A publication on a channel, which is made now if it does not exist.

    channel: `log:NAME`, `ring:NAME`, `sync:NAME`, `frames:NAME`, `frames:NAME/STREAM`, `pipe:NAME`, `udp://HOST:PORT/STREAM`, `zmq+tcp://HOST:PORT`, `zmq+ipc://PATH`, or
    `fake:KIND:NAME` within this process. The first publication decides the channel's options and codec. Subscriptions may have come
    before it. `Mismatch` if the channel has another codec, or other options than those given. `TypeError` for an option that the kind
    does not have.

    codec: "bytes" (default), "json", "msgpack", a NumPy structured dtype, `penstock.array(dtype, shape)`, a dataclass, a `msgspec.Struct`
    type, `penstock.objects(cls, form)`, or a protobuf message class. It is kept in the channel, so no other program has to name it. Of a
    class the channel keeps how its objects are encoded: a program that names the class gets its objects, any other program gets dictionaries.

    capacity: bytes of room. max_members: how many handles may be open at once. clock: a `ManualClock` stamps messages in tests.
    prefault: brings all of the channel's memory into this process now, so that no later call is the first to touch a page.

    A log has `term_length` too (see `LogOptions`). exclusive=True makes this publication the only one, which is cheaper: `Busy` if
    there is another.

    A ring has one publication: `Busy` refuses a second. See `RingOptions`.

    A publication on a sync queue only writes, so no writer waits for it. name: the sender in its messages, `Busy` if a living member has it.
    See `SyncOptions`.

    Frames have `shape`, `dtype`, `buffers` and `attributes`, and no codec. See `FrameOptions` and `FramePublication.acquire`. With
    when_slow="wait" the publication waits for every subscription that reads every frame, and for recorders, so that nothing is lost.

    A pipe gives each message to one of its subscriptions. `max_messages` and `max_pipes` bound it (see `PipeOptions`). when_full:
    "wait", "drop_newest" or "drop_oldest". name: this peer's name.

    Over UDP each publication is a session of its own: see `UdpOptions`. Its messages wait for the first receiver.

    ZeroMQ has `max_messages`, `linger`, `bind`, `secret_key` and `server_key` (see `ZmqOptions`). when_full: "drop_newest", its default, or
    "wait".

    >>> with penstock.publish("log:doc", codec="json") as pub, penstock.subscribe("log:doc") as sub:
    ...     position = pub.send({"speed": 3.5})
    ...     sub.recv(timeout=1)
    {'speed': 3.5}
    """
    return open_handle("publish", channel, given(locals()))


@overload
def subscribe(
    channel: str,
    *,
    acknowledge: Literal["next", "manual"],
    start: Start = ...,
    name: str | None = ...,
    spin: float = ...,
    until_end: bool = ...,
    codec: Any = ...,
    capacity: int = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    max_members: int = ...,
    start_position: int = ...,
    prefault: bool = ...,
) -> PullSubscription: ...
@overload
def subscribe(
    channel: str,
    *,
    connect_timeout: float | None,
    start: Start = ...,
    last: int | None = ...,
    conflate: bool | None = ...,
    when_slow: WhenSlow = ...,
    spin: float = ...,
    until_end: bool = ...,
    pixels: bool = ...,
    shape: Sequence[int] | int = ...,
    dtype: Any = ...,
    buffers: int = ...,
    max_members: int = ...,
    attributes: dict[str, Any] | None = ...,
    start_position: int = ...,
    start_sequence: int = ...,
    prefault: bool = ...,
) -> FrameSubscription: ...
@overload
def subscribe(
    channel: str,
    *,
    topics: Topics,
    start: Literal["newest"] = ...,
    spin: float = ...,
    codec: Any = ...,
    max_messages: int = ...,
    conflate: bool = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
) -> ZmqSubscription: ...
@overload
def subscribe(
    channel: str,
    *,
    codec: type[Message] | Codec[Message],
    start: Start = ...,
    last: int | None = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    spin: float = ...,
    until_end: bool = ...,
    capacity: int = ...,
    term_length: int = ...,
    max_members: int = ...,
    stream_id: int = ...,
    initial_term_id: int = ...,
    start_position: int = ...,
    conflate: bool = ...,
    start_sequence: int = ...,
    name: str | None = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    window: int = ...,
    reliable: bool = ...,
    interface: str | None = ...,
    receive_buffer: int | None = ...,
    group_tag: int | None = ...,
    control: str | None = ...,
    prefault: bool = ...,
) -> Subscription[Message]: ...
@overload
def subscribe(
    channel: str,
    *,
    start: Start = ...,
    last: int | None = ...,
    when_slow: WhenSlow = ...,
    drop_after: float | None = ...,
    spin: float = ...,
    until_end: bool = ...,
    codec: Any = ...,
    capacity: int = ...,
    term_length: int = ...,
    max_members: int = ...,
    stream_id: int = ...,
    initial_term_id: int = ...,
    start_position: int = ...,
    conflate: bool = ...,
    start_sequence: int = ...,
    name: str | None = ...,
    max_messages: int = ...,
    max_pipes: int = ...,
    pixels: bool = ...,
    shape: Sequence[int] | int = ...,
    dtype: Any = ...,
    buffers: int = ...,
    attributes: dict[str, Any] | None = ...,
    linger: float | None = ...,
    bind: bool = ...,
    secret_key: Key = ...,
    server_key: Key = ...,
    window: int = ...,
    reliable: bool = ...,
    interface: str | None = ...,
    receive_buffer: int | None = ...,
    group_tag: int | None = ...,
    control: str | None = ...,
    prefault: bool = ...,
) -> Subscription[Any]: ...
@checks_names
def subscribe(
    channel: str,
    *,
    start: Any = OWN,
    last: Any = OWN,
    when_slow: Any = OWN,
    drop_after: Any = OWN,
    spin: Any = OWN,
    until_end: Any = OWN,
    codec: Any = OWN,
    capacity: Any = OWN,
    term_length: Any = OWN,
    max_members: Any = OWN,
    stream_id: Any = OWN,
    initial_term_id: Any = OWN,
    start_position: Any = OWN,
    conflate: Any = OWN,
    start_sequence: Any = OWN,
    name: Any = OWN,
    acknowledge: Any = OWN,
    max_messages: Any = OWN,
    max_pipes: Any = OWN,
    connect_timeout: Any = OWN,
    pixels: Any = OWN,
    shape: Any = OWN,
    dtype: Any = OWN,
    buffers: Any = OWN,
    attributes: Any = OWN,
    topics: Any = OWN,
    linger: Any = OWN,
    bind: Any = OWN,
    secret_key: Any = OWN,
    server_key: Any = OWN,
    window: Any = OWN,
    reliable: Any = OWN,
    interface: Any = OWN,
    receive_buffer: Any = OWN,
    group_tag: Any = OWN,
    control: Any = OWN,
    prefault: Any = OWN,
) -> Any:
    """A subscription to a channel.

    Without a first publication the channel is open, or made so now. Then `codec` is None until the first publication decides it, and
    this subscription gets every message from the first one on. Options and a codec given here hold for that publication, too.

    Over UDP the first subscription on a machine decides `window`, `reliable`, `group_tag` and `receive_buffer`: see `UdpReaderOptions`.

    start: "newest" (messages from now on), "earliest" (what the channel still keeps), or a position, such as `send` returned.
    `Invalid` if the kind does not keep the past. last: instead of start, how many of the newest messages that are kept come first, however
    old they are, before all newer ones; fewer if fewer are kept. `log:`, `ring:`, `sync:`, `frames:` and `udp:` have it. spin: seconds to spin before sleeping; `math.inf` for the
    lowest latency at the price of a core. prefault: as in `publish`.

    until_end: whether the subscription is told of the end of the stream: there has been a publication, all of them have closed or
    died, and everything was read. Then iteration ends, and `recv`, `try_recv` and `poll` raise `EndOfStream`. ZeroMQ cannot tell.

    A log makes its writers wait for this subscription. when_slow: "wait", or "drop" with `drop_after`, the seconds after which they
    drop it instead; `drop_after` alone means "drop". Then the next call raises `TooSlow`, and reading continues at the oldest
    position kept.

    A sync queue has the same two options, and when_slow="fail" makes writers fail. `last` has the sender and the type of the
    message received last.

    A ring never waits. A subscription that is lapped continues at the newest end; `lost` and `lost_messages` count its losses.
    conflate=True reads only the newest message.

    Frames are conflated unless conflate=False or `last` is given; then the subscription gets the frames that were not overwritten yet. With
    when_slow="wait" it gets every frame: publications wait until it has received one before they overwrite it. With "skip" none waits, not
    even one that was opened with when_slow="wait". connect_timeout: seconds to wait for the channel to be made. pixels: positions and lags
    count the pixels too, as recordings of them do.

    Each message of a pipe is taken by one subscription. If it dies, the messages that it had not acknowledged are redelivered to another one. acknowledge="manual":
    only `acknowledge()` acknowledges. name: this peer's name.

    ZeroMQ has `topics` (beginnings of the topics to receive), `conflate`, `max_messages`, `linger`, `bind`, `server_key` and `secret_key`.
    See `ZmqSubscription` and `ZmqOptions`.
    """
    return open_handle("subscribe", channel, given(locals()))
