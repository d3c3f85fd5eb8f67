"""The black box: keeps watch for triggers, and takes a snapshot when one fires. One thread waits; another one takes the snapshot.

Nothing is polled but what a sampled trigger asks for. It knows triggers and archives; what to watch is the configuration's.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from penstock.channels.checks import callback
from penstock.errors import PenstockError, SystemFailure
from penstock.record.archive import Archive
from penstock.record.write import retention
from penstock.record.write.snapshot import Snapshot, SnapshotWish, check_wish
from penstock.util import units
from penstock.util.descriptors import SharedDescriptor
from penstock.util.strict import Strict
from penstock.watch.blackbox.calls import CallSocket, check_texts, escape_surrogates
from penstock.watch.blackbox.config import ANY, Config, Trigger, check, name_of
from penstock.watch.blackbox.diary import DIARY, NOTE_MAX, Diary, Firing, tell_result
from penstock.watch.blackbox.members import Ended, MemberWatch
from penstock.watch.blackbox.messages import MessageWatch
from penstock.watch.blackbox.samples import Sampled
from penstock.watch.blackbox.unfinished import Begun, Note, find_unfinished

log = logging.getLogger("penstock")

SECOND = 10**9
TOLD_SECONDS, TOLD_MAX = 60.0, 100  # an error is in the log once in this time
ERROR_PAUSE_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 86_400.0  # the system's own has a limit
FAILED_SECONDS = 1.0  # between two snapshots that fail, at least


@dataclass
class _Running:
    """A snapshot that is being taken."""

    thread: threading.Thread
    begun_ns: int
    end_ns: int
    firing: Firing
    note: Note | None
    result: Snapshot | PenstockError | None = None


class BlackBox(Strict):
    """Watches as its configuration says, until `close`. A context manager. Thread-safe.

    on_firing, on_snapshot: called in the box's thread for each firing, and for each snapshot or the error that ended it.
    `Invalid` for a wrong argument, and for a configuration that `load` would refuse.
    """

    def __init__(
        self,
        config: Config,
        *,
        on_firing: Callable[[Firing], None] | None = None,
        on_snapshot: Callable[[Snapshot | PenstockError], None] | None = None,
    ) -> None:
        callback(on_firing, "on_firing")
        callback(on_snapshot, "on_snapshot")
        self._config = config = check(config)
        self._on_firing = on_firing or (lambda firing: None)
        self._on_snapshot = on_snapshot or (lambda done: None)
        self._before, self._after = config.seconds("before"), config.seconds("after")
        self._cool_down, self._longest = config.seconds("cool_down"), config.seconds("longest")
        self._max_bytes = units.size(config.max_bytes, "max_bytes")
        self._archive = Archive(config.archive)
        self._asked: deque[Firing] = deque()  # by other threads
        self._diary = Diary(self._archive)
        self._running: _Running | None = None
        self._quiet_until = 0.0
        self._looks: list[float] = []
        self._told: dict[str, float] = {}
        self._stopped = False
        self._wakes = 0
        self._wake_write: SharedDescriptor | None = None  # None: closed
        self._selector = selectors.DefaultSelector()
        self._open = contextlib.ExitStack()
        try:
            with self._archive._files.removed_if_it_fails():
                self._open_all()
        except BaseException:
            self._open.close()
            raise
        self._thread = threading.Thread(target=self._run, name="penstock-blackbox", daemon=True)
        self._thread.start()

    def _open_all(self) -> None:
        self._open.callback(self._selector.close)
        self._wake_read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._open.callback(os.close, self._wake_read)
        self._wake_write = SharedDescriptor(write)
        self._open.callback(setattr, self, "_wake_write", None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._on_wake)
        calls = self._open.enter_context(CallSocket())
        self._selector.register(calls.fileno(), selectors.EVENT_READ, lambda: self._on_calls(calls))
        triggers = self._config.trigger
        self._sampled = [Sampled(one) for one in triggers if one.watch in ("rate", "latency", "silence")]
        self._deaths = [one for one in triggers if one.death is not None]
        self._named_calls = [one for one in triggers if one.call is not None]
        self._messages = [MessageWatch(one, self._selector, self._fire) for one in triggers if one.message is not None]
        for watch in self._messages:
            self._open.callback(watch.close)
        self._members = MemberWatch(self._selector, self._on_end, self._looks.extend)
        self._open.callback(self._members.close)
        self._on_channels()

    # ---- what other threads call ----

    def fire(self, name: str, note: str = "") -> bool:
        """Fires a trigger of this name. Safe in a signal's handler: it takes no lock, and after `close` returns False, which such a handler
        need not expect. `Invalid` for a name without 1 to 64 letters."""
        check_texts(name, note)
        if self._stopped:
            return False
        self._asked.append(Firing(name, note, time.time_ns()))  # atomic: a handler may interrupt this thread
        self._wake()
        return True

    @property
    def wakes(self) -> int:
        """How often the box's thread has woken up."""
        return self._wakes

    def close(self) -> None:
        """Ends watching. A snapshot that is being taken is completed with what has arrived. Safe to call twice."""
        self._stopped = True
        self._wake()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        write = self._wake_write  # held: its number stays this pipe's until the write is done
        if write is not None:
            with contextlib.suppress(OSError):  # it is full: the thread wakes anyway
                os.write(write.fd, b"!")

    # ---- the thread ----

    def _run(self) -> None:
        try:
            self._guarded(self._resume)
            while not self._stopped:
                self._guarded(self._turn)
            self._guarded(self._end)
        finally:
            self._open.close()

    def _turn(self) -> None:
        ready = self._selector.select(self._timeout())
        self._wakes += 1
        for key, _ in ready:
            if self._selector.get_map().get(key.fd) is key:  # another one may have ended it
                self._guarded(key.data)
        self._on_time()

    def _guarded(self, call: Callable[[], object]) -> None:
        """A part of the watch. Whatever its error, the others go on: a box that is blind misses the next trigger."""
        try:
            call()
        except Exception as error:
            self._wake()  # what was due is looked at again
            text = str(error) if isinstance(error, PenstockError | OSError) else repr(error)
            if time.monotonic() < self._told.get(text, 0.0):
                time.sleep(ERROR_PAUSE_SECONDS)  # it comes again and again
                return
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[text] = time.monotonic() + TOLD_SECONDS
            unknown = None if isinstance(error, PenstockError | OSError) else error
            log.error("the black box goes on after an error: %s", text, exc_info=unknown)

    def _timeout(self) -> float | None:
        """Seconds until the next thing that is due by time; None: nothing is."""
        due = [*self._looks, *(one.next for one in self._sampled)]
        if self._diary.due is not None:
            due.append(self._diary.due)
        return min(max(0.0, min(due) - time.monotonic()), LONGEST_WAIT_SECONDS) if due else None

    def _on_time(self) -> None:
        now = time.monotonic()
        if any(at <= now for at in self._looks):
            self._looks[:] = [at for at in self._looks if at > now]
            self._guarded(self._members.look)
            self._on_channels()
        for one in self._sampled:
            if one.next <= now:
                one.next = now + one.interval
                self._guarded(lambda one=one: self._sample(one, now))  # type: ignore[misc]
        if self._running is not None and self._running.result is not None:
            running = self._running
            self._guarded(lambda: self._finish(running))
        if self._diary.due is not None and now >= self._diary.due:
            self._guarded(self._diary.write)

    def _sample(self, one: Sampled, now: float) -> None:
        text = one.sample(now, self._members.about(one.trigger.target))
        if text:
            self._fire(name_of(one.trigger), text)

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass
        while self._asked:
            one = self._asked.popleft()
            self._fire(one.trigger, one.note, one.time_ns)

    def _on_calls(self, calls: CallSocket) -> None:
        for call in calls.calls():
            known = [one for one in self._named_calls if one.call in (ANY, call["name"])]
            if self._named_calls and not known:
                log.warning("no trigger has call = %r, and process %d called it", call["name"], call["pid"])
                continue
            note = f"process {call['pid']} called it" + (f": {call['note']}" if call["note"] else "")
            self._fire(name_of(known[0]) if known and known[0].call != ANY else call["name"], note)

    def _on_end(self, ended: Ended) -> None:
        for one in self._deaths:
            if _is_meant(one, ended):
                self._fire(name_of(one), _tell_end(ended))

    def _on_channels(self) -> None:
        for watch in self._messages:
            self._guarded(watch.open)

    # ---- snapshots ----

    def _fire(self, name: str, note: str, time_ns: int | None = None, count: int = 1) -> None:
        name, note = escape_surrogates(name), escape_surrogates(note)[:NOTE_MAX]
        firing = Firing(name, note, time.time_ns() if time_ns is None else time_ns, count)
        if (ended := self._running) is not None and ended.result is not None:
            self._guarded(lambda: self._finish(ended))
        if self._running is not None:
            firing.extends = True
            last = self._running.begun_ns + int(self._longest * SECOND)
            self._running.end_ns = min(max(self._running.end_ns, firing.time_ns + int(self._after * SECOND)), last)
        elif time.monotonic() >= self._quiet_until and not self._stopped:
            self._guarded(self._remake_archive)
            self._guarded(lambda: self._begin(firing))
            firing.snapshot = self._running is not None
        self._diary.add(firing)
        if firing.snapshot:
            self._guarded(self._diary.write)  # while the snapshot is taken, which waits for no disk
        self._guarded(lambda: self._on_firing(firing))

    def _remake_archive(self) -> None:
        """A new archive, if somebody has removed the folder of that which was there."""
        if self._archive._files.recordings.is_dir():
            return
        log.warning("%s was removed: it is made again", self._archive.path)
        self._archive = Archive(self._config.archive)
        self._diary.archive = self._archive

    def _resume(self) -> None:
        """Takes the newest snapshot again that a box had begun when it was killed, once, from what memory still has. An old one is only told."""
        left = find_unfinished(self._archive.path)
        for note in left:
            begun = note.begun
            firing = Firing(begun.trigger, begun.note, begun.time_ns, snapshot=True)
            again = note is left[-1] and begun.tries == 1 and time.time_ns() - begun.time_ns < self._longest * SECOND
            told = f"the black box was killed before the snapshot was complete{': it is taken again' if again else ''}"
            log.warning("%s, %s: %s", firing.trigger, firing.note or "fired", told)
            if again:
                self._begin(firing, begun.tries + 1)
            if not self._diary.has(firing):
                self._diary.add(firing)
            self._diary.add_outcome(firing, told)
            self._diary.write()
            note.remove()
            if again:
                self._on_firing(firing)

    def _begin(self, firing: Firing, tries: int = 1) -> None:
        wish = check_wish(
            self._config.channels,
            self._before,
            self._after,
            firing.note,
            firing.trigger,
            self._config.drop_after,
            self._config.pixels,
        )
        thread = threading.Thread(target=self._take, args=(wish, firing), name="penstock-snapshot", daemon=True)
        note = None
        try:
            note = Note.write(self._archive.path, Begun(firing.trigger, firing.note, firing.time_ns, tries))
        except Exception as error:  # the snapshot is worth a try
            log.warning("a snapshot that is killed will not be taken again: %s", error)
        end_ns = firing.time_ns + int(self._after * SECOND)
        self._running = _Running(thread, firing.time_ns, end_ns, firing, note)
        try:
            thread.start()
        except RuntimeError as error:
            self._running = None
            if note is not None:
                note.remove()
            raise SystemFailure(errno.EAGAIN, f"cannot start a snapshot: {error}") from error

    def _take(self, wish: SnapshotWish, firing: Firing) -> None:
        running = self._running
        assert running is not None
        try:
            result: Snapshot | PenstockError = self._archive._take_snapshot(
                wish, firing.time_ns, lambda: 0 if self._stopped else running.end_ns
            )
        except PenstockError as error:
            result = error
        except BaseException as error:
            result = PenstockError(repr(error))
        running.result = result
        self._wake()

    def _finish(self, running: _Running) -> None:
        running.thread.join()
        result = running.result
        assert result is not None
        self._running = None
        has_failed = isinstance(result, PenstockError)
        self._quiet_until = time.monotonic() + min(self._cool_down, FAILED_SECONDS if has_failed else math.inf)
        if has_failed:
            log.error("the black box could not take a snapshot: %s", result)
        self._diary.add_outcome(running.firing, tell_result(result))
        self._guarded(self._diary.write)
        if running.note is not None:
            self._guarded(running.note.remove)
        self._guarded(lambda: self._make_room(result))
        self._guarded(lambda: self._on_snapshot(result))

    def _make_room(self, done: Snapshot | PenstockError) -> None:
        """Deletes the oldest recordings beyond the limit. The snapshot that was just taken stays, and what triggers said."""
        newest = set() if isinstance(done, PenstockError) else {part.recording for part in done.parts}
        try:
            expired = retention.expire(
                self._archive._files,
                self._archive._lister,
                retention.Limits(self._max_bytes),
                time.time_ns(),
                lambda channel: True,
                force=False,
                spared=lambda info: info.id in newest or info.channel == DIARY,
            )
            for text in expired.kept:
                log.warning("%s", text)
            if newest and (size := sum(map(retention.files_bytes, self._archive.list()))) > self._max_bytes:
                log.warning("%s has %d bytes, more than max_bytes: the newest snapshot stays", self._archive.path, size)
        except (PenstockError, OSError) as error:
            log.warning("the black box could not remove old recordings: %s", error)

    def _end(self) -> None:
        self._guarded(self._on_wake)  # what was fired just before `close` is written, too
        if self._running is not None:
            running = self._running
            running.thread.join()
            self._guarded(lambda: self._finish(running))
        if self._diary.due is not None:
            self._diary.write()


def _is_meant(trigger: Trigger, ended: Ended) -> bool:
    if trigger.death == ANY:
        return bool(ended.wrote)
    assert trigger.death is not None
    is_unknown = bool(ended.died) and not ended.command.strip()  # it died before its command was read: it may be meant
    return is_unknown or trigger.death in ended.command


def _tell_end(ended: Ended) -> str:
    who = f"process {ended.pid}" if ended.pid else "a process"
    command = ended.command[:200].strip()
    what = f" ({command})" if command else ""
    if not ended.died:
        return f"{who}{what} ended"
    unknown = "" if command else "; its command is not known"
    return f"{who}{what} died without closing {', '.join(ended.died[:10])}{unknown}"


__all__ = ["DIARY", "BlackBox", "Firing"]
