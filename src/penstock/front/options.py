"""The options of the verbs where a channel is given by its URI: those of every kind. The kind says at run time which of them it has.

Read by type checkers and editors alone. A test compares them with what the kinds' openers take.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from penstock.kinds.udp.options import FlowControl

WhenFull = Literal["wait", "drop_newest", "drop_oldest"]
WhenSlow = Literal["skip", "wait", "drop", "fail"]
Start = Literal["newest", "earliest"] | int
LogStart = Literal["newest", "earliest", "last"] | int
Key = str | bytes | None
Topics = str | bytes | Sequence[str | bytes] | None


class ChannelOptions(TypedDict, total=False):
    """What shapes a channel in shared memory."""

    capacity: int | str | None
    max_members: int
    max_messages: int
    max_pipes: int


class ZmqSocketOptions(TypedDict, total=False):
    """What a socket of ZeroMQ has."""

    linger: float | None
    bind: bool | None
    secret_key: Key
    server_key: Key
    client_keys: Sequence[str | bytes] | None
    endpoints: Sequence[str]
    options: Mapping[str, int | str | bytes] | None


class PublishOptions(ChannelOptions, ZmqSocketOptions, total=False):
    """The options of `publish`, but for the codec."""

    exclusive: bool
    term_length: int | str | None
    retain: float | str | datetime.timedelta | None
    rate: int | str | None
    memory_max: int | str | None
    last: str | None
    last_keys: int | None
    last_max: int | str | None
    stream_id: int
    name: str | bytes | None
    when_full: WhenFull
    when_slow: WhenSlow
    dtype: Any
    varies: bool
    header: Any
    buffers: int
    attributes: dict[str, Any] | None
    mtu: int
    session: int | None
    interface: str | None
    ttl: int
    send_buffer: int | None
    receive_buffer: int | None
    flow_control: FlowControl
    control: str | None
    key_file: str | os.PathLike[str] | None
    last_value: bool
    destinations: Sequence[str] | None


class SubscribeOptions(ChannelOptions, ZmqSocketOptions, total=False):
    """The options of `subscribe`, but for the codec."""

    start: LogStart
    last: int | str | None
    last_keys: int | None
    last_max: int | str | None
    when_slow: WhenSlow
    drop_after: float | None
    spin: float
    until_end: bool
    conflate: bool | None
    name: str | None
    term_length: int | str | None
    retain: float | str | datetime.timedelta | None
    rate: int | str | None
    memory_max: int | str | None
    stream_id: int
    shape: Sequence[int] | int
    dtype: Any
    varies: bool
    header: Any
    buffers: int
    attributes: dict[str, Any] | None
    connect_timeout: float | None
    pixels: bool
    topics: Topics
    window: int
    reliable: bool
    archive: str | os.PathLike[str] | None
    interface: str | None
    receive_buffer: int | None
    group_tag: int | None
    control: str | None
    key_file: str | os.PathLike[str] | None


class SocketOptions(ChannelOptions, ZmqSocketOptions, total=False):
    """The options of `join` with a role."""

    codec: Any
    name: str | None
    when_full: WhenFull
    spin: float


class MemberOptions(TypedDict, total=False):
    """The options of `join` on a sync queue."""

    codec: Any
    name: str | bytes | None
    own: bool
    start: Start
    last: int | None
    when_slow: WhenSlow
    drop_after: float | None
    spill_limit: int
    spin: float
    capacity: int | str | None
    max_members: int
