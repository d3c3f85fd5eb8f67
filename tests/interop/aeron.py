"""Finds the real Aeron drivers and starts them: the C driver inside pyaeron, and the Java driver.

`tools/aeron.py` installs both under build/aeron. A driver that cannot be had gives the reason, for `pytest.skip`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "aeron"
SIDE = Path(__file__).with_name("aeron_side.py")
PATIENCE_S = float(
    os.environ.get("PENSTOCK_PATIENCE", "120")
)  # longer than a loaded machine needs, so that a hang is told from slowness
WITH_PYAERON = "import sys, pyaeron; sys.exit(sys.version_info < (3, 12))"


def interpreter() -> tuple[str, str]:
    """A Python that has pyaeron, or the reason why there is none."""
    asked = os.environ.get("PENSTOCK_AERON_PYTHON")
    for python in [asked] if asked else [sys.executable, str(HOME / "python" / "bin" / "python")]:
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", WITH_PYAERON], capture_output=True).returncode == 0:
                return python, ""
    return "", "no Python >= 3.12 with pyaeron here: `python tools/aeron.py` installs it under build/aeron"


def java() -> tuple[list[str], str]:
    """The command that starts a class of the Java driver, or the reason why there is none."""
    jar = next(HOME.glob("java/**/aeron-all-*.jar"), None)
    program = next(HOME.glob("java/**/bin/java"), None)
    if jar is None or program is None:
        return [], "no Java driver here: `python tools/aeron.py` installs it under build/aeron"
    opens = ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "-Xmx256m", "-XX:+UseSerialGC"]
    return [str(program), *opens, "-cp", str(jar)], ""


class Failed(AssertionError):
    """The Aeron process answered with an error, or not at all."""


class Aeron:
    """The C driver in a process of its own. Every method of `aeron_side.Side` is a command: `aeron.call("send", ...)`."""

    def __init__(self, python: str, folder: Path, environment: dict[str, str], options: dict[str, Any]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [python, str(SIDE), str(folder), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
        )
        self.version = self.answer()["version"]

    def begin(self, what: str, **arguments: Any) -> None:
        """Gives a command and does not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest command that has none yet."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S * 2)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.errors.seek(0)
            raise Failed(f"no answer from the Aeron process: {self.errors.read()[-2000:].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise Failed(found["error"])
        return found

    def call(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Gives a command and waits for its answer."""
        self.begin(what, **arguments)
        return self.answer()

    def close(self) -> None:
        """Ends client and driver."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder for a driver's files."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="penstock-aeron-", dir=parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def driver(environment: dict[str, str] | None = None, **options: Any) -> Iterator[Aeron]:
    """The C driver, started; `environment` sets its options as Aeron names them."""
    python, why = interpreter()
    assert python, why
    with memory_folder() as folder:
        side = Aeron(python, folder / "driver", environment or {}, {"threading": "shared", **options})
        try:
            yield side
        finally:
            side.close()


def loses(rate: float, *types: int) -> dict[str, str]:
    """The environment of a driver that drops incoming frames of these types (1 DATA, 2 NAK, 3 SM) at this rate."""
    mask = sum(1 << kind for kind in types)
    return {
        "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
        "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": f"rate={rate}|recv-msg-mask={mask:#x}",
    }
