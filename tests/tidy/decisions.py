"""Finds decisions by a channel's kind: `python tests/tidy/decisions.py [FOLDER]` counts them.

A decision is code that asks which kind a channel has, instead of asking the kind (`penstock.kinds.Kind`) what it does:

- a comparison, or a `match`, with the name of a kind (`kind == "pipe"`, `parsed.kind in ("log", "sync")`);
- a comparison of an attribute `.kind`, or of `.kind.name`, of a channel with anything else than None;
- a tuple, list or set of at least two names of kinds, and a dictionary that has such names as its keys;
- `isinstance` with a class that is imported from the module of a kind (`penstock.shm`, `penstock.net`), outside of that folder.

Codecs have kinds, too, and `sync`, `pipe` and `frame` are among them; so have dtypes and parameters. A comparison is not counted where
what is compared says so: its text has one of the words `codec`, `dtype`, `spec`, `found`, `parameter` in it. `codecs.py` and `columns/`
know codecs only, and are left out. The registry (`registry.py`, `kinds.py`) and the modules that build a kind say what that kind is by
its fields and are searched like all others.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

KINDS = {"log", "ring", "frames", "sync", "pipe", "zmq+tcp", "zmq+ipc", "udp", "KINDS", "NETWORKS"}
NOT_A_CHANNELS = ("codec", "dtype", "spec", "found", "parameter", "sys.")
NO_CHANNELS = ("codecs.py", "columns", "values.py", "registry.py")


def _names_kinds(node: ast.AST) -> int:
    """How many kinds an expression names."""
    if isinstance(node, ast.Constant):
        return int(node.value in KINDS) if isinstance(node.value, str) else 0
    if isinstance(node, ast.Name):
        return 2 * (node.id in KINDS and node.id.isupper())
    if isinstance(node, ast.Attribute):
        return 2 * (node.attr in KINDS and node.attr.isupper())
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return sum(_names_kinds(part) for part in node.elts)
    return 0


def _is_kind(node: ast.AST) -> bool:
    """Whether an expression is the kind of something."""
    if isinstance(node, ast.Attribute):
        return node.attr == "kind" or (node.attr == "name" and _is_kind(node.value))
    return False


def _literal(node: ast.AST) -> bool:
    """Whether a literal is a list of kinds, or a table by kind."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return _names_kinds(node) >= 2
    if isinstance(node, ast.Dict):
        return sum(_names_kinds(key) for key in node.keys if isinstance(key, ast.Constant)) >= 2
    return False


def _classes_of_kinds(tree: ast.AST, folder: str) -> set[str]:
    """The names that a module imports from modules of kinds, other than those of its own folder."""
    homes = [home for home in ("penstock.shm", "penstock.net") if home != f"penstock.{folder}"]
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(tuple(homes))
        for alias in node.names
    }


def _asks_for_class(node: ast.AST, classes: set[str]) -> bool:
    """Whether an expression is `isinstance` with one of these classes."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"):
        return False
    return any(isinstance(part, ast.Name) and part.id in classes for part in ast.walk(node.args[1]))


def decisions(source: str, folder: str = "") -> list[int]:
    """The lines of a module that decide by kind. folder: the module's, below the package."""
    found: set[int] = set()
    tree = ast.parse(source)
    classes = _classes_of_kinds(tree, folder)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in node.comparators}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(word in ast.unparse(side) for side in sides for word in NOT_A_CHANNELS):
                continue
            with_none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
            if any(_names_kinds(side) for side in sides) or (any(map(_is_kind, sides)) and not with_none):
                found.add(node.lineno)
        elif isinstance(node, ast.MatchValue) and _names_kinds(node.value):
            found.add(node.value.lineno)
        elif _asks_for_class(node, classes) or (_literal(node) and id(node) not in inside):
            found.add(node.lineno)
    return sorted(found)


def in_folder(folder: Path) -> dict[str, list[int]]:
    """The decisions of every module below a folder, by its path."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if not set(NO_CHANNELS) & set(name.split("/")) and (lines := decisions(path.read_text(), name.split("/")[0])):
            found[name] = lines
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "src" / "penstock"
    made = in_folder(root)
    for module, lines in made.items():
        print(f"{module}: {', '.join(map(str, lines))}")
    print(sum(map(len, made.values())))
