"""Runs tests with each CPython from 3.11 on that this machine has, in an environment for each below build/: `pythons.py [TESTS]`.

`pythons.py --list` makes the environments alone, and prints the version and the Python of each.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wheel import ROOT, interpreters, run

NEEDED = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "pyzmq>=26", "protobuf>=6.31")
CORE = (
    *(f"tests/kinds/{name}" for name in ("test_log.py", "test_ring.py", "test_frames.py", "sync", "pipe", "udp")),
    *("tests/codecs/test_codecs.py", "tests/channels/test_callbacks.py", "tests/channels/test_processes.py"),
    *("tests/front/test_subinterpreters.py", "tests/record/test_record.py"),
)


def environment(minor: int, interpreter: Path) -> Path:
    """The Python of an environment that has the library as it is here, and what its tests need. It is compiled where a source is newer."""
    home = ROOT / "build" / f"python-3.{minor}"
    python, stamp = home / "bin" / "python", home / ".ready"
    if not python.exists():
        run(interpreter, "-m", "venv", home)
    sources = [Path(__file__), ROOT / "pyproject.toml", ROOT / "CMakeLists.txt"]
    sources += [*ROOT.glob("src/**/*.py"), *ROOT.glob("native/**/*.[ch]pp")]
    if not stamp.exists() or stamp.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        run(python, "-m", "pip", "install", "-q", f"{ROOT}[record]", *NEEDED)
        stamp.touch()
    return python


def main() -> int:
    """0 if no interpreter's tests failed."""
    if sys.argv[1:] == ["--list"]:
        for minor, interpreter in interpreters().items():
            print(f"3.{minor}", environment(minor, interpreter), flush=True)
        return 0
    tests = sys.argv[1:] or CORE
    failed = []
    for minor, interpreter in interpreters().items():
        python = environment(minor, interpreter)
        print(f"Python 3.{minor}", flush=True)
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadgroup", *tests]
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(f"3.{minor}")
    print(f"failed with Python {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
