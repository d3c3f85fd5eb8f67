"""Protobuf messages as a codec: they come back as they went, and their description is enough to read and to tabulate them."""

import datetime
import json
import pickle
import subprocess
import sys

import pytest

import penstock
from penstock import codecs
from penstock.codecs import protobufs

pytest.importorskip("google.protobuf")

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from poses import message_class

Pose = message_class()
PLAIN = {
    "x": 1.5,
    "ticks": 2**64 - 1,
    "raw": b"\x00\xff",
    "mode": "RUN",
    "path": [0.5, 0.25],
    "at": "2026-01-02T03:04:05.000000006Z",
    "gains": {"p": 2.0},
    "took": None,
}


def pose():
    made = Pose(x=1.5, ticks=2**64 - 1, raw=b"\x00\xff", mode=1, path=[0.5, 0.25], gains={"p": 2.0})
    made.at.FromJsonString(PLAIN["at"])
    return made


@pytest.mark.parametrize("channel", ["log:c", "ring:c", "sync:c", "pipe:c"])
def test_messages_come_back_as_they_went(channel):
    with penstock.subscribe(channel, codec=Pose) as sub, penstock.publish(channel, codec=Pose) as pub:
        pub.send(pose())
        got = sub.recv(timeout=1)
        assert type(got) is Pose
        assert got == pose()


def test_a_program_without_the_class_reads_dictionaries():
    with penstock.publish("log:c", codec=Pose) as pub, penstock.subscribe("log:c") as sub:
        pub.send(pose())
        assert sub.recv(timeout=1) == PLAIN
        with penstock.publish("log:c") as other:  # any class of that name
            other.send(Pose(x=3))
            assert sub.recv(timeout=1)["x"] == 3
            with pytest.raises(penstock.Invalid, match=r"carries robot\.Pose, not dict"):
                other.send({"x": 1})


def test_a_class_with_more_fields_is_the_same_message():
    with penstock.publish("log:c", codec=Pose) as pub:
        with penstock.subscribe("log:c", codec=message_class(["note"])) as sub:
            pub.send(Pose(x=2))
            assert (sub.recv(timeout=1).x, sub.codec.spec) == (2, pub.codec.spec)
        with pytest.raises(penstock.Mismatch, match=r"robot\.Pose, not google\.protobuf\.Timestamp"):
            penstock.subscribe("log:c", codec=timestamp_pb2.Timestamp)
        with pytest.raises(penstock.Invalid, match="Timestamp"):
            pub.send(timestamp_pb2.Timestamp())


def test_damaged_bytes_raise_a_decode_error():
    with penstock.subscribe("log:c", codec=Pose) as sub:
        penstock.publish("log:c", codec=Pose).close()
        with pytest.raises(penstock.DecodeError):
            sub.codec.decode(b"\xff\xff\xff")
    with pytest.raises(penstock.DecodeError):
        codecs.from_spec(protobufs.spec(Pose)).decode(b"\xff\xff\xff")


@pytest.mark.parametrize("files", ["", "AAAA", "eJwDAAAAAAE=", protobufs.described("robot.Pose", b"\xff")["files"]])
def test_a_damaged_description(files):
    with pytest.raises(penstock.Invalid, match="damaged codec description"):
        codecs.from_spec({"kind": "protobuf", "message": "robot.Pose", "files": files})
    with pytest.raises(penstock.Invalid, match="damaged codec description"):
        codecs.from_spec(protobufs.spec(Pose) | {"message": "robot.Nose"})


def test_without_the_package_reading_says_what_to_install(tmp_path):
    """In a process of its own, which has never imported protobuf."""
    code = """
import sys
sys.modules["google.protobuf"] = None
import penstock
assert [status.codec for status in penstock.list_channels()] == ["protobuf"]
archive = penstock.Archive(sys.argv[1])
with archive.record("log:c", start="earliest"):
    pass
try:
    archive.read("log:c", decode=True)
except penstock.MissingPackage as error:
    print(error)
with penstock.subscribe("log:c", start="earliest") as sub:
    try:
        sub.recv(timeout=1)
    except penstock.DecodeError as error:
        print(error)
"""
    with penstock.publish("log:c", codec=Pose) as pub:
        pub.send(pose())
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=False
        )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install 'penstock[protobuf]'" in line for line in lines)


def test_it_pickles():
    codec = codecs.resolve(timestamp_pb2.Timestamp)
    assert pickle.loads(pickle.dumps(codec)).own is timestamp_pb2.Timestamp


def test_recordings_have_columns(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    with penstock.publish("log:c", codec=Pose) as pub:
        with archive.record("log:c"):
            pub.send(pose())
            pub.send(Pose(x=2))
        found = archive.read("log:c", decode=True)
        assert [message.data for message in archive.replay("log:c")] == [PLAIN, empty(2.0)]
    assert found["x"].to_pylist() == [1.5, 2.0]
    assert found["mode"].to_pylist() == ["RUN", "IDLE"]
    assert found["path"].to_pylist() == [[0.5, 0.25], []]
    moment = datetime.datetime.fromisoformat(f"{PLAIN['at'][:26]}+00:00")
    assert found["at"].to_pylist() == [moment, None], "a column's times have no nanoseconds"
    assert found["_rescued"].to_pylist() == [json.dumps({"at": PLAIN["at"]}, separators=(",", ":")), None]
    assert found["raw"].to_pylist() == [b"\x00\xff", b""]
    assert found["ticks"].to_pylist() == [2**64 - 1, 0]
    assert found["gains"].to_pylist() == [[("p", 2.0)], []]
    assert found["decode_error"].null_count == 2


def tabulated(archive_path, cls, *payloads):
    """Payloads of a class as rows."""
    archive = penstock.Archive(archive_path)
    archive.append("log:c", payloads, codec=cls, encoded=True)
    return archive.read("log:c", decode=True).to_pylist()


def test_fields_that_a_description_lacks_are_rescued(tmp_path):
    """A sender with a newer class: nothing is left out in silence, also inside other messages and maps."""
    more = Pose(x=1.5).SerializeToString()
    nested = b"\x42\x06" + b"\x08\x01" + b"\x3a\x02\x08\x05"  # took: {seconds: 1, 7: bytes}
    plain, top, twice, inside = tabulated(
        tmp_path / "a",
        Pose,
        more,
        more + b"\xa2\x01\x02hi",
        more + b"\xa0\x01\x05\xa0\x01\x06",
        Pose(x=1.5).SerializeToString() + nested,
    )
    assert [row["_rescued"] for row in (plain, top, twice, inside)] == [
        None,
        '{"20":"aGk="}',
        '{"20":[5,6]}',
        '{"took.7":"CAU="}',
    ]
    assert {row["x"] for row in (plain, top, twice, inside)} == {1.5}
    assert all(row["decode_error"] is None for row in (plain, top, twice, inside))


def test_an_enumerator_without_a_name_is_rescued(tmp_path):
    known, new = tabulated(tmp_path / "a", Pose, Pose(mode=1).SerializeToString(), b"\x20\x07")
    assert (known["mode"], known["_rescued"]) == ("RUN", None)
    assert (new["mode"], new["_rescued"], new["decode_error"]) == (None, '{"mode":7}', None)


def holder():
    """A message with fields that any message fits in."""
    file = descriptor_pb2.FileDescriptorProto(name="h.proto", package="h", syntax="proto3")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, struct_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    made = file.message_type.add(name="Holder")
    for number, (name, kind) in enumerate([("any", "Any"), ("value", "Value")], 1):
        made.field.add(name=name, number=number, type=11, type_name=f".google.protobuf.{kind}", label=1)
    pool = descriptor_pool.DescriptorPool()
    for one in (any_pb2, struct_pb2, duration_pb2):
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("h.Holder"))


def test_an_any_of_another_program_costs_no_row(tmp_path):
    """What a process has loaded changes no column: Duration is described with the channel, Timestamp is not, and this process knows both."""
    known, foreign, odd = holder()(), holder()(), holder()()
    known.any.Pack(duration_pb2.Duration(seconds=3))
    foreign.any.Pack(timestamp_pb2.Timestamp(seconds=3))
    odd.value.number_value = float("nan")
    rows = tabulated(tmp_path / "a", holder(), *(one.SerializeToString() for one in (known, foreign, odd)))
    assert [row["decode_error"] for row in rows] == [None] * 3
    url = "type.googleapis.com/google.protobuf"
    assert json.loads(rows[0]["any"]) == {"@type": f"{url}.Duration", "value": "3s"}
    assert json.loads(rows[1]["any"]) == {"@type": f"{url}.Timestamp", "value": "CAM="}
    assert json.loads(rows[2]["value"]) == {"@type": "google.protobuf.Value", "value": "EQAAAAAAAPh/"}
    said = [message.data for message in penstock.Archive(tmp_path / "a").replay("log:c")]
    assert said[1] == {"any": {"@type": f"{url}.Timestamp", "value": "CAM="}, "value": None}


def empty(x):
    return {"x": x, "ticks": 0, "raw": b"", "mode": "IDLE", "path": [], "at": None, "gains": {}, "took": None}
