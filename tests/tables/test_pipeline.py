"""Tables that only gain rows: each message once in each table, whoever else works on them, and whatever becomes of recordings."""

import json
import shutil
import time

import deltalake
import numpy as np
import polars
import pytest

import penstock
from penstock.tables import keep, pipeline
from penstock.tables.delta import Table
from penstock.tables.folder import Folder, locked
from penstock.tables.places import Place
from penstock.tables.state import Restored

KEY = ["epoch", "position"]


def rows(out, name):
    """A table's rows, by another reader."""
    return polars.read_delta(str(out / name)).sort(KEY)


def fill(archive, channel, first, count, **kwargs):
    archive.append(channel, [{"i": n, "v": n / 2} for n in range(first, first + count)], codec="json", **kwargs)


def removals(out, name):
    """Operations of the commits that removed files."""
    found = []
    for path in sorted((out / name / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        operation = next((one["commitInfo"].get("operation") for one in actions if "commitInfo" in one), "")
        if any("remove" in one for one in actions):
            found.append(operation)
    return found


def is_whole(out, channel, name, count):
    """Both tables have each of the first messages once, under one key."""
    own, all_ = rows(out, f"streams/{name}"), rows(out, "messages").filter(polars.col("stream") == channel)
    assert sorted(own["i"].to_list()) == list(range(count))
    assert own.select(KEY).rows() == all_.select(KEY).rows()
    assert len(set(own.select(KEY).rows())) == count


@pytest.fixture
def out(tmp_path):
    return tmp_path / "tables"


def test_each_message_once_in_any_number_of_runs(archive, out):
    for step in range(5):
        fill(archive, "log:x", step * 100, 100)
        assert pipeline.run(archive.path, out).rows == 100
        assert pipeline.run(archive.path, out).rows == 0
    is_whole(out, "log:x", "log_x", 500)
    assert removals(out, "messages") == removals(out, "streams/log_x") == []


def test_a_purged_and_imported_recording_can_be_told_apart(archive, out):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    archive.purge(1)
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    both = rows(out, "messages")
    assert len(both) == 200
    assert len(set(both.select(["stream", *KEY]).rows())) == 200
    own = rows(out, "streams/log_x")
    assert len(both.join(own, on=KEY)) == 200
    assert both["recording"].n_unique() == 2
    assert both["ingested_at"].n_unique() == 2


WORK = {
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["position"]),
    "vacuum": lambda table: table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True),
    "checkpoint": lambda table: (table.create_checkpoint(), table.cleanup_metadata()),
    "property": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"}),
    "column": lambda table: table.alter.add_columns([deltalake.Field("mine", "string")]),
    "comment": lambda table: table.alter.set_table_description("mine"),
    "update": lambda table: table.update({"decode_error": "'mine'"}, predicate="position < 500"),
}


@pytest.mark.parametrize("name", ["messages", "streams/log_x"])
@pytest.mark.parametrize("work", WORK)
def test_others_may_work_on_a_table(archive, out, work, name):
    for step in range(3):
        fill(archive, "log:x", step * 100, 100)
        pipeline.run(archive.path, out)
    WORK[work](deltalake.DeltaTable(out / name))
    assert pipeline.run(archive.path, out).rows == 0
    fill(archive, "log:x", 300, 100)
    assert pipeline.run(archive.path, out).rows == 100
    is_whole(out, "log:x", "log_x", 400)


@pytest.mark.parametrize("name", ["messages", "streams/log_x"])
@pytest.mark.parametrize("predicate", ["position < 500", None])
def test_rows_that_somebody_deleted_do_not_come_back(archive, out, name, predicate):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / name).delete(predicate)
    left = len(rows(out, name))
    assert left < 100
    fill(archive, "log:x", 100, 10)
    pipeline.run(archive.path, out)
    assert len(rows(out, name)) == left + 10
    other = {"messages": "streams/log_x"}.get(name, "messages")
    assert len(rows(out, other)) == 110


@pytest.mark.parametrize(
    "names", [["messages"], ["streams/log_x"], ["losses"], ["messages", "streams/log_x"], ["streams"]]
)
def test_any_table_may_be_removed_and_is_built_again(archive, out, names):
    for channel in ("log:x", "log:y"):
        fill(archive, channel, 0, 100)
    pipeline.run(archive.path, out)
    for name in names:
        shutil.rmtree(out / name)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 100)
    is_whole(out, "log:y", "log_y", 100)
    assert removals(out, "messages") == []


def test_streams_with_one_folders_name_are_never_mixed(archive, out):
    """Also where the folder has another name than the one that it would get now."""
    fill(archive, "log:a", 0, 50)
    pipeline.run(archive.path, out)
    (out / "streams" / "log_a").rename(out / "streams" / "log_b")
    fill(archive, "log:b", 0, 20)
    fill(archive, "log:a", 50, 10)
    pipeline.run(archive.path, out)
    is_whole(out, "log:a", "log_b", 60)
    is_whole(out, "log:b", "log_b_2", 20)


@pytest.mark.parametrize("name", ["messages", "streams/log_x"])
@pytest.mark.parametrize("way", pipeline.ON_RESTORE)
@pytest.mark.parametrize("how", ["restore", "backup"])
def test_a_table_that_was_set_back_is_told_and_goes_on_as_asked(archive, out, tmp_path, name, way, how):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    shutil.copytree(out / name, tmp_path / "backup")
    version = deltalake.DeltaTable(out / name).version()
    for step in (1, 2):
        fill(archive, "log:x", step * 100, 100)
        pipeline.run(archive.path, out)
    if how == "restore":
        deltalake.DeltaTable(out / name).restore(version)
    else:
        shutil.rmtree(out / name)
        shutil.copytree(tmp_path / "backup", out / name)
    fill(archive, "log:x", 300, 100)
    for _ in range(2):
        with pytest.raises(
            Restored, match=r"was set back.*--restored keep leaves them out, --restored refill reads them"
        ):
            pipeline.run(archive.path, out)
    pipeline.run(archive.path, out, restored=way)
    assert pipeline.run(archive.path, out).rows == 0
    if way == "refill":
        is_whole(out, "log:x", "log_x", 400)
    else:
        assert len(rows(out, name)) == 200
        other = {"messages": "streams/log_x"}.get(name, "messages")
        assert len(rows(out, other)) == 400


def test_rows_behind_a_cut_go_and_nothing_else(archive, out):
    fill(archive, "log:x", 0, 60)
    fill(archive, "log:x", 60, 40)
    fill(archive, "log:y", 0, 100)
    pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / "messages").optimize.compact()
    deltalake.DeltaTable(out / "streams/log_x").optimize.compact()
    found = archive.read(1, columns=("position",)).column("position").to_pylist()
    archive.truncate(1, found[60])
    fill(archive, "log:x", 60, 5)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 65)
    is_whole(out, "log:y", "log_y", 100)
    assert removals(out, "streams/log_x") == ["DELETE"]
    assert removals(out, "streams/log_y") == []


def test_old_files_go_by_their_statistics(archive, out):
    day = 86_400_000_000_000
    now = time.time_ns()
    for age in (40, 20, 0):
        fill(archive, "log:x", 0, 10, times_ns=[now - age * day] * 10)
        fill(archive, "log:y", 0, 10, times_ns=[now - age * day] * 10)
        pipeline.run(archive.path, out)
    pipeline.run(archive.path, out, keep={None: 30 * day, "log:y": 10 * day})
    assert len(rows(out, "streams/log_x")) == 20
    assert len(rows(out, "streams/log_y")) == 10
    assert len(rows(out, "messages")) == 30
    assert pipeline.run(archive.path, out).rows == 0, "what went does not come back"


def test_what_is_erased_is_gone_and_does_not_come_back(archive, out):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    fill(archive, "log:y", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    with locked(out):
        assert keep.erase(Folder(Place.of(out), []), "log:x", 20, 59) == 40
    for removed in (None, "messages", "streams/log_x"):
        if removed is not None:
            shutil.rmtree(out / removed)
        pipeline.run(archive.path, out)
        assert len(rows(out, "streams/log_x")) == 60
        assert len(rows(out, "messages")) == 160
        assert not set(rows(out, "streams/log_x")["timestamp_ns"]) & set(range(20, 60))
    files = [path.name for path in (out / "streams" / "log_x").glob("*.parquet")]
    assert sorted(files) == sorted(file.path for file in Table.open(Place.of(out / "streams/log_x")).files())


def test_losses_are_rows_that_sum_up_exactly(archive, out):
    with penstock.publish("ring:r", capacity=1 << 16) as pub, archive.record("ring:r", extend=False) as recorder:
        for n in range(20_000):
            pub.send(b"%06d" % n)
        while recorder.progress()[0].position < pub.position:
            assert recorder.error is None
    info = archive.list()[0]
    pipeline.run(archive.path, out)
    assert sum(polars.read_delta(str(out / "losses"))["bytes"].to_list()) == info.lost_bytes
    assert pipeline.run(archive.path, out).rows == 0
    assert sum(polars.read_delta(str(out / "losses"))["bytes"].to_list()) == info.lost_bytes


def test_one_odd_value_among_many_rewrites_nothing(archive, out):
    fill(archive, "log:x", 0, 10_000)
    pipeline.run(archive.path, out)
    before = deltalake.DeltaTable(out / "streams/log_x").schema()
    archive.append("log:x", [{"i": "n/a", "v": 2**63}], codec="json")
    pipeline.run(archive.path, out)
    assert deltalake.DeltaTable(out / "streams/log_x").schema() == before
    last = rows(out, "streams/log_x").tail(1).to_dicts()[0]
    assert (last["i"], last["v"], last["_rescued"]) == (None, 2.0**63, '{"i":"n/a"}')
    assert removals(out, "streams/log_x") == []


def test_new_keys_of_many_ranges_get_one_column_each(archive, out):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    for n in range(20):
        archive.append("log:x", [{"i": 100 + n, "v": 0.5, f"k{n % 7}": n if n % 2 else "t"}], codec="json")
        archive.append("log:other", [b"x"])
    pipeline.run(archive.path, out, range_bytes=64)
    own = rows(out, "streams/log_x")
    assert [name for name in own.columns if name.startswith("k")] == [f"k{n}" for n in range(7)]
    for n in range(20):
        row = own.filter(polars.col("i") == 100 + n).to_dicts()[0]
        value = n if n % 2 else "t"
        assert row[f"k{n % 7}"] == value or json.loads(row["_rescued"])[f"k{n % 7}"] == value
    is_whole(out, "log:x", "log_x", 120)


def test_a_schema_is_kept_from_the_first_message_on(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out, schema={"log:x": "v decimal(10,2), later timestamp, i int"})
    schema = deltalake.DeltaTable(out / "streams/log_x").schema()
    assert {field.name: str(field.type.to_json()) for field in schema.fields if field.name in ("v", "later", "i")} == {
        "v": '"decimal(10,2)"',
        "later": '"timestamp"',
        "i": '"integer"',
    }
    with pytest.raises(
        penstock.Invalid, match=r"has the column v as decimal.*build the stream's table anew with --rebuild"
    ):
        pipeline.run(archive.path, out, schema={"log:x": "v double"})
    with pytest.raises(penstock.NotFound, match="the schema names log:z"):
        pipeline.run(archive.path, out, schema={"log:z": "v double"})


def test_a_failed_run_leaves_no_file(archive, out, monkeypatch):
    from penstock.tables import tasks

    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    fill(archive, "log:x", 100, 100)
    fill(archive, "log:y", 0, 100)
    run = tasks.run

    def failing(task):
        if task["range"]["channel"] == "log:y":
            raise penstock.PenstockError("no")
        return run(task)

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "run", failing)
        with pytest.raises(penstock.PenstockError, match="no"):
            pipeline.run(archive.path, out)
    for name in ("messages", "streams/log_x"):
        files = {path.name for path in (out / name).glob("*.parquet")}
        assert files == {file.path for file in Table.open(Place.of(out / name)).files()}
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 200)
    is_whole(out, "log:y", "log_y", 100)


def test_a_delta_reader_can_follow_a_table_for_ever(archive, out):
    """By the files that commits add, as streaming readers do: each row once."""
    seen, version = [], -1
    for step in range(6):
        fill(archive, "log:x", step * 50, 50)
        pipeline.run(archive.path, out)
        if step == 3:
            deltalake.DeltaTable(out / "streams/log_x").optimize.compact()
        table = deltalake.DeltaTable(out / "streams/log_x")
        for number in range(version + 1, table.version() + 1):
            text = (out / "streams/log_x/_delta_log" / f"{number:020d}.json").read_text()
            for action in map(json.loads, text.splitlines()):
                if action.get("add", {}).get("dataChange"):
                    seen += polars.read_parquet(out / "streams/log_x" / action["add"]["path"])["i"].to_list()
                assert not action.get("remove", {}).get("dataChange")
        version = table.version()
    assert seen == list(range(300))


def test_numbers_of_a_dtype_are_what_numpy_reads(archive, out):
    dtype = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S4"), ("d", "<u8"), ("e", [("x", "<f4", (2,))])])
    records = np.zeros(100, dtype)
    records["a"], records["b"], records["d"] = range(100), np.linspace(0, 1, 100), 2**64 - 1
    archive.append("log:d", list(records), codec=dtype)
    pipeline.run(archive.path, out)
    own = rows(out, "streams/log_d")
    assert own["a"].to_list() == records["a"].tolist()
    assert own["b"].to_list() == records["b"].tolist()
    assert [int(value) for value in own["d"].to_list()] == [2**64 - 1] * 100
    assert own["e_x"].to_list() == [[0.0, 0.0]] * 100


def test_tables_of_an_older_layout_are_refused(archive, out):
    fill(archive, "log:x", 0, 1)
    (out / "raw" / "_delta_log").mkdir(parents=True)
    (out / "raw" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    (out / ".lock").touch()
    with pytest.raises(penstock.Invalid, match="tables of an older layout: name another folder"):
        pipeline.run(archive.path, out)
