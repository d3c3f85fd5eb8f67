"""The glossary: sorted, and each of its words is used elsewhere in the pages or the sources."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
HEADS = re.findall(r"^([^:#\n].*)\n: ", GLOSSARY.read_text(), re.M)
TEXTS = [
    path.read_text()
    for folder in ("docs", "src", "native")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".md", ".py", ".hpp", ".cpp"} and path != GLOSSARY
]


def test_words_are_sorted() -> None:
    assert HEADS
    assert sorted(HEADS, key=str.lower) == HEADS


@pytest.mark.parametrize("word", [word for head in HEADS for word in re.split(r", | or ", head)])
def test_each_word_is_used(word: str) -> None:
    """In a text, or as part of a name: `sync marker` is also `SyncMarker` and `sync_marker`."""
    stem = word[:-1] if word.endswith("y") else word  # spy, spies
    pattern = re.compile(r"(?i)" + r"[ _-]?".join(map(re.escape, stem.split())))
    assert any(pattern.search(text) for text in TEXTS)
