"""Other programs may work on the tables, remove them or set them back."""

import contextlib
import json
import shutil

import deltalake
import polars
import pyarrow as pa
import pytest

import penstock
import penstock.spark.queries
import penstock.tables
from penstock.tables import options, pipeline
from penstock.tables.delta.files import Added
from penstock.tables.delta.places import Place
from penstock.tables.delta.rules import check_rules
from penstock.tables.delta.table import Table
from penstock.tables.folder.state import Restored
from tests.tables.tables_read import fill, is_whole, removals, rows


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


def clean_log(table, folder):
    """Leaves of the log what Delta's own cleaning leaves: a checkpoint, and the newest commit."""
    table.alter.set_table_description("cleaned")
    table.create_checkpoint()
    for path in sorted((folder / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()


@pytest.mark.parametrize("name", ["messages", "streams/log_x"])
@pytest.mark.parametrize("way", options.ON_RESTORE)
@pytest.mark.parametrize("how", ["restore", "cleaned", "backup"])
def test_a_table_that_was_set_back_is_told_and_goes_on_as_asked(archive, out, tmp_path, name, way, how):
    fill(archive, "log:x", 0, 100)
    pipeline.run(archive.path, out)
    shutil.copytree(out / name, tmp_path / "backup")
    version = deltalake.DeltaTable(out / name).version()
    for step in (1, 2):
        fill(archive, "log:x", step * 100, 100)
        pipeline.run(archive.path, out)
    if how in ("restore", "cleaned"):
        table = deltalake.DeltaTable(out / name)
        table.restore(version)
        if how == "cleaned":
            clean_log(table, out / name)
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


def test_a_cleaned_log_without_lost_rows_is_no_restore(archive, out):
    for step in range(3):
        fill(archive, "log:x", step * 100, 100)
        pipeline.run(archive.path, out)
        for name in ("messages", "streams/log_x"):
            table = deltalake.DeltaTable(out / name)
            table.optimize.compact()
            clean_log(table, out / name)
        (out / ".known.json").unlink()
    assert pipeline.run(archive.path, out).rows == 0
    is_whole(out, "log:x", "log_x", 300)


def test_a_query_tells_of_a_restore_rather_than_lack_rows(archive, out):
    for step in range(2):
        fill(archive, "log:x", step * 10, 10)
        pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / "streams/log_x").restore(0)
    with pytest.raises(Restored, match=r"a RESTORE.*--restored"):
        penstock.lake(out, archive.path).sql("select count(*) from log_x")


@pytest.mark.parametrize("work", ["compact", "update"])
def test_a_table_is_rebuilt_from_files_that_others_wrote(archive, out, work):
    for step in range(2):
        fill(archive, "log:x", step * 50, 50)
        pipeline.run(archive.path, out)
    WORK[work](deltalake.DeltaTable(out / "messages"))
    pipeline.run(archive.path, out, rebuild=["log:x"])
    is_whole(out, "log:x", "log_x", 100)


@pytest.mark.parametrize("work", ["compact", "update"])
def test_a_stream_is_read_from_files_that_others_wrote(archive, out, work):
    for step in range(2):
        fill(archive, "log:x", step * 50, 50)
        pipeline.run(archive.path, out)
    for name in ("messages", "streams/log_x"):
        WORK[work](deltalake.DeltaTable(out / name))
    assert penstock.tables.read(out, "log:x").num_rows == 100
    assert penstock.tables.read(out, "messages", stream="log:x").num_rows == 100


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


def constrain(table):
    table.alter.add_constraint({"small": "i < 1000"})


def forbid_nulls(table):
    metadata = pa.schema([pa.field("kind", pa.string(), nullable=False)])
    table.alter.add_columns(list(deltalake.Schema.from_arrow(metadata).fields))


def track_rows(table):
    table.alter.add_feature(deltalake.TableFeatures.RowTracking, allow_protocol_versions_increase=True)


@pytest.mark.parametrize(
    ("give", "rule"),
    [
        (constrain, "the constraint small: i < 1000"),
        (track_rows, "feature rowTracking"),
        (forbid_nulls, "kind.*NOT NULL"),
    ],
)
def test_a_rule_that_a_commit_cannot_keep_leaves_its_stream_out(archive, out, give, rule):
    for channel in ("log:x", "log:y"):
        fill(archive, channel, 0, 10)
    pipeline.run(archive.path, out)
    give(deltalake.DeltaTable(out / "streams/log_x"))
    for channel in ("log:x", "log:y"):
        fill(archive, channel, 1000, 10)
    for _ in range(2):
        with pytest.raises(penstock.Corrupt, match=f"log:x.*{rule}.*all else is in the tables"):
            pipeline.run(archive.path, out)
    assert (len(rows(out, "streams/log_x")), len(rows(out, "streams/log_y")), len(rows(out, "messages"))) == (
        10,
        20,
        40,
    )
    if give is constrain:
        deltalake.DeltaTable(out / "streams/log_x").alter.drop_constraint("small")
        pipeline.run(archive.path, out)
        assert len(rows(out, "streams/log_x")) == 20


INSIDE = {"name": "o", "type": {"type": "struct", "fields": [{"name": "a", "metadata": {"delta.invariants": "{}"}}]}}
GENERATED = {"name": "g", "metadata": {"delta.generationExpression": "i + 1"}}


@pytest.mark.parametrize(
    ("properties", "fields", "features", "removes", "rule"),
    [
        ({}, [{"name": "i", "metadata": {}}], ["appendOnly", "timestampNtz"], True, None),
        ({"delta.appendOnly": "true"}, [], [], False, None),
        ({"delta.appendOnly": "true"}, [], [], True, "appendOnly"),
        ({"delta.columnMapping.mode": "name"}, [], [], False, "maps its columns"),
        ({}, [INSIDE], [], False, "column o.*invariant"),
        ({}, [GENERATED], [], False, "column g.*generated"),
        ({}, [{"name": "n", "metadata": {"delta.identity.start": 1}}], [], False, "identity"),
        ({}, [], ["icebergCompatV2"], False, "icebergCompatV2"),
    ],
)
def test_each_rule_of_a_table_is_kept_or_told(properties, fields, features, removes, rule):
    with pytest.raises(penstock.Invalid, match=rule) if rule else contextlib.nullcontext():
        check_rules("T", properties, fields, features, [Added("x", 1, 1)], removes=removes)


def test_a_copy_without_hidden_files_goes_on(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    for path in out.glob(".*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 20)


def test_a_data_file_that_is_gone_is_told_with_a_way_on(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    next((out / "messages").glob("*.parquet")).unlink()
    for use in (
        lambda: penstock.tables.read(out, "messages"),
        lambda: penstock.spark.queries.by_duckdb(str(out), "select count(*) from messages", None),
        lambda: pipeline.run(archive.path, out, rebuild=["log:x"]),
    ):
        with pytest.raises(penstock.NotFound, match=r"the newest version.*remove the table's folder"):
            use()
