"""Values are sent as they are, or refused with what to do: none is changed in silence."""

import datetime
import json
import math

import numpy as np
import pytest

import penstock
from penstock import codecs

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"speed": NAN}, "speed"),
        ({"a": {"b": [1, INF]}}, r"a\.b\[1\]"),
        ([None, -INF], r"\[1\]"),
        (NAN, "the value"),
        ({"id": 2**70, "x": NAN}, "x"),
        ({1.5, NAN}, "nan"),
    ],
)
def test_json_has_no_such_numbers(value, where):
    with penstock.publish("log:j", codec="json") as pub, penstock.subscribe("log:j") as sub:
        for way in (pub.send, pub.offer, lambda item: pub.offer_many([item])):
            with pytest.raises(penstock.Invalid, match=f"^log:j: .*{where}.*send None"):
                way(value)
        assert sub.try_recv() is None
        pub.send({"none": None, "id": 2**70, "text": "null nan"})
        assert sub.recv(1) == {"none": None, "id": 2**70, "text": "null nan"}
    with penstock.publish("log:m", codec="msgpack") as pub, penstock.subscribe("log:m") as sub:
        pub.send({"x": NAN, "y": INF})
        got = sub.recv(1)
        assert math.isnan(got["x"])
        assert got["y"] == INF


def test_a_frames_meta_has_no_such_numbers():
    with penstock.publish("frames:f", shape=(2,), dtype="u1") as pub, penstock.subscribe("frames:f") as sub:
        with pytest.raises(penstock.Invalid, match=r"^frames:f: gain.*send None"):
            pub.send(np.zeros(2, "u1"), meta={"gain": NAN})
        pub.send(np.zeros(2, "u1"), meta={"gain": None})
        assert sub.recv(1).meta == {"gain": None}


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_unencodable_values_are_refused_by_name(codec):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with penstock.publish("log:j", codec=codec) as pub:
        for value in (object(), {"a": object()}, deep, "\ud800"):
            with pytest.raises(penstock.Invalid, match=r"^log:j: this value cannot be sent"):
                pub.send(value)


REFUSED = [
    ("u1", [300.7, -1]),
    ("u1", np.array([300.7, -1])),
    ("u1", np.array([1000, -5])),
    ("u1", [1.9]),
    ("i4", [NAN]),
    ("i8", np.array([2.0**63])),
    ("i8", np.array([2**63], "u8")),
    ("u8", np.array([-1])),
    ("u8", [2**64]),
    ("?", [2]),
    ("f4", [1e300]),
    ("f4", np.array([1e300])),
    ("f4", [2**24 + 1]),
    ("f8", [2**53 + 1, 0.5]),
    ("f8", np.array([2**53 + 1])),
    ("f2", [70000.0]),
    ("f8", [1 + 2j]),
    ("f8", np.array([1 + 2j])),
    ("f8", ["5"]),
    ("f8", [None]),
    ("i4", ["5"]),
    ("S2", [b"abc"]),
    ("S2", [5]),
    ("S4", [b"ab\0"]),
    ("U2", ["abc"]),
    ("S4", ["é"]),
    ("V2", [b"a"]),
    ("V2", [b"abc"]),
    ("M8[s]", [np.datetime64(5, "ms")]),
    ("M8[D]", [datetime.datetime(2026, 1, 1, 1)]),
    ("m8[s]", [datetime.timedelta(seconds=0.5)]),
    ("i4", [[1, 2], [3]]),
]


@pytest.mark.parametrize(("dtype", "value"), REFUSED, ids=lambda part: repr(part)[:40])
def test_values_outside_a_dtype_are_refused(dtype, value):
    with (
        penstock.publish("log:a", codec=penstock.array(dtype)) as pub,
        pytest.raises(penstock.Invalid, match=r"^log:a: .*(fit|NUL)"),
    ):
        pub.send(value)
    with (
        penstock.publish("log:s", codec=np.dtype([("n", "i4"), ("x", dtype)])) as pub,
        pytest.raises(penstock.Invalid, match=r"^log:s: .*(fit|NUL|record)"),
    ):
        for one in value:
            pub.send((1, one))
    with (
        penstock.publish("log:n", codec=np.dtype([("p", [("x", dtype, (len(value),))])])) as pub,
        pytest.raises(penstock.Invalid, match=r"^log:n: .*(fit|NUL|record)"),
    ):
        pub.send(((list(value),),))


TAKEN = [
    ("u1", [1, 255.0, True]),
    ("i8", [2**63 - 1, -(2**63)]),
    ("u8", [2**64 - 1]),
    ("f4", [0.1, NAN, INF, 2**24, True]),
    ("f8", [2**53, 2**70]),
    ("c8", [1 + 2j, 3]),
    ("S4", [b"abcd", "ab", b"a\0b"]),
    ("U2", ["é", b"ab"]),
    ("V3", [b"a\0\0"]),
    ("M8[us]", [datetime.datetime(2026, 1, 1), np.datetime64("NaT", "s"), np.datetime64(3, "D"), 5]),
    ("m8[ms]", [datetime.timedelta(seconds=0.5)]),
    (">i2", [1, -2]),
    ("g", [0.5, 2**60]),
]


@pytest.mark.parametrize(("dtype", "value"), TAKEN, ids=lambda part: repr(part)[:40])
def test_fitting_values_are_sent_unchanged(dtype, value):
    expected = np.array(value, dtype)
    with penstock.publish("log:a", codec=penstock.array(dtype)) as pub, penstock.subscribe("log:a") as sub:
        pub.send(value)
        assert str(sub.recv(1).tolist()) == str(expected.tolist())
    with penstock.publish("log:s", codec=np.dtype([("x", dtype)])) as pub, penstock.subscribe("log:s") as sub:
        for one, there in zip(value, expected, strict=True):
            pub.send((one,))
            assert str(sub.recv(1)["x"].tolist()) == str(there.tolist())


def test_random_numbers_are_sent_exactly_or_refused(rng, tally):
    interesting = [
        0,
        1,
        -1,
        127,
        128,
        255,
        256,
        2**15,
        2**16,
        2**31,
        2**32,
        2**53,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
    ]
    types = [np.dtype(name) for name in ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]]
    for _ in range(3000):
        value = rng.choice(interesting) * rng.choice([1, -1, 1.0, 0.5]) + rng.choice([0, 0, 1, -1, 0.25])
        dtype = rng.choice(types)
        codec = codecs.array(dtype.str)
        given = rng.choice([[value], [[value]], np.array([value]) if abs(value) < 2**63 else [value]])
        exact = given[0] if not isinstance(given, np.ndarray) else given[0].item()
        exact = exact[0] if isinstance(exact, list) else exact
        try:
            data = codec.encode(given if np.ndim(given) == 1 else given[0])
        except penstock.Invalid:
            if dtype.kind == "f" and getattr(given, "dtype", dtype).kind == "f" and dtype.itemsize < 8:
                continue  # an array of longer floats is its owner's to round
            if dtype.kind == "f":
                with np.errstate(over="ignore"):
                    assert isinstance(exact, int) or not np.isfinite(np.array(exact).astype(dtype)), (exact, dtype)
            else:
                low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
                assert exact != int(exact) or not low <= exact <= high, (exact, dtype)
            continue
        got = np.frombuffer(data, dtype)[0].item()
        assert got == exact or (dtype.kind == "f" and isinstance(exact, float) and got == dtype.type(exact)), (
            exact,
            dtype,
            got,
        )
    tally("values encoded", 3000)


def test_records_are_matched_by_name(rng):
    dtype = np.dtype([("a", "i4"), ("b", "f8")])
    with penstock.publish("log:s", codec=dtype) as pub, penstock.subscribe("log:s") as sub:
        with pytest.raises(penstock.Invalid, match="fields b, a"):
            pub.send(np.array((1, 2), [("b", "f8"), ("a", "i4")]))
        with pytest.raises(penstock.Invalid, match="not a record"):
            pub.send(5)
        pub.send(np.array([(1, 2), (3, 4)], [("a", "i8"), ("b", "i8")]))
        assert sub.recv(1).tolist() == [(1, 2.0), (3, 4.0)]
        with pytest.raises(penstock.Invalid, match="the field a"):
            pub.send(np.array((2**40, 2), [("a", "i8"), ("b", "i8")]))
    inner = np.dtype([("x", "f4"), ("y", "i2", (2,))], align=True)
    nested = np.dtype([("n", inner, (2,)), ("flag", "?"), ("late", "f8")], align=True)
    with penstock.publish("log:n", codec=nested) as pub, penstock.subscribe("log:n") as sub:
        pub.send(([(0.5, [1, 2]), (1.5, [3, 4])], True, 7.0))
        record = np.zeros((), nested)
        record["n"]["y"][1] = (8, 9)
        pub.send(record)
        assert sub.recv(1)["n"].tolist()[1][0] == 1.5
        assert sub.recv(1)["n"]["y"].tolist() == [[0, 0], [8, 9]]
    assert json.loads(json.dumps(codecs.resolve(nested).spec)) == codecs.resolve(nested).spec
    with pytest.raises(penstock.Invalid, match="no bytes"):
        penstock.publish("log:z", codec=np.dtype([("a", "f8", (0,))]))
