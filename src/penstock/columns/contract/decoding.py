"""Payloads as the columns of a contract. Never raises for what a message holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns import envelopes, fixed
from penstock.columns.contract import COLUMNS_MAX, Column, Contract, add, fast_json, key_text, messages, protos, rosmsgs
from penstock.columns.contract.building import Into, build
from penstock.columns.contract.declared import inner, labels
from penstock.columns.contract.inference import infer
from penstock.columns.contract.rescue import Rescued
from penstock.errors import Invalid, PenstockError

PIECE = 4096  # messages that are decoded together: an odd one slows down only its own piece
MODES = ("add", "rescue", "fail")  # what becomes of a key that has no column
BARE = "bare"  # the label of a message that is not a map: its column is `value`


@dataclass(frozen=True)
class Decoded:
    """A batch as columns. contract: the one given, and columns for keys that it lacked. errors: why a message could not be decoded.
    rescued: JSON of values that their columns do not hold. Both are null where all is well."""

    contract: Contract
    arrays: list[pa.Array]
    errors: pa.Array
    rescued: pa.Array


def decode(codec: dict[str, Any], contract: Contract, payload: pa.Array, mode: str = "add") -> Decoded:
    """Payloads as columns. mode: `add` makes a column of each new key, `rescue` puts its values into `_rescued`, `fail` is `Invalid`.

    A contract may have columns that these messages do not: they are null.
    """
    kind, body = codec["kind"], inner(codec)
    if kind in envelopes.OUTER:
        opened = envelopes.open_envelopes(kind, payload)
        inside = _decode_all(body, contract, opened.inner, mode)
        whole = opened.whole
        outer = dict(zip((f"o:{field.name}" for field in envelopes.OUTER[kind]), opened.arrays, strict=True))
        arrays = [
            outer[column.label] if column.label in outer else scatter(array, whole)
            for column, array in zip(inside.contract, inside.arrays, strict=True)
        ]
        errors, rescued = scatter(inside.errors, whole), scatter(inside.rescued, whole)
        return Decoded(inside.contract, arrays, _join_errors(opened.errors, errors), rescued)
    return _decode_all(body, contract, payload, mode)


def _decode_all(codec: dict[str, Any], contract: Contract, payload: pa.Array, mode: str) -> Decoded:
    kind = codec["kind"]
    if kind not in ("json", "msgpack", "protobuf", "ros2"):
        return _joined(_guarded(partial(_decode_fixed, codec), contract, payload))
    parsers = {"protobuf": protos.parser, "ros2": rosmsgs.parser}
    parse = parsers[kind](codec) if kind in parsers else None
    decode_piece = partial(_piece, kind, parse, mode)
    pieces: list[Decoded] = []
    for at in range(0, max(len(payload), 1), PIECE):
        pieces += _guarded(decode_piece, contract, payload.slice(at, PIECE))
        contract = pieces[-1].contract
    return _joined(pieces)


def _guarded(
    decode_piece: Callable[[Contract, pa.Array], Decoded], contract: Contract, payload: pa.Array
) -> list[Decoded]:
    """A piece, decoded. Where that fails, whatever the reason is, its halves: so the fault of a message costs this message alone."""
    try:
        return [decode_piece(contract, payload)]
    except (PenstockError, MemoryError):  # a key without a column, where that is an error
        raise
    except Exception as error:
        count = len(payload)
        if count < 2:
            arrays = [pa.nulls(count, column.type) for column in contract]
            text = messages.describe(error)
            return [Decoded(contract, arrays, pa.array([text] * count, pa.string()), pa.nulls(count, pa.string()))]
    first = _guarded(decode_piece, contract, payload.slice(0, count // 2))
    return first + _guarded(decode_piece, first[-1].contract, payload.slice(count // 2))


def _decode_fixed(codec: dict[str, Any], contract: Contract, payload: pa.Array) -> Decoded:
    kind = codec["kind"]
    if kind in ("struct", "array"):
        arrays, errors = fixed.decode(codec, payload)
    elif kind == "frame":
        arrays, errors = envelopes.decode_frames(codec, payload)
    else:
        arrays, errors = [], pa.nulls(len(payload), pa.string())
    rescued = Rescued()
    natural = dict(zip(labels(codec), arrays, strict=True))
    known = {column.label for column in contract}
    for label in [one for one in natural if one not in known]:  # a table has 1,000 columns at most
        for row, value in enumerate(natural[label].to_pylist()):
            if value is not None:
                rescued(row, key_text(label), value)
    made = [_as(natural.get(column.label), column, len(payload), rescued) for column in contract]
    return Decoded(contract, made, errors, rescued.array(len(payload)))


def _as(array: pa.Array | None, column: Column, count: int, rescued: Rescued) -> pa.Array:
    """A column of a dtype as the table's: another codec may have come first."""
    if array is None:
        return pa.nulls(count, column.type)
    if array.type == column.type:
        return array
    return build(array.to_pylist(), column.type, Into(rescued, has_bytes=True), key_text(column.label))


def _joined(pieces: list[Decoded]) -> Decoded:
    """Pieces as one: each has the columns of the one before, and maybe more."""
    if len(pieces) == 1:
        return pieces[0]
    contract = pieces[-1].contract
    arrays = [
        pa.concat_arrays(
            [
                piece.arrays[number] if number < len(piece.arrays) else pa.nulls(len(piece.errors), column.type)
                for piece in pieces
            ]
        )
        for number, column in enumerate(contract)
    ]
    errors, rescued = (pa.concat_arrays([getattr(one, name) for one in pieces]) for name in ("errors", "rescued"))
    return Decoded(contract, arrays, errors, rescued)


def _piece(kind: str, parse: protos.Parser | None, mode: str, contract: Contract, payload: pa.Array) -> Decoded:
    count = len(payload)
    rescued = Rescued()
    if kind == "json" and (alike := fast_json.decode(contract, payload)) is not None:
        return Decoded(contract, alike, pa.nulls(count, pa.string()), pa.nulls(count, pa.string()))
    if parse is not None:
        rows, errors = _parse(parse, payload, rescued)
    else:
        rows, errors = messages.objects(kind, payload)
    values, errors = _by_label(rows, contract, errors)
    known = {column.label for column in contract}
    fresh = [label for label in values if label not in known]
    if fresh and mode == "fail":
        raise Invalid(
            f"a message has the key {key_text(fresh[0])!r}, for which there is no column: allow new keys, or declare it in a schema"
        )
    if fresh and mode == "add":
        kinds = ((label, infer(values[label])) for label in fresh)
        contract = add(contract, ((label, key_text(label), one) for label, one in kinds if one is not None))
    into = Into(rescued, has_bytes=kind != "json")
    arrays = [build(values[column.label], column.type, into, key_text(column.label)) for column in contract]
    known = {column.label for column in contract}
    for label in sorted(fresh):  # keys of one text are numbered: by their types, whatever messages came before
        for row, value in enumerate(values[label]) if label not in known else ():
            if value is not None:
                rescued(row, key_text(label), value)
    texts = pa.array([errors.get(row) for row in range(count)], pa.string()) if errors else pa.nulls(count, pa.string())
    return Decoded(contract, arrays, texts, rescued.array(count))


def _parse(parse: protos.Parser, payload: pa.Array, rescued: Rescued) -> tuple[list[Any], messages.Errors]:
    rows: list[Any] = []
    errors: messages.Errors = {}
    for at, item in enumerate(payload.to_pylist()):
        try:
            values, unknown = parse(item)
            rows.append(values)
            for place, found in unknown.items():
                rescued(at, place, found[0] if len(found) == 1 else found)
        except Exception as error:  # any error of a decoder is that message's error
            rows.append(None)
            errors[at] = messages.describe(error)
    return rows, errors


def _by_label(
    rows: list[Any], contract: Contract, errors: messages.Errors
) -> tuple[Mapping[str, list[Any]], messages.Errors]:
    """Label → values: those of the contract first, then in the order in which they appeared."""
    seen = dict.fromkeys(column.label for column in contract)
    labelled: list[dict[str, Any]] = []
    if all(type(row) is dict and (not row or type(next(iter(row))) is str) for row in rows):
        keys: dict[Any, None] = {}
        for row in rows:
            keys.update(dict.fromkeys(row))
        if all(type(key) is str for key in keys):
            labels = seen | {f"s:{key}": None for key in keys}
            return {
                label: [row.get(label[2:]) for row in rows] if label.startswith("s:") else [None] * len(rows)
                for label in labels
            }, errors
    for at, row in enumerate(rows):
        if at in errors:
            labelled.append({})
            continue
        found = {_label(key): value for key, value in row.items()} if type(row) is dict else {BARE: row}
        if type(row) is dict and len(found) != len(row):
            messages.note(errors, at, messages.DOUBLED)
            found = {}
        labelled.append(found)
        seen.update(dict.fromkeys(found))
    return {label: [row.get(label) for row in labelled] for label in seen}, errors


def _label(key: Any) -> str:
    """The label of a key: its kind and its text, since keys need not be text."""
    if isinstance(key, str):
        return f"s:{key}"
    if isinstance(key, bytes):
        return f"x:{key.hex()}"
    return f"{type(key).__name__[0]}:{key}"


def scatter(values: pa.Array, where: np.ndarray[Any, Any]) -> pa.Array:
    """`values` at the true places, null elsewhere."""
    return values if where.all() else values.take(pa.array(np.cumsum(where) - 1, mask=~where))


def _join_errors(one: pa.Array, other: pa.Array) -> pa.Array:
    """Two columns of errors as one."""
    if one.null_count == len(one) or other.null_count == len(other):
        return other if one.null_count == len(one) else one
    texts = ["; ".join(filter(None, pair)) or None for pair in zip(one.to_pylist(), other.to_pylist(), strict=True)]
    return pa.array(texts, pa.string())


__all__ = ["COLUMNS_MAX", "MODES", "Decoded", "decode", "scatter"]
