"""What recorders missed, and what is damaged, is in the certificate and in the rows that it touches."""

import itertools
import json

import numpy as np
import pytest

import penstock


def rows_of(folder, *names):
    return list(penstock.open_dataset(folder, columns=list(names)))


def certificate(folder):
    return json.loads((folder / "certificate.json").read_text())


def overrun(archive, channel="ring:r"):
    """A recording of a ring whose recorder was overrun: its messages, with two gaps."""
    with penstock.publish(channel, codec="json", capacity=1 << 16) as pub:
        writer = archive._opener.open(channel, "newest", False, 1 << 20, None, True)
        for count in (20, 5000, 5000, 20):
            for n in range(count):
                pub.send({"n": n, "pad": "x" * 50})
            while writer.turn() > 0:
                pass
        writer.finish()
    assert archive.find(channel).gaps == 2
    return list(archive.replay(channel))


def test_rows_say_where_messages_were_lost(archive, tmp_path):
    """A row is marked if and only if bytes are missing between its partner and that stream's next message."""
    found = overrun(archive)
    times = sorted({one.time_ns + extra for one in found for extra in (0, 1)})
    archive.append("log:c", [b"x"] * len(times), times_ns=times)
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:c", others=["ring:r"])
    behind = {one.position: other.lost > 0 for one, other in itertools.pairwise(found)}
    rows = rows_of(tmp_path / "set", "r_position", "r_lost", "c_lost")
    assert sum(row["r_lost"] for row in rows) >= 2
    assert all(row["r_lost"] == behind.get(row["r_position"], False) for row in rows)
    assert not any(row["c_lost"] for row in rows)
    lost = archive.find("ring:r").lost_bytes
    assert built.lost_bytes == {"log:c": 0, "ring:r": lost}
    told = next(one for one in certificate(tmp_path / "set")["streams"] if one["channel"] == "ring:r")
    assert told["lost_bytes"] == lost == sum(gap["end"] - gap["start"] for gap in told["losses"])
    for gap in told["losses"]:  # no message of the recording is in it
        assert not any(gap["start"] <= one.position < gap["end"] for one in found)


def test_losses_of_the_aligned_stream_are_in_its_rows(archive, tmp_path):
    found = overrun(archive)
    penstock.dataset(archive.path, tmp_path / "set", align="ring:r")
    rows = rows_of(tmp_path / "set", "r_position", "r_lost")
    assert [(row["r_position"], row["r_lost"]) for row in rows] == [(one.position, one.lost > 0) for one in found]


def test_damage_is_a_loss_that_the_set_tells(archive, tmp_path):
    with penstock.publish("log:i", term_length=1 << 20) as pub:
        writer = archive._opener.open("log:i", "newest", False, 1 << 20, None, True)
        for block in range(6):
            for n in range(10):
                pub.send(b"%d" % (block * 10 + n))
            while writer.turn() > 0:
                pass
        writer.finish()
    times = [one.time_ns for one in archive.replay("log:i")]
    archive.append("log:c", [b"x"] * len(times), times_ns=times)
    folder = archive._files.folder(archive.find("log:i").id)
    segment = folder.segments()[0]
    data = bytearray(segment.data.read_bytes())
    entries, _ = folder.index(segment)
    data[int(entries[2]["position"]) + 40] ^= 0xFF
    segment.data.write_bytes(data)
    with pytest.raises(penstock.Corrupt, match="everything else is in"):
        penstock.dataset(archive.path, tmp_path / "set", align="log:c", others=["log:i"])
    told = []
    built = penstock.dataset(archive.path, tmp_path / "again", align="log:c", others=["log:i"], on_skip=told.append)
    assert told == list(built.damaged) == list(built.left_out)
    rows, gaps = (
        rows_of(tmp_path / "again", "i", "i_lost", "i_position"),
        certificate(tmp_path / "again")["streams"][1]["losses"],
    )
    assert rows == rows_of(tmp_path / "set", "i", "i_lost", "i_position")
    assert len(gaps) == 1
    assert gaps[0]["bytes"] == built.lost_bytes["log:i"] > 0
    marked = [row for row in rows if row["i_lost"]]
    assert marked
    assert {row["i_position"] for row in marked} == {
        max(row["i_position"] for row in rows if row["i_position"] < gaps[0]["start"])
    }


@pytest.mark.parametrize("images", ["columns", "png"])
def test_frames_are_the_recorded_pixels_by_position(archive, tmp_path, images, rng):
    if images == "png":
        pytest.importorskip("PIL", reason="pillow is not installed: pip install pillow")
    shape = (6, 5, 3)
    with penstock.publish("frames:cam", shape=shape, dtype="u1", buffers=4) as pub:
        writer = archive._opener.open("frames:cam", "newest", False, 1 << 20, None, True)
        for n in range(12):
            pub.send(np.frombuffer(rng.randbytes(90), "u1").reshape(shape), id=n * 3, meta={"n": n})
            while writer.turn() > 0:
                pass
        writer.finish()
    found = {one.position: one for one in archive.replay("frames:cam")}
    times = sorted([one.time_ns for one in found.values()] * 2)
    archive.append("log:c", [b"x"] * len(times), times_ns=times)
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:c", others=["frames:cam"], images=images)
    assert (built.rows, built.images) == (24, 12 if images == "png" else 0)
    leaf = "cam.file" if images == "png" else "cam.pixels"
    rows = rows_of(tmp_path / "set", leaf, "cam_position", "cam.frame_id", "cam.meta")
    assert {row["cam_position"] for row in rows} == set(found)
    for row in rows:
        sent = found[row["cam_position"]].data
        assert (row["cam.frame_id"], json.loads(row["cam.meta"])) == (sent["id"], sent["meta"])
        if images == "png":
            from PIL import Image

            with Image.open(tmp_path / "set" / row[leaf]) as picture:
                assert (np.asarray(picture) == sent["pixels"]).all()
        else:
            assert row[leaf].dtype == np.uint8
            assert (row[leaf] == sent["pixels"]).all()
            row[leaf][0] = 1  # it is the caller's own


def test_frames_that_png_cannot_hold_are_refused(archive, tmp_path):
    with penstock.publish("frames:cam", shape=(2, 2), dtype="f4") as pub:
        writer = archive._opener.open("frames:cam", "newest", False, 1 << 20, None, True)
        pub.send(np.zeros((2, 2), "f4"))
        while writer.turn() > 0:
            pass
        writer.finish()
    with pytest.raises(penstock.Invalid, match=r"frames:cam has frames of <f4 .*--images columns"):
        penstock.dataset(archive.path, tmp_path / "set", align="frames:cam", images="png")
    assert penstock.dataset(archive.path, tmp_path / "set", align="frames:cam").rows == 1


def record_frames(archive, frames, **options):
    """A recording of `frames:cam` with these frames."""
    with penstock.publish("frames:cam", buffers=4, **options) as pub:
        writer = archive._opener.open("frames:cam", "newest", False, 1 << 20, None, True)
        for frame in frames:
            pub.send(frame)
            while writer.turn() > 0:
                pass
        writer.finish()


@pytest.mark.parametrize("images", ["columns", "png"])
def test_frames_that_vary_have_their_own_shapes(archive, tmp_path, images):
    if images == "png":
        pytest.importorskip("PIL", reason="pillow is not installed: pip install pillow")
    frames = [np.full((n + 1, 5 - n), n, ("u1", "<u2")[n % 2]) for n in range(4)]
    record_frames(archive, frames, shape=(5, 5), dtype=("u1", "<u2"), varies=True)
    penstock.dataset(archive.path, tmp_path / "set", align="frames:cam", images=images)
    leaf = "cam.file" if images == "png" else "cam.pixels"
    for row, sent in zip(rows_of(tmp_path / "set", leaf, "cam.shape"), frames, strict=True):
        found = row[leaf]
        if images == "png":
            from PIL import Image

            with Image.open(tmp_path / "set" / found) as picture:
                found = np.asarray(picture)
        assert found.shape == sent.shape == tuple(row["cam.shape"])
        assert (found == sent).all()


def test_point_clouds_are_records(archive, tmp_path):
    point = np.dtype([("x", "<f4"), ("ring", "u1")])
    clouds = [np.ones(n, point) for n in (3, 0, 2)]
    record_frames(archive, clouds, shape=4, dtype=point, varies=True)
    penstock.dataset(archive.path, tmp_path / "set", align="frames:cam")
    for row, sent in zip(rows_of(tmp_path / "set", "cam.pixels"), clouds, strict=True):
        assert row["cam.pixels"].dtype == point
        assert np.array_equal(row["cam.pixels"], sent)
    with pytest.raises(penstock.Invalid, match="PNG does not hold"):
        penstock.dataset(archive.path, tmp_path / "png", align="frames:cam", images="png")
