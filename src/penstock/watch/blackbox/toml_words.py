"""Mistakes in a configuration in TOML's words: text, whole number, table. For people who never saw Python.

Knows msgspec's sentences, and no key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "a table",
    "datetime": "a date and time",
    "date": "a date",
    "time": "a time",
}
_WRONG = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?(?: ([<>]=?) (\S+))?")
_LIMITS = {"<": "below", "<=": "of at most", ">": "above", ">=": "of at least"}
_VALUES = {  # values of messages
    **WORDS,
    "bool": "a truth value",
    "NoneType": "nothing",
    "null": "nothing",
    "bytes": "bytes",
    "dict": "a table",
    "list": "an array",
    "tuple": "an array",
    "ndarray": "an array",
}
_ERRORS = (  # Python's sentences, of the operations that a condition has
    (
        re.compile(r"'(\S+)' not supported between instances of '(\w+)' and '(\w+)'"),
        "{1} {0} {2}: these cannot be compared",
    ),
    (
        re.compile(r"unsupported operand type\(s\) for (\S+): '(\w+)' and '(\w+)'"),
        "{1} {0} {2}: these cannot be calculated with",
    ),
    (re.compile(r"can only concatenate (\w+) \(not \"(\w+)\"\)"), "{0} + {1}: these cannot be calculated with"),
    (
        re.compile(r"(\w+) indices must be integers or slices, not (\w+)"),
        "the parts of {0} have numbers, and {1} was given",
    ),
    (re.compile(r"truth value of an array"), "an array has no truth value: compare one of its parts, as in a[0] > 1"),
    (re.compile(r"bad operand type for (?:abs\(\)|unary -|unary \+): '(\w+)'"), "{0} is no number"),
    (re.compile(r"'([\w.]+)' object is not subscriptable"), "{0} has no parts: nothing can be in [ ] behind it"),
    (
        re.compile(
            r"(?:argument of type|object of type) '(\w+)' (?:is not iterable|is not a container or iterable|has no len\(\))"
        ),
        "{0} has no parts",
    ),
    (re.compile(r"'(\w+)' object is not iterable"), "{0} has no parts"),
)


def explain_error(error: Exception) -> str:
    """Why a condition cannot be asked of a message: of an error that it raised."""
    text = str(error)
    for pattern, sentence in _ERRORS:
        if found := pattern.search(text):
            return sentence.format(*(_VALUES.get(name, name) for name in found.groups()))
    if isinstance(error, KeyError):
        return f"a table has no part {text}"
    if isinstance(error, IndexError):
        return "an array has not so many parts"
    return text or "it failed"


def explain(text: str, examples: Mapping[str, str]) -> str:
    """What msgspec says of a value, for people: place, mistake and what to write. examples: a good value of each key, as TOML has it."""
    what, _, where = text.partition(" - at `$")
    place, key = _place(where.rstrip("`").lstrip("."))
    example = f", as {_written(key, examples[key])}" if key in examples else ""
    if missing := re.search(r"missing required field `([^`]+)`", what):
        key = missing[1]
        return f"{place}the key {key} is missing: write {key} = {examples.get(key, '…')}"
    if wrong := _WRONG.match(what):
        expected, got, sign, limit = wrong.groups()
        bound = f" {_LIMITS[sign]} {float(limit):g}" if sign else ""
        found = f"is {_VALUES.get(got, 'something else')}: it" if got else "is out of its range: it"
        return f"{place or 'the file '}{found} must be {_any_of(expected)}{bound}{example}"
    return f"{place}{what[:1].lower()}{what[1:]}{example}"


def _place(path: str) -> tuple[str, str]:
    """A path as `trigger[0].above` for people, and its last key."""
    parts, key = [], ""
    for name, number in re.findall(r"([^.\[\]]+)(?:\[(\d+|\.\.\.)\])?", path):
        item = int(number) + 1 if number.isdecimal() else None
        parts.append(f"{name} {item}" if item else name)
        key = name
    text = parts[0] if parts else ""
    if len(parts) > 1:
        text += f", key {'.'.join(parts[1:])}"
    return (f"{text} " if text else ""), key


def _written(key: str, example: str) -> str:
    return example if example.startswith("[[") else f"{key} = {example}"


def _any_of(expected: str) -> str:
    """`str | int | float` as "a text or a number"."""
    names = [name for name in expected.split(" | ") if name != "null"]
    if "float" in names and "int" in names:
        names.remove("int")
    return " or ".join(WORDS.get(name, name) for name in names)


__all__ = ["WORDS", "explain", "explain_error"]
