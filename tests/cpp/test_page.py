"""The C++ programs on their page compile without CMake, and print what the page says."""

import re
import subprocess
from pathlib import Path

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "channels" / "cpp.md"


def test_the_programs_of_the_page_run(tmp_path, ends):
    """In one program, which is compiled once. `ends`: skips where there is no compiler."""
    pairs = re.findall(r"```cpp\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(pairs) == 2
    parts = [code.replace("int main()", f"void part_{number}()") for number, (code, _) in enumerate(pairs)]
    (tmp_path / "program.cpp").write_text("\n".join([*parts, "int main() { part_0(), part_1(); }"]))
    made = subprocess.run(
        ["c++", "-std=c++20", "-pthread", "-Wall", "-Wextra", "-Werror", "-I", penstock.get_include(), "program.cpp"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    said = "".join(output for _, output in pairs)
    assert subprocess.run([tmp_path / "a.out"], capture_output=True, text=True, check=True).stdout == said
    assert penstock.list_channels() == []


def test_the_page_names_every_code():
    """The table of errors has all codes of error.hpp."""
    header = (Path(penstock.get_include()) / "ground" / "error.hpp").read_text()
    codes = re.findall(r"^    (\w+),? *//", header, re.M)
    assert len(codes) > 10
    assert [code for code in codes if f"`{code}`" not in PAGE.read_text()] == []
