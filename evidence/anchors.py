"""Places in the C++ sources, found by a function's name and a text that fits it once: a rename or a new layout elsewhere costs nothing.

Knows where functions begin and end, roughly; knows nothing of bugs and mutants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

NUMBER, STRING = r"\d(?:[\w.]|'\w)*", r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\''
COMMENT = r"//[^\n]*|/\*.*?\*/|(?<![^\n])[ \t]*#(?:\\\n|[^\n])*"
MASKED = re.compile(rf"{NUMBER}|(?P<string>{STRING})|(?P<comment>{COMMENT})", re.DOTALL)
WORD = re.compile(rf"{STRING}|\$?\w+|[^\w\s]")
EDGE = re.compile(r"[;({[}]|\b(?:public|private|protected)\s*:(?!:)")
CLOSING = {"(": ")", "[": "]", "{": "}"}
OF_STATEMENT = r"[^;(){}]"
for _ in range(4):  # brackets in brackets
    OF_STATEMENT = rf"(?:[^;(){{}}]|\({OF_STATEMENT}*\)|\{{(?:{OF_STATEMENT}|;)*\}})"


@dataclass(frozen=True)
class Function:
    """One definition: from its return type to the end of its body."""

    symbol: str  # "Class::name", "name"
    file: str
    start: int
    end: int
    code: str  # the whole file's, with blanks in place of comments
    shape: str  # the same with blanks in place of strings, too


def _masked(text: str, *names: str) -> str:
    """The text with blanks in place of its comments, and of its strings: offsets stay."""
    return MASKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m.lastgroup in names else m[0], text)


def closing(text: str, at: int) -> int:
    """The offset behind the bracket that closes the one at `at`."""
    depth = 0
    for found in re.compile(r"[()[\]{}]").finditer(text, at):
        depth += 1 if found[0] in CLOSING else -1
        if depth == 0:
            return found.end()
    raise ValueError(f"unbalanced: {text[at : at + 80]!r}")


def _defined(head: str) -> tuple[bool, str]:
    """Whether the brace behind this text opens a scope, and the name of the scope or the function; no name if it is neither.

    What stood between brackets is left out of the text.
    """
    if named := re.search(r"\boperator\s*(\(\)|[^()]+)\(\)", head):
        return False, "operator" + re.sub(r"\s", "", named[1])
    first, bracket, rest = head.partition("()")
    while "<" in first and first != (first := re.sub(r"<[^<>]*>", "", first)):
        pass  # the arguments of templates
    first = re.sub(r"^\s*template\b", "", first).strip()
    if re.match(r"(namespace|extern)\b", first):
        return True, ""
    if re.match(r"(struct|class|union|enum)\b", first):
        names = re.findall(r"\w+", re.split(r"(?<!:):(?!:)", first + " " + rest)[0])
        return True, next(name for name in reversed(names) if name != "final")
    if not bracket or "=" in first or re.search(r"[,:=]\s*$", head):
        return False, ""
    if re.search(r"(\)|\bnoexcept)\s*:(?!:)", head) and not re.search(r"[)}]\s*$", head):
        return False, ""  # it initialises a member
    found = re.search(r"(?:\w+\s*::\s*)*~?\w+$", first)
    return False, re.sub(r"\s", "", found[0]) if found else ""


def functions_of(file: str, text: str) -> Iterator[Function]:
    """The functions that a file defines, those of its types included; names inside a function belong to it."""
    code, shape = _masked(text, "comment"), _masked(text, "comment", "string")
    scopes: list[str] = []
    head, begin, at = "", 0, 0
    while edge := EDGE.search(shape, at):
        head, at, word = head + shape[at : edge.start()], edge.end(), edge[0]
        if word in ("(", "["):
            at, head = closing(shape, edge.start()), head + word + CLOSING[word]
            continue
        if word == "}":
            scopes.pop()
        elif word == "{":
            scope, name = _defined(head)
            if scope:
                scopes.append(name)
            else:
                at = closing(shape, edge.start())
                if not name:
                    head += "{}"
                    continue
                yield Function("::".join([*filter(None, scopes), name]), file, begin, at, code, shape)
        head, begin = "", at


def index_of(texts: Mapping[str, str]) -> dict[str, list[Function]]:
    """Symbol → its definitions (overloads), in all of these files."""
    found: dict[str, list[Function]] = {}
    for file, text in texts.items():
        for function in functions_of(file, text):
            found.setdefault(function.symbol, []).append(function)
    return found


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """White space does not count, and `$x` stands for some text of one statement."""
    words = WORD.findall(text)
    if not words or words[0][0] == "$" or words[-1][0] == "$":
        raise ValueError(f"a pattern begins and ends with a word of the source: {text!r}")
    parts = [
        f"(?P<{word[1:]}>{OF_STATEMENT}+?)" if word[0] == "$" else re.sub(r"^\w+$", r"\\b\g<0>\\b", re.escape(word))
        for word in words
    ]
    return re.compile(r"\s*".join(parts))


@dataclass(frozen=True)
class Place:
    """Where an anchor was found: a span of a file, and the spans of the pattern's holes."""

    file: str
    start: int
    end: int
    holes: tuple[tuple[str, int, int], ...]

    def filled(self, text: str, replacement: str) -> str:
        """The replacement with the source's text for its holes; `$0` is the whole span."""
        parts = {"$0": text[self.start : self.end], **{f"${name}": text[a:b] for name, a, b in self.holes}}
        return re.sub(r"\$\w+", lambda m: parts[m[0]], replacement)


def place(symbol: str, pattern: str, index: Mapping[str, Iterable[Function]]) -> Place:
    """The one place in functions of this name where the pattern fits, or a LookupError that says how often it does."""
    found = [
        Place(function.file, *match.span(), tuple((name, *match.span(name)) for name in match.groupdict()))
        for function in index.get(symbol, ())
        for match in _pattern(pattern).finditer(function.code, function.start, function.end)
    ]
    if len(found) != 1:
        why = f"fits {len(found)} times" if symbol in index else "there is no such function"
        raise LookupError(f"{symbol}: {pattern!r}: {why}")
    return found[0]


def replaced(texts: Mapping[str, str], changes: Iterable[tuple[Place, str]]) -> dict[str, str]:
    """The files that change, with each place replaced."""
    in_order = sorted(changes, key=lambda change: (change[0].file, change[0].start))
    for (before, _), (after, _) in pairwise(in_order):
        if before.file == after.file and before.end > after.start:
            raise LookupError(f"two places overlap in {after.file}")
    result = {where.file: texts[where.file] for where, _ in in_order}
    for where, what in reversed(in_order):
        text = result[where.file]
        result[where.file] = text[: where.start] + where.filled(texts[where.file], what) + text[where.end :]
    return result


@dataclass(frozen=True)
class Operation:
    """A call in a function, and where the bracket of its arguments opens."""

    symbol: str
    name: str  # `word0.release`, `full_fence`; with a number from the second one in its function on
    file: str
    offset: int


def operations(index: Mapping[str, Iterable[Function]]) -> Iterator[Operation]:
    """Every call in every function."""
    for symbol, functions in index.items():
        number: dict[str, int] = {}
        for function in functions:
            for found in re.compile(r"(\w+)\s*\(").finditer(function.shape, function.start, function.end):
                before = function.shape[function.start : found.start()]
                dot = re.search(r"(\.|->)\s*$", before[-80:])
                receiver = name_before(before.rstrip("-.> \n")) if dot else ""
                name = f"{receiver}.{found[1]}" if dot else found[1]
                number[name] = number.get(name, 0) + 1
                numbered = name if number[name] == 1 else f"{name} {number[name]}"
                yield Operation(symbol, numbered, function.file, found.end() - 1)


def name_before(text: str) -> str:
    """The name that a call or an index at the end of a text stands behind: `at` of `word->at(i)`."""
    while text and text[-1] in ")]":
        depth, at = 0, len(text)
        while at and (depth or at == len(text)):
            at -= 1
            depth += (text[at] in ")]") - (text[at] in "([")
        text = text[:at]
    named = re.search(r"\w+$", text[-80:])
    return named[0] if named else ""


def operation_at(file: str, line: int, column: int, text: str, index: Mapping[str, Iterable[Function]]) -> Operation:
    """The call whose bracket opens at this line and column."""
    offset = sum(len(row) for row in text.splitlines(keepends=True)[: line - 1]) + column - 1
    for symbol, functions in index.items():
        if any(one.file == file and one.start <= offset < one.end for one in functions):
            for operation in operations({symbol: functions}):
                if (operation.file, operation.offset) == (file, offset):
                    return operation
    raise LookupError(f"no call begins its arguments at {file}:{line}:{column}")
