"""How a recording begins: a writer for each channel, in a new recording or at the end of one that ended.

Gets its subscriptions from a `Connector`; knows folders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock._native import core as _native
from penstock.channels.uri.channel import parse
from penstock.errors import Invalid, NotFound, Unsupported
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import FORMAT, Description
from penstock.record.format.types import Connector, RecordingInfo
from penstock.record.keep import repair
from penstock.record.read.lister import Lister
from penstock.record.write.writer import PendingStreams, PendingWriter, RecordingWriter
from penstock.util.clock import Clock

Wanted = Callable[[Any], bool]


def any_subscription(_: Any) -> bool:
    """Of channels that are named."""
    return True


class WriterOpener:
    """Opens writers in an archive's folder."""

    def __init__(self, files: ArchiveFolder, lister: Lister, connector: Connector, clock: Clock) -> None:
        self._files, self._lister, self._connector, self._clock = files, lister, connector, clock

    def open(
        self,
        channel: str,
        start: str | int,
        extend: bool,
        segment_length: int,
        drop_after: float | None,
        pixels: bool = True,
        sent: bool = False,
        when_slow: str | None = None,
        wanted: Wanted = any_subscription,
    ) -> RecordingWriter | PendingWriter | None:
        """A channel's writer; a waiting one if the channel has had no publication yet. Arguments as in `Archive.record`.

        wanted: called with the opened subscription; if it returns False, nothing is recorded and the result is None.
        """
        kind = parse(channel).kind
        pixels = pixels and kind.by_reference
        found = self._extendable(channel, pixels) if extend and kind.sent_tap is None else None
        writer = None if found is None else self._extension(found, segment_length, drop_after, pixels, when_slow)
        if writer is not None:
            return writer
        if pixels and start != "newest":
            raise Unsupported(
                f"{channel}: start is {start!r}, and a recording of frames begins with the next one: leave start out"
            )
        if kind.own_positions and start != "newest":
            raise Unsupported(f"{channel}: start is {start!r}, and it keeps nothing to begin with: leave start out")
        if sent:
            subscription = self._connector.subscribe(channel, sent=True, start=start, drop_after=drop_after)
        else:
            options = _options(channel, drop_after, pixels, when_slow)
            subscription = self._connector.subscribe(channel, start=start, **options)
        if not wanted(subscription):
            subscription.close()
            return None
        if hasattr(subscription, "streams"):
            return PendingStreams(
                subscription, lambda stream, about: self._new(channel, stream, segment_length, about=about)
            )
        if not _native.decided(subscription):
            return PendingWriter(subscription, lambda: self._new(channel, subscription, segment_length, pixels))
        return self._new(channel, subscription, segment_length, pixels)

    def _new(
        self,
        channel: str,
        subscription: Any,
        segment_length: int,
        pixels: bool = False,
        about: dict[str, Any] | None = None,
    ) -> RecordingWriter:
        """A recording that begins at the subscription's position. about: the channel's description; None: taken from the
        subscription, because the channel may have been removed or replaced in the meantime. An earlier `start_position` in it makes the recording begin
        with a gap."""
        try:
            if about is None:
                about = self._connector.describe_opened(subscription, pixels=pixels)
            now = self._clock.now_ns()
            about = {"start_position": subscription.position, **about}
            folder, description, lock = self._files.begin(
                Description(id=0, channel=channel, created_ns=now, format=FORMAT, **about)
            )
        except BaseException:
            subscription.close()
            raise
        return RecordingWriter(folder, description, subscription, segment_length, description.start_position, 0, lock)

    def follow(self, writer: RecordingWriter) -> RecordingWriter:
        """Ends a writer's recording, and continues in another one that begins where it ends. The new one exists before the first ends."""
        position, now = writer.segment.position, self._clock.now_ns()
        folder, description, lock = self._files.begin(
            replace(writer.description, id=0, start_position=position, created_ns=now)
        )
        following = RecordingWriter(folder, description, writer.subscription, writer.segment_length, position, 0, lock)
        try:
            writer.folder.note_following(description.id)
            writer.hand_over()
        except BaseException:
            following.release()
            raise
        return following

    def _extension(
        self, info: RecordingInfo, segment_length: int, drop_after: float | None, pixels: bool, when_slow: str | None
    ) -> RecordingWriter | None:
        """Continues a recording. It takes the lock first, as another recorder may be writing it. None if the channel
        was removed and created again in the meantime."""
        folder = self._files.folder(info.id)
        lock, described, subscription = folder.lock(), folder.describe(), None
        try:
            holds = repair.close_crashed(folder)
            subscription = self._rejoin(info.channel, holds.end_position, drop_after, pixels, when_slow)
            if self._has_channel(subscription, described, pixels):
                return RecordingWriter(
                    folder, described, subscription, segment_length, holds.end_position, holds.messages, lock
                )
        except BaseException:
            if subscription is not None:
                subscription.close()
            folder.unlock(lock)
            raise
        subscription.close()
        folder.unlock(lock)
        return None

    def _has_channel(self, subscription: Any, described: Description, pixels: bool) -> bool:
        """Whether a subscription has the channel open that a recording describes."""
        try:
            return bool(self._connector.describe_opened(subscription, pixels=pixels)["epoch"] == described.epoch)
        except NotFound:  # no publication yet
            return False

    def _rejoin(
        self, channel: str, position: int, drop_after: float | None, pixels: bool, when_slow: str | None
    ) -> Any:
        """A subscription for a recorder that continues. A channel that no longer keeps the position is joined at the oldest one that it
        has, or, if it keeps none, at its newest end: the recorder finds the gap."""
        options = _options(channel, drop_after, pixels, when_slow)
        oldest = "newest" if parse(channel).kind.lossy else "earliest"
        start: str | int = "newest" if pixels else position  # positions of frames are the recording's own
        try:
            return self._connector.subscribe(channel, start=start, **options)
        except Invalid:
            return self._connector.subscribe(channel, start=oldest, **options)

    def _extendable(self, channel: str, pixels: bool) -> RecordingInfo | None:
        try:
            found, about = self._lister.find(channel), self._connector.describe(channel, pixels=pixels)
        except NotFound:
            return None
        described = self._lister.locate(found.id).describe()
        return found if (described.epoch, found.codec) == (about["epoch"], about["codec"]) else None


def _options(channel: str, drop_after: float | None, pixels: bool, when_slow: str | None) -> dict[str, Any]:
    """The options of a recorder's subscription that this kind of channel has."""
    kind = parse(channel).kind
    if not kind.lossy:
        return {"drop_after": drop_after}
    return {"pixels": pixels, "when_slow": when_slow} if kind.by_reference else {"conflate": False}
