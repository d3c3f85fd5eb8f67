"""The prose of this repository: pages, docstrings, comments and errors, and rules for it. `test_prose.py` applies them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Text(NamedTuple):
    """A paragraph, a docstring, a run of comment lines or a cell of a table, with code spans cut out."""

    path: Path
    line: int
    words: str


CODE = "`…`"


def plain(text: str) -> str:
    """The text on one line, without code spans, links' targets and doctests."""
    text = re.sub(r"(?m)^\s*(>>>|\.\.\.( |$)).*$", "", text)
    text = re.sub(r"``.+?``|`[^`]*`|[\w:]+\(\)", CODE, text, flags=re.DOTALL)
    text = re.sub(r"(SYNC \d+: pairs with )[^;]*", r"\1" + CODE, text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"\s+", " ", text.replace("*", "")).strip()


def page(path: Path) -> Iterator[Text]:
    """A Markdown page: its paragraphs, list items and cells. Blocks of code are left out but for their comments."""
    code, begun, gathered = False, 1, []
    lines = [*path.read_text().splitlines(), ""]
    for number, line in enumerate(lines, 1):
        fence = line.lstrip().startswith("```")
        if fence or code or not line.strip() or line.startswith(("#", "|")) or re.match(r"\s*([-*]|\d+\.|:) ", line):
            if gathered:
                yield Text(path, begun, plain("\n".join(gathered)))
            gathered = []
        code ^= fence
        head = number < len(lines) and lines[number].startswith("|--")
        if line.startswith("#") or (line.startswith("|") and head):
            continue
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip("|")):
                if " " in cell.strip():
                    yield Text(path, number, plain(cell))
        elif code or fence:
            comment = re.search(r"\s# (.*)", line)
            if comment:
                yield Text(path, number, plain(comment[1]))
        elif line.strip():
            begun = begun if gathered else number
            gathered.append(re.sub(r"^\s*([-*]|\d+\.|:|#+) ", "", line))


def errors(tree: ast.AST, path: Path) -> Iterator[Text]:
    """The texts of errors that Python raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            parts = [
                part for part in ast.walk(node.exc) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            words = plain(
                " ".join(str(part.value) for part in sorted(parts, key=lambda part: (part.lineno, part.col_offset)))
            )
            if " " in words:
                yield Text(path, node.lineno, words)


def runs(comments: list[tuple[int, str]], path: Path) -> Iterator[Text]:
    """Comments on lines that follow each other are one text."""
    begun, last, gathered = 0, -1, []
    for number, words in [*comments, (1 << 30, "")]:
        if gathered and number != last + 1:
            yield Text(path, begun, plain("\n".join(gathered)))
            gathered = []
        begun = begun if gathered else number
        gathered.append(words)
        last = number


def python(path: Path) -> Iterator[Text]:
    """A Python file: its docstrings, comments and errors."""
    source = path.read_text()
    yield from errors(ast.parse(source), path)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                line = node.body[0].lineno
                for paragraph in docstring.split("\n\n"):
                    yield Text(path, line, plain(paragraph))
                    line += paragraph.count("\n") + 2
    comments = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
        and not token.string.startswith(("#!", "# noqa", "# type:", "# pragma", "# ruff"))
    ]
    yield from runs(comments, path)


def native(path: Path) -> Iterator[Text]:
    """A C++ file: its comments, and its literals of several words. `//` in a literal, such as a URI, begins no comment."""
    source = path.read_text()
    for found_at in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
        words = plain(re.sub(r'"\s*"|\\n', " ", found_at[0].strip('"')))
        if words.count(" ") >= 2:
            yield Text(path, source.count("\n", 0, found_at.start()) + 1, words)
    lines = source.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        comment = re.search(r"(?<!:)//+ ?(.*)", re.sub(r'"(?:[^"\\]|\\.)*"', '""', line))
        if comment:
            found.append((number, comment[1]))
    yield from runs(found, path)


def read(path: Path) -> Iterator[Text]:
    """All texts of a file, by its suffix."""
    return {".md": page, ".py": python, ".pyi": python}.get(path.suffix, native)(path)


class Rule(NamedTuple):
    """A way not to write, as a pattern, and how to write instead."""

    pattern: re.Pattern[str]
    instead: str


def rule(pattern: str, instead: str) -> Rule:
    """A rule that does not look at capitals."""
    return Rule(re.compile(pattern, re.IGNORECASE), instead)


NAME_IT = 'name the subject: not "who waits sleeps" but "a waiting reader sleeps"; not "what is lost is counted" but "losses are counted"'
RULES = [
    rule(r"(?:^|[.;!?] )(?:who|what(?!:)|whom|whatever)\b(?=[^?]*?(?:[.;:]( |$)|$))", NAME_IT),
    rule(r"\b(?:by|for|from|with|than|as|on|at|because|while|until|that|if|when|so|but|nor) who\b", NAME_IT),
    rule(r"\b(?:because|while|until|if|when|so|that|but) what\b", NAME_IT),
    rule(r"\bwho(?:m|s)?ever\b|\b(?:those|he|him|they|them|one) who\b", NAME_IT),
    rule(r"\b(?:tend|tends|tended|tending)\b(?! to\b)", "collect, repair"),
    rule(r"\b(?:lay|lays|laid|laying)\b(?! out)", "create, connect, place"),
    rule(r"\bintroduc(?:e|es|ed|ing)\b", "register, add"),
    rule(r"\bretir(?:e|es|ed|ing)\b", "unregister, close"),
    rule(r"\bsettl(?:e|es|ed|ing)\b", "release, decide"),
    rule(r"\bheirs?\b", "the next owner; to take over"),
    rule(r"\bdrained\b", "empty, finished"),
    rule(r"\b(?:he|him|his|himself|she|her)\b", "it: a process is no person"),
    rule(r"\banew\b", "again"),
    rule(r"\bbusily\b", "to spin"),
    rule(r"\b(?:keeps?|holds?|without|has|takes?|needs?) the interpreter\b(?!')|\bthe interpreter's lock\b", "the GIL"),
    rule(
        r"\b(?:behavior|neighbor|canceled|canceling|labeled|modeled|signaled|favor|honor|recognize|serialize|organize|"
        r"summarize|analyze|catalog(?:ed|ing))(?:s|d)?\b",
        "British spelling: behaviour, cancelled, recognise",
    ),
]
