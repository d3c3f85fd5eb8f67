"""Every example runs, and prints what it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    "udp_failover": r"after 20000 messages: kill -9 .*\nafter 40000 messages: kill -9 .*\nthe survivor has all 60000 .*: True",
}
ARGUMENTS = {"jobs": ["20000", "3", "1"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", path, *ARGUMENTS.get(path.stem, [])],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = SAID[path.stem]
    assert done.stdout.strip() == said or re.fullmatch(said, done.stdout.strip())


def test_the_living_write_on_when_three_of_eight_are_killed():
    path = next(path for path in EXAMPLES if path.stem == "eight_processes")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=True)
    left = [int(count) for count in re.findall(r"left after (\d+) messages", done.stdout)]
    assert len(left) == 8
    assert sum(count == 5000 for count in left) >= 5
