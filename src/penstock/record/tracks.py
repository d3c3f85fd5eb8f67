"""How a recording begins: a track for each channel, in a new recording or at the end of one that ended.

Gets its subscriptions from a `Connector`; knows folders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock._native import core as _native
from penstock.channel import parse
from penstock.clock import Clock
from penstock.errors import Invalid, NotFound
from penstock.record import repair
from penstock.record.archive_folder import ArchiveFolder
from penstock.record.folder import FORMAT, Description
from penstock.record.listing import Listing
from penstock.record.track import StreamsTrack, Track, WaitingTrack
from penstock.record.types import Connector, RecordingInfo


class Tracks:
    """Opens tracks in an archive's folder."""

    def __init__(self, files: ArchiveFolder, listing: Listing, connector: Connector, clock: Clock) -> None:
        self._files, self._listing, self._connector, self._clock = files, listing, connector, clock

    def open(
        self,
        channel: str,
        start: str | int,
        extend: bool,
        segment_length: int,
        drop_after: float | None,
        pixels: bool = False,
        sent: bool = False,
    ) -> Track | WaitingTrack:
        """A channel's track; a waiting one if the channel has had no publication yet. Arguments as in `Archive.record`."""
        pixels = pixels and parse(channel).kind.by_reference
        found = self._extendable(channel, pixels) if extend else None
        if found is not None:
            return self._extension(found, segment_length, drop_after, pixels)
        if sent:
            subscription = self._connector.subscribe(channel, sent=True, start=start, drop_after=drop_after)
        else:
            subscription = self._subscribe(channel, start, drop_after, pixels)
        if hasattr(subscription, "streams"):
            return StreamsTrack(
                subscription, lambda stream, about: self._new(channel, stream, segment_length, about=about)
            )
        if not _native.decided(subscription):
            return WaitingTrack(subscription, lambda: self._new(channel, subscription, segment_length, pixels))
        return self._new(channel, subscription, segment_length, pixels)

    def _new(
        self,
        channel: str,
        subscription: Any,
        segment_length: int,
        pixels: bool = False,
        about: dict[str, Any] | None = None,
    ) -> Track:
        """A recording that begins where the subscription stands. about: what it keeps of the channel; None: asks for it. An earlier
        `start_position` in it makes the recording begin with a gap."""
        try:
            if about is None:
                about = self._connector.describe(channel, pixels=pixels)
            now = self._clock.now_ns()
            about = {"start_position": subscription.position, **about}
            folder, description, lock = self._files.begin(
                Description(id=0, channel=channel, created_ns=now, format=FORMAT, **about)
            )
        except BaseException:
            subscription.close()
            raise
        return Track(folder, description, subscription, segment_length, description.start_position, 0, lock)

    def follow(self, track: Track) -> Track:
        """Ends a track's recording, and goes on in another one that begins where it ends. The other one is there before the first ends."""
        position, now = track.segment.position, self._clock.now_ns()
        folder, description, lock = self._files.begin(
            replace(track.description, id=0, start_position=position, created_ns=now)
        )
        following = Track(folder, description, track.subscription, track.segment_length, position, 0, lock)
        try:
            track.folder.note_following(description.id)
            track.hand_over()
        except BaseException:
            following.release()
            raise
        return following

    def _extension(self, info: RecordingInfo, segment_length: int, drop_after: float | None, pixels: bool) -> Track:
        """Continues a recording. It takes the lock before it touches anything: another recorder may be writing it."""
        folder = self._files.folder(info.id)
        lock = folder.lock()
        try:
            holds = repair.close_crashed(folder)
            subscription = self._subscribe(info.channel, holds.end_position, drop_after, pixels)
        except BaseException:
            folder.unlock(lock)
            raise
        return Track(folder, folder.describe(), subscription, segment_length, holds.end_position, holds.messages, lock)

    def _subscribe(self, channel: str, start: str | int, drop_after: float | None, pixels: bool) -> Any:
        """A subscription for a recorder. A lossy channel that no longer keeps the position is joined at its newest end: the
        recorder finds the gap."""
        if not parse(channel).kind.lossy:
            return self._connector.subscribe(channel, start=start, drop_after=drop_after)
        options = {"conflate": False, **({"pixels": True} if pixels else {})}
        if start == "earliest" or pixels:
            start = "newest"  # it keeps no past; with pixels, positions are the recording's own
        try:
            return self._connector.subscribe(channel, start=start, **options)
        except Invalid:
            if isinstance(start, str):
                raise
            return self._connector.subscribe(channel, **options)

    def _extendable(self, channel: str, pixels: bool) -> RecordingInfo | None:
        try:
            found, about = self._listing.find(channel), self._connector.describe(channel, pixels=pixels)
        except NotFound:
            return None
        described = self._listing.locate(found.id).describe()
        return found if (described.epoch, found.codec) == (about["epoch"], about["codec"]) else None
