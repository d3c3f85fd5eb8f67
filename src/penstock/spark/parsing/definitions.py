"""Tables that a user adds: read from a file of SQL or of Python, and put in an order. Runs nothing and needs no session."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import Invalid, NotFound
from penstock.spark.parsing.naming import BUILT_IN, PLAIN, Names
from penstock.spark.parsing.statements import statements
from penstock.util.files import user_files


@dataclass(frozen=True)
class Definition:
    """One table. place: file and line. digest: changes when the definition does. query, or function: what makes it; arguments: of the
    function, by the names of what they read. stored: false for a view, which is only a name for a query."""

    name: str
    place: str
    digest: str
    comment: str
    stored: bool = True
    query: str = ""
    function: Callable[..., Any] | None = None
    arguments: tuple[tuple[str, str], ...] = ()


def load(files: Sequence[str | os.PathLike[str]]) -> list[Definition]:
    """All definitions of these files. `NotFound` for a file that is not there, `Invalid` with file and line for what is wrong in one."""
    found: list[Definition] = []
    for given in files:
        path = Path(given)
        try:
            source = user_files.read_text(path)
        except FileNotFoundError:
            raise NotFound(f"there is no file of tables {path}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if path.suffix.lower() not in (".sql", ".py"):
            raise Invalid(f"{path}: tables are defined in .sql or .py files")
        found += _from_python(path, source) if path.suffix.lower() == ".py" else _from_sql(path, source)
    known: dict[str, Definition] = {}
    for one in found:
        if not PLAIN.fullmatch(one.name):
            raise Invalid(f"{one.place}: the name {one.name!r} is not made of letters, digits and _")
        if one.name.lower() in BUILT_IN:
            raise Invalid(f"{one.place}: {one.name} is a built-in table: choose another name")
        other = known.setdefault(one.name.lower(), one)
        if other is not one:
            raise Invalid(f"{one.place}: {one.name} is defined at {other.place} already")
    if files and not any(one.stored for one in found):
        raise Invalid(f"{Path(files[0])} defines no table")
    return found


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _from_sql(path: Path, source: str) -> list[Definition]:
    return [
        Definition(
            one.name, f"{path.name}:{one.line}", _digest(one.said), one.comment, stored=one.stored, query=one.query
        )
        for one in statements(source, path.name)
    ]


# ---- Python: a function is a table, its parameters are what it reads ----


def _from_python(path: Path, source: str) -> list[Definition]:
    module, tree = _import_file(path, source)
    lines = {node.name: node.lineno for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = []
    for name, line in lines.items():
        function = getattr(module, name, None)
        if name.startswith("_") or not inspect.isfunction(inspect.unwrap(function) if function else None):
            continue
        assert function is not None
        place, text = f"{path.name}:{line}", inspect.getdoc(function) or ""
        arguments = tuple(_reads(one, place) for one in inspect.signature(function).parameters.values())
        # A function may call others of its file: a change of any of them counts, but not one of comments.
        digest = _digest(name, ast.dump(tree))
        found.append(Definition(name, place, digest, text.partition("\n")[0], function=function, arguments=arguments))
    return found


def _import_file(path: Path, source: str) -> tuple[ModuleType, ast.Module]:
    name = f"penstock_tables_{_digest(str(path.absolute()))}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look there
    try:
        tree = ast.parse(source, str(path))
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise Invalid(f"{path.name}:{line_of(error, str(path))}: {type(error).__name__}: {_first(error)}") from error
    return module, tree


def line_of(error: BaseException, file: str, otherwise: int = 1) -> int:
    """The last line of a file that an error went through."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (lines[-1] if lines else None) or otherwise


def _first(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text.strip().partition("\n")[0]


def _reads(parameter: inspect.Parameter, place: str) -> tuple[str, str]:
    """(parameter, name of what it is given): its own, or its default, for a stream whose name Python cannot write."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise Invalid(f"{place}: the parameter {parameter} names no table")
    if parameter.default is parameter.empty:
        return parameter.name, parameter.name
    if not isinstance(parameter.default, str):
        raise Invalid(f"{place}: the default of {parameter.name} must be a table's or a stream's name")
    return parameter.name, parameter.default


# ---- order ----


def ordered(
    definitions: Sequence[Definition], names: Names, reads: Callable[[Definition], Iterable[str]]
) -> list[tuple[Definition, list[str]]]:
    """Each definition after those that it reads, and the tables and channels that it reads. `Invalid` for an unknown name or a circle."""
    found: dict[str, list[str]] = {}
    for one in definitions:
        found[one.name] = []
        for name in reads(one):
            try:
                table = names.find(name)
            except Invalid as error:
                raise Invalid(f"{one.place}: {error}") from None
            if table is None:
                raise Invalid(
                    f"{one.place}: {one.name} reads {name}, which is no table and no stream{names.like(name)}"
                )
            if table not in found[one.name]:
                found[one.name].append(table)
    of_name, placed, order = {one.name: one for one in definitions}, set[str](), list[tuple[Definition, list[str]]]()

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = [*path[path.index(name) :], name]
            where = of_name[name].place
            if len(circle) == 2:
                raise Invalid(f"{where}: {name} reads itself; a stream of this name must be written with its channel")
            raise Invalid(f"{where}: tables read each other in a circle: {' → '.join(circle)}")
        if name in of_name and name not in placed:
            for other in found[name]:
                place(other, (*path, name))
            placed.add(name)
            order.append((of_name[name], found[name]))

    for one in definitions:
        place(one.name, ())
    return order
