"""Builds the native programs that the suites run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def tool(name: str) -> str:
    """A program from this virtual environment, else from PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or name


def build(name: str, targets: tuple[str, ...], *, sanitize: str = "", compiler: str | None = None) -> Path:
    """Configures `build/evidence-NAME` where that was not done, and builds these targets there; the folder of native programs."""
    folder = ROOT / "build" / f"evidence-{name}{'-' + Path(compiler).name if compiler else ''}"
    options = [
        "-DPENSTOCK_PYTHON=OFF",
        "-DPENSTOCK_EVIDENCE=ON",
        "-DPENSTOCK_NATIVE_TESTS=ON",
        f"-DPENSTOCK_SANITIZE={sanitize}",
    ]
    if compiler is not None:
        options.append(f"-DCMAKE_CXX_COMPILER={compiler}")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(folder), *generator, *options]
    folder.mkdir(parents=True, exist_ok=True)
    configured = folder / ".configured"
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # suites and tests beside each other build one after another
        if not configured.exists() or configured.read_text() != " ".join(configure):
            run(configure)
            configured.write_text(" ".join(configure))
        run([tool("cmake"), "--build", str(folder), "--target", *targets])
    return folder / "native"


def run(command: list[str]) -> None:
    """Runs a build step. Its output is shown only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NINJA_STATUS": ""})
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
        raise SystemExit(f"could not build: {' '.join(command[:4])} …")


def patience(quiet: float) -> float:
    """Seconds after which a program hangs that takes `quiet` seconds at most on an idle machine: more while others want the cores."""
    wanted = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return quiet * max(1.0, 2 * wanted)


def ended(command: list[str], limit: float, env: dict[str, str] | None = None) -> int | None:
    """A program's status, or None if it did not end within `limit` seconds: it is killed then, with all that it started."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
