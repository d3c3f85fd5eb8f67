"""`penstock pipeline --engine local` and `penstock erase`: each option does what it says, and each mistake is one line."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import deltalake
import numpy as np
import polars
import pytest
from cli import running
from conftest import heed_interrupts

from penstock.tables import reading

COUNT = 100
PATIENCE = 60
DAY = 86_400 * 10**9
LOCAL = ("--engine", "local")
COMMAND = (sys.executable, "-m", "penstock")


@pytest.fixture
def run(tmp_path):
    """Calls the command in this process, in the folder of the archive."""
    return lambda *arguments: running.here(*arguments, folder=tmp_path)


@pytest.fixture
def build(run):
    """Brings the tables up to date; the outcome as it is printed."""

    def build(*options):
        done = run("pipeline", "archive", "--out", "t", *LOCAL, "--json", *options)
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)

    return build


@pytest.fixture
def out(tmp_path):
    return tmp_path / "t"


def fill(archive, first=0, count=COUNT, channel="log:x", **more):
    archive.append(channel, [{"i": n, **more} for n in range(first, first + count)], codec="json")


def rows(out, name="streams/log_x"):
    """A table's rows in their order, by another reader."""
    return polars.read_delta(str(out / name)).sort("epoch", "position")


def refused(done, said):
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("penstock: ")
    assert len(done.err.splitlines()) == 1
    assert said in done.err


# ---- columns ----


def test_columns_have_the_types_that_are_declared(archive, build, out, tmp_path):
    archive.append("log:x", [{"i": 1, "at": "2026-01-31T12:00:00Z"}, {"i": 2.5, "at": "soon"}], codec="json")
    fill(archive, channel="log:y")
    (tmp_path / "columns").write_text("\ufeff# of the cars\n\nlog:x=i float, at timestamp_ltz\n")
    build("--schema", "@columns", "--schema", "log:y=i string")
    found = rows(out)
    assert found["i"].to_list() == [1.0, 2.5]
    assert found.schema["i"] == polars.Float32
    assert [str(at) for at in found["at"]] == ["2026-01-31 12:00:00+00:00", "None"]
    assert [json.loads(text or "null") for text in found["_rescued"]] == [None, {"at": "soon"}]
    assert rows(out, "streams/log_y")["i"].null_count() == COUNT
    assert json.loads(rows(out, "streams/log_y")["_rescued"][7]) == {"i": 7}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--schema", "log:x"], "--schema is 'log:x': write STREAM=DDL"),
        (["--schema", "log:x=i nonsense"], "the schema of log:x: "),
        (["--schema", "log:x=i int", "--schema", "log:x=i string"], "--schema names log:x twice"),
        (["--schema", "log:none=i int"], "the schema names log:none, and the archive has no such stream"),
        (["--schema", "@none"], "--schema @none: No such file"),
        (["--schema", "@binary"], "--schema @binary: 'utf-8' codec"),
        (["--schema", "log:n=n string"], "the schema says that n of log:n is string; its codec says bigint"),
        (["--new-keys", "widen"], "it must be add, rescue, fail"),
        (["--keep", "soon"], "--keep is 'soon'"),
        (["--keep", "log:x=-1d"], "--keep is '-1d'"),
        (["--keep", "1d", "--keep", "2d"], "--keep is given twice for all streams"),
        (["--keep", "log:x=1d", "--keep", "log:x=2d"], "--keep is given twice for log:x"),
        (["--rebuild", "log:none"], "t has no table of log:none to rebuild"),
        (["--restored", "back"], "it must be keep or refill"),
        (["--every", "0"], "--every is '0': it must be more than 0; --follow continues"),
        (["--engine", "flink"], "there are spark, local"),
        (["--conf", "spark.ui.enabled=true"], "--conf is Spark's"),
        (["--master", "local[2]"], "--master is Spark's"),
        (["--engine", "spark", "--conf", "spark.ui.enabled"], "--conf is 'spark.ui.enabled': write KEY=VALUE"),
        (["--engine", "spark", "--conf", "a=1", "--conf", "a=2"], "--conf names a twice"),
        (["--optimize", "--schema", "log:x=i int"], "--optimize"),
    ],
)
def test_a_wrong_option_is_one_line(archive, run, tmp_path, options, said):
    fill(archive, count=1)
    archive.append("log:n", [(1,)], codec=np.dtype([("n", "u4")]))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    refused(run("pipeline", *(() if "--optimize" in options else ("archive",)), "--out", "t", *LOCAL, *options), said)
    assert not reading.names(tmp_path / "t")


def test_a_type_changes_only_by_a_rebuild(archive, run, build, out):
    fill(archive)
    build()
    wrong = ("--schema", "log:x=i string")
    refused(run("pipeline", "archive", "--out", "t", *LOCAL, *wrong), "log:x has the column i as bigint")
    before = rows(out, "messages")
    assert build("--schema", "log:x=i double", "--rebuild", "log:x")["rows"] == 0
    assert rows(out)["i"].to_list() == [float(n) for n in range(COUNT)]
    assert rows(out).select("epoch", "position").equals(before.select("epoch", "position"))
    fill(archive, COUNT)
    build()
    assert rows(out)["i"].to_list() == [float(n) for n in range(2 * COUNT)]
    assert rows(out, "messages").height == 2 * COUNT


def test_new_keys_make_columns_or_are_rescued(archive, build, out):
    fill(archive, count=2)
    build()
    fill(archive, 2, 2, one=[1])
    build("--new-keys", "rescue")
    assert "one" not in rows(out).columns
    fill(archive, 4, 2, two=2)
    build("--new-keys", "add")
    found = rows(out)
    assert found["i"].to_list() == list(range(6))
    assert found["two"].to_list() == [None] * 4 + [2, 2]
    assert [json.loads(text or "null") for text in found["_rescued"]] == [None] * 2 + [{"one": [1]}] * 2 + [None] * 2


def test_a_new_key_can_leave_its_stream_out(archive, run, build, out):
    fill(archive)
    fill(archive, channel="log:y")
    build()
    fill(archive, COUNT, new=1)
    fill(archive, COUNT, channel="log:y")
    done = run("pipeline", "archive", "--out", "t", *LOCAL, "--new-keys", "fail")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith("penstock: log:x: ")
    assert done.err.splitlines()[-1].endswith("; all else is in the tables")
    assert "new" in done.err
    assert rows(out).height == COUNT
    assert rows(out, "streams/log_y").height == 2 * COUNT
    build("--new-keys", "add")
    assert rows(out)["i"].to_list() == list(range(2 * COUNT))


def test_a_thousand_new_keys_and_one_of_300_letters(archive, build, out):
    """A table has a thousand columns of keys at most; the other keys' values are rescued."""
    fill(archive, count=1)
    build()
    names = ["ä" * 300] + [f"k{number}" for number in range(1000)]
    archive.append("log:x", [{name: number} for number, name in enumerate(names)], codec="json")
    build()
    found = rows(out)
    (long,) = (name for name in found.columns if name.startswith("ä"))  # a column's name is shorter than that
    assert len(long) < 300
    found = found.rename({long: names[0]})
    assert found["i"].to_list() == [0] + [None] * len(names)
    there = [name for name in names if name in found.columns]
    assert there == names[:999]
    values = found.select(there).with_columns(polars.all().is_not_null().name.suffix("?"))
    for number, name in enumerate(there):
        assert (values[name][number + 1], values[f"{name}?"].sum()) == (number, 1)
    rescued = {at: json.loads(text) for at, text in enumerate(found["_rescued"]) if text is not None}
    assert rescued == {number + 1: {names[number]: number} for number in (999, 1000)}


# ---- rows that go ----


def test_old_rows_are_dropped_and_do_not_come_back(archive, build, out):
    now = time.time_ns()
    for channel in ("log:x", "log:y"):
        for age in (20, 5, 0):  # days; each is a file of its own
            archive.append(channel, [{"age": age}] * 10, codec="json", times_ns=[now - age * DAY] * 10)
            build()
    keep = ("--keep", "log:y=10d", "--keep", "2d")
    for _ in range(2):
        build(*keep)
        assert rows(out)["age"].unique().to_list() == [0]
        assert sorted(rows(out, "streams/log_y")["age"].unique()) == [0, 5]
        assert rows(out, "messages").group_by("stream").len().sort("stream").rows() == [("log:x", 10), ("log:y", 20)]


def test_erased_rows_are_gone_for_good(archive, run, build, out):
    archive.append("log:x", [{"i": n} for n in range(COUNT)], codec="json", times_ns=range(10**9, 10**9 + COUNT))
    fill(archive, channel="log:y")
    build()
    done = run("erase", "t", "log:x", "--until", "@1.00000001", "--json")
    assert (done.status, json.loads(done.out)) == (0, {"messages": 11})
    done = run("erase", "t", "log:y")
    assert (done.status, done.out) == (
        0,
        "100 messages erased from the tables in t; no run brings them back\n",
    )
    fill(archive, COUNT)
    build()
    assert rows(out)["i"].to_list() == list(range(11, 2 * COUNT))
    assert rows(out, "streams/log_y").height == 0
    assert rows(out, "messages")["stream"].unique().to_list() == ["log:x"]
    for table in ("messages", "streams/log_x"):  # nor are they in a file that no version has
        there = [polars.read_parquet(path) for path in (out / table).glob("*.parquet")]
        assert sum(len(one) for one in there) == 2 * COUNT - 11
    refused(run("erase", "t"), "name a stream, or a span of time")
    refused(run("erase", "t", "log:none"), "t has no stream log:none")
    refused(run("erase", "none", "log:x"), "none holds no tables")
    refused(run("erase", "t", "log:x", "--since", "soon"), "--since is 'soon'")


@pytest.mark.parametrize("choice", ["keep", "refill"])
def test_a_restored_table_waits_for_its_users_word(archive, run, build, out, choice):
    for step in range(2):
        fill(archive, step * COUNT)
        build()
    deltalake.DeltaTable(out / "streams/log_x").restore(0)
    fill(archive, 2 * COUNT)
    for _ in range(2):
        refused(run("pipeline", "archive", "--out", "t", *LOCAL), "t/streams/log_x was set back: ")
    build("--restored", choice)
    assert build()["rows"] == 0
    assert rows(out, "messages").height == 3 * COUNT
    gone = range(COUNT, 2 * COUNT) if choice == "keep" else ()
    assert rows(out)["i"].to_list() == [n for n in range(3 * COUNT) if n not in gone]


# ---- folders ----


def test_a_folder_of_something_else_is_refused(archive, run, tmp_path):
    fill(archive)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    (tmp_path / "old" / "raw" / "_delta_log").mkdir(parents=True)
    (tmp_path / "old" / "raw" / "_delta_log" / f"{0:020d}.json").write_text("{}")
    (tmp_path / "old" / ".lock").touch()
    refused(run("pipeline", "archive", "--out", "mine", *LOCAL), "mine holds other files (notes)")
    said = f"penstock pipeline ARCHIVE --out {tmp_path}/old-new"
    refused(run("pipeline", "archive", "--out", "old", *LOCAL), said)
    refused(run("pipeline", "archive", "--out", "archive", *LOCAL), "is in the archive")
    assert os.listdir(tmp_path / "mine") == ["notes"]
    assert archive.consumers() == [], "what is refused keeps no message from a purge"
    assert run("pipeline", "archive", "--out", "old-new", *LOCAL).status == 0
    assert rows(tmp_path / "old-new")["i"].to_list() == list(range(COUNT))


# ---- going on ----


def following(tmp_path, *options):
    return subprocess.Popen(
        [*COMMAND, "pipeline", "archive", "--out", "t", *LOCAL, "--json", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "number", "status"),
    [
        (("--follow",), signal.SIGINT, 0),
        (("--every", "10ms"), signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_it_follows_until_a_signal(archive, out, tmp_path, option, number, status):
    """Small files are joined, and rows are erased from the disk's past, while it goes on."""
    fill(archive)
    child = following(tmp_path, *option)
    for step in range(1, 7):
        assert select.select([child.stdout], [], [], PATIENCE)[0], "it does not see what was appended"
        assert json.loads(child.stdout.readline())["rows"] == COUNT
        if step == 4:
            done = running.here("pipeline", "--out", "t", "--optimize", "--json", folder=tmp_path)
            assert (done.status, done.err) == (0, "")
            found = json.loads(done.out)
            assert found["files_before"] >= 8 > found["files_after"]
            refused(running.here("pipeline", "archive", "--out", "t", *LOCAL, folder=tmp_path), "another pipeline is")
            refused(running.here("erase", "t", "log:x", folder=tmp_path), "another pipeline is writing")
        if step < 6:
            fill(archive, step * COUNT)
    child.send_signal(number)
    said, complaints = child.communicate(timeout=PATIENCE)
    assert (child.returncode, complaints) == (status, "")
    assert sum(json.loads(line)["rows"] for line in said.splitlines()) in (0, 6 * COUNT)
    assert rows(out)["i"].to_list() == list(range(6 * COUNT))
    assert rows(out, "messages").height == 6 * COUNT
