"""The parent's handle on a recorder in a process of its own; the child is `penstock.recorder_process`.

The parent holds the child's standard input; when it closes, by `stop()` or by the parent's death, the child finishes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.record.recorder import Progress


class ProcessRecorder:
    """`Recorder`'s methods, for a recorder that runs in another process."""

    def __init__(self, archive: Path, channels: Sequence[str], options: dict[str, Any]) -> None:
        job = json.dumps({"archive": str(archive), "channels": list(channels), "options": options})
        self._child = subprocess.Popen(
            [sys.executable, "-m", "penstock.recorder_process", job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.error: BaseException | None = None
        self._progress = self._answer()

    @property
    def pid(self) -> int:
        """The recorder's process."""
        return self._child.pid

    def _answer(self) -> list[Progress]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._end()
            self.error = errors.SystemFailure(
                self._child.returncode, f"the recorder's process ended with status {self._child.returncode}"
            )
            raise self.error
        answer = json.loads(line)
        if "error" in answer:
            self._end()
            kind = getattr(errors, answer["error"], errors.PenstockError)
            self.error = kind(answer["what"])
            raise self.error
        return [Progress(**row) for row in answer["progress"]]

    def _end(self) -> None:
        """The child is done: its pipes and itself are given back."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child.wait()

    def progress(self) -> list[Progress]:
        """How far each channel is now; after `stop`, how far it came."""
        if self._child.poll() is None and self._child.stdin is not None and not self._child.stdin.closed:
            self._child.stdin.write("progress\n")
            self._child.stdin.flush()
            self._progress = self._answer()
        return self._progress

    @property
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording."""
        return {row.channel: row.recording for row in self._progress}

    def stop(self) -> list[Progress]:
        """Records what is published already, seals, syncs, ends. Safe to call twice."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if not self._child.stdin.closed:
            try:
                self._child.stdin.close()
                self._progress = self._answer()
            finally:
                self._end()
        return self._progress

    def __enter__(self) -> ProcessRecorder:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except (errors.PenstockError, OSError):
            if kind is None:
                raise
