"""The parent's handle on a recorder in a child process; the child is `penstock.record.recorder_process`.

They exchange lines of JSON over two pipes. The end of a pipe does not prove that the other side has ended, since a process forked
in the meantime may hold it open. The parent asks the kernel about its child; the child watches its parent's process.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.record.format.types import Progress, Recorder
from penstock.util.pool import environment_of_child

POLL_SECONDS = 0.1

_all: weakref.WeakSet[ProcessRecorder] = weakref.WeakSet()


class ProcessRecorder(Recorder):
    """A recorder in a child process.

    `error` is set at once if it failed or died, and `progress` and `stop` raise it then. A child forked later can neither query nor
    stop it.
    """

    def __init__(self, archive: Path, channels: Sequence[str], options: dict[str, Any]) -> None:
        job = {"archive": str(archive), "channels": list(channels), "options": options, "parent": os.getpid()}
        self._owner, self._lock = os.getpid(), threading.RLock()
        self._error: BaseException | None = None
        self._stopped = self._last = False
        self._calls = 0  # more than one: a signal's handler calls within a call
        self._read = b""
        try:
            self._child, self._answers = _start_child(job)
        except OSError as error:
            raise errors.SystemFailure(error.errno or 0, f"cannot start a recorder's process: {error}") from error
        _all.add(self)
        self._progress: list[Progress] = []
        with self._call():
            self._progress = self._await_answer()

    @property
    def pid(self) -> int:
        """The recorder's process."""
        return self._child.pid

    @property
    def error(self) -> BaseException | None:
        """The error that ended the recording before `stop`: an error in the recorder, or the death of its process. None while all is well."""
        with self._call():
            if self._error is None and not self._stopped and self._owner == os.getpid():
                self._check_child()
            return self._error

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """One call at a time, except that a signal's handler may stop the recorder within any other call. The outermost closes the pipes, when
        the child has ended."""
        with self._lock:
            self._calls += 1
            try:
                yield
            finally:
                self._calls -= 1
                if self._stopped and not self._calls:
                    for pipe in (self._child.stdin, self._answers):
                        if pipe is not None:
                            pipe.close()

    def _check_child(self) -> None:
        """Checks whether the child has ended. The child sends an unrequested line only when it ends, and it may die without one."""
        gone = self._child.poll() is not None
        line = self._read_line(0)
        if line:
            self._handle_line(line)
        elif gone and not self._stopped:
            self._report_death()

    def _read_line(self, timeout: float) -> bytes:
        """A line from the child; empty if none arrived within `timeout` seconds, or if the child has closed the pipe."""
        fd = self._answers.fileno()
        while b"\n" not in self._read:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            if not poller.poll(timeout * 1000):
                return b""
            more = os.read(fd, 1 << 16)
            if not more:
                return b""
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _await_answer(self) -> list[Progress]:
        """Waits for the child's next line, as long as there is a child."""
        while not self._stopped:  # by a signal's handler, in the meantime
            gone = self._child.poll() is not None  # before looking, so that the child's last line is read
            line = self._read_line(0 if gone else POLL_SECONDS)
            if line:
                self._handle_line(line)
            elif gone and not self._stopped:
                self._report_death()
            if self._error is not None:
                raise self._error
            if line:
                break
        return self._progress

    def _handle_line(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
        except ValueError:
            if self._calls > 1:  # the interrupted call has the beginning of this line
                return
            self._error = errors.SystemFailure(f"the recorder's process {self.pid} answered {line[:200]!r}")
            self._child.kill()
            self._reap_child()
            return
        if self._last:
            return
        self._last = bool(answer.get("last"))
        if "progress" in answer:
            self._progress = [Progress(**row) for row in answer["progress"]]
        if "error" in answer:
            kind = getattr(errors, answer["error"], errors.PenstockError)
            self._error = kind(answer["what"])
            self._reap_child()

    def _report_death(self) -> None:
        code = self._child.poll()
        if code == 0 and self._calls > 1:  # the interrupted call has its last line
            self._reap_child()
            return
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        what = f"the recorder's process {self.pid} ended with {how}; what it had synced is readable"
        self._error = errors.SystemFailure(what)
        self._reap_child()

    def _reap_child(self) -> None:
        """Waits for the child, which has ended."""
        self._stopped = True
        self._child.wait()

    def _request(self, what: bytes) -> list[Progress]:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: its last line, or its status, has the reason
            os.write(self._child.stdin.fileno(), what)
        return self._await_answer()

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise errors.Invalid(
                f"this recorder belongs to process {self._owner}: only that process can query or stop it"
            )

    def progress(self) -> list[Progress]:
        """The progress of each channel; after `stop`, its end. Raises `error` if the recorder has failed."""
        self._check_owner()
        with self._call():
            if self.error is not None:
                raise self.error
            return self._progress if self._stopped else self._request(b"progress\n")

    @property
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording."""
        return {row.channel: row.recording for row in self._progress}

    def stop(self) -> list[Progress]:
        """Records the messages that are published already, seals, syncs, ends. Safe to call twice: the second call returns, or raises, the same."""
        self._check_owner()
        with self._call():
            if self.error is not None:
                raise self.error
            if not self._stopped:
                self._request(b"stop\n")
                while not (self._last or self._stopped):  # that was the answer to a call that this one interrupts
                    self._await_answer()
                self._reap_child()
            return self._progress

    def __exit__(self, kind: object, *more: object) -> None:
        if self._owner == os.getpid():
            super().__exit__(kind, *more)


def _start_child(job: dict[str, Any]) -> tuple[subprocess.Popen[bytes], io.FileIO]:
    """Starts the child; the child and the stream of its answers. The child imports from where this process does, and not from its working
    directory.

    Answers have a separate pipe, since any module that the child imports may print.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    main = f"import sys; sys.path[:] = {path!r}; from penstock.record.recorder_process import run; run(sys.argv[1])"
    read, low = os.pipe()
    write = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)  # not a standard stream's, where this process has closed one
    os.close(low)
    answers = io.FileIO(read)
    try:
        command = [sys.executable, "-c", main, json.dumps({**job, "answers": write})]
        environment = environment_of_child()
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write], bufsize=0, env=environment), answers
    except BaseException:
        answers.close()
        raise
    finally:
        os.close(write)


def _close_in_child() -> None:
    """A forked child keeps no end of a recorder's pipes open, and does not wait for a process that is not its own."""
    for recorder in list(_all):
        recorder._lock, recorder._calls = threading.RLock(), 0
        recorder._child.returncode = 0 if recorder._child.returncode is None else recorder._child.returncode
        for pipe in (recorder._child.stdin, recorder._answers):
            if pipe is not None and not pipe.closed:
                pipe.close()


os.register_at_fork(after_in_child=_close_in_child)
