"""Types of archives' results and arguments: descriptions of recordings, messages, the way to channels.

Knows no file and no channel; every other module here may import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from penstock.channels.uri.value import AnyChannel, AnyChannels
from penstock.errors import PenstockError
from penstock.util.markup import count, moment, size, table
from penstock.util.strict import Strict


class Connector(Protocol):
    """How an archive reaches channels."""

    def subscribe(self, channel: str, **options: Any) -> Any:
        """An open subscription."""
        ...

    def subscribe_past(self, channel: str, past: Any, *, sent: bool = False, **options: Any) -> Any:
        """A recorder's subscription that begins in the past. past: `record.write.past.Past`."""
        ...

    def owners(self, channel: str) -> list[tuple[int, str, bool]]:
        """The members that the channel's file names: each one's process, its role, and whether it lives."""
        ...

    def receives(self, channel: str) -> bool:
        """Whether a channel of the network has messages here that came from elsewhere, or readers that wait for some."""
        ...

    def publish(self, channel: AnyChannel, **options: Any) -> Any:
        """An open publication for messages as the options say. `Mismatch` for a value that says otherwise."""
        ...

    def check_agreement(self, channels: AnyChannels, *, create: bool = True) -> None:
        """`Mismatch` for a value that says otherwise than its channel. create: makes a channel that is not there, without a publication."""
        ...

    def remove(self, channel: str) -> None:
        """Removes a channel's name."""
        ...

    def describe(self, channel: str, *, pixels: bool = False) -> dict[str, Any]:
        """epoch, term_length, initial_term_id, stream_id and codec of the channel that has this name now."""
        ...

    def describe_opened(self, subscription: Any, *, pixels: bool = False) -> dict[str, Any]:
        """The same of the channel that a subscription has open, whatever has its name now."""
        ...

    def identity(self, subscription: Any) -> object:
        """The identity of the channel that a subscription has open. Another channel of the same name has a different one."""
        ...

    def discover(self, patterns: Sequence[str]) -> Any:
        """The channels that match patterns, as they appear: the method `new` of the result returns those since the last call."""
        ...

    def record_in_process(self, archive: Path, channels: Sequence[str], options: dict[str, Any]) -> Recorder:
        """A recorder in a child process."""
        ...


@dataclass(frozen=True)
class Progress:
    """The progress of one channel's recording. Positions in bytes; `synced` survives a crash of process and machine.

    lost_messages: as `RecordingInfo` has it.
    """

    recording: int
    channel: str
    position: int
    synced: int
    messages: int
    bytes: int
    lost_bytes: int
    lost_messages: int | None = None


class Recorder(Strict, ABC):
    """Records channels until `stop()`; a context manager. Made by `Archive.record`. Thread-safe.

    An error (a full disk, a damaged channel, the death of a recorder's process) ends the recording, is kept in `error` and raised by
    `stop`. Everything synced before it stays readable.
    """

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """The error that ended the recording before `stop`; None while all is well."""

    @abstractmethod
    def stop(self) -> list[Progress]:
        """Records all messages published so far, seals, syncs and ends. Returns the end of each recording. Safe to call twice."""

    @abstractmethod
    def progress(self) -> list[Progress]:
        """The progress of each channel. A channel without a first publication has no recording yet."""

    @property
    @abstractmethod
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording; without those that have none yet, see `progress`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except (PenstockError, OSError):
            if kind is None:
                raise


@dataclass(frozen=True)
class RecordingInfo:
    """A recording at one moment. Positions and lengths in bytes, times in nanoseconds since the epoch.

    state: live (being recorded), closed, lost (the same, and its session on the network fell silent before it closed: messages may be missing
    at its end), crashed (its recorder died: readable up to `end_position`), partial (a part of it was pushed), or damaged: `damage` describes
    the damage and its location. For a damaged recording the other values are those that are still readable; an unreadable channel is "".
    snapshot: of a recording that a snapshot made: its `trigger`, `note`, `time_ns`, `before_s`, `after_s` and the `processes` that were there.
    """

    id: int
    channel: str
    state: str
    codec: dict[str, Any]
    start_position: int
    end_position: int
    synced_position: int
    messages: int
    bytes: int
    time_min: int
    time_max: int
    gaps: int
    lost_bytes: int
    segments: int
    created_ns: int
    epoch: int
    path: Path
    damage: str = ""
    snapshot: dict[str, Any] | None = None

    @property
    def lost_messages(self) -> int | None:
        """The number of messages in the gaps. None if messages differ in length: only the bytes are known."""
        return lost_messages(self.codec, self.lost_bytes)

    @property
    def encoding(self) -> str | None:
        """How the pixels of a recording of frames are stored, as "jpeg:90"; None if they are raw, or no pixels."""
        found = self.codec.get("encoding")
        return None if found is None else str(found)

    @property
    def ratio(self) -> float | None:
        """The bytes of a recording with an encoding, divided by those that a raw one of its frames has. None without."""
        if self.encoding is None or not self.messages:
            return None
        return self.bytes / (self.messages * int(self.codec["cell"]))

    @property
    def seconds(self) -> float:
        """The time from the first message's send time to the last message's."""
        return (self.time_max - self.time_min) / 1e9

    def _repr_html_(self) -> str:
        return Recordings([self])._repr_html_()


def lost_messages(codec: dict[str, Any], lost_bytes: int) -> int | None:
    """Messages in gaps of `lost_bytes` bytes, where all have the same size: frames with their pixels. A damaged one counts."""
    cell = codec.get("cell", 0)
    return -(-lost_bytes // cell) if isinstance(cell, int) and cell > 0 else None if lost_bytes else 0


def _lost(info: RecordingInfo) -> str:
    return f"{count(info.lost_messages)} frames" if info.lost_messages else size(info.lost_bytes)


class Recordings(list[RecordingInfo]):
    """Recordings, as `Archive.list` returns them: a list that a notebook shows as a table."""

    def _repr_html_(self, caption: str = "") -> str:
        if not self:
            return "<p>no recordings</p>"
        right = ("id", "messages", "bytes", "seconds", "gaps", "lost")
        rows = [
            (
                str(info.id),
                info.channel,
                info.state,
                moment(info.time_min if info.messages else info.created_ns),
                f"{info.seconds:,.1f}",
                count(info.messages),
                size(info.bytes),
                count(info.gaps),
                _lost(info),
            )
            for info in self
        ]
        titles = ("id", "channel", "state", "begins", "seconds", "messages", "bytes", "gaps", "lost")
        return table(titles, rows, right, caption)


class Recorded(NamedTuple):
    """A message out of a recording. data is decoded by the channel's codec; position: of its first frame. lost: bytes that are missing
    right in front of it."""

    data: Any
    position: int
    time_ns: int
    session: int
    lost: int = 0
