"""Training sets against their recordings: each row is looked up by its positions, and each partner is found again by a slow rule."""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli import run

MS = 1_000_000  # nanoseconds
IMU = np.dtype([("t", "i4"), ("gyro", "f4", (3,)), ("position", "u1")])


def filled(archive, rng, camera=60, imu=300, can=40):
    """Three streams with random times, some of them equal, and markers."""

    def times(count, step):
        return sorted(
            rng.randrange(0, camera * 10) * MS if rng.random() < 0.3 else rng.randrange(camera * step * MS)
            for _ in range(count)
        )

    archive.append("log:robot/camera", [{"n": n} for n in range(camera)], codec="json", times_ns=times(camera, 10))
    rows = [np.array((n, (n, 0.5, -n), n % 256), IMU) for n in range(imu)]
    archive.append("log:imu", rows, codec=IMU, times_ns=times(imu, 10))
    archive.append("log:can", [b"%d" % n for n in range(can)], times_ns=times(can, 12))
    return archive


def messages(archive, channel):
    """A channel's messages by recording and position."""
    found = {}
    for info in archive.list():
        if info.channel == channel:
            found |= {(info.id, one.position): one for one in archive.replay(info.id)}
    return found


def slow_partner(there, time_ns, tolerance_ns, pick):
    """The key of the partner, by a look at every message."""
    best = None
    for key, one in there.items():
        away = time_ns - one.time_ns
        if (tolerance_ns is not None and abs(away) > tolerance_ns) or (away < 0 and pick == "latest"):
            continue
        rank = (abs(away), away < 0) if pick == "nearest" else (abs(away),)
        if best is None or rank < best[0] or (rank == best[0] and away >= 0):  # of equal times the last one
            best = rank, key
    return best and best[1]


def by_duckdb(folder):
    """The rows as dictionaries, by an engine that knows nothing of Penstock."""
    with duckdb.connect() as db:
        answer = db.sql(f"select * from read_parquet('{folder}/data/*.parquet') order by index")
        names = answer.columns
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


@pytest.mark.parametrize("pick", ["latest", "nearest"])
@pytest.mark.parametrize("tolerance", ["20ms", None])
def test_rows_are_the_recordings_by_position(archive, tmp_path, rng, pick, tolerance):
    filled(archive, rng)
    built = penstock.dataset(
        archive.path,
        tmp_path / "set",
        align="log:robot/camera",
        others=["log:imu", "log:can"],
        tolerance=tolerance,
        pick=pick,
    )
    camera, imu, can = (messages(archive, one) for one in ("log:robot/camera", "log:imu", "log:can"))
    rows = by_duckdb(tmp_path / "set")
    assert len(rows) == built.rows == len(camera) == 60
    assert [(row["robot_camera_recording"], row["robot_camera_position"]) for row in rows] == list(camera)
    assert pq.read_table(tmp_path / "set" / "data").num_rows == 60
    data, without = penstock.open_dataset(tmp_path / "set"), 0
    for row, mine in zip(rows, data, strict=True):
        time_ns = row["robot_camera_time"]
        source = camera[row["robot_camera_recording"], row["robot_camera_position"]]
        assert (time_ns, row["robot_camera"]) == (source.time_ns, source.data)
        for name, there in (("imu", imu), ("can", can)):
            key = slow_partner(there, time_ns, None if tolerance is None else 20 * MS, pick)
            assert (row[f"{name}_recording"], row[f"{name}_position"]) == (key or (None, None)), (name, time_ns)
            assert row[f"{name}_time"] == (key and there[key].time_ns)
            if key is None:
                assert row[name] is None
                without += 1
        if row["imu"] is not None:
            sent = imu[row["imu_recording"], row["imu_position"]].data
            assert (row["imu"]["t"], row["imu"]["position"]) == (sent["t"], sent["position"])
            assert mine["imu.gyro"].tolist() == row["imu"]["gyro"] == sent["gyro"].tolist()
            assert mine["imu.gyro"].dtype == np.float32
        if row["can"] is not None:
            assert mine["can"] == row["can"] == can[row["can_recording"], row["can_position"]].data
    assert sum(built.rows_without.values()) == without


def test_episodes_are_between_their_markers(archive, tmp_path):
    archive.append("log:c", [{"n": n} for n in range(50)], codec="json", times_ns=[n * 10 * MS for n in range(50)])
    marks = [
        (0, {"event": "start", "episode": 7}),
        (100, {"event": "end"}),
        (150, {"event": "end"}),
        (200, {"event": "start", "episode": 9}),
        (255, {"event": "start"}),
        (290, {"what": 1}),
        (400, {"event": "start"}),
        (401, {"event": "end"}),
        (405, {"event": "start"}),
        (406, {"event": "end"}),
        (480, {"event": "start", "episode": 12}),
    ]
    archive.append("log:m", [mark for _, mark in marks], codec="json", times_ns=[at * MS for at, _ in marks])
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:c", episodes="log:m")
    rows = by_duckdb(tmp_path / "set")
    expected = [(0, n) for n in range(11)] + [(1, n) for n in range(20, 26)] + [(2, n) for n in range(26, 40)]
    expected += [(3, 40), (4, 48), (4, 49)]
    assert [(row["episode_index"], row["c"]["n"]) for row in rows] == expected
    assert [row["frame_index"] for row in rows if row["episode_index"] == 2] == list(range(14))
    assert [row["timestamp"] for row in rows if row["episode_index"] == 1] == [n / 100 for n in range(6)]
    assert (built.rows_outside, built.episodes) == (50 - len(expected), 5)
    assert [text[:13] for text in built.left_out] == ["1 markers are", "1 markers end"]
    told = json.loads((tmp_path / "set" / "certificate.json").read_text())["episodes"]
    assert [(one["number"], one["episode_index"], one["rows"], one["end_marked"]) for one in told] == [
        (7, 0, 11, True),
        (9, 1, 6, True),
        (None, 2, 14, True),
        (None, 3, 1, True),
        (None, None, 0, True),
        (12, 4, 2, False),
    ]
    assert [list(one) for one in penstock.open_dataset(tmp_path / "set").episodes][1] == list(range(11, 17))


@pytest.mark.parametrize(
    ("codec", "marks"),
    [
        (None, [b"start 4", b" end ", b"start", b"finish"]),
        (np.dtype([("event", "S8"), ("episode", "i4")]), [("start", 4), ("end", 0), ("start", 0), ("finish", 0)]),
        ("msgpack", [{"event": "start", "episode": 4}, {"event": "end"}, {"event": "start"}, [1]]),
    ],
)
def test_markers_come_in_several_codecs(archive, tmp_path, codec, marks):
    archive.append("log:c", [b"x"] * 40, times_ns=[n * 10 * MS for n in range(40)])
    marks = [np.array(one, codec) for one in marks] if isinstance(codec, np.dtype) else marks
    archive.append("log:m", marks, codec=codec, times_ns=[0, 95 * MS, 195 * MS, 300 * MS])
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:c", episodes="log:m")
    assert (built.rows, built.episodes, built.rows_outside, len(built.left_out)) == (30, 2, 10, 1)
    assert penstock.open_dataset(tmp_path / "set").certificate["episodes"][0]["number"] == 4


def test_incomplete_rows_are_left_out_and_counted(archive, tmp_path):
    archive.append("log:c", [{"n": n} for n in range(30)], codec="json", times_ns=[n * 10 * MS for n in range(30)])
    archive.append("log:i", [b"a", b"b"], times_ns=[95 * MS, 200 * MS])
    given = {"align": "log:c", "others": ["log:i"], "tolerance": 0.02}
    full = penstock.dataset(archive.path, tmp_path / "full", **given)
    less = penstock.dataset(archive.path, tmp_path / "less", drop_incomplete=True, **given)
    assert (full.rows, full.rows_dropped, full.rows_without) == (30, 0, {"log:i": 25})
    assert (less.rows, less.rows_dropped, less.rows_without) == (5, 25, {"log:i": 25})
    assert [row["c"]["n"] for row in by_duckdb(tmp_path / "less")] == [10, 11, 20, 21, 22]
    assert [row["frame_index"] for row in by_duckdb(tmp_path / "less")] == list(range(5))


def test_keys_that_come_late_are_columns(archive, tmp_path):
    many = [{"a": n} for n in range(9000)] + [{"a": 1, "late": "x"}]
    archive.append("log:c", many, codec="json", times_ns=range(len(many)))
    penstock.dataset(archive.path, tmp_path / "set", align="log:c")
    rows = by_duckdb(tmp_path / "set")
    assert rows[-1]["c"] == {"a": 1, "late": "x"}
    assert rows[0]["c"] == {"a": 0, "late": None}
    data = penstock.open_dataset(tmp_path / "set")
    assert (len(data), data[-1]["c.late"], data[8999]["c.a"]) == (9001, "x", 8999)


def test_messages_that_do_not_decode_are_counted(archive, tmp_path):
    archive.append("log:c", [b"x"] * 5, times_ns=[n * MS for n in range(5)])
    clock = penstock.testing.ManualClock(10**18)
    with (
        penstock.publish(penstock.testing.channel("log:i", clock=clock), codec="json") as pub,
        archive.record("log:i"),
    ):
        for body in (b'{"n": 1}', b"{no json", b'{"n": 2}'):
            penstock._native.core.Publication.send(pub, body)
            clock.now_ns += MS
    times = [one.time_ns for one in archive.replay("log:i", decode=False)]
    archive.append("log:d", [b"y"] * 4, times_ns=[times[0], times[1], times[1] + 1, times[2]])
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:d", others=["log:i"])
    assert [row["i"] for row in by_duckdb(tmp_path / "set")] == [{"n": 1}, None, None, {"n": 2}]
    assert all(row["i_position"] is not None for row in by_duckdb(tmp_path / "set"))
    assert built.left_out == ("log:i: 1 messages do not decode: their values are null",)


def test_since_and_until_choose_rows_alone(archive, tmp_path):
    archive.append("log:c", [b"%d" % n for n in range(30)], times_ns=[n * 10 * MS for n in range(30)])
    archive.append("log:i", [b"%d" % n for n in range(30)], times_ns=[n * 10 * MS - 5 * MS for n in range(30)])
    for pick, first, last in (("latest", b"10", b"20"), ("nearest", b"10", b"20")):
        folder = tmp_path / pick
        built = penstock.dataset(
            archive.path,
            folder,
            align="log:c",
            others=["log:i"],
            tolerance="20ms",
            pick=pick,
            since=100 * MS,
            until=200 * MS,
        )
        rows = by_duckdb(folder)
        assert (built.rows, rows[0]["c"], rows[0]["i"], rows[-1]["c"], rows[-1]["i"]) == (11, b"10", first, b"20", last)


def test_what_cannot_be_is_refused_in_one_line(archive, tmp_path, rng):
    filled(archive, rng)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    good = {"archive": archive.path, "to": tmp_path / "set", "align": "log:imu"}
    for change, error in (
        ({"align": "log:none"}, "log:none; it has log:can"),
        ({"to": tmp_path / "full"}, "not an empty folder"),
        ({"others": ["log:imu"]}, "named twice"),
        ({"others": "log:can"}, "a list of channels"),
        ({"others": ["log:can"], "pick": "best"}, "'latest' or 'nearest'"),
        ({"tolerance": "20ms"}, "no effect without other"),
        ({"others": ["log:can"], "tolerance": "soon"}, "tolerance is 'soon'"),
        ({"images": "png", "others": ["log:can"]}, "no effect without a frames channel"),
        ({"images": "jpeg"}, "'columns' or 'png'"),
        ({"episodes": 3}, "episodes is 3"),
        ({"archive": tmp_path / "nowhere"}, "nowhere"),
    ):
        with pytest.raises(penstock.PenstockError, match=error) as caught:
            penstock.dataset(**{**good, **change})
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "full"]


def test_a_killed_build_leaves_no_set_and_is_repeated(archive, tmp_path):
    archive.append("log:c", [b"x" * 1000] * 2000, times_ns=range(2000))
    code = """
import os, signal, sys, penstock
def die(what, done, count):
    os.kill(os.getpid(), signal.SIGKILL)
penstock.dataset(sys.argv[1], sys.argv[2], align="log:c", progress=die)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, archive.path, tmp_path / "set"], capture_output=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "set").exists()
    assert any(path.name.endswith(".new") for path in tmp_path.iterdir())
    assert penstock.dataset(archive.path, tmp_path / "set", align="log:c").rows == 2000
    assert sorted(os.listdir(tmp_path)) == ["archive", "set"]


def test_the_command_makes_the_same_set(archive, tmp_path, rng, capsys):
    filled(archive, rng)
    archive.append("log:marker", [b"start 1", b"start 2", b"end"], times_ns=[0, 300 * MS, 400 * MS])
    names = ["--with", "log:imu,log:can", "--tolerance", "20ms", "--episodes", "log:marker"]
    assert run(["dataset", str(archive.path), "--align", "log:robot/camera", *names, "--to", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    built = penstock.dataset(
        archive.path,
        tmp_path / "b",
        align="log:robot/camera",
        others=["log:imu", "log:can"],
        tolerance=0.02,
        episodes="log:marker",
    )
    assert by_duckdb(tmp_path / "a") == by_duckdb(tmp_path / "b")
    assert f"{built.rows} rows in 2 episodes" in said
    assert f"{built.rows_outside} messages in no episode" in said
    assert run(["dataset", str(archive.path), "--align", "log:imu", "--to", str(tmp_path / "c"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 300
    assert run(["dataset", str(archive.path), "--align", "log:imu", "--to", str(tmp_path / "c")]) == 1
    assert "not an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize("window", [1024, 3])
@pytest.mark.parametrize("pick", ["latest", "nearest"])
@pytest.mark.parametrize("tolerance", [None, 2 * MS])
def test_a_clock_that_steps_back_gives_no_wrong_partner(tolerance, pick, window, archive, tmp_path, rng, monkeypatch):
    """Within the window all partners are right. Beyond it a row of a time that the clock ran through twice may lack one."""
    monkeypatch.setattr("penstock.export.datasets.streams.WINDOW", window)
    times = [n + rng.choice((0, 0, 0, -1, -4, -30, 2)) for n in range(200)]
    archive.append(
        "log:row", [b"x"] * 250, times_ns=[MS * (100 + n) for n in sorted(rng.choices(range(-20, 230), k=250))]
    )
    archive.append("log:back", [b"%d" % n for n in range(200)], times_ns=[MS * (100 + n) for n in times])
    penstock.dataset(
        archive.path, tmp_path / "set", align="log:row", others=["log:back"], pick=pick,
        tolerance=None if tolerance is None else tolerance / 1e9,
    )  # fmt: skip
    there = messages(archive, "log:back")
    wrong, without = [], 0
    for row in by_duckdb(tmp_path / "set"):
        found = None if row["back_position"] is None else (row["back_recording"], row["back_position"])
        right = slow_partner(there, row["row_time"], tolerance, pick)
        without += found is None is not right
        wrong += [(row["row_time"], found, right)] if found not in (right, None) else []
    assert wrong == []
    assert (without > 0) == (window == 3)
    (told,) = [
        one
        for one in json.loads((tmp_path / "set" / "certificate.json").read_text())["streams"]
        if one["channel"] == "log:back"
    ]
    assert told["steps_back"] == sum(b < a for a, b in itertools.pairwise(times))


def test_rows_that_step_back_are_in_order(archive, tmp_path):
    """A few messages of the aligned stream out of order are rows in order, and each has its partner."""
    archive.append("log:row", [b"x"] * 6, times_ns=[MS * n for n in (1, 4, 2, 3, 6, 5)])
    archive.append("log:imu", [b"y"] * 6, times_ns=[MS * n for n in range(1, 7)])
    penstock.dataset(archive.path, tmp_path / "set", align="log:row", others=["log:imu"])
    rows = by_duckdb(tmp_path / "set")
    assert [row["row_time"] for row in rows] == [row["imu_time"] for row in rows] == [MS * n for n in range(1, 7)]


def test_each_file_of_a_set_has_its_checksum(archive, tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    with (
        penstock.publish("frames:cam", shape=(4, 4), dtype="u1", when_slow="wait") as pub,
        archive.record("frames:cam", pixels=True),
    ):
        for n in range(3):
            pub.send(np.full((4, 4), n, "u1"), timeout=60)
    folder = tmp_path / "set"
    penstock.dataset(archive.path, folder, align="frames:cam", images="png")
    told = json.loads((folder / "certificate.json").read_text())
    sums = {one["path"]: (one["bytes"], one["sha256"]) for one in [*told["files"], *told["images"]]}
    assert sums == {
        str(one.relative_to(folder)): (one.stat().st_size, hashlib.sha256(one.read_bytes()).hexdigest())
        for one in folder.rglob("*")
        if one.is_file() and one.name != "certificate.json"
    }
    assert len(told["images"]) == 3
