"""The house rules that a machine can keep."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def python_files(folder="src"):
    return sorted((ROOT / folder).rglob("*.py"))


CORE = sorted((ROOT / "native" / "core").glob("*.hpp"))


def test_every_module_says_its_job_at_the_door():
    for path in python_files():
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, f"{path} has no docstring"
        assert len(doc.splitlines()) <= 9, f"{path}: the docstring is longer than a door"
    for path in CORE:
        assert path.read_text().startswith("// "), f"{path} does not say what it is"


def test_files_are_short():
    for path in [*python_files(), *python_files("bench"), *python_files("tests"), *ROOT.glob("native/*/*.[hc]pp")]:
        lines = [
            line for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith(("//", "#"))
        ]
        assert len(lines) <= 480, f"{path} has {len(lines)} lines of code"


def test_functions_fit_a_screen():
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                assert length <= 80, f"{path}: {node.name} has {length} lines"


def test_public_names_have_docstrings():
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: class {node.name}"
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                        assert ast.get_docstring(part), f"{path}: {node.name}.{part.name}"


def test_memory_orders_are_spelled_in_one_file():
    for path in ROOT.glob("native/core/*.hpp"):
        if path.name != "atomics.hpp":
            assert "memory_order" not in path.read_text(), path
            assert "asm" not in re.findall(r"\w+", path.read_text()), f"{path}: inline assembly"


def test_every_sync_number_has_both_sides():
    found = {}
    for path in CORE:
        for number in re.findall(r"SYNC (\d+)", path.read_text()):
            found.setdefault(int(number), []).append(path.name)
    assert sorted(found) == list(range(len(found))), f"numbers without a gap: {sorted(found)}"
    assert all(len(places) >= 2 for places in found.values()), found
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "design").glob("*.md"))
    for number in found:
        assert f"\n| {number} |" in pages, f"SYNC {number} is in no order table of docs/design"


def test_the_core_knows_no_python():
    for path in CORE:
        assert "Python.h" not in path.read_text()
        assert "nanobind" not in path.read_text()


def test_the_cellar_is_entered_from_workshops_and_ground_only():
    for path in python_files():
        guest = path.relative_to(ROOT / "src" / "penstock").parts[0]
        if guest in ("cli", "compat", "spark"):
            assert "_native" not in path.read_text(), f"{path}: guests use the front door"


def test_the_library_never_prints():
    for path in python_files():
        if {"cli", "recorder_process.py"} & set(path.parts) or path.name == "pipeline.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", path


def test_nobody_asks_for_the_time_behind_the_clocks_back():
    for path in python_files("src/penstock/record"):
        assert not re.search(r"^import time", path.read_text(), re.M), path


def test_tests_do_not_sleep():
    for path in python_files("tests"):
        if path.name == "test_house.py":
            continue
        calls = re.findall(r"time\.sleep\(", path.read_text())
        assert len(calls) <= (1 if path.name == "test_kill.py" else 0), path  # there a child waits to be killed


def test_nothing_is_left_for_later():
    words = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error"]
    for path in tracked():
        if path.suffix in (".py", ".hpp", ".cpp", ".md", ".txt") or path.name == "Makefile":
            text = path.read_text()
            assert not [word for word in words if word in text], path


def test_no_path_of_a_machine():
    for path in tracked():
        if path.suffix in (".py", ".hpp", ".cpp", ".md", ".toml", ".txt") and path.name != "test_house.py":
            assert not re.search(r"/(work|home|root|tmp/bash_jobs)/", path.read_text()), path


def test_the_root_has_few_entries():
    visible = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert len([name for name in visible if not name.startswith(".")]) <= 18


def test_the_front_door_has_at_most_25_names():
    import penstock

    assert len(penstock.__all__) <= 25
    assert sorted(penstock.__all__, key=str.lower) == sorted(set(penstock.__all__), key=str.lower)
    for name in penstock.__all__:
        assert getattr(penstock, name).__doc__, name


def test_every_core_structure_has_its_design_page():
    """Headers are described by the page of the structure they belong to."""
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "design").glob("*.md"))
    for path in CORE:
        assert path.name in pages, f"no page in docs/design mentions {path.name}"


def test_layout_offsets_in_the_page_are_those_of_the_header():
    text = (ROOT / "native" / "core" / "layout.hpp").read_text()
    page = (ROOT / "docs" / "design" / "term_log.md").read_text()
    for name, offset in re.findall(r"Paired<Atomic<\w+>> (\w+);\s*// (\d+)", text):
        assert re.search(rf"\| {4096 + int(offset)} \| `{name}`", page), f"{name} at {4096 + int(offset)}"
