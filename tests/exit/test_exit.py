"""The end of the interpreter, whatever it still has open: an ordinary status, nothing on standard error, no slot left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONG

KINDS = (
    "log",
    "ring",
    "frames",
    "sync",
    "pipe",
    "pair",
    "dealer",
    "request",
    "fake",
    "mailbox",
    "thread pipe",
    "udp",
    "zmq",
)
STATES = ("open", "watched", "watched and busy", "awaited", "cancelled", "waited for", "selected", "lent", "claimed")
MISSING = {  # states that a kind does not have
    "lent": ("pair", "dealer", "request", "mailbox", "thread pipe"),
    "claimed": ("pair", "dealer", "request", "mailbox", "thread pipe"),
    "watched and busy": ("request", "pair", "dealer"),  # these wait for an answer, or for their one reader
    "awaited": ("request", "frames"),
}
ENDINGS = ("exit in a thread", "os._exit", "raise", "signal")
TIMES = 200 if LONG else 12 if os.environ.get("PENSTOCK_PLANT") else 2  # a bug that shows now and then is hunted longer
PROGRAM = Path(__file__).parent / "endings.py"


def run(kind, times, pairs):
    """The ends that were not as they should be: [state, ending, status, what it said]."""
    if kind == "zmq":
        pytest.importorskip("zmq")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(times), *pairs],
        capture_output=True,
        text=True,
        timeout=1200,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_interpreter_ends_with_handles_in_every_state(kind, tally):
    pairs = [f"{state}/return" for state in STATES if kind not in MISSING.get(state, ())]
    assert run(kind, TIMES, pairs) == []
    tally("ends of the interpreter", TIMES * len(pairs))


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_in_other_ways_too(kind, tally):
    pairs = [f"{state}/{ending}" for ending in ENDINGS for state in ("watched", "waited for")]
    times = max(1, TIMES // 4)
    assert run(kind, times, pairs) == []
    tally("ends of the interpreter", times * len(pairs))
