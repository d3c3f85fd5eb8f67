"""The sockets of a pipe channel by their roles: pair, dealer and router; request and reply are in `requests.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock._native import core as _native
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.patterns import Body, Routed, decoded
from penstock.channels.interfaces.publication import Claim
from penstock.channels.kind import Kind
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.errors import Disconnected, Invalid, Unsupported
from penstock.kinds.pipe import opener as pipe
from penstock.kinds.pipe.options import PipeOptions
from penstock.kinds.pipe.replies import PipeReplier, PipeRequest
from penstock.kinds.pipe.requests import PipePending, PipeRequester
from penstock.kinds.pipe.socket_base import Found, ReceivingSocket, Socket

if TYPE_CHECKING:
    from penstock.channels.interfaces.roles import Dealer as _Dealer
    from penstock.channels.interfaces.roles import Pair as _Pair
    from penstock.channels.interfaces.roles import Router as _Router
else:  # a compiled class can have no abstract base: the roles are registered below
    _Dealer = _Pair = _Router = object


class PipeTalker(ReceivingSocket[Any]):
    """A socket that sends and receives without naming peers. Its stream ends with the last peer that could answer.

    When the last such peer has left, `recv` returns the remaining messages and then raises `EndOfStream`; iteration ends. The
    methods that send raise `Disconnected`. A new peer ends that state: `wait_for_readers` waits for it. A peer that was never there
    is awaited, and a stopped process is there.
    """

    _ends = True

    def send(self, data: Body, timeout: float | None = None) -> int:
        """Sends one message. Waits while there is no room for it. Returns the bytes that this socket has written.

        `TimedOut` if there was no room within `timeout` seconds. `TooLarge` for a message that can never fit. `Disconnected` if every
        peer that could receive it has left or died.
        """
        return self._send(0, 0, data, timeout)

    async def send_async(self, data: Body, timeout: float | None = None) -> int:
        """Sends one message as `send` does, and waits in the running event loop. A cancelled task has sent nothing."""
        return await self._send_async(0, 0, data, timeout)

    def offer(self, data: Body) -> int | None:
        """Sends one message, or returns None if there is no room. Never blocks."""
        return self._offer(0, data)

    def offer_many(self, messages: Sequence[Body]) -> int:
        """Sends messages in order until there is no room. Returns how many were sent. Never blocks."""
        return self._offer_many(0, messages)

    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message of `length` bytes, to be written in place. Waits for room as `send` does."""
        return self._pub.claim(length, timeout)

    async def claim_async(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message as `claim` gives it, awaited in the running event loop."""
        return await self._pub.claim_async(length, timeout)

    def _convert(self, raw: Found) -> Any:
        _, _, kind, data, _ = raw
        return self._unpack(data, kind)


class PipePair(PipeTalker, _Pair):
    """One of two peers that exchange messages. A third is refused (`Busy`).

    A new peer may replace one that left or died. Until then, the stream has ended.
    """


class PipeDealer(PipeTalker, _Dealer):
    """Sends to the routers in turn; receives what any router sends to its name."""


class PipeRouter(ReceivingSocket[Routed], _Router):
    """Receives from every dealer, and sends to the one that it names."""

    _names_senders = True

    def send(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends one message to the dealer of that name. Waits while there is no room for it.

        Returns the bytes that this socket has written. `Disconnected` if there is no such dealer, or if it leaves during the call. `TimedOut`
        if there was no room within `timeout` seconds.
        """
        return self._send(self._find_dealer(to), 0, data, timeout)

    async def send_async(self, data: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends one message as `send` does, and waits in the running event loop. A cancelled task has sent nothing."""
        return await self._send_async(self._find_dealer(to), 0, data, timeout)

    def offer(self, data: Body, *, to: str) -> int | None:
        """Sends one message to the dealer of that name, or returns None if there is no room. Never blocks."""
        return self._offer(self._find_dealer(to), data)

    def offer_many(self, messages: Sequence[Body], *, to: str) -> int:
        """Sends messages to one dealer in order until it has no room. Returns how many were sent. Never blocks."""
        return self._offer_many(self._find_dealer(to), messages)

    def claim(self, length: int, timeout: float | None = None, *, to: str) -> Claim:
        """Raises `Unsupported`: a claim goes to the peer whose turn it is."""
        raise Unsupported(
            f"{self.channel}: a claim goes to the peer whose turn it is, and a router names the peer: use send"
        )

    async def claim_async(self, length: int, timeout: float | None = None, *, to: str) -> Claim:
        """Raises `Unsupported`, as `claim` does. Use `send_async`."""
        return self.claim(length, timeout, to=to)

    def _find_dealer(self, to: str) -> int:
        if not isinstance(to, str):
            raise Invalid(f"{self.channel}: to is {to!r}: it must be the name of a dealer")
        try:
            peer = _native.pipe_named(self._pub, pipe.name_bytes(to))
        except Invalid as error:
            raise Invalid(f"{self.channel}: {error}") from None
        if peer == 0:
            raise Disconnected(
                f"{self.channel}: no dealer called {to!r} is connected; there are {', '.join(self.peers) or 'none'}"
            )
        return peer

    def _convert(self, raw: Found) -> Routed:
        _, _, kind, data, name = raw
        return Routed(decoded(name), self._unpack(data, kind))


roles.Pair.register(PipePair)
roles.Dealer.register(PipeDealer)
roles.Router.register(PipeRouter)

SOCKETS: dict[str, type[Socket]] = {
    "pair": PipePair,
    "request": PipeRequester,
    "reply": PipeReplier,
    "dealer": PipeDealer,
    "router": PipeRouter,
}


def open_socket(
    channel: Channel,
    *,
    role: str | None = None,
    name: str | None = None,
    when_full: str = "wait",
    spin: float = 20e-6,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_messages: int | None = None,
    max_pipes: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> Socket:
    """A socket of that role. Creates the channel if it does not exist, and decides an open one."""
    if role not in SOCKETS:
        raise Invalid(
            f"role is {role!r}: it must be one of {', '.join(SOCKETS)}. To push, use penstock.publish; to pull, penstock.subscribe"
        )
    options = pipe.given_options(prefault, capacity, max_messages, max_pipes, max_members, start_position)
    own = {"name": name, "when_full": when_full, "spin": spin, "codec": codec, "clock": clock}
    return SOCKETS[role](channel, role, {**own, **options})


@dataclass(frozen=True, repr=False, kw_only=True)
class Pipe(ChannelValue[Message]):
    """A `pipe:` channel: each message goes to one reader; or sockets that exchange messages, by their roles.

    capacity: bytes of one pipe, a power of two from 64 KiB to 1 GiB; the longest message is half of it. max_messages: messages that one
    pipe holds. max_pipes: pipes at once, one from each sender to each receiver. max_members: members at once, 2 to 1024.
    """

    _prefix: ClassVar[str] = "pipe:"

    capacity: int | str | None = None
    max_messages: int | None = None
    max_pipes: int | None = None
    max_members: int | None = None


KIND = Kind(
    name="pipe",
    written="pipe:NAME",
    options=PipeOptions,
    value_options=Pipe.option_names(),
    publish=pipe.open_publication,
    subscribe=pipe.open_subscription,
    join=open_socket,
    has_roles=True,
    tap=pipe.open_tap,
    own_positions=True,
    one_reader=True,
    memory=pipe.LAYOUT,
    recorded_as=pipe.recorded_as,
)

__all__ = [
    "PipeDealer",
    "PipePair",
    "PipePending",
    "PipeReplier",
    "PipeRequest",
    "PipeRequester",
    "PipeRouter",
    "Routed",
    "Socket",
    "open_socket",
]
