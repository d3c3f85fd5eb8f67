"""Codecs: what goes in comes out, the channel remembers which, and nothing is ever unpickled."""

import numpy as np
import pytest

import penstock
from penstock import codecs

POINT = np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8")])


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_objects(codec):
    value = {"a": [1, 2.5, None, True], "ü": "x" * 1000, "nested": {"deep": []}}
    with penstock.publish("log:c", codec=codec) as pub, penstock.subscribe("log:c") as sub:
        for item in (value, None, 0, "text", [1, 2]):
            pub.send(item)
            assert sub.recv(timeout=1) == item
        pub.offer(value)
        assert sub.try_recv() == value
        assert pub.offer_many([1, 2, 3]) == 3
        assert sub.poll() == [1, 2, 3]
        pub.send(5)
        assert next(sub) == 5
        assert sub.codec.kind == codec


def test_structured_dtype():
    record = np.array((1.5, 7, (1, 2, 3), b"abc"), dtype=POINT)
    with penstock.publish("log:c", codec=POINT) as pub, penstock.subscribe("log:c") as sub:
        for item in (record, record[()], (1.5, 7, (1, 2, 3), b"abc")):
            pub.send(item)
            got = sub.recv(timeout=1)
            assert got == record
            assert got.dtype == POINT
        many = np.zeros(5, dtype=POINT)
        many["id"] = range(5)
        pub.send(many)
        assert (sub.recv(timeout=1)["id"] == range(5)).all()


def test_arrays():
    with penstock.publish("log:c", codec=penstock.array("<f4", (2, -1))) as pub, penstock.subscribe("log:c") as sub:
        pub.send([[1, 2, 3], [4, 5, 6]])
        assert sub.recv(timeout=1).tolist() == [[1, 2, 3], [4, 5, 6]]
    with (
        penstock.publish("log:d", codec=penstock.array("f8", (3,))) as pub,
        pytest.raises(penstock.Invalid, match="shape"),
    ):
        pub.send([1, 2])


def test_a_subscriber_learns_the_codec_from_the_channel():
    penstock.publish("log:c", codec=POINT).close()
    with penstock.subscribe("log:c") as sub, penstock.publish("log:c", codec=POINT) as pub:
        pub.send((1, 2, (3, 4, 5), b"x"))
        assert sub.recv(timeout=1)["id"] == 2
    assert penstock.inspect("log:c").codec == "struct"


@pytest.mark.parametrize("wrong", ["pickle", "yaml", object, np.dtype("f8"), {"kind": "nope"}, {"kind": "struct"}, 7])
def test_objects_that_are_no_codec(wrong):
    with pytest.raises(penstock.Invalid):
        penstock.publish("log:c", codec=wrong)
    assert penstock.list_channels() == []


def test_objects_in_dtypes_are_refused():
    with pytest.raises(penstock.Invalid, match="objects"):
        codecs.from_spec({"kind": "array", "dtype": "O", "shape": [-1]})
    with pytest.raises(penstock.Invalid, match="objects"):
        penstock.publish("log:c", codec=np.dtype([("a", "O")]))
    with pytest.raises(penstock.Invalid, match="one dimension"):
        penstock.array("f8", (-1, -1))


def test_a_codec_too_long_for_the_header_is_refused():
    wide = np.dtype([(f"a_rather_long_column_name_{i}", "f8") for i in range(200)])
    with pytest.raises(penstock.Invalid, match="metadata"):
        penstock.publish("log:c", codec=wide)
    assert penstock.list_channels() == []


def test_specs_round_trip():
    for codec in ("bytes", "json", "msgpack", POINT, penstock.array("i2", (4, 4))):
        resolved = codecs.resolve(codec)
        assert codecs.from_metadata(codecs.metadata(resolved), "here").spec == resolved.spec
