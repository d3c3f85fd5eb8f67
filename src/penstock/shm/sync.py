"""`sync:` channels: everyone who joins reads and writes; a message stays until all who were there have read it.

A term log whose messages carry a sender and a type. A member screens out what it does not want, its own messages by default,
and never waits for itself: what it has not read moves into its own memory before it waits for room.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Closed, Invalid, NotFound, TimedOut
from penstock.iteration import until_closed, until_closed_async
from penstock.options import SyncOptions, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription
from penstock.status import ChannelStatus, Member

if TYPE_CHECKING:
    import pyarrow as pa

LIFE_BYTE = 8  # of the file: held shared by who joins, exclusively by who removes it
NAP, NAP_MAX = 0.001, 0.02
SLICE = 0.05
NAME_MAX = 64
SPILL_LIMIT = 64 << 20


def _format(options: SyncOptions, codec: Codec, fd: int) -> None:
    log = options.log
    _native.format_log(
        fd=fd,
        term_length=log.term_length,
        window=log.effective_window,
        slots=log.slots,
        stream_id=log.stream_id,
        initial_term_id=log.initial_term_id,
        start_position=log.start_position,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codecs.from_spec({"kind": "sync"})),
        boot_id=files.boot_id(),
        sync=True,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    about = _native.inspect_log(fd, path, sync=True)
    about["size"], about["slots"] = about["window"], about["slots"] // 2
    return about


KIND = opening.Kind(SyncOptions, _format, _inspect)


class SyncMessage(NamedTuple):
    """A message received. position: where it stands in the one order that everybody sees; time_ns since the epoch."""

    sender: str
    type: str
    body: bytes
    position: int
    time_ns: int

    @property
    def text(self) -> str:
        """The body as text. Bytes that are no UTF-8 become escapes; nothing is lost."""
        return self.body.decode("utf-8", "surrogateescape")


class BorrowedMessage(NamedTuple):
    """A message read in place: as `SyncMessage`, but its body is where it was written."""

    sender: str
    type: str
    body: memoryview
    position: int
    time_ns: int


@dataclass(frozen=True)
class Change:
    """Somebody came or went."""

    joined: bool
    sender: str
    pid: int


def _text(name: bytes) -> str:
    """A name as Python's text."""
    return name.decode("utf-8", "surrogateescape")


def _bytes(text: str | bytes, what: str) -> bytes:
    """A name or a body as it travels."""
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    raise Invalid(f"{what} is text or bytes, not {type(text).__name__}")


class SyncQueue(_native.SyncMember):
    """One member of a sync queue: reads what the others write, and writes. Thread-safe; a context manager.

    Made by `penstock.join`. Does not pickle: each process joins by itself, by name.
    """

    def __init__(
        self, channel: Channel, name: bytes, pub: Publication, sub: Subscription, *, own: bool, spill_limit: int
    ) -> None:
        super().__init__(pub, sub, SyncMessage, str(channel), name, own, spill_limit)
        self._channel, self._name, self._pub, self._sub = channel, name, pub, sub
        self._senders: frozenset[bytes] = frozenset()
        self._types: frozenset[bytes] = frozenset()
        self._pid = os.getpid()
        self._known = {(m.slot, m.joined_ns): (m.name or "", m.pid) for m in self.members()}

    if TYPE_CHECKING:

        def pop(self, timeout: float | None = None) -> SyncMessage: ...
        def try_pop(self) -> SyncMessage | None: ...
        def pop_many(self, limit: int = 1000) -> list[SyncMessage]: ...

    # ---- who and where ----

    @property
    def channel(self) -> str:
        """The queue's URI."""
        return str(self._channel)

    @property
    def sender(self) -> str:
        """The name in every message that this member writes."""
        return _text(self._name)

    @property
    def position(self) -> int:
        """Where reading goes on in the one order of all messages."""
        kept = _native.sync_first_spilled(self)
        return self._sub.position if kept is None else kept

    @property
    def lag(self) -> int:
        """Bytes of the queue that this member has not read, those it keeps in its own memory not included."""
        return self._sub.lag

    @property
    def lost(self) -> int:
        """Bytes that this member missed because it was dropped (`drop_after`)."""
        return self._sub.lost

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pub.closed

    def statistics(self) -> ChannelStatus:
        """The queue's counters at this moment, and each member's; who lags, and by how much."""
        return opening.inspect(KIND, self._channel)

    # ---- screening ----

    def screen(
        self, *, senders: Iterable[str | bytes] | None = None, types: Iterable[str | bytes] | None = None
    ) -> None:
        """From now on passes over messages of these senders and types; None leaves that set as it is."""
        if senders is not None:
            self._senders = frozenset(_bytes(name, "a sender") for name in senders)
        if types is not None:
            self._types = frozenset(_bytes(name, "a type") for name in types)
        _native.sync_screen(self, sorted(self._senders), sorted(self._types))

    @property
    def screened_senders(self) -> frozenset[str]:
        """Whose messages are passed over, beside its own."""
        return frozenset(_text(name) for name in self._senders)

    @property
    def screened_types(self) -> frozenset[str]:
        """Messages of which types are passed over."""
        return frozenset(_text(name) for name in self._types)

    # ---- writing ----

    def append_many(self, bodies: Iterable[Any], type: str | bytes = "", *, timeout: float | None = None) -> int:
        """Writes messages of one type in order, many at once; how many. TimeoutError if not all of them found room in time."""
        whole = bodies if isinstance(bodies, (list, tuple, str, bytes)) else tuple(bodies)
        done = _native.sync_append_many(self, whole, type, timeout)
        if done < len(whole):
            raise TimedOut(f"{self.channel}: {done} of {len(whole)} messages found room: {self._slowest()}")
        return done

    async def aappend(self, body: Any = b"", type: str | bytes = "") -> int:
        """Writes a message; waits for room in the running event loop. Cancelling it writes nothing."""
        nap = NAP
        while (position := self.offer(body, type)) is None:
            await asyncio.sleep(nap)
            nap = min(nap * 2, NAP_MAX)
        return position

    def _no_room(self) -> str:
        """What append says when the timeout has passed."""
        return f"{self.channel}: no room within the timeout: {self._slowest()}"

    def _slowest(self) -> str:
        status = self.statistics()
        behind = [m for m in status.members if m.position is not None and m.position < status.tail]
        if not behind:
            return "nobody is behind"
        worst = min(behind, key=lambda member: member.position or 0)
        return f"member {worst.name!r} (process {worst.pid}) is {status.tail - (worst.position or 0)} bytes behind"

    # ---- reading ----

    @contextlib.contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[BorrowedMessage]:
        """The next message with its body in place, as a read-only memoryview: large bodies are not copied.

        `with queue.borrow() as message:`. The room stays taken while the view lives; it ends with the block. TimeoutError
        after `timeout` seconds.
        """
        if _native.sync_first_spilled(self) is not None:
            message = self.pop(0)
            yield BorrowedMessage(*message._replace(body=memoryview(message.body)))  # type: ignore[arg-type]
            return
        with self._sub.borrow(timeout) as whole:
            sender, kind, begin = codecs.sync_parts(whole)
            position, time_ns, _ = self._sub.last
            with whole[begin:] as body:
                yield BorrowedMessage(sender, kind, body, position, time_ns)

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """What is there now as one Arrow batch: position, sender, type, payload, time. Never blocks.

        At most `limit` rows, and about `max_bytes` of payload unless a single message is longer. In senders and types, what is
        no UTF-8 is replaced.
        """
        return handles.to_batch(_native.sync_poll_arrow(self, limit, max_bytes))

    def drain(self) -> Iterator[SyncMessage]:
        """What is there, until there is nothing more. Never blocks."""
        while (message := self.try_pop()) is not None:
            yield message

    def __iter__(self) -> Iterator[SyncMessage]:
        """Every message, waiting for it; ends when the handle closes."""
        return until_closed(self.pop)

    def fileno(self) -> int:
        """Readable while there is something in the queue to read, for selectors. Look at `spilled` too after writing."""
        return self._sub.fileno()

    async def apop(self) -> SyncMessage:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        while (message := self.try_pop()) is None:
            await handles.readable(self.fileno())
        return message

    def __aiter__(self) -> AsyncIterator[SyncMessage]:
        return until_closed_async(self.apop)

    # ---- the others ----

    def members(self) -> list[Member]:
        """Everybody who is here and reads, oldest first."""
        status = self.statistics()
        return sorted((m for m in status.members if m.role == "subscription"), key=lambda member: member.joined_ns)

    @property
    def senders(self) -> set[str]:
        """The names of all who are here."""
        return {member.name for member in self.members() if member.name}

    def wait_for(self, senders: Iterable[str], timeout: float | None = None) -> None:
        """Until all of these are here: a barrier. TimeoutError names who is missing."""
        wanted = set(senders)
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while True:
            if self.closed:
                raise Closed(f"{self.channel}: the handle is closed")
            before = _native.sync_before_change(self)
            missing = wanted - self.senders
            if not missing:
                return
            left = SLICE if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"{self.channel}: {', '.join(sorted(missing))} did not come within the timeout")
            _native.sync_wait_change(self, before, min(left, SLICE))

    def changes(self) -> list[Change]:
        """Who came and who went since the last call (the first call: since this member joined), the dead included."""
        now = {(m.slot, m.joined_ns): (m.name or "", m.pid) for m in self.members()}
        before = self._known
        self._known = now
        went = [Change(False, *before[key]) for key in before.keys() - now.keys()]
        came = [Change(True, *now[key]) for key in sorted(now.keys() - before.keys(), key=lambda key: key[1])]
        return went + came

    # ---- the end ----

    def close(self) -> None:
        """Leaves: what is unread counts as read. Whoever leaves last removes the queue. Safe to call twice."""
        if self.closed:
            return
        self._sub.close()
        self._pub.close()
        _native.sync_forget(self)
        if os.getpid() == self._pid:
            _remove_if_last(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SyncQueue {self.channel} as {self.sender!r}{' closed' if self.closed else ''}>"


def _remove_if_last(channel: Channel) -> None:
    """Removes the queue if nobody is in it, and nobody is about to join."""
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return
    try:
        if not _native.lock_byte(fd, LIFE_BYTE, True, False):
            return  # somebody is joining
        if os.fstat(fd).st_nlink == 1 and not _native.inspect_log(fd, opening.where(channel), sync=True)["members"]:
            files.unlink(channel)
    finally:
        os.close(fd)


def _open(channel: Channel, asked: dict[str, Any], make: Callable[[int, str], Any]) -> tuple[Any, Codec]:
    """`opening.open_end`, unless the last member removed the file meanwhile: then once more."""

    def end(fd: int, path: str) -> Any:
        # A description of its own: a mapping would keep the lock of `fd` alive.
        guard = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            _native.lock_byte(guard, LIFE_BYTE, False, True)
            return make(fd, path) if channel.fake or os.fstat(fd).st_nlink > 0 else None
        finally:
            os.close(guard)

    while True:
        made, codec = opening.open_end(KIND, channel, asked, None, end)
        if made is not None:
            return made, codec


def _named(sender: str | bytes | None) -> bytes:
    name = _bytes(str(os.getpid()) if sender is None else sender, "a sender")
    if not 1 <= len(name) <= NAME_MAX or b"\0" in name:
        raise Invalid(f"sender is {sender!r}: it takes 1 to {NAME_MAX} bytes, none of them 0")
    return name


def join(
    channel: Channel,
    *,
    sender: str | bytes | None = None,
    own: bool = False,
    start: str | int = "newest",
    last: int | None = None,
    when_slow: str = "wait",
    drop_after: float | None = None,
    spill_limit: int = SPILL_LIMIT,
    spin: float = 20e-6,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> SyncQueue:
    """A member of a queue, which is made now if there is none."""
    name = _named(sender)
    where, position = opening.start_of(start, ("newest", "earliest"))
    if when_slow not in ("wait", "drop", "fail") or (when_slow == "drop") != (drop_after is not None):
        raise Invalid(f"when_slow is {when_slow!r}: it must be 'wait', 'fail', or 'drop' with drop_after=SECONDS")
    patience = (
        -1.0 if when_slow == "fail" else max(seconds(drop_after, "drop_after"), 1e-9) if when_slow == "drop" else 0.0
    )
    if last is not None:
        if not isinstance(last, int) or last < 0 or start != "newest":
            raise Invalid("last is a number of messages from 0 on, and goes without start")
        where = "earliest"
    receiver, codec = _open(
        channel, options, lambda fd, path: _native.sync_receiver(fd, path, name, where, position, patience)
    )
    sub = Subscription(receiver, Origin(KIND, channel, codec, join, {}), seconds(spin, "spin"))
    try:
        sender_end, _ = _open(channel, options, lambda fd, path: _native.sync_sender(fd, path, name, clock))
        pub = Publication(sender_end, Origin(KIND, channel, codec, join, {}))
    except BaseException:
        sub.close()
        raise
    queue = SyncQueue(channel, name, pub, sub, own=own, spill_limit=spill_limit)
    if last is not None:
        _native.sync_keep_last(queue, last)
    return queue


def open_publication(channel: Channel, **options: Any) -> Publication:
    """Writing alone is not for queues."""
    raise Invalid(f"{channel}: everybody in a sync queue reads and writes: use penstock.join")


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    drop_after: float | None = None,
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """A reader without a name, such as a recorder: it counts like any member, but writes nothing."""
    name, position = opening.start_of(start, ("newest", "earliest"))
    patience = seconds(drop_after, "drop_after") or (0.0 if drop_after is None else 1e-9)
    receiver, found = _open(
        channel, options, lambda fd, path: _native.sync_receiver(fd, path, b"", name, position, patience)
    )
    arguments = {"start": start, "drop_after": drop_after, "spin": spin}
    return handles.subscription(
        receiver, Origin(KIND, channel, found, open_subscription, arguments), seconds(spin, "spin")
    )


__all__ = ["Change", "SyncMessage", "SyncQueue", "join"]
