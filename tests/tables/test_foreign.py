"""The pipeline goes on only with tables that it made: others are refused, left as they are, and stop no other stream."""

import shutil

import deltalake
import pyarrow as pa
import pytest

import penstock
from penstock.export import export
from penstock.tables import keep, pipeline
from tests.tables.tables_read import fill, is_whole, rows

HOWS = ["bare", "transaction", "other pipeline", "old", "export"]


def plant(folder, how, archive, tmp_path):
    """Somebody's table named log:x."""
    if how in ("other pipeline", "old"):
        pipeline.run(archive.path, tmp_path / "other")
        shutil.copytree(tmp_path / "other" / "streams" / "log_x", folder)
        if how == "old":  # without the name of a pipeline
            path = folder / "_delta_log" / f"{0:020d}.json"
            lines = path.read_text().splitlines()
            kept = [line for line in lines if '"appId":"penstock/' not in line]
            assert len(kept) == len(lines) - 1
            path.write_text("\n".join(kept))
    elif how == "export":
        export(archive.path, tmp_path / "exported", form="delta", streams=["log:x"])
        shutil.copytree(tmp_path / "exported" / "log_x", folder)
    else:
        mark = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("penstock", 7)])
        options = {"commit_properties": mark} if how == "transaction" else {}
        table = pa.table({"epoch": [1], "position": [0], "mine": ["a"]})
        deltalake.write_deltalake(folder, table, name="log:x", **options)


@pytest.mark.parametrize("place", ["log_x", "mine"])
@pytest.mark.parametrize("how", HOWS)
def test_a_foreign_table_of_a_stream_is_refused(archive, out, tmp_path, how, place):
    fill(archive, "log:x", 0, 10)
    fill(archive, "log:y", 0, 10)
    folder = out / "streams" / place
    pipeline.run(tmp_path / "archive", out)
    shutil.rmtree(out / "streams" / "log_x")
    plant(folder, how, archive, tmp_path)
    before = sorted((path.name, path.read_bytes()) for path in folder.rglob("*") if path.is_file())
    fill(archive, "log:y", 10, 10)
    for _ in range(2):
        with pytest.raises(
            penstock.Corrupt, match=rf"{place} is a table that .* did not make.*move it out of .*; all else"
        ):
            pipeline.run(archive.path, out)
    is_whole(out, "log:y", "log_y", 20)
    assert before == sorted((path.name, path.read_bytes()) for path in folder.rglob("*") if path.is_file())
    assert penstock.tables.streams(out) == {"log:y": "streams/log_y"}
    with pytest.raises(penstock.NotFound):
        penstock.tables.read(out, "log:x")
    with pytest.raises(penstock.Corrupt, match="nothing is erased there"):
        keep.erase(out, "log:y", until=1)
    shutil.move(folder, tmp_path / "away")  # as the error says
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 10)


@pytest.mark.parametrize("name", ["messages", "losses"])
@pytest.mark.parametrize("how", ["bare", "other pipeline"])
def test_a_foreign_table_of_all_streams_is_refused(archive, out, tmp_path, name, how):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    shutil.rmtree(out / name)
    if how == "bare":
        deltalake.write_deltalake(out / name, pa.table({"epoch": [1]}))
    else:
        pipeline.run(archive.path, tmp_path / "other")
        shutil.copytree(tmp_path / "other" / name, out / name)
    with pytest.raises(penstock.Invalid, match=rf"{name} is a table that .* did not make.*move it out of"):
        pipeline.run(archive.path, out)
    shutil.move(out / name, tmp_path / "away")
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 10)


def test_a_foreign_table_beside_the_own_one_is_left_as_it_is(archive, out, tmp_path):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    plant(out / "streams" / "a", "bare", archive, tmp_path)
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 20)
    assert penstock.tables.streams(out) == {"log:x": "streams/log_x"}
    assert len(deltalake.DeltaTable(out / "streams" / "a").history()) == 1


def test_a_copy_of_a_folder_without_hidden_files_goes_on(archive, out, tmp_path):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    copy = tmp_path / "copy"
    shutil.copytree(out, copy, ignore=shutil.ignore_patterns(".*"))
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, copy)
    is_whole(copy, "log:x", "log_x", 20)


def test_a_rebuilt_table_is_still_the_pipelines_own(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    pipeline.run(archive.path, out, rebuild=["log:x"])
    (out / ".known.json").unlink()
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, out)
    is_whole(out, "log:x", "log_x", 20)


def test_a_first_table_that_was_begun_only_goes_on(archive, out, monkeypatch):
    """A column with times without a zone inside a map comes in a second commit."""
    archive.append("log:x", [b'{"a": {}}'], codec="json", encoded=True)
    commit = penstock.tables.delta.table.Table.commit
    with monkeypatch.context() as patched:
        patched.setattr(
            "penstock.tables.delta.table.Table.commit",
            lambda self, *a, **k: commit(self, *a, **k) if "log_x" not in str(self.place) else 1 / 0,
        )
        with pytest.raises(ZeroDivisionError):
            pipeline.run(archive.path, out, schema={"log:x": "a map<string,timestamp_ntz>"})
    pipeline.run(archive.path, out, schema={"log:x": "a map<string,timestamp_ntz>"})
    assert len(rows(out, "streams/log_x")) == 1
