"""Publications and subscriptions of `udp:` channels: the ordinary handles with sessions and network counters."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.handles import (
    EncodingPublication,
    Message,
    NativePublication,
    NativeSubscription,
)
from penstock.channels.storage import files, reopening
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.codecs.names import name_in
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.kinds.udp import hosts as udp_hosts
from penstock.kinds.udp import options as udp_options
from penstock.util.at_exit import at_exit

if TYPE_CHECKING:
    from penstock.channels.handles import NativePublication as _Publication
else:  # a mixin beside one compiled base, without its own compiled base
    _Publication = {Message: object}

FINISH_SECONDS = 0.05  # between two checks for signals, in the wait at the end of a process

_logger = logging.getLogger("penstock")
_warned: set[tuple[int, str]] = set()
_open: weakref.WeakSet[NativePublication] = weakref.WeakSet()


@dataclass(frozen=True)
class Session:
    """One publication as a subscription sees it.

    session: its number, as in `sub.last.session`. initial_term_id: with it, what names the publication among all that ever had this number. source: where it sends from. codec: of its messages; None: not announced yet, or the peer is not
    a Penstock peer. joined, position, end: bytes of its stream: where this subscription began, where it is, and what has arrived without
    a gap. lag: bytes in between. state: "open"; once all of it was read "closed", if its sender said that it has ended, or "lost", if the sender fell
    silent before: it is open again when the sender comes back.
    """

    session: int
    initial_term_id: int
    source: str
    codec: str | None
    joined: int
    position: int
    end: int
    lag: int
    term_length: int
    mtu: int
    state: str


def _session(found: dict[str, Any], channel: str) -> Session:
    codec = None
    with contextlib.suppress(Corrupt):  # a foreign session may announce anything
        codec = name_in(found["description"], channel) if found["description"] else None
    return Session(
        session=found["session"],
        initial_term_id=found["initial_term_id"],
        source=found["source"],
        codec=codec,
        joined=found["join"],
        position=found["position"],
        end=found["high"],
        lag=found["lag"],
        term_length=found["term_length"],
        mtu=found["mtu"],
        state=found["state"],
    )


def _open_again(opener: Callable[..., Any], channel: Channel, arguments: dict[str, Any], position: int | None) -> Any:
    """A subscription again: at its position, if this machine still keeps it."""
    if position is not None:
        with contextlib.suppress(Invalid):
            return reopening.reopen(opener, channel, {**arguments, "start": position})
    return reopening.reopen(opener, channel, arguments)


class UdpSubscription(NativeSubscription[Message]):
    """Reads the messages of all publications that send to the address. `last.session` has the session of a message."""

    @property
    def sessions(self) -> list[Session]:
        """The publications that it reads, by their sessions."""
        return [_session(found, self.channel) for found in _native.udp_sessions(self)]

    def _reached(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Of each session that it has read, also of those that have ended, by its number and initial term id: where it was joined last, how
        far it was read, and the bytes that were lost before that."""
        found: dict[tuple[int, int], tuple[int, int, int]] = {}
        for session, initial_term_id, joined, position, lost in _native.udp_reached(self):
            key = session, initial_term_id
            found[key] = joined, position, lost + (found[key][2] if key in found else 0)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """How to open it again: at the same position, while it reads one session. Positions of several are their own."""
        reopening.check_open(self)
        position = self.position if len(_native.udp_sessions(self)) == 1 else None
        return _open_again, (self._origin.opener, self._origin.channel, self._origin.arguments, position)


class UdpPublication(_Publication[Message]):
    """Sends to the address. Each publication is a separate session."""

    __slots__ = ()
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def progress(self) -> tuple[int, bool]:
        """Up to which position receivers have read; and whether another receiver has taken the place of one, as after a restart.

        The other one began where the stream was: it lacks what the first one had not read. Send that again, by a new publication.
        """
        return _native.udp_progress(self)

    def add_destination(self, address: str) -> bool:
        """Sends to HOST:PORT, too, from now on. False: it is a destination already. `Unsupported` unless opened with `destinations=`."""
        return self._change(address, add=True)

    def remove_destination(self, address: str) -> bool:
        """Sends nothing more to HOST:PORT. False: it is not a destination."""
        return self._change(address, add=False)

    def _change(self, address: str, *, add: bool) -> bool:
        try:
            at = udp_options.destination(address, "a destination")
            return _native.udp_destination(self, udp_hosts.resolved(at), udp_hosts.name_of(at), add)
        except (Invalid, NotFound) as error:
            raise type(error)(f"{self.channel}: {getattr(error, 'strerror', None) or error}") from None


class UdpBytesPublication(UdpPublication, NativePublication):
    """The same on a channel of bytes."""


class UdpEncodingPublication(UdpPublication, EncodingPublication):
    """The same on a channel with a codec: takes objects."""


def publication(
    writer: _native.WriterEnd,
    channel: Channel,
    codec: Codec,
    opener: Callable[..., Any],
    arguments: dict[str, Any],
) -> Any:
    """A publication that encodes if it has a codec. It is closed at the end of the process, so that its last messages are sent."""
    origin = ReopenArgs(channel.kind, channel, codec, opener, {**arguments, "codec": codec})
    made: Any = (UdpBytesPublication if codec.kind == "bytes" else UdpEncodingPublication)(writer, origin)
    made._folder = files.folder()
    _warn(made)
    _open.add(made)
    at_exit(_close_all)
    return made


def subscription(
    reader: _native.ReaderEnd,
    channel: Channel,
    codec: Codec | None,
    opener: Callable[..., Any],
    arguments: dict[str, Any],
    spin: float,
    until_end: bool,
) -> Any:
    """A subscription that decodes. codec: None: the first session decides it."""
    origin = ReopenArgs(channel.kind, channel, codec or codecs.BYTES, opener, arguments)
    made: Any = UdpSubscription(reader, origin, codec, spin, until_end)
    made._folder = files.folder()
    _warn(made)
    return made


def _warn(handle: Any) -> None:
    """Warns once in a process if the system granted smaller buffers."""
    warning = _native.udp_told(handle)[0]
    if warning and (os.getpid(), warning) not in _warned:
        _warned.add((os.getpid(), warning))
        _logger.warning("%s: %s", handle.channel, warning)


def finish() -> list[tuple[str, int]]:
    """Waits until the publications that were closed have sent everything, or have given up. Those that gave up since the last call: the
    channel of each, and how many bytes of its stream were not received."""
    while not _native.udp_finish(FINISH_SECONDS):
        pass  # signals are handled here
    return _native.udp_unsent()


def _close_all() -> None:
    """At the end of a process: closes its publications, and waits until they have sent everything. Ctrl-C ends the wait.

    A publication gives up after `linger` seconds without progress, and logs the number of unsent bytes.
    """
    _native.end_handles()
    for handle in list(_open):
        with contextlib.suppress(PenstockError):
            handle.close()
    unsent_of: list[tuple[str, int]] = []
    with contextlib.suppress(KeyboardInterrupt):
        unsent_of = finish()
    for channel, unsent in unsent_of or _native.udp_unsent():
        _logger.warning("%s: a publication has closed, and %d bytes of its stream were not received", channel, unsent)
