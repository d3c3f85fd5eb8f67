"""The room of `evidence/network_room`: a slice of its histories, and its oracle, which must notice what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import sized

from evidence.joins import joins
from evidence.network_room import drawn, why_not
from evidence.network_room.oracle import Judge, Sent, framed
from evidence.network_room.plan import MTU
from evidence.network_room.programs import body

ROOT = Path(__file__).parents[2]
HISTORIES = sized(6, 24, 50_000)
JOINS = sized(6, 20, 100_000)
LONGEST = 300


@pytest.mark.slow
def test_histories_of_a_hostile_network_keep_promises(rng, tally):
    if reason := why_not():
        pytest.skip(reason)
    seed = rng.randrange(1 << 30)
    command = [sys.executable, "-m", "evidence.network_room", "--seed", f"{seed}", "--histories", f"{HISTORIES}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{HISTORIES} histories, 0 failed", done.stdout, re.MULTILINE), done.stdout
    tally("histories of three machines", HISTORIES)


@pytest.mark.slow
def test_joins_of_archives_and_streams_lose_nothing(rng, tally):
    row = joins(count=JOINS, seed=rng.randrange(1 << 30))
    assert row.failures == 0, row.failure
    tally("joins of an archive and a stream", JOINS)


def test_a_seed_is_a_plan():
    assert [drawn(seed) for seed in range(50)] == [drawn(seed) for seed in range(50)]
    assert {trouble.what for seed in range(300) for trouble in drawn(seed).troubles} == {
        *("cut", "rough", "short", "pause", "kill", "power", "move")
    }


def lived(numbers, lost=0, end="end", closing=9.0, acked=0):
    """A publisher that sent ten messages, and what a reader says of them."""
    ends, position = [], 0
    for number in range(10):
        position += framed(len(body(0, number, LONGEST)), MTU)
        ends.append(position)
    sent = Sent(session=5, opened=2.0, ready=3.0, closing=closing, acked=acked, ends=ends, longest=LONGEST)
    lines = [[1.0, "open"], [3.5, "session", 5, 0]]
    lines += [[4.0, "got", 0, number, 5, ends[number - 1] if number else 0, 0] for number in numbers]
    lines += [[10.0, end, lost], [11.0, "stopped", lost]]
    judge = Judge({0: sent}, MTU)
    judge.reader("reader", lines, killed=False, acked=True, whole=False, archived=False)
    return judge.problems


SIZE_OF_4 = framed(len(body(0, 4, LONGEST)), MTU)


def test_the_oracle_accepts_what_is_promised():
    assert lived(range(10)) == []
    assert lived([0, 1, 2, 3, 5, 6, 7, 8, 9], lost=SIZE_OF_4) == []
    assert lived(range(8), end="silent") == []


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (lived([*range(10), 9]), "again, or behind"),
        (lived([0, 2, 1, *range(3, 10)]), "again, or behind"),
        (lived([0, 1, 2, 3, 5, 6, 7, 8, 9]), "0 bytes lost, by its count"),
        (lived([0, 1, 2, 3, 5, 6, 7, 8, 9], lost=SIZE_OF_4 + 32), "bytes lost, by its count"),
        (lived(range(10), lost=32), "32 bytes lost, by its count; 0 to 0"),
        (lived(range(9)), "0 bytes lost, by its count"),
        (lived(range(1, 10)), "0 bytes lost, by its count"),
        (lived(range(10), closing=None), "had not closed"),
        (lived(range(10), closing=10.5), "had not closed"),
        (lived(range(5), end="silent", acked=1 << 20), "was acknowledged, and not read"),
    ],
)
def test_the_oracle_notices(what, problem):
    assert any(problem in one for one in what), what
