"""Installing: other systems are refused in one sentence, the release is made of make targets, and setup works with and without uv."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("system", ["Darwin", "Windows", "FreeBSD"])
def test_building_on_another_system_ends_with_one_sentence(system, tmp_path):
    cmake = shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)
    if cmake is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "CMakeLists.txt").write_text(
        f'cmake_minimum_required(VERSION 3.20)\nset(CMAKE_HOST_SYSTEM_NAME {system})\ninclude("{ROOT}/CMakeLists.txt")\n'
    )
    done = subprocess.run([cmake, "-S", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "Penstock runs on Linux only" in done.stderr


def test_the_steps_of_the_release_are_make_targets():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
    steps = re.findall(r"- run: (.*)", (ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert steps
    for step in steps:
        assert step.removeprefix("make ") in targets, step


@pytest.mark.parametrize("uv", [None, "fails", "works"])
def test_packages_are_installed_with_and_without_uv(tmp_path, uv):
    """The programs are stand-ins that tell how they were called; the recipe is the Makefile's own."""
    recipe = re.search(r"^install = (.*)$", MAKEFILE, re.M)[1]
    says = "#!/bin/sh\necho $(basename $0) >>{}\nexit {}\n"
    called = tmp_path / "called"
    for name, status in (("python", 0), ("uv", int(uv == "fails"))):
        if name == "python" or uv:
            (tmp_path / name).write_text(says.format(called, status))
            (tmp_path / name).chmod(0o755)
    (tmp_path / "Makefile").write_text(f"UV := ./uv\nBIN := .\ninstall = {recipe}\nall:\n\t$(call install,-r some)\n")
    subprocess.run(["make"], cwd=tmp_path, check=True, capture_output=True)
    assert called.read_text().split() == {None: ["python"], "fails": ["uv", "python"], "works": ["uv"]}[uv]


def test_the_demo_installs_no_tool_of_the_tests():
    said = subprocess.run(
        [sys.executable, ROOT / "tools" / "packages.py", "needed", "cli", "spark", "report"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pyspark" in said
    assert "msgspec" in said
    assert "pytest" not in said
    assert "packages.py needed cli spark report" in MAKEFILE
