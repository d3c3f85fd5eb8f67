"""The bindings keep to the stable ABI: what CPython 3.12 and later install is compiled against it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import wheel

BIND = Path(__file__).parents[2] / "native" / "bind"
APART = ("record", "sync")  # they have names that others have, too


@pytest.mark.slow
def test_the_bindings_compile_against_the_stable_abi(tmp_path):
    nanobind = pytest.importorskip("nanobind")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    headers = [folder for folder in map(_headers, wheel.interpreters().values()) if (folder / "Python.h").is_file()]
    stable = next((folder for folder in headers if "3.11" not in folder.name), None)
    if stable is None:
        pytest.skip("there are no headers of CPython 3.12 or later")
    flags = ["-std=c++20", "-fsyntax-only", "-w", "-DPy_LIMITED_API=0x030C0000", "-DNB_STATIC"]
    folders = [f"-I{folder}" for folder in (stable, nanobind.include_dir(), BIND.parent, BIND.parent / "core")]
    running = []
    for apart in (True, False):
        source = tmp_path / f"{apart}.cpp"
        files = sorted(path for path in BIND.glob("*/*.cpp") if (path.parent.name in APART) is apart)
        source.write_text("".join(f'#include "{path}"\n' for path in files))
        running.append(subprocess.Popen([compiler, *flags, *folders, source], stderr=subprocess.PIPE, text=True))
    errors = [one.communicate()[1] for one in running]
    assert [one.returncode for one in running] == [0, 0], "".join(errors)[:3000]


def _headers(interpreter: Path) -> Path:
    asked = "import sysconfig; print(sysconfig.get_path('include'))"
    return Path(subprocess.run([interpreter, "-c", asked], capture_output=True, text=True, check=True).stdout.strip())
