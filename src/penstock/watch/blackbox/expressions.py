"""Conditions on a message, as a configuration has them: `gyro[2] > 3 and not parked`. Python's own syntax, of which few parts are allowed.

Nothing else of Python is reachable: no attribute, no import, no call but of four functions. Knows no channel.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from penstock.errors import Invalid

LONGEST = 2000
WHOLE = "message"  # the message itself, unless it has a field of this name
FUNCTIONS: dict[str, Any] = {"abs": abs, "len": len, "max": max, "min": min}
TAKEN = "it takes comparisons, + - * / %, and, or, not, in, abs, len, max, min, and values"
CONSTANTS = {"true": "True", "false": "False", "null": "None", "none": "None", "nil": "None"}  # of other languages
ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.UAdd,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Mod,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Is,
    ast.IsNot,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Subscript,
    ast.Attribute,
    ast.Call,
    ast.Tuple,
    ast.List,
)


class MissingField(Exception):
    """The message has no such field."""


class Condition:
    """A condition that was checked. Safe to share between threads.

    text: Python's comparisons, `and`, `or`, `not`, arithmetic, `[...]`, `.` and the functions abs, len, max and min over a message's
    fields. `Invalid` for anything else.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise Invalid(f"it must be a condition of at most {LONGEST:,} characters, as 'speed > 3 and not parked'")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Invalid(
                f"{text!r} is not a condition: {getattr(error, 'msg', None) or 'it is nested too deeply'}; write for instance "
                "'speed > 3 and not parked'"
            ) from None
        self.text, self.names = text, frozenset(_check(tree, text))
        fields = ast.fix_missing_locations(_Fields().visit(tree))
        self._code = compile(fields, "<condition>", "eval")

    def __call__(self, message: Any) -> bool:
        """Whether a message fits. `MissingField` if it has not all the fields; any other error is the condition's own, as of a comparison of
        a text with a number."""
        values = _Message(message)
        return bool(eval(self._code, {"__builtins__": {}, **OPERATIONS, **FUNCTIONS}, values))


def _check(tree: ast.AST, text: str) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED) or (isinstance(node, ast.Constant) and not _is_plain(node.value)):
            raise Invalid(f"{text!r}: {_part(tree, node, text)!r} has no place in a condition: {TAKEN}")
        if isinstance(node, ast.Call):
            _check_call(node, text)
        if isinstance(node, ast.Name) and node.id not in FUNCTIONS:
            names.add(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Mod):
            _check_operands(node, text)
        if isinstance(node, ast.Attribute | ast.Name):
            word = node.attr if isinstance(node, ast.Attribute) else node.id
            if isinstance(node, ast.Name) and word in CONSTANTS:
                raise Invalid(
                    f"{text!r}: {word} would be a field of the message; write {CONSTANTS[word]} for the value"
                )
            if word.startswith("_"):
                raise Invalid(f"{text!r}: {word} is no field: names of fields do not begin with _")
    if not names:
        raise Invalid(
            f"{text!r} names no field of the message: write for instance 'speed > 3'; {WHOLE} is the message itself"
        )
    return names


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes | int | float)


def _part(tree: ast.AST, node: ast.AST, text: str) -> str:
    """The part of a condition that a node is; of an operator, that with what it joins."""
    if not hasattr(node, "lineno"):
        node = next(one for one in ast.walk(tree) if node in ast.iter_child_nodes(one) and hasattr(one, "lineno"))
    return ast.get_source_segment(text.strip(), node) or text


def _check_call(node: ast.Call, text: str) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise Invalid(f"{text!r}: only {', '.join(FUNCTIONS)} can be called")
    name, count = node.func.id, len(node.args)
    if node.keywords:
        raise Invalid(f"{text!r}: {name} takes values alone, and {node.keywords[0].arg or '**'} is named")
    if not count or (count > 1 and FUNCTIONS[name] in (abs, len)):
        wanted = "one value" if FUNCTIONS[name] in (abs, len) else "at least one value"
        raise Invalid(f"{text!r}: {name} takes {wanted}, not {count}")


def _check_operands(node: ast.BinOp, text: str) -> None:
    for one in (node.left, node.right):
        if isinstance(one, ast.Constant) and isinstance(one.value, str | bytes):
            does = "multiplied" if isinstance(node.op, ast.Mult) else "divided: % is the rest of a division of numbers"
            raise Invalid(f"{text!r}: a text cannot be {does}")


class _Fields(ast.NodeTransformer):
    """`a.b` becomes the field b of a: no attribute of an object is ever read by its name alone."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = self.visit(node.value)
        return ast.Call(ast.Name("_field", ast.Load()), [value, ast.Constant(node.attr)], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        left, right = self.visit(node.left), self.visit(node.right)
        name = {ast.Mult: "_product", ast.Mod: "_rest"}.get(type(node.op))
        return (
            ast.BinOp(left, node.op, right) if name is None else ast.Call(ast.Name(name, ast.Load()), [left, right], [])
        )


class _Message(Mapping[str, Any]):
    """A message's fields as names."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def __getitem__(self, name: str) -> Any:
        if name in FUNCTIONS or name in OPERATIONS:
            raise KeyError(name)  # the function is meant
        try:
            return _field(self._message, name)
        except MissingField:
            if name == WHOLE:
                return self._message
            raise

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def _field(message: Any, name: str) -> Any:
    """A field of a mapping, a structured array, or an object of a declared class."""
    if isinstance(message, Mapping):
        if name in message:
            return message[name]
        raise MissingField(name)
    names = getattr(getattr(message, "dtype", None), "names", None)
    if names is not None:
        if name in names:
            return message[name]
        raise MissingField(name)
    declared = getattr(type(message), "__struct_fields__", None) or getattr(type(message), "__dataclass_fields__", None)
    if declared is None and hasattr(type(message), "DESCRIPTOR"):
        declared = type(message).DESCRIPTOR.fields_by_name
    if declared is not None and name in declared:
        return getattr(message, name)
    raise MissingField(name)


def _product(left: Any, right: Any) -> Any:
    if isinstance(left, SEQUENCES) or isinstance(right, SEQUENCES):  # a message could take all memory
        raise _not_for("*", left, right)
    return left * right


def _rest(left: Any, right: Any) -> Any:
    if isinstance(left, SEQUENCES):
        raise _not_for("%", left, right)
    return left % right


def _not_for(sign: str, left: Any, right: Any) -> TypeError:
    """Python's own error of operands without such an operation."""
    return TypeError(f"unsupported operand type(s) for {sign}: '{type(left).__name__}' and '{type(right).__name__}'")


SEQUENCES = (str, bytes, bytearray, memoryview, list, tuple)
OPERATIONS: dict[str, Any] = {"_field": _field, "_product": _product, "_rest": _rest}
