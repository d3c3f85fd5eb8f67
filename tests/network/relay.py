"""A relay between two UDP sockets of a test: native/tests/net_relay.cpp as a process, with its conditions set by name."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ports import free_port

sys.path.insert(0, str(Path(__file__).parents[2]))
from evidence.build import build


class Relay:
    """Datagrams to `port` go on to `target`; the answers go back. `set` changes what happens to them on the way."""

    def __init__(self, target: int, seed: int) -> None:
        program = build("plain", ("net_relay",)) / "tests" / "net_relay"
        self.port, self.target = free_port(), target
        self.process = subprocess.Popen(
            [str(program), str(self.port), str(target), str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def _command(self, text: str) -> dict[str, dict[str, int]]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()
        found: dict[str, dict[str, int]] = json.loads(self._line())
        return found

    def set(self, *ways: str, **conditions: float) -> None:
        """Conditions of one way, `there` or `back`; of both if none is named.

        loss, double, hold, change: shares of the datagrams. hold_us, delay_us: microseconds. cut: 1 for a partition, 0 for none. longest:
        bytes; longer datagrams are lost.
        """
        for way in ways or ("there", "back"):
            for name, value in conditions.items():
                self._command(f"{way} {name} {value}")

    def stats(self) -> dict[str, dict[str, int]]:
        """The counts so far, by way."""
        return self._command("stats")

    def close(self) -> None:
        """Ends it."""
        self.process.communicate(timeout=60)


@contextlib.contextmanager
def relay(target: int, seed: int = 1, **conditions: Any) -> Iterator[Relay]:
    """A relay to the port `target` for the length of a block, with these conditions both ways."""
    found = Relay(target, seed)
    try:
        found.set(**conditions)
        yield found
    finally:
        found.close()
