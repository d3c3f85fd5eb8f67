"""One channel's way over a bridge: from a subscription to an outlet, message by message, in order, unchanged.

Knows positions, sessions and losses. It must never know patterns, nor how many channels share an address.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.storage import files, inspection
from penstock.channels.uri.opener import parse, subscription_options
from penstock.channels.uri.value import without_codec
from penstock.errors import (
    Corrupt,
    DecodeError,
    Invalid,
    Mismatch,
    MissingPackage,
    NotFound,
    PenstockError,
    TimedOut,
    TooLarge,
    TooSlow,
    Unsupported,
)
from penstock.front.bridge import beside
from penstock.front.bridge.bookmark import Bookmark
from penstock.front.bridge.outlet import Outlet, drops_unheard
from penstock.front.bridge.settings import Bridged, Settings
from penstock.front.opening import subscribe

RETRY_SECONDS = 1.0
AGAIN_SECONDS = 5.0  # for a bridge to send again what this machine has missed
log = logging.getLogger("penstock")


@dataclass
class Own:
    """The sessions of the bridge's publications onto a channel, which it does not send back. mark: remembers them."""

    sessions: list[int] = field(default_factory=list)
    mark: Bookmark | None = None

    def add(self, session: int) -> None:
        """A publication that is about to send."""
        self.sessions.append(session)
        if self.mark is not None:
            self.mark.save()


class Route:
    """A way. late: the channel appeared while the bridge ran, so its first message counts. codec: of the messages, where it is known from
    elsewhere. own: by the channel. trunk: the target is one stream of many at an address, which says elsewhere what it carries. whole: the
    source is one, so a bridge sends it, which begins another session if this machine has missed the begin of one."""

    def __init__(
        self,
        source: str,
        target: str,
        settings: Settings,
        own: dict[str, Own],
        *,
        late: bool = False,
        codec: codecs.Codec | None = None,
        trunk: bool = False,
        whole: bool = False,
    ) -> None:
        self.source, self.target, self.codec, self._whole = source, target, codec, whole
        self._partial: dict[int, tuple[float, int]] = {}  # sessions without their begin: since when, and what was read
        self._settings, self._trunk = settings, trunk
        self._channel = parse(source)
        self._kind = self._channel.kind
        lasting = not self._channel.fake and self._kind.memory is not None
        self._mark = Bookmark(settings.name, source, lasting=lasting)
        kept = self._mark.kept
        self._late = late or not (self._mark.is_new or kept.file or kept.read)  # it was waited for
        self._own, self._told = (own.setdefault(str(parse(one)), Own()) for one in (source, target))
        self._own.sessions += kept.own
        self._own.mark, kept.own = self._mark, self._own.sessions
        self._sub: Any = None
        self._take: Callable[[], Any] = self._take_bytes
        self._several = False
        self._out: Outlet | None = None
        self._held: tuple[Any, tuple[int, int]] | None = None  # a message that was taken, and its mark
        self._values: deque[bytes] | None = (
            None  # last values that come before the messages; None before they are known
        )
        self._begin, self._joined = 0, 0  # where they begin, and where the subscription does
        self._passed: tuple[int, int] | None = None  # the mark of one that is not passed on, behind all others
        self._release: Callable[[], object] = int  # it: what `_held` lends
        self._seen: set[int] = set()  # sessions that were read since the start
        self._try_at, self._warned = 0.0, False  # when to try again what failed
        self._messages = self._bytes = self._refused = self._lost = self._lost_messages = 0

    # ---- the source ----

    @property
    def subscription(self) -> Any:
        """The subscription; None before there is one."""
        return self._sub

    @property
    def is_held_up(self) -> bool:
        """Whether the target has no room for the next message."""
        return self._held is not None

    @property
    def is_from_afar(self) -> bool:
        """Whether its senders keep messages until they hear that they were read."""
        return self._several and self._messages > 0

    @property
    def carries(self) -> codecs.Codec | None:
        """How the messages are encoded; None until that is known."""
        if self.codec is None and self._sub is not None and (found := self._sub.codec) is not None:
            spec = {**found.spec, "pixels": True} if self._kind.by_reference else found.spec
            spec = {**spec, **beside.described(self._kind, self._sub)}
            chosen = None if self._kind.memory is not None else self._settings.codec_of(self.source)
            self.codec = codecs.from_spec(spec) if chosen is None else codecs.resolve(chosen)
        return self.codec

    @property
    def was_replaced(self) -> bool:
        """Whether another channel has the source's name now, and all of this one is done."""
        return self._sub is not None and self._file() not in (0, self._mark.kept.file) and self.is_done

    def _file(self) -> int:
        """Identifies the channel that has the source's name now; 0 if there is none, or if its kind has no such file."""
        return 0 if self._kind.memory is None else files.identity(self._channel)

    def _open(self) -> bool:
        kept, kind, takes = self._mark.kept, self._kind, subscription_options(self.source)
        goes_on = kept.position if self._settings.start is None and kept.file == self._file() else None
        wanted = {"conflate": False, "acknowledge": "manual", "drop_after": self._settings.drop_after}
        options = {name: value for name, value in wanted.items() if name in takes and value is not None}
        if kind.memory is not None and "codec" in takes and self._settings.codec is not None:
            options["codec"] = self._settings.codec
        start = "earliest" if self._late or (kept.read and self._settings.start is None) else self._settings.start
        if start is not None and (kind.keeps or "reliable" in takes or not self._late):
            options["start"] = start
        try:
            self._sub = self._subscribe(options, goes_on if kind.keeps else None)
        except NotFound:
            return False
        self._several = hasattr(self._sub, "sessions")
        kept.latched = kept.latched and goes_on is not None
        self._begin = (goes_on or 0) if kept.latched else 0
        if kind.by_reference:
            self._take = self._take_frame
        elif self._several:
            self._take = self._take_lent
        elif kind.memory is None:
            self._take = self._take_parts
        if goes_on is not None and not self._several and not kind.by_reference:
            self._lost += max(0, self._sub.position - goes_on)
        if kind.memory is not None and not self._several:
            kept.file = inspection.identity_opened(self._sub)[1]
            if not kind.by_reference:
                kept.position = self._sub.position
            elif goes_on is None:
                kept.position = None
            self._mark.save()
        return True

    def _subscribe(self, options: dict[str, Any], position: int | None) -> Any:
        given = self._settings.given(self.source)
        source: Any = given if self._kind.memory is not None else without_codec(given)
        if position is not None:
            try:
                return subscribe(source, **options | {"start": position})
            except Invalid:  # it is no longer kept
                options["start"] = "earliest"
        return subscribe(source, **options)

    def _take_bytes(self) -> Any:
        return _native.next_bytes(self._sub)

    def _take_lent(self) -> Any:
        """A message that its sender takes for unread until it is released."""
        try:
            lent = self._sub.borrow(0)
        except TimedOut:
            return None
        body = lent.__enter__()
        self._release = lambda: (body.release(), lent.__exit__(None, None, None))
        return body

    def _take_frame(self) -> Any:
        frame = self._sub.try_recv()
        if frame is not None:
            self._release = frame.release
        return frame

    def _take_parts(self) -> Any:
        body = self._sub.try_recv()
        if isinstance(body, list):
            raise Unsupported(f"{self.source}: a message of {len(body)} parts, and a bridge passes on one part")
        return body

    def _is_passed_over(self, position: int, session: int) -> bool:
        """Whether a message was passed on before, or is the bridge's own."""
        if self._several and session not in self._seen:
            self._seen.add(session)
            joined = next((one.joined for one in self._sub.sessions if one.session == session), 0)
            before = self._mark.kept.read.get(session, 0 if self._whole else None)
            if before is not None and joined > before and self._whole:
                self._partial[session] = time.monotonic(), before
            elif before is not None:
                self._lost += max(0, joined - before)
        if (partial := self._partial.get(session)) is not None:
            since, before = partial
            if time.monotonic() - since < AGAIN_SECONDS:
                return True
            del self._partial[session]  # no other one comes
            self._lost += position - before
        return session in self._own.sessions or (self._several and position < self._mark.kept.read.get(session, 0))

    def _next(self) -> bool:
        """Takes the next message. False if there is none."""
        if self._values:
            self._held = self._values.popleft(), (0, self._joined)
            return True
        while (body := self._take()) is not None:
            begin = session = 0
            if self._several or self._own.sessions:
                begin, _, session, *_ = self._sub.last
            if self._kind.by_reference:
                before, position = self._mark.kept.position, body.sequence + 1
                if not self._seen and before is not None:
                    self._lost_messages += max(0, body.sequence - before)
                self._seen.add(0)
            else:
                position = self._sub.position
            self._held = body, (session, position)
            if not self._is_passed_over(begin, session):
                return True
            if session not in self._partial:
                self._passed = self._held[1]
            self._let_go()
        return False

    def _let_go(self) -> None:
        self._held = None
        release, self._release = self._release, int
        with contextlib.suppress(BufferError):
            release()

    # ---- onwards ----

    def step(self, most: int) -> int:
        """Passes on the messages that there are, at most `most`. Never blocks for long. Returns how many."""
        if self._sub is None and (time.monotonic() < self._try_at or not self._open()):
            return 0
        if (codec := self.carries) is None:
            return 0
        if self._out is None and drops_unheard(self.target):
            self._open_outlet()  # now: its readers must have found it before the first message
        if self._values is None:
            self._find_values("last" in codec.spec)
        count = 0
        while count < most:
            try:
                if self._held is None and not self._next():
                    break
            except TooSlow:  # it is in `lost`
                continue
            except (Mismatch, DecodeError, MissingPackage, Unsupported) as error:
                self._refuse(error)
                continue
            if not self._give():
                break
            count += 1
        if self._out is not None:
            self._settle(self._out)
        if self._passed is not None and self.is_done:
            self._arrived([self._passed])
            self._passed = None
        return count

    def _find_values(self, has_some: bool) -> None:
        """Last values from before the subscription, if the source itself keeps them."""
        self._values = deque()
        if has_some and self._settings.latch and "last" in self._kind.value_options:
            self._joined = self._sub.position
            self._values = beside.last_values(self.target, self._sub, self._begin, self._own.sessions)
            self._mark.kept.latched = self._mark.kept.latched and not self._values

    def _give(self) -> bool:
        """Passes the message on that was taken. False if there is no room for it."""
        assert self._held is not None
        (body, mark), out = self._held, self._out or self._open_outlet()
        if out is not None:
            try:
                if self._kind.by_reference and not out.takes_frames:
                    body = out.message_of(body)
                if not out.send(body, mark):
                    return False
                self._passed = None
                self._messages += 1
                self._bytes += body.array.nbytes if self._kind.by_reference and out.takes_frames else len(body)
            except (TooLarge, Invalid, Corrupt) as error:
                self._refuse(error)
            if not out.is_far:
                self._settle(out)
        self._refused += out is None
        self._let_go()
        return True

    def _open_outlet(self) -> Outlet | None:
        assert self.codec is not None
        if time.monotonic() >= self._try_at:
            try:
                self._out = Outlet(self._settings.given(self.target), self.codec, self._told.add, trunk=self._trunk)
            except PenstockError as error:
                if self._settings.strict:
                    raise
                self.fail(error)
        return self._out

    def _refuse(self, error: Exception) -> None:
        self._refused += 1
        self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s: messages do not get to %s: %s", self.source, self.target, error)

    def _settle(self, out: Outlet) -> None:
        """Notes how far messages have arrived."""
        if marks := out.settle():
            self._arrived(marks)
            if self._kind.one_reader and not out.waiting:
                self._sub.acknowledge()

    def _arrived(self, marks: list[tuple[int, int]]) -> None:
        if self._several:
            self._mark.kept.read.update(marks)
        else:
            self._mark.kept.position = marks[-1][1]
            self._mark.kept.latched |= marks[-1][1] > self._joined or not (self._values or self._waiting)
        self._mark.save()

    # ---- the whole ----

    @property
    def _waiting(self) -> int:
        return 0 if self._out is None else self._out.waiting

    @property
    def is_done(self) -> bool:
        """Whether everything that was taken has arrived."""
        if self._out is not None:
            self._settle(self._out)
        return self._held is None and not self._waiting

    @property
    def row(self) -> Bridged:
        """How far it has come."""
        lost, lost_messages = self._losses()
        resent = 0 if self._out is None else self._out.resent
        counts = (self._messages, self._bytes, lost, lost_messages, self._refused, resent, self._waiting)
        return Bridged(self.source, self.target, *counts)

    def _losses(self) -> tuple[int, int]:
        if self._sub is None or self._kind.memory is None:
            return self._lost, self._lost_messages
        return self._lost + self._sub.lost, self._lost_messages + (self._sub.lost_messages or 0)

    def begin_again(self, codec: codecs.Codec | None = None) -> None:
        """Reads the channel that has the source's name now, from its beginning. codec: of its messages, where it is known."""
        self._lost, self._lost_messages = self._losses()
        if self._held is not None:
            self._let_go()
        for one in (self._sub, self._out):
            if one is not None:
                one.close()
        self._sub = self._out = self._values = None
        self.codec, self._late, self._warned = codec, True, False

    def fail(self, error: PenstockError) -> None:
        """An error that concerns this channel alone, which is tried again."""
        self._warn(error)
        self._try_at = time.monotonic() + RETRY_SECONDS

    def close(self) -> None:
        """Ends it. Closed twice is closed once."""
        if self._held is not None:
            self._let_go()
        for one in (self._sub, self._out, self._mark):
            if one is not None:
                one.close()
