"""A member of a sync queue (`penstock.join("sync:NAME")`), which writes messages and reads those of the other members.

Knows one open queue; must never know how a queue is created.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock._native import core as _native
from penstock.channels.arrow import to_batch
from penstock.channels.checks import counted, limit_of
from penstock.channels.handles import NativePublication
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.publication import Publication
from penstock.channels.interfaces.subscription import Received, Subscription
from penstock.channels.status import ChannelMember, ChannelStatus
from penstock.channels.storage import inspection, reopening
from penstock.channels.waiting import awaiting, loops
from penstock.channels.waiting.iteration import until_closed_async
from penstock.codecs import Codec
from penstock.errors import Busy, Closed, Invalid, TimedOut
from penstock.kinds.sync.message import Borrowed, Change, SyncMessage, SyncSubscription, bytes_of, text_of
from penstock.kinds.sync.reopen_args import MemberReopenArgs

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def _rejoin(origin: tuple[Any, ...], senders: frozenset[bytes], types: frozenset[bytes]) -> SyncMember:
    """Opens a pickled member again."""
    member: SyncMember = reopening.reopen(*origin)
    member.screen(senders=senders, types=types)
    return member


if TYPE_CHECKING:

    class _Base(_native.SyncMember, roles.Member): ...
else:  # a compiled class can have no abstract base: the roles are registered below
    _Base = _native.SyncMember


class SyncMember(_Base):
    """One member of a sync queue. Thread-safe; a context manager; iterates over messages until it is closed.

    Made by `penstock.join`. `send`, `offer`, `offer_many` and `claim` take the message's type as `type=`; `recv`, `try_recv` and
    `poll` return `SyncMessage`s. Pickles to a child process as a new member, of the same name if one was given, that continues at the
    same position and screens the same; `Busy` while messages are in this member's own memory (`spilled`).
    """

    def __init__(self, pub: NativePublication, sub: SyncSubscription, origin: MemberReopenArgs) -> None:
        super().__init__(pub, sub, SyncMessage, origin.own, origin.spill_limit)
        self._pub, self._sub, self._origin = pub, sub, origin
        self._identity = inspection.identity_opened(pub)
        self._senders: frozenset[bytes] = frozenset()
        self._types: frozenset[bytes] = frozenset()
        self._next_event, _, _ = _native.sync_changes(self, 2**64 - 1)
        self._missed_changes = 0
        self._known = self._list_present()

    if TYPE_CHECKING:

        def recv(self, timeout: float | None = None) -> SyncMessage: ...
        def try_recv(self) -> SyncMessage | None: ...
        def poll(self, limit: int = 1000) -> list[SyncMessage]: ...
        def __next__(self) -> SyncMessage: ...

    # ---- about it ----

    @property
    def channel(self) -> str:
        """The queue's URI."""
        return str(self._origin.channel)

    @property
    def codec(self) -> Codec:
        """How bodies are encoded; the first to join or to publish decides it."""
        return self._origin.codec

    @property
    def name(self) -> str:
        """The sender in every message that this member writes. If none was given it was drawn, and a forked child has another one."""
        return text_of(self._origin.name.now())

    @property
    def position(self) -> int:
        """Where reading continues in the one order of all messages."""
        return self._sub.position

    @property
    def send_position(self) -> int:
        """The end of the stream: the position after the newest message of any member."""
        return self._pub.position

    @property
    def lag(self) -> int:
        """Bytes of the stream that this member has not read."""
        return self._sub.lag

    @property
    def lost(self) -> int:
        """Bytes that this member missed because it was dropped (`drop_after`)."""
        return self._sub.lost

    @property
    def lost_messages(self) -> int | None:
        """Messages that it missed; None where only the bytes are known."""
        return self._sub.lost_messages

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent, and its sender and type."""
        return self._sub.last

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pub.closed

    @property
    def max_payload(self) -> int:
        """Bytes that offer and claim take at most, for a message without a type; send takes up to half the queue's capacity."""
        return self._pub.max_payload

    def statistics(self) -> ChannelStatus:
        """The queue's counters at this moment, and each member's, with its lag."""
        return inspection.inspect_opened(self._origin.channel.kind, self._origin.channel, self._pub)

    # ---- writing ----

    async def send_async(self, data: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        """Writes a message; waits for room in the running event loop. Cancelling it writes nothing."""
        body = self._encode(data)
        return await self._room(lambda: _native.sync_try_send(self, body, type), timeout)

    async def claim_async(self, length: int, timeout: float | None = None, *, type: str | bytes = "") -> _native.Claim:
        """Room for one body of `length` bytes; waits for it in the running event loop."""

        def attempt() -> _native.Claim | None:
            try:
                return self.claim(length, 0, type=type)
            except TimedOut:
                return None

        return await self._room(attempt, timeout)

    async def _room(self, attempt: Callable[[], T | None], timeout: float | None) -> T:
        """The first result of `attempt` that is not None. It tries again when a message arrives, too: this member may spill it."""
        return await awaiting.room_or_message(self._pub, self._sub, attempt, timeout, self._no_room)

    def _encode(self, body: Any) -> Any:
        return body

    def _no_room(self) -> str:
        """The error of a call whose timeout has passed."""
        return f"{self.channel}: no room within the timeout: {self._slowest()}{_native.take_reason(self._pub)}"

    def _slowest(self) -> str:
        status = self.statistics()
        behind = [m for m in status.members if m.position is not None and m.position < status.position]
        if not behind:
            return "no reader is behind"
        worst = min(behind, key=lambda member: member.position or 0)
        process = _native.look_at_file(self._pub, lambda fd, _: _native.process_name(worst.pid, fd))
        return f"member {worst.name!r} ({process}) is {status.position - (worst.position or 0)} bytes behind"

    # ---- reading ----

    async def recv_async(self, timeout: float | None = None) -> SyncMessage:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        limit = limit_of(timeout, self)
        wait = awaiting.NotedWait(self._sub, f"{self.channel}: no message within the timeout", "messages")
        with awaiting.noted(self._sub, timed=limit is not None) as note:
            return await awaiting.in_time(self._recv_async(note), limit, wait)

    async def _recv_async(self, note: _native.AwaitNote) -> SyncMessage:
        while (message := _native.SyncMember.try_recv(self)) is None:
            fd = self.fileno()
            note.begin()
            await loops.readable(fd)
        return self._decode(message)

    def _decode(self, message: SyncMessage) -> SyncMessage:
        return message

    def borrow(self, timeout: float | None = None) -> Borrowed:
        """The next message with its body in place, as a read-only memoryview of its bytes: large bodies are not copied.

        `with member.borrow() as message:`. The room stays taken while the view lives; it ends with the block. `TimedOut`
        after `timeout` seconds.
        """
        _native.sync_here(self)
        return Borrowed(self._sub.borrow(timeout))

    async def borrow_async(self, timeout: float | None = None) -> Borrowed:
        """The same; waits in the running event loop: `with await member.borrow_async() as message:`."""
        limit = limit_of(timeout, self)
        wait = awaiting.NotedWait(self._sub, f"{self.channel}: no message within the timeout", "messages")
        with awaiting.noted(self._sub, timed=limit is not None) as note:
            return await awaiting.in_time(self._borrow_async(note), limit, wait)

    async def _borrow_async(self, note: _native.AwaitNote) -> Borrowed:
        while True:
            try:
                return self.borrow(0)
            except TimedOut:
                fd = self.fileno()
                note.begin()
                await loops.readable(fd)

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """The messages that are there now, as one Arrow batch: position, session, sender, type, payload, time. Never blocks.

        At most `limit` rows, and about `max_bytes` of payload unless a single message is longer. In senders and types, what is
        not UTF-8 is replaced.
        """
        _native.sync_here(self)
        return to_batch(_native.poll_arrow(self._sub, limit, max_bytes))

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to receive, for selectors."""
        _native.sync_here(self)
        return self._sub.fileno()

    def __aiter__(self) -> AsyncIterator[SyncMessage]:
        return until_closed_async(self.recv_async)

    # ---- screening ----

    def screen(
        self, *, senders: Iterable[str | bytes] | None = None, types: Iterable[str | bytes] | None = None
    ) -> None:
        """From now on skips messages of these senders and types; None leaves that set unchanged."""
        passed = self._senders if senders is None else frozenset(self._bytes_of(senders, "a sender", "senders"))
        kinds = self._types if types is None else frozenset(self._bytes_of(types, "a type", "types"))
        self._senders, self._types = passed, kinds
        _native.sync_screen(self, sorted(self._senders), sorted(self._types))

    def _bytes_of(self, several: Iterable[str | bytes], one: str, all_of_them: str) -> list[bytes]:
        """Encoded names. `Invalid` for anything that is not a list of them, such as a single text."""
        try:
            if isinstance(several, str | bytes) or not isinstance(several, Iterable):
                raise Invalid(f"{all_of_them} is {several!r}: it must be a list, also of a single one")
            return [bytes_of(name, one) for name in several]
        except Invalid as error:
            raise Invalid(f"{self.channel}: {error}") from None

    @property
    def screened_senders(self) -> frozenset[str]:
        """The senders whose messages are skipped, besides its own."""
        return frozenset(text_of(name) for name in self._senders)

    @property
    def screened_types(self) -> frozenset[str]:
        """The types of messages that are passed over."""
        return frozenset(text_of(name) for name in self._types)

    # ---- the others ----

    @property
    def readers(self) -> int:
        """How many others read at this moment; with `own=True` this member too."""
        return self._pub.readers - (not self._origin.own)

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until that many others read, as `readers` counts them; `TimedOut` after `timeout` seconds."""
        least = counted(count, "wait_for_readers", "count", self)
        if not _native.sync_wait_for_members(self, lambda: self.readers >= least, timeout):
            raise TimedOut(self._too_few(count) + _native.take_reason(self._pub))

    async def wait_for_readers_async(self, count: int = 1, timeout: float | None = None) -> None:
        """The same; waits in the running event loop."""
        least = counted(count, "wait_for_readers_async", "count", self)
        attempt = lambda: True if self.readers >= least else None  # noqa: E731
        await awaiting.members(self._pub, attempt, timeout, self._too_few(count))

    def _too_few(self, count: int) -> str:
        return f"{self.channel}: fewer than {count} readers joined within the timeout"

    def members(self) -> list[ChannelMember]:
        """All members that read, oldest first."""
        status = self.statistics()
        return sorted((m for m in status.members if m.role == "subscription"), key=lambda member: member.joined_ns)

    @property
    def senders(self) -> set[str]:
        """The names of all members."""
        return {member.name for member in self.members() if member.name}

    def wait_for(self, names: Iterable[str], timeout: float | None = None) -> None:
        """Waits until members of all these names have joined: a barrier. `TimedOut` names the missing ones."""
        wanted = self._check_names(names)

        def attempt() -> bool:
            self._open()
            return wanted <= self.senders

        if not _native.sync_wait_for_members(self, attempt, timeout):
            raise TimedOut(self._missing(wanted))

    async def wait_for_async(self, names: Iterable[str], timeout: float | None = None) -> None:
        """The same; waits in the running event loop."""
        wanted = self._check_names(names)

        def attempt() -> bool | None:
            self._open()
            return True if wanted <= self.senders else None

        await awaiting.members(self._pub, attempt, timeout, lambda: self._missing(wanted))

    def _check_names(self, names: Iterable[str]) -> set[str]:
        """Checks the names to wait for. `Invalid` for a single text, and for a name that is not a text."""
        given = [] if isinstance(names, str | bytes) or not isinstance(names, Iterable) else list(names)
        if not all(isinstance(name, str) for name in given) or (not given and names):
            raise Invalid(f"{self.channel}: names is {names!r}: it must be a list of members' names")
        self._bytes_of(given, "a name", "names")
        return set(given)

    def _open(self) -> None:
        if self.closed:
            raise Closed(f"{self.channel}: the handle is closed")

    def _missing(self, wanted: set[str]) -> str:
        return f"{self.channel}: {', '.join(sorted(wanted - self.senders))} did not join within the timeout"

    def changes(self) -> list[Change]:
        """Members that joined and left since the last call (the first call: since this member joined), the dead included.

        Names one that joined and left in between, too. The queue keeps the last 256 joins and departures: `missed_changes`.
        """
        self._next_event, missed, events = _native.sync_changes(self, self._next_event)
        self._missed_changes += missed
        found = []
        for came, slot, joined_ns, pid, name in events:
            key = (slot, joined_ns)
            if came and key not in self._known:
                self._known[key] = (name, pid)
                found.append(Change(True, name, pid))
            elif not came and key in self._known:
                found.append(Change(False, *self._known.pop(key)))
        # Dead members whose slots are not freed yet, and other members that are no longer among the events.
        before, self._known = self._known, self._list_present()
        went = [Change(False, *before[key]) for key in before.keys() - self._known.keys()]
        came_too = sorted(self._known.keys() - before.keys(), key=lambda key: key[1])
        return found + went + [Change(True, *self._known[key]) for key in came_too]

    @property
    def missed_changes(self) -> int:
        """Joins and departures that `changes` missed, since there were more than 256 between two calls. Members that joined and left in between may be unnamed."""
        return self._missed_changes

    def _list_present(self) -> dict[tuple[int, int], tuple[str, int]]:
        return {(m.slot, m.joined_ns): (m.name or "", m.pid) for m in self.members()}

    # ---- the end ----

    def close(self) -> None:
        """Leaves: unread messages count as read. The last member to leave removes the queue. Safe to call twice."""
        if self.closed:
            return
        self._sub.close()
        self._pub.close()
        _native.sync_forget(self)
        self._origin.leave(self._origin.channel, self._identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._open()
        if self.spilled:
            raise Busy(
                f"{self.channel}: {self.spilled} bytes of unread messages are in this member's own memory: read them before it is "
                "pickled"
            )
        about, arguments = self._origin, {**self._origin.arguments, "start": self.position}
        origin = about.opener, about.channel, arguments, reopening.opened_file(about.channel, self._pub)
        return _rejoin, (origin, self._senders, self._types)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel} as {self.name!r}{' closed' if self.closed else ''}>"


Publication.register(SyncMember)
Subscription.register(SyncMember)
roles.Member.register(SyncMember)
