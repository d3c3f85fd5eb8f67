"""Tables that only gain rows: each message once in each table, whoever else works on them, and whatever becomes of recordings."""

import json
import shutil
import time

import deltalake
import numpy as np
import polars
import pyarrow as pa
import pytest

import penstock
import penstock.tables
from penstock.tables import keep, options, pipeline
from penstock.tables.delta import Table
from penstock.tables.folder import Folder, locked
from penstock.tables.places import Place
from penstock.tables.state import CACHE, Restored

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


def test_a_commit_is_made_beside_another_programs(archive, out):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    table = Table.open(Place.of(out) / "messages")
    mine, theirs = table.state(), deltalake.DeltaTable(out / "messages")
    theirs.alter.set_table_description("theirs")
    theirs.alter.add_columns([deltalake.Field("theirs", "string")])
    table.commit(state=mine)
    deltalake.DeltaTable(out / "messages").delete("position < 64")
    assert table.delete("position < 1000", mine) > 0
    deltalake.DeltaTable(out / "messages").alter.set_table_description("again")
    assert table.delete("position < 1000", mine) == 0
    assert "theirs" in Table.open(Place.of(out) / "messages").schema.names


def test_a_table_made_anew_keeps_nothing_of_a_compaction(archive, out):
    for first in (0, 100):
        fill(archive, "log:x", first, 100)
        pipeline.run(archive.path, out)
    table = Table.open(Place.of(out) / "messages")
    deltalake.DeltaTable(out / "messages").optimize.z_order(["position"])
    table.commit(schema=table.schema, state=table.state(), replaces=True)
    assert Table.open(Place.of(out) / "messages").count() == 0


def test_not_beside_another_pipelines_whatever_it_does(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    place = Place.of(out) / "messages"
    more = Table.open(place).schema.append(pa.field("more", pa.int64()))
    for act in (lambda table: table.commit(state={}, schema=more), lambda table: table.delete("position < 64", {})):
        table, other = Table.open(place), Table.open(place)
        other.commit(state=other.state())
        with pytest.raises(penstock.Busy, match=r"another pipeline|failed"):
            act(table)


def test_an_erasure_takes_files_of_commits_that_failed(archive, out):
    fill(archive, "log:x", 0, 10)
    fill(archive, "log:y", 0, 10)
    pipeline.run(archive.path, out)
    mine = {}
    for name in ("messages", "streams/log_x", "streams/log_y"):
        (path,) = [path for path in (out / name).glob("*.parquet") if "log_y" not in path.name or name != "messages"]
        mine[name] = [path.with_name("part-00000-failed.parquet"), path.with_name("half.parquet")]
        shutil.copy(path, mine[name][0])
        mine[name][1].write_bytes(path.read_bytes()[:100])
    assert keep.erase(out, "log:x") == 10
    left = {name: [path.exists() for path in paths] for name, paths in mine.items()}
    assert left == {"messages": [False, True], "streams/log_x": [False, True], "streams/log_y": [True, True]}


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
@pytest.mark.parametrize("way", options.ON_RESTORE)
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
    pipeline.run(archive.path, out, keep={None: "30d", "log:y": 10 * 86400.0})
    assert len(rows(out, "streams/log_x")) == 20
    assert len(rows(out, "streams/log_y")) == 10
    assert len(rows(out, "messages")) == 30
    assert pipeline.run(archive.path, out).rows == 0, "what went does not come back"


def test_what_is_erased_is_gone_and_does_not_come_back(archive, out):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    fill(archive, "log:y", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    with locked(out):
        assert keep.erase_in(Folder(Place.of(out), []), "log:x", 20, 59) == 40
    for removed in (None, "messages", "streams/log_x"):
        if removed is not None:
            shutil.rmtree(out / removed)
        pipeline.run(archive.path, out)
        assert len(rows(out, "streams/log_x")) == 60
        assert len(rows(out, "messages")) == 160
        assert not set(rows(out, "streams/log_x")["timestamp_ns"]) & set(range(20, 60))
    files = [path.name for path in (out / "streams" / "log_x").glob("*.parquet")]
    assert sorted(files) == sorted(file.path for file in Table.open(Place.of(out / "streams/log_x")).files())


@pytest.mark.parametrize("way", options.ON_RESTORE)
def test_cut_rows_that_a_restore_brings_back_go(archive, out, way):
    fill(archive, "log:x", 0, 60)
    fill(archive, "log:x", 60, 40)
    pipeline.run(archive.path, out)
    names = ["messages", "streams/log_x"]
    versions = [deltalake.DeltaTable(out / name).version() for name in names]
    found = archive.read(1, columns=("position",)).column("position").to_pylist()
    archive.truncate(1, found[60])
    pipeline.run(archive.path, out)
    for name, version in zip(names, versions, strict=True):
        deltalake.DeltaTable(out / name).restore(version)
    pipeline.run(archive.path, out, restored=way)
    is_whole(out, "log:x", "log_x", 60)


@pytest.mark.parametrize("way", options.ON_RESTORE)
def test_erased_rows_that_a_backup_brings_back_go(archive, out, tmp_path, way):
    for part in (range(50), range(50, 100)):
        fill(archive, "log:x", part[0], 50, times_ns=part)
        pipeline.run(archive.path, out)
    shutil.copytree(out / "streams", tmp_path / "backup")
    fill(archive, "log:x", 100, 1, times_ns=[100])
    pipeline.run(archive.path, out)
    keep.erase(out, "log:x", since=20, until=59)
    shutil.rmtree(out / "streams")
    shutil.copytree(tmp_path / "backup", out / "streams")
    pipeline.run(archive.path, out, restored=way)
    assert len(rows(out, "streams/log_x")) == (61 if way == "refill" else 60)
    assert len(rows(out, "messages")) == 61
    for path in (out / "streams" / "log_x").glob("*.parquet"):
        assert not set(polars.read_parquet(path)["timestamp_ns"]) & set(range(20, 60))


def test_an_erasure_that_was_killed_is_finished_by_a_run(archive, out, monkeypatch):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    with monkeypatch.context() as patched:
        patched.setattr(Table, "delete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            keep.erase(out, "log:x", since=20, until=59)
    pipeline.run(archive.path, out)
    assert len(rows(out, "messages")) == len(rows(out, "streams/log_x")) == 60


def test_an_erasure_does_not_hide_that_a_table_was_set_back(archive, out):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    fill(archive, "log:x", 100, 100, times_ns=range(100, 200))
    pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / "messages").restore(0)
    for _ in range(2):
        with pytest.raises(Restored):
            keep.erase(out, "log:x", since=20, until=59)
    pipeline.run(archive.path, out, restored="refill")
    is_whole(out, "log:x", "log_x", 200)


def test_an_erasure_deletes_files_of_killed_runs(archive, out):
    fill(archive, "log:x", 0, 100, times_ns=range(100))
    pipeline.run(archive.path, out)
    folder = Folder(Place.of(out), [])
    token = folder.begin_batch(["messages"])
    left = out / "messages" / f"log_x-{token}-0.parquet"
    shutil.copy(next((out / "messages").glob("*.parquet")), left)
    keep.erase(out, "log:x", since=20, until=59)
    assert not left.exists()


def test_a_refill_that_dies_doubles_nothing(archive, out, monkeypatch):
    """A table's rows and its state change in one commit, however many ranges are read again."""
    for step in range(4):
        fill(archive, "log:x", step * 50, 50)
        archive.append("log:x", [b"\x80"], codec="msgpack", encoded=True)
        pipeline.run(archive.path, out)
    table = deltalake.DeltaTable(out / "messages")
    table.delete("position % 128 = 0")
    table.delete()
    table.restore(table.version() - 1)
    deleted = Table.delete

    def once(self, *given):
        deleted(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Table, "delete", once)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(archive.path, out, restored="refill")
    pipeline.run(archive.path, out, restored="refill")
    found = rows(out, "messages")
    assert len(found) == len(set(found.select(["stream", *KEY]).rows())) == 204


@pytest.mark.parametrize("work", ["compact", "update"])
def test_a_table_is_rebuilt_from_files_that_others_wrote(archive, out, work):
    for step in range(2):
        fill(archive, "log:x", step * 50, 50)
        pipeline.run(archive.path, out)
    WORK[work](deltalake.DeltaTable(out / "messages"))
    pipeline.run(archive.path, out, rebuild=["log:x"])
    is_whole(out, "log:x", "log_x", 100)


def test_a_state_is_written_before_its_rows_are_there(archive, out, monkeypatch):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    fill(archive, "log:x", 100, 100)
    counts, write = [], Place.write

    def counted(self, name, content):
        if name.startswith("state-") and "/messages/" in self.path:
            counts.append(len(rows(out, "messages")))
        write(self, name, content)

    monkeypatch.setattr(Place, "write", counted)
    pipeline.run(archive.path, out)
    assert counts == [100]


def test_losses_of_a_killed_run_leave_no_file(archive, out, monkeypatch):
    with penstock.publish("ring:r", capacity=1 << 16) as pub, archive.record("ring:r", extend=False) as recorder:
        for n in range(20_000):
            pub.send(b"%06d" % n)
        while recorder.progress()[0].position < pub.position:
            assert recorder.error is None
    with monkeypatch.context() as patched:
        patched.setattr("penstock.tables.losses.describe_file", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pipeline.run(archive.path, out)
    pipeline.run(archive.path, out)
    assert len(list((out / "losses").glob("*.parquet"))) == 1


@pytest.mark.parametrize("work", ["compact", "update"])
def test_a_stream_is_read_from_files_that_others_wrote(archive, out, work):
    for step in range(2):
        fill(archive, "log:x", step * 50, 50)
        pipeline.run(archive.path, out)
    for name in ("messages", "streams/log_x"):
        WORK[work](deltalake.DeltaTable(out / name))
    assert penstock.tables.read(out, "log:x").num_rows == 100
    assert penstock.tables.read(out, "messages", stream="log:x").num_rows == 100


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
    table = deltalake.DeltaTable(out / "losses")
    table.delete()
    table.alter.set_table_description("mine")
    table.restore(1)
    for _ in range(2):
        pipeline.run(archive.path, out, restored="refill")
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


@pytest.mark.parametrize("damage", [b"[]", b"null", b"{}", b"7", b"flip", b"\xff"])
def test_a_damaged_cache_costs_no_row(archive, out, damage):
    """It has the positions that were read: one wrong digit of it would leave messages out."""
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    good = (out / CACHE).read_bytes()
    end = str(archive.list()[0].end_position).encode()
    assert end in good
    (out / CACHE).write_bytes(good.replace(end, b"9" + end[1:]) if damage == b"flip" else damage)
    fill(archive, "log:x", 100, 100)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 200)


def test_a_schema_adds_its_columns_without_a_message(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    wanted = options.Options(schema={"log:x": "q double"})
    versions = []
    for _ in range(2):
        with pipeline.Pipeline(archive.path, out, wanted) as open_:
            assert open_.step().rows == 0
        versions.append(deltalake.DeltaTable(out / "streams/log_x").version())
    assert versions[0] == versions[1], "the second run has nothing to add"
    assert rows(out, "streams/log_x")["q"].dtype == polars.Float64
    archive.append("log:x", [{"i": 10, "v": 5.0, "q": 1}], codec="json")
    pipeline.run(archive.path, out)
    assert rows(out, "streams/log_x")["q"].to_list() == [None] * 10 + [1.0], "no later message chooses the type"


@pytest.mark.parametrize("place", ["", "tables", "recordings/00000001"])
def test_a_folder_of_the_archive_is_no_place_for_tables(archive, tmp_path, place):
    archive.append("log:x", [{"a": 1}], codec="json")
    before = sorted(archive.path.rglob("*"))
    (tmp_path / "link").symlink_to(archive.path)
    with pytest.raises(penstock.Invalid, match=r"is in the archive .*: give a folder beside it"):
        pipeline.run(archive.path, tmp_path / "link" / place)
    assert sorted(archive.path.rglob("*")) == before


@pytest.mark.parametrize("name", ["a%20b", "[x]", "a\\b", "a\nb", "a|b"])
def test_a_place_that_delta_mistakes_is_refused(archive, tmp_path, name):
    """delta-rs took `a%20b` for the folder `a b`, whose tables are others."""
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, tmp_path / "a b")
    (tmp_path / "link").symlink_to(tmp_path / name)
    for place in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(
            penstock.Invalid, match=r"the folder of tables is .*: no Delta table can be in a folder with"
        ):
            pipeline.run(archive.path, place)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["a b", "50%", "ü日本", "a#b?c&d", "a'b", "$x", "{x}*"])
def test_any_other_place_holds_tables(archive, tmp_path, name):
    for step in range(2):
        fill(archive, "log:x", step * 10, 10)
        pipeline.run(archive.path, tmp_path / name)
    assert sorted(penstock.tables.read(tmp_path / name, "log:x")["i"].to_pylist()) == list(range(20))


def test_a_folder_is_one_consumer_by_any_path(archive, out, tmp_path):
    """A second ledger would be left behind, and would keep messages from a purge for ever."""
    (tmp_path / "link").symlink_to(out)
    for step, place in enumerate([out, tmp_path / "link", tmp_path / "x" / ".." / out.name]):
        fill(archive, "log:x", step * 10, 10)
        pipeline.run(archive.path, place)
    assert len(archive.consumers()) == 1
    is_whole(out, "log:x", "log_x", 30)
