"""The recorder: copies the messages of channels into segments, in its own thread.

Its duty cycle reads all channels, syncs when due, and sleeps if there was no message. It is given open
subscriptions; it knows folders and the catalog.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence

from penstock._native import core as _native
from penstock.channels.checks import limit_of
from penstock.errors import Invalid, PenstockError, SystemFailure, Unsupported
from penstock.record.format.catalog import Catalog, Notes
from penstock.record.format.types import Progress, Recorder
from penstock.record.write.retention import Retention
from penstock.record.write.writer import PendingWriter, RecordingWriter, no_new_writers
from penstock.util.clock import Clock, SystemClock
from penstock.util.files.durable import system_failure

log = logging.getLogger("penstock")

BUSY_BYTES = 64 << 10
NAP_SECONDS = 0.002
IDLE_SECONDS = 0.05
ENDS_SECONDS = 0.2  # between two looks for sessions that are over
SEGMENT_LENGTH = 128 << 20


class ThreadRecorder(Recorder):
    """A recorder in a thread of this process.

    is_snapshot: there may be nothing to record; and whoever stops it gets its error, and removes the recordings then.
    """

    def __init__(
        self,
        writers: Sequence[RecordingWriter],
        catalog: Catalog,
        *,
        sync_interval: float,
        clock: Clock | None = None,
        waiting: Sequence[PendingWriter] = (),
        new_writers: Callable[[], list[RecordingWriter | PendingWriter]] = no_new_writers,
        retention: Retention | None = None,
        is_snapshot: bool = False,
    ) -> None:
        if not writers and not waiting and new_writers is no_new_writers and not is_snapshot:
            raise Invalid("record at least one channel")
        self._writers, self._waiting, self._interval = list(writers), list(waiting), sync_interval
        self._new_writers, self._retention = new_writers, retention
        self._ended: list[Progress] = []  # of sessions that are over
        self._next_look = float("-inf")
        self._notes = Notes(catalog)
        self._clock = clock or SystemClock()
        self._stop, self._is_snapshot = _native.Waker(), is_snapshot
        # A signal that ends a wait for the thread itself makes it look ended, and it is not.
        self._over = threading.Event()
        self._pid = os.getpid()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-recorder", daemon=True)

    @property
    def error(self) -> BaseException | None:
        """The error that ended the recording before `stop`; None while all is well."""
        return self._error

    def start(self) -> ThreadRecorder:
        """Starts the thread; returns itself."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise SystemFailure(errno.EAGAIN, f"cannot start a recorder: {error}") from error
        return self

    def _run(self) -> None:
        try:
            self._note()
            next_sync = self._clock.monotonic() + self._interval
            while not self._stop.woken:
                self.cycle()
                now = self._clock.monotonic()
                if now >= next_sync:
                    for writer in self._writers:
                        writer.sync()
                    self._note()
                    next_sync = now + self._interval
            self._record_rest()
            self._seal_all()
        except BaseException as error:  # any error: no caller would see it
            self._error = _as_own_error(error)
            self._release_all()
            if not self._is_snapshot:
                log.error("the recorder stopped: %s", error, exc_info=error)
        finally:
            self._over.set()

    def _note(self) -> None:
        self._notes.put({writer.description.id: writer.row for writer in self._writers})

    @property
    def _all_writers(self) -> list[RecordingWriter | PendingWriter]:
        return [*self._writers, *self._waiting]

    def _begin_new(self, *, last: bool = False) -> None:
        """Begins the recordings of new channels, and of channels with a first publication since the last call. last: there is no later call."""
        came = self._new_writers()
        self._waiting += [one for one in came if isinstance(one, PendingWriter)]
        self._writers = [*self._writers, *(one for one in came if isinstance(one, RecordingWriter))]
        for waiting in list(self._waiting):
            writers = waiting.begin(last=last)
            if writers:
                self._writers = [*self._writers, *writers]  # `progress` may be looking at the list that was
                if not waiting.lasting:
                    self._waiting.remove(waiting)

    def _seal_all(self) -> None:
        """Seals every recording. The catalog is written first, so that a recording marked as listed has its row."""
        for waiting in self._waiting:
            waiting.release()
        for writer in self._writers:
            writer.stop_reading()
        self._note()
        listed = self._notes.close()
        for writer in self._writers:
            writer.seal(listed=listed)

    def _release_all(self) -> None:
        """Closes every subscription and releases every lock, even after errors."""
        for writer in self._all_writers:
            try:
                writer.release()
            except BaseException as error:
                log.error("the recorder could not release %s: %s", writer.subscription.channel, error)
        if self._is_snapshot:
            self._notes.drop()
        else:
            self._notes.close(0)

    def cycle(self) -> None:
        """One turn over all channels, and a pause if there was little to do."""
        self._begin_new()
        self._end_sessions()
        if self._retention is not None:
            self._writers = self._retention(self._writers)
        moved = sum(writer.turn() for writer in self._writers)
        if moved >= BUSY_BYTES:
            return
        if moved > 0:
            _native.wait_any_frames([], NAP_SECONDS, self._stop)  # let a block gather: fewer, larger index entries
            return
        waits = [
            stream for one in self._all_writers for stream in one.awaits if isinstance(stream, _native.StreamHandle)
        ]
        is_encoding = any(writer.is_encoding for writer in self._writers)
        _native.wait_any_frames(waits, NAP_SECONDS if is_encoding else IDLE_SECONDS, self._stop)

    def _end_sessions(self) -> None:
        """Seals the recordings of sessions that are over."""
        now = self._clock.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + ENDS_SECONDS
        over = [writer for writer in self._writers if writer.has_ended]
        if not over:
            return
        for writer in over:
            writer.stop_reading()
        self._note()
        for writer in over:
            writer.seal(listed=False)
        ended = self._ended if self._retention is None else self._retention.ended
        ended += [writer.progress for writer in over]
        self._writers = [writer for writer in self._writers if writer not in over]

    def _record_rest(self) -> None:
        """Records all messages that were published before `stop`."""
        self._begin_new(last=True)
        for writer in self._writers:
            writer.drain()

    def stop(self) -> list[Progress]:
        """Records all messages published so far, of a network channel those that have arrived, seals, syncs and ends. Returns the end of each
        recording. Safe to call twice. In a forked child it ends nothing: the recording goes on in its parent."""
        if self._pid != os.getpid():
            return self.progress()
        self._stop.wake()
        if self._thread.ident is not None:
            self._over.wait()
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.progress()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the recorder has ended, by `stop` in another thread or by an error. False if it has not after `timeout` seconds.

        `Unsupported` in a forked child: its parent has the recorder."""
        if self._pid != os.getpid():
            raise Unsupported("the recorder is another process's, which this one was forked from: wait for it there")
        return self._over.wait(limit_of(timeout))

    def progress(self) -> list[Progress]:
        """The progress of each channel. A channel without a first publication has no recording yet. With limits, recordings that ended
        and still exist are first."""
        ended = self._ended if self._retention is None else self._retention.ended
        return [*ended, *(writer.progress for writer in self._writers)]

    @property
    def writers(self) -> list[RecordingWriter]:
        """The writers of the recordings that have begun."""
        return list(self._writers)

    @property
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording; without those that have none yet, see `progress`."""
        return {row.channel: row.recording for row in self.progress()}


def _as_own_error(error: BaseException) -> BaseException:
    """A system call's error as this library's; any other unchanged."""
    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        return system_failure(error)
    return error
