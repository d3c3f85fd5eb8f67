"""Types of columns as Spark's DDL writes them: `px double, tags array<string>`. The grammar is that of Spark's documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.errors import Invalid

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ntz": LOCAL,
}
SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
NAMES = {kind: name for name, kind in PLAIN.items()}
TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`<>(),:]+)|([<>(),:]))")
PRECISION = 38  # digits of the widest decimal
DEPTH = 20  # of a type within types


def ddl(kind: pa.DataType) -> str:
    """A type as Spark's SQL writes it."""
    if kind in NAMES:
        return NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(field.name)}: {ddl(field.type)}' for field in kind)}>"
    raise Invalid(f"tables have no columns of the type {kind}")


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def parse(text: str) -> dict[str, pa.DataType]:
    """Name → type of `px double, ts timestamp`. `Invalid` says what is wrong with the text."""
    if not isinstance(text, str):
        raise Invalid(f"{text!r} is no text, such as 'px double, ts timestamp'")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{text.strip()!a} is no schema: names of columns are UTF-8") from None
    return _Parser(text).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._depth = text, 0
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        """(form, text): a name in backticks, a word, or a sign."""
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = TOKEN.match(self._text, at)
            if found is None:
                raise self._wrong(f"{self._text[at:].strip()[:20]!r} is neither a name nor a type")
            if found[1] is not None:
                yield "name", found[1].replace("``", "`")
            else:
                yield ("word", found[2]) if found[2] is not None else ("sign", found[3])
            at = found.end()

    def _wrong(self, why: str) -> Invalid:
        return Invalid(
            f"{self._text.strip()!r} is no schema: {why}. Write it as px double, ts timestamp, tags array<string>"
        )

    def _next(self, wanted: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._wrong(f"{wanted} is missing at its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _is_next(self, sign: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)

    def _expect(self, sign: str) -> None:
        if not self._is_next(sign):
            self._next(repr(sign))
            raise self._wrong(f"{sign!r} must stand before {self._tokens[self._at - 1][1]!r}")
        self._at += 1

    def columns(self) -> dict[str, pa.DataType]:
        found = self._fields(lambda: self._at >= len(self._tokens))
        if not found:
            raise self._wrong("it names no column")
        return found

    def _fields(self, ended: Callable[[], bool]) -> dict[str, pa.DataType]:
        """Names and types with commas between them."""
        found: dict[str, pa.DataType] = {}
        while not ended():
            if found:
                self._expect(",")
            form, name = self._next("a column")
            if form == "sign":
                raise self._wrong(f"{name!r} is no name of a column")
            if name.casefold() in {one.casefold() for one in found}:
                raise self._wrong(f"it names {name} twice")
            if self._is_next(":"):
                self._at += 1
            found[name] = self._type(name)
        return found

    def _type(self, name: str) -> pa.DataType:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._wrong(f"{name} is nested deeper than {DEPTH} types")
        try:
            form, word = self._next(f"the type of {name}")
            kind = SYNONYMS.get(word.lower(), word.lower())
            if form == "word" and kind in PLAIN:
                return PLAIN[kind]
            if form == "word" and kind in ("decimal", "dec", "numeric"):
                return self._decimal(name)
            if form == "word" and kind in ("array", "map", "struct"):
                return self._nested(kind, name)
            known = ", ".join([*PLAIN, "decimal(p,s)", "array<…>", "map<…, …>", "struct<…>"])
            raise self._wrong(f"there is no type {word}; there are {known}")
        finally:
            self._depth -= 1

    def _decimal(self, name: str) -> pa.DataType:
        if not self._is_next("("):
            return pa.decimal128(10, 0)
        self._at += 1
        numbers = [self._next("a number")[1]]
        if self._is_next(","):
            self._at += 1
            numbers.append(self._next("a number")[1])
        self._expect(")")
        digits = [int(one) if one.isascii() and one.isdigit() else -1 for one in numbers]
        precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
        if not (1 <= precision <= PRECISION and 0 <= scale <= precision):
            raise self._wrong(
                f"{name} is decimal({','.join(numbers)}): it has 1 to {PRECISION} digits, of which all may be behind the point"
            )
        return pa.decimal128(precision, scale)

    def _nested(self, kind: str, name: str) -> pa.DataType:
        self._expect("<")
        if kind == "struct":
            fields = self._fields(lambda: self._is_next(">"))
            self._expect(">")
            if not fields:
                raise self._wrong(f"{name} is a struct without fields")
            return pa.struct(list(fields.items()))
        first = self._type(name)
        if kind == "map":
            self._expect(",")
            second = self._type(name)
        self._expect(">")
        return pa.map_(first, second) if kind == "map" else pa.list_(first)


__all__ = ["UTC", "ddl", "parse", "quoted"]
