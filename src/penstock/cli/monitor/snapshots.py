"""One snapshot per interval as JSON, taken by one thread for all browsers, and the snapshots before it.

Knows channels, rates, archives and tables; knows no request.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.channels.storage import files
from penstock.channels.storage.discovery import survey
from penstock.channels.waiting.why import words
from penstock.channels.waiting.why.graph import Why
from penstock.cli.monitor.programs import Programs
from penstock.cli.monitor.stored import ArchiveView, TablesView
from penstock.cli.terminal.output import as_json
from penstock.errors import PenstockError
from penstock.front.why import why
from penstock.watch.rates import HISTORY, Rate, Rates, as_row

KEPT_EVERY = 2.0  # seconds between two reads of archives and tables: a read lists files
DRAWN_MAX = 200  # processes, and arrows, of the graph of waits
NOBODY = Why(None, (), (), (), ())
DIGITS = 1  # of rates in the history: a chart shows no more


def _drawn(found: Why) -> dict[str, Any]:
    """The graph of waits as the page draws it: processes, arrows from those that wait, and the text. A large graph is cut."""
    arrows = [
        {
            "from": wait.pid,
            "to": one.pid or one.peer,
            "channel": wait.channel,
            "what": wait.what,
            "seconds": wait.seconds,
            "part": words.part_text(wait, one),
        }
        for wait in found.waits
        for one in wait.on
    ]
    return {
        "processes": [
            {"pid": one.pid, "name": one.name, "state": one.state, "text": words.state_text(one)}
            for one in found.processes[:DRAWN_MAX]
        ],
        "arrows": arrows[:DRAWN_MAX],
        "waits": len(found.waits),
        "deadlocks": found.deadlocks,
        "text": str(found),
    }


class Snapshots:
    """Takes snapshots from `start` to `stop`, and calls each listener with them, in the thread that takes them.

    survey: returns the channels and the stray files, as `survey` does. why: returns the waits.
    """

    def __init__(
        self,
        archives: Sequence[str | Path] = (),
        tables: Sequence[str | Path] = (),
        *,
        every: float = 1.0,
        survey: Callable[[], tuple[Sequence[Any], Sequence[Any]]] = survey,
        why: Callable[[], Why] = why,
    ) -> None:
        self.every = every
        self._survey, self._why = survey, why
        self._rates, self._programs = Rates(time.monotonic), Programs()
        self._archives = [ArchiveView(path) for path in archives]
        self._tables = [TablesView(path) for path in tables]
        self._kept: dict[str, Any] = {"archives": [], "tables": []}
        self._kept_at = -KEPT_EVERY
        self._times: deque[int] = deque(maxlen=HISTORY)
        self._now: list[Rate] = []
        self._latest = "{}"
        self._lock = threading.Lock()
        self._listeners: list[Callable[[str], None]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-monitor", daemon=True)
        self.number = 0

    def start(self) -> None:
        """Starts the thread. The first snapshot exists when it returns."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self._thread.join()

    def join(self, listener: Callable[[str], None]) -> str:
        """Calls a listener with each snapshot from now on. Returns all earlier snapshots, and the newest one."""
        with self._lock:
            self._listeners.append(listener)
            return self._history_as_json()

    def leave(self, listener: Callable[[str], None]) -> None:
        """Calls it no more."""
        with self._lock:
            self._listeners.remove(listener)

    def latest(self) -> str:
        """The newest snapshot as JSON."""
        return self._latest

    def take(self) -> None:
        """Takes a snapshot, and passes it to the listeners."""
        made = as_json(self._snapshot())
        with self._lock:
            self._latest = made
            listeners = list(self._listeners)
            for listener in listeners:
                listener(made)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self.every, time.monotonic())  # a snapshot that took too long is not made up for
            if self._ended.wait(due - time.monotonic()):
                return
            self.take()

    def _snapshot(self) -> dict[str, Any]:
        error = None
        try:
            found, strange = self._survey()
            waits = self._why()
        except (PenstockError, OSError) as trouble:
            found, strange, waits, error = [], [], NOBODY, str(trouble)
        with self._lock:
            self._now = self._rates.update(found, waits.waits)
            self._times.append(time.time_ns() // 1_000_000)
            self.number += 1
        if time.monotonic() - self._kept_at >= KEPT_EVERY:
            self._kept = {
                "archives": [one.read() for one in self._archives],
                "tables": [one.read() for one in self._tables],
            }
            self._kept_at = time.monotonic()
        usage = files.usage()
        return {
            "look": self.number,
            "time_ms": self._times[-1],
            "error": error,
            "channels": [as_row(rate) for rate in self._now],
            "processes": self._programs.of(rate.status for rate in self._now),
            "strange": [{"path": str(one.path), "why": one.why} for one in strange],
            "why": _drawn(waits),
            "memory": {"free": usage.free, "total": usage.total},
            **self._kept,
        }

    def _history_as_json(self) -> str:
        """The samples of each channel that there is now, the newest last, and when they were taken."""
        history = {
            rate.status.channel: [
                [
                    round(sample.messages, DIGITS),
                    round(sample.bytes),
                    sample.lag,
                    round(sample.lost, DIGITS),
                    sample.p99_ns and round(sample.p99_ns),
                ]
                for sample in rate.history
            ]
            for rate in self._now
        }
        about = {"version": __version__, "every": self.every, "samples": HISTORY, "folder": str(files.folder())}
        return as_json({**about, "times_ms": list(self._times), "history": history})
