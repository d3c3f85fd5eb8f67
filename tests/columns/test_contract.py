"""The decoder under a contract: what a message holds is in its columns or in `_rescued`, digit for digit, or its error says why not."""

import base64
import datetime
import io
import json
import math
import struct
import typing
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import sized
from decoder import generate, oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import codecs
from penstock.columns import contract as contracts
from penstock.columns.contract import decoding, fast_json, types
from penstock.columns.contract.declared import declared
from penstock.columns.contract.decoding import decode
from penstock.tables.delta.files import describe_file
from penstock.tables.delta.places import Place

ROUNDS = sized(40, 60, 2000)
LAST_SECOND = 253_402_300_799  # of the year 9999
JSON, MSGPACK = {"kind": "json"}, {"kind": "msgpack"}


def written(text):
    """A number as it is written."""
    return Decimal(text)


def rows_of(found):
    names = [column.name for column in found.contract]
    oracle.check_names(names)
    for array, column in zip(found.arrays, found.contract, strict=True):
        array.validate(full=True)
        assert array.type == column.type
    table = pa.RecordBatch.from_arrays(found.arrays, names) if names else None
    rows = [{} for _ in range(len(found.errors))] if table is None else table.to_pylist()
    return rows, found.errors.to_pylist(), found.rescued.to_pylist()


def as_text(found):
    """All of it, to the bit; keys in `_rescued` in any order."""
    rows, errors, rescued = rows_of(found)
    return repr((rows, errors, [one and sorted(json.loads(one, parse_float=written).items()) for one in rescued]))


def check(kind, payloads, found):
    """How many messages were decoded."""
    rows = zip(payloads, *rows_of(found), strict=True)
    return sum(
        oracle.check_message(kind, data, row, found.contract, error, rescued) for data, row, error, rescued in rows
    )


def as_payload(messages):
    return pa.array(messages, pa.binary())


def read_back(found):
    """Through Parquet and back: the same types, the same values."""
    table = pa.table(found.arrays, [column.name for column in found.contract])
    file = io.BytesIO()
    pq.write_table(table, file)
    back = pq.ParquetFile(file).read()
    assert back.schema.types == table.schema.types
    assert repr(back.to_pylist()) == repr(table.to_pylist())


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_any_message_is_in_its_columns_or_rescued(rng, tally, kind):
    make = getattr(generate, f"{kind}_messages")
    codec, tried, whole = {"kind": kind}, 0, 0
    for number in range(ROUNDS):
        payloads = make(rng, rng.randrange(60))
        found = decode(codec, (), as_payload(payloads))
        whole += check(kind, payloads, found)
        again = decode(codec, found.contract, as_payload(payloads))
        assert again.contract == found.contract
        assert as_text(again) == as_text(found)
        later = make(rng, rng.randrange(60))
        for mode in ("add", "rescue"):
            whole += check(kind, later, more := decode(codec, found.contract, as_payload(later), mode))
            assert more.contract[: len(found.contract)] == found.contract, "a column's type never changes"
            assert mode == "add" or more.contract == found.contract
        if number % 10 == 0:
            read_back(found)
        tried += len(payloads) + 2 * len(later)
    assert whole > tried / 4
    tally("messages under a contract", tried)


simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
objects = st.recursive(
    simple, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
as_json = (st.dictionaries(st.text(max_size=5), objects, max_size=4) | objects).map(
    lambda message: json.dumps(message).encode("utf-8", "replace")
)


@settings(max_examples=3 * ROUNDS, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["json", "msgpack"]), st.lists(as_json | st.binary(max_size=40), max_size=6))
def test_any_bytes_that_hypothesis_thinks_of(kind, payloads):
    check(kind, payloads, decode({"kind": kind}, (), as_payload(payloads)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_pieces_of_a_block_make_one(rng, monkeypatch, kind):
    for _ in range(5):
        payloads = getattr(generate, f"{kind}_messages")(rng, 200)
        contract = decode({"kind": kind}, (), as_payload(payloads)).contract
        whole = as_text(decode({"kind": kind}, contract, as_payload(payloads), "rescue"))
        for piece in (1, 7, 64):
            with monkeypatch.context() as patched:
                patched.setattr(decoding, "PIECE", piece)
                parts = decode({"kind": kind}, contract, as_payload(payloads), "rescue")
                assert as_text(parts) == whole, "a piece"
                check(kind, payloads, decode({"kind": kind}, (), as_payload(payloads)))


def test_more_keys_than_columns_are_rescued():
    payloads = [b'{"k%d": %d}' % (i, i) for i in range(contracts.COLUMNS_MAX + 5)]
    found = decode(JSON, (), as_payload(payloads))
    assert len(found.contract) == contracts.COLUMNS_MAX
    assert check("json", payloads, found) == len(payloads)
    assert found.rescued.null_count == contracts.COLUMNS_MAX


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"a": {"b": 1}}, None),
        (generate.Map([("a", generate.Map([("b", 1), ("b", 2)]))]), "repeated"),
        ([generate.Map([(1, "x"), (True, "y")])], "repeated"),
        (generate.Map([("a", generate.Map([(math.nan, 1), (math.nan, 2)]))]), "repeated"),
        (generate.Map([("a", generate.Single(0.1)), ("b", generate.Map([("c", 1), ("c", 1)]))]), "repeated"),
        ([generate.Single(0.5), {"c": generate.Ext((5, b"a")), "d": "x" * 300, "e": list(range(20))}], None),
        (generate.Map([("a", generate.Ext((3, b""))), ("b", generate.Map([(1, "x"), ("1", "y")]))]), None),
    ],
)
def test_a_key_twice_in_a_map_inside_is_an_error(message, error):
    payload = generate.pack(message)
    found = decode(MSGPACK, (), as_payload([payload]))
    assert error in (None, "repeated")
    assert (found.errors[0].as_py() is not None) == (error is not None)
    check("msgpack", [payload], found)


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
    assert used, "the fast way was never taken"


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


def test_values_beyond_the_most_columns_are_rescued():
    dtype = np.dtype([(f"f{number}", "<i4") for number in range(1002)])
    codec = codecs.resolve(dtype)
    contract = declared(codec.spec)
    found = decode(codec.spec, contract, as_payload([codec.encode(np.arange(1002).astype("<i4").view(dtype)[0])]))
    assert len(contract) == len(found.arrays) == 1000
    assert found.rescued.to_pylist() == ['{"f1000":1000,"f1001":1001}']
    with pytest.raises(penstock.Invalid, match=r"log:x has 1,000 columns, .* the schema's column zz has no place"):
        contracts.declare(contract, types.parse("f1 int, zz double"), "log:x")


DECLARED = [
    ("a timestamp", "2026-01-02T03:04:05.5Z", datetime.datetime(2026, 1, 2, 3, 4, 5, 500000, datetime.UTC)),
    ("a timestamp", "2026-01-02 03:04:05+02:00", datetime.datetime(2026, 1, 2, 1, 4, 5, 0, datetime.UTC)),
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
    ("schema", "text", "cell"),
    [
        (
            "a timestamp",
            "2026-01-02T03:04:05.123456789Z",
            datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, datetime.UTC),
        ),
        ("a timestamp_ntz", "1969-12-31 23:59:59.9999999", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("a timestamp_ntz", "2026-01-02T03:04:05.123456789Z", None),
    ],
)
def test_a_time_with_nanoseconds_is_there_without_them(schema, text, cell):
    contract = contracts.declare((), types.parse(schema), "log:x")
    found = decode(JSON, contract, as_payload([msgspec.json.encode({"a": text})]))
    assert found.arrays[0].to_pylist() == [cell]
    assert found.rescued.to_pylist() == [msgspec.json.encode({"a": text}).decode()]


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
        ("a struct<>", "a struct without fields"),
        ("`a double", "neither a name nor a type"),
        ("\udcff double", "UTF-8"),
        ("a " + "array<" * 30 + "int" + ">" * 30, "nested deeper"),
    ],
)
def test_a_schema_that_is_none_is_one_line(text, why):
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


@pytest.mark.parametrize(("kind", "rescued"), [("json", None), ("msgpack", {"b": "YWJj"})])
def test_a_text_stands_for_bytes_only_where_a_codec_has_none(kind, rescued):
    encode = msgspec.json.encode if kind == "json" else msgspec.msgpack.encode
    contract = contracts.declare((), types.parse("b binary, l array<struct<b: binary>>"), "log:x")
    found = decode({"kind": kind}, contract, pa.array([encode({"b": "YWJj"})], pa.binary()))
    value = found.rescued[0].as_py()
    assert (None if value is None else json.loads(value)) == rescued
    assert found.arrays[0].to_pylist() == [b"abc" if kind == "json" else None]
    nested = decode({"kind": kind}, contract, pa.array([encode({"l": [{"b": "YWJj"}]})], pa.binary()))
    assert nested.arrays[1].to_pylist() == [[{"b": b"abc"}] if kind == "json" else None]


def test_decimals_of_any_exponent_are_told_from_others():
    """A number beyond the column is rescued, whatever its exponent; one of 38 digits is kept whole."""
    whole = "0." + "1234567890" * 3 + "12345678"
    payloads = [b'{"a": %s}' % text.encode() for text in (whole, "1e9999999", "1e-9999999", "0e9999999", "12e-1")]
    contract = (contracts.Column("s:a", "a", pa.decimal128(38, 38)),)
    found = decode(JSON, contract, as_payload(payloads), "rescue")
    assert str(found.arrays[0][0].as_py()) == whole
    assert [one is None for one in found.rescued.to_pylist()] == [True, False, False, True, False]


def stamp(seconds, nanoseconds, length=8):
    """A time of MessagePack: with both numbers in 8 bytes, or in 12."""
    if length == 8:
        return b"\xd7\xff" + struct.pack(">Q", nanoseconds << 34 | seconds)
    return b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)


@pytest.mark.parametrize(
    ("value", "cell", "rescued"),
    [
        (stamp(100, 1001), 100_000_001, "1970-01-01T00:01:40.000001001Z"),
        (stamp(-1, 5, 12), -1_000_000, "1969-12-31T23:59:59.000000005Z"),
        (stamp(100, 1000), 100_000_001, None),
        (stamp(10**15, 5, 12), None, {"ext": -1, "data": "AAAABQADjX6kxoAA"}),
        (stamp(LAST_SECOND, 999_999_950, 12), (LAST_SECOND + 1) * 10**6 - 1, "9999-12-31T23:59:59.999999950Z"),
        (stamp(LAST_SECOND + 1, 0, 12), None, {"ext": -1, "data": "AAAAAAAAADr/9EGA"}),
    ],
)
def test_an_odd_time_of_msgpack_costs_only_itself(value, cell, rescued):
    other = b"\x82\xa1t" + stamp(1, 0) + b"\xa1b\xc4\x0a" + stamp(1, 1)  # the same bytes in a value are no time
    odd = b"\x82\xa1t" + value + b"\xa1n\x07"
    for payload in ([odd, other], [other, odd]):
        made = decode(MSGPACK, (), pa.array(payload))
        found = dict(zip((one.name for one in made.contract), made.arrays, strict=True))
        at = payload.index(odd)
        assert made.errors.null_count == 2
        assert found["t"].cast("int64")[at].as_py() == cell
        assert found["n"][at].as_py() == 7
        assert found["b"][1 - at].as_py() == stamp(1, 1)
        text = made.rescued[at].as_py()
        assert (None if text is None else json.loads(text)["t"]) == rescued


def test_half_of_a_surrogate_pair_is_named():
    made = decode(JSON, (), pa.array([b'{"c": "\\ud800"}', b'{"c": "x'])).errors.to_pylist()
    assert "half of a surrogate pair" in made[0]
    assert "truncated" in made[1]


ODD = [
    *('"9999-12-31T23:00:00-05:00"', '"0001-01-01T00:00:00+14:00"', '{"9999-12-31T23:00:00-05:00": 1}'),
    *("1e999999999", "-1e-999999999", "9" * 5000, "[" * 900 + "]" * 900, '{"a": ' * 900 + "1" + "}" * 900),
]
ODD_TYPES = [
    *("boolean", "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"),
    *("decimal(38,0)", "array<timestamp>", "map<timestamp, int>", "map<string, bigint>", "struct<a: timestamp>"),
]


@pytest.mark.parametrize("kind", ODD_TYPES)
def test_an_odd_value_costs_no_other_message(kind):
    """Whatever it is: the messages around it are whole, and its own row says what became of it, or has it."""
    contract = contracts.declare((), types.parse(f"v {kind}, n bigint"), "log:x")
    for odd in ODD:
        payloads = [b'{"n": 1}', b'{"n": 2, "v": %s}' % odd.encode(), b'{"n": 3}']
        rows, errors, rescued = rows_of(decode(JSON, contract, as_payload(payloads), "rescue"))
        assert [row["n"] for row in rows][::2] == [1, 3], odd[:40]
        assert errors[::2] == rescued[::2] == [None, None], odd[:40]
        assert (rows[1]["v"], errors[1], rescued[1]) != (None, None, None), odd[:40]


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_a_fault_of_the_decoder_costs_its_message_alone(kind, monkeypatch):
    whole = decoding.build

    def fail(values, *more):
        assert 13 not in values, "a planted fault"
        return whole(values, *more)

    monkeypatch.setattr(decoding, "build", fail)
    monkeypatch.setattr(fast_json, "decode", lambda *_: None)
    encode = msgspec.json.encode if kind == "json" else msgspec.msgpack.encode
    rows, errors, _ = rows_of(decode({"kind": kind}, (), as_payload([encode({"v": v}) for v in range(100)])))
    assert [row["v"] for row in rows] == [None if v == 13 else v for v in range(100)]
    assert [at for at, error in enumerate(errors) if error] == [13]
    assert "planted" in errors[13]


def test_times_beyond_the_calendar_have_no_statistics(tmp_path):
    pq.write_table(pa.table({"t": pa.array([1 << 60], pa.timestamp("us")), "n": [1]}), tmp_path / "x.parquet")
    assert describe_file(Place.of(tmp_path), "x.parquet").stats["minValues"] == {"n": 1}
