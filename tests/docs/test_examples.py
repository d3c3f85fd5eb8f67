"""Every example runs, and prints what it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
ELSEWHERE = {
    "read_tables",
    "spark_stream",
}  # they need tables, or Spark: tests/decoder/test_commits.py, tests/spark/test_writing.py
EXAMPLES = [path for path in EXAMPLES if path.stem not in ELSEWHERE]
SAID = {
    "hello": "{'text': 'hello'}",
    "two_processes": "499500",
    "arrays": "7.0",
    "many_sensors": "30",
    "frames": "10 99.0 {'gain': 9.9}",
    "ring": "49999 0 50000 49999",
    "jobs": r"20000 jobs, \d+ workers killed, 0 missing, \d+ redelivered",
    "one_word": r"(received \(4, 3\) of \d from position \d+\n){1,5}\S+:\S+: 5 messages, \d+ bytes of stream",
    "eight_processes": r"(worker-\d (joined|left after \d+ messages)\s*)*",
    "dashboard": r"(\{'rows': [1-9]\d*, 'mean': -?\d\.\d+, 'swing': \d\.\d+, 'speeds': [1-9]\d*\}\s?){5}",
    "shared_tables": r"(pipeline: 1000 new messages\n){3}delta-rs: 3 files are one\ndelta-rs: 300 rows deleted\ndelta-rs: 4 files vacuumed\n"
    r"pipeline: 1000 new messages\npipeline: 0 new messages\n(.+: \(3700, 7549500, 3774750.0\)\n?){5}",
    "udp_failover": r"after 20000 messages: kill -9 .*\nafter 40000 messages: kill -9 .*\nthe survivor has all 60000 .*: True",
}
ARGUMENTS = {"jobs": ["20000", "3", "1"], "udp_failover": ["udp://127.0.0.1:PORT/7"]}
LONGEST = 600  # seconds: only a hang takes so long


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path):
    arguments = [one.replace("PORT", str(free_port())) for one in ARGUMENTS.get(path.stem, [])]
    done = subprocess.run(
        [sys.executable, "-W", "error", path, *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = SAID[path.stem]
    assert done.stdout.strip() == said or re.fullmatch(said, done.stdout.strip())


@pytest.mark.slow
def test_black_box_tells_the_whole_story(tmp_path, channel_folder):
    """A robot of six programs is killed and opened as MCAP and as a table; a deadlock is explained. Nothing is left but the files."""
    done = subprocess.run(
        [sys.executable, "-W", "error", Path(__file__).parents[2] / "examples" / "blackbox"],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    story = r"""six programs were killed at once; the black box has written
  frames:robot/camera: [1-9]\d* messages, 0 bytes lost
  log:robot/battery: [1-9]\d\d+ messages, 0 bytes lost
  log:robot/imu: [1-9]\d\d+ messages, 0 bytes lost
  log:robot/plan: [1-9]\d\d+ messages, 0 bytes lost
  log:robot/wheels: [1-9]\d\d+ messages, 0 bytes lost
  ring:robot/lidar: [1-9]\d\d+ messages, \d+ bytes lost
because a program died; \d processes had its channels open
damage: none
robot.mcap, for Foxglove: [1-9]\d\d+ messages
as a table: [1-9]\d\d+ rows, with gyro and acc; the last turn was [+-]\d\.\d\d rad/s
the last plan: \{"turn": -?\d\.\d+\}

(.*waits for messages of log:.*\n){4}deadlock of 3 processes: .*"""
    assert re.fullmatch(story, done.stdout.strip()), done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["black-box", "robot.mcap"]
    assert not list(channel_folder.glob("*@*"))


@pytest.mark.slow
def test_the_living_write_on_when_three_of_eight_are_killed():
    path = next(path for path in EXAMPLES if path.stem == "eight_processes")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LONGEST, check=True)
    left = [int(count) for count in re.findall(r"left after (\d+) messages", done.stdout)]
    assert len(left) == 8
    assert sum(count == 5000 for count in left) >= 5
