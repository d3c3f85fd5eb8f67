"""Addresses of this machine's interfaces, as the kernel lists them over netlink (rtnetlink(7)). Knows no channel."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, bits of the prefix, flags, scope, interface
ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
GET_ADDRESSES, NEW_ADDRESS, ERROR, DONE = 22, 20, 2, 3
REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
IFA_ADDRESS, IFA_LOCAL = 1, 2  # the second is the interface's own where a link is from point to point
SECONDS = 5.0


def addresses() -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    """Each address of an interface, and the interface's index."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as link:
        link.settimeout(SECONDS)
        link.bind((0, 0))
        asked = ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        link.send(MESSAGE.pack(MESSAGE.size + len(asked), GET_ADDRESSES, REQUEST_DUMP, 1, 0) + asked)
        while True:
            data = link.recv(1 << 16)
            for kind, body in _parts(data, MESSAGE):
                if kind == DONE:
                    return
                if kind == ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, "the kernel does not list its interfaces")
                if kind == NEW_ADDRESS:
                    found = dict(_parts(body[ADDRESS.size :], ATTRIBUTE))
                    packed = found.get(IFA_LOCAL, found.get(IFA_ADDRESS))
                    if packed is not None:
                        yield ipaddress.ip_address(packed), ADDRESS.unpack_from(body)[4]


def _parts(data: bytes, header: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message or attribute: its header begins with its length, and each begins at a multiple of four."""
    while len(data) >= header.size:
        length, kind = header.unpack_from(data)[:2]
        if length < header.size:
            return
        yield kind, data[header.size : length]
        data = data[(length + 3) & ~3 :]
