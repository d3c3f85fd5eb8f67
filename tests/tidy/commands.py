"""Calls of the command and its options that pages, docstrings and error texts name, and their errors."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).parents[2]
SPAN = re.compile(r"`+([^`]+)`+")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
CALL = re.compile(r"(?:(?<=^)|(?<=[\s($'\"`;&|]))penstock (?=-v |--?[a-z]|[a-z])(.*)")
NO_CALL = re.compile(r"(?:install|import|from|of|-m|-U|uninstall|package|module|show) '?$")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
ENDS = re.compile(r"\s\||\s#\s|\s&&?(\s|$)|;|\s>\s|\s<\s|\s{3,}|\)$|[)] |: |, |\. |\.$|,$|:$|→")
ALSO = {"pipeline": ("--archive", "--optimize")}  # a call without an argument needs the first, or the second

# Names that begin like a call: a Spark query's, a process's in the monitor's graph. Options of a shell script's own programs.
LABELS = {
    ("src/penstock/spark/query.py", "penstock pipeline X"),
    ("src/penstock/cli/monitor/programs.py", "penstock recorder"),
}
OTHERS = {"--add-modules"}


@dataclass(frozen=True)
class Named:
    """A text that names a call or an option: file:line, and the text."""

    where: str
    text: str


def pages() -> list[Path]:
    """The Markdown files that a user may read."""
    found = [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    ]
    return sorted(path for path in found if "_build" not in path.parts)


def modules() -> list[Path]:
    """The Python files whose texts a user may read."""
    return sorted(path for part in ("src", "examples") for path in (ROOT / part).rglob("*.py"))


def _of_page(path: Path) -> Iterator[Named]:
    """The code on a page: the lines of its blocks, and code within its sentences."""
    text = path.read_text()

    def at(position: int) -> str:
        return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}"

    for block in FENCE.finditer(text):
        if block[1] != "python":
            begin = block.start(2)
            for line in block[2].splitlines(keepends=True):
                yield Named(at(begin), line.strip())
                begin += len(line)
    blank = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for span in SPAN.finditer(blank):
        yield Named(at(span.start()), " ".join(span[1].split()))


def _of_module(path: Path) -> Iterator[Named]:
    """The texts of a module, with X for what is filled in."""
    tree = ast.parse(path.read_text())
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            text = node.value
        else:
            continue
        for number, line in enumerate(text.split("\n")):
            yield Named(f"{path.relative_to(ROOT)}:{node.lineno + number}", line)


def texts() -> list[Named]:
    """Every text that may name a call or an option."""
    return [
        one
        for found in ([_of_page(path) for path in pages()], [_of_module(path) for path in modules()])
        for many in found
        for one in many
    ]


def calls(named: Named) -> Iterator[list[str]]:
    """The calls of the command in a text, as arguments."""
    for found in CALL.finditer(named.text):
        if NO_CALL.search(named.text[: found.start()]):
            continue
        rest = ENDS.split(found[1].split("`")[0])[0]
        try:
            yield shlex.split(rest)
        except ValueError:
            yield rest.replace("'", "").replace('"', "").split()


# ---- what the command has ----


class Commands:
    """The commands and options of an app."""

    def __init__(self, app: typer.Typer) -> None:
        self._root: Any = typer.main.get_command(app)
        self.options = self._options(self._root) | {"--help"} | OTHERS | _of_tools()
        waiting = list(self._root.commands.values())
        while waiting:
            one = waiting.pop()
            self.options |= self._options(one)
            waiting += getattr(one, "commands", {}).values()

    def _options(self, command: Any) -> set[str]:
        return {
            name
            for one in command.params
            if one.param_type_name == "option"
            for name in (*one.opts, *one.secondary_opts)
        }

    def wrong(self, call: list[str], rest: str = "") -> str | None:
        """The error of a call, or None. A call of options alone only names them. rest: options that the same line tells of."""
        words = [word.strip("[]()") for word in call if word.strip("[]()")]
        command, path = self._root, []
        while words and hasattr(command, "commands") and not words[0].startswith("-"):
            if words[0] not in command.commands:
                return f"there is no command {' '.join([*path, words[0]])}"
            command = command.commands[words[0]]
            path.append(words.pop(0))
        there = self._options(command) | {"--help"}
        named = [word.partition("=")[0] for word in words if word.startswith("-") and not word[1:].isdigit()]
        named += OPTION.findall(rest)
        missing = [name for name in named if name.startswith("--") and name not in there]
        if missing and path != ["bench"]:  # which hands its own on
            return f"{' '.join(path) or 'penstock'} has no option {', '.join(missing)}"
        return self._incomplete(command, path, words)

    def _incomplete(self, command: Any, path: list[str], words: list[str]) -> str | None:
        """The argument or option that a whole call lacks."""
        if "…" in words or "..." in words or all(word.startswith("-") for word in words):
            return None
        options = {name: one for one in command.params if one.param_type_name == "option" for name in one.opts}
        needed = {one.opts[0] for one in options.values() if one.required}
        places, at = 0, 0
        while at < len(words):
            option = options.get(words[at].partition("=")[0])
            if option is None:
                places += 1
            else:
                needed -= set(option.opts)
                at += 0 if option.is_flag or "=" in words[at] else 1
            at += 1
        arguments = [one for one in command.params if one.param_type_name == "argument" and one.required]
        also, unless = ALSO.get(" ".join(path), ("", ""))
        if also and also not in words and unless not in words and not places:
            needed.add(also)
        lacking = [*sorted(needed), *(str(one.name).upper() for one in arguments[places:])]
        return f"{' '.join(path)} lacks {', '.join(lacking)}" if lacking else None


def _of_tools() -> set[str]:
    """Options of the programs that are not the command: the evidence's, the benchmarks', the native ones."""
    folders = [ROOT / part for part in ("evidence", "bench", "tools", "native")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".cpp")]
    return {option for path in paths for option in re.findall(r'"(--[a-z][a-z0-9-]*)"', path.read_text())}


def problems(commands: Commands, named: Named) -> Iterator[str]:
    """The errors of a text."""
    if (named.where.rpartition(":")[0], named.text) in LABELS:
        return
    found = list(calls(named))
    for call in found:
        rest = named.text.split(" | ")[0] if named.text.startswith("penstock ") and len(found) == 1 else ""
        if (why := commands.wrong(call, rest)) is not None:
            yield f"{named.where}: {named.text}: {why}"
    first = named.text.removeprefix("$ ").split(" ")[0]
    if not found and (first.startswith("-") or named.where.startswith("src/penstock")):
        for option in OPTION.findall(named.text):
            if option not in commands.options:
                yield f"{named.where}: {named.text}: there is no option {option}"
