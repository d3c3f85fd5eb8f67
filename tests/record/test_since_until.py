"""A `since` that is later than `until` is refused, wherever both are taken: nothing is in between, and one of them is wrong."""

import subprocess
import sys

import pytest

from penstock import errors
from penstock.export import export
from penstock.export.mcap import export_mcap, import_mcap
from penstock.record import plan

LATE, EARLY = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"
CALLS = {
    "scan": lambda a, out, **o: list(a.scan(1, **o)),
    "read": lambda a, out, **o: a.read(1, **o),
    "replay": lambda a, out, **o: list(a.replay(1, **o)),
    "replay_onto": lambda a, out, **o: a.replay_onto(1, "ring:x", **o),
    "play": lambda a, out, **o: a.play(onto="again/", **o),
    "Range.scan": lambda a, out, **o: list(plan(a)[0].scan(["position"], **o)),
    "export": lambda a, out, **o: export(a.path, out, **o),
    "export_mcap": lambda a, out, **o: export_mcap(a.path, out, **o),
    "import_mcap": lambda a, out, **o: import_mcap(out, a.path / "f.mcap", **o),
}


@pytest.fixture
def held(archive):
    archive.append("log:a", [b"x"] * 3)
    export_mcap(archive.path, archive.path / "f.mcap")
    return archive


@pytest.mark.parametrize("name", CALLS)
def test_a_call_refuses_since_later_than_until(held, tmp_path, name):
    with pytest.raises(errors.Invalid, match="since is later than until"):
        CALLS[name](held, tmp_path / "out", since=LATE, until=EARLY)
    assert not (tmp_path / "out").exists()
    CALLS[name](held, tmp_path / "out", since=EARLY, until=EARLY)  # a moment is a span


def test_the_spark_source_refuses_since_later_than_until(held):
    from penstock.spark.source.options import Request

    with pytest.raises(errors.Invalid, match="since is later than until"):
        Request.of({"path": str(held.path), "since": LATE, "until": EARLY})


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "{a}", "1"],
        ["export", "{a}", "{out}", "--csv"],
        ["export", "{a}", "{out}.mcap", "--mcap"],
        ["import", "{out}", "{a}/f.mcap"],
        ["play", "{a}", "--onto", "again/"],
    ],
)
def test_a_command_refuses_since_later_than_until(held, tmp_path, words):
    words = [word.format(a=held.path, out=tmp_path / "out") for word in words]
    command = [sys.executable, "-m", "penstock", *words, "--since", LATE, "--until", EARLY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "since is later than until" in done.stderr
    assert not (tmp_path / "out").exists()
