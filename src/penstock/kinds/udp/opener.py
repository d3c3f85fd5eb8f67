"""`udp:` channels: a log across machines. A publication sends its log; a subscription reads the images of all sessions.

Opens handles and checks options. The network's work is done in the compiled core: docs/design/network_log.md.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import flag, manual_clock, patience, seconds
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.errors import Busy, Invalid, SystemFailure, Unsupported
from penstock.kinds.udp import address as udp_address
from penstock.kinds.udp import ended_logs
from penstock.kinds.udp import endpoint as udp_endpoint
from penstock.kinds.udp import hosts as udp_hosts
from penstock.kinds.udp import images as udp_images
from penstock.kinds.udp import options as udp_options
from penstock.kinds.udp import status as udp_status
from penstock.kinds.udp import tap as udp_tap
from penstock.kinds.udp.handle import UdpPublication, UdpSubscription, publication, subscription
from penstock.kinds.udp.history import recorded
from penstock.kinds.udp.options import (
    LINGER_DEFAULT,
    MTU_DEFAULT,
    WINDOW_DEFAULT,
    FlowControl,
    UdpOptions,
    UdpReaderOptions,
)
from penstock.kinds.udp.status import waits as udp_waits

if TYPE_CHECKING:
    from penstock.kinds.udp.history.subscription import HistorySubscription


def open_publication(
    channel: Channel,
    *,
    codec: Any = None,
    mtu: int = MTU_DEFAULT,
    term_length: int | None = None,
    capacity: int | None = None,
    max_members: int = 16,
    session: int | None = None,
    linger: float = LINGER_DEFAULT,
    interface: str | None = None,
    ttl: int | None = None,
    send_buffer: int | None = None,
    receive_buffer: int | None = None,
    flow_control: FlowControl = "max",
    control: str | None = None,
    destinations: Sequence[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    initial_term_id: int | None = None,
    start_position: int = 0,
    clock: _native.ManualClock | None = None,
    prefault: bool = False,
) -> UdpPublication:
    """A publication: a separate session. It sends to the address even without a receiver."""
    given = _merge_options(channel, "publish", {**locals()}, UdpOptions)
    options = UdpOptions(**given)
    stamps, touched, chosen = manual_clock(clock), flag(prefault, "prefault"), codecs.resolve(codec)
    at, stream = udp_address.split(channel.name)
    log = options.log(stream)
    how, tag = options.flow
    keys = options.keys()
    through = udp_hosts.interface(options.interface, at)
    addresses: dict[str, Any] = {
        "to": udp_hosts.group(udp_hosts.resolved(at), through),
        "interface": through,
        "control": udp_hosts.control(options.control),
        "destinations": udp_hosts.destinations(options.destinations),
        "names": udp_hosts.names(at, options.destinations),
    }
    udp_status.sweep(channel)
    with files.opened_folder(create=True):
        prefix = str(files.folder() / f"{files.file_name(channel)}.")
    try:
        writer = _native.udp_writer(
            **addresses,
            uri=str(channel),
            prefix=prefix,
            stream=stream,
            session=options.session,
            mtu=options.mtu,
            term_length=log.term_bytes,
            capacity=log.room,
            initial_term_id=log.initial_term_id,
            start_position=log.start_position,
            flow_control=how,
            group_tag=tag,
            linger=options.linger,
            slots=options.max_members,
            metadata=codecs.metadata(chosen),
            ttl=udp_hosts.ttl(options.ttl, at),
            send_buffer=options.send_buffer or 0,
            receive_buffer=options.receive_buffer or 0,
            keys=keys,
            clock=stamps,
        )
    except SystemFailure as failure:
        if failure.errno == errno.EEXIST and options.session is not None:
            raise Busy(
                f"{channel}: session {options.session} is another publication's; choose another number, or none"
            ) from None
        if failure.errno == errno.ENETUNREACH and at.multicast and ":" in at.host:
            raise SystemFailure(failure.errno, f"{failure.strerror}; {udp_hosts.no_route(through)}") from None
        raise
    if touched:
        writer.prefault()
    opened: UdpPublication = publication(writer, channel, chosen, open_publication, {**given, "session": None})
    return opened


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    when_slow: str | None = None,
    drop_after: float | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    window: int = WINDOW_DEFAULT,
    reliable: bool = True,
    interface: str | None = None,
    receive_buffer: int | None = None,
    group_tag: int | None = None,
    control: str | None = None,
    key_file: str | os.PathLike[str] | None = None,
    max_members: int = 64,
    archive: str | os.PathLike[str] | None = None,
    prefault: bool = False,
) -> UdpSubscription | HistorySubscription:
    """A subscription: it receives, or reads the images of another process of this machine that receives at the address.

    archive: begins with its messages if start is "earliest", and reads what the network lost from it.
    """
    given = _merge_options(channel, "subscribe", {**locals()}, UdpReaderOptions)
    options = UdpReaderOptions(**given)
    past = (
        None if archive is None else recorded.opened(archive, channel, None if codec is None else codecs.resolve(codec))
    )
    if past is not None and (start not in ("newest", "earliest") or last is not None):
        raise Invalid(f"{channel}: with archive=, start is 'earliest', for all that was recorded, or 'newest'")
    name, position = opening.start_of(start, ("newest", "earliest"), last)
    slow = patience(when_slow, drop_after)
    if slow < 0:
        raise Unsupported(
            f"{channel}: when_slow='fail' is for sync channels; here senders wait, or drop a subscription"
        )
    looking, ends, touched = seconds(spin, "spin"), flag(until_end, "until_end"), flag(prefault, "prefault")
    chosen = None if codec is None else codecs.resolve(codec)
    metadata = b"" if chosen is None else codecs.metadata(chosen, most=_native.DESCRIPTION_MAX)
    place, named = opening.place_of(channel), udp_hosts.control_name(options.control)
    reader = udp_endpoint.join_endpoint(
        channel, options, lambda fd, keys: _native.udp_reader(fd, place, name, position, slow, keys, named, metadata)
    )
    if touched:
        reader.prefault()
    arguments = {
        **given,
        "start": start,
        "when_slow": when_slow,
        "drop_after": drop_after,
        "spin": spin,
        "until_end": ends,
        "codec": codec,
    }
    opened: UdpSubscription = subscription(reader, channel, chosen, open_subscription, arguments, looking, ends)
    if name == "position" and not opened.sessions:
        opened.close()
        raise Invalid(
            f"{channel}: position {position} is not kept: no session was heard here yet; start is 'newest' or 'earliest'"
        )
    if past is None:
        return opened
    from penstock.kinds.udp.history.subscription import HistorySubscription

    return HistorySubscription(opened, past, whole=start == "earliest")


def _merge_options(channel: Channel, verb: str, arguments: dict[str, Any], options: Any) -> dict[str, Any]:
    """The options of a call, and of an Aeron URI, that `options` has."""
    fields = dataclasses.fields(options)
    made = {field.name: arguments[field.name] for field in fields}
    if not channel.uri:
        return made
    explicit = {field.name: made[field.name] for field in fields if made[field.name] != field.default}
    return {**made, **udp_options.merged(explicit, udp_address.options(channel.uri, verb), channel.uri)}


def _no_format(*_: Any) -> None:
    raise AssertionError("an endpoint is made by the first subscription")


@dataclass(frozen=True, repr=False, kw_only=True)
class Udp(ChannelValue[Message]):
    """A `udp:` channel: a log across machines. name: `HOST:PORT/STREAM`, or a group's address.

    Both ends: interface: of multicast, the local interface by name, address or network. control: HOST:PORT, where receivers ask a
    publication for its stream. key_file: encrypts and authenticates all datagrams. Publications alone: mtu: bytes of the longest datagram. term_length, capacity: of a publication's log, as
    of `Log`. flow_control: "max", "min" or {"tag": n}. ttl: of multicast. destinations: HOST:PORT of each receiver, beside the address.
    """

    _prefix: ClassVar[str] = "udp://"

    interface: str | None = None
    control: str | None = None
    key_file: str | os.PathLike[str] | None = None
    mtu: int | None = None
    term_length: int | str | None = None
    capacity: int | str | None = None
    flow_control: udp_options.FlowControl | None = None
    ttl: int | None = None
    destinations: tuple[str, ...] | None = None


KIND = Kind(
    name="udp",
    written=udp_address.WRITTEN,
    prefix="//",
    named=udp_address.parse_name,
    foreign=udp_address.named_by_aeron,
    options=UdpOptions,
    value_options=Udp.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    memory=Layout(
        format=_no_format,
        inspect=_native.inspect_endpoint,
        beside=udp_status.channel_of_file,
        in_use=udp_status.in_use,
        sweep=ended_logs.sweep,
        status=udp_status.status,
        network_waits=udp_waits.waits,
        looks=udp_images.looks,
    ),
    tap=udp_tap.open_tap,
    sent_tap=udp_tap.open_sent_tap,
    left_tap=udp_tap.open_left_tap,
    in_process=False,
)
