"""The codec of ROS 2: messages of every type there and back, live, as columns; what it refuses."""

import contextlib
import json
import pickle
import random
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

import penstock
from penstock import codecs
from penstock.cli import run
from penstock.codecs import packing, ros2
from penstock.errors import DecodeError, Invalid

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'penstock[ros2]'")

import bags

POINT = "geometry_msgs/msg/Point"
EVERYTHING = penstock.ros2msg(bags.NAME, bags.TEXT)


def foreign(value, *, little=True):
    """A message's bytes, as rosbags writes them."""
    types = bags.store()
    return bytes(types.serialize_cdr(bags.built(types, bags.NAME, value), bags.NAME, little_endian=little))


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_those_of_rosbags_both_ways(seed):
    """The same bytes, and the same values of either byte order."""
    message = bags.message(random.Random(seed))
    assert EVERYTHING.encode(message) == foreign(message)
    assert bags.same(EVERYTHING.decode(EVERYTHING.encode(message)), message)
    assert bags.same(EVERYTHING.decode(foreign(message, little=False)), message)


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_those_of_mcaps_own_decoder(seed):
    """Its `char` has a sign, which ROS 2's has not."""
    mcap_ros2 = pytest.importorskip("mcap_ros2.decoder")
    from mcap.records import Schema

    message = bags.message(random.Random(seed))
    schema = Schema(id=1, name=bags.NAME, encoding="ros2msg", data=ros2.definition_of(EVERYTHING.spec).encode())
    decoder = mcap_ros2.DecoderFactory().decoder_for("cdr", schema)
    found = decoder(EVERYTHING.encode(message))

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list) else value

    def theirs(value):
        if hasattr(value, "__slots__") and not isinstance(value, str | bytes | int | float):
            return {name: theirs(getattr(value, name)) for name in type(value).__slots__}
        return [theirs(one) for one in value] if isinstance(value, list | tuple | bytes) else value

    got, wanted = theirs(found), plain(message)
    signed = {name: np.array(value, "u1").view("i1").tolist() for name, value in wanted.items() if "char" in name}
    assert got == wanted | signed


def test_objects_with_the_fields_are_sent_too():
    point = SimpleNamespace(x=1.0, y=2.0, z=np.float64(3.0))
    codec = penstock.ros2msg(POINT)
    assert codec.decode(codec.encode(point)) == {"x": 1.0, "y": 2.0, "z": 3.0}


def test_it_is_carried_live_and_read_without_options():
    """The channel keeps the definition; pickles keep the codec."""
    codec = penstock.ros2msg("sensor_msgs/msg/LaserScan")
    with (
        penstock.publish("log:scan", codec=codec) as pub,
        penstock.subscribe("log:scan") as sub,
        penstock.subscribe("log:scan", codec=pickle.loads(pickle.dumps(codec))),
    ):
        scan = dict.fromkeys(
            ("angle_min", "angle_max", "angle_increment", "time_increment", "scan_time", "range_min"), 0.5
        )
        scan |= {"header": {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}, "range_max": 10.0}
        pub.send(scan | {"ranges": [1.0, 2.0], "intensities": np.zeros(0, "f4")})
        got = sub.recv(timeout=60)
    assert got["header"] == scan["header"]
    assert got["ranges"].dtype == np.float32
    assert got["ranges"].tolist() == [1.0, 2.0]
    got["ranges"][0] = 7  # an array of its own


def test_another_definition_is_another_codec():
    one, other = (penstock.ros2msg("a/msg/B", text) for text in ("float64 x\n", "# metres\nfloat64   x  # east\n"))
    assert one.spec == other.spec
    with penstock.publish("log:b", codec=one), pytest.raises(penstock.Mismatch):
        penstock.subscribe("log:b", codec=penstock.ros2msg("a/msg/B", "float32 x\n"))


WRONG = {
    "missing": ({"x": 1.0, "y": 2.0}, "z is missing"),
    "unknown": ({"x": 1.0, "y": 2.0, "z": 3.0, "w": 4.0}, "has no field w"),
    "text": ({"x": "1", "y": 2.0, "z": 3.0}, "x: "),
    "array": ({"x": [1.0], "y": 2.0, "z": 3.0}, "x is an array of shape"),
    "none": (None, "NoneType is no geometry_msgs/msg/Point"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_message_that_does_not_fit_is_refused(name):
    value, said = WRONG[name]
    with pytest.raises(Invalid, match=said):
        penstock.ros2msg(POINT).encode(value)


FIELDS = {
    "one_uint8": 256,
    "one_int8": -129,
    "one_int64": 2**63,
    "one_int32": 1.5,
    "one_float32": 1e39,
    "one_bool": 2,
    "one_byte": -1,
    "three_float64": [1.0, 2.0],
    "few_int16": [1, 2, 3, 4, 5],
    "many_uint16": [-1],
    "many_int32": np.zeros((2, 2), "i4"),
    "text": b"bytes",
    "short_text": "nine bytes",
    "two_texts": ["one"],
    "short_texts": ["a"] * 4,
    "few_parts": [{}, {}, {}],
    "parts": {"flag": 1},
    "header": {"stamp": {"sec": 1.5, "nanosec": 0}, "frame_id": ""},
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_does_not_fit_is_named(field):
    """Nothing is cut, rounded or filled up."""
    message = bags.message(random.Random(1)) | {field: FIELDS[field]}
    with pytest.raises(Invalid, match=field):
        EVERYTHING.encode(message)


def test_any_cut_of_a_message_is_an_error():
    """One line each. A message without its last padding is whole."""
    data = EVERYTHING.encode(bags.message(random.Random(3)))
    for cut in range(len(data)):
        with pytest.raises(DecodeError) as found:
            EVERYTHING.decode(data[:cut])
        assert "\n" not in str(found.value)


def test_damage_gives_a_message_or_an_error():
    random_ = random.Random(4)
    data = EVERYTHING.encode(bags.message(random_))
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(random_.randint(1, 4)):
            broken[random_.randrange(len(broken))] = random_.randrange(256)
        with contextlib.suppress(DecodeError):
            assert isinstance(EVERYTHING.decode(bytes(broken)), dict)


DEFINITIONS = {
    "wstring w\n": "wstring",
    "Other x\n": "which the definition lacks",
    "no type\n": "lacks",
    "float64\n": "none of ROS 2's",
    "string[100000] x\n": "1,000 at most",
    "B[] x\n": "holds itself",
    "uint8 x\nuint8 x\n": "none of ROS 2's",
}


@pytest.mark.parametrize("text", DEFINITIONS)
def test_a_definition_that_cannot_be_read_is_refused(text):
    with pytest.raises(Invalid, match=DEFINITIONS[text]) as found:
        penstock.ros2msg("a/msg/B", text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("message", ["Point", "geometry_msgs/msg/None", ""])
def test_an_unknown_name_is_refused(message):
    with pytest.raises(Invalid, match="has no message"):
        penstock.ros2msg(message)


@pytest.mark.parametrize("change", [{"definition": "AAAA"}, {"definition": None}, {"message": None}])
def test_a_damaged_description_is_refused(change):
    with pytest.raises(Invalid):
        codecs.from_spec(EVERYTHING.spec | change)


def test_a_description_of_nonsense_decodes_nothing():
    codec = codecs.from_spec({"kind": "ros2", "message": "a/msg/B", "definition": packing.pack(b"{}")})
    with pytest.raises(DecodeError, match="none of ROS 2's"):
        codec.decode(b"\0\1\0\0")


def test_columns_are_declared_and_hold_every_value(tmp_path):
    """The table's types are those of the definition, and its values those of the messages."""
    sent = [bags.message(random.Random(seed)) for seed in range(8)]
    archive = penstock.Archive(tmp_path)
    archive.append("log:all", sent, codec=EVERYTHING)
    archive.append("log:bad", [b"\0\1\0\0"], codec=EVERYTHING, encoded=True)
    table = archive.read("log:all", decode=True)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["one_uint64"] == "decimal128(20, 0)"
    assert kinds["many_uint32"] == "list<item: int64>"
    assert kinds["many_uint8"] == "binary"
    assert kinds["part"] == "struct<flag: int16, x: double, name: string, steps: list<item: int16>>"
    assert kinds["header"] == "struct<stamp: struct<sec: int32, nanosec: int64>, frame_id: string>"

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.tobytes() if value.dtype == np.uint8 else value.tolist()
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()} or "{}"
        return [plain(one) for one in value] if isinstance(value, list) else value

    for row, message in zip(table.to_pylist(), sent, strict=True):
        assert row.get("_rescued") is None
        for name, value in message.items():
            wanted = plain(value)
            got = (
                [int(one) for one in row[name]] if name.endswith("_uint64") and isinstance(wanted, list) else row[name]
            )
            assert (int(got) if isinstance(got, Decimal) else got) == wanted, name
    (bad,) = archive.read("log:bad", decode=True).to_pylist()
    assert bad["decode_error"]


def test_sub_prints_it_as_json(capsys):
    with penstock.publish("log:point", codec=penstock.ros2msg("geometry_msgs/msg/Polygon")) as pub:
        pub.send({"points": [{"x": 1.0, "y": 2.0, "z": 0.0}]})
        assert run(["sub", "log:point", "--limit", "1", "--last", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == {"points": [{"x": 1.0, "y": 2.0, "z": 0.0}]}
