"""Programs of C++, built once for all tests as a user builds them: with CMake, from the headers that are installed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "cpp"


def built(source: Path) -> Path:
    """The folder with the programs of a CMake project, built if it is not up to date."""
    out = OUT / source.relative_to(ROOT)
    out.mkdir(parents=True, exist_ok=True)
    _build(source, out)
    return out


def built_as_one(source: Path) -> Path:
    """A program that is each of a project's, by its first argument. It is built as the project says, but is compiled once: the compiler takes
    twelve seconds for the headers of each."""
    together, parts, recipe = OUT / "together", [], (source / "CMakeLists.txt").read_text()
    (names,) = re.findall(r"foreach\(program (.*)\)", recipe)
    for name in names.split():
        code = (source / f"{name}.cpp").read_text().rstrip()
        assert code.endswith("}"), "it ends with main"
        parts.append(re.sub(r"int main\(.*\)", f"int {name}(int argc, char **argv)", code[:-1]) + "return 0;\n}\n")
        parts.append(f'static const bool is_{name} = (programs["{name}"] = {name});')
    head = "#include <map>\n#include <string>\nstatic std::map<std::string, int (*)(int, char **)> programs;\n"
    main = "int main(int argc, char **argv) { return programs.at(argv[1])(argc - 1, argv + 1); }\n"
    files = {"CMakeLists.txt": recipe.replace(names, "together"), "together.cpp": "\n".join([head, *parts, main])}
    files |= {header.name: header.read_text() for header in source.glob("*.hpp")}
    together.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (together / name).exists() or (together / name).read_text() != text:
            (together / name).write_text(text)
    _build(together, together / "build")
    return together / "build" / "together"


def _build(source: Path, out: Path) -> None:
    """Builds a CMake project in a folder. Skips without CMake or a compiler."""
    if shutil.which("cmake") is None or (shutil.which("c++") is None and shutil.which("g++") is None):
        pytest.skip("there is no CMake or no C++ compiler here")
    out.mkdir(exist_ok=True)
    prefix = subprocess.run(
        [sys.executable, "-m", "penstock", "--cmakedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # As a user builds it, but for the level of optimisation: the compiler takes half as long.
        _run(
            [
                "cmake",
                "-S",
                str(source),
                "-B",
                str(out),
                f"-DCMAKE_PREFIX_PATH={prefix}",
                "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
            ]
        )
        _run(["cmake", "--build", str(out)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class End:
    """A running program of C++, with its output. killed: by `kill -9`."""

    def __init__(self, *command: object) -> None:
        # Without a buffer: `communicate` reads from the descriptor, and would miss a line that came together with the one before.
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=os.environ.copy(),
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _rest(self) -> tuple[str, str]:
        out, error = self.process.communicate(timeout=120)
        return out.decode(), error.decode()

    def said(self) -> str:
        """Its output once it has ended well."""
        out, error = self._rest()
        assert self.process.returncode == 0, error
        return out.strip()

    def failed(self) -> str:
        """The error's text once it has ended with one: one line."""
        out, error = self._rest()
        assert self.process.returncode == 1, out + error
        assert error.count("\n") == 1
        return error.strip()
