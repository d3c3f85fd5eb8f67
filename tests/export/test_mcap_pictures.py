"""Recordings of frames in PNG and JPEG are CompressedImage in MCAP files, their bytes as they are stored."""

import io

import numpy as np
import pytest
from foxglove.messages import CompressedImage, RawImage
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.reader import make_reader
from PIL import Image

import penstock
from penstock.export import mcap, mcap_images
from penstock.export.mcap import export_mcap, import_mcap
from penstock.record import merged

SHAPE = (6, 8, 3)
PATIENCE = 60


def record(archive, frames, asked, **options):
    options = {"shape": SHAPE, **options}
    with (
        penstock.publish("frames:cam", when_slow="wait", **options) as pub,
        archive.record("frames:cam", pixels=asked),
    ):
        for number, frame in enumerate(frames):
            pub.send(frame, timeout=PATIENCE, meta={"n": number} if number == 1 else None)


def picture(number):
    return (np.arange(np.prod(SHAPE)) * 3 // 4 + number).astype("u1").reshape(SHAPE)


def messages(path):
    """(topic, name of the schema, the message by the package protobuf) of each message, by another reader than Penstock's."""
    with open(path, "rb") as file:
        for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            pool = descriptor_pool.DescriptorPool()
            for one in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
                pool.Add(one)
            kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
            yield channel.topic, schema.name, kind.FromString(message.data)


@pytest.mark.parametrize("theirs", [CompressedImage, RawImage])
def test_descriptions_are_foxgloves(theirs):
    schema = theirs.get_schema()
    ours = mcap_images.description(compressed=theirs is CompressedImage)

    def fields(data):
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        return {
            one.name: {(field.name, field.number, field.type) for field in one.field}
            for file in files
            for one in file.message_type
        }

    assert fields(ours) == fields(schema.data)


@pytest.mark.parametrize("asked", ["png", "jpeg:70"])
def test_pictures_are_exported_as_they_are_stored(archive, tmp_path, asked):
    record(archive, [picture(number) for number in range(4)], asked)
    stored = archive.read("frames:cam", columns=["timestamp_ns"], decode=True)
    told = []
    done = export_mcap(archive.path, tmp_path / "o.mcap", on_skip=told.append)
    assert done.rows == 4
    assert told == ["frames:cam: the fields of 1 frames are left out"]
    found = list(messages(tmp_path / "o.mcap"))
    assert {row[:2] for row in found} == {("frames:cam", "foxglove.CompressedImage")}
    for (_, _, image), data, time_ns in zip(
        found, stored.column("pixels").to_pylist(), stored.column("timestamp_ns").to_pylist(), strict=True
    ):
        assert (image.data, image.format, image.frame_id) == (data, asked.partition(":")[0], "cam")
        assert image.timestamp.ToNanoseconds() == time_ns
        with Image.open(io.BytesIO(image.data)) as opened:
            assert opened.size == (8, 6)
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, tmp_path / "o.mcap")
    assert [one.data["data"] for one in again.replay(again.list()[0].id)] == stored.column("pixels").to_pylist()


def test_frames_in_zstd_are_raw_images(archive, tmp_path):
    sent = [np.full(SHAPE, number, "u1") for number in range(3)]
    record(archive, sent, "zstd")
    assert export_mcap(archive.path, tmp_path / "o.mcap", on_skip=lambda text: None).rows == 3
    for (_, name, image), frame in zip(messages(tmp_path / "o.mcap"), sent, strict=True):
        assert (name, image.encoding, image.data) == ("foxglove.RawImage", "rgb8", frame.tobytes())


def test_raw_frames_among_pictures_are_on_the_same_topic(archive, tmp_path):
    sent = [picture(0), np.zeros((2, 3, 1), "<f4"), np.zeros((2, 3, 2), "u1"), picture(3), np.ones((2, 3, 1), "<f4")]
    record(archive, sent, "jpeg", dtype=("u1", "<f4"), varies=True)
    told = []
    assert export_mcap(archive.path, tmp_path / "o.mcap", on_skip=told.append).rows == 4
    assert told == [
        "frames:cam: the fields of 1 frames are left out",
        "frames:cam: 1 frames are left out: they are not pictures",
    ]
    found = list(messages(tmp_path / "o.mcap"))
    short = [(topic, name.removeprefix("foxglove.")) for topic, name, _ in found]
    assert short == [("frames:cam", name) for name in ("CompressedImage", "RawImage", "CompressedImage", "RawImage")]
    assert [image.encoding for _, name, image in found if name.endswith("RawImage")] == ["32FC1"] * 2
    again = penstock.Archive(tmp_path / "again")
    import_mcap(again, tmp_path / "o.mcap")
    assert sum(info.messages for info in again.list()) == 4


def test_a_frame_that_does_not_decode_is_left_out(archive, tmp_path, monkeypatch):
    """One frame whose fields are not JSON costs itself. Its position is told, and what is beside it is all there."""
    record(archive, [picture(number) for number in range(3)], True)
    archive.append("log:other", [b"x"] * 9)
    positions = []

    def damaged(*arguments):
        for message in merged(*arguments):
            broken = message.payload.replace(b'{"n":1}', b"no JSON")
            if broken != message.payload:
                positions.append(message.position)
            yield message._replace(payload=broken)

    monkeypatch.setattr(mcap, "merged", damaged)
    told = []
    done = export_mcap(archive.path, tmp_path / "o.mcap", on_skip=told.append)
    (place,) = positions
    text = f"frames:cam: 1 frames that do not decode are left out, at positions {place:,} to {place:,}"
    assert (told, done.rows) == ([text], 2 + 9)
