"""The kinds `zmq+tcp:` and `zmq+ipc:`. ZeroMQ carries their messages: nothing of them lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.channels.kind import Kind
from penstock.channels.value import ChannelValue, Message
from penstock.errors import Invalid
from penstock.kinds.zmq import opener as zeromq
from penstock.kinds.zmq import sockets as zmq_sockets
from penstock.kinds.zmq.options import ZmqOptions

PORT_MAX = 65535


@dataclass(frozen=True, repr=False, kw_only=True)
class Zmq(ChannelValue[Message]):
    """A `zmq+tcp:` or `zmq+ipc:` channel: ZeroMQ carries it, to any ZeroMQ program. name: `tcp://HOST:PORT` or `ipc://PATH`.

    ZeroMQ tells nobody the codec: both ends name it.
    """

    _prefix: ClassVar[str] = "zmq+"


def _kind(name: str, address: str, *, has_ports: bool = False) -> Kind:
    written = f"{name}://{address}"

    def named(text: str) -> str:
        """An address, as ZeroMQ reads it."""
        if not text:
            raise Invalid(f"it names no address: write {written}")
        port = text.rpartition(":")[2]
        if has_ports and port.isdigit() and int(port) > PORT_MAX:  # ZeroMQ takes another one, silently
            raise Invalid(f"port {port} does not exist: the last one is {PORT_MAX}")
        return text

    return Kind(
        name=name,
        written=written,
        prefix="//",
        named=named,
        options=ZmqOptions,
        publish=zeromq.open_publication,
        subscribe=zeromq.open_subscription,
        join=zmq_sockets.open_socket,
        has_roles=True,
        lossy=True,
        in_process=False,
    )


TCP = _kind("zmq+tcp", "HOST:PORT", has_ports=True)
IPC = _kind("zmq+ipc", "PATH")
