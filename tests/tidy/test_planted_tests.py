"""Every bug that is planted into Python or the bindings names the tests that must notice it: each of them exists.

A test that was renamed would otherwise "not notice" its bug, which is only seen when the bug is planted.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from evidence.planted import PYTHON_BUGS

ROOT = Path(__file__).parents[2]


def test_the_tests_that_planted_bugs_name_are_there(request: pytest.FixtureRequest) -> None:
    """Those that this session has not collected are collected by a process: a run of all tests needs none."""
    there = {item.nodeid for item in request.session.items}
    there |= {name.partition("[")[0] for name in there} | {name.partition("::")[0] for name in there}
    named = sorted({test for bug in PYTHON_BUGS.values() for test in bug.tests} - there)
    if not named:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"a planted bug names a test that is not there:\n{done.stderr}{done.stdout[-2000:]}"


NAMES_OF_ITS_OWN = """
import contextlib, importlib, pkgutil, sys
import penstock
for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not found.name.endswith("__main__"):
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(found.name)
from evidence import planted, planted_native
def not_built():
    raise ImportError("bugs in the bindings change no names")
planted_native.build = not_built
modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "penstock" and module}
before = {name: dict(vars(module)) for name, module in modules.items()}
for bug in planted.PYTHON_BUGS:
    try:
        planted.plant(bug)
    except ImportError as error:
        if (error.name or "").startswith("penstock"):
            raise
    for name, were in before.items():
        now = vars(modules[name])
        for key in now.keys() - were.keys():
            if f"{name}.{key}" not in sys.modules:
                print(f"{bug!r} sets {name}.{key}, which nobody looks at", flush=True)
        now.clear()
        now.update(were)
"""


@pytest.mark.slow
def test_a_planted_bug_changes_only_names_that_are_there() -> None:
    """A module that has moved leaves a bug planted where nothing runs, and a suite that seems blind."""
    command = [sys.executable, "-c", NAMES_OF_ITS_OWN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.stdout == "", done.stdout
    assert done.returncode == 0, done.stderr[-2000:]
