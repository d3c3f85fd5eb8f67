"""The channel that a route writes to: opened at its first message, and known to have kept what it was given.

Messages are bytes as they were sent, or frames. Knows publications. It must never know where messages come from.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.uri.opener import parse
from penstock.channels.uri.value import AnyChannel, open_carrying
from penstock.codecs.frames import FrameFormat, frame_options
from penstock.errors import Mismatch, SystemFailure, TimedOut, Unsupported
from penstock.front.bridge import beside

IN_FLIGHT = 4 << 20  # bytes of a stream that its receivers have yet to read
TRUNK_TERM = (1 << 20) - 1  # bytes of a term, or one more, where each channel of many has a stream
RETRY_SECONDS = 0.2
PATIENCE = 5.0  # seconds for a message that is longer than the room that there is at once


class Sent(NamedTuple):
    """A message that was sent. end: the stream's position after it. mark: of the route."""

    end: int
    body: Any
    mark: tuple[int, int]


def _short(codec: codecs.Codec, known: bool) -> codecs.Codec:
    """A codec whose description a datagram holds, if there is one. known: the far side knows the codec without it."""
    if len(codecs.metadata(codec)) > _native.DESCRIPTION_MAX:
        codec = codecs.from_spec(codecs.bare(codec.spec))
    return codecs.BYTES if known and len(codecs.metadata(codec)) > _native.DESCRIPTION_MAX else codec


def drops_unheard(channel: AnyChannel) -> bool:
    """Whether a channel keeps no message for readers that come later: ZeroMQ's."""
    return parse(channel).kind.memory is None


class Outlet:
    """A publication. takes_frames: it has arrays. is_far: its readers are on another machine. opened: told of the number of each publication that is made, before its first message.

    Where messages to nobody are dropped, it has room only while it has a reader. Over a network a message is kept in memory until the receiver has read it. It is sent again if the receiver was restarted, or was
    not heard for so long that it counts as gone. resent: how many messages were.
    """

    def __init__(
        self, channel: AnyChannel, codec: codecs.Codec, opened: Callable[[int], object], *, trunk: bool = False
    ) -> None:
        kind, spec = parse(channel).kind, codec.spec
        self._channel, self._opened = channel, opened
        self.takes_frames = kind.by_reference
        takes = kind.option_names("publish")
        form = FrameFormat(spec) if spec["kind"] == "frame" else None
        if self.takes_frames and spec["kind"] != "frame":
            raise Unsupported(f"{channel} takes frames, and the source has messages of {spec['kind']}")
        plain, last = beside.split(spec)
        self._waits_for_readers = drops_unheard(channel)
        self._options: dict[str, Any] = {"codec": codecs.from_spec(plain) if last else codec}
        if "last" in takes:
            self._options |= last
        if self.takes_frames:
            self._options = frame_options(spec)
        elif kind.memory is None:  # it carries the bytes alone
            self._options = {}
        if "when_full" in takes:
            self._options["when_full"] = "wait"
        if "flow_control" in takes:
            # Without linger: what was not received is sent again, by the next publication.
            short = _short(codec, trunk)
            if not trunk:
                beside.warn(
                    str(channel), spec.keys() - short.spec.keys(), "their description is too long for a datagram"
                )
            self._options |= {"codec": short, "linger": 0.0}
            longest = 0 if form is None else form.bytes
            if trunk or longest > IN_FLIGHT // 2:
                self._options["term_length"] = 1 << min(30, max(TRUNK_TERM, longest * 5 // 2).bit_length())
        if form is not None:
            self.message_of = form.message_of
        self._form: dict[str, Any] = {"codec": codec} if kind.memory is None else self._options
        self._decode = codecs.from_spec(spec).parse if self.takes_frames else None
        self._sent: deque[Sent] = deque()
        self._again: deque[Sent] = deque()  # to be sent again
        self._heard = False  # whether the publication had a receiver
        self._try_at = 0.0  # when to open another one, where that failed
        self.resent = 0
        self._open()

    def _open(self) -> None:
        try:
            self._pub: Any = open_carrying(self._channel, self._options, self._form)
        except Mismatch as error:  # it is there without what the source has beside its messages, or with something else
            beyond = {"attributes", "last", "last_keys", "last_max"} & self._options.keys()
            if not beyond:
                raise
            self._options = {name: value for name, value in self._options.items() if name not in beyond}
            self._pub = open_carrying(self._channel, self._options, self._form)
            beside.warn(str(self._channel), beyond, error)
        self._opened(getattr(self._pub, "session", 0))
        self.is_far, self._read = hasattr(self._pub, "progress"), 0
        self._is_native = isinstance(self._pub, _native.Publication)
        self._room = (
            self._pub.statistics().capacity // 2 if self._is_native else IN_FLIGHT
        )  # there is so much again and again

    @property
    def waiting(self) -> int:
        """How many messages receivers have yet to read."""
        return len(self._sent) + len(self._again)

    def send(self, body: Any, mark: tuple[int, int]) -> bool:
        """Sends a message. False if there is no room now: nothing was sent. `TooLarge` for one that never fits."""
        if self._pub.closed or (self._again and not self._send_again()):
            return False
        return self._send(body, mark)

    def _send(self, body: Any, mark: tuple[int, int]) -> bool:
        far = self.is_far
        if self._waits_for_readers and not self._pub.readers:
            return False
        if far and self._sent and self._pub.position - self._read > min(IN_FLIGHT, self._room):
            return False
        try:
            end = self._put(body, 0.0 if self.takes_frames or len(body) * 1.1 < self._room else PATIENCE)
        except TimedOut:
            return False
        self._sent.append(Sent(end, bytes(body) if far else None, mark))
        return True

    def _put(self, body: Any, timeout: float) -> int:
        if self._decode is not None:
            frame = self._decode(body) if isinstance(body, bytes | memoryview) else body
            if isinstance(frame, dict):
                return int(self._pub.send(frame.pop("pixels"), timeout, **frame))
            about = {"id": frame.id, "start_ns": frame.start_ns, "end_ns": frame.end_ns, "meta": frame.meta}
            return int(self._pub.send(frame.array, timeout, header=frame.header, **about))
        if self._is_native:
            return handles.send_encoded(self._pub, body, timeout)
        return int(self._pub.send(bytes(body), timeout))

    def _send_again(self) -> bool:
        while self._again:
            one = self._again[0]
            if not self._send(one.body, one.mark):
                return False
            self._again.popleft()
        return True

    def settle(self) -> list[tuple[int, int]]:
        """The marks of the messages that have arrived since the last call, in order. Call it often."""
        if not self.is_far:
            marks = [one.mark for one in self._sent]
            self._sent.clear()
            return marks
        if self._pub.closed:
            if time.monotonic() >= self._try_at:
                self._begin_again()
            return []
        self._read, replaced = self._pub.progress()
        readers = self._pub.readers
        if replaced or (self._heard and not readers):
            self._begin_again()
            return []
        self._heard = self._heard or bool(readers)
        marks = []
        while self._sent and self._sent[0].end <= self._read:
            marks.append(self._sent.popleft().mark)
        self._send_again()
        return marks

    def _begin_again(self) -> None:
        """Another publication, whose first receiver gets all that nobody is known to have read."""
        self._pub.close()
        self.resent += len(self._sent)
        self._again.extendleft(reversed(self._sent))
        self._sent.clear()
        self._heard = False
        try:
            self._open()
        except SystemFailure:  # as long as the network is down
            self._try_at = time.monotonic() + RETRY_SECONDS
        else:
            self._send_again()

    def close(self) -> None:
        """Ends the publication."""
        self._pub.close()
