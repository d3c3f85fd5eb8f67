"""The page's program that makes a LeRobot data set of a training set, read by LeRobot's own package."""

import re
from pathlib import Path

import numpy as np
import pytest

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "archives" / "datasets.md"
MS = 1_000_000


def test_lerobot_reads_what_the_pages_program_makes(tmp_path, monkeypatch):
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed: it brings 5 GB of torch and CUDA"
    )
    monkeypatch.chdir(tmp_path)
    archive = penstock.Archive("my-drive")
    camera = penstock.publish("frames:camera", shape=(16, 24, 3), dtype="u1", buffers=16)
    with camera, archive.record("frames:camera", pixels=True):
        for n in range(12):
            camera.send(np.full((16, 24, 3), n * 20, "u1"))
    times = [message.time_ns for message in archive.replay("frames:camera")]
    for name, factor in (("joints", 1.0), ("command", 2.0)):
        payloads = [{"angles": [factor * n, 0.5]} for n in range(12)]
        archive.append(f"log:{name}", payloads, codec="json", times_ns=[time - 1 for time in times])
    marks = [{"event": "start"}, {"event": "start"}]
    archive.append("log:marker", marks, codec="json", times_ns=[times[0] - 1, times[7] - 1])
    penstock.dataset(
        "my-drive", "my-set", align="frames:camera", others=["log:joints", "log:command"], episodes="log:marker"
    )
    (program,) = re.findall(r"```\n(import numpy.*?)```", PAGE.read_text(), re.DOTALL)
    exec(program, {})
    found = lerobot.LeRobotDataset("me/my-robot", root="my-robot")
    assert (found.num_episodes, found.num_frames, found.meta.info["codebase_version"]) == (2, 12, "v3.0")
    for n in range(12):
        row = found[n]
        assert int(row["episode_index"]) == (n >= 7)
        assert row["observation.state"].tolist() == [n, 0.5]
        assert row["action"].tolist() == [2 * n, 0.5]
        assert row["observation.images.camera"].shape == (3, 16, 24)
        assert (row["observation.images.camera"] * 255).round().unique().tolist() == [n * 20]
