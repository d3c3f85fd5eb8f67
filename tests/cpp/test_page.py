"""The C++ programs on their page are built as it says, and print what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "channels" / "cpp.md"


def blocks(language):
    """The blocks of the page, each with the output that follows it, which may be empty."""
    return re.findall(rf"```{language}\n(.*?)```(?:\n\n(?:It prints:\n\n)?```\n(.*?)```)?", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def programs(ends, tmp_path_factory):
    """Both programs of the page, built as it says, but in one, which is compiled once. `ends`: skips where there is no compiler."""
    folder = tmp_path_factory.mktemp("page")
    (sensor, _), (lidar, said) = blocks("cpp")
    parts = [code.replace("int main()", f"void part_{number}()") for number, code in enumerate((sensor, lidar))]
    main = "int main(int count, char **) { count == 1 ? part_0() : part_1(); }"
    (folder / "sensor.cpp").write_text("\n".join([*parts, main]))
    ((lists, _),) = blocks("cmake")
    (folder / "CMakeLists.txt").write_text(lists)
    (build,) = re.findall(r"(cmake -S .*?\n)build/sensor", PAGE.read_text(), re.DOTALL)
    env = os.environ | {
        "CXXFLAGS": "-O0 -Wall -Wextra -Werror",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    # Without what a debugger needs, which is a seventh of the compiler's work.
    build = build.replace("cmake -S", "cmake -DCMAKE_BUILD_TYPE=None -S")
    made = subprocess.run(["sh", "-ec", build], cwd=folder, capture_output=True, text=True, env=env)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "build" / "sensor", said


@pytest.mark.slow
@pytest.mark.parametrize("first", ["sensor", "listen"])
def test_the_sensor_of_the_page_is_heard(programs, first):
    """Two terminals, in both orders."""
    ((listen, said),) = blocks("py")
    commands = {"sensor": [programs[0]], "listen": [sys.executable, "-c", listen]}
    order = sorted(commands, key=lambda name: name != first)
    running = {name: subprocess.Popen(commands[name], stdout=subprocess.PIPE, text=True) for name in order}
    assert {name: one.communicate(timeout=120)[0] for name, one in running.items()} == {"listen": said, "sensor": ""}
    assert [one.returncode for one in running.values()] == [0, 0]


def test_the_lidar_of_the_page_prints_what_it_says(programs):
    done = subprocess.run([programs[0], "lidar"], capture_output=True, text=True, check=True)
    assert done.stdout == programs[1]
    assert penstock.list_channels() == []


def test_the_page_names_every_code():
    """The table of errors has all codes of error.hpp."""
    header = (Path(penstock.get_include()) / "ground" / "error.hpp").read_text()
    codes = re.findall(r"^    (\w+),? *//", header, re.M)
    assert len(codes) > 10
    assert [code for code in codes if f"`{code}`" not in PAGE.read_text()] == []
