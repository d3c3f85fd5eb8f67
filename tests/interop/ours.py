"""Our side of a conversation with an Aeron driver: `Core`, the state machines over a plain socket (net_peer), and `Udp`, the product.

Both have a publisher that sends messages 0 to count - 1 and closes, and a subscriber that reads until every session has ended.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interop.aeron import PATIENCE_S
from interop.bodies import PATTERN, Check, body, size_of

import penstock.testing

sys.path.insert(0, str(Path(__file__).parents[2]))
from evidence.build import build

STREAM = 1001


class Core:
    """The state machines in a process of their own."""

    def __init__(self, sizes: Sequence[int], loss: float = 0.0) -> None:
        self.sizes, self.loss = sizes, loss
        self.pattern = tempfile.NamedTemporaryFile()  # noqa: SIM115 - as long as the peer
        self.pattern.write(PATTERN)
        self.pattern.flush()
        self.process: Any = None

    def _start(self, role: str, **options: Any) -> None:
        program = build("plain", ("net_peer",)) / "tests" / "net_peer"
        command = [str(program), role, "--pattern", self.pattern.name, "--sizes", ",".join(map(str, self.sizes))]
        command += ["--loss", str(self.loss), "--stream", str(STREAM), "--seconds", str(int(PATIENCE_S))]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def publish(self, at: str, count: int, **options: Any) -> None:
        """Begins to send to `at`."""
        self._start("publish", to=at, count=count, **options)

    def subscribe(self, at: str, sessions: int = 1, **options: Any) -> None:
        """Is ready to receive at `at` when this returns."""
        self._start("subscribe", bind=at, sessions=sessions, **options)
        assert json.loads(self.process.stdout.readline()) == {"ready": True}

    def finish(self) -> dict[str, Any]:
        """Waits for the end: {"sent", "closed"} of a publisher, {"messages", "wrong", "ended"} of a subscriber."""
        found: dict[str, Any] = json.loads(self.process.communicate(timeout=2 * PATIENCE_S)[0])
        self.pattern.close()
        return found


class Udp:
    """Handles on a `udp:` channel, in a thread of the test."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.result: dict[str, Any] = {}
        self.thread: threading.Thread
        self.handle: Any = None

    def _run(self, target: Any, *args: Any) -> None:
        def guarded() -> None:
            try:
                target(*args)
            except Exception as error:
                self.result["error"] = f"{type(error).__name__}: {error}"

        self.thread = threading.Thread(target=guarded)
        self.thread.start()

    def publish(self, at: str, count: int, **options: Any) -> None:
        """Begins to send to `at`."""
        term = options.pop("initial_term_id", 0)
        channel = penstock.testing.channel(f"udp://{at}/{STREAM}", initial_term_id=term)
        self.handle = penstock.publish(channel, **options)
        self._run(self._send, count)

    def _send(self, count: int) -> None:
        with self.handle as pub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            for number in range(count):
                pub.send(body(number, size_of(number, self.sizes)), timeout=PATIENCE_S)
            self.result = {"sent": count, "closed": True}

    def subscribe(self, at: str, sessions: int = 1, **options: Any) -> None:
        """Is ready to receive at `at` when this returns."""
        self.handle = penstock.subscribe(f"udp://{at}/{STREAM}", until_end=True, **options)
        self._run(self._read, sessions)

    def _read(self, sessions: int) -> None:
        checks: dict[int, Check] = {}
        ended = 0
        with self.handle as sub:
            while ended < sessions:
                for data in sub:  # until every session that was seen has ended
                    check = checks.setdefault(sub.last.session, Check(self.sizes, first=None))
                    check.take(bytes(data))
                ended = len(checks)
        self.result = {
            "messages": sum(check.count for check in checks.values()),
            "wrong": "".join(check.wrong for check in checks.values()),
            "ended": ended,
            "firsts": [check.first for check in checks.values()],
        }

    def finish(self) -> dict[str, Any]:
        """Waits for the end, as `Core.finish`."""
        self.thread.join(2 * PATIENCE_S)
        if self.thread.is_alive():
            self.handle.close()
            self.thread.join(PATIENCE_S)
            self.result.setdefault("error", f"did not end within {2 * PATIENCE_S:g} s")
        return self.result


def lengths(shortest: int, longest: int, count: int, rng: Any) -> list[int]:
    """So many lengths between two, evenly spread over their logarithm: many short, some long; both ends are there."""
    spread = math.log(longest / shortest)
    return [shortest, longest, *(int(shortest * math.exp(rng.random() * spread)) for _ in range(count - 2))]
