"""Every example runs, and is short."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SAID = {
    "hello": "{'text': 'hello'}",
    "two_processes": "499500",
    "arrays": "7.0",
    "many_sensors": "30",
    "frames": "10 99.0 {'gain': 9.9}",
    "ring": "49999 0 50000 49999",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path):
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAID[path.stem], "")
    assert len(path.read_text().splitlines()) <= 32


def test_there_are_examples():
    assert {path.stem for path in EXAMPLES} == set(SAID)
