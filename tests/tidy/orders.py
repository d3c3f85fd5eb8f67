"""Memory orders and their comments: reads the C++ sources and the tables of the design pages.

Every ordered operation (an acquire, a release, a swap, an update, a fence) says on its line or directly above it which pair it
belongs to, or why nothing relies on its order:

    // SYNC 1: pairs with LogReader::look; forbids seeing a length before its frame
    // SYNC -: changed and believed under the lock only
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evidence import anchors

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "design"
SPELLED = ("ground/atomics.hpp", "ground/platform.hpp")  # the operations themselves
NO_WORDS = ("ground/messages/arrow_batch.hpp",)  # names there are those of columns, not of shared words

# The pages that may hold a number, by the folder of a function that carries it.
PAGES_OF = {
    "ground": ("channel_file", "open_channels"),
    "log": ("term_log",),
    "net": ("network_log",),
    "ring": ("ring",),
    "frames": ("frame_pool",),
    "sync": ("sync_queue",),
    "pipe": ("shm_pipe", "patterns"),
    "threads": ("ypipe", "mailbox"),
    "ends": ("open_channels",),
    "bind": ("mailbox",),
}

FENCES = {
    "full_fence": "both",
    "light_fence": "both",
    "heavy_fence": "both",
    "release_fence": "release",
    "acquire_fence": "acquire",
}
METHODS = {
    "acquire": "acquire",
    "release": "release",
    "cas": "both",
    "set_bits": "both",
    "add": "both",
    "exchange": "both",
}
SAID = re.compile(r"SYNC (\d+|-): (.*?)(?=\s*SYNC (?:\d+|-): |$)")
PAIR = re.compile(r"pairs with ([\w:~]+(?:(?:, | and )[\w:~]+)*); forbids (\S.*)")
DECLARED = re.compile(r"Atomic<[^<>]+>+\s*[&*]?\s*(\w+(?:, \w+)*)")


@dataclass(frozen=True)
class Claim:
    """A comment's statement about an operation."""

    number: int | None  # None: no pair
    partners: tuple[str, ...]
    text: str  # the forbidden reordering, or the reason


@dataclass(frozen=True)
class Ordered:
    """An ordered operation, and what its comment says."""

    symbol: str
    name: str  # as `anchors.Operation` names it
    file: str  # folder/file
    line: int
    offset: int
    side: str  # release, acquire, both
    claims: tuple[Claim, ...]
    wrong: str  # the faults of its comment

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.file}:{self.line}: {self.symbol}: {self.name}"


@cache
def sources() -> dict[str, str]:
    """folder/file → text."""
    native = ROOT / "native"
    paths = [*sorted(native.rglob("core/**/*.hpp")), *sorted(native.rglob("bind/**/*.[hc]pp"))]
    return {path.relative_to(native).as_posix().removeprefix("core/"): path.read_text() for path in paths}


def comment_of(lines: list[str], line: int) -> str:
    """The comment on a line (from 1) and the comment lines directly above it, as one text."""
    above: list[str] = []
    at = line - 2
    while at >= 0 and lines[at].strip().startswith("//"):
        above.insert(0, lines[at].strip().removeprefix("//").strip())
        at -= 1
    code, _, own = lines[line - 1].partition("//")
    return " ".join([*above, own.strip()] if code.strip() else above)


def read_comment(text: str) -> tuple[tuple[Claim, ...], str]:
    """A comment's statement, and its faults."""
    claims = []
    for number, said in SAID.findall(text):
        pair = PAIR.fullmatch(said)
        if number == "-":
            claims.append(Claim(None, (), said))
            if not said or pair:
                return tuple(claims), "`SYNC -: ` is followed by the reason why nothing relies on the order"
        elif pair is None:
            return tuple(
                claims
            ), f"`SYNC {number}: ` is followed by `pairs with FUNCTION; forbids REORDERING`, not by {said!r}"
        else:
            claims.append(Claim(int(number), tuple(re.split(r", | and ", pair[1])), pair[2]))
    return tuple(claims), "" if claims else "no SYNC comment on its line or directly above it"


def _side(called: str, arguments: str, words: set[str]) -> str:
    """Which side of a pair a call can be, from the text before its bracket; nothing if it is no ordered operation."""
    if (fence := re.search(r"(\w+)$", called)) and fence[1] in FENCES:
        return "" if re.search(r"\bvoid\s+\w+$", called) else FENCES[fence[1]]
    found = re.search(r"(\w+|[)\]])\s*(\.|->)\s*(\w+)$", called)
    if found is None:
        return ""
    receiver, dot, method = found.groups()
    if receiver in (")", "]"):  # `word(i).release`: the name before the bracket is the receiver
        receiver = anchors.name_before(called[: found.start(2)])
    if method in ("add", "exchange") and receiver not in words:
        return ""
    if method == "acquire" and arguments:
        return ""
    if method == "release" and (not arguments or dot == "->"):  # a handle's own; that of one of Arrow's structs
        return ""
    return METHODS.get(method, "")


def ordered(texts: dict[str, str]) -> Iterator[Ordered]:
    """Every ordered operation of these sources (folder/file → text)."""
    words = {"value"}  # names of shared words, and of functions that give one
    for text in texts.values():
        words.update(name for names in DECLARED.findall(text) for name in names.split(", "))
    for operation in anchors.operations(anchors.index_of(texts)):
        if operation.file in (*SPELLED, *NO_WORDS):
            continue
        text = texts[operation.file]
        arguments = text[operation.offset + 1 : anchors.closing(text, operation.offset) - 1].strip()
        # Only the end of the text before it: a search would try each place of a file.
        side = _side(text[max(0, operation.offset - 400) : operation.offset].rstrip(), arguments, words)
        if side:
            line = text.count("\n", 0, operation.offset) + 1
            claims, wrong = read_comment(comment_of(text.splitlines(), line))
            yield Ordered(operation.symbol, operation.name, operation.file, line, operation.offset, side, claims, wrong)


@dataclass(frozen=True)
class Row:
    """A line of a design page's table of orders."""

    page: str
    number: int
    release: tuple[str, ...]
    acquire: tuple[str, ...]
    forbids: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"docs/design/{self.page}.md, SYNC {self.number}"


def rows(pages: Path = PAGES) -> Iterator[Row]:
    """The rows of all tables whose first column is SYNC."""
    for path in sorted(pages.glob("*.md")):
        table = False
        for line in path.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
            if not cells:
                table = False
            elif cells[0].strip() == "SYNC":
                table = True
            elif table and cells[0].strip().isdigit():
                release, acquire, forbids = cells[1:]
                sides = [tuple(re.findall(r"`([^`]+)`", cell)) for cell in (release, acquire)]
                yield Row(path.stem, int(cells[0].strip()), sides[0], sides[1], forbids)
