"""Type checkers understand programs: mypy --strict passes over all of them in the docs, and refuses those with a slip."""

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

pytest.importorskip("mypy", reason="mypy is not installed")

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
SLIPS = Path(__file__).with_name("slips.py")
# The parts that the fragments on a page leave out: the reader's own program.
AROUND = """
import datetime
from typing import Any
import numpy as np
import numpy.typing as npt
import penstock
spark: Any = None
image: npt.NDArray[np.uint8] = np.zeros((1080, 1920, 3), "u1")
t0_ns = t1_ns = 0
t0 = t1 = datetime.datetime.now(datetime.UTC)
def work(job: Any, *, again: bool = False) -> None: ...
def process(view: memoryview) -> None: ...
def start_my_program() -> None: ...
"""


# Names that earlier programs of the same page have made.
BEFORE = {"archive": "penstock.Archive", "pub": "Any", "sub": "Any", "late": "Any"}


def around(code):
    """The lines in front of a program: what the reader has, and what it uses without making it."""
    made = [name for name in BEFORE if not re.search(rf"^\s*{name} =|\bas {name}\b|^\s*for {name} ", code, re.M)]
    return AROUND + "".join(f"{name}: {BEFORE[name]}\n" for name in made)


def blocks():
    """(page, number, code) of every Python block that people read."""
    return [
        (page, number, code)
        for page in pages.PAGES
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
    ]


def name_of(page, number):
    return f"{page.parent.name}_{page.stem.replace('-', '_')}_{number}.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """mypy's messages about each file, by its name: one run for all of them."""
    folder = tmp_path_factory.mktemp("programs")
    files = [*EXAMPLES, SLIPS]
    for page, number, code in blocks():
        files.append(folder / name_of(page, number))
        files[-1].write_text(around(code) + code)
    # In one run, so that the library is read once.
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        place, _, what = line.partition(": error: ")
        if what:
            name, _, number = place.rpartition(":")
            path = (ROOT / name).resolve()
            # mypy's cache may name the folder of an earlier run for a program that is the same.
            found.setdefault(path if path.is_relative_to(ROOT) else path.name, []).append((int(number), what))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number", "code"), [pytest.param(*b, id=f"{b[0].parent.name}-{b[0].stem}-{b[1]}") for b in blocks()]
)
def test_a_page_passes(told, page, number, code):
    before = around(code).count("\n")
    errors = told.get(name_of(page, number), [])
    assert [f"{code.splitlines()[line - before - 1]}: {what}" for line, what in errors] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_passes(told, path):
    assert told.get(path, []) == []


def test_each_slip_is_refused_and_nothing_else(told):
    lines = SLIPS.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# refused" in line}
    assert len(wrong) > 10
    assert {number for number, _ in told[SLIPS]} == wrong
