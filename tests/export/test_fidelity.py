"""The tables of docs/archives/mcap.md: what an import and an export keep. Each cell is tried, and must be what the page says."""

import contextlib

import msgspec
import numpy as np
import pages
import pytest

import penstock
from penstock import codecs

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")
pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'penstock[ros2]'")

from mcap.reader import make_reader
from mcap_files import held, read, topic, write

from penstock.columns.contract.declared import declared, is_open
from penstock.export.mcap import export_mcap, import_mcap

POINT = "geometry_msgs/msg/Point"
PICTURE = np.arange(6, dtype="u1").reshape(2, 3)
BODY = {"x": 1.0, "y": 2.0, "z": 3.0}
IDL = b"""// a comment
module geometry_msgs { module msg { struct Point { double x; double y; double z; }; }; };
"""


class Point(msgspec.Struct):
    """A class of this program."""

    x: float


def rows_of(first):
    """First cell → the other cells of the page's table that begins with this column."""
    lines = (pages.ROOT / "docs" / "archives" / "mcap.md").read_text().splitlines()
    (begin,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    found = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        found[name] = cells
    return found


def protobuf():
    """A protobuf class, and its FileDescriptorSet."""
    pose = pytest.importorskip("poses", reason="needs protobuf").message_class()
    return pose, codecs.protobufs.description(codecs.resolve(pose).spec)


def topics():
    """First cell of the page → a topic, and a message of it."""
    point = penstock.ros2msg(POINT)
    text = codecs.ros2.definition_of(point.spec).encode()
    pose, description = protobuf()
    return {
        "cdr with ros2msg": ("cdr", (POINT, "ros2msg", b"# a comment\n" + text), point.encode(BODY)),
        "cdr with ros2idl": ("cdr", (POINT, "ros2idl", IDL), point.encode(BODY)),
        "cdr with omgidl, others": ("cdr", ("Point", "omgidl", b"struct Point { double x; };"), point.encode(BODY)),
        "cdr with a wstring": ("cdr", ("a/msg/Wide", "ros2msg", b"wstring w\n"), b"\0\1\0\0\0\0\0\0"),
        "protobuf": ("protobuf", ("robot.Pose", "protobuf", description), pose(x=1.5).SerializeToString()),
        "json with jsonschema": ("json", ("a.B", "jsonschema", b'{"type": "object"}'), b'{"x":  1}'),
        "msgpack": ("msgpack", None, msgspec.msgpack.encode(BODY)),
        "ros1 with ros1msg": ("ros1", ("a/B", "ros1msg", b"float64 x\n"), b"\0" * 8),
        "cbor, others": ("cbor", None, b"\xa0"),
    }


IMPORTED, EXPORTED = rows_of("topic of a file"), rows_of("codec of a channel")


def test_the_pages_tables_have_these_rows():
    assert list(IMPORTED) == list(topics())
    assert list(EXPORTED) == [*channels(), "json of sync:", "json of pipe:", "frames that are pictures"]


@pytest.mark.parametrize("name", IMPORTED)
def test_an_import_keeps_what_the_page_says(name, tmp_path):
    encoding, schema, body = topics()[name]
    path = write(
        tmp_path / "a.mcap",
        {"t": topic("/t", encoding, schema, {"offered_qos_profiles": "- é: 1\n"})},
        [("t", 10 * at, body, 10 * at + 1, at + 1) for at in range(3)],
    )
    archive = penstock.Archive(tmp_path / "archive")
    done = import_mcap(archive, path, on_skip=lambda text: None)
    assert done.left_out == ("3 publish times: a recording keeps one time, the log time",)
    codec = archive.find("log:t").codec
    export_mcap(archive.path, tmp_path / "b.mcap")
    before, after = read(path), read(tmp_path / "b.mcap")

    def kept(part):
        return "same" if [row[part] for row in before] == [row[part] for row in after] else "lost"

    with open(tmp_path / "b.mcap", "rb") as file:
        records = [record for _, _, record in make_reader(file).iter_messages()]
    columns = "by the messages" if is_open(codec) else "declared" if declared(codec) else "none"
    published = "the log time" if [one.publish_time for one in records] == [0, 10, 20] else "another"
    counted = "a count" if [one.sequence for one in records] == [1, 2, 3] else "another"
    assert kept(0) == kept(1) == "same"
    assert [codec["kind"], columns, *map(kept, (5, 2, 3, 4)), published, counted] == IMPORTED[name]
    assert bool(done.opaque) == (codec["kind"] == "bytes")


def channels():
    """First cell of the page → a codec, and a message."""
    pose, _ = protobuf()
    return {
        "penstock.ros2msg": (penstock.ros2msg(POINT), BODY),
        "a protobuf message class": (pose, pose(x=1.5)),
        "a class": (Point, Point(1.5)),
        "json": ("json", BODY),
        "msgpack": ("msgpack", BODY),
        "structured dtype": (np.dtype([("x", "<f8")]), (1.5,)),
        "array": (penstock.array("<f4"), np.arange(3, dtype="<f4")),
        "bytes": ("bytes", b"\0\xff"),
    }


def recorded(name, archive):
    """A recording of three messages of a row of the page, sent at 5, 6 and 7 ns. Its channel."""
    if name in channels():
        codec, message = channels()[name]
        archive.append("log:t", [message] * 3, codec=codec, times_ns=[5, 6, 7])
        return "log:t"
    clock = penstock.testing.ManualClock(5)
    kind, options, message = {
        "json of sync:": ("sync", {"codec": "json"}, BODY),
        "json of pipe:": ("pipe", {"codec": "json"}, BODY),
        "frames that are pictures": ("frames", {"shape": (2, 3), "dtype": "u1", "when_slow": "wait"}, PICTURE),
    }[name]
    with contextlib.ExitStack() as opened:
        pub = opened.enter_context(penstock.publish(penstock.testing.channel(f"{kind}:t", clock=clock), **options))
        if kind == "pipe":
            opened.enter_context(penstock.subscribe("pipe:t"))
        opened.enter_context(archive.record(f"{kind}:t", pixels=True))
        for _ in range(3):
            pub.send(message)
            clock.now_ns += 1
    return f"{kind}:t"


@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_keeps_what_the_page_says(name, tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    channel = recorded(name, archive)
    export_mcap(archive.path, tmp_path / "a.mcap", on_skip=lambda text: None)
    rows = read(tmp_path / "a.mcap")
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, tmp_path / "a.mcap", strict=True)
    (encoding,) = {row[1] for row in rows}
    (schema,) = {row[2] and row[2][1] for row in rows}
    sent, written = held(archive)[channel], [row[5] for row in rows]
    (back,) = held(again).values()
    assert written == [one for _, one in back]
    if written == [one for _, one in sent]:
        bodies = "same"
    else:
        bodies = (
            "the body" if all(one.endswith(body) for (_, one), body in zip(sent, written, strict=True)) else "an image"
        )
    times = "same" if [row[4] for row in rows] == [5, 6, 7] == [time for time, _ in back] else "lost"
    (info,) = again.list()
    same = codecs.bare(info.codec) == codecs.bare(archive.find(channel).codec)
    codec = "the same codec" if same else f"{info.codec['kind']}, on a log:"
    assert info.channel.startswith("log:")
    assert [encoding, schema or "none", bodies, times, codec] == EXPORTED[name]
