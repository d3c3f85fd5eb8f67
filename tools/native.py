"""Builds the native tests plain, with ThreadSanitizer and with AddressSanitizer + UBSan, and runs them."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILDS = {"plain": "", "tsan": "thread", "asan": "address,undefined"}
PROGRAMS = ("log_stress", "log_crash", "recording_check")


def tool(name: str) -> str:
    """A program from this virtual environment, else from PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or name


def build(name: str) -> Path:
    """The folder of one kind of build."""
    folder = ROOT / "build" / f"native-{name}"
    options = ["-DPENSTOCK_PYTHON=OFF", "-DPENSTOCK_NATIVE_TESTS=ON", f"-DPENSTOCK_SANITIZE={BUILDS[name]}"]
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([tool("cmake"), "-S", str(ROOT), "-B", str(folder), *generator, *options], **quiet)
    subprocess.run([tool("cmake"), "--build", str(folder)], **quiet)
    return folder / "native" / "tests"


def main() -> int:
    """0 if every program of every build ended well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3, help="of each stress run")
    parser.add_argument("--only", choices=[*BUILDS], help="one kind of build")
    given = parser.parse_args()
    environment = {
        **os.environ,
        "TSAN_OPTIONS": "halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    failed = 0
    for name in [given.only] if given.only else BUILDS:
        folder = build(name)
        for program in PROGRAMS:
            arguments = {
                "log_stress": ["--seconds", str(given.seconds)],
                "recording_check": ["--rounds", str(100 * given.seconds)],
            }
            done = subprocess.run(
                [folder / program, *arguments.get(program, [])], env=environment, capture_output=True, text=True
            )
            verdict = "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"
            print(f"{name:6} {program:16} {verdict}: {' '.join(done.stdout.split())}")
            if done.returncode != 0:
                failed += 1
                print(done.stderr[-6000:])
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
