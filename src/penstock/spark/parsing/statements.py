"""Splits a file of SQL into its definitions of tables, with their lines. sqlglot reads the tokens; a query is Spark's to read.

CREATE [OR REPLACE] TABLE name [COMMENT 'text'] AS query;
CREATE [OR REPLACE] [TEMPORARY] VIEW name [COMMENT 'text'] AS query;
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import Invalid
from penstock.util.extras import explain_missing

FORM = "CREATE TABLE name AS SELECT …, or CREATE VIEW for a name without files"


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
    found, of = list[Statement](), list[Any]()
    for token in tokens(source, file):
        if token.token_type.name != "SEMICOLON":
            of.append(token)
        elif of:
            found.append(_statement(source, of, file))
            of = []
    return [*found, _statement(source, of, file)] if of else found


def tokens(source: str, file: str, dialect: str = "spark") -> list[Any]:
    """The tokens of SQL (sqlglot's), where backticks quote a name. `Invalid` for a text, a name or a comment without an end."""
    with explain_missing("tables of your own", extra="spark"):
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import TokenError

    # A sign of quotation that stands twice is one sign of the text: so since Spark 4.
    kind: Any = Dialect.get_or_raise(dialect).tokenizer_class
    more = {"STRING_ESCAPES": ["\\", "'", '"']} if dialect == "spark" else {"IDENTIFIERS": ['"', "`"]}
    kind = type("Tokenizer", (kind,), more)
    try:
        return list(kind().tokenize(source))
    except TokenError:
        at = _last_readable(kind, source)
        raise Invalid(f"{file}:{source.count(chr(10), 0, at) + 1}: this text, name or comment has no end") from None


def _last_readable(kind: Any, source: str) -> int:
    """Where the part begins that has no end: the longest beginning of whole lines that can be read ends there."""
    from sqlglot.errors import TokenError

    starts = [at for at, sign in enumerate(source) if sign == "\n"]
    for at in reversed(starts):
        try:
            kind().tokenize(source[:at])
        except TokenError:
            continue
        return at + 1
    return 0


def _statement(source: str, of: list[Any], file: str) -> Statement:
    place = f"{file}:{_line(source, of[0])}"
    words = [token.text.lower() if token.token_type.name not in ("STRING", "IDENTIFIER") else "" for token in of[:9]]
    words += [""] * 9
    at = 3 if words[:3] == ["create", "or", "replace"] else 1
    temporary = words[at] in ("temp", "temporary")
    at += temporary
    if words[0] != "create" or words[at] not in ("table", "view") or (temporary and words[at] == "table"):
        beginning = source[of[0].start : of[min(2, len(of) - 1)].end + 1]
        raise Invalid(f"{place}: {beginning!r} begins no definition of a table: write {FORM}")
    stored, named = words[at] == "table", of[at + 1 : at + 2]
    at += 2
    if not named or not (named[0].token_type.name == "IDENTIFIER" or named[0].text.isidentifier()):
        raise Invalid(f"{place}: a name must follow {words[at - 2].upper()}: write {FORM}")
    name, comment = named[0].text, ""
    if words[at] == "comment" and len(of) > at + 1 and of[at + 1].token_type.name == "STRING":
        comment = of[at + 1].text
        at += 2
    if words[at] != "as" or len(of) <= at + 1:
        raise Invalid(f"{place}: AS and a query must follow the name {name}: write {FORM}")
    first = of[at + 1]
    column = first.start - source.rfind("\n", 0, first.start) - 1
    query = "\n" * (_line(source, first) - 1) + " " * column + source[first.start : of[-1].end + 1]
    said = " ".join(source[token.start : token.end + 1] for token in of)
    return Statement(name, _line(source, of[0]), query, said, stored, comment)


def _line(source: str, token: Any) -> int:
    return source.count("\n", 0, token.start) + 1
