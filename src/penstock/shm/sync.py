"""`sync:` channels: everyone who joins reads and writes; a message stays until all who were there have read it.

A term log whose messages carry a sender and a type. A member screens out what it does not want, its own messages by default,
and never waits for itself: what it has not read moves into its own memory before it waits for room.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Busy, Closed, Dropped, Invalid, NotFound, TimedOut, TooLarge
from penstock.options import SyncOptions, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription
from penstock.status import ChannelStatus, Member

LIFE_BYTE = 8  # of the file: held shared by who joins, exclusively by who removes it
NAP = 0.001
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
    def cost(self) -> int:
        """About how many bytes of memory it takes while it is kept."""
        return len(self.body) + 200

    @property
    def text(self) -> str:
        """The body as text. Bytes that are no UTF-8 become escapes; nothing is lost."""
        return self.body.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Change:
    """Somebody came or went."""

    joined: bool
    sender: str
    pid: int


def _bytes(text: str | bytes, what: str) -> bytes:
    """A name or a body as it travels."""
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    raise Invalid(f"{what} is text or bytes, not {type(text).__name__}")


def prefix(sender: bytes, kind: bytes) -> bytes:
    """What stands before a message's body."""
    if len(kind) > 65535:
        raise TooLarge(f"a type of {len(kind)} bytes: at most 65535 fit")
    return codecs.SYNC_HEADER.pack(len(sender), len(kind), 0) + sender + kind


class SyncQueue:
    """One member of a sync queue: reads what the others write, and writes. Thread-safe; a context manager.

    Made by `penstock.join`. Does not pickle: each process joins by itself, by name.
    """

    def __init__(
        self, channel: Channel, name: bytes, pub: Publication, sub: Subscription, *, own: bool, spill_limit: int
    ) -> None:
        self._channel, self._name, self._pub, self._sub = channel, name, pub, sub
        self._spilled: deque[SyncMessage] = deque()
        self._spilled_bytes, self._spill_limit = 0, spill_limit
        self._prefixes: dict[bytes, bytes] = {}
        self._own = None if own else pub.session
        self._senders: frozenset[bytes] = frozenset()
        self._types: frozenset[bytes] = frozenset()
        self._pid = os.getpid()
        self._dropped: Dropped | None = None
        self._window = self.statistics().window
        self._known = {(m.slot, m.joined_ns): (m.name or "", m.pid) for m in self.members()}
        self._screen()

    # ---- who and where ----

    @property
    def channel(self) -> str:
        """The queue's URI."""
        return str(self._channel)

    @property
    def sender(self) -> str:
        """The name in every message that this member writes."""
        return self._name.decode("utf-8", "surrogateescape")

    @property
    def position(self) -> int:
        """Where reading goes on in the one order of all messages."""
        return self._spilled[0].position if self._spilled else self._sub.position

    @property
    def lag(self) -> int:
        """Bytes of the queue that this member has not read, those it keeps in its own memory not included."""
        return self._sub.lag

    @property
    def spilled(self) -> int:
        """Bytes of unread messages that were moved into this member's own memory while it waited to write."""
        return self._spilled_bytes

    @property
    def lost(self) -> int:
        """Bytes that this member missed because it was dropped (`drop_after`)."""
        return self._sub.lost

    @property
    def screened(self) -> int:
        """Messages passed over: its own, and those of screened senders and types."""
        return _native.sync_screened(self._sub)

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
        self._screen()

    @property
    def screened_senders(self) -> frozenset[str]:
        """Whose messages are passed over, beside its own."""
        return frozenset(name.decode("utf-8", "surrogateescape") for name in self._senders)

    @property
    def screened_types(self) -> frozenset[str]:
        """Messages of which types are passed over."""
        return frozenset(name.decode("utf-8", "surrogateescape") for name in self._types)

    def _screen(self) -> None:
        _native.sync_screen(self._sub, _native.Screen(self._own, sorted(self._senders), sorted(self._types)))

    def _forked(self) -> None:
        """In a forked child this handle becomes a member of its own, by the same name, which reads on at the same place."""
        self._pid = os.getpid()
        if self._own is not None:
            self._own = self._pub.session
        self._screen()

    def _hides(self, message: SyncMessage) -> bool:
        return (
            message.sender.encode("utf-8", "surrogateescape") in self._senders
            or message.type.encode("utf-8", "surrogateescape") in self._types
        )

    # ---- writing ----

    def append(self, body: Any = b"", type: str | bytes = "", *, timeout: float | None = None) -> int:
        """Writes a message (text, bytes or any buffer) for everybody else; the position after it.

        Waits while somebody has not read what the room is needed for; TimeoutError after `timeout` seconds (0: now or never). `Busy`
        when the slowest member does not let writers wait, or when this member's own unread messages fill its memory too: then
        read before you write. `TooLarge` for what can never fit.
        """
        position = self._append(body, type, timeout)
        if position is None:
            raise TimedOut(f"{self.channel}: no room within the timeout: {self._slowest()}")
        return position

    def offer(self, body: Any = b"", type: str | bytes = "") -> int | None:
        """The same without ever blocking: None if there is no room."""
        return self._append(body, type, 0)

    def append_many(self, bodies: Iterable[Any], type: str | bytes = "", *, timeout: float | None = None) -> int:
        """Writes messages of one type in order, many at once; how many. TimeoutError if not all of them found room in time."""
        before = self._prefix(type)
        whole = [before + (body if isinstance(body, bytes) else bytes(self._body(body))) for body in bodies]
        done = 0
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while done < len(whole):
            now = self._pub.offer_many(whole[done:] if done else whole)
            done += now
            if done < len(whole) and now == 0:
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                if self._send(b"", whole[done], left) is None:
                    raise TimedOut(f"{self.channel}: {done} of {len(whole)} messages found room: {self._slowest()}")
                done += 1
        return done

    def _append(self, body: Any, type: str | bytes, timeout: float | None) -> int | None:
        if self._pid != os.getpid():
            self._forked()
        return self._send(self._prefix(type), self._body(body), timeout)

    def _body(self, body: Any) -> Any:
        return _bytes(body, "a body") if isinstance(body, str) else body

    def _prefix(self, type: str | bytes) -> bytes:
        kind = _bytes(type, "a type")
        found = self._prefixes.get(kind)
        if found is None:
            found = prefix(self._name, kind)
            if len(self._prefixes) < 256:
                self._prefixes[kind] = found
        return found

    def _send(self, before: bytes, body: Any, timeout: float | None) -> int | None:
        size = len(before) + memoryview(body).nbytes
        if size > self._window // 2:
            raise TooLarge(f"{self.channel}: a message of {size} bytes; this queue takes up to {self._window // 2}")
        found: Any = _native.sync_send(self._pub, before, body, timeout, self._spill, self._sub)
        return cast("int | None", found)

    def _spill(self) -> bool:
        """Moves what is unread into this member's own memory; whether anything moved."""
        moved = False
        before = self._sub.position
        while True:
            try:
                found = _native.sync_take(self._sub)
            except Dropped as error:  # the next pop says so
                self._dropped = error
                return True
            if found is None:
                break
            message = SyncMessage(*cast(tuple[str, str, bytes, int, int], found))
            size = message.cost
            self._spilled.append(message)
            self._spilled_bytes += size
            moved = True
            if self._spilled_bytes > self._spill_limit:
                raise Busy(
                    f"{self.channel}: no room to write, and {self._spilled_bytes} bytes of messages are unread here: "
                    "read before you write, or join with a larger spill_limit"
                )
        return moved or self._sub.position != before

    def _slowest(self) -> str:
        status = self.statistics()
        behind = [m for m in status.members if m.position is not None and m.position < status.tail]
        if not behind:
            return "nobody is behind"
        worst = min(behind, key=lambda member: member.position or 0)
        return f"member {worst.name!r} (process {worst.pid}) is {status.tail - (worst.position or 0)} bytes behind"

    # ---- reading ----

    def pop(self, timeout: float | None = None) -> SyncMessage:
        """The next message that is not screened. TimeoutError after `timeout` seconds (None: for ever, 0: now or never)."""
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while (message := self.try_pop()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not _native.sync_wait(self._sub, left):
                raise TimedOut(f"{self.channel}: no message within the timeout")
        return message

    def try_pop(self) -> SyncMessage | None:
        """The next message, or None if there is none yet. Never blocks."""
        if self._pid != os.getpid():
            self._forked()
        if self._dropped is not None:
            error, self._dropped = self._dropped, None
            raise error
        while self._spilled:
            message = self._spilled.popleft()
            self._spilled_bytes -= message.cost
            if not self._hides(message):
                return message
        found = _native.sync_take(self._sub)
        return None if found is None else SyncMessage(*cast(tuple[str, str, bytes, int, int], found))

    def pop_many(self, limit: int = 1000) -> list[SyncMessage]:
        """What is there now, at most `limit` messages. Never blocks."""
        found: list[SyncMessage] = []
        while len(found) < limit and (message := self.try_pop()) is not None:
            found.append(message)
        return found

    def drain(self) -> Iterator[SyncMessage]:
        """What is there, until there is nothing more. Never blocks."""
        while (message := self.try_pop()) is not None:
            yield message

    def __iter__(self) -> Iterator[SyncMessage]:
        """Every message, waiting for it; ends when the handle closes."""
        while True:
            try:
                yield self.pop()
            except Closed:
                return

    def fileno(self) -> int:
        """Readable while there is something in the queue to read, for selectors. Look at `spilled` too after writing."""
        return self._sub.fileno()

    async def apop(self) -> SyncMessage:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        while (message := self.try_pop()) is None:
            await handles.readable(self.fileno())
        return message

    async def __aiter__(self) -> AsyncIterator[SyncMessage]:
        while True:
            try:
                message = await self.apop()
            except Closed:
                return
            yield message

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
        while missing := wanted - self.senders:
            if self.closed:
                raise Closed(f"{self.channel}: the handle is closed")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"{self.channel}: {', '.join(sorted(missing))} did not come within the timeout")
            time.sleep(NAP)

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
        self._spilled.clear()
        self._spilled_bytes = 0
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
        _leave_only(queue, last)
    return queue


def _leave_only(queue: SyncQueue, last: int) -> None:
    """Of what the queue still keeps, the newest `last` messages."""
    kept: deque[SyncMessage] = deque(queue.drain(), maxlen=last)
    queue._spilled.extend(kept)
    queue._spilled_bytes = sum(message.cost for message in kept)


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
