"""Messages of one NumPy dtype as columns, without a look at single rows: structured dtypes, and arrays of plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import codecs
from penstock.columns.names import unique

Array = np.ndarray[Any, Any]
# Units of whole microseconds, and how many at least; other units are finer, or none at all.
MICROSECONDS = {"Y": 365 * 86_400_000_000, "M": 28 * 86_400_000_000, "W": 7 * 86_400_000_000, "D": 86_400_000_000} | {
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
}
FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, which readers can show
COMPLEX = pa.struct([("real", pa.float64()), ("imag", pa.float64())])
LONG_COMPLEX = pa.struct([("real", pa.string()), ("imag", pa.string())])
WIDER: dict[int, pa.DataType] = {1: pa.int16(), 2: pa.int32(), 4: pa.int64(), 8: pa.decimal128(20, 0)}


def schema(codec: dict[str, Any]) -> pa.Schema:
    """The columns of a dtype: a field each, `a_b` for the field b of the field a, a list for an array."""
    dtype = codecs.dtypes.dtype_of(codec["dtype"])
    if codec["kind"] == "array":
        return pa.schema([pa.field("value", pa.list_(arrow_type(dtype)), metadata={"dtype": dtype.str})])
    leaves = list(_fields(dtype, ""))
    names = unique(name for name, _, _ in leaves)
    return pa.schema(
        [
            pa.field(
                name, pa.list_(arrow_type(base)) if many else arrow_type(base), metadata={"key": key, "dtype": base.str}
            )
            for name, (key, base, many) in zip(names, leaves, strict=True)
        ]
    )


def arrow_type(dtype: np.dtype[Any]) -> pa.DataType:
    """The type that holds every value of a plain dtype exactly, and that Parquet's readers know."""
    kind = dtype.kind
    if kind == "S" or kind == "V":
        return pa.binary()
    if kind == "U" or (kind == "f" and dtype.itemsize > 8):
        return pa.string()
    if kind == "M":
        return pa.timestamp("us") if np.datetime_data(dtype)[0] in MICROSECONDS else pa.int64()
    if kind == "m":
        return pa.int64()
    if kind == "c":
        return COMPLEX if dtype.itemsize <= 16 else LONG_COMPLEX
    if kind == "u":  # Spark knows signed integers only: the next wider one holds the value
        return WIDER[dtype.itemsize]
    return pa.float32() if kind == "f" and dtype.itemsize == 2 else pa.from_numpy_dtype(dtype.newbyteorder("="))


def _fields(dtype: np.dtype[Any], prefix: str, many: bool = False) -> Iterator[tuple[str, np.dtype[Any], bool]]:
    """(name, plain dtype, whether a message has several) of each leaf."""
    for name in dtype.names or ():
        base = dtype[name].base
        inside = many or bool(dtype[name].shape)
        if base.names:
            yield from _fields(base, f"{prefix}{name}_", inside)
        else:
            yield prefix + name, base, inside


def _leaves(records: Array) -> Iterator[Array]:
    """The columns of a structured array, in the order of `_fields`. A field that is an array has more dimensions."""
    for name in records.dtype.names or ():
        column = records[name]
        if column.dtype.names:
            yield from _leaves(column)
        else:
            yield column


def decode(codec: dict[str, Any], payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    """(columns, errors)."""
    content, starts = payload_bytes(payload)
    sizes = np.diff(starts)
    dtype = codecs.dtypes.dtype_of(codec["dtype"])
    if codec["kind"] == "array":
        return _decode_arrays(dtype, tuple(codec["shape"]), content, starts, sizes)
    fits = sizes == dtype.itemsize
    errors = [f"{size} bytes, not the {dtype.itemsize} of the dtype" for size in sizes] if not fits.all() else []
    rows = np.flatnonzero(fits)
    records = _decode_together(content, starts, fits).view(dtype)
    columns = []
    texts: dict[int, str] = {}
    for leaf, field in zip(_leaves(records), schema(codec), strict=True):
        column, bad = _column(leaf, field.type)
        for at in np.flatnonzero(bad) if bad is not None else ():
            texts[int(rows[at])] = f"{field.name} cannot be {field.type}: only the payload has it"
        columns.append(_scatter(column, fits))
    return columns, _errors(fits, errors, texts)


def payload_bytes(payload: pa.Array) -> tuple[Array, Array]:
    """(all bytes of the column, offsets of each message in them)."""
    if len(payload) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    _, offsets, data = payload.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return content, starts


def _decode_together(content: Array, starts: Array, wanted: Array) -> Array:
    if wanted.all():
        return content[starts[0] : starts[-1]]
    pieces = [content[starts[at] : starts[at + 1]] for at in map(int, np.flatnonzero(wanted))]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)


def _decode_arrays(
    dtype: np.dtype[Any], shape: tuple[int, ...], content: Array, starts: Array, sizes: Array
) -> tuple[list[pa.Array], pa.Array]:
    fixed = int(np.prod([size for size in shape if size >= 0], dtype=np.int64)) * dtype.itemsize
    fits = (sizes % fixed == 0) if -1 in shape and fixed else (sizes == fixed)
    flat = _decode_together(content, starts, fits)
    values, bad = _plain(flat.view(dtype) if dtype.itemsize else np.zeros(0, dtype))
    counts = np.where(fits, sizes // max(dtype.itemsize, 1), 0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(offsets, mask=np.append(~fits, False)), values)
    errors = (
        [f"{size} bytes do not make an array of {dtype} and shape {shape}" for size in sizes] if not fits.all() else []
    )
    rows = np.repeat(np.arange(len(sizes)), counts)
    texts = {
        int(rows[at]): f"an element cannot be {values.type}: only the payload has it"
        for at in (np.flatnonzero(bad) if bad is not None else ())
    }
    return [column], _errors(fits, errors, texts)


def _scatter(values: pa.Array, where: Array) -> pa.Array:
    return values if where.all() else values.take(pa.array(np.cumsum(where) - 1, mask=~where))


def _errors(fits: Array, misfits: list[str], others: dict[int, str]) -> pa.Array:
    if fits.all() and not others:
        return pa.nulls(len(fits), pa.string())
    return pa.array([others.get(at) if fine else misfits[at] for at, fine in enumerate(fits.tolist())], pa.string())


# ---- one column ----


def _column(values: Array, kind: pa.DataType) -> tuple[pa.Array, Array | None]:
    """A leaf as Arrow, and the rows with a value that Arrow cannot hold. A field that is an array becomes a list."""
    if not pa.types.is_list(kind):
        return _plain(values)
    width = int(np.prod(values.shape[1:], dtype=np.int64))
    made, bad = _plain(values.reshape(-1))
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(width)
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made)
    return column, None if bad is None else np.asarray(bad.reshape(len(values), width).any(axis=1))


def _plain(values: Array) -> tuple[pa.Array, Array | None]:
    """Plain values as Arrow, and which of them could not be: those are null. None: all could."""
    dtype = values.dtype
    target, kind = arrow_type(dtype), dtype.kind
    if kind == "S":
        return _strings(values), None
    if kind == "V":
        return _pieces(np.ascontiguousarray(values), dtype.itemsize, target), None
    if kind == "U":
        return _texts(values)
    values = np.ascontiguousarray(values.astype(dtype.newbyteorder("="), copy=False))
    if kind in "Mm":
        return _times(values, target)
    if target == pa.string():
        return _digits(values), None
    if kind == "c":
        parts = [_plain(np.ascontiguousarray(part)) for part in (values.real, values.imag)]
        return pa.StructArray.from_arrays([part.cast(target[0].type) for part, _ in parts], fields=list(target)), None
    if kind == "b":
        return pa.array(values.view(np.uint8) != 0), None
    if dtype.itemsize == 8 and kind == "u":
        return _unsigned(values, target), None
    return pa.array(values).cast(target), None


def _digits(values: Array) -> pa.Array:
    """Long doubles as text: as many digits as it takes to read the same number back."""
    with np.errstate(invalid="ignore"):
        values = values * values.dtype.type(
            1
        )  # x86 knows encodings that it never makes: NumPy would print another number
    return pa.array([np.format_float_scientific(value, trim="0") for value in values], pa.string())


def _unsigned(values: Array, target: pa.DataType) -> pa.Array:
    """uint64 as decimals: the number in the low half of each 16 bytes."""
    halves = np.zeros((len(values), 2), np.uint64)
    halves[:, 0] = values
    return pa.Array.from_buffers(target, len(values), [None, pa.py_buffer(halves)])


def _pieces(values: Array, size: int, target: pa.DataType) -> pa.Array:
    """Values of `size` bytes each as they are."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(target, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values.tobytes())])


def _bytes_of(values: Array, width: int, unit: Any) -> Array:
    cells: Array = np.ascontiguousarray(values).view(np.uint8).reshape(-1).view(unit).reshape(len(values), width)
    return cells


def _lengths(values: Array) -> Array:
    """How long each text is without the NULs at its end, which are NumPy's padding. A NUL before that belongs to it."""
    return np.asarray(np.char.str_len(values))


def _from_cells(cells: Array, lengths: Array, target: pa.DataType) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    longest = int(lengths.max())
    cells = cells[:, :longest]
    content = (
        cells.astype(np.uint8)
        if longest == lengths.min()
        else cells[np.arange(cells.shape[1]) < lengths[:, None]].astype(np.uint8)
    )
    return pa.Array.from_buffers(target, len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(content.tobytes())])


def _strings(values: Array) -> pa.Array:
    if values.dtype.itemsize == 0 or len(values) == 0:
        return pa.array([b""] * len(values), pa.binary())
    cells = _bytes_of(values, values.dtype.itemsize, np.uint8)
    return _from_cells(cells, _lengths(values), pa.binary())


def _texts(values: Array) -> tuple[pa.Array, Array | None]:
    width = values.dtype.itemsize // 4
    if width == 0 or len(values) == 0:
        return pa.array([""] * len(values), pa.string()), None
    cells = _bytes_of(values, width, np.dtype(np.uint32).newbyteorder(values.dtype.byteorder)).astype(np.uint32)
    lengths = _lengths(values)
    if np.max(cells) < 128:
        return _from_cells(cells, lengths, pa.string()), None
    wrong = np.asarray(((cells > 0x10FFFF) | ((cells >= 0xD800) & (cells < 0xE000))).any(axis=1))
    found = [
        None if bad else row[:length].tobytes().decode("utf-32-le" if np.little_endian else "utf-32-be")
        for row, length, bad in zip(cells, lengths.tolist(), wrong.tolist(), strict=True)
    ]
    return pa.array(found, pa.string()), wrong if wrong.any() else None


def _times(values: Array, target: pa.DataType) -> tuple[pa.Array, Array | None]:
    """datetime64 as microseconds where its unit is made of them, else as a count of its unit; timedelta64 as a count."""
    missing = np.isnat(values)
    if target == pa.int64():
        return pa.array(values.view(np.int64), mask=missing), None
    unit, step = np.datetime_data(values.dtype)
    most = LAST_TIME // (MICROSECONDS[unit] * step)
    counts = values.view(np.int64)
    made = np.where(np.abs(counts) <= most, counts, 0).view(values.dtype).astype("M8[us]").view(np.int64)
    wrong = ~missing & ((np.abs(counts) > most) | (made < FIRST_TIME) | (made > LAST_TIME))
    return pa.array(made, pa.int64(), mask=missing | wrong).view(target), wrong if wrong.any() else None
