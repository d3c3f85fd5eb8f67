"""The programs on the pages that people read: README.md and docs/, but not the pages on internals."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - set((ROOT / "docs" / "design").glob("*.md")))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", re.S)
TWO = re.compile(
    r"In one terminal, `\w+\.py`:\n\n```python\n(.*?)```\n\n"
    r"In another terminal, `\w+\.py`:\n\n```python\n(.*?)```\n\n"
    r"The first terminal prints:\n\n```\n(.*?)```",
    re.S,
)


@dataclass(frozen=True)
class Block:
    """A program, and what the page says that it prints: None if the page says nothing."""

    code: str
    output: str | None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT)).removeprefix("docs/").removesuffix(".md")


def pairs_of(page: Path) -> list[tuple[str, str, str]]:
    """Programs for two terminals: the first, the second, and what the first one prints."""
    return TWO.findall(page.read_text())


def blocks_of(page: Path) -> list[Block]:
    """The other programs of a page, in order."""
    return [Block(code, output or None) for code, output in BLOCK.findall(TWO.sub("", page.read_text()))]
