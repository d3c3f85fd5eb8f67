"""MCAP files of other programs: what an import makes of every topic, what it lists as left out, and that an export gives it back."""

import json
import struct
from collections import Counter

import numpy as np
import pytest

import penstock
from penstock.cli import run

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

from mcap.reader import make_reader
from mcap.writer import CompressionType, IndexType
from mcap_files import held, read, topic, write

from penstock.export import mcap_names
from penstock.export.mcap import export_mcap, import_mcap
from penstock.export.shown import display_of

BEGAN = 1_769_860_800 * 10**9


ODD_TOPICS = [
    ["/imu", "imu", "//imu", "imu/", "/imu/", "log:imu", "IMU", "/Imu"],
    ["/é", "/è", "/_", "/__", "~/x", "_/x", "/_/x", "/~x"],
    ["/" + "a" * 130 + "x", "/" + "a" * 130 + "y", "/" + "a" * 128, "/" + "a" * 129],
    ["", "/", "/topic", "topic", ".", "..", "/.", "/..", "/../..", " "],
    ["/a b", "/a\tb", "/a\nb", "/a?b", "/a_b", "/a:b", "/a*b"],
    ["/.hidden", "/hidden", "/x/.hidden", "/x/hidden", "/...x", "/x//y", "/x/y"],
    ["/tf-0123456789ab", "tf", "/tf", "/日本", "/中文", "/\U0001f600", "/e\u0301", "/\u00e9"],
]


@pytest.mark.parametrize("topics", ODD_TOPICS, ids=lambda topics: repr(topics[0])[:12])
def test_topics_have_channels_of_their_own_in_any_order(topics, tmp_path):
    """Each topic has one channel, the same in any order and alone, whose name every channel may have; an export gives the topics back."""
    messages = [(one, BEGAN + number, json.dumps([one]).encode()) for number, one in enumerate(topics * 2)]
    whole = write(tmp_path / "whole.mcap", {one: topic(one) for one in topics}, messages)
    back = write(tmp_path / "back.mcap", {one: topic(one) for one in reversed(topics)}, messages)
    found = []
    for number, path in enumerate((whole, back)):
        archive = penstock.Archive(tmp_path / str(number))
        done = import_mcap(archive, path)
        by_channel = {channel: {data for _, data in rows} for channel, rows in held(archive).items()}
        assert all(len(rows) == 1 for rows in by_channel.values())
        names = {json.loads(next(iter(rows)))[0]: channel for channel, rows in by_channel.items()}
        assert set(names) == set(topics)
        plain = {one for one in topics if names[one] == f"log:{one.removeprefix('/')}"}
        assert {one.topic: one.channel for one in done.renamed} == {
            one: names[one] for one in topics if one not in plain
        }
        for channel in by_channel:
            assert not any(part.startswith(".") for part in channel.removeprefix("log:").split("/"))
            with penstock.publish(f"fake:{channel}"):
                pass
            penstock.remove(f"fake:{channel}")
        found.append(names)
        export_mcap(archive.path, tmp_path / f"{number}.mcap")
        assert sorted(read(tmp_path / f"{number}.mcap")) == sorted(read(path))
    assert found[0] == found[1]
    for number, one in enumerate(topics):
        path = write(tmp_path / f"one{number}.mcap", {one: topic(one)}, [(one, 1, b"0")])
        archive = penstock.Archive(tmp_path / f"one{number}")
        import_mcap(archive, path)
        assert list(held(archive)) == [found[0][one]]


def test_a_topic_that_is_also_a_channel_of_penstock_is_another(tmp_path):
    own = {"penstock.channel": "log:imu", "penstock.codec": '{"kind": "json"}'}
    topics = {"foreign": topic("/imu"), "own": topic("log:imu", metadata=own), "renamed": topic("/b", metadata=own)}
    path = write(tmp_path / "a.mcap", topics, [(one, 5, json.dumps(one).encode()) for one in topics])
    archive = penstock.Archive(tmp_path / "a")
    import_mcap(archive, path)
    found = held(archive)
    assert found["log:imu"] == [(5, b'"own"')]
    assert found["log:b"] == [(5, b'"renamed"')]
    assert sorted(map(len, found.values())) == [1, 1, 1]
    export_mcap(archive.path, tmp_path / "b.mcap")
    assert sorted(map(repr, read(tmp_path / "b.mcap"))) == sorted(map(repr, read(path)))


@pytest.mark.parametrize("noted", ["log:.x", "log:..", "nope:x", "fake:log:x", "udp://h:1/2", "frames:x", "x", "log:"])
def test_a_wrong_note_of_a_channel_is_not_believed(noted, tmp_path):
    path = write(tmp_path / "a.mcap", {"t": topic(noted, metadata={"penstock.channel": noted})}, [("t", 5, b"1")])
    archive = penstock.Archive(tmp_path / "a")
    (renamed,) = import_mcap(archive, path).renamed
    assert (renamed.topic, renamed.channel) == (noted, mcap_names.marked(noted))
    assert held(archive) == {renamed.channel: [(5, b"1")]}


CDR = ("sensor_msgs/msg/Imu", "ros2msg", b"float64 x\n================\nMSG: a/B\nint32 y\n")


def test_ros2_goes_there_and_back_with_its_schema(tmp_path):
    """CDR, its schema, the topic and the channel's metadata are the same again, as is a second round."""
    topics = {
        "imu": topic("/imu", "cdr", CDR, {"offered_qos_profiles": "- history: 1\n", "é": "ü"}),
        "empty": topic("/empty", "cdr", ("std_msgs/msg/Empty", "ros2msg", b"")),
        "self": topic("/self", "cbor"),
        "pb": topic("/pb", "protobuf", ("a.B", "protobuf", b"\xff")),
        "none": topic("/none", "", ("", "", b"")),
        "json": topic("/json", "json", ("foxglove.LaserScan", "jsonschema", b'{"type": "object"}')),
        "pack": topic("/pack", "msgpack"),
    }
    messages = [
        (name, BEGAN + number, b"\x00\x01\x00\x00" + struct.pack("<d", number))
        for number, name in enumerate(list(topics) * 3)
    ]
    path = write(tmp_path / "a.mcap", topics, messages)
    for turn in range(2):
        archive = penstock.Archive(tmp_path / f"archive{turn}")
        done = import_mcap(archive, path, strict=True)
        assert (done.left_out, done.renamed, done.unchecked) == ((), (), "")
        again = tmp_path / f"{turn}.mcap"
        export_mcap(archive.path, again, strict=True)
        assert read(again) == read(path)
        path = again


@pytest.mark.parametrize(
    ("encodings", "profile"), [(["cdr"], "ros2"), (["ros1"], "ros1"), (["cdr", "json"], ""), ([], "")]
)
def test_files_of_ros_alone_have_its_profile(encodings, profile, tmp_path):
    """ROS tools refuse a file without it."""
    path = write(
        tmp_path / "a.mcap", {one: topic(f"/{one}", one) for one in encodings}, [(one, 5, b"1") for one in encodings]
    )
    archive = penstock.Archive(tmp_path / "a")
    import_mcap(archive, path)
    export_mcap(archive.path, tmp_path / "b.mcap")
    with open(tmp_path / "b.mcap", "rb") as file:
        assert make_reader(file).get_header().profile == profile


def test_a_topic_is_in_the_order_of_its_times(tmp_path):
    """Three channel numbers, chunks that overlap, times that step back, equal times in the order of the file."""
    times = [7, 3, 3, 9, 1, 8, 2, 2, 5, 0, 6, 4] * 5
    for chunked in (True, False):
        topics = {str(number): topic("/gps", metadata={"host": str(number)}) for number in range(3)}
        messages = [(str(number % 3), BEGAN + time, b"%d" % number) for number, time in enumerate(times)]
        path = write(
            tmp_path / f"{chunked}.mcap", topics, messages, chunk_size=200, use_chunking=chunked, enable_data_crcs=True
        )
        archive = penstock.Archive(tmp_path / str(chunked))
        done = import_mcap(archive, path)
        assert held(archive) == {
            "log:gps": sorted(
                ((BEGAN + time, b"%d" % number) for number, time in enumerate(times)), key=lambda one: one[0]
            )
        }
        assert done.left_out == ("the metadata of 3 channels of '/gps', where they differ",)
        with pytest.raises(penstock.Unsupported, match="metadata of 3 channels"):
            import_mcap(archive, path, strict=True)


def test_a_topic_in_two_forms_is_two_channels(tmp_path):
    one, other = ("a/A", "ros2msg", b"int8 x\n"), ("a/A", "ros2msg", b"int16 x\n")
    topics = {"one": topic("/x", "cdr", one), "other": topic("/x", "cdr", other), "json": topic("/x")}
    path = write(
        tmp_path / "a.mcap", topics, [(name, number, b"%d" % number) for number, name in enumerate(list(topics) * 2)]
    )
    archive = penstock.Archive(tmp_path / "a")
    assert {renamed.topic for renamed in import_mcap(archive, path).renamed} == {"/x"}
    assert sorted(held(archive).values()) == [[(n, b"%d" % n), (n + 3, b"%d" % (n + 3))] for n in range(3)]
    export_mcap(archive.path, tmp_path / "b.mcap")
    assert read(tmp_path / "b.mcap") == read(path)


def test_omissions_are_listed_and_counted(tmp_path, capfd):
    def finish(writer):
        writer.add_attachment(1, 2, "calib.yaml", "text/plain", b"x" * 1234)
        writer.add_attachment(1, 2, "map.png", "image/png", b"y")
        writer.add_metadata("rosbag2", {"a": "b"})

    messages = [
        ("t", 5, b"0"),
        ("t", 6, b"1", 7, 0),
        ("t", 2**63, b"2"),
        ("t", 2**64 - 1, b"3"),
        ("t", 2**63 - 1, b"4", 1, 9),
    ]
    path = write(tmp_path / "a.mcap", {"t": topic("/t"), "idle": topic("/idle")}, messages, finish=finish)
    texts = [
        "2 messages of '/t' with log times of 2^63 nanoseconds or more, beyond the year 2262: a send time has 63 bits",
        "2 publish times: a recording keeps one time, the log time",
        "1 topic without a message, '/idle', with schema and metadata",
        "1 sequence number",
        "2 attachments, 'calib.yaml', 'map.png': 1,235 bytes",
        "1 metadata record, 'rosbag2'",
    ]
    archive = penstock.Archive(tmp_path / "a")
    for wrong in ({}, {"strict": True}):
        with pytest.raises(penstock.Unsupported, match="2 messages of '/t' with log times"):
            import_mcap(archive, path, **wrong)
        assert archive.list() == []
    told = []
    assert import_mcap(archive, path, on_skip=told.append).left_out == tuple(told) == tuple(texts)
    assert held(archive) == {"log:t": [(5, b"0"), (6, b"1"), (2**63 - 1, b"4")]}
    assert import_mcap(penstock.Archive(tmp_path / "b"), path, until=6).left_out == (
        texts[1].replace("2", "1").replace("times:", "time:"),
        texts[2],
        *texts[4:],
    )
    assert run(["import", str(tmp_path / "c"), str(path)]) == 0
    shown = capfd.readouterr().err
    assert all(text in shown for text in texts)
    assert run(["import", str(tmp_path / "c"), str(path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["left_out"] == texts
    assert run(["import", str(tmp_path / "d"), str(path), "--strict"]) == 1
    assert texts[0] in capfd.readouterr().err
    assert not (tmp_path / "d").exists()


def test_topics_are_chosen_by_topic_channel_or_pattern(tmp_path):
    topics = {one: topic(one) for one in ("/a/b", "/a/c", "é")}
    path = write(tmp_path / "a.mcap", topics, [(one, 1, b"1") for one in topics])
    for number, (asked, found) in enumerate(
        [
            ("/a/b", ["log:a/b"]),
            ("a/*", ["log:a/b", "log:a/c"]),
            ("log:a/c", ["log:a/c"]),
            ("é", [mcap_names.marked("é")]),
        ]
    ):
        archive = penstock.Archive(tmp_path / str(number))
        import_mcap(archive, path, streams=[asked])
        assert sorted(held(archive)) == found
    with pytest.raises(penstock.NotFound, match="has no topic /nope: it has '/a/b', '/a/c', 'é'"):
        import_mcap(tmp_path / "none", path, streams=["/nope"])


def test_topics_come_from_the_data_with_any_summary(tmp_path):
    for number, options in enumerate(
        [
            {"repeat_channels": False, "repeat_schemas": False},
            {"use_statistics": False, "use_summary_offsets": False},
            {
                "index_types": IndexType.NONE,
                "repeat_channels": False,
                "repeat_schemas": False,
                "use_statistics": False,
                "use_summary_offsets": False,
            },
            {"use_chunking": False, "enable_data_crcs": True},
            {"compression": CompressionType.LZ4, "enable_crcs": False},
        ]
    ):
        topics = {one: topic(one, "cdr", CDR) for one in ("/a", "/b")}
        path = write(
            tmp_path / f"{number}.mcap", topics, [("/ab"[:1] + "ab"[n % 2], n, b"%d" % n) for n in range(20)], **options
        )
        archive = penstock.Archive(tmp_path / str(number))
        done = import_mcap(archive, path)
        assert {one.stream: one.rows for one in done.streams} == {"log:a": 10, "log:b": 10}
        assert bool(done.unchecked) == ("enable_crcs" in options)


def test_statistics_that_disagree_are_damage(tmp_path):
    def lie(writer):
        writer._Writer__statistics.message_count += 1

    path = write(tmp_path / "a.mcap", {"t": topic("/t")}, [("t", 1, b"1")], finish=lie)
    with pytest.raises(penstock.Corrupt, match="statistics state 2 messages, and it has 1"):
        import_mcap(tmp_path / "a", path)
    assert not (tmp_path / "a").exists()
    done = import_mcap(tmp_path / "a", path, recover=True)
    assert done.rows == 1


def test_an_import_again_appends_in_the_same_channels(tmp_path):
    topics = {one: topic(one) for one in ("/a", "é", "b")}
    path = write(tmp_path / "a.mcap", topics, [(one, 1, b"1") for one in topics])
    archive = penstock.Archive(tmp_path / "a")
    first, second = import_mcap(archive, path), import_mcap(archive, path)
    assert first.overlaps == ()
    assert second.overlaps == tuple(one.stream for one in second.streams)
    assert first.streams == second.streams
    assert Counter(info.channel for info in archive.list()) == dict.fromkeys((one.stream for one in first.streams), 1)
    assert {len(rows) for rows in held(archive).values()} == {2}
    assert archive.verify() == []


def test_an_imported_topic_plays_onto_a_channel_and_back(tmp_path):
    """A schema too long for a channel's header does not hinder playing; one that fits goes along."""
    long = ("a/Long", "ros2msg", b"".join(b"int32 field_%d\n" % (number * 7919 % 100_003) for number in range(2000)))
    path = write(
        tmp_path / "a.mcap",
        {"imu": topic("/imu", "cdr", CDR), "long": topic("/long", "cdr", long)},
        [("imu", 5, b"\x00\x01"), ("long", 6, b"\x00\x02")],
    )
    archive = penstock.Archive(tmp_path / "a")
    import_mcap(archive, path)
    into = penstock.Archive(tmp_path / "b")
    for channel in ("log:imu", "log:long"):
        with into.record("log:played"):
            archive.replay_onto(channel, "log:played", speed=None)
        penstock.remove("log:played")
    export_mcap(into.path, tmp_path / "b.mcap")
    found = {row[5]: row for row in read(tmp_path / "b.mcap")}
    assert [(row[0], row[1]) for _, row in sorted(found.items())] == [
        ("log:played", "cdr"),
        ("log:played", "application/octet-stream"),
    ]
    assert found[b"\x00\x01"][2] == CDR


def test_topics_without_a_message_are_counted(tmp_path):
    topics = {"t": topic("/t"), "latched": topic("/robot_description", "cdr", CDR, {"qos": "latched"})}
    path = write(tmp_path / "a.mcap", topics, [("t", 5, b"0")])
    text = "1 topic without a message, '/robot_description', with schema and metadata"
    assert import_mcap(tmp_path / "a", path).left_out == (text,)
    assert import_mcap(tmp_path / "b", path, streams=["/t"], strict=True).left_out == ()
    with pytest.raises(penstock.Unsupported, match="robot_description"):
        import_mcap(tmp_path / "c", path, strict=True)


@pytest.mark.parametrize("first", [0, 1])
def test_a_sequence_that_is_a_count_is_no_loss(first, tmp_path):
    messages = [(name, n, b"0", n, n + first) for n in range(5) for name in "ab"]
    path = write(tmp_path / "a.mcap", {"a": topic("/a"), "b": topic("/b")}, messages, chunk_size=60)
    assert import_mcap(tmp_path / "a", path, strict=True).rows == 10
    export_mcap(tmp_path / "a", tmp_path / "again.mcap", strict=True)
    with open(tmp_path / "again.mcap", "rb") as file:
        found = [(channel.topic, m.sequence) for _, channel, m in make_reader(file).iter_messages()]
    assert sorted(found) == [(name, n + first) for name in ("/a", "/b") for n in range(5)]
    path = write(tmp_path / "b.mcap", {"a": topic("/a")}, [("a", n, b"0", n, 2 * n) for n in range(5)])
    assert import_mcap(tmp_path / "b", path).left_out == ("4 sequence numbers",)


def test_an_own_export_is_imported_strictly(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    archive.append("log:imu", [{"n": n} for n in range(3)], codec="json")
    for turn in range(2):
        export_mcap(archive.path, tmp_path / f"{turn}.mcap", strict=True)
        archive = penstock.Archive(tmp_path / f"archive{turn}")
        import_mcap(archive, tmp_path / f"{turn}.mcap", strict=True)
    with open(tmp_path / "0.mcap", "rb") as one, open(tmp_path / "1.mcap", "rb") as two:
        assert list(make_reader(one).iter_messages()) == list(make_reader(two).iter_messages())


def test_different_definitions_have_different_names(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    one, two = np.dtype([("id", "<u4")]), np.dtype([("x", "<f8")])
    kinds = {"log:rb/can": one, "log:rb_can": two, "log:rb.can": one, "log:rb-can": two}
    for name, dtype in kinds.items():
        archive.append(name, np.zeros(1, dtype), codec=dtype)
    export_mcap(archive.path, tmp_path / "a.mcap")
    with open(tmp_path / "a.mcap", "rb") as file:
        found = {schema.name: schema.data for schema, _, _ in make_reader(file).iter_messages()}
    assert sorted(found.values()) == [b"float64 x\n", b"uint32 id\n"]
    assert (
        len(
            {
                display_of(name, penstock.codecs.from_spec({"kind": "struct", "dtype": dtype.descr}).spec).schema[0]
                for name, dtype in kinds.items()
            }
        )
        == 2
    )
