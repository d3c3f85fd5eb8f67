"""The sockets of a pipe channel by their roles: pair, dealer and router; request and reply are in `requests.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock._native import core as _native
from penstock.channel import Channel
from penstock.errors import Disconnected, Invalid, Unsupported
from penstock.kinds import Kind
from penstock.options import PipeOptions
from penstock.patterns import Body, Routed, decoded
from penstock.publication import Claim
from penstock.shm import pipe
from penstock.shm.requests import Pending, Replier, Request, Requester
from penstock.shm.socket_base import Found, ReceivingSocket, Socket


class Talker(ReceivingSocket[Any]):
    """A socket that sends and receives without naming peers."""

    def send(self, body: Body, timeout: float | None = None) -> int:
        """Sends one message. Waits while there is no room for it. Returns the bytes that this socket has written.

        `TimedOut` if there was no room within `timeout` seconds. `TooLarge` for a message that can never fit.
        """
        return self._send(0, 0, body, timeout)

    async def asend(self, body: Body, timeout: float | None = None) -> int:
        """Sends one message as `send` does, and waits in the running event loop. A cancelled task has sent nothing."""
        return await self._asend(0, 0, body, timeout)

    def offer(self, body: Body) -> int | None:
        """Sends one message, or returns None if there is no room. Never blocks."""
        return self._offer(0, body)

    def offer_many(self, messages: Iterable[Body]) -> int:
        """Sends messages in order until there is no room. Returns how many were sent. Never blocks."""
        return self._offer_many(0, messages)

    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message of `length` bytes, to be written in place. Waits for room as `send` does."""
        return self._pub.claim(length, timeout)

    async def aclaim(self, length: int, timeout: float | None = None) -> Claim:
        """Room for one message as `claim` gives it, awaited in the running event loop."""
        return await self._pub.aclaim(length, timeout)

    def _made(self, raw: Found) -> Any:
        return self._unpack(raw[3], raw[2])


class Pair(Talker):
    """One of two peers that exchange messages. A third is refused (`Busy`). A new peer may replace one that left or died."""


class Dealer(Talker):
    """Sends to the routers in turn; receives what any router sends to its name."""


class Router(ReceivingSocket[Routed]):
    """Receives from every dealer, and sends to the one that it names."""

    _names_senders = True

    def send(self, body: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends one message to the dealer of that name. Waits while there is no room for it.

        Returns the bytes that this socket has written. `Disconnected` if no such dealer is there, or it goes meanwhile. `TimedOut`
        if there was no room within `timeout` seconds.
        """
        return self._send(self._named(to), 0, body, timeout)

    async def asend(self, body: Body, timeout: float | None = None, *, to: str) -> int:
        """Sends one message as `send` does, and waits in the running event loop. A cancelled task has sent nothing."""
        return await self._asend(self._named(to), 0, body, timeout)

    def offer(self, body: Body, *, to: str) -> int | None:
        """Sends one message to the dealer of that name, or returns None if there is no room. Never blocks."""
        return self._offer(self._named(to), body)

    def offer_many(self, messages: Iterable[Body], *, to: str) -> int:
        """Sends messages to one dealer in order until it has no room. Returns how many were sent. Never blocks."""
        return self._offer_many(self._named(to), messages)

    def claim(self, length: int, timeout: float | None = None, *, to: str) -> Claim:
        """Raises `Unsupported`: a claim goes to the peer whose turn it is."""
        raise Unsupported(
            f"{self.channel}: a claim goes to the peer whose turn it is, and a router names the peer: use send"
        )

    async def aclaim(self, length: int, timeout: float | None = None, *, to: str) -> Claim:
        """Raises `Unsupported`, as `claim` does. Use `asend`."""
        return self.claim(length, timeout, to=to)

    def _named(self, to: str) -> int:
        if not isinstance(to, str):
            raise Invalid(f"{self.channel}: to is {to!r}: it must be the name of a dealer")
        peer = _native.pipe_named(self._pub, pipe.peer_name(to))
        if peer == 0:
            raise Disconnected(
                f"{self.channel}: no dealer called {to!r} is connected; there are {', '.join(self.peers) or 'none'}"
            )
        return peer

    def _made(self, raw: Found) -> Routed:
        return Routed(decoded(raw[5]), self._unpack(raw[3], raw[2]))


SOCKETS: dict[str, type[Socket]] = {
    "pair": Pair,
    "request": Requester,
    "reply": Replier,
    "dealer": Dealer,
    "router": Router,
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
    """A socket of that role, on a channel made now if there is none, and decided if it is open."""
    if role not in SOCKETS:
        raise Invalid(
            f"role is {role!r}: it must be one of {', '.join(SOCKETS)}. To push, use penstock.publish; to pull, penstock.subscribe"
        )
    options = pipe.given(prefault, capacity, max_messages, max_pipes, max_members, start_position)
    own = {"name": name, "when_full": when_full, "spin": spin, "codec": codec, "clock": clock}
    return SOCKETS[role](channel, role, {**own, **options})


KIND = Kind(
    name="pipe",
    written="pipe:NAME",
    options=PipeOptions,
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

__all__ = ["Dealer", "Pair", "Pending", "Replier", "Request", "Requester", "Routed", "Router", "Socket", "open_socket"]
