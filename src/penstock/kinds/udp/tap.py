"""The recorder's view of a `udp:` channel: one tap per session, each for its own recording. Knows descriptions and taps."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import patience
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Corrupt
from penstock.kinds.udp import endpoint as udp_endpoint
from penstock.kinds.udp import images
from penstock.kinds.udp import status as udp_status
from penstock.kinds.udp.ended_logs import EndedLogs
from penstock.kinds.udp.options import UdpReaderOptions

log = logging.getLogger("penstock")

FOLDER_TICK_NS = 100_000_000  # more than the resolution of a folder's time of change
RETURNS_WITHIN = 2.0  # seconds: what a session that fell silent has to come back, as subscriptions give it
TELLS_WITHIN = 3.0  # seconds: a Penstock peer announces its codec once per second


class SessionTap(_native.Tap):
    """A recorder's reader of one session. lossy: messages may be lost on the way, as the subscriptions here have chosen."""

    channel: str
    lossy: bool
    arrives = True  # by a socket, which may have messages that this machine's copy has not
    first: int  # the position at which this machine's copy of the session began
    _lost_since: float | None

    def __init__(self, end: _native.StreamEnd, channel: str, *, lossy: bool = False, first: int = 0) -> None:
        super().__init__(end)
        self.channel, self.lossy, self.first = channel, lossy, first
        self._lost_since = None

    @property
    def is_lost(self) -> bool:
        """Whether the session fell silent before it closed, and all that was received has been read."""
        return _native.udp_stream_end(self) == "lost"

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, and all of it has been read: its sender said so, or it is lost and had the time to come back."""
        how = _native.udp_stream_end(self)
        if how != "lost":
            return how == "closed"
        now = time.monotonic()
        self._lost_since = now if self._lost_since is None else self._lost_since
        return now - self._lost_since >= RETURNS_WITHIN


class SentSession(SessionTap):
    """A recorder's reader of one publication's log. A publication says in its log that it ends, unless it is killed."""

    arrives = False

    @property
    def is_lost(self) -> bool:
        """Whether the publication was killed."""
        about = self._about()
        return about["closed_at"] is None and not _has_publication(about)

    @property
    def has_ended(self) -> bool:
        """Whether the publication is gone, and all of it has been read."""
        about = self._about()
        return self.lag == 0 and (about["closed_at"] is not None or not _has_publication(about))

    def _about(self) -> dict[str, Any]:
        """What the file of the log says, and how many names it has."""
        found: dict[str, Any] = _native.look_at_file(
            self, lambda fd, path: _native.inspect_log(fd, path) | {"names": os.fstat(fd).st_nlink}
        )
        return found


def _has_publication(about: dict[str, Any]) -> bool:
    """Whether a log has its writer, or is about to get it: it has its name before, and its maker may be slow."""
    if any(member["role"] != udp_status.SENDER_ROLE for member in about["members"]):
        return True
    if about["names"] == 0 or about["position"] != about["start_position"]:
        return False
    return time.time_ns() - about["created_ns"] < udp_status.ABANDONED_NS or _is_alive(about["creator_pid"])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


class UdpTap(SessionTap):
    """A recorder's place at an endpoint. is_patient: whether it waits for the codec of a session that has not announced one."""

    is_patient = True

    def __init__(self, end: _native.StreamEnd, channel: str, path: str, *, lossy: bool) -> None:
        super().__init__(end, channel, lossy=lossy)
        self._path = path
        self._seen: dict[int, float] = {}
        self._announced: set[int] = set()

    def streams(self) -> list[tuple[SessionTap, dict[str, Any]]]:
        """The sessions that are new since the last call, each with the description for its recording."""
        found = []
        for about in _native.udp_streams(self):
            number = about["number"]
            codec = None if number in self._announced else self._codec(about)
            if codec is None:
                continue
            self._announced.add(number)
            description = {name: about[name] for name in ("term_length", "initial_term_id", "stream_id")}
            description |= {"epoch": images.epoch_of(f"{self._path}.{number}.image"), "codec": codec.spec}
            first = images.first_position(f"{self._path}.{number}.image")
            tap = SessionTap(_native.udp_stream(self, number), self.channel, lossy=self.lossy, first=first)
            if about["skipped"]:  # the recording begins with a gap: where the session was when it fell silent
                description["start_position"] = tap.position - about["skipped"]
            found.append((tap, description))
        return found

    def _codec(self, about: dict[str, Any]) -> Codec | None:
        """A session's codec; None while its publication may still announce it. Messages without a time are from foreign peers."""
        if about["description"]:
            return codecs.from_metadata(about["description"], self.channel)
        if about["time_ns"] is None:
            return None
        since = self._seen.setdefault(about["number"], time.monotonic())
        waits = self.is_patient and about["time_ns"] != 0 and time.monotonic() - since <= TELLS_WITHIN
        return None if waits else codecs.BYTES


def open_tap(channel: Channel, *, start: str | int = "newest", drop_after: float | None = None) -> UdpTap:
    """A recorder's place at the endpoint, with the options that the endpoint has already, or those of any subscription."""
    name, position = opening.start_of(start, ("newest", "earliest"))
    place, wait = opening.place_of(channel), patience(None, drop_after)

    def join(fd: int, keys: list[bytes]) -> tuple[_native.StreamEnd, bool]:
        return _native.udp_tap(fd, place, name, position, wait, keys), _native.inspect_endpoint(fd, place)["reliable"]

    end, reliable = udp_endpoint.join_endpoint(channel, UdpReaderOptions(), join, strict=False)
    return UdpTap(end, str(channel), str(files.folder() / files.file_name(channel)), lossy=not reliable)


class LeftTap:
    """What the dead have left of an endpoint that no process reads any more: the images of its sessions, as they lie. It opens no socket, so
    nothing is received, and no sender hears of it."""

    is_patient = True  # nothing more arrives

    def __init__(self, channel: Channel, drop_after: float | None) -> None:
        self.channel = str(channel)
        self._there: list[tuple[SessionTap, dict[str, Any]]] = []
        try:
            for path, codec in images.left(channel):
                with contextlib.suppress(FileNotFoundError, Corrupt):
                    tap, about, _ = _open_log(path, self.channel, ("earliest", 0), patience(None, drop_after))
                    about |= {"epoch": images.epoch_of(path), "codec": codec.spec}
                    self._there.append((tap, about))
        except BaseException:
            self.close()
            raise

    def streams(self) -> list[tuple[SessionTap, dict[str, Any]]]:
        """The sessions, each with the description for its recording; none but the first time."""
        there, self._there = self._there, []
        return there

    def close(self) -> None:
        """Releases the images whose recordings have not begun."""
        for tap, _ in self._there:
            tap.close()
        self._there = []


def open_left_tap(channel: Channel, *, drop_after: float | None = None) -> LeftTap:
    """A recorder's view of what the dead have left of an endpoint."""
    return LeftTap(channel, drop_after)


def _open_log(
    path: str, channel: str, start: tuple[str, int], patience: float, kind: type[SessionTap] = SessionTap
) -> tuple[SessionTap, dict[str, Any], bytes]:
    """A recorder's reader of the log in a file, its description without epoch and codec, and the file's own description of the codec."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        about = _native.inspect_log(fd, path)
        end = _native.log_reader(fd, path, *start, patience)
    finally:
        os.close(fd)
    description = {name: about[name] for name in ("term_length", "initial_term_id", "stream_id")}
    return kind(end, channel, first=about["start_position"]), description, about["metadata"]


class SentTap:
    """A recorder's view of the publications of this machine: one log each, with or without receivers.

    A publication waits for the recorder as for any reader. A later publication is recorded from its first message, also if it has ended
    when the recorder looks: it leaves its log. What it had overwritten by then is a gap.
    """

    is_patient = True  # a log has its codec

    def __init__(self, channel: Channel, start: str | int, drop_after: float | None) -> None:
        self.channel = str(channel)
        self._channel, self._patience = channel, patience(None, drop_after)
        self._start = opening.start_of(start, ("newest", "earliest"))
        self._known: set[tuple[int, int]] = set()  # what a log is, whatever its name
        self._left: set[str] = set()  # logs of publications that have ended, which other recorders may need
        self._listed = (0, 0), 0  # when the folders had changed last, and when they were listed; ns
        self._ended = EndedLogs(channel)
        self._is_first = True
        self._there: list[tuple[SessionTap, dict[str, Any]]] = []
        try:
            self._there = self._new()  # an existing publication is recorded from now, not from the first turn
        except BaseException:
            self.close()
            raise

    def streams(self) -> list[tuple[SessionTap, dict[str, Any]]]:
        """The publications that are new since the last call, each with the description for its recording."""
        there, self._there = self._there, []
        return there + self._new()

    def _new(self) -> list[tuple[SessionTap, dict[str, Any]]]:
        self._left = {path for path in self._left if not self._ended.done_with(path)}
        if missed := self._ended.missed():
            log.warning(
                "%s: %d publications ended while the recorder was behind: they are not recorded", self.channel, missed
            )
        if not self._has_changed():
            return []
        found, is_first, self._is_first = [], self._is_first, False
        logs = udp_status.logs(
            self._channel
        )  # first: a log that is left in the meantime is listed twice, and not missed
        for path, is_left in [*((path, False) for path in logs), *((path, True) for path in self._ended.paths())]:
            with contextlib.suppress(FileNotFoundError, Corrupt):  # it is being removed, or has another name now
                identity = _identity(path)
                if identity not in self._known and not (is_left and is_first and self._start[0] == "newest"):
                    found.append(self._opened(path, is_first))
                self._known.add(identity)
                if is_left:
                    self._left.add(path)
        return found

    def _has_changed(self) -> bool:
        """Whether files were added or removed. Two changes may have one time stamp, so a folder that has just changed is listed again."""
        now, changed = time.time_ns(), [0, 0]
        for n, folder in enumerate((files.folder(), self._ended.folder)):
            with contextlib.suppress(FileNotFoundError):
                changed[n] = os.stat(folder).st_mtime_ns
        before, listed = self._listed
        self._listed = (changed[0], changed[1]), now
        return self._listed[0] != before or listed - max(changed) < FOLDER_TICK_NS

    def close(self) -> None:
        """Releases the logs whose recordings have not begun. The other logs belong to the taps of their sessions."""
        for tap, _ in self._there:
            tap.close()
        self._there = []
        self._ended.close()

    def _opened(self, path: str, is_first: bool) -> tuple[SessionTap, dict[str, Any]]:
        start = self._start if is_first else ("earliest", 0)
        tap, about, metadata = _open_log(path, self.channel, start, self._patience, SentSession)
        if not is_first:
            about["start_position"] = tap.first
        codec = codecs.from_metadata(metadata, self.channel)
        return tap, about | {"epoch": files.new_epoch(), "codec": codec.spec}


def _identity(path: str) -> tuple[int, int]:
    """What a log is: its file, and when that was made."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.fstat(fd).st_ino, _native.inspect_log(fd, path)["created_ns"]
    finally:
        os.close(fd)


def open_sent_tap(channel: Channel, *, start: str | int = "newest", drop_after: float | None = None) -> SentTap:
    """A recorder's view of the publications of this machine."""
    return SentTap(channel, start, drop_after)
