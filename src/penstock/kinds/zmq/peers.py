"""The sockets of the patterns over ZeroMQ, with any ZeroMQ peer: push and pull, pair, dealer and router.

Parts of messages are ZeroMQ's own frames. Requests and replies are in `requests`; `opener` opens every role.
"""

from __future__ import annotations

import errno
import hashlib
import socket as socket_module
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from penstock.channels.checks import counted, text_bytes
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.patterns import Body, Routed, encoded
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Busy, Invalid, TimedOut, Unsupported
from penstock.kinds.zmq.receiving import Taken, ZmqReceiving
from penstock.kinds.zmq.sending import ZmqClaim, ZmqSending
from penstock.kinds.zmq.socket.options import ZmqOptions

if TYPE_CHECKING:
    from penstock.channels.interfaces.roles import Dealer as _Dealer
    from penstock.channels.interfaces.roles import Pair as _Pair
    from penstock.channels.interfaces.roles import Puller as _Puller
    from penstock.channels.interfaces.roles import Pusher as _Pusher
    from penstock.channels.interfaces.roles import Router as _Router
else:  # a compiled class can have no abstract base: the roles are registered below
    _Dealer = _Pair = _Puller = _Pusher = _Router = object

TYPES = {
    "push": "PUSH",
    "pull": "PULL",
    "pair": "PAIR",
    "request": "DEALER",
    "reply": "ROUTER",
    "dealer": "DEALER",
    "router": "ROUTER",
}


class ZmqSocket(ZmqSending):
    """A peer of a pattern. Thread-safe; a context manager; pickles to another process as a new peer.

    Messages for which the other side has no room wait in a queue here, up to `max_messages`.
    """

    def __init__(
        self,
        channel: Channel,
        role: str,
        name: str | None,
        bind: bool,
        codec: Codec,
        options: ZmqOptions,
        spin: float,
        opener: Callable[..., Any],
    ) -> None:
        self._role, self._name, self._opener = role, name, opener
        self._claims: list[socket_module.socket] = []
        super().__init__(channel, TYPES[role], codec, options, bind=bind, receives=role != "push", spin=spin)
        self._room_mask = 0 if self._kind == "ROUTER" else self._zmq.POLLOUT  # a router has room if any peer has

    def _prepare(self, socket: Any) -> None:
        super()._prepare(socket)
        if self._name is not None:
            for endpoint in self._endpoints:
                self._claim_name(self._name, endpoint)
            socket.setsockopt(self._zmq.IDENTITY, encoded(self._name))
        if self._kind == "ROUTER":
            socket.setsockopt(self._zmq.ROUTER_MANDATORY, 1)

    def _claim_name(self, name: str, endpoint: str) -> None:
        """Takes the name at an endpoint for this machine: `Busy` if a live socket has it.

        A router silently ignores a second peer of the same name. The claim is a socket of the kernel's abstract name
        space, which the kernel releases when its process ends. ZeroMQ does not report the names of peers on other machines.
        """
        claim = socket_module.socket(socket_module.AF_UNIX, socket_module.SOCK_DGRAM)
        key = hashlib.blake2b(f"{endpoint}\0{name}".encode("utf-8", "surrogateescape"), digest_size=24).hexdigest()
        try:
            claim.bind(f"\0penstock-zmq-{key}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                why = f"a live peer has the name {name!r} here, and a name belongs to one: choose another, or give none"
                raise Busy(f"{self.channel}: {why}") from None
            return
        self._claims.append(claim)

    def _start(self, patience: float) -> None:
        try:
            super()._start(patience)
        except BaseException:
            self._give_name_back()
            raise

    def _give_name_back(self) -> None:
        while self._claims:
            self._claims.pop().close()

    def _end(self) -> str | None:
        try:
            return super()._end()
        finally:
            self._give_name_back()

    def _after_fork_in_child(self) -> None:
        super()._after_fork_in_child()
        self._give_name_back()  # this copy would keep the name when the parent has died

    def _inherit(self) -> None:
        if not self._bind and (self._role == "pair" or self._name is not None):
            why = "a pair has one peer" if self._role == "pair" else f"the name {self._name!r} is taken"
            raise Busy(
                self._zmq.EADDRINUSE,
                f"{self.channel}: this handle was made by process {self._owner}, and {why}: a forked child must open its own handle"
                + ("" if self._role == "pair" else ", by another name"),
            )

    def _has_unsent(self) -> bool:
        return self._role not in ("pull", "request")  # a request that was not answered was reported

    @property
    def name(self) -> str | None:
        """This peer's name for routers. None: ZeroMQ gives it one."""
        return self._name

    @property
    def send_position(self) -> int:
        """Bytes that this handle has sent, as `send` returns it."""
        return self._written

    # ---- peers ----

    @property
    def readers(self) -> int:
        """Peers that are connected now, and have shaken hands."""
        with self._lock:
            socket, peers = self._open(), self._read_reports().ready
            socket.getsockopt(self._zmq.EVENTS)  # it knows of the peers that were reported: they can be sent to
            return peers

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until at least `count` peers are connected. `TimedOut` after `timeout` seconds."""
        least = counted(count, "wait_for_readers", "count", self)
        self._check_count(count, self._until(lambda: True if self.readers >= least else None, 0, timeout))

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """`wait_for_readers` in the running event loop."""
        least = counted(count, "wait_for_readers_async", "count", self)
        self._check_count(count, await self._until_async(lambda: True if self.readers >= least else None, 0, timeout))

    def _check_count(self, count: int, found: bool | None) -> None:
        if found is None:
            raise TimedOut(
                f"{self.channel}: fewer than {count} peers connected within the timeout{self._explain_wait()}"
            )

    def _refuse_aclaim(self) -> NoReturn:
        raise Unsupported(
            f"{self.channel}: ZeroMQ reports only during a send whether there is room, so the end of the block would block "
            f"the event loop: use send_async; log: and pipe: channels have claim_async"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {
            "role": self._role,
            "name": self._name,
            "bind": self._bind,
            "codec": self._codec,
            "spin": self._spin,
        }
        return self._reopening(self._opener, arguments)


class ZmqSender(ZmqSocket):
    """Sends without naming peers."""

    def send(self, data: Body, timeout: float | None = None) -> int:
        """Sends a message to one peer. Waits while no peer has room: `TimedOut` after `timeout` seconds.

        Returns the bytes that this handle has sent so far. Without a codec, data is bytes, any buffer or text; a list is a message of
        several parts.
        """
        return self._send_blocking(self._body(data), timeout)

    async def send_async(self, data: Body, timeout: float | None = None) -> int:
        """`send` in the running event loop. Cancelled, it has sent the whole message or nothing."""
        return await self._send_blocking_async(self._body(data), timeout)

    def offer(self, data: Body) -> int | None:
        """Sends as `send` does, or returns None if no peer has room. Never blocks."""
        return self._try(self._body(data))

    def offer_many(self, messages: Sequence[Body]) -> int:
        """Sends messages in order until there is no room. Returns how many were sent. Never blocks."""
        return self._try_all(messages, self._body)

    def claim(self, length: int, timeout: float | None = None) -> ZmqClaim:
        """Memory for one message of `length` bytes. The end of the block sends a copy of it, and waits as `send` does."""
        return self._create_claim(length, [], timeout)

    async def claim_async(self, length: int, timeout: float | None = None) -> ZmqClaim:
        """Raises `Unsupported`: the end of the block would block the event loop. Use `send_async`."""
        return self._refuse_aclaim()


class ZmqPusher(ZmqSender, _Pusher):
    """Gives each message to one puller."""

    @property
    def position(self) -> int:
        """Bytes that this handle has sent."""
        return self._written


class ZmqPuller(ZmqSocket, ZmqReceiving, _Puller):
    """Takes messages that no other puller gets."""


class ZmqDuplex(ZmqSender, ZmqReceiving):
    """Sends and receives without naming peers."""


class ZmqPair(ZmqDuplex, _Pair):
    """One of two peers that exchange messages."""


class ZmqDealer(ZmqDuplex, _Dealer):
    """Sends to the routers in turn, and receives what any router sends to its name."""


class ZmqRouter(ZmqSocket, ZmqReceiving, _Router):
    """Receives from every dealer, and sends to the one that it names."""

    _front: Literal["", "topic", "sender"] = "sender"
    _column: Literal["", "topic", "sender"] = "sender"

    def send(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends a message to the dealer called `to`. Returns the bytes that this handle has sent so far, names included.

        `Disconnected` if no dealer of that name is connected. `TimedOut` if it had no room for `timeout` seconds.
        """
        return self._send_blocking([self._encode_dealer(to), *self._body(data)], timeout)

    async def send_async(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """`send` in the running event loop. Cancelled, it has sent the whole message or nothing."""
        return await self._send_blocking_async([self._encode_dealer(to), *self._body(data)], timeout)

    def offer(self, data: Body, *, to: str) -> int | None:
        """Sends as `send` does, or returns None if that dealer has no room. Never blocks."""
        return self._try([self._encode_dealer(to), *self._body(data)])

    def offer_many(self, messages: Sequence[Body], *, to: str) -> int:
        """Sends messages to one dealer in order until it has no room. Returns how many were sent. Never blocks."""
        name = self._encode_dealer(to)
        return self._try_all(messages, lambda message: [name, *self._body(message)])

    def claim(self, length: int, timeout: float | None = None, *, to: str) -> ZmqClaim:
        """Memory for one message of `length` bytes to one dealer. The end of the block sends a copy of it, and waits as `send` does."""
        return self._create_claim(length, [self._encode_dealer(to)], timeout)

    async def claim_async(self, length: int, timeout: float | None = None, *, to: str) -> ZmqClaim:
        """Raises `Unsupported`: the end of the block would block the event loop. Use `send_async`."""
        return self._refuse_aclaim()

    def _encode_dealer(self, to: str) -> Any:
        if not isinstance(to, str | bytes):
            raise Invalid(f"{self.channel}: to is {to!r}: it must be the name of a dealer")
        try:
            return text_bytes(to, "to")
        except Invalid as error:
            raise Invalid(f"{self.channel}: {error}") from None

    def _convert(self, taken: Taken) -> Routed:
        parts, received = taken
        return Routed(received[3], self._decode_message(parts[1:], received[0]))


roles.Pusher.register(ZmqPusher)
roles.Puller.register(ZmqPuller)
roles.Pair.register(ZmqPair)
roles.Dealer.register(ZmqDealer)
roles.Router.register(ZmqRouter)
