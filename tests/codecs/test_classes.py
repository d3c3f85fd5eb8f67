"""Codecs of a program's own classes: objects go in and come out, programs without the class read plain ones, tables get columns."""

import dataclasses
import datetime
import pickle

import msgspec
import numpy as np
import pytest

import penstock
from penstock import codecs

pytestmark = pytest.mark.usefixtures("tmp_path")


class Pose(msgspec.Struct):
    x: float
    tag: str = "none"


@dataclasses.dataclass
class Order:
    symbol: str
    size: int
    at: datetime.datetime
    legs: list[Pose] = dataclasses.field(default_factory=list)


class Buy(msgspec.Struct, tag="buy"):
    size: int


class Sell(msgspec.Struct, tag="sell"):
    size: int


ORDER = Order("ABC", 7, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), [Pose(1.5)])
KINDS = ["log:c", "ring:c", "sync:c", "pipe:c", "fake:log:c"]


@pytest.mark.parametrize("channel", KINDS)
@pytest.mark.parametrize("codec", [Order, penstock.objects(Order, "msgpack")], ids=["json", "msgpack"])
def test_objects_come_back_as_they_went(channel, codec):
    with penstock.subscribe(channel, codec=codec) as early, penstock.publish(channel, codec=codec) as pub:
        pub.send(ORDER)
        assert early.recv(timeout=1) == ORDER
        assert pub.offer(ORDER) is not None
        assert early.poll() == [ORDER]
        assert pub.codec.own is Order
        assert early.codec.own is Order


def test_the_channel_keeps_the_form_and_no_class():
    with penstock.publish("log:c", codec=Pose) as pub, penstock.subscribe("log:c") as plain:
        assert penstock.codecs.bare(plain.codec.spec) == {"kind": "json"}
        with penstock.subscribe("log:c", codec="json"), penstock.subscribe("log:c", codec=Pose) as own:
            pub.send(Pose(2.0))
            assert plain.recv(timeout=1) == {"x": 2.0, "tag": "none"}
            assert own.recv(timeout=1) == Pose(2.0)
        with pytest.raises(penstock.Mismatch, match="msgpack"):
            penstock.subscribe("log:c", codec=penstock.objects(Pose, "msgpack"))


def test_objects_and_messages_of_another_class_are_refused():
    with penstock.publish("log:c", codec="json") as pub, penstock.subscribe("log:c", codec=Pose) as sub:
        pub.send({"x": "far"})
        pub.send({"x": 1})
        with pytest.raises(penstock.DecodeError, match=r"Expected `float`, got `str` - at `\$.x`"):
            sub.recv(timeout=1)
        assert sub.recv(timeout=1) == Pose(1.0)
        with (
            penstock.publish("log:c", codec=Pose) as typed,
            pytest.raises(penstock.Invalid, match="log:c: this handle carries objects of Pose, not of dict"),
        ):
            typed.send({"x": 1})


def test_nan_is_refused_in_a_class_too():
    with penstock.publish("log:c", codec=Pose) as pub, pytest.raises(penstock.Invalid, match="x is nan"):
        pub.send(Pose(float("nan")))


def test_a_union_of_tagged_classes():
    with penstock.publish("log:c", codec=Buy | Sell) as pub, penstock.subscribe("log:c", codec=Buy | Sell) as sub:
        pub.send(Buy(3))
        pub.send(Sell(4))
        assert sub.poll() == [Buy(3), Sell(4)]
        with pytest.raises(penstock.Invalid, match="Buy"):
            pub.send(Pose(1))


@pytest.mark.parametrize("channel", KINDS)
def test_a_pickled_handle_keeps_its_class(channel):
    if channel.startswith("fake"):
        pytest.skip("a fake channel's handles stay in their process")
    with penstock.publish(channel, codec=Pose) as pub, penstock.subscribe(channel, codec=Pose) as sub:
        again = pub if channel.startswith("ring") else pickle.loads(pickle.dumps(pub))  # a ring has one
        with again, pickle.loads(pickle.dumps(sub)) as other:
            again.send(Pose(3.0))
            if channel.startswith("pipe"):
                found = [message for one in (sub, other) for message in one.poll()]
                assert found == [Pose(3.0)]
            else:
                assert other.recv(timeout=1) == Pose(3.0)


def test_members_and_sockets_carry_classes():
    with penstock.join("sync:m", codec=Pose) as a, penstock.join("sync:m", codec=Pose) as b:
        a.send(Pose(1.0))
        assert b.recv(timeout=1).body == Pose(1.0)
        with pickle.loads(pickle.dumps(b)) as again:
            a.send(Pose(2.0))
            assert again.recv(timeout=1).body == Pose(2.0)
    with penstock.join("pipe:p", role="pair", codec=Pose) as a, penstock.join("pipe:p", role="pair", codec=Pose) as b:
        a.send(Pose(1.0))
        assert b.recv(timeout=1) == Pose(1.0)


@pytest.mark.parametrize(
    "codec",
    ["json", np.dtype([("a", "f8")]), penstock.array("f4", (2, -1)), Pose, penstock.objects(Order, "msgpack")],
    ids=["name", "dtype", "array", "class", "objects"],
)
def test_every_codec_pickles(codec):
    found = pickle.loads(pickle.dumps(codecs.resolve(codec)))
    assert (found.spec, found.own) == (codecs.resolve(codec).spec, codecs.resolve(codec).own)


@dataclasses.dataclass
class Odd:
    image: np.ndarray


class Plain:
    x = 1


@pytest.mark.parametrize("wrong", [Odd, Plain, set, Pose | Plain])
def test_classes_that_are_no_codec(wrong):
    with pytest.raises(penstock.Invalid, match=r"not a codec") as told:
        penstock.publish("log:c", codec=wrong)
    assert "array('|O')" not in str(told.value)
    assert penstock.list_channels() == []


def test_objects_checks_its_arguments():
    with pytest.raises(penstock.Invalid, match="form"):
        penstock.objects(Pose, "yaml")
    with pytest.raises(penstock.Invalid, match="dataclass"):
        penstock.objects(int)


def test_recordings_and_tables_have_columns(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    with penstock.publish("log:c", codec=Order) as pub:
        with archive.record("log:c"):
            for size in range(3):
                pub.send(dataclasses.replace(ORDER, size=size))
        found = archive.read("log:c", decode=True)
    assert found["symbol"].to_pylist() == ["ABC"] * 3
    assert found["size"].to_pylist() == [0, 1, 2]
    assert found["legs"].to_pylist() == [[{"x": 1.5, "tag": "none"}]] * 3


# ---- NumPy's scalars ----


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float16(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
    ],
)
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_numpy_scalars_are_their_equal(codec, value, plain):
    with penstock.publish("log:c", codec=codec) as pub, penstock.subscribe("log:c") as sub:
        pub.send({"a": value, "b": [value]})
        got = sub.recv(timeout=1)
        assert got == {"a": plain, "b": [plain]}
        assert type(got["a"]) is type(plain)


@pytest.mark.parametrize(
    "value",
    [np.array([1, 2]), np.datetime64("2026-01-01"), np.longdouble(1), np.complex128(1j), np.timedelta64(3, "s")],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_values_that_would_change_are_refused(codec, value):
    with penstock.publish("log:c", codec=codec) as pub, pytest.raises(penstock.Invalid, match=r"numpy|NumPy"):
        pub.send({"a": value})


def test_a_numpy_nan_is_no_json():
    with penstock.publish("log:c", codec="json") as pub, pytest.raises(penstock.Invalid, match="a is nan"):
        pub.send({"a": np.float32("nan")})
