"""The main function of a recorder in a child process. The parent's handle is `penstock.record.ProcessRecorder`.

Ends when its parent asks it to, when its parent's process ends, or by SIGTERM or SIGHUP. Each time it seals the recording.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any, cast

from penstock.record.archive import Archive
from penstock.record.format.types import Recorder
from penstock.record.write.recorder import ThreadRecorder

CHECK_SECONDS = 0.5  # between checks for the parent, where the kernel does not report its end


class _Gone(Exception):
    """The parent does not listen any more."""


class _Parent:
    """The parent, as a pipe for answers."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)

    def say(self, answer: dict[str, Any]) -> None:
        """Sends one line. `_Gone` if that is not possible."""
        raw = json.dumps(answer).encode() + b"\n"
        try:
            while raw:
                raw = raw[os.write(self._fd, raw) :]
        except OSError:
            raise _Gone from None


def _rows(recorder: Recorder) -> dict[str, Any]:
    return {"progress": [asdict(row) for row in recorder.progress()]}


class _Watch:
    """Waits for everything that may end a recorder: a line from its parent, its parent's death, its own error, a signal."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self.signalled = ""
        self._received = b""
        self._poller = select.poll()
        self._poller.register(0, select.POLLIN)
        self._poller.register(self._wake_read, select.POLLIN)
        with contextlib.suppress(OSError):  # an old kernel, or a parent that has already ended: then it must poll
            self._poller.register(os.pidfd_open(parent), select.POLLIN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._by_signal)

    def _by_signal(self, number: int, _: object) -> None:
        self.signalled = signal.Signals(number).name
        self.wake()

    def wake(self) -> None:
        """Ends a wait. Safe in a signal's handler and in any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def parent_is_gone(self) -> bool:
        """Whether this process's parent has ended."""
        return os.getppid() != self._parent

    def word(self) -> str:
        """The parent's next line; empty after `CHECK_SECONDS`, or if something else happened."""
        if b"\n" not in self._received:
            for fd, _ in self._poller.poll(CHECK_SECONDS * 1000):
                if fd == 0:
                    more = os.read(0, 1 << 12)
                    if not more:
                        return "stop"  # every holder of the other end has ended, including the parent
                    self._received += more
        line, found, rest = self._received.partition(b"\n")
        if not found:
            return ""
        self._received = rest
        return line.decode()


def _serve(recorder: ThreadRecorder, watch: _Watch, parent: _Parent) -> None:
    """Answers the parent until it is time to end, then ends the recording."""

    def watch_parent() -> None:
        recorder.join()
        watch.wake()

    threading.Thread(target=watch_parent, name="penstock-watch", daemon=True).start()
    with contextlib.suppress(_Gone):
        parent.say(_rows(recorder))
        while True:
            word = watch.word()
            if word == "progress" and recorder.error is None:
                parent.say(_rows(recorder))
            elif word == "stop" or watch.signalled or recorder.error is not None or watch.parent_is_gone():
                break
    recorder.stop()


def run(job: str) -> None:
    """The child's work and its end. Nothing is open after a recording that ended well, so the interpreter's finalization is skipped,
    which would delay the parent by 30 ms."""
    status = main(job)
    if status:
        sys.exit(status)
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: there was none to inherit
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def main(job: str) -> int:
    """The child's work, from a job in JSON to the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C; it then requests a stop
    work = json.loads(job)
    watch, parent = _Watch(work["parent"]), _Parent(work["answers"])
    recorder: ThreadRecorder | None = None
    try:
        recorder = cast(ThreadRecorder, Archive(work["archive"]).record(work["channels"], **work["options"]))
        _serve(recorder, watch, parent)
        answer = _rows(recorder)
        if watch.signalled:
            answer |= {"error": "SystemFailure", "what": f"the recorder's process was ended by {watch.signalled}"}
    except Exception as error:
        answer = {"error": type(error).__name__, "what": str(error) or repr(error)}
        if recorder is not None:
            answer |= _rows(recorder)
    with contextlib.suppress(_Gone):
        parent.say(answer | {"last": True})
    return 1 if "error" in answer else 0
