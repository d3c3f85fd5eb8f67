"""The content of exported MCAP files: schemas of declared classes, names that other tools know, pictures, and omissions."""

import dataclasses
import datetime
import enum
import json
import uuid
from typing import Any, TypedDict

import jsonschema
import msgspec
import numpy as np
import pytest

import penstock
from penstock.cli import run

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

from mcap.reader import make_reader

from penstock.export import mcap_images
from penstock.export.mcap import export_mcap, import_mcap


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


class Kind(enum.Enum):
    A = "a"
    B = "b"


class Node(msgspec.Struct):
    name: str
    child: "Node | None" = None
    properties: dict[str, int] = {}


class Scan(msgspec.Struct):
    at: datetime.datetime | None
    ranges: list[float]
    corners: tuple[Point, Point]
    data: bytes
    kind: Kind
    number: uuid.UUID
    node: Node
    extra: Any = None


class Left(msgspec.Struct, tag=True):
    x: float


class Right(msgspec.Struct, tag=True):
    why: str


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


class Named(TypedDict):
    x: float
    names: list[str]


@dataclasses.dataclass
class Pose:
    x: float
    tags: list[str] = dataclasses.field(default_factory=list)


NODE = Node("a", Node("b", Node("c")), {"k": 1})
SCAN = Scan(
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    [1, 2.5],
    (Point(1), Point(2, 3)),
    b"\xff",
    Kind.A,
    uuid.UUID(int=7),
    NODE,
)
DECLARED = {
    "struct": (Scan, [SCAN, msgspec.structs.replace(SCAN, at=None, extra=[1, {"a": None}])]),
    "dataclass": (Pose, [Pose(1), Pose(1.5, ["late"])]),
    "typed dict": (Named, [{"x": 1, "names": []}, {"x": 0.5, "names": ["a"], "more": 1}]),
    "recursive": (Node, [NODE]),
    "union": (Left | Right, [Left(1), Right("x")]),
    "array": (Row, [Row(1, "a")]),
}


def exported(archive, tmp_path, **options):
    """topic → (its schema, the messages' bodies)."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.mcap"
    export_mcap(archive.path, path, **options)
    found = {}
    with open(path, "rb") as file:
        for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            found.setdefault(channel.topic, (schema, []))[1].append(message.data)
    return found


def recorded(archive, codec, messages, channel="log:s", clock=None):
    with penstock.publish(penstock.testing.channel(channel, clock=clock), codec=codec) as pub, archive.record(channel):
        for message in messages:
            pub.send(message)
    penstock.remove(channel)


def references(value):
    if isinstance(value, dict):
        return ("$ref" in value) + sum(map(references, value.values()))
    return sum(map(references, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("name", DECLARED)
def test_the_schema_of_a_declared_class_fits_all_messages(name, archive, tmp_path):
    codec, messages = DECLARED[name]
    recorded(archive, codec, messages)
    schema, bodies = exported(archive, tmp_path)["log:s"]
    found = json.loads(schema.data)
    assert schema.encoding == "jsonschema"
    assert schema.name == penstock.codecs.classes.name_of(codec)
    assert references(found) == 0
    assert found["type"] == ("array" if name == "array" else "object")
    assert len(bodies) == len(messages)
    for body in bodies:
        jsonschema.validate(json.loads(body), found)
    if name in ("struct", "dataclass", "typed dict"):
        assert "required" in found
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({}, found)


@pytest.mark.parametrize(
    "messages",
    [
        [{"x": 1}, {"x": 1.5, "new": [1]}, {"x": None}, {}],
        [None, {"x": 1}],
        [1, "a", [1], True, 1.5],
        [[1], ["a"]],
        [{"type": 1, "properties": "x", "$ref": 2}],
    ],
)
def test_a_schema_without_a_class_forbids_nothing(messages, archive, tmp_path):
    recorded(archive, "json", messages)
    schema, bodies = exported(archive, tmp_path)["log:s"]
    found = json.loads(schema.data)
    for body in bodies:
        jsonschema.validate(json.loads(body), found)
    assert (found.get("type") == "object") == all(isinstance(one, dict) for one in messages)


def test_a_channel_keeps_the_class_of_its_first_publication(archive, tmp_path):
    with (
        penstock.publish("log:s", codec=Pose) as pub,
        penstock.subscribe("log:s", codec="json") as plain,
        archive.record("log:s"),
    ):
        with penstock.publish("log:s", codec="json") as other:
            other.send({"x": 1, "tags": []})
        pub.send(Pose(2))
        assert plain.recv(timeout=60) == {"x": 1, "tags": []}
    schema, bodies = exported(archive, tmp_path)["log:s"]
    assert (schema.name, len(bodies)) == ("Pose", 2)


def test_a_class_too_large_for_a_header_is_left_out(archive, tmp_path):
    """A channel of thousands of fields works; its schema forbids nothing."""
    large = msgspec.defstruct("Large", [(f"field_{number * 7919 % 100_003}", float, 0.0) for number in range(1500)])
    recorded(archive, large, [large()])
    schema, _ = exported(archive, tmp_path)["log:s"]
    assert json.loads(schema.data)["properties"] == {}


def test_a_schema_that_other_tools_know_is_named(archive, tmp_path, capfd):
    recorded(archive, penstock.objects(Pose, schema="robot.Pose"), [Pose(1)], "log:a")
    recorded(archive, "json", [{"x": 1}], "log:b")
    recorded(archive, "msgpack", [{"x": 1}], "log:c")
    named = {
        topic: schema and schema.name
        for topic, (schema, _) in exported(archive, tmp_path, schemas={"log:b": "robot.Log"}).items()
    }
    assert named == {"log:a": "robot.Pose", "log:b": "robot.Log", "log:c": None}
    path = tmp_path / "o.mcap"
    assert run(["export", str(archive.path), str(path), "--mcap", "--schema", "log:b=robot.Log"]) == 0
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, path, strict=True)
    assert {topic: schema and schema.name for topic, (schema, _) in exported(again, tmp_path).items()} == named
    for wrong, says in (
        ("log:b", "write CHANNEL=NAME"),
        ("log:z=a.B", "no recording of log:z"),
        ("log:c=a.B", "codec msgpack"),
    ):
        assert run(["export", str(archive.path), str(tmp_path / "p.mcap"), "--mcap", "--schema", wrong]) == 1
        assert says in capfd.readouterr().err
        assert not (tmp_path / "p.mcap").exists()
    for option in (["--schema", "log:b=a.B"], ["--strict"]):
        assert run(["export", str(archive.path), str(tmp_path / "p"), "--csv", *option]) == 1
        assert "is of --mcap" in capfd.readouterr().err
    with pytest.raises(penstock.Invalid, match="only JSON has a schema"):
        penstock.objects(Pose, "msgpack", schema="robot.Pose")


def frames(archive, shape, dtype, count=3, **options):
    with penstock.publish("frames:cam", shape=shape, dtype=dtype) as pub, archive.record("frames:cam", **options):
        for number in range(count):
            pub.send(np.full(shape, number, dtype), meta={"gain": 1} if number == 1 else None)
    penstock.remove("frames:cam")


@pytest.mark.parametrize(
    ("shape", "dtype", "encoding"),
    [
        ((4, 5), "u1", "mono8"),
        ((4, 5, 3), "u1", "rgb8"),
        ((4, 5, 4), "u1", "rgba8"),
        ((4, 5), "<u2", "mono16"),
        ((4, 5), "<f4", "32FC1"),
    ],
)
def test_frames_with_pixels_are_raw_images(shape, dtype, encoding, archive, tmp_path):
    codec = {"kind": "frame", "dtype": np.dtype(dtype).str, "shape": list(shape), "pixels": True}
    assert mcap_images.encoding_of(codec) == encoding
    decode = penstock.codecs.from_spec(mcap_images.image_codec()).decode
    pixels = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    found = decode(mcap_images.encode(pixels, encoding, 5 * 10**9 + 7, "cam"))
    assert (found["width"], found["height"], found["encoding"], found["frame_id"]) == (5, 4, encoding, "cam")
    assert found["step"] * 4 == pixels.nbytes
    frames(archive, shape, dtype, pixels=True)
    told = []
    out = tmp_path / "o.mcap"
    done = export_mcap(archive.path, out, on_skip=told.append)
    assert done.rows == archive.find("frames:cam").messages > 0
    with open(out, "rb") as file:
        rows = [
            (schema.name, channel.message_encoding, decode(message.data))
            for schema, channel, message in make_reader(file).iter_messages()
        ]
    assert {row[:2] for row in rows} == {("foxglove.RawImage", "protobuf")}
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, out)
    assert [m.data for m in again.replay(again.list()[0].id)] == [row[2] for row in rows]


def test_frames_that_are_no_pictures_are_counted(archive, tmp_path, capfd):
    frames(archive, (2, 3, 5, 7), "u1", pixels=True)
    frames(archive, (4, 5), "u1", pixels=False)
    count = [info.messages for info in archive.list()]
    texts = [
        f"frames:cam is left out: {count[0]} frames, whose shape and dtype are not a picture",
        f"frames:cam is left out: {count[1]} frames, recorded without their pixels",
    ]
    assert export_mcap(archive.path, tmp_path / "o.mcap", on_skip=lambda text: None).left_out == tuple(texts)
    assert run(["export", str(archive.path), str(tmp_path / "p.mcap"), "--mcap"]) == 0
    shown = capfd.readouterr().err
    assert all(text in shown for text in texts)
    assert run(["export", str(archive.path), str(tmp_path / "q.mcap"), "--mcap", "--strict"]) == 1
    assert texts[0] in capfd.readouterr().err
    assert not (tmp_path / "q.mcap").exists()


def test_times_before_1970_are_counted_and_left_out(archive, tmp_path):
    archive.append("log:s", [b"a", b"b", b"c"], times_ns=[-1, 0, -(2**63)])
    told = []
    assert export_mcap(archive.path, tmp_path / "o.mcap", on_skip=told.append).rows == 1
    assert told == ["log:s: 2 messages sent before 1970 are left out: MCAP has no such times"]
    with pytest.raises(penstock.Unsupported, match="2 messages sent before 1970"):
        export_mcap(archive.path, tmp_path / "p.mcap", strict=True)
    assert not (tmp_path / "p.mcap").exists()


def test_a_damaged_schema_is_no_schema():
    for wrong in (7, {"name": "a", "json": "é"}, {"name": "a", "json": "AAAA"}, {"json": 5}):
        codec = {"kind": "json", "schema": wrong}
        form = penstock.export.mcap_schemas.form_of(codec)
        assert json.loads(form.schema[1])["properties"] == {}
    for wrong in (7, {}, {"topic": "/a", "encoding": "cdr", "schema": ["a", "b", "é"], "metadata": {}}):
        assert (
            penstock.export.mcap_schemas.form_of({"kind": "bytes", "mcap": wrong}).message_encoding
            == "application/octet-stream"
        )


def test_frames_that_vary_are_images_of_their_own_size(archive, tmp_path):
    sent = [np.full(shape, 7, "u1") for shape in ((4, 5, 3), (1, 2, 1), (2, 2, 2), (0, 5, 3))]
    with (
        penstock.publish("frames:cam", shape=(4, 5, 4), varies=True, header=[("n", "u1")], when_slow="wait") as pub,
        archive.record("frames:cam"),
    ):
        pub.wait_for_readers(1, timeout=60)
        for pixels in sent:
            pub.send(pixels, timeout=60)
    out = tmp_path / "o.mcap"
    done = export_mcap(archive.path, out)
    assert {"1 frames are left out: they are not pictures", "the fields of 3 frames are left out"} <= {
        line.partition(": ")[2] for line in done.left_out
    }
    decode = penstock.codecs.from_spec(mcap_images.image_codec()).decode
    with open(out, "rb") as file:
        found = [decode(message.data) for _, _, message in make_reader(file).iter_messages()]
    assert [(one["height"], one["width"], one["encoding"]) for one in found] == [
        (4, 5, "rgb8"),
        (1, 2, "mono8"),
        (0, 5, "rgb8"),
    ]
