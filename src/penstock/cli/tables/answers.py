"""Prints the rows that a query gave: as a table for people, as JSON, as CSV, or into an Arrow file. Knows no engine."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.terminal import output
from penstock.cli.terminal.plain import text

BATCH_ROWS = 10_000
GAP = "  "


def rename_alike(found: Any) -> Any:
    """An answer whose names differ, as those of a table of DuckDB: the second `name` is `name_1`, whatever the case of its letters."""
    counts: dict[str, int] = {}
    names: list[str] = []
    for name in found.column_names:
        count, made = counts.get(name.lower(), 0), name
        while made.lower() in counts:
            count += 1
            made = f"{name}_{count}"
        counts[name.lower()] = count
        counts.setdefault(made.lower(), 0)
        names.append(made)
    return found.rename_columns(names)


def print_json(found: Any) -> None:
    """An object per row."""
    from penstock.columns.values import to_python

    for batch in found.to_batches(BATCH_ROWS):
        for row in zip(*map(to_python, batch.columns), strict=True):
            print(output.as_json(dict(zip(found.column_names, map(_number, row), strict=True))))


def _number(value: Any) -> Any:
    """A decimal without a fraction as a whole number, such as DuckDB's sums."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value


def print_csv(found: Any) -> None:
    """A line of names, and a line per row."""
    import pyarrow as pa
    import pyarrow.csv

    from penstock.columns.parts import plain

    names = pa.BufferOutputStream()
    pyarrow.csv.write_csv(_plain_schema(found).empty_table(), names)
    sys.stdout.write(names.getvalue().to_pybytes().decode())
    for batch in found.to_batches(BATCH_ROWS):
        made = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=False)
        pyarrow.csv.write_csv(pa.Table.from_batches([plain(batch)]), made, options)
        sys.stdout.write(made.getvalue().to_pybytes().decode())


def _plain_schema(found: Any) -> Any:
    """A table's columns as CSV has them."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in found.column_names])


def write_arrow(found: Any, path: Path) -> None:
    """An Arrow file, whole or not at all. `SystemFailure` if it cannot be written."""
    import pyarrow as pa

    with writing(path) as made, open(made, "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)


def check_file(path: Path) -> None:
    """`SystemFailure` for a folder, which no file takes the place of."""
    if os.path.isdir(path):
        why = os.strerror(errno.EISDIR)
        raise penstock.SystemFailure(errno.EISDIR, f"{output.path(path)} cannot be written: {why}")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Around the writing of the file that it gives: it takes the place of `path` at the end, or of what `path` links to. A pipe or a device
    is written to. `SystemFailure` if it cannot be written."""
    from penstock.util.files.durable import fresh_path

    check_file(path)
    is_file = path.is_file() or not path.exists()
    if is_file:
        path = Path(os.path.realpath(path))
    with contextlib.ExitStack() as stack:
        try:
            if is_file:
                made = fresh_path(path, prefix=".")
            else:
                made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))) / path.name
            yield made
            if is_file:
                os.replace(made, path)
            else:
                path.write_bytes(made.read_bytes())
        except OSError as error:
            with contextlib.suppress(OSError):
                made.unlink()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise penstock.SystemFailure(error.errno or 0, f"{output.path(path)} cannot be written: {why}") from error


def print_table(found: Any, most: int | None) -> None:
    """A table for people, of so many rows at most."""
    shown = output.table(*found.column_names, right=tuple(_numbers(found)), blocks=True)
    rows = found if most is None else found.slice(0, most)
    for row in _cells(rows):
        shown.add_row(*row)
    output.show(shown)
    output.note(count(rows.num_rows, True) if found.num_rows > rows.num_rows else output.many(rows.num_rows, "row"))


def count(rows: int, is_limit: bool) -> str:
    """Says that there are more rows than these. is_limit: because of --limit."""
    return f"the first {output.many(rows, 'row')}{'; --limit 0 prints all' if is_limit else ''}"


def lines(found: Any) -> list[str]:
    """The same as lines, the first of which has the names."""
    right = _numbers(found)
    rows = [found.column_names, *([output.printable(cell) for cell in row] for row in _cells(found))]
    widths = [max(len(row[number]) for row in rows) for number in range(len(found.column_names))]
    return [
        GAP.join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, found.column_names, strict=True)
        ).rstrip()
        for row in rows
    ]


def _numbers(found: Any) -> set[str]:
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return {field.name for field in found.schema if any(is_kind(field.type) for is_kind in kinds)}


def _cells(found: Any) -> list[list[str]]:
    from penstock.columns.values import to_python

    return [list(map(_cell, row)) for row in zip(*map(to_python, found.columns), strict=True)]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, bytes):
        return text(value)
    return (
        value if isinstance(value, str) else str(value) if not isinstance(value, list | dict) else output.as_json(value)
    )
