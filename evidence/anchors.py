"""Places in the C++ sources, found by the function's name and a pattern of tokens: a rename or a new layout elsewhere costs nothing.

Knows how to cut C++ into tokens and functions, roughly; knows nothing of bugs and mutants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

TOKEN = re.compile(
    r"""(?P<skip>\s+ | //[^\n]* | /\*.*?\*/ | (?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
    | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+'
    | \$\w+ | [A-Za-z_]\w* | \d(?:[\w.]|'\w)*
    | \.\.\. | <=> | << | -> | :: | \|\| | && | \+\+ | -- | [-+*/%&|^!=<>]= | .""",
    re.VERBOSE | re.DOTALL,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
TYPES = ("struct", "class", "union", "enum")


@dataclass(frozen=True)
class Token:
    text: str
    start: int  # in the file's text
    end: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of C++ source, without comments and preprocessor lines."""
    return [Token(m[0], m.start(), m.end()) for m in TOKEN.finditer(text) if m["skip"] is None]


@dataclass(frozen=True)
class Function:
    """One definition: from its return type or initialisers to the end of its body."""

    symbol: str  # "Class::name", "name"
    file: str
    tokens: tuple[Token, ...]


def _closing(tokens: list[Token], at: int) -> int:
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        if tokens[index].text in CLOSING:
            depth += 1
        elif tokens[index].text in CLOSING.values():
            depth -= 1
            if depth == 0:
                return index
    raise ValueError(f"unbalanced: {tokens[at]}")


def _without_template(head: list[str]) -> list[str]:
    """The head of a definition after its `template <…>`."""
    if head[:1] != ["template"]:
        return head
    depth = 0
    for index, text in enumerate(head):
        depth += {"<": 1, ">": -1}.get(text, 0)
        if text == ">" and depth == 0:
            return head[index + 1 :]
    return head


def _function_name(head: list[str]) -> str:
    """The name in the head of a function's definition; nothing if it is none."""
    if "operator" in head:
        at = head.index("operator")
        return "operator" + "".join(head[at + 1 : head.index("(", at + 2)])
    if "(" not in head or "=" in head[: head.index("(")]:
        return ""
    at = head.index("(")
    name = head[at - 1]
    if head[at - 2 : at - 1] == ["~"]:
        name, at = f"~{name}", at - 1
    while head[at - 2 : at - 1] == ["::"]:
        name, at = f"{head[at - 3]}::{name}", at - 2
    return name if name[-1].isidentifier() or name[-1].isdigit() else ""


def _type_name(head: list[str]) -> str:
    """The name in the head of a type's definition."""
    words = [text for text in head[: head.index(":")] if text] if ":" in head else head
    return next(text for text in reversed(words) if text not in ("final", ")", "(")) if words[-1] != ")" else ""


def functions_of(file: str, text: str) -> Iterator[Function]:
    """The functions that a file defines, those of its types included; names inside a function belong to it."""
    tokens = tokens_of(text)
    scopes: list[str] = []
    begin = index = 0
    while index < len(tokens):
        word = tokens[index].text
        if word == ";" or (word == ":" and index and tokens[index - 1].text in ("public", "private", "protected")):
            begin = index + 1
        elif word in ("(", "["):
            index = _closing(tokens, index)
        elif word == "}":
            scopes.pop()
            begin = index + 1
        elif word == "{":
            head = _without_template([token.text for token in tokens[begin:index]])
            if head[:1] in (["namespace"], ["extern"]):
                scopes.append("")
                begin = index + 1
            elif head and head[0] in TYPES:
                scopes.append(_type_name(head))
                begin = index + 1
            else:
                index, name = _closing(tokens, index), _function_name(head)
                starts_body = head and head[-1] not in (",", ":", "=") and not _initialises(head)
                if name and starts_body:
                    symbol = "::".join([*filter(None, scopes), name])
                    yield Function(symbol, file, tuple(tokens[begin : index + 1]))
                    begin = index + 1
        index += 1


def _initialises(head: list[str]) -> bool:
    """Whether the brace behind this head initialises a member (`: a_{1}`) or a variable."""
    if ")" not in head:
        return True
    depth = 0
    for index, text in enumerate(head):
        depth += {"(": 1, ")": -1}.get(text, 0)
        if text == ":" and depth == 0 and head[index - 1] in (")", "noexcept"):
            return head[-1] not in (")", "}")
    return False


def index_of(texts: Mapping[str, str]) -> dict[str, list[Function]]:
    """Symbol → its definitions (overloads), in all of these files."""
    found: dict[str, list[Function]] = {}
    for file, text in texts.items():
        for function in functions_of(file, text):
            found.setdefault(function.symbol, []).append(function)
    return found


@cache
def _pattern(text: str) -> tuple[str, ...]:
    words = tuple(token.text for token in tokens_of(text))
    if not words or words[0][0] == "$" or words[-1][0] == "$":
        raise ValueError(f"a pattern begins and ends with a token of the source: {text!r}")
    return words


def _match(words: tuple[str, ...], tokens: tuple[Token, ...], at: int) -> tuple[int, dict[str, tuple[int, int]]] | None:
    """Where the pattern ends (exclusive) if it begins at `at`, and what its holes hold."""
    if not words:
        return at, {}
    if words[0][0] != "$":
        fits = at < len(tokens) and tokens[at].text == words[0]
        return _match(words[1:], tokens, at + 1) if fits else None
    depth, end = 0, at
    while end < len(tokens):
        text = tokens[end].text
        depth += (text in CLOSING) - (text in CLOSING.values())
        if depth < 0 or (depth == 0 and text == ";"):
            return None
        end += 1
        if depth == 0 and (rest := _match(words[1:], tokens, end)) is not None:
            return rest[0], {words[0]: (at, end), **rest[1]}
    return None


@dataclass(frozen=True)
class Place:
    """Where an anchor was found: a span of a file, and the spans of the pattern's holes."""

    file: str
    start: int
    end: int
    holes: tuple[tuple[str, int, int], ...]

    def filled(self, text: str, replacement: str) -> str:
        """The replacement with the source's text for its holes; `$0` is the whole span."""
        parts = {"$0": text[self.start : self.end], **{name: text[start:end] for name, start, end in self.holes}}
        return re.sub(r"\$\w+", lambda m: parts[m[0]], replacement)


def places(symbol: str, pattern: str, index: Mapping[str, Iterable[Function]]) -> list[Place]:
    """Everywhere that the pattern fits in functions of this name. `$x` in it stands for some tokens of one statement."""
    words, found = _pattern(pattern), []
    for function in index.get(symbol, ()):
        tokens = function.tokens
        for at in range(len(tokens)):
            if (match := _match(words, tokens, at)) is not None:
                end, holes = match
                spans = tuple((name, tokens[a].start, tokens[b - 1].end) for name, (a, b) in holes.items())
                found.append(Place(function.file, tokens[at].start, tokens[end - 1].end, spans))
    return found


def place(symbol: str, pattern: str, index: Mapping[str, Iterable[Function]]) -> Place:
    """The one place where the pattern fits, or a LookupError that says how often it does."""
    found = places(symbol, pattern, index)
    if len(found) != 1:
        why = f"fits {len(found)} times" if symbol in index else "there is no such function"
        raise LookupError(f"{symbol}: {pattern!r}: {why}")
    return found[0]


def replaced(texts: Mapping[str, str], changes: Iterable[tuple[Place, str]]) -> dict[str, str]:
    """The files that change, with each place replaced."""
    by_file: dict[str, list[tuple[Place, str]]] = {}
    for where, what in changes:
        by_file.setdefault(where.file, []).append((where, what))
    result = {}
    for file, edits in by_file.items():
        text = texts[file]
        edits.sort(key=lambda edit: edit[0].start)
        if any(before.end > after.start for (before, _), (after, _) in pairwise(edits)):
            raise LookupError(f"two places overlap in {file}")
        for where, what in reversed(edits):
            text = text[: where.start] + where.filled(texts[file], what) + text[where.end :]
        result[file] = text
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
            words = [token.text for token in function.tokens]
            for at, token in enumerate(function.tokens):
                if token.text == "(" and at:
                    name = _called(words, at)
                    number[name] = number.get(name, 0) + 1
                    numbered = name if number[name] == 1 else f"{name} {number[name]}"
                    yield Operation(symbol, numbered, function.file, token.start)


def operation_at(file: str, line: int, column: int, text: str, index: Mapping[str, Iterable[Function]]) -> Operation:
    """The call whose bracket opens at this line and column."""
    offset = sum(len(row) for row in text.splitlines(keepends=True)[: line - 1]) + column - 1
    for operation in operations(index):
        if operation.file == file and operation.offset == offset:
            return operation
    raise LookupError(f"no call begins its arguments at {file}:{line}:{column}")


def _called(words: list[str], bracket: int) -> str:
    """The words before an opening bracket: `word0.release`, `full_fence`."""
    at = bracket - 1
    name = words[at]
    if at < 2 or words[at - 1] not in (".", "->"):
        return name
    at -= 2
    while at > 0 and words[at] in (")", "]"):
        depth = 0
        while True:
            depth += (words[at] in (")", "]")) - (words[at] in ("(", "["))
            at -= 1
            if depth == 0:
                break
    return f"{words[at]}.{name}"
