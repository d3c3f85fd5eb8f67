"""MCAP files: read by MCAP's own reader, and back into an archive with the same messages and times."""

import json
import struct

import numpy as np
import pytest
from conftest import LONG

import penstock
from penstock.cli import run
from penstock.cli.channels.publishing import npz_records
from penstock.export import mcap_schemas

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

import itertools

from mcap.reader import make_reader
from mcap.writer import Writer

from penstock.export.mcap import export_mcap, import_mcap
from penstock.export.mcap_schemas import schema_name

SECOND = 10**9
ROWS = None if LONG else 1000  # of each stream of the drive
BEGAN = 1_769_860_800 * SECOND
RECORD = np.dtype([("t", "f8"), ("gyro", "<f4", (3,)), ("ok", "?"), ("name", "S4"), ("at", [("x", "i2"), ("y", "u8")])])


@pytest.fixture
def filled(archive):
    """Channels of every codec, with messages in turns."""
    clock = penstock.testing.ManualClock(BEGAN)
    with (
        penstock.publish(penstock.testing.channel("log:robot/json", clock=clock), codec="json") as as_json,
        penstock.publish(penstock.testing.channel("log:pack", clock=clock), codec="msgpack") as pack,
        penstock.publish(penstock.testing.channel("ring:record", clock=clock), codec=RECORD) as record,
        penstock.publish(
            penstock.testing.channel("log:array", clock=clock), codec=penstock.array("<i4", (-1, 2))
        ) as array,
        penstock.publish(penstock.testing.channel("log:bytes", clock=clock)) as plain,
        penstock.publish(penstock.testing.channel("sync:lab", clock=clock), codec="json") as lab,
        archive.record(["log:robot/json", "log:pack", "ring:record", "log:array", "log:bytes", "sync:lab"]),
    ):
        for number in range(20):
            as_json.send({"n": number, "deep": {"list": [1.5]}, "none": None})
            pack.send([number, b"\xff"])
            record.send((number, (1, 2, np.nan), number % 2, b"ab", (-number, 2**63)))
            array.send(np.full((number, 2), number, "<i4"))
            plain.send(b"\x00\xff%d" % number)
            lab.send({"from": "lab"})
            clock.now_ns += SECOND
    return archive


def read(path):
    """(schema, channel, message) of each, by MCAP's reader."""
    with open(path, "rb") as file:
        return list(make_reader(file, validate_crcs=True).iter_messages())


def raw(archive, channel):
    return [(m.data, m.time_ns) for m in archive.replay(channel, decode=False)]


def unpacked(definition, body):
    """A ROS 1 message of fixed fields, read by its definition alone."""
    kinds = {
        "float64": "d",
        "float32": "f",
        "bool": "?",
        "uint8": "B",
        "int16": "h",
        "uint64": "Q",
        "int64": "q",
        "uint32": "I",
    }
    found, at = {}, 0
    for line in definition.splitlines():
        kind, name = line.split()
        kind, _, count = kind.rstrip("]").partition("[")
        form = f"<{int(count or 1)}{kinds[kind]}"
        values = struct.unpack_from(form, body, at)
        at += struct.calcsize(form)
        found[name] = values if count else values[0]
    assert at == len(body)
    return found


def test_a_file_has_all_messages_in_the_order_of_their_times(filled, tmp_path):
    out = tmp_path / "out.mcap"
    done = export_mcap(filled.path, out)
    assert {one.stream: one.rows for one in done.streams} == {info.channel: 20 for info in filled.list()}
    found = read(out)
    assert [message.log_time for _, _, message in found] == sorted(message.log_time for _, _, message in found)
    for info in filled.list():
        told = [(m.data, m.log_time) for _, channel, m in found if channel.topic == info.channel]
        if info.channel != "sync:lab":
            assert told == raw(filled, info.channel)
        assert [time for _, time in told] == [time for _, time in raw(filled, info.channel)]
    assert {channel.topic: channel.message_encoding for _, channel, _ in found} == {
        "log:robot/json": "json",
        "log:pack": "msgpack",
        "ring:record": "ros1",
        "log:array": "x-penstock-array",
        "log:bytes": "application/octet-stream",
        "sync:lab": "json",
    }
    with open(out, "rb") as file:
        summary = make_reader(file).get_summary()
    assert summary.statistics.message_count == 120
    assert (summary.statistics.message_start_time, summary.statistics.message_end_time) == (BEGAN, BEGAN + 19 * SECOND)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_schemas_say_what_messages_are(filled, tmp_path):
    export_mcap(filled.path, tmp_path / "out.mcap")
    schemas = {channel.topic: (schema, message) for schema, channel, message in read(tmp_path / "out.mcap")}
    schema, _ = schemas["log:robot/json"]
    assert (schema.name, schema.encoding) == (schema_name("log:robot/json", schema.data), "jsonschema")
    assert json.loads(schema.data) == {"type": "object", "properties": {}, "additionalProperties": True}
    schema, last = schemas["ring:record"]
    assert schema.encoding == "ros1msg"
    values = unpacked(schema.data.decode(), last.data)
    assert values["t"] == 19.0
    assert values["gyro"][:2] == (1.0, 2.0)
    assert np.isnan(values["gyro"][2])
    assert (values["ok"], values["name"], values["at_x"], values["at_y"]) == (True, tuple(b"ab\0\0"), -19, 2**63)
    assert json.loads(schemas["sync:lab"][1].data) == {"from": "lab"}  # without its envelope
    assert schemas["log:bytes"][0] is None


def test_an_import_gives_the_same_messages(filled, tmp_path):
    export_mcap(filled.path, tmp_path / "out.mcap")
    again = penstock.Archive(tmp_path / "again")
    done = import_mcap(again, tmp_path / "out.mcap")
    assert done.rows == 120
    for channel in ("log:robot/json", "log:pack", "ring:record", "log:array", "log:bytes"):
        assert again.find(channel).codec == filled.find(channel).codec
        assert raw(again, channel) == raw(filled, channel)
    (lab,) = [one.channel for one in done.renamed]  # a queue's own form is not kept
    assert lab.startswith("log:sync_lab-")
    assert [message.data for message in again.replay(lab)] == [{"from": "lab"}] * 20
    assert again.verify() == []
    assert export_mcap(again.path, tmp_path / "again.mcap").rows == 120


def test_a_part_is_exported_and_imported(filled, tmp_path):
    out, again = tmp_path / "out.mcap", penstock.Archive(tmp_path / "again")
    done = export_mcap(
        filled.path,
        out,
        streams=["robot/*", "pack"],
        since="2026-01-31T12:00:05Z",
        until="2026-01-31T12:00:09Z",
        compression="lz4",
    )
    assert {one.stream: one.rows for one in done.streams} == {"log:robot/json": 5, "log:pack": 5}
    done = import_mcap(again, out, streams=["robot/*"], until="2026-01-31T12:00:06Z")
    assert [(one.stream, one.rows) for one in done.streams] == [("log:robot/json", 2)]
    assert [message.data["n"] for message in again.replay("log:robot/json")] == [5, 6]


def test_files_of_other_programs_are_imported(archive, tmp_path):
    path = tmp_path / "other.mcap"
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start(profile="ros1", library="another")
        schema = writer.register_schema("a/B", "ros1msg", b"float64 x\n")
        topics = {
            "/robot/imu": writer.register_channel("/robot/imu", "json", 0),
            "/tf!": writer.register_channel("/tf!", "ros1", schema),
            "..": writer.register_channel("..", "cdr", 0, {"penstock.channel": "log:mine", "penstock.codec": "{"}),
        }
        for number in range(5):
            writer.add_message(topics["/robot/imu"], BEGAN + number, b'{"n": %d}' % number, BEGAN)
            writer.add_message(topics["/tf!"], BEGAN + number, struct.pack("<d", number), BEGAN)
        writer.add_message(topics[".."], 7, b"?", 7)
        writer.finish()
    done = import_mcap(archive, path)
    assert done.rows == 11
    names = {one.topic: one.channel for one in done.renamed}
    assert [(m.data, m.time_ns) for m in archive.replay("log:robot/imu")] == [({"n": n}, BEGAN + n) for n in range(5)]
    assert [m.data for m in archive.replay(names["/tf!"])] == [struct.pack("<d", number) for number in range(5)]
    assert [(m.data, m.time_ns) for m in archive.replay(names[".."])] == [(b"?", 7)]


def test_frames_are_left_out_and_said(archive, tmp_path, caplog):
    with penstock.publish("frames:cam", shape=(2,)) as cam, penstock.publish("log:a") as pub, archive.record("*"):
        cam.send(np.zeros(2, "u1"))
        pub.send(b"x")
    with (
        archive.record(["frames:cam", "log:a"], start="newest"),
        penstock.publish("frames:cam") as cam,
        penstock.publish("log:a") as pub,
    ):
        cam.send(np.zeros(2, "u1"))
        pub.send(b"x")
    done = export_mcap(archive.path, tmp_path / "o.mcap")
    assert {one.stream for one in done.streams} == {"log:a"}
    assert "frames:cam is left out" in caplog.text


def test_damage_leaves_the_rest_and_is_told(filled, tmp_path):
    path = filled.folders()[1].segments()[0].index
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(penstock.Corrupt, match="recording 2 of log:pack"):
        export_mcap(filled.path, tmp_path / "out.mcap")
    assert len(read(tmp_path / "out.mcap")) == 100
    told = []
    assert export_mcap(filled.path, tmp_path / "o2.mcap", on_skip=told.append).rows == 100
    assert ["left out" in one for one in told] == [True, True]
    assert len([one for one in told if "recording 2" in one]) == 1


def test_wrong_files_and_arguments(filled, tmp_path):
    (tmp_path / "there.mcap").write_bytes(b"something else")
    for wrong, says in (
        (lambda: export_mcap(filled.path, tmp_path / "there.mcap"), "exists: name a new file"),
        (lambda: export_mcap(filled.path, tmp_path / "o.mcap", compression="gzip"), "zstd, lz4, none"),
        (lambda: export_mcap(filled.path, tmp_path / "o.mcap", streams=["nope"]), "no recording of nope"),
        (lambda: import_mcap(filled, tmp_path / "none.mcap"), "there is no file"),
        (lambda: import_mcap(filled, tmp_path / "there.mcap"), "is not an MCAP file: it begins with"),
    ):
        with pytest.raises(penstock.PenstockError, match=says):
            wrong()
    export_mcap(filled.path, tmp_path / "o.mcap")
    data = (tmp_path / "o.mcap").read_bytes()
    for cut in (10, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.mcap").write_bytes(data[:cut])
        with pytest.raises(penstock.PenstockError, match="is damaged at byte"):
            import_mcap(filled, tmp_path / "cut.mcap")


@pytest.fixture
def poses(archive):
    """Channels of a protobuf message with messages, one of them with a header; the messages."""
    message_class = pytest.importorskip("poses", reason="needs protobuf").message_class
    pose = message_class()
    sent = [pose(x=number / 2, mode=number % 2, gains={"p": number}, path=[number]) for number in range(5)]
    for one in sent:
        one.at.FromJsonString("2026-01-02T03:04:05Z")
    with (
        penstock.publish("log:robot/pose", codec=pose) as pub,
        penstock.publish("sync:poses", codec=pose) as lab,
        archive.record(["log:robot/pose", "sync:poses"]),
    ):
        for one in sent:
            pub.send(one)
            lab.send(one)
    return sent


def test_protobuf_messages_have_their_own_schema(poses, archive, tmp_path):
    from poses import decoded

    export_mcap(archive.path, tmp_path / "out.mcap")
    found = read(tmp_path / "out.mcap")
    assert len(found) == 10
    for topic in ("log:robot/pose", "sync:poses"):
        told = [(schema, channel, message) for schema, channel, message in found if channel.topic == topic]
        assert {(s.name, s.encoding, c.message_encoding) for s, c, _ in told} == {
            ("robot.Pose", "protobuf", "protobuf")
        }
        made = [decoded(schema.name, schema.data, message.data) for schema, _, message in told]
        assert [one.SerializeToString(deterministic=True) for one in made] == [
            one.SerializeToString(deterministic=True) for one in poses
        ]
        assert [one.at.ToJsonString() for one in made] == ["2026-01-02T03:04:05Z"] * 5


def test_protobuf_messages_go_there_and_back(poses, archive, tmp_path):
    export_mcap(archive.path, tmp_path / "out.mcap")
    again = penstock.Archive(tmp_path / "again")
    assert import_mcap(again, tmp_path / "out.mcap").rows == 10
    assert again.find("log:robot/pose").codec == archive.find("log:robot/pose").codec
    assert raw(again, "log:robot/pose") == raw(archive, "log:robot/pose")
    (poses_again,) = [info.channel for info in again.list() if "poses" in info.channel]
    assert [m.data["x"] for m in again.replay(poses_again)] == [one.x for one in poses]
    export_mcap(again.path, tmp_path / "again.mcap")
    assert [schema.name for schema, _, _ in read(tmp_path / "again.mcap")] == ["robot.Pose"] * 10


def test_protobuf_of_other_programs_is_imported_as_protobuf(poses, archive, tmp_path):
    from google.protobuf import descriptor_pb2

    with open(tmp_path / "other.mcap", "wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="another")
        files = descriptor_pb2.FileDescriptorSet()
        for one in (*poses[0].DESCRIPTOR.file.dependencies, poses[0].DESCRIPTOR.file):
            one.CopyToProto(files.file.add())
        whole = writer.register_schema("robot.Pose", "protobuf", files.SerializeToString())
        broken = writer.register_schema("robot.Pose", "protobuf", b"\xff")
        for topic, schema in (("/pose", whole), ("/broken", broken)):
            number = writer.register_channel(topic, "protobuf", schema)
            writer.add_message(number, BEGAN, poses[3].SerializeToString(), BEGAN)
        writer.finish()
    into = penstock.Archive(tmp_path / "into")
    assert import_mcap(into, tmp_path / "other.mcap").rows == 2
    (found,) = into.replay("log:pose")
    assert (found.data["x"], found.data["mode"], found.data["gains"]) == (1.5, "RUN", {"p": 3.0})
    (found,) = into.replay("log:broken")
    assert found.data == poses[3].SerializeToString()


@pytest.mark.parametrize("files", ["é", "AAAA", "eJwDAAAAAA", 7, None])
def test_a_damaged_description_of_protobuf_is_no_schema(files):
    found = mcap_schemas.form_of({"kind": "protobuf", "message": "robot.Pose", "files": files}, [])
    assert found == mcap_schemas.Form("x-penstock-protobuf")


@pytest.mark.parametrize(
    ("dtype", "definition"),
    [
        ([("a", "<i8"), ("b", "u1", (2, 3))], "int64 a\nuint8[6] b\n"),
        ([("when", "M8[ns]"), ("span", "m8[s]"), ("z", "c16")], "int64 when\nint64 span\nfloat64[2] z\n"),
        ([("h", "f2"), ("u", "U2"), ("v", "V3")], "uint8[2] h\nuint32[2] u\nuint8[3] v\n"),
        ([("1 ä", "?"), ("p", [("x", "f4")], (2,))], "bool f1__\nfloat32 p_0_x\nfloat32 p_1_x\n"),
        ([("big", ">f8")], None),
        ([("a b", "u1"), ("a_b", "u1")], "uint8 a_b\nuint8 a_b_2\n"),
    ],
)
def test_definitions_of_dtypes(dtype, definition):
    made = np.dtype(dtype)
    spec = penstock.codecs.resolve(made).spec
    found = mcap_schemas.ros_definition(spec["dtype"])
    assert found == definition
    if found is not None:
        unpacked(found, bytes(penstock.codecs.resolve(made).encode(np.zeros((), made))))


def test_the_commands(filled, tmp_path, capfd):
    out = tmp_path / "out.mcap"
    assert run(["export", str(filled.path), str(out), "--mcap", "--stream", "log:*", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert {one["stream"]: one["rows"] for one in told["streams"]} == dict.fromkeys(
        ("log:robot/json", "log:pack", "log:array", "log:bytes"), 20
    )
    assert run(["import", str(tmp_path / "again"), str(out), "--since", "2026-01-31T12:00:10Z"]) == 0
    assert "40 messages of 4 streams" in capfd.readouterr().out
    for arguments, says in (
        (["export", str(filled.path), str(out), "--mcap"], "exists: name a new file"),
        (["export", str(filled.path), str(tmp_path / "x"), "--mcap", "--csv"], "choose one"),
        (["export", str(filled.path), str(tmp_path / "x"), "--mcap", "--processes", "2"], "one process writes"),
        (["import", str(tmp_path / "again"), str(tmp_path / "none")], "there is no file"),
    ):
        assert run(arguments) == 1
        assert says in capfd.readouterr().err


def test_the_real_drive_goes_there_and_back(drive, archive, tmp_path):
    """Every stream of real driving, the first messages of each or all: counts, times and bytes are equal."""
    clock = penstock.testing.ManualClock()
    for path in sorted(drive.glob("*.npz")):
        records, times = (found[:ROWS] for found in npz_records(path))
        name = f"log:drive/{path.stem}"
        with (
            penstock.publish(
                penstock.testing.channel(name, clock=clock), codec=records.dtype, capacity=16 << 20
            ) as pub,
            archive.record(name),
        ):
            for record, seconds in zip(records, times, strict=True):
                clock.now_ns = BEGAN + int(seconds * SECOND)
                pub.send(record)
        penstock.remove(f"log:drive/{path.stem}")
    done = export_mcap(archive.path, tmp_path / "drive.mcap")
    total = sum(info.messages for info in archive.list())
    assert done.rows == total > 5_000
    found = read(tmp_path / "drive.mcap")
    assert len(found) == total
    times = [message.log_time for _, _, message in found]
    assert all(one <= other for one, other in itertools.pairwise(times))
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, tmp_path / "drive.mcap")
    for info in archive.list():
        assert raw(again, info.channel) == raw(archive, info.channel)
        assert [(m.data, m.log_time) for _, c, m in found if c.topic == info.channel] == raw(archive, info.channel)
