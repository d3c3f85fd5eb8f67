"""A real Aeron driver and its client in a process of their own: commands as JSON lines on stdin, one answer line each.

Runs under any Python from 3.12 on that has pyaeron. It knows nothing of Penstock.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pyaeron
from bodies import Check, body, size_of

PAUSE_S = 20e-6  # between two looks at nothing
_never = threading.Event()


def pause() -> None:
    """Leaves the core to the driver for a moment."""
    _never.wait(PAUSE_S)


class Side:
    """One driver, one client, at most one publication and one subscription."""

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        self.driver = pyaeron.MediaDriver(dir=folder, **options)
        self.client = pyaeron.Aeron(dir=self.driver.dir)
        self.pub: Any = None
        self.sub: Any = None
        self.checks: dict[int, Check] = {}
        self.sessions: list[int] = []
        self.sizes: list[int] = [64]
        self.first: int | None = 0
        self.gone: list[int] = []
        self.take = self._take  # one object for all polls: the assembler of fragments belongs to it

    def _take(self, buffer: Any, header: Any) -> None:
        session = header.session_id
        check = self.checks.get(session)
        if check is None:
            check = self.checks[session] = Check(self.sizes, self.first)
            self.sessions.append(session)
        check.take(bytes(buffer))

    # ---- commands ----

    def publish(self, channel: str, stream: int) -> dict[str, Any]:
        """Opens a publication of its own session."""
        self.pub = self.client.add_exclusive_publication(channel, stream)
        return {"session": self.pub.session_id}

    def await_connected(self, seconds: float) -> dict[str, Any]:
        """Waits until a receiver is there."""
        until = time.monotonic() + seconds
        while not self.pub.is_connected and time.monotonic() < until:
            pause()
        return {"connected": bool(self.pub.is_connected)}

    def send(self, first: int, count: int, sizes: list[int], seconds: float) -> dict[str, Any]:
        """Messages `first` to `first + count - 1`; how many were taken before the time was over."""
        until = time.monotonic() + seconds
        for number in range(first, first + count):
            data = body(number, size_of(number, sizes))
            while self.pub.offer(data) is not True:
                if time.monotonic() > until:
                    return {"sent": number - first}
                pause()
        return {"sent": count, "position": self.pub.position}

    def close_publication(self) -> dict[str, Any]:
        """Says end of stream; the driver goes on to send what is left."""
        self.pub.close()
        return {}

    def subscribe(self, channel: str, stream: int, sizes: list[int], first: int | None) -> dict[str, Any]:
        """Opens a subscription. `first`: the number that each session begins with; None: any."""
        self.sizes, self.first = sizes, first
        self.sub = self.client.add_subscription(
            channel,
            stream,
            available_image=lambda sub, image: None,
            unavailable_image=lambda sub, image: self.gone.append(image.session_id),
        )
        return {}

    def read(self, count: int, sessions: int, ends: bool, seconds: float) -> dict[str, Any]:
        """Reads until so many messages have come in all, from so many sessions, and, if asked, the last session has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.sub.poll(self.take, 100) == 0:
                pause()
            there = sum(check.count for check in self.checks.values()) >= count and len(self.sessions) >= sessions
            if any(check.wrong for check in self.checks.values()):
                break
            if there and (not ends or self._ended(self.sessions[-1])):
                break
        return {
            "sessions": self.sessions,
            "counts": [self.checks[s].count for s in self.sessions],
            "firsts": [self.checks[s].first for s in self.sessions],
            "wrong": [self.checks[s].wrong for s in self.sessions if self.checks[s].wrong],
            "ended": bool(self.sessions) and self._ended(self.sessions[-1]),
        }

    def _ended(self, session: int) -> bool:
        if session in self.gone:
            return True
        image = self.sub.image_by_session_id(session)
        return image is not None and bool(image.is_end_of_stream)

    def close_subscription(self) -> dict[str, Any]:
        """Leaves."""
        self.sub.close()
        return {}


def main() -> None:
    """Answers commands until stdin ends."""
    side = Side(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({"version": pyaeron.aeron_version}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(side, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    side.client.close()
    side.driver.close()


main()
