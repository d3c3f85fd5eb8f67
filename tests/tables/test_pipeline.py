"""Tables that only gain rows: each message once in each table, whoever else works on them, and whatever becomes of recordings."""

import json

import deltalake
import numpy as np
import polars
import pytest

import penstock
import penstock.tables
from penstock.tables import options, pipeline
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder.state import CACHE, State
from tests.tables.tables_read import KEY, fill, is_whole, removals, rows


def test_each_message_once_in_any_number_of_runs(archive, out):
    for step in range(5):
        fill(archive, "log:x", step * 100, 100)
        assert pipeline.run(archive.path, out).rows == 100
        assert pipeline.run(archive.path, out).rows == 0
    is_whole(out, "log:x", "log_x", 500)
    assert removals(out, "messages") == removals(out, "streams/log_x") == []


def test_a_commit_of_many_streams_goes_through_the_state_once(archive, out, monkeypatch):
    """Once for each stream, a run of many would take the square of their number."""
    for number in range(5):
        fill(archive, f"log:x{number}", 0, 10)
    covered, cover = [], State.cover

    def counted(self, rows=()):
        covered.append(len(rows))
        cover(self, rows)

    monkeypatch.setattr(State, "cover", counted)
    assert pipeline.run(archive.path, out).rows == 50
    assert sorted(covered) == [1, 1, 1, 1, 1, 5]


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
    from penstock.tables.work import tasks

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


@pytest.mark.parametrize("first", ["bytes", "json"])
def test_plain_bytes_of_a_stream_with_a_table_are_rows(archive, out, first):
    parts = [(b"plain", None), ({"i": 1}, "json"), ({"i": 2}, "json"), (b"more", None)]
    for message, codec in parts if first == "bytes" else parts[1:] + parts[:1]:
        archive.append("log:x", [message], codec=codec)
        pipeline.run(archive.path, out)
    found = penstock.tables.read(out, "log:x").to_pylist()
    assert sorted(row["i"] for row in found if row["decode_error"] is None) == [1, 2]
    assert [row["decode_error"][:11] for row in found if row["decode_error"]] == ["plain bytes"] * 2
    pipeline.run(archive.path, out, rebuild=["log:x"])
    assert len(penstock.tables.read(out, "log:x")) == len(penstock.tables.read(out, "messages")) == 4


def test_messages_that_an_erasure_holds_back_are_counted(archive, out):
    archive.append("log:x", [{"i": 1}], codec="json", times_ns=[1000])
    assert pipeline.run(archive.path, out).erased == 0
    penstock.tables.erase(out, "log:x")
    archive.append("log:x", [{"i": 2}, {"i": 3}], codec="json", times_ns=[2000, 1 << 62])
    found = pipeline.run(archive.path, out)
    assert (found.rows, found.erased) == (1, 1)


@pytest.mark.parametrize(
    "kind", ["map<string, {}>", "map<{}, int>", "array<map<string, {}>>", "struct<a: map<string, {}>>"]
)
def test_times_without_a_zone_may_be_in_maps(archive, out, kind):
    fill(archive, "log:x", 0, 10)
    for more in (0, 10):
        pipeline.run(archive.path, out, schema={"log:x": "m " + kind.format("timestamp_ntz")})
        assert len(rows(out, "streams/log_x")) == 10 + more
        fill(archive, "log:x", 10, 10)


def test_a_commit_is_read_once(archive, out, monkeypatch):
    """A table's own commit is looked at for others' RESTORE, and its checksum is remembered."""
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    fill(archive, "log:x", 10, 10)
    found, read = [], Place.read

    def counted(self, name):
        found.append(f"{self.path}/{name}")
        return read(self, name)

    monkeypatch.setattr(Place, "read", counted)
    pipeline.run(archive.path, out)
    commits = [path for path in found if "_delta_log" in path]
    assert sorted(commits) == sorted(set(commits))
    assert len(commits) == 2
