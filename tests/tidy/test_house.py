"""The house rules that a machine can keep."""

import ast
import graphlib
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


CORE = sorted((ROOT / "native" / "core").glob("*/*.hpp"))


def test_every_module_says_its_job_at_the_door():
    for path in python_files():
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, f"{path} has no docstring"
        assert len(doc.splitlines()) <= 9, f"{path}: the docstring is longer than a door"
    for path in CORE:
        assert path.read_text().startswith("// "), f"{path} does not say what it is"


def test_files_are_short():
    for path in [*python_files(), *python_files("bench"), *python_files("tests"), *ROOT.glob("native/**/*.[hc]pp")]:
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
    for path in CORE:
        if path.name != "atomics.hpp":
            assert "memory_order" not in path.read_text(), path
            assert "asm" not in re.findall(r"\w+", path.read_text()), f"{path}: inline assembly"


def test_the_core_knows_no_python():
    for path in CORE:
        assert "Python.h" not in path.read_text()
        assert "nanobind" not in path.read_text()


def test_the_cellar_is_entered_from_workshops_and_ground_only():
    for path in python_files():
        parts = path.relative_to(ROOT / "src").parts
        if parts[0] == "pyspark_penstock" or parts[1] in ("cli", "compat", "spark"):
            assert "_native" not in path.read_text(), f"{path}: guests use the front door"


def module_name(path):
    parts = list(path.relative_to(ROOT / "src").with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_by_a_detour():
    """Late imports and those for type checkers count: a circle that is broken by one is a circle."""
    files = {module_name(path): path for path in python_files()}
    imports = {}
    for name, path in files.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {one if one in files else node.module for one in whole}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        imports[name] = (found & set(files)) - {name}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


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


def test_no_coroutine_naps():
    """A coroutine waits on a descriptor, or is woken: a nap costs latency, and wakes a loop that has nothing to do."""
    naps = [path for path in python_files() if re.search(r"\basyncio\.sleep\b|\bimport sleep\b", path.read_text())]
    assert naps == []


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


ROOT_HAS = "ARCHITECTURE.md CHANGELOG.md CMakeLists.txt LICENSE Makefile README.md bench deploy docs evidence examples native pyproject.toml src tests tools"


def test_the_root_has_these_entries():
    """A program on a page that is tried in the wrong folder leaves its files here, and they are soon committed."""
    visible = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert sorted(name for name in visible if not name.startswith(".")) == sorted(ROOT_HAS.split())


def test_the_front_door_has_at_most_32_names():
    import penstock

    assert len(penstock.__all__) <= 32
    assert sorted(penstock.__all__, key=str.lower) == sorted(set(penstock.__all__), key=str.lower)
    for name in penstock.__all__:
        assert getattr(penstock, name).__doc__, name


def test_every_core_structure_has_its_design_page():
    """Headers are described by the page of the structure they belong to."""
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "design").glob("*.md"))
    for path in CORE:
        assert path.name in pages, f"no page in docs/design mentions {path.name}"


def test_layout_offsets_in_the_page_are_those_of_the_header():
    text = (ROOT / "native" / "core" / "log" / "log_layout.hpp").read_text()
    page = (ROOT / "docs" / "design" / "term_log.md").read_text()
    for name, offset in re.findall(r"Paired<Atomic<\w+>> (\w+);\s*// (\d+)", text):
        assert re.search(rf"\| {4096 + int(offset)} \| `{name}`", page), f"{name} at {4096 + int(offset)}"


HEADER_WORDS = {
    "ground/channel_header.hpp": {"Header": None},
    "log/log_layout.hpp": {"LogWords": "log, sync"},
    "ring/ring_layout.hpp": {"RingWords": "ring, frames"},
    "frames/frame_layout.hpp": {"FrameWords": "frames"},
    "pipe/pipe_layout.hpp": {"PipeWords": "pipe"},
}


def test_the_page_of_the_channel_file_lists_every_word_of_the_header():
    page = (ROOT / "docs" / "design" / "channel_file.md").read_text()
    for file, structures in HEADER_WORDS.items():
        text = (ROOT / "native" / "core" / file).read_text()
        for structure, kinds in structures.items():
            body = re.search(rf"struct {structure} {{\n(.*?)\n}};", text, re.DOTALL)[1]
            words = re.findall(r"(\w+)(?:\[\d+\])?;\s*// (\d+)", body)
            assert len(words) == len(body.splitlines()), f"{file}: each word of {structure} on a line with its offset"
            for name, offset in words:
                if name not in ("unused", "ring"):
                    row = f"| {offset} | `{name}`" if kinds is None else f"| {kinds} | {offset} | `{name}`"
                    assert row in page, f"{file}: {row}"
    header = (ROOT / "native" / "core" / "ground" / "channel_header.hpp").read_text()
    locks = re.findall(r"constexpr uint64_t (\w+) = (\w+);", header.split("namespace lock_byte {")[1])
    assert len(locks) == 3
    for name, byte in locks:
        assert f"| {'4096' if byte == 'control_offset' else byte} | `lock_byte::{name}`" in page


def test_the_glossary_has_each_word_once_in_order():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text().split("\n\n", 1)[1].strip()
    entries = [entry.split("\n") for entry in text.split("\n\n")]
    assert [entry for entry in entries if len(entry) != 2 or not entry[1].startswith(": ")] == []
    words = [entry[0].lower() for entry in entries]
    assert words == sorted(set(words))
