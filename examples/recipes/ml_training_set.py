"""Machine learning: three streams of a robot become a training set: a row for each picture, with what was known then, in two episodes."""

import tempfile

import numpy as np

import penstock

MS = 1_000_000  # nanoseconds

with tempfile.TemporaryDirectory() as folder:
    archive = penstock.Archive(f"{folder}/archive")
    pictures = (np.full((4, 6), n, "u1") for n in range(20))
    archive.append(
        "log:camera", pictures, codec=penstock.array("u1", (4, 6)), times_ns=[n * 33 * MS for n in range(20)]
    )
    archive.append(
        "log:imu", [{"gyro": [n, 0.5]} for n in range(90)], codec="json", times_ns=[n * 5 * MS for n in range(90)]
    )
    marks = [b"start 1", b"end", b"start 2", b"end"]
    archive.append("log:marker", marks, times_ns=[0, 250 * MS, 300 * MS, 700 * MS])

    built = penstock.dataset(
        f"{folder}/archive",
        f"{folder}/set",
        align="log:camera",
        others=["log:imu"],
        tolerance="20ms",
        episodes="log:marker",
    )
    print(f"{built.rows} rows, {built.rows_without['log:imu']} without imu, {built.rows_outside} in no episode")
    rows = penstock.open_dataset(f"{folder}/set", columns=["camera", "imu.gyro", "imu_position", "frame_index"])
    print(rows.episodes, rows[9]["camera"].shape, rows[9]["imu.gyro"], rows[9]["frame_index"])
    print(sum(len(rows.shard(rank, 3)) for rank in range(3)))
