"""Protobuf messages as a codec: they come back as they went, and their description is enough to read and to tabulate them."""

import pickle
import subprocess
import sys

import pytest

import penstock
from penstock import codecs
from penstock.codecs import protobufs

pytest.importorskip("google.protobuf")

from google.protobuf import timestamp_pb2
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
found = archive.read("log:c", decode=True)
assert found.num_rows == 1
print(found["decode_error"][0])
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
    assert found["at"].to_pylist() == [PLAIN["at"], None]
    assert found["raw"].to_pylist() == [b"\x00\xff", b""]
    assert found["ticks"].to_pylist() == [2**64 - 1, 0]
    assert found["gains"].to_pylist() == ['{"p":2.0}', "{}"]
    assert found["decode_error"].null_count == 2


def empty(x):
    return {"x": x, "ticks": 0, "raw": b"", "mode": "IDLE", "path": [], "at": None, "gains": {}, "took": None}
