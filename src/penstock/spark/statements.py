"""Splits a file of SQL into its definitions of tables, with their lines. Knows the outside of a statement only: a query is Spark's to read.

CREATE [OR REPLACE] TABLE name [COMMENT 'text'] AS query;
CREATE [OR REPLACE] [TEMPORARY] VIEW name [COMMENT 'text'] AS query;
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.errors import Invalid

TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<end>;)
      | (?P<open>['"`])
      | (?P<other>\d\w*|.)""",
    re.VERBOSE | re.DOTALL,
)
FORM = "CREATE TABLE name AS SELECT …, or CREATE VIEW for a name without files"


@dataclass(frozen=True)
class Token:
    """A word, a text, a name in backticks, or one other character. at: its place in the file."""

    form: str
    text: str
    at: int


@dataclass(frozen=True)
class Statement:
    """A definition. query: with so much white space in front that Spark counts the file's lines. said: the same without comments
    and white space. stored: false for a view."""

    name: str
    line: int
    query: str
    said: str
    stored: bool
    comment: str


def statements(source: str, file: str) -> list[Statement]:
    """All definitions of a file. `Invalid`, with the line, for anything else in it."""
    starts = [0, *(found.end() for found in re.finditer("\n", source))]

    def line(at: int) -> int:
        return bisect.bisect_right(starts, at)

    found, tokens = [], list[Token]()
    for token in [*_tokens(source, file, line), Token("end", ";", len(source))]:
        if token.form != "end":
            tokens.append(token)
        elif tokens:
            found.append(_statement(source, tokens, token.at, file, line))
            tokens = []
    return found


def _tokens(source: str, file: str, line: Callable[[int], int]) -> Iterator[Token]:
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        assert match is not None  # one branch takes any character
        form, begun = match.lastgroup or "", at
        at = match.end()
        if form == "comment":
            at = _behind_comment(source, begun)
        if form == "open" or at < 0:
            what = {"`": "name in backticks", "": "comment"}.get(match["open"] or "", "text")
            raise Invalid(f"{file}:{line(begun)}: this {what} has no end")
        if form not in ("space", "comment"):
            yield Token(form, match[0], begun)


def _behind_comment(source: str, at: int) -> int:
    """Where a comment ends, or -1. Spark's comments may hold others."""
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(source, at):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return found.end()
    return -1


def _statement(source: str, tokens: list[Token], end: int, file: str, line: Callable[[int], int]) -> Statement:
    place = f"{file}:{line(tokens[0].at)}"
    words = [token.text.lower() if token.form == "word" else "" for token in tokens[:9]] + [""] * 9
    at = 3 if words[:3] == ["create", "or", "replace"] else 1
    temporary = words[at] in ("temp", "temporary")
    at += temporary
    if words[0] != "create" or words[at] not in ("table", "view") or (temporary and words[at] == "table"):
        beginning = " ".join(token.text for token in tokens[:3])
        raise Invalid(f"{place}: {beginning!r} begins no definition of a table: write {FORM}")
    stored, named = words[at] == "table", tokens[at + 1 : at + 2]
    at += 2
    if not named or named[0].form not in ("word", "name"):
        raise Invalid(f"{place}: a name must follow {words[at - 2].upper()}: write {FORM}")
    name = named[0].text if named[0].form == "word" else named[0].text[1:-1].replace("``", "`")
    comment = ""
    if words[at] == "comment" and len(tokens) > at + 1 and tokens[at + 1].form == "text":
        comment = re.sub(r"\\(.)|''", lambda match: match[1] or "'", tokens[at + 1].text[1:-1])
        at += 2
    if words[at] != "as" or len(tokens) <= at + 1:
        raise Invalid(f"{place}: AS and a query must follow the name {name}: write {FORM}")
    first = tokens[at + 1]
    column = first.at - source.rfind("\n", 0, first.at) - 1
    query = "\n" * (line(first.at) - 1) + " " * column + source[first.at : end]
    said = " ".join(token.text for token in tokens)
    return Statement(name, line(tokens[0].at), query.rstrip(), said, stored, comment)
