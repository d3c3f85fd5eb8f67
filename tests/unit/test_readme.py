"""The README and the pages of the kinds have their form, and docstrings' examples do what they say. test_pages runs the programs."""

import doctest
import re
from pathlib import Path

import pytest

import penstock.codecs
import penstock.joining
import penstock.verbs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
WITH_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```\n(.*?)```", re.S)
KINDS = sorted((ROOT / "docs" / "channels").glob("*.md"))
SECTIONS = ["What it is", "A program", "When a reader is slow", "When a process dies", "Limits", "Options"]


@pytest.mark.parametrize("page", KINDS, ids=lambda page: page.stem)
def test_the_page_of_a_kind_has_a_program_and_the_same_sections(page):
    assert re.findall(r"^## (.*)$", page.read_text(), re.M) == SECTIONS
    assert WITH_OUTPUT.search(page.read_text())


def test_few_words_before_the_first_code():
    assert len(README.split("```")[0].split()) <= 60
    assert README.splitlines()[2] == "`pip install penstock`"


@pytest.mark.parametrize("module", [penstock.verbs, penstock.joining, penstock.codecs], ids=lambda m: m.__name__)
def test_docstring_examples(module):
    found = doctest.testmod(module, extraglobs={"penstock": penstock})
    assert found.attempted > 0
    assert found.failed == 0


def test_links_lead_somewhere():
    root = Path(__file__).parents[2]
    for page in [root / "README.md", root / "ARCHITECTURE.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page}: {target}"
