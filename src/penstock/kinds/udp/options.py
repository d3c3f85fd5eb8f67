"""Options of handles on `udp:` channels, and their checks. Knows numbers, units and addresses; opens nothing."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.channels.checks import flag, seconds, whole
from penstock.errors import Invalid
from penstock.kinds.log import LogOptions
from penstock.kinds.udp import keys
from penstock.kinds.udp.address import Endpoint, endpoint

FlowControl = Literal["max", "min"] | Mapping[str, int]

MTU_DEFAULT, MTU_MIN, MTU_MAX = 1408, 96, 65504
WINDOW_DEFAULT, WINDOW_MIN, WINDOW_MAX = 128 * 1024, 4096, 1 << 29
BUFFER_MIN, BUFFER_MAX = 2048, 1 << 30
LINGER_DEFAULT = 5.0
LINGER_MAX = 3600.0
TTL_MAX = 255
FRAME_ALIGNMENT = 32
DESTINATIONS_MAX = 64
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface | str
_INTERFACE_NAME = re.compile(r"[A-Za-z][^\s/:]{0,14}")  # Linux has at most 15 bytes


@dataclass(frozen=True, kw_only=True)
class Network:
    """Options that publications and subscriptions share.

    interface: of multicast: the local interface, by its name, its address or its network: `"10.0.0.0/24"`. None: loopback. receive_buffer: bytes
    of the socket's buffer. None: as the window needs. control: HOST:PORT, where receivers request a publication's stream.
    key_file: encrypts and authenticates all datagrams. None: the file that PENSTOCK_KEY_FILE names, if it names one.
    """

    interface: str | None = None
    receive_buffer: int | None = None
    control: str | None = None
    key_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.interface is not None:
            interface(self.interface)
        if self.receive_buffer is not None:
            whole(self.receive_buffer, "receive_buffer", BUFFER_MIN, BUFFER_MAX)
        if self.control is not None:
            destination(self.control, "control")
        if self.key_file is not None and not isinstance(self.key_file, str | os.PathLike):
            raise Invalid(f"key_file is {self.key_file!r}: it must be the path of a file")

    def keys(self) -> list[bytes]:
        """The keys; none: datagrams are clear."""
        return keys.read(self.key_file)


@dataclass(frozen=True, kw_only=True)
class UdpOptions(Network):
    """How a publication sends. Each publication is a separate session with its own log.

    mtu: bytes of the longest datagram, a multiple of 32 from 96 to 65504. term_length, capacity, start_position: as of a log.
    initial_term_id: lets receivers distinguish successive publications that use one session; random by default. max_members: how many readers on this machine may read the publication's own log. session: its number, for peers that
    ask for one; chosen at random unless given. linger: seconds for which a closed publication continues while nothing moves.
    ttl: of multicast; None: 1. send_buffer: bytes of the socket's buffer. flow_control: "max" follows the fastest receiver, "min" the slowest, `{"tag": n}` the slowest of a group.
    control: it sends to all receivers that request it there, instead of to the address. destinations: HOST:PORT of each further receiver.
    """

    mtu: int = MTU_DEFAULT
    term_length: int | None = None
    capacity: int | None = None
    max_members: int = 16
    session: int | None = None
    linger: float = LINGER_DEFAULT
    ttl: int | None = None
    send_buffer: int | None = None
    flow_control: FlowControl = "max"
    initial_term_id: int | None = None
    start_position: int = 0
    destinations: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.mtu, "mtu", MTU_MIN, MTU_MAX)
        if self.mtu % FRAME_ALIGNMENT != 0:
            raise Invalid(f"mtu is {self.mtu}: it must be a multiple of {FRAME_ALIGNMENT}")
        log = self.log(0)
        if self.mtu > log.term_bytes // 4:
            raise Invalid(
                f"mtu is {self.mtu}: it must be at most a quarter of a term, here {log.term_bytes // 4}: give a larger term_length"
            )
        if self.session is not None:
            whole(self.session, "session", -(1 << 31), (1 << 31) - 1)
        if seconds(self.linger, "linger") > LINGER_MAX or self.linger is None:
            raise Invalid(f"linger is {self.linger!r}: it must be seconds from 0 to {LINGER_MAX:.0f}")
        if self.ttl is not None:
            whole(self.ttl, "ttl", 0, TTL_MAX)
        if self.send_buffer is not None:
            whole(self.send_buffer, "send_buffer", BUFFER_MIN, BUFFER_MAX)
        _ = self.flow
        named = () if self.destinations is None else self.destinations
        if isinstance(named, str) or not isinstance(named, Sequence) or len(named) >= DESTINATIONS_MAX:
            raise Invalid(
                f"destinations is {self.destinations!r}: it must be a list of fewer than {DESTINATIONS_MAX} texts HOST:PORT"
            )
        for one in named:
            destination(one, "a destination")
        if self.control is not None and self.destinations is not None:
            raise Invalid("control= and destinations= exclude each other: receivers ask, or you name them")

    def log(self, stream: int) -> LogOptions:
        """The log that the publication writes, as an ordinary log has it."""
        term_id = int.from_bytes(os.urandom(4), "little", signed=True)
        return LogOptions(
            capacity=self.capacity,
            term_length=self.term_length,
            max_members=self.max_members,
            stream_id=stream,
            initial_term_id=term_id if self.initial_term_id is None else self.initial_term_id,
            start_position=self.start_position,
        )

    @property
    def flow(self) -> tuple[str, int]:
        """Flow control's name, `max`, `min` or `tagged`, and the group's tag."""
        given = self.flow_control
        if given in ("max", "min"):
            return str(given), 0
        if isinstance(given, Mapping) and list(given) == ["tag"]:
            return "tagged", whole(given["tag"], "flow_control's tag", -(1 << 63))
        raise Invalid(f"flow_control is {given!r}: it must be 'max', 'min' or {{'tag': NUMBER}}")


@dataclass(frozen=True, kw_only=True)
class UdpReaderOptions(Network):
    """How a subscription receives. The first subscription of an endpoint on a machine opens the socket, and its options count.

    window: bytes that a sender may be ahead, at most the socket's buffer and half a term. reliable: False counts lost bytes
    instead of requesting them again. group_tag: of publications whose flow control has that tag.
    max_members: how many subscriptions on this machine may read the same sessions.
    """

    window: int = WINDOW_DEFAULT
    reliable: bool = True
    group_tag: int | None = None
    max_members: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.window, "window", WINDOW_MIN, WINDOW_MAX)
        flag(self.reliable, "reliable")
        if self.group_tag is not None:
            whole(self.group_tag, "group_tag", -(1 << 63))
        whole(self.max_members, "max_members", 1, 512)


def destination(value: Any, what: str) -> Endpoint:
    """A receiver's address, or a control address. `Invalid` for anything else, and for a multicast group."""
    if not isinstance(value, str):
        raise Invalid(f"{what} is {value!r}: it must be a text HOST:PORT")
    found = endpoint(value, what)
    if found.multicast:
        raise Invalid(f"{what} {value} is a multicast group: publish to the group")
    return found


def interface(value: Any) -> Interface:
    """An interface's name, or an address with or without a prefix length. `Invalid` for anything else."""
    if isinstance(value, str):
        try:
            return ipaddress.ip_interface(value)
        except ValueError:
            if _INTERFACE_NAME.fullmatch(value):
                return value
    raise Invalid(
        f"interface is {value!r}: it must be an interface's name, such as 'eth0', or an address, such as '10.0.0.7' or '10.0.0.0/24'"
    )


def merged(given: dict[str, Any], written: dict[str, Any], uri: str) -> dict[str, Any]:
    """The options of a call together with those in an Aeron URI. `Invalid` if they disagree."""
    for name, value in written.items():
        if name in given and given[name] != value:
            raise Invalid(f"{uri} says {name}={value!r}, and the call {name}={given[name]!r}: leave one of them out")
    return {**written, **given}
