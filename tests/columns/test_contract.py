"""The decoder under a contract: what a message holds is in its columns or in `_rescued`, digit for digit, or its error says why not."""

import base64
import datetime
import json
import math
import typing
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from conftest import LONG
from decoder import generate

import penstock
from penstock import codecs
from penstock.columns import contract as contracts
from penstock.columns.contract import fast_json, types
from penstock.columns.contract.declared import declared
from penstock.columns.contract.decoding import decode

ROUNDS = 60 if not LONG else 2000
JSON, MSGPACK = {"kind": "json"}, {"kind": "msgpack"}


class Twice(Exception):
    pass


def unique(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise Twice
    return dict(pairs)


def written(text):
    """A number as it is written."""
    return Decimal(text)


def parsed(data):
    """A message by another parser; None if it is none, or has a key twice."""
    try:
        text = data.decode()
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # half a surrogate pair is no text
        return True, json.loads(
            text, parse_float=written, parse_int=written, parse_constant=lambda _: 1 / 0, object_pairs_hook=unique
        )
    except (Twice, ValueError, RecursionError, ZeroDivisionError):
        return False, None


def same_number(found, wanted):
    if isinstance(found, float):
        digits = len(wanted.normalize().as_tuple().digits)
        return Decimal(found) == wanted or (digits <= 17 and Decimal(f"{found:.{digits - 1}e}") == wanted)
    digits = len(wanted.normalize().as_tuple().digits)
    return Decimal(found) == wanted or (digits <= 17 and float(found) == float(wanted))


def same(found, wanted):
    """A value out of a column, or out of `_rescued`, against what was sent."""
    if isinstance(wanted, Decimal):
        return isinstance(found, int | float | Decimal) and not isinstance(found, bool) and same_number(found, wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        found = dict(found) if isinstance(found, list) else found
        if not isinstance(found, dict):
            return False
        found, wanted = ({key: one for key, one in each.items() if one is not None} for each in (found, wanted))
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    return type(found) is type(wanted) and found == wanted


def checked(value, cell, kind, rescued, path):
    """The value is in the cell, but for the parts that were rescued; these are taken away."""
    if path in rescued:
        assert same(rescued.pop(path), value), path
        assert cell is None, path
    elif value is None:
        assert cell is None, path
    elif pa.types.is_struct(kind):
        assert isinstance(value, dict), path
        for key, part in value.items():
            number = kind.get_field_index(key)
            if number < 0 and part is not None:
                assert same(rescued.pop(f"{path}.{key}"), part), path
            elif number >= 0:
                checked(part, cell[key], kind.field(number).type, rescued, f"{path}.{key}")
        assert all(cell[field.name] is None for field in kind if field.name not in value), path
    else:
        assert same(cell, value), (path, cell, value)


def rows_of(found):
    names = [column.name for column in found.contract]
    assert len({name.casefold() for name in names}) == len(names)
    for array, column in zip(found.arrays, found.contract, strict=True):
        array.validate(full=True)
        assert array.type == column.type
    table = pa.RecordBatch.from_arrays(found.arrays, names) if names else None
    rows = [{} for _ in range(len(found.errors))] if table is None else table.to_pylist()
    return rows, found.errors.to_pylist(), found.rescued.to_pylist()


def check_json(payloads, found):
    whole = 0
    by_label = {column.label: column for column in found.contract}
    for data, row, error, rescued in zip(payloads, *rows_of(found), strict=True):
        good, message = parsed(data)
        if error is not None:
            assert not good or len(data) > 4300, (data, error)  # no parser reads a number of more digits
            assert set(row.values()) <= {None}
            continue
        assert good, data
        left = json.loads(rescued, parse_float=written, parse_int=written) if rescued else {}
        for key, value in message.items() if isinstance(message, dict) else [(None, message)]:
            label = "bare" if key is None else f"s:{key}"
            path = contracts.key_text(label)
            column = by_label.get(label)
            if column is not None:
                checked(value, row[column.name], column.type, left, path)
            elif value is not None:
                assert same(left.pop(path), value), (data, path)
        assert not left, (data, left)
        whole += 1
    return whole


def as_payload(messages):
    return pa.array(messages, pa.binary())


def test_any_json_is_in_its_columns_or_rescued(rng, tally):
    tried = whole = 0
    for _ in range(ROUNDS):
        payloads = generate.json_messages(rng, rng.randrange(60))
        found = decode(JSON, (), as_payload(payloads))
        whole += check_json(payloads, found)
        again = decode(JSON, found.contract, as_payload(payloads))
        assert again.contract == found.contract
        assert repr(rows_of(again)) == repr(rows_of(found))
        later = generate.json_messages(rng, rng.randrange(60))
        for mode in ("add", "rescue"):
            whole += check_json(later, more := decode(JSON, found.contract, as_payload(later), mode))
            assert more.contract[: len(found.contract)] == found.contract, "a column's type never changes"
            assert mode == "add" or more.contract == found.contract
        tried += len(payloads) + 2 * len(later)
    assert whole > tried / 3
    tally("messages under a contract", tried)


PLAIN = {
    "whole": lambda rng: rng.choice([0, 1, -5, 2**53, 2**62]),
    "fraction": lambda rng: rng.choice([0.5, -1.25, 0.1, 1e15, 3.0, 1e-300, None]),
    "text": lambda rng: rng.choice(["", "a", "é", "1.23456789012345678901234", None]),
    "truth": lambda rng: rng.random() < 0.5,
    "list": lambda rng: [rng.random() for _ in range(rng.randrange(4))],
    "lists": lambda rng: [[rng.randrange(9)], [], None][: rng.randrange(4)],
    "parts": lambda rng: [{"x": rng.random(), "y": "t"} for _ in range(rng.randrange(3))],
}


def test_a_contract_does_not_depend_on_the_fast_way(rng, monkeypatch):
    """Arrow's reader and the slow way give the same, to the bit."""
    used = 0
    for _ in range(ROUNDS):
        shape = [(key, rng.choice(list(PLAIN.values()))) for key in rng.sample(generate.KEYS, rng.randrange(1, 6))]
        shape += [("in", lambda rng, shape=tuple(shape): {key: make(rng) for key, make in shape if rng.random() < 0.9})]
        odd = rng.random() < 0.3
        payloads = [
            json.dumps({key: make(rng) for key, make in shape if rng.random() < 0.9}).encode() for _ in range(50)
        ]
        if odd:
            payloads[rng.randrange(50)] = generate.to_json(rng, generate.steady(rng)()).encode()
        contract = decode(JSON, (), as_payload(payloads)).contract
        fast = decode(JSON, contract, as_payload(payloads))
        used += fast_json.decode(contract, as_payload(payloads)) is not None
        with monkeypatch.context() as patched:
            patched.setattr(fast_json, "decode", lambda *_: None)
            slow = decode(JSON, contract, as_payload(payloads))
        assert repr(rows_of(slow)) == repr(rows_of(fast))
        assert slow.contract == fast.contract
    assert used > ROUNDS / 10


def test_any_msgpack_is_in_its_columns_or_rescued(rng, tally):
    """Every value of a decoded message is found again, in whichever column; what is not text is rescued as text."""
    tried = 0
    for _ in range(ROUNDS):
        payloads = generate.msgpack_messages(rng, rng.randrange(60))
        found = decode(MSGPACK, (), as_payload(payloads))
        by_label = {column.label: column for column in found.contract}
        for data, row, error, rescued in zip(payloads, *rows_of(found), strict=True):
            try:
                message = msgspec.msgpack.decode(data)
            except Exception:
                assert error is not None
                continue
            left = json.loads(rescued) if rescued else {}
            if error is not None or not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
                continue
            for key, value in message.items():
                column = by_label.get(f"s:{key}")
                cell = None if column is None else row[column.name]
                if column is not None and pa.types.is_nested(column.type):
                    continue
                nothing = value is None or (isinstance(value, float) and math.isnan(value))
                assert nothing or cell == value or key in left, (key, value, cell, left)
        tried += len(payloads)
    tally("messages under a contract", tried)


NUMBERS = [
    (b'{"a":12345.67890123456789012345}', {"a": Decimal("12345.67890123456789012345")}),
    (b'{"a":1e400}', {"a": Decimal("1E+400")}),
    (b'{"a":9007199254740993}', {"a": Decimal(9007199254740993)}),
    (b'{"a":9223372036854775807}', {"a": Decimal(9223372036854775807)}),
    (b'{"a":9223372036854775808}', {}),
    (b'{"a":0.1}', {}),
    (b'{"a":0.10000000000000001}', {}),
    (b'{"a":1.7976931348623157e308}', {}),
    (b'{"a":true}', {"a": True}),
    (b'{"a":"1"}', {"a": "1"}),
    (b'{"a":null}', {}),
    (b'{"a":5}', {}),
]


@pytest.mark.parametrize(("message", "rescued"), NUMBERS)
def test_a_number_is_exact_or_rescued_with_its_digits(message, rescued):
    contract = contracts.declare((), types.parse("a double"), "log:x")
    found = decode(JSON, contract, as_payload([message] * 3))
    assert found.contract == contract
    for text, value in zip(found.rescued.to_pylist(), found.arrays[0].to_pylist(), strict=True):
        left = {} if text is None else json.loads(text, parse_float=written, parse_int=written)
        assert left == rescued
        assert (value is None) == (bool(rescued) or b"null" in message)


def test_one_odd_value_costs_itself_alone():
    messages = [b'{"px":%d.5,"n":%d}' % (n, n) for n in range(5000)]
    contract = decode(JSON, (), as_payload(messages)).contract
    messages[100] = b'{"px":"n/a","n":100,"extra":[]}'
    found = decode(JSON, contract, as_payload(messages))
    assert found.contract == contract
    assert [(at, text) for at, text in enumerate(found.rescued.to_pylist()) if text] == [
        (100, '{"px":"n/a","extra":[]}')
    ]
    assert found.arrays[0].null_count == 1
    assert found.arrays[1].null_count == 0
    assert found.errors.null_count == 5000


def test_a_repeated_key_is_an_error_and_never_a_choice():
    messages = [b'{"a":1,"a":2}', b'{"a":1,"b":{"c":1,"c":2}}', b'{"a":"x\\":"}', b'{"a":[{"b":1},{"b":2}]}']
    for count in (1, 3):
        errors = decode(JSON, (), as_payload(messages * count)).errors.to_pylist()
        assert [error is not None for error in errors] == [True, True, False, False] * count


def test_new_keys_are_columns_or_rescued_or_refused():
    contract = decode(JSON, (), as_payload([b'{"a":1}'])).contract
    fresh = as_payload([b'{"a":1,"b":{"c":[1.5]},"d":null}'])
    added = decode(JSON, contract, fresh, "add")
    assert [(one.label, one.name, types.ddl(one.type)) for one in added.contract] == [
        ("s:a", "a", "bigint"),
        ("s:b", "b", "struct<`c`: array<double>>"),
    ]
    kept = decode(JSON, contract, fresh, "rescue")
    assert kept.contract == contract
    assert kept.rescued.to_pylist() == ['{"b":{"c":[1.5]}}']
    with pytest.raises(penstock.Invalid, match="the key 'b', for which there is no column"):
        decode(JSON, contract, fresh, "fail")


DECLARED = [
    ("a timestamp", "2026-01-02T03:04:05.5Z", datetime.datetime(2026, 1, 2, 3, 4, 5, 500000, datetime.UTC)),
    ("a timestamp", "2026-01-02 03:04:05+02:00", datetime.datetime(2026, 1, 2, 1, 4, 5, 0, datetime.UTC)),
    ("a timestamp", "2026-01-02T03:04:05.123456789Z", None),
    ("a timestamp", "2026-01-02T03:04:05", datetime.datetime(2026, 1, 2, 3, 4, 5, 0, datetime.UTC)),
    ("a timestamp_ntz", "2026-01-02T03:04:05Z", None),
    ("a timestamp_ntz", "2026-01-02T03:04:05", datetime.datetime(2026, 1, 2, 3, 4, 5)),
    ("a timestamp", "yesterday", None),
    ("a date", "2026-01-02", datetime.date(2026, 1, 2)),
    ("a date", "2026-13-02", None),
    ("a decimal(5,2)", 123.45, Decimal("123.45")),
    ("a decimal(5,2)", 1234.5, None),
    ("a decimal(5,2)", "1.5", Decimal("1.50")),
    ("a smallint", 32767, 32767),
    ("a smallint", 32768, None),
    ("a tinyint", 1.0, 1),
    ("a tinyint", 1.5, None),
    ("a float", 0.1, pytest.approx(0.1)),
    ("a float", 0.123456789012, None),
    ("a binary", base64.b64encode(b"\0\xff").decode(), b"\0\xff"),
    ("a binary", "no base64!", None),
    ("a map<string, bigint>", {"x": 1, "y": 2}, [("x", 1), ("y", 2)]),
    ("a map<string, bigint>", {"x": 1, "y": "2"}, None),
    ("a array<array<double>>", [[1.5], [], None], [[1.5], [], None]),
    ("a array<struct<b: bigint>>", [{"b": 1}, {}], [{"b": 1}, {"b": None}]),
    ("a array<struct<b: bigint>>", [{"b": 1, "c": 2}], None),
    ("a boolean", 1, None),
    ("a string", 1, None),
]


@pytest.mark.parametrize(("schema", "value", "cell"), DECLARED)
def test_a_declared_column_has_the_value_or_it_is_rescued(schema, value, cell):
    contract = contracts.declare((), types.parse(schema), "log:x")
    found = decode(JSON, contract, as_payload([msgspec.json.encode({"a": value})]))
    assert found.arrays[0].to_pylist() == [cell]
    assert found.rescued.to_pylist() == ([None] if cell is not None else [msgspec.json.encode({"a": value}).decode()])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no column"),
        ("a", "the type of a is missing"),
        ("a double b int", "',' must stand before 'b'"),
        ("a double, A int", "names A twice"),
        ("a number", "there is no type number"),
        ("a decimal(40)", "1 to 38 digits"),
        ("a array<int", "'>' is missing"),
        ("a map<int>", "',' must stand before '>'"),
        ("a struct<>", "names no"),
        ("`a double", "neither a name nor a type"),
        ("a " + "array<" * 30 + "int" + ">" * 30, "nested deeper"),
    ],
)
def test_a_schema_that_is_none_is_one_line(text, why):
    if text == "a struct<>":
        assert types.parse(text) == {"a": pa.struct([])}
        return
    with pytest.raises(penstock.Invalid) as caught:
        types.parse(text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_types_are_written_as_they_are_read(rng):
    plain = [*types.PLAIN.values(), pa.decimal128(12, 3)]

    def kind(depth):
        choice = rng.randrange(4 if depth < 4 else 1)
        if choice == 1:
            return pa.list_(kind(depth + 1))
        if choice == 2:
            return pa.map_(pa.string(), kind(depth + 1))
        if choice == 3:
            return pa.struct(
                [(name, kind(depth + 1)) for name in rng.sample(["a", "b c", "größe", "x`y"], rng.randrange(1, 4))]
            )
        return rng.choice(plain)

    for _ in range(200):
        wanted = {name: kind(0) for name in ("a", "value", "two words")}
        text = ", ".join(f"{types.quoted(name)} {types.ddl(one)}" for name, one in wanted.items())
        assert types.parse(text) == wanted


def test_columns_of_a_class_are_declared():
    class Part(msgspec.Struct):
        at: datetime.datetime
        raw: bytes

    class Whole(msgspec.Struct):
        number: int
        ratio: float | None
        parts: list[Part]
        by_name: dict[str, int]
        choice: int | str
        anything: typing.Any = None

    for form in ("json", "msgpack"):
        codec = penstock.objects(Whole, form)
        found = {one.name: types.ddl(one.type) for one in declared(codec.spec)}
        assert found == {
            "number": "bigint",
            "ratio": "double",
            "parts": "array<struct<`at`: timestamp, `raw`: binary>>",
            "by_name": "map<string, bigint>",
        }
        moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        message = bytes(codec.encode(Whole(1, None, [Part(moment, b"\xff")], {"a": 1}, "c", {"x": 1})))
        made = decode(codec.spec, declared(codec.spec), as_payload([message]))
        rows, errors, rescued = rows_of(made)
        assert errors == [None]
        assert rescued == [None]
        assert rows[0] == {
            "number": 1,
            "ratio": None,
            "parts": [{"at": moment, "raw": b"\xff"}],
            "by_name": [("a", 1)],
            "choice": "c",
            "anything": {"x": 1},
        }


def test_a_stream_whose_codec_changes_keeps_its_columns():
    contract = contracts.declare((), types.parse("a bigint, b string"), "log:x")
    codec = codecs.resolve([("a", "<f8"), ("c", "<i2")])
    contract = contracts.add(
        contract, ((one.label, contracts.key_text(one.label), one.type) for one in declared(codec.spec))
    )
    found = decode(codec.spec, contract, as_payload([bytes(codec.encode((1.0, 2))), bytes(codec.encode((1.5, 3)))]))
    rows, errors, rescued = rows_of(found)
    assert rows == [{"a": 1, "b": None, "c": 2}, {"a": None, "b": None, "c": 3}]
    assert errors == [None, None]
    assert rescued == [None, '{"a":1.5}']


def test_a_contract_survives_its_text():
    contract = decode(JSON, (), as_payload([b'{"a":1,"b":{"c":["x"]},"time":true,"\\u0000":1.5}'])).contract
    assert contracts.unpack(contracts.pack(contract)) == contract
    assert contracts.from_schema(contracts.to_schema(contract, "json")) == contract
    assert [one.name for one in contract] == ["a", "b", "time_", "_"]
