"""Arrow's reader of JSON against the decoder that reads value by value: the same keys, columns and errors, to the bit."""

import json

import pyarrow as pa
import pytest
from conftest import LONG
from decoder import generate

from penstock import columns
from penstock.codecs import multipart
from penstock.columns import envelopes, objects, uniform

JSON = {"kind": "json"}
ROUNDS = 150 if not LONG else 10_000


def slowly(keys, payload):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uniform, "decode", lambda keys, payload: None)
        return columns.decode(JSON, keys, payload)


def compare(keys, messages):
    """Whether Arrow's reader read them all."""
    payload = pa.array(messages, pa.binary())
    fast, slow = columns.decode(JSON, keys, payload), slowly(keys, payload)
    assert columns.keys_to_json(fast.keys) == columns.keys_to_json(slow.keys), messages
    assert (fast.keys is keys) == (slow.keys is keys)
    assert fast.schema.equals(slow.schema, check_metadata=True)
    for field, one, other in zip(fast.schema, fast.arrays, slow.arrays, strict=True):
        assert one.type == other.type == field.type
        one.validate(full=True)
        assert repr(one.to_pylist()) == repr(other.to_pylist()), (field, messages)  # -0.0 is not 0.0
    assert fast.errors.equals(slow.errors)
    return uniform.decode(keys, payload) is not None


def plain(rng):
    """A way to make messages of keys whose values are of one kind each."""
    kinds = [
        [0, 1, -1, 2**53, -(2**53) + 1],
        [2**53 + 1, 2**63 - 1, 0, -(2**63), 2**53 + 2],
        [0.5, 1.0, -1.5, 0.0, 1e-5, 5e-324, 2.0**52, 123456789.123],
        generate.TEXTS,
        [True, False],
        [None],
        [[1, 2], [], [None], None],
        [[0.5, 1.0], [], None],
        [["a", "\0"], [None, "é"]],
        [[True], []],
        [[], None],
    ]
    made = [(key, rng.choice(kinds)) for key in rng.sample(generate.KEYS, rng.randrange(1, 6))]
    return lambda: {key: rng.choice(items) for key, items in made if rng.random() < 0.9}


ODD = [
    '{"a":1}{"a":2}',
    '{"a":1',
    "}",
    '{"a":{}',
    '{"a":"}',
    '"}{"}',
    '{"a":-0}',
    '{"a":-0.0}',
    '{"a":1e400}',
    '{"a":1e-400}',
    '{"a":9007199254740993}',
    '{"a":9007199254740993.0}',
    '{"a":1,"a":1}',
    '{"a":01}',
    '{"a":1.}',
    '{"a":.5}',
    '{"a":+1}',
    '{"a":1E2}',
    '{"a":NaN}',
    '{"a":Infinity}',
    '{"a":"\\ud800"}',
    '{"a":"\\ud834\\udd1e"}',
    '{"a":"\x01"}',
    '{"a":"\x7f"}',
    '{"a":"\\u0000"}',
    '{"\\u0061":2}',
    '{"a":1,}',
    '{"a":1}//}',
    '{/**/"a":1}',
    '{"a":\t1 \r\n}',
    '\n{"a":1}',
    '{"a":1}\n',
    "{}",
    '{"a":null}',
    '{"a":[1,[2]]}',
    '{"a":[1,2.5]}',
    '{"a":[-0]}',
    '{"a":"2026-01-01"}',
    '{"a":18446744073709551615}',
    b'{"a":"\xff"}',
    b'{"a":"\xc3","\xa9":1}',
    '{"a":1}\x00}',
    '{"a\x00":1}',
]
ODD = [odd.encode() if isinstance(odd, str) else odd for odd in ODD]
TYPES = [
    [],
    [{"a": 1}],
    [{"a": 0.5}],
    [{"a": "x"}],
    [{"a": True}],
    [{"a": None}],
    [{"a": 2**60 + 1}],
    [{"a": [1]}],
    [{"a": [0.5]}],
    [{"a": []}],
    [{"a": 1}, {"a": 2**60 + 1}],
    [{"a": 1}, {"a": 0.5}],
    [{"a": 1, "b": 1}],
    [{"a": 2**64}],
    [{"a": {"b": 1}}],
    [{"a": "x"}, {"a": 1}],
]


@pytest.mark.parametrize("first", TYPES, ids=str)
def test_odd_messages_are_decoded_the_same_either_way(first):
    told = [json.dumps(one).encode() for one in first]
    keys = columns.learn(JSON, (), pa.array(told, pa.binary()))
    for odd in ODD:
        for messages in ([odd] * 2, [*told, odd, *told], [odd, b'{"a":1}']):
            compare(keys, messages)
    for one in ODD:
        for other in ODD:
            compare(keys, [one, other])


def test_whatever_messages_hold_both_ways_agree(rng, tally):
    fast = 0
    for _ in range(ROUNDS):
        make = plain(rng)
        messages = [generate.to_json(rng, make()).encode() for _ in range(rng.randrange(2, 40))]
        keys = columns.learn(JSON, (), pa.array(messages, pa.binary()))
        fast += compare(keys, messages)
        for _ in range(4):
            odd = list(messages)
            at = rng.randrange(len(odd))
            choice = rng.randrange(4)
            if choice == 0:
                odd[at] = generate.mutated(rng, odd[at])
            elif choice == 1:
                odd[at : at + 1] = generate.json_messages(rng, 1)
            elif choice == 2:  # the same bytes, parted elsewhere
                whole, cut = odd[at] + odd[at - 1], rng.randrange(1 + len(odd[at] + odd[at - 1]))
                odd[at], odd[at - 1] = whole[:cut], whole[cut:]
            else:
                odd[at] = generate.to_json(rng, plain(rng)()).encode()
            fast += compare(keys, odd)
    assert fast > ROUNDS / 2, "Arrow's reader is hardly tried"
    tally("blocks read both ways", fast)


def test_blocks_that_are_alike_are_read_by_arrow():
    messages = [
        b'{"t":%d.5,"id":%d,"name":"a\\u00e9","ok":true,"v":[1.5,2.5],"none":null}' % (i, i) for i in range(100)
    ]
    payload = pa.array(messages, pa.binary())
    keys = columns.learn(JSON, (), payload)
    assert uniform.decode(keys, payload) is not None
    assert uniform.decode(keys, payload.slice(3, 90)) is not None, "a part of a larger block, too"
    assert compare(keys, messages[3:90])
    assert uniform.decode(keys, pa.array([*messages, b'{"t":1.5,"new":1}'], pa.binary())) is None


def test_kinds_that_no_longer_matter_are_forgotten_in_any_order():
    one = columns.learn(JSON, (), pa.array([b'{"a":1,"b":[1]}', b'{"a":0.5,"b":[0.5]}'], pa.binary()))
    other = columns.learn(JSON, (), pa.array([b'{"a":0.5,"b":[0.5]}'], pa.binary()))
    assert columns.keys_to_json(one) == columns.keys_to_json(other)
    assert columns.learn(JSON, other, pa.array([b'{"a":1,"b":[1]}'], pa.binary())) is other
    assert objects.schema(one).types == [pa.float64(), pa.list_(pa.float64())]


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_pieces_of_a_block_make_one(rng, kind):
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(10):
            messages = getattr(generate, f"{kind}_messages")(rng, 200)
            payload = pa.array(messages, pa.binary())
            whole = columns.decode({"kind": kind}, (), payload)
            for piece in (1, 7, 64):
                patch.setattr(objects, "PIECE", piece)
                parts = columns.decode({"kind": kind}, (), payload)
                assert columns.keys_to_json(parts.keys) == columns.keys_to_json(whole.keys)
                assert parts.schema.equals(whole.schema, check_metadata=True)
                assert repr([a.to_pylist() for a in parts.arrays]) == repr([a.to_pylist() for a in whole.arrays])
                assert parts.errors.equals(whole.errors)
            patch.undo()


@pytest.mark.parametrize("kind", ["sync", "pipe"])
def test_envelopes_are_opened_together_as_one_by_one(rng, kind):
    together = 0
    for _ in range(60):
        names = [rng.choice(["", "a", "b\0", "sender", "é" * 40, "x" * rng.randrange(300)]) for _ in range(6)]
        messages = []
        for _ in range(rng.randrange(1, 60)):
            first, second = rng.choice(names).encode(), rng.choice(names).encode()
            head = multipart.SYNC_HEADER.pack(len(first), len(second), rng.choice([0, 1, 7]))
            messages.append(head + first + second + rng.randbytes(rng.randrange(9)))
        if rng.random() < 0.4:  # cut, with several parts, or with a name that is no text
            odd = [messages[0][:5], messages[0][:9], multipart.SYNC_HEADER.pack(1, 1, 0) + b"\xffa", b""]
            parts = multipart.SYNC_HEADER.pack(1, 1, multipart.PARTS) + b"ab" + multipart.join_parts([b"1", b"2"])
            messages[rng.randrange(len(messages))] = rng.choice([*odd, parts])
        payload = pa.array([b"xx", *messages], pa.binary()).slice(1)
        slow, fast = envelopes._one_by_one(kind, payload), envelopes._together(kind, payload)
        together += fast is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(envelopes, "PIECE", rng.choice([1, 3, 4096]))
            made = envelopes.opened(kind, payload)
        for one in [fast, made] if fast is not None else [made]:
            assert [array.to_pylist() for array in one.arrays] == [array.to_pylist() for array in slow.arrays]
            assert [array.type for array in one.arrays] == [array.type for array in slow.arrays]
            assert one.errors.to_pylist() == slow.errors.to_pylist()
            assert one.whole.tolist() == slow.whole.tolist()
            assert one.inner.to_pylist() == slow.inner.to_pylist()
    assert together > 20
