"""ROS 2 bags, made by rosbags: imported with columns, exported again byte for byte, and read by two other readers."""

import random
import shutil
import struct

import pytest

import penstock
from penstock.cli import run
from penstock.errors import Corrupt

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")
pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'penstock[ros2]'")

import bags
from mcap_files import held, read, topic
from mcap_files import write as write_mcap

from penstock.export.mcap import export_mcap, import_mcap
from penstock.export.shown import display_of

POINT = "geometry_msgs/msg/Point"
TOPICS = {"/robot/all": bags.NAME, "/robot/point": POINT}


def messages(rng, count=12):
    """Messages of both topics, with times between."""
    found = []
    for number in range(count):
        found.append(("/robot/all", 1000 + number, bags.message(rng)))
        found.append(("/robot/point", 1000 + number, {"x": float(number), "y": -0.0, "z": rng.random()}))
    return found


def read_bag(folder):
    """(topic, time, data) of each message of a bag, by rosbags."""
    from rosbags.rosbag2 import Reader

    with Reader(folder) as reader:
        return [(one.topic, time_ns, data) for one, time_ns, data in reader.messages()]


@pytest.mark.parametrize("little", [True, False], ids=["little", "big"])
@pytest.mark.parametrize("seed", range(3))
def test_a_bag_goes_there_and_back_byte_for_byte(seed, little, tmp_path):
    """Values, bytes, schemas and metadata are those of the bag, by its own reader, MCAP's and Penstock's."""
    sent = messages(random.Random(seed))
    path = bags.write(tmp_path / "bag", TOPICS, sent, little=little)
    archive = penstock.Archive(tmp_path / "archive")
    done = import_mcap(archive, path, on_skip=lambda text: None)
    assert done.left_out == ("1 metadata record, 'rosbag2'",)
    assert done.opaque == ()
    for name in TOPICS:
        got = [(one.time_ns, one.data) for one in archive.replay(f"log:{name[1:]}")]
        wanted = [(time_ns, value) for to, time_ns, value in sent if to == name]
        assert [time_ns for time_ns, _ in got] == [time_ns for time_ns, _ in wanted]
        assert all(bags.same(one, other) for (_, one), (_, other) in zip(got, wanted, strict=True))
    back = tmp_path / "back.mcap"
    export_mcap(archive.path, back)
    assert read(back) == read(path)
    before = read_bag(tmp_path / "bag")
    shutil.copy(back, path)
    assert sorted(read_bag(tmp_path / "bag")) == sorted(before)


def test_what_was_published_live_is_a_bag(tmp_path):
    """A channel of the codec is exported as CDR with its definition, in a file of ROS 2's profile; MCAP's own ROS 2 reader decodes it."""
    reading = pytest.importorskip("mcap_ros2.reader")
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:point", codec=penstock.ros2msg(POINT)) as pub, archive.record("log:point"):
        pub.send({"x": 1.5, "y": 2.5, "z": 3.5})
    export_mcap(archive.path, tmp_path / "a.mcap")
    (found,) = reading.read_ros2_messages(str(tmp_path / "a.mcap"))
    assert (found.ros_msg.x, found.ros_msg.y, found.ros_msg.z) == (1.5, 2.5, 3.5)
    assert found.schema.name == POINT
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, tmp_path / "a.mcap", strict=True)
    assert again.find("log:point").codec == archive.find("log:point").codec


def test_a_bag_becomes_tables(tmp_path):
    """SQL asks for fields of messages inside messages."""
    duckdb = pytest.importorskip("duckdb")
    archive = penstock.Archive(tmp_path / "archive")
    import_mcap(archive, bags.write(tmp_path / "bag", TOPICS, messages(random.Random(5))), on_skip=lambda text: None)
    everything = archive.read("log:robot/all", decode=True)
    assert len(everything) == 12
    (row,) = duckdb.sql("select count(*), min(header.frame_id), sum(len(two_parts)) from everything").fetchall()
    assert row == (12, "map", 24)
    found = duckdb.from_arrow(archive.read("log:robot/point", decode=True)).aggregate("sum(x)")
    assert found.fetchall() == [(66.0,)]


def test_foxglove_gets_it_as_it_is():
    shown = display_of("log:point", penstock.ros2msg(POINT).spec)
    assert (shown.encoding, shown.schema[:2], shown.convert) == ("cdr", (POINT, "ros2msg"), None)


UNKNOWN = {
    "/hello": (("xcdr9", ("a/B", "ros2msg", b"int32 x\n")), "its encoding 'xcdr9' is unknown here"),
    "/omg": (("cdr", ("a/msg/B", "omgidl", b"module a {}")), "its schema is 'omgidl', and not 'ros2idl' or 'ros2msg'"),
    "/proto": (("protobuf", ("a.B", "protobuf", b"xx")), "its schema has no message 'a.B' that can be read"),
    "/bare": (("cdr", None), "it has no schema"),
    "/wide": (("cdr", ("a/msg/B", "ros2msg", b"wstring w\n")), "wstring"),
    "/odd": (("cdr", ("a/msg/B", "ros2msg", b"\xff\n")), "utf-8"),
    "/half": (("cdr", ("a/msg/B", "ros2msg", b"Other x\n")), "which the definition lacks"),
}


def test_what_is_not_known_stays_bytes_and_is_said(tmp_path, capsys):
    """One line each, and the next export has the same."""
    topics = {name: topic(name, *form) for name, (form, _) in UNKNOWN.items()}
    path = write_mcap(tmp_path / "a.mcap", topics, [(name, 5, b"\0\1\0\0body") for name in topics])
    assert run(["import", str(tmp_path / "archive"), str(path)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "not decoded" in line]
    assert len(lines) == len(UNKNOWN)
    for name, (_, why) in UNKNOWN.items():
        (line,) = [line for line in lines if repr(name) in line]
        assert why in line
    archive = penstock.Archive(tmp_path / "archive")
    assert {info.codec["kind"] for info in archive.list()} == {"bytes"}
    export_mcap(archive.path, tmp_path / "b.mcap")
    assert sorted(map(repr, read(tmp_path / "b.mcap"))) == sorted(map(repr, read(path)))


@pytest.mark.parametrize("seed", range(6))
def test_a_bag_that_was_cut_is_refused_whole(seed, tmp_path):
    """One line, and the archive is as before; what is whole can be recovered, and decodes."""
    rng = random.Random(seed)
    path = bags.write(tmp_path / "bag", TOPICS, messages(rng))
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) // 2, len(data) - 8)])
    archive = penstock.Archive(tmp_path / "archive")
    with pytest.raises(Corrupt) as found:
        import_mcap(archive, path, on_skip=lambda text: None)
    assert "\n" not in str(found.value)
    assert archive.list() == []
    import_mcap(archive, path, recover=True, on_skip=lambda text: None)
    for info in archive.list():
        assert all(isinstance(one.data, dict) for one in archive.replay(info.id))


def test_a_message_that_is_damaged_costs_its_own_row(tmp_path):
    topics = {"/p": topic("/p", "cdr", (POINT, "ros2msg", b"float64 x\nfloat64 y\nfloat64 z\n"))}
    good = b"\0\1\0\0" + struct.pack("<3d", 1, 2, 3)
    path = write_mcap(tmp_path / "a.mcap", topics, [("/p", at, one) for at, one in enumerate([good, good[:-1], good])])
    archive = penstock.Archive(tmp_path / "archive")
    import_mcap(archive, path)
    rows = archive.read("log:p", decode=True).to_pylist()
    assert [row["x"] for row in rows] == [1.0, None, 1.0]
    assert [bool(row["decode_error"]) for row in rows] == [False, True, False]
    assert [one for _, one in held(archive)["log:p"]] == [good, good[:-1], good]
