"""A member of a sync queue whose bodies have a codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import counted
from penstock.channels.interfaces import roles
from penstock.codecs import buffers
from penstock.errors import DecodeError, Invalid, without_frames
from penstock.kinds.sync.member import SyncMember
from penstock.kinds.sync.message import SyncMessage

if TYPE_CHECKING:
    pass
if TYPE_CHECKING:

    class _Base(_native.SyncMember, roles.Member): ...
else:  # a compiled class can have no abstract base: the roles are registered below
    _Base = _native.SyncMember


class CodecSyncMember(SyncMember):
    """A member of a queue with a codec: writes and returns objects.

    A message that does not decode raises `DecodeError`, which has its position. The next call continues behind it: no other message is lost.
    """

    def _encode(self, body: Any) -> Any:
        try:
            return self._origin.codec.encode(body)
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__

    def _decode(self, message: SyncMessage) -> SyncMessage:
        sender, kind, body, position, time_ns = message
        try:
            return SyncMessage(sender, kind, self.codec.parse(body), position, time_ns)
        except Exception as error:
            raise codecs.undecodable(self.codec, self.channel, position, body, error) from error

    def send(self, data: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        """Encodes and writes one object; see `SyncMember.send`."""
        try:
            body = self._origin.codec.encode(data)
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__
        return super().send(body, timeout, type=type)

    def offer(self, data: Any, *, type: str | bytes = "") -> int | None:
        """Encodes and offers one object; see `SyncMember.offer`."""
        try:
            body = self._origin.codec.encode(data)
        except Invalid as error:
            raise buffers.unsendable(self.channel, error) from error.__cause__
        return super().offer(body, type=type)

    def offer_many(self, messages: Any, *, type: str | bytes = "") -> int:
        """Encodes and offers objects; see `SyncMember.offer_many`."""
        return super().offer_many(codecs.encoded_all(self._origin.codec, self.channel, messages), type=type)

    def claim(self, length: int, timeout: float | None = None, *, type: str | bytes = "") -> _native.Claim:
        """Room to write the bytes of one body in place: on queues of arrays of a fixed shape and of single records."""
        codecs.check_claim(self.codec, self.channel, length)
        return super().claim(length, timeout, type=type)

    def recv(self, timeout: float | None = None) -> SyncMessage:
        """The next message, its body decoded; see `SyncMember.recv`."""
        return self._decode(super().recv(timeout))

    def try_recv(self) -> SyncMessage | None:
        """The next message, its body decoded, or None; see `SyncMember.try_recv`."""
        message = super().try_recv()
        return None if message is None else self._decode(message)

    def poll(self, limit: int = 1000) -> list[SyncMessage]:
        """The messages that are there now, decoded; see `SyncMember.poll`.

        Ends before a message that does not decode: the next call raises its `DecodeError`, and the one after that continues.
        """
        limit = counted(limit, "poll", "limit", self)
        found: list[SyncMessage] = []
        take = _native.sync_next_of_batch
        while len(found) < limit and (message := take(self, not found)) is not None:
            try:
                found.append(self._decode(message))
            except DecodeError as error:
                if not found:
                    raise
                _native.keep_back(self._sub, without_frames(error))
                break
        return found

    def __next__(self) -> SyncMessage:
        return self._decode(super().__next__())
