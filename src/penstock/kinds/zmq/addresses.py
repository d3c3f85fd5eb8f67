"""Addresses of ZeroMQ: their syntax. Resolves no name and opens nothing."""

from __future__ import annotations

import ipaddress
from typing import Any

from penstock.channels.checks import text_bytes
from penstock.errors import Invalid

PREFIX = "zmq+"
PORT_MAX = 65535
WRITTEN = {"tcp": "HOST:PORT", "ipc": "PATH"}


def check_address(transport: str, text: str) -> str:
    """An address as ZeroMQ reads it, from what follows `tcp://` or `ipc://`. `Invalid` for any other text."""
    written = f"{PREFIX}{transport}://{WRITTEN[transport]}"
    if not text:
        raise Invalid(f"it names no address: write {written}")
    text_bytes(text, "the address")
    if transport == "tcp":
        for part in text.split(";"):  # SOURCE;HOST:PORT
            _check_host_and_port(part, written)
    return text


def _check_host_and_port(text: str, written: str) -> None:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        raise Invalid(f"{text!r} has no port: write {written}")
    if not host:
        raise Invalid(f"{text!r} has no host: write {written}")
    if port.isdigit() and int(port) > PORT_MAX:  # ZeroMQ takes another one, silently
        raise Invalid(f"port {port} does not exist: the last one is {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise Invalid(f"{host} is not an IPv6 address") from None
    elif "[" in host or "]" in host:
        raise Invalid(f"{text!r} has no pair of brackets around an IPv6 address: write {PREFIX}tcp://[ADDRESS]:PORT")
    elif ":" in host:
        raise Invalid(f"write an IPv6 address in brackets: [{host}]:{port}")


def endpoint_of(text: Any) -> str:
    """ZeroMQ's endpoint, such as `tcp://HOST:PORT`, from that or from a channel's URI. `Invalid` for anything else."""
    transport, separator, address = text.removeprefix(PREFIX).partition("://") if isinstance(text, str) else ("",) * 3
    if not separator or transport not in WRITTEN:
        raise Invalid(f"endpoints has {text!r}: an endpoint is tcp://HOST:PORT or ipc://PATH")
    try:
        return f"{transport}://{check_address(transport, address)}"
    except Invalid as error:
        raise Invalid(f"endpoints has {text!r}: {error}") from None


def needs_ipv6(endpoint: str, *, bind: bool) -> bool:
    """Whether an endpoint is one of IPv6: an address in brackets. An end that binds to `*` takes IPv6 and IPv4.

    Names stay with IPv4. With IPv6, libzmq takes a name's first IPv6 address and never tries another: a server at 127.0.0.1
    would not be found by `localhost`.
    """
    host = endpoint.removeprefix("tcp://").rpartition(";")[2].rpartition(":")[0]
    return endpoint.startswith("tcp://") and (host.startswith("[") or (bind and host == "*"))
