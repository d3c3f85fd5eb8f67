"""Rows behind a cut and what is erased go, and do not come back."""

import os
import shutil
import time
from unittest import mock

import deltalake
import deltalake.exceptions
import polars
import pyarrow
import pytest

import penstock
from penstock.tables import keep, options, pipeline
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import CLEAN_COMMITS, Table
from penstock.tables.folder import Folder, locked
from penstock.tables.folder.state import Restored
from tests.tables.tables_read import KEY, fill, is_whole, removals, rows


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


@pytest.mark.parametrize("how", ["restore", "backup"])
def test_a_refill_says_what_it_cannot_bring_back(archive, out, tmp_path, how):
    fill(archive, "log:y", 0, 10)
    pipeline.run(archive.path, out)
    shutil.copytree(out / "messages", tmp_path / "backup")
    version = deltalake.DeltaTable(out / "messages").version()
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    archive.purge(2)
    fill(archive, "log:x", 10, 4)
    pipeline.run(archive.path, out)
    if how == "restore":
        deltalake.DeltaTable(out / "messages").restore(version)
    else:
        shutil.rmtree(out / "messages")
        shutil.copytree(tmp_path / "backup", out / "messages")
    with pytest.raises(
        penstock.Corrupt, match=r"messages: \d+ bytes of log:x from position 0 to 640 were not brought back"
    ):
        pipeline.run(archive.path, out, restored="refill")
    assert len(rows(out, "messages")) == 14
    assert pipeline.run(archive.path, out).rows == 0


def test_optimizing_a_place_that_is_read_only_is_told(archive, out, monkeypatch):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(penstock.SystemFailure, match="cannot be optimized: Permission denied"):
        keep.optimize(out)


@pytest.mark.slow
def test_a_log_is_cleaned_of_what_it_keeps_no_longer(tmp_path):
    table = Table.create(Place.of(tmp_path), pyarrow.schema([("i", pyarrow.int64())]))
    begins = []
    for number in range(CLEAN_COMMITS + 1):
        for path in (tmp_path / "_delta_log").glob("*.json"):
            os.utime(path, (0, 0))
        table.commit(marks={"test": number})
        begins.append(min(int(path.name[:20]) for path in (tmp_path / "_delta_log").glob("*.json")))
    assert begins[: CLEAN_COMMITS - 1] == [0] * (CLEAN_COMMITS - 1)
    assert begins[-1] > 0
    assert deltalake.DeltaTable(tmp_path).version() == CLEAN_COMMITS + 1


def rows_of(out):
    return {name: len(rows(out, name)) for name in ("messages", "streams/log_x", "streams/log_y")}


def test_an_erasure_that_a_rule_forbids_changes_nothing(archive, out):
    for channel in ("log:x", "log:y"):
        fill(archive, channel, 0, 10)
    pipeline.run(archive.path, out)
    table = deltalake.DeltaTable(out / "streams/log_x")
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    for channel in ("log:x", None):
        with pytest.raises(penstock.Invalid, match=r"log_x has the property delta.appendOnly.*drop it"):
            keep.erase(out, channel, until=time.time_ns())
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, out)
    assert rows_of(out) == {"messages": 30, "streams/log_x": 20, "streams/log_y": 10}
    assert keep.erase(out, "log:y") == 10
    assert rows_of(out) == {"messages": 20, "streams/log_x": 20, "streams/log_y": 0}


def fill_both(archive, first, count):
    for channel in ("log:x", "log:y"):
        fill(archive, channel, first, count)


def run_three_times(archive, out):
    """Ten messages of each of two streams before each run."""
    for step in range(3):
        fill_both(archive, 10 * step, 10)
        pipeline.run(archive.path, out)


def break_a_file(table, way):
    path = min(table.glob("*.parquet"))
    path.unlink() if way == "gone" else path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("way", ["gone", "damaged"])
def test_an_erasure_that_fails_costs_its_table_alone(archive, out, way):
    run_three_times(archive, out)
    break_a_file(out / "streams/log_x", way)
    with pytest.raises(penstock.Corrupt, match=r"table of log:x.*30 messages are elsewhere.*--rebuild"):
        keep.erase(out, "log:x")
    fill_both(archive, 30, 5)
    with pytest.raises(penstock.Corrupt, match="the table of log:x"):
        pipeline.run(archive.path, out)
    assert len(rows(out, "messages")) == 40
    is_whole(out, "log:y", "log_y", 35)
    pipeline.run(archive.path, out, rebuild=["log:x"])
    pipeline.run(archive.path, out)
    assert rows_of(out) == {"messages": 40, "streams/log_x": 5, "streams/log_y": 35}
    assert sorted(rows(out, "streams/log_x")["i"]) == [30, 31, 32, 33, 34]
    assert len(list((out / "streams/log_x").glob("*.parquet"))) == 1, "what was erased is on the disk"


@pytest.mark.parametrize("way", ["gone", "damaged"])
def test_a_cut_that_fails_costs_its_table_alone(archive, out, way):
    for step in range(2):
        for channel in ("log:x", "log:y"):
            fill(archive, channel, 10 * step, 10)
    pipeline.run(archive.path, out)
    break_a_file(out / "streams/log_x", way)
    archive.truncate(1, archive.read(1, columns=("position",)).column("position")[10].as_py())
    fill(archive, "log:y", 20, 5)
    with pytest.raises(penstock.Corrupt, match="the table of log:x"):
        pipeline.run(archive.path, out)
    is_whole(out, "log:y", "log_y", 25)
    pipeline.run(archive.path, out, rebuild=["log:x"])
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 10)


@pytest.mark.parametrize("way", ["gone", "damaged"])
def test_an_erasure_that_fails_at_messages_stops_nothing(archive, out, way):
    run_three_times(archive, out)
    break_a_file(out / "messages", way)
    with pytest.raises(penstock.Corrupt, match=r"still in .*messages.*a table that you remove is built again"):
        keep.erase(out, "log:x")
    fill_both(archive, 30, 5)
    for _ in range(2):
        with pytest.raises(penstock.Corrupt, match=r"still in .*messages"):
            pipeline.run(archive.path, out)
        assert Table.open(Place.of(out / "messages")).count() == 70
    assert sorted(rows(out, "streams/log_y")["i"]) == list(range(35))
    assert sorted(rows(out, "streams/log_x")["i"]) == [30, 31, 32, 33, 34]
    shutil.rmtree(out / "messages")
    pipeline.run(archive.path, out)
    assert rows_of(out) == {"messages": 40, "streams/log_x": 5, "streams/log_y": 35}


@pytest.mark.parametrize("way", ["gone", "damaged"])
def test_files_that_cannot_be_joined_cost_their_table_alone(archive, out, monkeypatch, way):
    monkeypatch.setattr(keep, "FILES_MAX", 4)
    run_three_times(archive, out)
    break_a_file(out / "streams/log_x", way)
    for step in range(3, 5):
        for channel in ("log:x", "log:y"):
            fill(archive, channel, 10 * step, 10)
        if step == 4:
            with pytest.raises(penstock.Corrupt, match=r"log_x cannot be joined.*--rebuild log:x makes it anew"):
                pipeline.run(archive.path, out)
        else:
            pipeline.run(archive.path, out)
    fill(archive, "log:y", 50, 5)
    with pytest.raises(penstock.Corrupt, match="all other tables are joined"):
        keep.optimize(out)
    assert [len(Table.open(Place.of(out / name)).files()) for name in ("messages", "streams/log_y")] == [1, 1]
    pipeline.run(archive.path, out, rebuild=["log:x"])
    is_whole(out, "log:x", "log_x", 50)
    is_whole(out, "log:y", "log_y", 55)


def test_a_log_that_is_cleaned_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    place = Place.of(tmp_path)
    table = Table.create(place, pyarrow.schema([("i", pyarrow.int64())]))
    table.commit(marks={"test": 1})
    gone = deltalake.exceptions.DeltaError("Kernel error: File not found: table/_delta_log/00000000000000000000.json")
    real, left = deltalake.DeltaTable, [gone, gone]

    class Cleaned(real):
        """Another program cleans the log while it is read, twice."""

        def __init__(self, *given, **named):
            if left:
                raise left.pop()
            super().__init__(*given, **named)

    for version in (table.version, table.version - 1):
        reader = Table(place, mock.Mock(**{"version.return_value": version, "transaction_version.side_effect": gone}))
        left[:] = [gone, gone]
        monkeypatch.setattr(deltalake, "DeltaTable", Cleaned)
        if version == table.version:
            assert reader.mark("test") == 1
        else:
            with pytest.raises(penstock.Busy, match="another program changed the log"):
                reader.mark("test")
        assert left == []
    left[:] = [gone, gone]
    assert Table.open(place).mark("test") == 1
    other = mock.Mock(
        **{"version.return_value": 1, "transaction_version.side_effect": deltalake.exceptions.DeltaError("bad")}
    )
    with pytest.raises(penstock.Corrupt, match="cannot be read: bad"):
        Table(place, other).mark("test")
