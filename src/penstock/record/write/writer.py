"""Writers of recordings: each copies one channel into its recording's segments, or waits for the channel's first publication.

A writer copies the messages of its open subscription into its folder. The recorder calls it in turn.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from penstock._native import core as _native
from penstock.channels.uri.channel import parse
from penstock.errors import Invalid, TooSlow
from penstock.record.format import segment_totals, sync_marker
from penstock.record.format.catalog import Row
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.format.types import Progress, lost_messages
from penstock.util.files.durable import fsync_folder, naming_path, open_private

log = logging.getLogger("penstock")

TURN_BYTES = 16 << 20
DRAIN_NAPS, DRAIN_NAP_SECONDS = (
    20,
    0.002,
)  # for a claim that is about to be committed, or a dead writer's that is being padded
ARRIVAL_NAPS = 5  # for messages that a socket has
CLAIM_NAPS = 250  # in all, before a snapshot takes claims for ones that stay open


class RecordingWriter:
    """Copies one channel into its recording's segments, from position `base` on. `messages`: how many the recording holds before that.

    Owns the subscription and the folder's lock, and gives both back if it cannot begin. If the subscription is
    further on, the first turn records the gap.
    """

    def __init__(
        self,
        folder: RecordingFolder,
        description: Description,
        subscription: Any,
        segment_length: int,
        base: int,
        messages: int,
        lock: int,
    ) -> None:
        self.folder, self.description, self.subscription = folder, description, subscription
        self.segment_length = segment_length
        self.synced, self.messages_before = base, messages
        self.bytes_max: int | None = None  # bytes, after which another recording follows
        self.moved = 0
        self.lost = 0
        self.open_claims = 0  # that are padding in a snapshot
        self.unread = 0  # bytes that were not recorded in the end: something in front of them is not complete
        self.unsynced = False
        self._lock, self._mark, self._is_handed_over = lock, -1, False
        self._ended: Progress | None = None
        self._is_lost = False
        try:
            self._mark = folder.open_mark()
            self._write_mark(SyncMarker(base))  # it was closed at most up to here; now it is open again
            self.segment = self._new_segment(base, messages)
        except BaseException:
            self._release()
            raise

    def _new_segment(self, base: int, messages: int) -> _native.RecordingSegment:
        paths = self.folder.segment_paths(base)
        unnamed = paths.unnamed_index
        data = open_private(paths.data, os.O_RDWR | os.O_TRUNC)
        try:
            index = open_private(unnamed, os.O_RDWR | os.O_TRUNC)
        except BaseException:
            os.close(data)
            raise
        about = self.description
        segment = _native.RecordingSegment(
            data_fd=data,
            data_path=str(paths.data),
            index_fd=index,
            index_path=str(paths.index),
            base=base,
            term_length=about.term_length,
            initial_term_id=about.initial_term_id,
            stream_id=about.stream_id,
            recording=about.id,
            messages_before=messages,
            entries=0,
            data_length=0,
        )
        segment.sync()
        os.replace(unnamed, paths.index)  # an index never has its name without its header
        fsync_folder(self.folder.path)
        return segment

    @property
    def awaits(self) -> list[Any]:
        """The subscriptions that the recorder waits on when there is nothing to record."""
        return [self.subscription]

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes: the recording is of a session that is over, and all of it has been recorded."""
        position = self.segment.position  # first: what is read meanwhile is not recorded yet
        return getattr(self.subscription, "has_ended", False) and position == self.subscription.position

    @property
    def is_encoding(self) -> bool:
        """Whether threads are about to finish something to record."""
        return False

    def turn(self) -> int:
        """Records the available messages, up to a bound. Returns the number of bytes."""
        room = self.segment_length - self.segment.length
        if self.bytes_max is not None:
            room = min(room, self.description.start_position + self.bytes_max - self.segment.position)
        try:
            moved = self.segment.record(self.subscription, min(TURN_BYTES, max(room, 1)))
        except (TooSlow, Invalid) as error:
            if isinstance(error, Invalid) and self.subscription.position <= self.segment.position:
                raise
            self._skip()
            return 1
        self.moved += moved
        self.unsynced = self.unsynced or moved > 0
        if self.segment.length >= self.segment_length:
            self._roll(self.segment.position)
        return moved

    def _skip(self) -> None:
        """The channel dropped the recorder's subscription: the missing bytes become a gap, and a new segment begins after it."""
        position = self.subscription.position
        missing = position - self.segment.position
        expected = parse(self.description.channel).kind.lossy or getattr(self.subscription, "lossy", False)
        level = logging.INFO if expected else logging.WARNING
        log.log(level, "recording %d of %s lost %d bytes", self.description.id, self.description.channel, missing)
        if missing > 0:
            self.segment.gap(missing)
            self.lost += missing
            self._roll(position)

    def _roll(self, base: int) -> None:
        messages = self.segment.messages
        self.segment.seal()
        self.segment.sync()
        self.segment = self._new_segment(base, messages)
        segment_totals.update(self.folder, self.description.start_position)

    def drain(self) -> None:
        """Records the messages that were published before this call. A recorder ends in front of a claim that stays open: the recording can go
        on there later. In a snapshot such a claim is padding, and what was committed behind it is recorded."""
        self.bytes_max = None
        for _ in range(ARRIVAL_NAPS if getattr(self.subscription, "arrives", False) else 0):
            if self.turn() == 0:  # it looked at the socket, unless another thread is about to
                time.sleep(DRAIN_NAP_SECONDS)
        target = self.subscription.position + self.subscription.lag  # a gap may precede it
        is_snapshot = self.description.snapshot is not None
        naps, naps_max, passed = 0, CLAIM_NAPS if is_snapshot else DRAIN_NAPS, 0
        while self.segment.position < target:
            if self.turn() > 0:
                naps = naps if is_snapshot else 0  # all claims below the target are as old as this call
            elif (target := min(target, self.subscription.position + self.subscription.lag)) <= self.segment.position:
                break  # of a pipe, the lag is an upper bound
            elif naps < naps_max:
                naps += 1
                time.sleep(DRAIN_NAP_SECONDS)
            else:
                passed = self.segment.pad_claim(self.subscription) if is_snapshot else -1
                self.open_claims += passed > 0
                if passed <= 0 and self.turn() == 0:
                    break
        left = (
            min(target - self.segment.position, self.subscription.lag) if passed < 0 else 0
        )  # a pipe's lag is an upper bound
        if left > 0:
            self.unread = left
            log.warning(
                "recording %d of %s ends where something is begun and not complete: %d bytes from there on are not recorded",
                self.description.id,
                self.description.channel,
                self.unread,
            )

    def sync(self) -> None:
        """Makes everything recorded durable, and then raises the mark."""
        if self.unsynced or self.synced != self.segment.position:
            self.segment.sync()
            self.unsynced = False
            self.synced = self.segment.position
            self._write_mark(SyncMarker(self.synced))

    def _write_mark(self, mark: SyncMarker) -> None:
        with naming_path(self.folder.path / sync_marker.NAME):
            sync_marker.write(self._mark, mark, self.description.id)

    def finish(self) -> None:
        """Ends the recording: closes the subscription, so that writers no longer wait for it, makes everything durable, seals."""
        self.stop_reading()
        self.seal(listed=False)

    def stop_reading(self) -> None:
        """Closes the subscription and makes everything durable."""
        self._is_lost = getattr(self.subscription, "is_lost", False)
        self.subscription.close()
        self.sync()

    def hand_over(self) -> None:
        """Makes everything durable and seals the recording. The subscription stays open: another writer has it."""
        self._is_handed_over = True
        self.sync()
        self.seal(listed=False)

    def seal(self, *, listed: bool) -> None:
        """Seals the recording and releases channel and folder. listed: the catalog has its row."""
        self.segment.seal()
        self.segment.sync()
        self.synced = self.segment.position
        segment_totals.update(self.folder, self.description.start_position)
        self._write_mark(SyncMarker(self.synced, closed=True, listed=listed, lost=self._is_lost))
        os.fsync(self._mark)
        self.release()

    def release(self) -> None:
        """Releases channel and folder without sealing."""
        if self._ended is None:
            self._ended = self.progress
            del self.segment  # and with it its descriptors
        self._release()

    def _release(self) -> None:
        try:
            if not self._is_handed_over:
                self.subscription.close()
        finally:
            if self._mark >= 0:
                os.close(self._mark)
                self._mark = -1
            if self._lock >= 0:
                self.folder.unlock(self._lock)
                self._lock = -1

    @property
    def row(self) -> Row:
        """The row that the catalog should have."""
        about = self.description
        return Row(about.channel, about.epoch, about.created_ns, about.start_position, self.synced)

    @property
    def progress(self) -> Progress:
        """The progress of this channel's recording. From any thread: the segment is there until `_ended` is."""
        segment = vars(self).get("segment")
        if self._ended is not None:
            return self._ended
        assert segment is not None
        return Progress(
            self.description.id,
            self.description.channel,
            segment.position,
            self.synced,
            segment.messages,
            self.moved,
            self.lost,
            lost_messages(self.description.codec, self.lost),
        )


class PendingWriter:
    """A channel that has had no publication yet: its recording is made once `begin` finds one.

    Owns the subscription until then. `make` opens the writer, in the recorder's thread.
    """

    def __init__(self, subscription: Any, make: Callable[[], RecordingWriter]) -> None:
        self.subscription, self._make = subscription, make

    lasting = False  # whether more writers may follow the first

    @property
    def awaits(self) -> list[Any]:
        """The subscriptions that the recorder waits on."""
        return [self.subscription]

    def begin(self, *, last: bool = False) -> list[RecordingWriter]:
        """The writer; none while the channel is open. last: nothing more is waited for."""
        return [self._make()] if _native.decided(self.subscription) else []

    def release(self) -> None:
        """Releases the channel."""
        self.subscription.close()


def no_new_writers() -> list[RecordingWriter | PendingWriter]:
    """For a recorder without patterns."""
    return []


class PendingStreams(PendingWriter):
    """A channel of several streams, which begin and end: each gets its own recording.

    Owns the tap that knows the streams. `make` opens the writer of one of them, which the tap gives with its description.
    """

    lasting = True

    def __init__(self, tap: Any, make: Callable[[Any, dict[str, Any]], RecordingWriter]) -> None:
        self.subscription, self._open = tap, make

    def begin(self, *, last: bool = False) -> list[RecordingWriter]:
        """The writers of the streams that appeared since the last call. last: also those whose codec is not known yet."""
        self.subscription.is_patient = not last
        return [self._open(stream, about) for stream, about in self.subscription.streams()]
