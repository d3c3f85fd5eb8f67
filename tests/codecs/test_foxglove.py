"""Foxglove's schemas by name: the table is that of its SDK, and a class or messages that are not of it are refused."""

import datetime
import json

import msgspec
import pytest

import penstock
from penstock.codecs import foxglove
from penstock.errors import Invalid


class Time(msgspec.Struct):
    """Foxglove's times."""

    sec: int
    nsec: int


class Vector(msgspec.Struct):
    """A Vector3."""

    x: float
    y: float
    z: float


class Turn(Vector):
    """A Quaternion."""

    w: float


class Pose(msgspec.Struct):
    """A Pose."""

    position: Vector
    orientation: Turn


class Scan(msgspec.Struct):
    """A LaserScan, with a field more."""

    timestamp: Time
    frame_id: str
    pose: Pose
    start_angle: float
    end_angle: float
    ranges: list[float]
    intensities: list[int] | None = None
    note: str = ""


def test_the_table_is_that_of_the_sdk():
    """A field that the SDK gets or loses has to be known here."""
    messages = pytest.importorskip("foxglove.messages")
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    kinds = {1: "number", 2: "number", 8: "boolean", 9: "string", 12: "bytes"}
    found = {}
    for cls in (getattr(messages, name) for name in dir(messages)):
        if not hasattr(cls, "get_schema"):
            continue
        for file in descriptor_pb2.FileDescriptorSet.FromString(cls.get_schema().data).file:
            for message in file.message_type if file.package == "foxglove" else ():
                fields = found[message.name] = {}
                for field in message.field:
                    name = field.type_name.rpartition(".")[2]
                    name = {"Timestamp": "Time", "Duration": "Time"}.get(name, name)
                    kind = name if field.type == 11 else kinds.get(field.type, "integer")
                    fields[field.name] = kind + ("[]" if field.label == 3 else "")
    known = {name: fields for name, fields in foxglove.schemas().items() if name != "Time"}
    assert found == known


def test_a_class_with_the_fields_takes_the_name():
    assert penstock.objects(Scan, schema="foxglove.LaserScan").spec["schema"]["name"] == "foxglove.LaserScan"


def changed(**fields):
    """`Scan` with other fields; None leaves one out."""
    there = {name: kind for name, kind in Scan.__annotations__.items() if name != "intensities"} | fields
    given = {**there, "intensities": fields.get("intensities", list[float])}
    return msgspec.defstruct("Other", [(name, kind) for name, kind in given.items() if kind is not None])


WRONG = {
    "missing": ({"ranges": None}, "the field ranges is missing"),
    "a text": ({"frame_id": int}, "frame_id must be text"),
    "a number": ({"start_angle": str}, "start_angle must be a number"),
    "a list": ({"ranges": float}, "ranges must be a list"),
    "of numbers": ({"ranges": list[str]}, r"ranges\[\] must be a number"),
    "a date": ({"timestamp": datetime.datetime}, "timestamp must be an object of sec, nsec"),
    "inside": ({"pose": msgspec.defstruct("Half", [("position", Vector)])}, "the field pose.orientation is missing"),
    "whole": (
        {"timestamp": msgspec.defstruct("T", [("sec", float), ("nsec", int)])},
        "timestamp.sec must be a whole number",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_class_with_other_fields_is_refused(name):
    fields, said = WRONG[name]
    with pytest.raises(Invalid, match=said):
        penstock.objects(changed(**fields), schema="foxglove.LaserScan")


def test_a_name_that_foxglove_lacks_is_refused():
    with pytest.raises(Invalid, match=r"did you mean foxglove\.LaserScan\?"):
        penstock.objects(Scan, schema="foxglove.LazerScan")
    assert penstock.objects(Scan, schema="robot.LazerScan").kind == "json"


def test_an_export_checks_the_messages(tmp_path):
    """Those of plain JSON by the first one. No file is made."""
    pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")
    from penstock.export.mcap import export_mcap

    archive = penstock.Archive(tmp_path / "archive")
    archive.append("log:a", [{"x": 1, "y": 2.5}], codec="json")
    export_mcap(archive.path, tmp_path / "a.mcap", schemas={"log:a": "foxglove.Vector2"})
    with pytest.raises(Invalid, match=r"log:a is no foxglove\.Vector3: the field z is missing"):
        export_mcap(archive.path, tmp_path / "b.mcap", schemas={"log:a": "foxglove.Vector3"})
    assert not (tmp_path / "b.mcap").exists()
    assert json.loads(archive.read("log:a").column("payload")[0].as_py()) == {"x": 1, "y": 2.5}
