"""The program of benchmarks: tables, results for programs, a plot. `make ci` runs every question with tiny inputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments):
    command = [sys.executable, "-m", "bench", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_a_question_prints_writes_and_draws(tmp_path):
    done = bench("imports", "--quick", "--json", tmp_path, "--plot", tmp_path / "x.svg")
    assert done.returncode == 0, done.stderr
    assert "CPU of the import, ms" in done.stdout
    found = json.loads((tmp_path / "imports.json").read_text())
    assert {"penstock", "multiprocessing"} <= {row["who"] for row in found["results"]}
    drawn = (tmp_path / "x.svg").read_text()
    assert ">multiprocessing<" in drawn
    assert "python -m bench imports --quick" in drawn


@pytest.mark.slow
def test_a_question_of_growth_draws_lines(tmp_path):
    assert bench("growth", "--quick", "--plot", tmp_path / "x.svg").returncode == 0
    drawn = (tmp_path / "x.svg").read_text()
    assert "log, by capacity, µs" in drawn
    assert "archive, by bytes recorded, ms" in drawn


def test_a_plot_is_of_one_question(tmp_path):
    assert "one question" in bench("imports", "clock", "--plot", tmp_path / "x.svg").stderr
    assert "FILE.svg or FILE.png" in bench("imports", "--plot", tmp_path / "x.gif").stderr
