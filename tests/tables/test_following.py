"""Tables that follow an archive: a run for each piece of news, none without."""

import shutil
import threading
import time

import deltalake
import deltalake.transaction
import polars
import pytest

import penstock
import penstock.spark.queries
import penstock.tables
from penstock.tables import following
from penstock.tables.delta.table import Table
from penstock.tables.folder.state import Restored

PATIENCE = 60


def add(archive, first, count, channel="log:x"):
    archive.append(channel, [{"i": number} for number in range(first, first + count)], codec="json")


class Following:
    """A pipeline that follows an archive in a thread."""

    def __init__(self, archive, out, **options):
        self.steps, self.error, self.outcome = [], None, None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(archive, out, options))
        self._thread.start()

    def _run(self, archive, out, options):
        try:
            self.outcome = penstock.tables.follow(
                archive.path, out, until=self._stop.wait, on_step=self.steps.append, **options
            )
        except penstock.PenstockError as error:
            self.error = error

    def wait(self, rows):
        limit = time.monotonic() + PATIENCE
        while sum(step.rows for step in self.steps) < rows and time.monotonic() < limit and self._thread.is_alive():
            time.sleep(0.01)

    def stop(self):
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.outcome


def test_rows_come_as_messages_do(archive, tmp_path):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    run = Following(archive, out)
    run.wait(10)
    for number in range(3):
        add(archive, 10 + number, 1)
        run.wait(11 + number)
    outcome = run.stop()
    assert outcome.rows == 13 == outcome.total_rows
    assert polars.read_delta(str(out / "streams/log_x"))["i"].sort().to_list() == list(range(13))
    count = len(run.steps)
    assert all(step.rows for step in run.steps) or count <= 5, "a step without news is not made"


def test_a_cut_is_news(archive, tmp_path):
    with penstock.publish("log:y") as pub, archive.record("log:y"):
        for number in range(10):
            pub.send(b"%d" % number)
    out = tmp_path / "tables"
    run = Following(archive, out)
    run.wait(10)
    archive.truncate("log:y", 64, force=True)
    limit = time.monotonic() + PATIENCE
    while polars.read_delta(str(out / "messages")).height == 10 and time.monotonic() < limit:
        time.sleep(0.05)
    run.stop()  # a step that read while the recording was cut says so, if it was the last
    assert run.error is None or "was cut back to position" in str(run.error)
    left = [message.position for message in archive.replay("log:y")]
    assert sorted(polars.read_delta(str(out / "messages"))["position"]) == sorted(left)


def test_an_idle_archive_costs_no_run(archive, tmp_path):
    add(archive, 0, 1)
    run = Following(archive, tmp_path / "tables")
    run.wait(1)
    time.sleep(10 * following.LOOK_SECONDS)
    run.stop()
    assert len(run.steps) == 1


def test_every_waits_between_two_looks(archive, tmp_path):
    add(archive, 0, 1)
    waits = []

    def until(seconds):
        waits.append(seconds)
        return len(waits) == 3

    penstock.tables.follow(archive.path, tmp_path / "tables", every=0.01, until=until)
    assert waits == [0.01] * 3


def test_news_that_never_ends_are_five_steps_a_second(archive, tmp_path):
    add(archive, 0, 1)
    begun, waits = [time.monotonic()], []

    def until(seconds):
        waits.append((seconds, time.monotonic() - begun[-1]))
        add(archive, len(waits), 1)
        begun.append(time.monotonic())
        return len(waits) == 4

    penstock.tables.follow(archive.path, tmp_path / "tables", until=until)
    for seconds, took in waits:
        assert max(following.LOOK_SECONDS, following.STEP_SECONDS - took) <= seconds <= following.STEP_SECONDS


def test_damage_is_told_once_and_at_the_end(archive, tmp_path, caplog):
    add(archive, 0, 5)
    add(archive, 0, 5, "log:y")
    segment = sorted(archive.path.rglob("*.seg"))[-1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    looks = []

    def until(_):
        looks.append(add(archive, len(looks), 1, "log:z"))
        return len(looks) == 4

    with pytest.raises(penstock.Corrupt, match="all else is in the tables"):
        penstock.tables.follow(archive.path, tmp_path / "tables", until=until)
    told = [record for record in caplog.records if "all else is in the tables" in record.getMessage()]
    assert len(told) == 1
    assert penstock.tables.read(tmp_path / "tables", "log:z").num_rows == 3


def test_a_backup_with_which_others_went_on_is_told(archive, tmp_path):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    penstock.tables.run(archive.path, out)
    shutil.copytree(out / "streams/log_x", tmp_path / "backup")
    add(archive, 10, 10)
    penstock.tables.run(archive.path, out)
    shutil.rmtree(out / "streams/log_x")
    shutil.copytree(tmp_path / "backup", out / "streams/log_x")
    deltalake.DeltaTable(out / "streams/log_x").delete("i = 3")  # its version is that of the lost table now
    with pytest.raises(Restored, match="is not the one that it had"):
        penstock.tables.run(archive.path, out)
    penstock.tables.run(archive.path, out, restored="refill")
    assert polars.read_delta(str(out / "streams/log_x"))["i"].sort().to_list() == list(range(20))


def test_a_copy_of_all_tables_goes_on(archive, tmp_path):
    add(archive, 0, 10)
    penstock.tables.run(archive.path, tmp_path / "tables")
    shutil.copytree(tmp_path / "tables", tmp_path / "copy")
    add(archive, 10, 10)
    assert penstock.tables.run(archive.path, tmp_path / "copy").rows == 10


@pytest.mark.parametrize("second", ["msgpack", "json"])
def test_two_archives_may_share_a_folder_of_tables(archive, tmp_path, second):
    """Each archive counts its recordings from 1. What is rebuilt, or read again after a RESTORE, is told apart by epochs."""
    other, out = penstock.Archive(tmp_path / "other"), tmp_path / "tables"
    add(archive, 0, 10)
    other.append("log:x", [{"i": number} for number in range(10, 20)], codec=second)
    assert [one.id for one in archive.list()] == [one.id for one in other.list()] == [1]

    def are_whole(count):
        for name in ("messages", "streams/log_x"):
            assert len(polars.read_delta(str(out / name)).unique(["epoch", "position"])) == count
        found = polars.read_delta(str(out / "streams/log_x"))
        assert found["i"].sort().to_list() == list(range(count))
        assert found["decode_error"].is_null().all()

    for home in (archive, other, archive):
        penstock.tables.run(home.path, out)
    are_whole(20)
    for home in (other, archive):
        penstock.tables.run(home.path, out, rebuild=["log:x"])
        are_whole(20)
    for count, name in ((20, "messages"), (30, "streams/log_x")):
        add(archive, count, 10)
        version = deltalake.DeltaTable(out / name).version()
        penstock.tables.run(archive.path, out)
        deltalake.DeltaTable(out / name).restore(version)
        penstock.tables.run(archive.path, out, restored="refill")
        for home in (other, archive):
            assert penstock.tables.run(home.path, out).rows == 0
        are_whole(count + 10)


def test_an_erasure_that_dies_is_finished_on_the_disk_too(archive, tmp_path, monkeypatch):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    penstock.tables.run(archive.path, out)
    monkeypatch.setattr(Table, "vacuum", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        penstock.tables.erase(out, "log:x")
    monkeypatch.undo()
    assert list(out.rglob("*.parquet"))
    penstock.tables.run(archive.path, out)
    assert [path for path in out.rglob("*.parquet") if "checkpoint" not in path.name] == []
    assert not [path for path in out.rglob("_delta_log/*.json") if "minValues" in path.read_text()]


@pytest.mark.parametrize("kind", ["string", "long", "double"])
@pytest.mark.parametrize("value", ["text", 5, 0.5, [1], {"a": 1}])
def test_a_key_with_the_name_of_anothers_column_has_its_own(archive, tmp_path, kind, value):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    penstock.tables.run(archive.path, out)
    table = deltalake.DeltaTable(out / "streams/log_x")
    table.alter.add_columns([deltalake.Field("Mine", deltalake.schema.PrimitiveType(kind))])
    table.update({"Mine": "'7'" if kind == "string" else "7"})
    archive.append("log:x", [{"i": 10, "mine": value}], codec="json")
    penstock.tables.run(archive.path, out)
    found = polars.read_delta(str(out / "streams/log_x")).sort("i")
    assert found["i"].to_list() == list(range(11))
    assert [str(one) for one in found["Mine"].cast(polars.Float64)] == ["7.0"] * 10 + ["None"]
    (name,) = set(found.columns) & {"mine_", "mine_2"}
    assert found[name].to_list() == [None] * 10 + [value]


def test_a_first_run_that_fails_costs_a_table_no_name(archive, tmp_path, monkeypatch):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    whole = deltalake.transaction.create_table_with_add_actions

    def fail(place, *more, **named):
        if "log_x" not in place:
            return whole(place, *more, **named)
        (out / "streams/log_x/_delta_log").mkdir()
        (out / "streams/log_x/_delta_log/00000000000000000000.json#1").touch()
        raise OSError("full")

    monkeypatch.setattr(deltalake.transaction, "create_table_with_add_actions", fail)
    with pytest.raises(penstock.PenstockError, match="full"):
        penstock.tables.run(archive.path, out)
    assert [path for path in (out / "streams").rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    penstock.tables.run(archive.path, out)
    assert penstock.tables.streams(out) == {"log:x": "streams/log_x"}


def test_a_copy_of_a_streams_table_is_left_alone(archive, tmp_path, caplog):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    penstock.tables.run(archive.path, out)
    for name in ("a_copy", "log_x_backup"):
        shutil.copytree(out / "streams/log_x", out / "streams" / name)
    (out / "streams/note.txt").write_text("mine")
    add(archive, 10, 10)
    penstock.tables.run(archive.path, out)
    counts = [polars.read_delta(str(out / "streams" / name)).height for name in ("log_x", "a_copy", "log_x_backup")]
    assert counts == [20, 10, 10]
    assert penstock.tables.streams(out) == {"log:x": "streams/log_x"}
    assert penstock.spark.queries.by_duckdb(str(out), "select count(*) n from log_x", None)["n"].to_pylist() == [20]
    assert sum("is a copy of the table of log:x" in one.getMessage() for one in caplog.records) == 2


def test_a_stream_that_keep_does_not_know_is_told(archive, tmp_path):
    add(archive, 0, 10)
    with pytest.raises(penstock.NotFound, match="keep names log:y, and the archive has no such stream"):
        penstock.tables.run(archive.path, tmp_path / "tables", keep={"log:y": "7d"})


@pytest.mark.parametrize("name", ["messages", "streams/log_x"])
@pytest.mark.parametrize("work", ["restore", "remove"])
def test_another_programs_work_beside_it_is_seen(archive, tmp_path, name, work):
    out = tmp_path / "tables"
    add(archive, 0, 10)
    run = Following(archive, out)
    run.wait(10)
    add(archive, 10, 10)
    run.wait(20)
    if work == "restore":
        deltalake.DeltaTable(out / name).restore(0)
    else:
        shutil.rmtree(out / name)
    add(archive, 20, 10)
    run.wait(50 if (work, name) == ("remove", "messages") else 30)
    run.stop()
    if work == "restore":
        assert isinstance(run.error, Restored)
        with pytest.raises(Restored, match="is a RESTORE"):
            penstock.tables.run(archive.path, out)
        penstock.tables.run(archive.path, out, restored="refill")
    assert penstock.tables.read(out, "messages").num_rows == penstock.tables.read(out, "log:x").num_rows == 30


def test_a_restore_just_before_a_commit_is_told_by_the_next(archive, tmp_path, monkeypatch):
    """It comes between the look at others' commits and the commit itself."""
    out, write = tmp_path / "tables", Table.commit
    add(archive, 0, 10)
    penstock.tables.run(archive.path, out)
    add(archive, 10, 10)
    penstock.tables.run(archive.path, out)

    def late(table, *given, **named):
        if "messages" in str(table.place):
            monkeypatch.undo()
            deltalake.DeltaTable(out / "messages").restore(0)
        return write(table, *given, **named)

    add(archive, 20, 10)
    monkeypatch.setattr(Table, "commit", late)
    penstock.tables.run(archive.path, out)
    with pytest.raises(Restored):
        penstock.tables.run(archive.path, out)
    penstock.tables.run(archive.path, out, restored="refill")
    assert penstock.tables.read(out, "messages").num_rows == 30
