"""The recorder: moves what flows on channels into segments, in a thread of its own.

A duty cycle takes what is there from every channel, syncs when it is time, and sleeps when nothing came. Gets open
subscriptions handed in; knows folders and the catalog.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from typing import Any

from penstock._native import core as _native
from penstock.channel import parse
from penstock.clock import Clock, SystemClock
from penstock.errors import Closed, Dropped, Invalid, PenstockError
from penstock.record.catalog import Catalog
from penstock.record.folder import Description, RecordingFolder, fsync_folder

log = logging.getLogger("penstock")

TURN_BYTES = 16 << 20
BUSY_BYTES = 64 << 10
NAP_SECONDS = 0.002
IDLE_SECONDS = 0.05
SEGMENT_LENGTH = 128 << 20


@dataclass(frozen=True)
class Progress:
    """How far one channel's recording is. Positions in bytes; `synced` survives a crash of process and machine."""

    recording: int
    channel: str
    position: int
    synced: int
    messages: int
    bytes: int
    lost_bytes: int


class Track:
    """One channel's way into its recording's segments, from position `base` on, before which it holds `messages`.

    A subscription that stands further on has missed what lies between: the first turn notes the gap.
    """

    def __init__(
        self,
        folder: RecordingFolder,
        description: Description,
        subscription: Any,
        segment_length: int,
        base: int,
        messages: int,
    ) -> None:
        self.folder, self.description, self.subscription = folder, description, subscription
        self.segment_length = segment_length
        self.synced = base
        self.moved = 0
        self.lost = 0
        self.unsynced = False
        self._lock = folder.lock()
        self.segment = self._new_segment(base, messages)

    def _new_segment(self, base: int, messages: int) -> _native.RecordingSegment:
        paths = self.folder.segment_paths(base)
        unnamed = paths.unnamed_index
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        data, index = os.open(paths.data, flags, 0o600), os.open(unnamed, flags, 0o600)
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

    def turn(self) -> int:
        """Records what is there, up to a bound; how many bytes."""
        room = self.segment_length - self.segment.length
        try:
            moved = self.segment.record(self.subscription, min(TURN_BYTES, max(room, 1)))
        except Dropped:
            self._skip()
            return 1
        self.moved += moved
        self.unsynced = self.unsynced or moved > 0
        if self.segment.length >= self.segment_length:
            self._roll(self.segment.position)
        return moved

    def _skip(self) -> None:
        """The channel let us go: what is missing becomes a gap, and a new segment begins after it."""
        position = self.subscription.position
        missing = position - self.segment.position
        level = logging.INFO if parse(self.description.channel).lossy else logging.WARNING  # there it is to be expected
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

    def sync(self, catalog: Catalog) -> None:
        """Makes what was recorded durable, then says so."""
        if not self.unsynced:
            return
        self.segment.sync()
        self.unsynced = False
        self.synced = self.segment.position
        catalog.synced(self.description.id, self.synced)

    def finish(self, catalog: Catalog) -> None:
        """Seals the last segment and lets go of the channel."""
        self.segment.seal()
        self.segment.sync()
        self.synced = self.segment.position
        catalog.synced(self.description.id, self.synced)
        self.release()

    def release(self) -> None:
        """Lets go of channel and folder without sealing."""
        self.subscription.close()
        if self._lock >= 0:
            self.folder.unlock(self._lock)
            self._lock = -1

    @property
    def progress(self) -> Progress:
        """How far this is."""
        return Progress(
            self.description.id,
            self.description.channel,
            self.segment.position,
            self.synced,
            self.segment.messages,
            self.moved,
            self.lost,
        )


class Recorder:
    """Records channels in a thread until `stop()`; a context manager. Made by `Archive.record`.

    Thread-safe. An error (a full disk, a damaged channel) ends the recording, is kept in `error` and raised by `stop`;
    what was synced stays.
    """

    def __init__(
        self, tracks: list[Track], catalog: Catalog, *, sync_interval: float, clock: Clock | None = None
    ) -> None:
        if not tracks:
            raise Invalid("record at least one channel")
        self._tracks, self._catalog, self._interval = tracks, catalog, sync_interval
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-recorder", daemon=True)

    def start(self) -> Recorder:
        """Begins; returns itself."""
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            next_sync = self._clock.monotonic() + self._interval
            while not self._stop.is_set():
                self.cycle()
                now = self._clock.monotonic()
                if now >= next_sync:
                    for track in self._tracks:
                        track.sync(self._catalog)
                    next_sync = now + self._interval
            self._drain()
            for track in self._tracks:
                track.finish(self._catalog)
        except (PenstockError, OSError) as error:
            self.error = error
            log.exception("the recorder stopped")
            for track in self._tracks:
                track.release()

    def cycle(self) -> None:
        """One turn over all channels, and a rest if there was little to do."""
        moved = sum(track.turn() for track in self._tracks)
        if moved >= BUSY_BYTES:
            return
        if moved > 0:
            self._stop.wait(NAP_SECONDS)  # let a block gather: fewer, larger index entries
        else:
            _native.wait_any([track.subscription for track in self._tracks], IDLE_SECONDS, raw=True)

    def _drain(self) -> None:
        """What was published before stop() still goes in; what comes later need not."""
        for track in self._tracks:
            target = track.segment.position + track.subscription.lag
            while track.segment.position < target and track.turn() > 0:
                pass

    def stop(self) -> list[Progress]:
        """Records what is published already, seals, syncs, ends. How far each recording came. Safe to call twice."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error
        return self.progress()

    def progress(self) -> list[Progress]:
        """How far each channel is now."""
        return [track.progress for track in self._tracks]

    @property
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording."""
        return {track.description.channel: track.description.id for track in self._tracks}

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except (PenstockError, OSError, Closed):
            if kind is None:
                raise
