"""Any call of the command: any arguments, environment, channels, archives and outputs. It always ends as it promises."""

import datetime
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli import calls, running
from conftest import sized
from hypothesis import HealthCheck, Phase, given, seed, settings

import penstock

SEED = int(os.environ.get("PENSTOCK_SEED") or np.random.SeedSequence().entropy % (1 << 32))
IN_PROCESS = sized(150, 500, 12_000)  # about a third of what Hypothesis makes are calls that it has not made before
PROCESSES = sized(5, 15, 900)
ARCHIVES = (
    "good",
    "Q[red]Z :camera:",
    "Q[/b]Z",
    "empty",
    "flipped",
    "cut",
    "undescribed",
    "catalog",
    "strays",
    "missing",
)
WEIGHTS = {
    "sub": 5,
    "replay": 5,
    "ls": 4,
    "doctor": 1,
    "pipeline": 2,
    "bench": 1,
    "demo": 1,
    "remove": 1,
}  # these take longest, or do least


def channels_in(folder: Path) -> None:
    """Channels of every kind, with messages that are hard to print."""
    small = {"term_length": 1 << 16}
    with penstock.publish("log:x", **small) as pub:
        for text in (b"one", "ä [red]:camera:".encode(), b"\xff\xfe", b"", b"\x1b[31m"):
            pub.send(text)
    with penstock.publish("log:j", codec="json", **small) as pub:
        for value in ({"a": [1.5, None, "Q[red]Z"]}, float(2**70), "\u2028", [[[[]]]]):
            pub.send(value)
    with penstock.publish("log:m", codec="msgpack", **small) as pub:
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        for value in (
            {b"k": 1, "k": 2},
            now,
            {1: float("nan")},
            float("-inf"),
            b"\xff",
            {None: [now]},
            {"d": {b"\xff": now}},
        ):
            pub.send(value)
    fields = [("t", "M8[ns]"), ("d", "m8[ms]"), ("z", "c16"), ("f", "f4", (2,)), ("u", "U3"), ("b", "S3"), ("n", "f8")]
    with penstock.publish("log:s", codec=np.dtype(fields), **small) as pub:
        record = np.zeros((), fields)
        record["t"], record["d"], record["z"] = np.datetime64("2026-01-01"), np.timedelta64(5, "ms"), 1 + 2j
        record["u"], record["f"], record["n"] = ":x:", (np.nan, np.inf), -np.inf
        pub.send(record)
        record["t"], record["d"] = np.datetime64("NaT", "s"), np.timedelta64("NaT", "s")
        pub.send(record)
    with penstock.publish("log:z", codec=penstock.array("c8", (-1,)), **small) as pub:
        pub.send(np.array([1j, np.nan], "c8"))
    penstock.publish("ring:r", capacity=1 << 16).close()
    with penstock.join("sync:s", name="Q[red]Z", capacity=1 << 16) as queue:
        queue.send(b"x", type=":camera:")
    penstock.publish("pipe:p", capacity=1 << 16, max_pipes=2).close()
    with penstock.publish("frames:f", shape=(2,), buffers=2), penstock.publish("frames:f/a", shape=(2,), buffers=2):
        pass


def archives_in(folder: Path) -> None:
    """Archives in every state, and files for --npz and --file."""
    archive = penstock.Archive(folder / "good")
    with archive.record(["log:x", "log:j", "log:m", "log:s", "log:z"], start="earliest"):
        pass
    for name in ARCHIVES[1:3] + ARCHIVES[4:9]:
        shutil.copytree(folder / "good", folder / name)
    (folder / "empty" / "recordings").mkdir(parents=True)
    first = next((folder / "flipped" / "recordings" / "00000001").glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[40] ^= 8
    first.write_bytes(data)
    index = next((folder / "cut" / "recordings" / "00000002").glob("*.idx"))
    os.truncate(index, index.stat().st_size - 10)
    (folder / "undescribed" / "recordings" / "00000001" / "recording.json").write_text("{[red]")
    for path in (folder / "catalog").glob("catalog.sqlite*"):
        path.write_bytes(b"no catalog" * 1000)
    (folder / "strays" / "recordings" / "00000777").mkdir()
    (folder / "strays" / "recordings" / "888").write_text("")
    (folder / "lines").write_bytes(running.LINES["lines"])
    np.savez(folder / "arrays.npz", t=np.array([0, 0.01, np.nan]), x=np.arange(6.0).reshape(3, 2))
    np.savez(folder / "dates.npz", t=np.array(["2026-01-01", "2026-01-02"], "M8[s]"), z=np.array([1j, 2]))
    np.savez(folder / "empty.npz")
    np.savez(folder / "pickle.npz", t=np.array([None, {}], object))
    np.save(folder / "one.npy", np.arange(3))
    (folder / "broken.npz").write_bytes((folder / "arrays.npz").read_bytes()[:-30])


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """(folder of archives and files, folder of channels) to copy for each call."""
    folder = tmp_path_factory.mktemp("any") / "templates"
    folder.mkdir()
    channels = Path(
        tempfile.mkdtemp(prefix="penstock-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_DIR", str(channels))
        channels_in(channels)
        archives_in(folder)
    yield folder, channels
    shutil.rmtree(channels, ignore_errors=True)


COMMON = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.generate,) if os.environ.get("PENSTOCK_PLANT") else (Phase.generate, Phase.shrink),
}


def check(templates, call, way) -> None:
    """One call, made and judged."""
    case = running.Case(*templates, call)
    try:
        outcome = way(case)
        running.judge(case, outcome)
    finally:
        case.remove()
    if call.stdout == "full" and outcome.status == 0:  # then it had nothing to print
        case = running.Case(*templates, replace(call, stdout="file"))
        try:
            assert way(case).out == "", f"{call}: its output was lost without an error"
        finally:
            case.remove()


@pytest.mark.slow
def test_any_call_in_this_process(templates, tally):
    made: set[str] = set()

    @seed(SEED)
    @settings(max_examples=IN_PROCESS, **COMMON)
    @given(calls.calls(ARCHIVES, WEIGHTS))
    def any_call(call):
        if repr(call) not in made:
            check(templates, call, running.in_process)
            made.add(repr(call))

    print(f"PENSTOCK_SEED={SEED}")
    any_call()
    tally("calls made", len(made))


def test_any_call_as_a_process(templates, tally):
    made: set[str] = set()

    @seed(SEED + 1)
    @settings(max_examples=PROCESSES, **COMMON)
    @given(calls.calls(ARCHIVES, WEIGHTS))
    def any_call(call):
        if repr(call) not in made:
            check(templates, call, running.as_process)
            made.add(repr(call))

    print(f"PENSTOCK_SEED={SEED}")
    any_call()
    tally("calls made as processes", len(made))


def test_every_command_is_called(templates, tally):
    """The arguments come from the app: a command that is added is called from then on."""
    assert {"ls", "rm", "pub", "sub", "record", "replay", "pipeline", "doctor"} <= set(calls.COMMANDS)
    for command in calls.COMMANDS:
        plain = {"PENSTOCK_DIR": "channels"}
        call = calls.Call(command, [command, "--help"], plain, "ascii", "closed", "file", "file", "INT")
        check(templates, call, running.in_process)
    tally("commands", len(calls.COMMANDS))
