"""Looks up hosts and interfaces for `udp:` channels, and encodes addresses for the compiled core."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from penstock.errors import Invalid, NotFound
from penstock.kinds.udp import options as udp_options
from penstock.kinds.udp.address import Endpoint
from penstock.kinds.udp.hosts import interfaces

Packed = tuple[bytes, int, int]  # 16 bytes of the host, an interface's index, the port
_NONE: Packed = (bytes(16), 0, 0)
LOOPBACK = "lo"
V4 = bytes(10) + b"\xff\xff"  # IPv4 is mapped into IPv6


def packed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """An address as 16 bytes: IPv4 is mapped into IPv6."""
    return address.packed if address.version == 6 else V4 + address.packed


def resolved(at: Endpoint) -> Packed:
    """An endpoint's address. A name is looked up; its first IPv4 address is preferred. `NotFound` for a name that has none."""
    try:
        found = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise NotFound(errno.ENOENT, f"there is no host {at.host!r}: {error.strerror or error}") from error
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    where: tuple[Any, ...] = found[0][4]
    scope = int(where[3]) if found[0][0] == socket.AF_INET6 and not at.multicast else 0
    return packed(ipaddress.ip_address(str(where[0]).partition("%")[0])), scope, at.port


def is_local(address: Packed) -> bool:
    """Whether an address is one of this machine's: a socket can be bound to it."""
    host = ipaddress.IPv6Address(address[0])
    family, text = (socket.AF_INET, str(host.ipv4_mapped)) if host.ipv4_mapped else (socket.AF_INET6, str(host))
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((text, 0) if family == socket.AF_INET else (text, 0, 0, address[1]))
        except OSError:
            return False
    return True


def name_of(at: Endpoint) -> str:
    """A host's name, which is looked up again while nobody answers; empty for an address."""
    return at.host if at.address is None else ""


def control_name(given: str | None) -> str:
    """The name of a control address' host; empty for none, or for an address."""
    return "" if given is None else name_of(udp_options.destination(given, "control"))


def names(at: Endpoint, given: Sequence[str] | None) -> list[str]:
    """The names of a publication's address and of its destinations; empty for those that are addresses."""
    return [name_of(at), *(name_of(udp_options.destination(one, "a destination")) for one in given or ())]


def control(given: str | None) -> Packed | None:
    """The address where receivers request a publication's stream."""
    return None if given is None else resolved(udp_options.destination(given, "control"))


def destinations(given: Sequence[str] | None) -> list[Packed] | None:
    """The receivers that a publication sends to, beside its address. None: they cannot change."""
    return None if given is None else [resolved(udp_options.destination(one, "a destination")) for one in given]


def interface(given: str | None, at: Endpoint) -> Packed:
    """The local interface that a multicast group is joined on, and sent from: loopback by default; none for other addresses.

    Its index decides. An IPv4 address that was given is beside it: datagrams leave with it. `Invalid` for one that is not there, and for
    one beside an address that is no group.
    """
    _check_multicast(at, "interface", given)
    if not at.multicast:
        return _NONE
    chosen = None if given is None else _local(udp_options.interface(given), given)
    assert at.address is not None
    zone = getattr(at.address, "scope_id", None)
    inside = None if zone is None else _index(zone, f"the address {at.host}")
    if chosen is None:
        return (bytes(16), inside, 0) if inside else (bytes(16), _index(LOOPBACK, "interface"), 0)
    host, index = chosen
    if inside not in (None, index):
        raise Invalid(f"interface is {given}, and the address {at.host} names another: leave one of them out")
    return packed(host) if host is not None and host.version == at.address.version == 4 else bytes(16), index, 0


def ttl(given: int | None, at: Endpoint) -> int:
    """How many routers a datagram to a multicast group may pass, and one. `Invalid` beside an address that is no group."""
    _check_multicast(at, "ttl", given)
    return 1 if given is None else given


def _check_multicast(at: Endpoint, name: str, given: Any) -> None:
    if given is not None and not at.multicast:
        raise Invalid(
            f"{name} is {given!r}: it is for a multicast group, and {at.host} is none. The system's routes decide: leave it out"
        )


def _local(wanted: udp_options.Interface, given: str) -> tuple[ipaddress.IPv4Address | None, int]:
    """An interface of this machine by its name, its address or its network: its IPv4 address if one was found, and its index."""
    if isinstance(wanted, str):
        return None, _index(wanted, "interface")
    for found, index in interfaces.addresses():
        if found.version == wanted.version and found in wanted.network:
            return found if isinstance(found, ipaddress.IPv4Address) else None, index
    alone = wanted.network.prefixlen == wanted.max_prefixlen
    raise Invalid(
        f"interface is {given}: this machine has no interface with {'that address' if alone else 'an address in it'}; {_list_interfaces()}"
    )


def _index(name: str, what: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        raise Invalid(f"{what} names {name!r}: this machine has no such interface; {_list_interfaces()}") from None


def _list_interfaces() -> str:
    return f"it has {', '.join(name for _, name in socket.if_nameindex())}"


def interface_name(index: int) -> str | None:
    """An interface's name, for people. None: no interface."""
    try:
        return socket.if_indextoname(index) if index else None
    except OSError:
        return f"number {index}"


def no_route(interface: Packed) -> str:
    """Advice if the kernel has no route to IPv6 groups. By default it has none on loopback."""
    name = interface_name(interface[1])
    remedy = f": run ip -6 route add local ff00::/8 dev {name}, or choose another" if name == LOOPBACK else ""
    return f"interface {name} has no route to IPv6 groups{remedy}"


def check_control(at: Endpoint, to: Packed, control: Packed | None) -> None:
    """`Invalid` for a control address that receivers at `at` cannot reach."""
    if control is None:
        return
    if at.multicast:
        raise Invalid(f"{at} is a multicast group, which needs no control address: leave control out")
    if (to[0][:12] == V4) != (control[0][:12] == V4):
        raise Invalid(f"control is another family's address than {at}: IPv4 and IPv6 do not mix")


def group(at: Packed, interface: Packed) -> Packed:
    """A multicast group with its interface, where the kernel takes the address only with it: a group of one link, or of one machine."""
    host, _, port = at
    narrow = host[0] == 0xFF and host[1] & 0x0F in (1, 2)
    return (host, interface[1], port) if narrow else at
