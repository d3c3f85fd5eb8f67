"""Frames are recorded in zstd, PNG or JPEG: lossless ones as they were, in order, each loss counted, whatever dies or breaks."""

import contextlib
import io
import logging
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.cli import run
from penstock.codecs import pixels
from penstock.codecs.frames import FrameFormat
from penstock.codecs.pixels import Encoding
from penstock.record.format.folder import RecordingFolder

PATIENCE = 60
COLOUR = (12, 10, 3)
POINT = np.dtype([("x", "<f4"), ("ring", "<u2")])
HEADER = np.dtype([("gain", "<f4")])


def made(shape, dtype="u1", number=0):
    """A frame of its own for each number."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    whole = (np.arange(count, dtype="u8") * 31 // 8 + number * 7).astype("u1")
    return whole.view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def record(archive, frames, asked, channel="frames:e", **options):
    """Records all frames. Options are of the channel."""
    options = {"shape": frames[0].shape, "dtype": frames[0].dtype, **options}
    with (
        penstock.publish(channel, when_slow="wait", buffers=3, **options) as pub,
        archive.record(channel, pixels=asked),
    ):
        for number, frame in enumerate(frames):
            pub.send(frame, timeout=PATIENCE, id=number, meta={"n": number})
    return archive.find(channel)


def replayed(archive, which="frames:e"):
    return [message.data for message in archive.replay(which)]


def stored(archive, which="frames:e"):
    """(encoding, bytes) of each frame, as the table's columns have them."""
    table = archive.read(which, columns=["position"], decode=True)
    return list(zip(table.column("encoding").to_pylist(), table.column("pixels").to_pylist(), strict=True))


def notes(archive, which="frames:e"):
    """The notes of the frames, as they are stored."""
    form = FrameFormat(archive.find(which).codec)
    return [form.read_note(one) for one in archive.read(which, columns=["payload"]).column("payload").to_pylist()]


LOSSLESS = [
    ("zstd", (50, 7), "<f4"),
    ("zstd:1", (90,), POINT),
    ("zstd:19", (3, 20, 4, 5), ">i2"),
    ("png", (12, 10), "u1"),
    ("png:9", (12, 10, 1), "u1"),
    ("png:0", COLOUR, "u1"),
    ("png", (12, 10, 4), "u1"),
    ("png", (12, 10), "<u2"),
    ("png", (12, 10, 1), "<u2"),
]


@pytest.mark.parametrize(("asked", "shape", "dtype"), LOSSLESS)
def test_lossless_frames_are_replayed_as_they_were(archive, asked, shape, dtype):
    sent = [made(shape, dtype, number) for number in range(20)]
    info = record(archive, sent, asked)
    assert (info.messages, info.gaps, info.lost_messages, info.state) == (20, 0, 0, "closed")
    assert info.encoding == asked if ":" in asked else info.encoding.startswith(asked)
    assert {one.encoding for one in notes(archive)} == {pixels.NUMBERS[asked.partition(":")[0]]}
    found = replayed(archive)
    assert [(one["id"], one["meta"]) for one in found] == [(number, {"n": number}) for number in range(20)]
    for one, frame in zip(found, sent, strict=True):
        assert (one["pixels"].dtype, one["pixels"].shape) == (frame.dtype, frame.shape)
        assert one["pixels"].tobytes() == frame.tobytes()
        one["pixels"].reshape(-1)[:1] = one["pixels"].reshape(-1)[-1:]  # it is the caller's own
    assert archive.verify() == []


@pytest.mark.parametrize("shape", [(12, 10), (12, 10, 1), COLOUR])
def test_jpeg_frames_are_those_that_pillow_reads(archive, shape):
    sent = [made(shape, number=number) for number in range(5)]
    assert record(archive, sent, "jpeg:80").encoding == "jpeg:80"
    for one, frame, (name, data) in zip(replayed(archive), sent, stored(archive), strict=True):
        made_by_pillow = io.BytesIO()
        Image.fromarray(frame.reshape(shape[:2]) if shape[-1] == 1 else frame).save(made_by_pillow, "JPEG", quality=80)
        assert (name, data) == ("jpeg", made_by_pillow.getvalue())
        with Image.open(io.BytesIO(data)) as picture:
            assert (np.asarray(picture).reshape(shape) == one["pixels"]).all()


def test_a_recording_says_how_much_smaller_it_is(archive):
    sent = [np.full((100, 100, 3), number, "u1") for number in range(4)]
    encoded = record(archive, sent, "png")
    assert 0 < encoded.ratio < 0.1
    raw = record(archive, sent, "raw")
    assert (raw.encoding, raw.ratio) == (None, None)
    assert encoded.ratio == encoded.bytes / raw.bytes


def test_frames_that_vary_are_encoded_where_they_are_pictures(archive):
    sent = [
        made(COLOUR),
        made((2, 3, 3), number=1),
        made((12, 10, 2), number=2),  # PNG here has no two channels
        made((4, 4, 1), "<f4", 3),
        made((0, 4, 3), number=4),
        made((5, 5, 1), number=5),
    ]
    options = {"shape": COLOUR, "dtype": ("u1", "<f4"), "varies": True, "header": HEADER}
    info = record(archive, sent, "png", **options)
    assert (info.messages, info.lost_messages) == (6, 0)
    for one, frame in zip(replayed(archive), sent, strict=True):
        assert (one["pixels"].dtype, one["pixels"].shape) == (frame.dtype, frame.shape)
        assert one["pixels"].tobytes() == frame.tobytes()
        assert one["header"]["gain"] == 0
    names = [name for name, _ in stored(archive)]
    assert names == ["png", "png", "raw", "raw", "raw", "png"]
    assert [data for name, data in stored(archive) if name == "raw"] == [sent[at].tobytes() for at in (2, 3, 4)]


def test_what_zstd_makes_no_smaller_is_raw(archive, rng):
    sent = [np.frombuffer(rng.randbytes(500), "u1"), np.zeros(500, "u1")]
    record(archive, sent, "zstd")
    assert [one.encoding for one in notes(archive)] == [pixels.RAW, pixels.ZSTD]
    assert [one["pixels"].tobytes() for one in replayed(archive)] == [one.tobytes() for one in sent]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("gif", "it must be True, 'raw', 'zstd'"),
        ("png:10", "png has levels from 0 to 9"),
        ("jpeg:0", "jpeg has levels from 1 to 100"),
        ("zstd:", "it must be"),
        ("raw:1", "it must be"),
        (1, "it must be"),
        (None, "it must be"),
    ],
)
def test_an_encoding_that_does_not_exist_is_refused(archive, asked, told):
    with pytest.raises(penstock.Invalid, match=re.escape(told)):
        archive.record("frames:e", pixels=asked)


def test_an_encoding_of_other_channels_is_refused(archive):
    with pytest.raises(penstock.Unsupported, match="pixels='png' is for frames channels"):
        archive.record("log:e", pixels="png")


@pytest.mark.parametrize(
    ("asked", "shape", "dtype", "varies"),
    [
        ("jpeg", (12, 10, 4), "u1", False),
        ("jpeg", (12, 10), "<u2", False),
        ("png", (12, 10), "<f4", False),
        ("png", 1000, "u1", True),
    ],
)
def test_frames_that_an_encoding_lacks_are_refused_at_once(archive, asked, shape, dtype, varies, caplog):
    with penstock.publish("frames:e", shape=shape, dtype=dtype, varies=varies) as pub:
        with pytest.raises(penstock.Invalid, match=f"frames:e: {asked} has no frames of .*: give pixels='zstd'"):
            archive.record("frames:e", pixels=asked)
        assert archive.list() == []
        with archive.record("frames:*", pixels=asked), caplog.at_level(logging.WARNING):
            pub.send(made(pub.shape, dtype))
    info = archive.find("frames:e")
    assert (info.encoding, info.messages) == (None, 1)
    assert len(replayed(archive)) == 1


@pytest.mark.parametrize(("asked", "module", "extra"), [("png", "PIL", "frames"), ("zstd", "pyarrow", "record")])
def test_a_missing_package_is_named_at_the_opening(archive, monkeypatch, asked, module, extra):
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else find_spec(name))
    with pytest.raises(penstock.MissingPackage, match=rf"pip install 'penstock\[{extra}\]'"):
        archive.record("frames:e", pixels=asked)


# ---- a slow encoder, and one that fails ----


class Gate:
    """An encoder that waits until it may go on."""

    def __init__(self):
        self.open, self.begun = threading.Event(), threading.Semaphore(0)

    def __call__(self, form, message, encoding):
        self.begun.release()
        assert self.open.wait(PATIENCE), "nobody opened the gate"
        return form.encoded(message, encoding)


@pytest.fixture
def gate(archive):
    archive._opener.encode = made = Gate()
    yield made
    made.open.set()


def small_room(writer, room):
    writer.subscription._room = room
    return writer


@pytest.mark.parametrize("room", [2, 4, 7])
def test_frames_without_room_are_lost_and_counted(archive, gate, room):
    with penstock.publish("frames:e", shape=COLOUR, buffers=2) as pub:
        writer = small_room(archive._opener.open("frames:e", "newest", False, 1 << 20, None, "png"), room)
        for number in range(40):
            assert pub.offer(made(COLOUR, number=number)) is not None, "the publication had to wait"
            writer.turn()
        gate.open.set()
        for number in range(40, 45):
            writer.drain()
            assert pub.offer(made(COLOUR, number=number)) is not None
        writer.drain()
        writer.finish()
    info = archive.find("frames:e")
    found = replayed(archive)
    numbers = [one["id"] for one in found]
    assert numbers[:room] == list(range(room))
    assert numbers[-5:] == list(range(40, 45))
    assert numbers == sorted(set(numbers))
    assert info.messages + info.lost_messages == 45
    assert info.lost_messages == 45 - len(numbers) >= 40 - room - 2
    assert all((one["pixels"] == made(COLOUR, number=one["id"])).all() for one in found)
    assert writer.progress.lost_messages == info.lost_messages
    assert archive.verify() == []


def test_a_turn_waits_for_no_encoder(archive, gate):
    """The gate opens only after the turns: a recorder that waited would find it shut for as long as the encoder is patient."""
    with penstock.publish("frames:e", shape=COLOUR, buffers=4) as pub:
        writer = archive._opener.open("frames:e", "newest", False, 1 << 20, None, "png")
        for number in range(3):
            pub.send(made(COLOUR, number=number), timeout=PATIENCE)
            writer.turn()
            assert writer.segment.messages == 0
            assert writer.is_encoding
        gate.open.set()
        writer.finish()
    assert archive.find("frames:e").messages == 3


def test_a_publication_that_waits_waits_for_an_encoder(archive, gate):
    with penstock.publish("frames:e", shape=COLOUR, buffers=2, when_slow="wait") as pub:
        writer = small_room(archive._opener.open("frames:e", "newest", False, 1 << 20, None, "png"), 3)
        sent = 0
        while sent < 50:
            writer.turn()
            if pub.offer(made(COLOUR, number=sent)) is None:
                break
            sent += 1
        assert sent == 3 + 2  # the room and the buffers
        gate.open.set()
        writer.drain()
        writer.finish()
    info = archive.find("frames:e")
    assert (info.messages, info.lost_messages) == (sent, 0)


def test_frames_are_in_order_whichever_is_encoded_first(archive):
    go = threading.Event()

    def encode(form, message, encoding):
        assert form.read_note(message).id or go.wait(PATIENCE), "the first frame was never let go"
        return form.encoded(message, encoding)

    archive._opener.encode = encode
    with penstock.publish("frames:e", shape=COLOUR, buffers=4) as pub:
        writer = archive._opener.open("frames:e", "newest", False, 1 << 20, None, "png")
        for number in range(4):
            pub.send(made(COLOUR, number=number))
            writer.turn()
        for job in list(writer.subscription._jobs)[1:]:
            job.message.result(PATIENCE)
        writer.turn()
        assert writer.segment.messages == 0
        go.set()
        writer.finish()
    assert [one["id"] for one in replayed(archive)] == list(range(4))


def test_a_frame_that_cannot_be_encoded_is_kept_raw(archive, caplog):
    def encode(form, message, encoding):
        if form.read_note(message).id % 2:
            raise MemoryError("no room for a picture")
        return form.encoded(message, encoding)

    archive._opener.encode = encode
    sent = [made(COLOUR, number=number) for number in range(10)]
    with caplog.at_level(logging.WARNING, "penstock"):
        assert record(archive, sent, "png").messages == 10
    assert [name for name, _ in stored(archive)] == ["png", "raw"] * 5
    assert all((one["pixels"] == frame).all() for one, frame in zip(replayed(archive), sent, strict=True))
    assert [row.getMessage() for row in caplog.records] == [
        "frames:e: frames are recorded raw, as png:1 failed: no room for a picture"
    ]


def test_the_threads_end_with_the_recorder(archive):
    record(archive, [made(COLOUR)] * 3, "png")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-encoder")]


# ---- kills, disks, damage ----


@pytest.mark.parametrize("asked", ["png", "zstd"])
def test_a_killed_recorder_leaves_whole_frames(archive, asked):
    with penstock.publish("frames:e", shape=COLOUR, when_slow="wait") as pub:
        recorder = archive.record("frames:e", process=True, pixels=asked, sync_interval=0.01)
        pub.wait_for_readers(1, timeout=PATIENCE)
        number = synced = 0
        while synced < 20_000:
            pub.send(made(COLOUR, number=number), timeout=PATIENCE, id=number)
            number += 1
            synced = sum(one.synced for one in recorder.progress())
        os.kill(recorder.pid, signal.SIGKILL)
        with pytest.raises(penstock.SystemFailure, match="signal 9"):
            recorder.stop()
    info = archive.find("frames:e")
    assert info.state == "crashed"
    assert info.synced_position >= synced
    found = replayed(archive)
    assert [one["id"] for one in found] == list(range(info.messages))
    assert all((one["pixels"] == made(COLOUR, number=one["id"])).all() for one in found)
    archive.repair()
    assert archive.verify() == []


def test_a_full_disk_ends_it_and_keeps_whole_frames(disk, rng):
    archive = penstock.Archive(disk / "archive")
    with penstock.publish("frames:e", shape=50_000) as pub:
        recorder = archive.record("frames:e", pixels="zstd", sync_interval=0.01)
        pub.wait_for_readers(1, timeout=PATIENCE)
        sent, number, end = {}, 0, time.monotonic() + PATIENCE
        while recorder.error is None:
            assert time.monotonic() < end, "the disk is never full"
            frame = np.frombuffer(rng.randbytes(50_000), "u1")
            sent[number] = hash(frame.tobytes())
            pub.send(frame, timeout=PATIENCE, id=number)
            number += 1
        with pytest.raises(penstock.SystemFailure, match="No space left"):
            recorder.stop()
        assert pub.offer(frame) is not None  # the channel goes on
    found = replayed(archive)
    assert found
    assert all(hash(one["pixels"].tobytes()) == sent[one["id"]] for one in found)
    assert archive.verify(1) == []


def test_a_wrong_byte_costs_its_frame_alone(archive):
    record(archive, [made(COLOUR, number=number) for number in range(10)], "png")
    (segment,) = RecordingFolder(archive.folders()[0].path).segments()
    content = bytearray(segment.data.read_bytes())
    content[len(content) // 2] ^= 0x10
    segment.data.write_bytes(content)
    (damage,) = archive.verify()
    assert "\n" not in damage.what
    assert len(replayed(archive)) == 9
    archive.repair()
    info = archive.find("frames:e")
    assert (info.messages, info.lost_messages) == (9, 1)
    numbers = [one["id"] for one in replayed(archive)]
    assert len(numbers) == 9
    assert set(numbers) < set(range(10))


def torn(form, message, encoding):
    """A picture of frame 3 that breaks off, and one of frame 5 that is of another size."""
    whole = form.encoded(message, encoding)
    note = form.read_note(whole)
    if note.id == 5:
        other = pixels.encode(np.zeros((3, 3, 3), "u1"), encoding)[1]
        return whole[: note.end] + bytes(other)
    return whole[: note.end + (len(whole) - note.end) * 2 // 3] if note.id == 3 else whole


@pytest.mark.parametrize("asked", ["png", "jpeg", "zstd"])
def test_a_broken_picture_is_told_in_one_line(archive, asked):
    archive._opener.encode = torn
    sent = [np.full(COLOUR, number, "u1") for number in range(8)]
    record(archive, sent, asked)
    found, told = [], []
    messages = archive.replay("frames:e")
    while True:
        try:
            found.append(next(messages).data["id"])
        except StopIteration:
            break
        except penstock.DecodeError as error:
            told.append(str(error))
    assert found == [0, 1, 2, 4, 6, 7]
    assert all(re.search(r"frames:e: the message at position .* is not frame: its pixels are not", one) for one in told)
    assert len(told) == 2
    assert not any("\n" in one for one in told)


@pytest.mark.parametrize("number", [pixels.ZSTD, pixels.PNG, pixels.JPEG, 9])
def test_bytes_that_are_no_picture_are_a_value_error(number, rng):
    array = np.zeros(COLOUR, "u1")
    name = min(number, 3)
    good = bytes(pixels.encode(array, Encoding(name, 1 if name < 3 else 90))[1])
    for data in (b"", b"x", rng.randbytes(300), good[:-20], good + b"x" * (number == 1)):
        with contextlib.suppress(ValueError):
            assert bytes(pixels.decode(number, memoryview(data), COLOUR, array.dtype)) == array.tobytes()
    with pytest.raises(ValueError, match=r"not a picture of \(10, 12, 3\)|encoding 9|not 72"):
        pixels.decode(number, memoryview(good), (10, 12, 3) if number != 1 else (24, 1, 3), array.dtype)


# ---- limits, other engines, onto channels ----


def test_recordings_with_limits_follow_each_other_without_a_gap(archive):
    sent = [made(COLOUR, number=number) for number in range(60)]
    with (
        penstock.publish("frames:e", shape=COLOUR, when_slow="wait") as pub,
        archive.record("frames:e", pixels="png:0", max_bytes=400_000, segment_length=1 << 16),
    ):
        for number in range(2000):
            pub.send(sent[number % 60], timeout=PATIENCE, id=number)
    infos = archive.list()
    assert len(infos) > 1
    assert {info.encoding for info in infos} == {"png:0"}
    assert sum(info.gaps for info in infos) == 0
    found = [one for info in infos for one in replayed(archive, info.id)]
    assert [one["id"] for one in found] == list(range(2000 - len(found), 2000))
    assert all((one["pixels"] == sent[one["id"] % 60]).all() for one in found)


def test_an_encoded_recording_is_not_extended(archive):
    with penstock.publish("frames:e", shape=COLOUR, when_slow="wait") as pub:
        for number in range(2):
            with archive.record("frames:e", pixels="png", extend=True):
                pub.send(made(COLOUR, number=number), timeout=PATIENCE, id=number)
    assert [(info.messages, info.encoding) for info in archive.list()] == [(1, "png:1")] * 2


def test_encoded_frames_are_published_again(archive):
    sent = [made(COLOUR, number=number) for number in range(6)]
    record(archive, sent, "png")
    penstock.remove("frames:e")
    with penstock.publish("frames:again", shape=COLOUR, buffers=8):
        pass
    with penstock.subscribe("frames:again", conflate=False) as sub:
        assert archive.replay_onto("frames:e", "frames:again", timeout=PATIENCE) == 6
        found = sub.poll()
        assert [frame.meta["n"] for frame in found] == list(range(6))
        assert all((frame.array == one).all() for frame, one in zip(found, sent, strict=True))


def test_a_live_encoded_recording_is_followed(archive):
    sent = [made(COLOUR, number=number) for number in range(9)]
    with penstock.publish("frames:e", shape=COLOUR, when_slow="wait") as pub:
        recorder = archive.record("frames:e", pixels="png")
        pub.send(sent[0], timeout=PATIENCE)
        found = archive.follow("frames:e", timeout=PATIENCE) if wait_for_recording(archive) else None
        assert (next(found).data["pixels"] == sent[0]).all()
        for frame in sent[1:]:
            pub.send(frame, timeout=PATIENCE)
            assert (next(found).data["pixels"] == frame).all()
        recorder.stop()
    assert list(found) == []


def wait_for_recording(archive):
    while not archive.list():
        os.sched_yield()
    return True


@pytest.mark.parametrize("asked", ["png", "jpeg", "zstd"])
def test_a_training_set_has_stored_pictures_as_files(archive, tmp_path, asked):
    sent = [np.full(COLOUR, number * 9, "u1") for number in range(5)]
    record(archive, sent, asked)
    files = penstock.dataset(archive.path, tmp_path / "files", align="frames:e", images="png")
    assert (files.rows, files.images) == (5, 5)
    suffix = "jpg" if asked == "jpeg" else "png"
    found = sorted((tmp_path / "files").glob(f"images/*/*.{suffix}"))
    if asked != "zstd":
        assert [path.read_bytes() for path in found] == [data for _, data in stored(archive)]
    for path, one in zip(found, replayed(archive), strict=True):
        with Image.open(path) as picture:
            assert (np.asarray(picture) == one["pixels"]).all()
    penstock.dataset(archive.path, tmp_path / "columns", align="frames:e")
    rows = list(penstock.open_dataset(tmp_path / "columns"))
    assert len(rows) == 5
    for row, one in zip(rows, replayed(archive), strict=True):
        assert (row["e.pixels"] == one["pixels"]).all()


def test_the_command_records_and_lists_encodings(archive, capfd):
    path = str(archive.path)
    with penstock.publish("frames:e", shape=COLOUR):
        for asked, status, told in (
            (["--pixels", "gif"], 1, "pixels is 'gif': it must be"),
            (["--pixels", "png", "--no-pixels"], 2, "give one of them"),
        ):
            assert run(["record", path, "frames:e", "--seconds", "0.01", *asked]) == status
            assert told in capfd.readouterr().err.replace("\n", " ")
        assert run(["record", path, "frames:e", "--seconds", "0.01", "--pixels", "jpeg:70"]) == 0
    record(archive, [np.zeros((100, 100), "u1")] * 3, "png", "frames:f")
    record(archive, [np.zeros((100, 100), "u1")] * 3, "raw", "frames:g")
    assert run(["recordings", path]) == 0
    text = capfd.readouterr().out
    assert re.search(r"frames:e .* jpeg:70 *\n", text)
    assert re.search(r"frames:f .* png:1, [0-9.]+% *\n", text)
    assert re.search(r"frames:g .* raw *\n", text)


def test_a_table_has_raw_and_encoded_recordings(archive, tmp_path):
    polars, tables = pytest.importorskip("polars"), pytest.importorskip("penstock.tables.pipeline")
    sent = [made(COLOUR, number=number) for number in range(3)]
    for asked in ("raw", "png", "zstd"):
        record(archive, sent, asked)
        tables.run(archive.path, tmp_path / "tables")
    rows = polars.read_delta(str(tmp_path / "tables" / "streams" / "frames_e")).sort("recording", "position")
    assert rows.get_column("encoding").to_list() == [None] * 3 + ["png"] * 3 + ["raw"] * 3
    for data, encoding, frame in zip(rows.get_column("pixels"), rows.get_column("encoding"), sent * 3, strict=True):
        if encoding == "png":
            with Image.open(io.BytesIO(data)) as picture:
                assert (np.asarray(picture) == frame).all()
        else:
            assert data == frame.tobytes()


def test_other_engines_show_the_pictures_of_a_table(archive):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    sent = [made(COLOUR, number=number) for number in range(4)]
    record(archive, sent, "png")
    rows = archive.read("frames:e", columns=["position"], decode=True)
    by_duckdb = duckdb.sql("select pixels from rows where encoding = 'png' order by frame_id").fetchall()
    by_polars = polars.from_arrow(rows).filter(polars.col("encoding") == "png").sort("frame_id").get_column("pixels")
    for (one,), other, frame in zip(by_duckdb, by_polars, sent, strict=True):
        for data in (one, other):
            with Image.open(io.BytesIO(data)) as picture:
                assert (np.asarray(picture) == frame).all()
