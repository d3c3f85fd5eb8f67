"""Checks the links of the repository's Markdown and of the built pages: files and anchors exist, addresses of others are well formed.

    python tools/links.py [--built FOLDER] [--live]

--built also checks pages that Sphinx made. --live also asks each address of another site whether it is there.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PLAIN = re.compile(r"[^\w\- ]")
HOST = re.compile(r"(localhost|127\.0\.0\.1|([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,})(:\d{1,5})?")
SCHEMES = ("http", "https")
SECONDS = 20.0


@dataclass(frozen=True)
class Link:
    """A link as a page has it, and the line on which its paragraph begins; 0 if it is not known."""

    page: Path
    line: int
    target: str


def sources(root: Path) -> list[Path]:
    """The Markdown files of a checkout."""
    found = [
        *root.glob("*.md"),
        *(path for part in ("docs", "deploy", "examples") for path in (root / part).rglob("*.md")),
    ]
    return sorted(path for path in found if "_build" not in path.parts)


# ---- what a page has ----


class _Html(HTMLParser):
    """The links and the anchors of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[int, str]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Notes a tag's id and its link."""
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value is not None:
                self.links.append((self.getpos()[0], value))


@functools.cache
def _html(path: Path) -> _Html:
    return _Html(path.read_text())


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub and MyST make it."""
    return PLAIN.sub("", heading.strip().lower()).replace(" ", "-")


@functools.cache
def _markdown(path: Path) -> tuple[list[Link], frozenset[str]]:
    """The links and the anchors of a Markdown file."""
    links: list[Link] = []
    anchors: list[str] = []
    tokens = MarkdownIt().enable("table").parse(path.read_text())
    for before, token in zip([None, *tokens], tokens, strict=False):
        line = token.map[0] + 1 if token.map else 0
        if token.type in ("html_block", "html_inline"):
            links += [Link(path, line, target) for _, target in _Html(token.content).links]
        for child in token.children or ():
            target = child.attrGet("href" if child.type == "link_open" else "src")
            if target is not None:
                links.append(Link(path, line, str(target)))
        if before is not None and before.type == "heading_open":
            made = slug("".join(child.content for child in token.children or ()))
            count = sum(re.fullmatch(rf"{re.escape(made)}(-\d+)?", one) is not None for one in anchors)
            anchors.append(f"{made}-{count}" if made in anchors else made)
    labels = re.findall(r"^\(([\w-]+)\)=$", path.read_text(), re.M)
    return links, frozenset([*anchors, *labels])


def links_of(path: Path) -> list[Link]:
    """The links of a page."""
    if path.suffix == ".md":
        return _markdown(path)[0]
    return [Link(path, line, target) for line, target in _html(path).links]


def anchors_of(path: Path) -> Iterable[str]:
    """The anchors of a page."""
    return _markdown(path)[1] if path.suffix == ".md" else _html(path).anchors


# ---- the check ----


def wrong(link: Link, root: Path) -> str | None:
    """The reason why a link leads nowhere, or None. root: the folder that it must not leave."""
    try:
        parts = urlsplit(link.target)
    except ValueError as error:
        return str(error)
    if parts.scheme or link.target.startswith("//"):
        return _malformed(link.target)
    path = link.page if not parts.path else (link.page.parent / unquote(parts.path)).resolve()
    if parts.path.startswith("/") or not path.is_relative_to(root):
        return "it leaves this folder"
    if not path.exists():
        return "there is no such file"
    if parts.fragment and path.suffix in (".md", ".html") and unquote(parts.fragment) not in anchors_of(path):
        return f"{path.name} has no anchor {parts.fragment}"
    return None


def _malformed(target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme in ("data", "mailto"):
        return None
    if parts.scheme not in SCHEMES:
        return f"the scheme is {parts.scheme!r}"
    if not HOST.fullmatch(parts.netloc.lower()):
        return f"the host is {parts.netloc!r}"
    return "it has a space" if re.search(r"\s", target) else None


def broken(pages: Iterable[Path], root: Path) -> Iterator[tuple[Link, str]]:
    """The links of pages that lead nowhere, each with the reason."""
    for page in pages:
        for link in links_of(page):
            if (why := wrong(link, root)) is not None:
                yield link, why


def unreachable(pages: Iterable[Path]) -> Iterator[tuple[Link, str]]:
    """The links to other sites that do not answer, each address asked once."""
    asked = {link.target.partition("#")[0]: link for page in pages for link in links_of(page)}
    for target, link in sorted(asked.items()):
        if urlsplit(target).scheme in SCHEMES and not _malformed(target):
            request = urllib.request.Request(target, method="HEAD", headers={"User-Agent": "Mozilla/5.0 (link check)"})
            try:
                with urllib.request.urlopen(request, timeout=SECONDS):
                    pass
            except (urllib.error.URLError, OSError) as error:
                yield link, str(error)


def main(arguments: list[str] | None = None) -> int:
    """The number of bad links is told; status 1 if there is one."""
    parser = argparse.ArgumentParser(description="Checks links.")
    parser.add_argument("--built", type=Path, help="also the pages in this folder")
    parser.add_argument("--live", action="store_true", help="also ask other sites")
    asked = parser.parse_args(arguments)
    checked = [(page, ROOT) for page in sources(ROOT)]
    if asked.built is not None:
        built = asked.built.resolve()
        checked += [(page, built) for page in sorted(built.rglob("*.html"))]
    found = [one for page, root in checked for one in broken([page], root)]
    if asked.live:
        found += unreachable(page for page, _ in checked)
    for link, why in found:
        print(f"{link.page}:{link.line}: {link.target}: {why}", file=sys.stderr)
    print(f"{sum(len(links_of(page)) for page, _ in checked)} links on {len(checked)} pages, {len(found)} bad")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
