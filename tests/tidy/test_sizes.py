"""Sizes: names of tests and files of the package stay short enough to read."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME_MAX = 60
LINES_MAX = 400


@pytest.mark.slow
def test_names_of_tests_are_short() -> None:
    names = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert names
    assert sorted(name for name in names if len(name) > NAME_MAX) == []


def test_files_of_the_package_are_short() -> None:
    package = ROOT / "src/penstock"
    sizes = {path.relative_to(package).as_posix(): len(path.read_text().splitlines()) for path in package.rglob("*.py")}
    assert sizes
    assert {name: lines for name, lines in sizes.items() if lines > LINES_MAX} == {}
