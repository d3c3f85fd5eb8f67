"""Looks up hosts and interfaces for `udp:` channels, and gives addresses as the compiled core takes them."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from penstock.errors import Invalid, NotFound
from penstock.net import udp_options
from penstock.net.udp_address import Endpoint

Packed = tuple[bytes, int, int]  # 16 bytes of the host, an interface's index, the port
_NONE: Packed = (bytes(16), 0, 0)


def packed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """An address as 16 bytes: IPv4 is mapped into IPv6."""
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def resolved(at: Endpoint) -> Packed:
    """An endpoint's address. A name is looked up; its first IPv4 address is preferred. `NotFound` for a name that has none."""
    try:
        found = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise NotFound(errno.ENOENT, f"there is no host {at.host!r}: {error.strerror or error}") from error
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    where: tuple[Any, ...] = found[0][4]
    scope = int(where[3]) if found[0][0] == socket.AF_INET6 else 0
    return packed(ipaddress.ip_address(str(where[0]).partition("%")[0])), scope, at.port


def control(given: str | None) -> Packed | None:
    """The address where receivers ask a publication for its stream."""
    return None if given is None else resolved(udp_options.destination(given, "control"))


def destinations(given: Sequence[str] | None) -> list[Packed] | None:
    """The receivers that a publication sends to, beside its address. None: they cannot change."""
    return None if given is None else [resolved(udp_options.destination(one, "a destination")) for one in given]


def interface(given: str | None, at: Endpoint) -> Packed:
    """The local interface that a multicast group is joined on, and sent from: loopback unless given."""
    if given is not None:
        wanted = udp_options.interface(given)
        return packed(_local(wanted)), 0, 0
    if not at.multicast:
        return _NONE
    if at.address is not None and at.address.version == 6:
        return bytes(16), socket.if_nametoindex("lo"), 0
    return packed(ipaddress.IPv4Address("127.0.0.1")), 0, 0


def _local(
    wanted: ipaddress.IPv4Interface | ipaddress.IPv6Interface,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """This machine's address in a network. `Invalid` if it has none there."""
    if wanted.network.prefixlen == wanted.max_prefixlen:
        return wanted.ip
    import psutil

    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            found = ipaddress.ip_address(entry.address.partition("%")[0])
            if found.version == wanted.version and found in wanted.network:
                return found
    raise Invalid(f"interface is {wanted}: this machine has no address in {wanted.network}")
