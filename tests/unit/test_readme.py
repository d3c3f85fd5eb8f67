"""The README's and the docstrings' examples do what they say."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

import penstock.front

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.S)


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_the_code_prints_what_it_says(code, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    assert said.getvalue() == output


def test_there_are_blocks_with_output():
    assert len(BLOCKS) == 2


def test_few_words_before_the_first_code():
    assert len(README.split("```")[0].split()) <= 60


def test_docstring_examples():
    found = doctest.testmod(penstock.front, extraglobs={"penstock": penstock})
    assert found.attempted > 0
    assert found.failed == 0


def test_links_lead_somewhere():
    root = Path(__file__).parents[2]
    for page in [root / "README.md", root / "ARCHITECTURE.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page}: {target}"
