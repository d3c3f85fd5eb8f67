"""Recordings of frames whose pixels are encoded: by threads, in order, with bounded memory. The channel's writer waits for none of them.

A tap takes frames from the channel as long as there is room for them. Without room they stay in the channel, which overwrites
them: then they are a gap, as behind a slow disk. Knows taps and segments; how pixels are encoded, `codecs.pixels` knows.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from penstock._native import core as _native
from penstock.codecs import pixels
from penstock.codecs.frames import ENCODED, FrameFormat
from penstock.record.write.writer import DRAIN_NAP_SECONDS, DRAIN_NAPS, RecordingWriter

log = logging.getLogger("penstock")

THREADS_MIN, THREADS_MAX = 2, 8
ROOM_BYTES, ROOM_MIN, ROOM_MAX = 64 << 20, 2, 64  # of frames that are encoded or wait for it
Encode = Callable[[FrameFormat, bytes, pixels.Encoding], bytes]


class Encoded(NamedTuple):
    """A frame that was taken. lost: frames that the channel overwrote right before it."""

    lost: int
    message: bytes
    time_ns: int
    session: int


class _Job(NamedTuple):
    lost: int
    message: Future[bytes]
    time_ns: int
    session: int


class EncodingTap:
    """A recorder's subscription to frames, which gives them encoded. Owns the subscription and the threads. One thread at a time.

    cell: bytes that a raw recording has for each frame: positions of the subscription count them.
    """

    def __init__(
        self, subscription: Any, codec: dict[str, Any], encoding: pixels.Encoding, encode: Encode = FrameFormat.encoded
    ) -> None:
        self.subscription, self.channel = subscription, subscription.channel
        self.cell = int(codec["cell"])
        self._form, self._encoding, self._encode = FrameFormat(codec), encoding, encode
        self._jobs: deque[_Job] = deque()
        self._room = max(ROOM_MIN, min(ROOM_MAX, ROOM_BYTES // self.cell))
        self._next = subscription.position
        self._is_full = self._has_warned = self._has_ended = False
        threads = max(THREADS_MIN, min(THREADS_MAX, len(os.sched_getaffinity(0))))
        self._pool = ThreadPoolExecutor(threads, "penstock-encoder")

    @property
    def position(self) -> int:
        """The position in the channel behind the frames that were taken."""
        return int(self.subscription.position)

    @property
    def lag(self) -> int:
        """Bytes of frames that the channel has beyond that."""
        return int(self.subscription.lag)

    @property
    def is_full(self) -> bool:
        """Whether it takes no frame now. Once there is no room it waits until half of it is free: so losses are few long gaps."""
        if self._has_ended or len(self._jobs) >= self._room:
            self._is_full = True
        elif len(self._jobs) <= self._room // 2:
            self._is_full = False
        return self._is_full

    @property
    def has_jobs(self) -> bool:
        """Whether frames that were taken are still to be recorded."""
        return bool(self._jobs)

    def take(self) -> int:
        """Takes the frames that are there, as far as there is room. Returns how many."""
        taken = 0
        while not self.is_full and (found := _native.take_message(self.subscription)) is not None:
            position, message, time_ns, session = found
            lost, self._next = (position - self._next) // self.cell, position + self.cell
            try:
                encoded = self._pool.submit(self._run, message)
            except RuntimeError:  # the interpreter exits: this thread is about to be stopped, wherever it is
                self._has_ended = True
                break
            self._jobs.append(_Job(lost, encoded, time_ns, session))
            taken += 1
        return taken

    def _run(self, message: bytes) -> bytes:
        """A message encoded, in one of the threads. One that cannot be encoded is kept as it is."""
        try:
            return self._encode(self._form, message, self._encoding)
        except Exception as error:
            if not self._has_warned and not isinstance(error, ValueError | struct.error):  # of a damaged note
                self._has_warned = True
                log.warning("%s: frames are recorded raw, as %s failed: %s", self.channel, self._encoding, error)
            return ENCODED.pack(pixels.RAW) + message[ENCODED.size :]

    def next_encoded(self, *, wait: bool = False) -> Encoded | None:
        """The next frame in the channel's order; None if it is still being encoded. wait: until it is."""
        if not self._jobs or not (wait or self._jobs[0].message.done()):
            return None
        job = self._jobs.popleft()
        return Encoded(job.lost, job.message.result(), job.time_ns, job.session)

    def close(self) -> None:
        """Closes the subscription and ends the threads, after the frames that they are encoding."""
        try:
            self.subscription.close()
        finally:
            self._jobs.clear()
            self._pool.shutdown(wait=True, cancel_futures=True)


class EncodingWriter(RecordingWriter):
    """Records an `EncodingTap`. Positions are the recording's own, and count the bytes of the encoded frames; of a gap, those of raw ones."""

    subscription: EncodingTap

    @property
    def awaits(self) -> list[Any]:
        """Nothing while frames that are there are left in the channel."""
        return [] if self.subscription.is_full else [self.subscription.subscription]

    @property
    def is_encoding(self) -> bool:
        """Whether frames are about to be encoded."""
        return self.subscription.has_jobs

    def turn(self) -> int:
        """Records the frames that are encoded, and takes others. Returns the number of bytes, or of frames."""
        taken = self.subscription.take()
        return self._record() + taken

    def _record(self, *, wait: bool = False) -> int:
        """Records the frames that are encoded, up to the recording's limit."""
        moved = 0
        while self._has_room() and (frame := self.subscription.next_encoded(wait=wait)) is not None:
            if frame.lost > 0:
                self._note_lost(frame.lost)
            moved += self.segment.append(frame.message, frame.time_ns, frame.session)
            self.unsynced = True
            if self.segment.length >= self.segment_length:
                self._roll(self.segment.position)
        self.moved += moved
        return moved

    def _has_room(self) -> bool:
        return self.bytes_max is None or self.segment.position < self.description.start_position + self.bytes_max

    def _note_lost(self, frames: int) -> None:
        missing = frames * self.subscription.cell
        log.info("recording %d of %s lost %d frames", self.description.id, self.description.channel, frames)
        self.segment.gap(missing)
        self.lost += missing
        self._roll(self.segment.position + missing)

    def stop_reading(self) -> None:
        """Records the frames that were taken, closes the subscription and makes everything durable."""
        self._record(wait=True)
        super().stop_reading()

    def drain(self) -> None:
        """Records the frames that were published before this call."""
        self.bytes_max = None
        tap = self.subscription
        target, naps = tap.position + tap.lag, 0
        while tap.position < target and naps < DRAIN_NAPS:
            taken = tap.take()
            naps = 0 if taken or tap.has_jobs else naps + 1
            if not self._record(wait=tap.is_full) and not taken:
                time.sleep(DRAIN_NAP_SECONDS)
        self._record(wait=True)
