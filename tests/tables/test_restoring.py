"""Tables that were set back: what neither they nor the archive have is named, what they have counts once, and nothing else is lost."""

import shutil

import deltalake
import pytest
from damage import flip

import penstock
from penstock.tables import options, pipeline
from penstock.tables.delta.places import Place
from penstock.tables.folder import Folder
from tests.tables.tables_read import KEY, fill, is_whole, rows

NAMES = ["messages", "streams/log_x"]
MESSAGE = 64  # bytes of one in the recording


def set_back(out, tmp_path, name, how, version):
    """As RESTORE does it, with or without the files from before it, or by a backup."""
    if how == "backup":
        shutil.rmtree(out / name)
        shutil.copytree(tmp_path / name, out / name)
        return
    table = deltalake.DeltaTable(out / name)
    if how == "compacted":
        table.optimize.compact()
    table.restore(version)
    if how in ("vacuumed", "compacted"):
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)


def done(out, name):
    """Positions that a table's state has as read, by recording."""
    folder = Folder(Place.of(out), [])
    one = folder.messages if name == "messages" else folder.streams["log:x"]
    return {row["recording"]: (row["start"], row["end"]) for row in one.state.done}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["restore", "vacuumed", "compacted", "backup"])
def test_the_missing_part_of_a_purged_recording_is_named(archive, out, tmp_path, name, how):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    version = deltalake.DeltaTable(out / name).version()
    shutil.copytree(out / name, tmp_path / name)
    fill(archive, "log:x", 10, 10)
    pipeline.run(archive.path, out)
    archive.purge(1)
    fill(archive, "log:x", 20, 10)
    pipeline.run(archive.path, out)
    set_back(out, tmp_path, name, how, version)
    with pytest.raises(penstock.Corrupt) as told:
        pipeline.run(archive.path, out, restored="refill")
    ends = {10 * MESSAGE, 9 * MESSAGE + 1} if how in ("vacuumed", "compacted") else {10 * MESSAGE}
    texts = [f"log:x from position {end} to {20 * MESSAGE} were not brought back" for end in ends]
    assert any(text in str(told.value) for text in texts), told.value
    assert f"{name}: " in str(told.value)
    assert sorted(rows(out, name)["recording"]) == [1] * 10 + [2] * 10
    assert done(out, name)[1] in {(0, end) for end in ends}
    assert pipeline.run(archive.path, out).rows == 0
    if name == "messages":  # a rebuild would lose the rest
        with pytest.raises(penstock.Invalid, match="cannot be rebuilt"):
            pipeline.run(archive.path, out, rebuild=["log:x"])
        assert len(rows(out, "streams/log_x")) == 30


def test_a_refill_whose_run_fails_later_names_what_is_missing(archive, out, caplog):
    for first in (0, 10):
        fill(archive, "log:x", first, 10)
        pipeline.run(archive.path, out)
    archive.purge(1)
    deltalake.DeltaTable(out / "messages").restore(0)
    with pytest.raises(penstock.Invalid, match="cannot be rebuilt"):
        pipeline.run(archive.path, out, restored="refill", rebuild=["log:x"])
    assert f"from position {10 * MESSAGE} to {20 * MESSAGE} were not brought back" in caplog.text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["restore", "vacuumed", "compacted", "backup"])
def test_a_purged_recording_that_is_whole_is_not_named(archive, out, tmp_path, name, how):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / name).delete("position = 128")  # which is no loss
    archive.purge(1)
    fill(archive, "log:x", 20, 10)
    pipeline.run(archive.path, out)
    version = deltalake.DeltaTable(out / name).version()
    shutil.copytree(out / name, tmp_path / name)
    fill(archive, "log:x", 30, 10)
    pipeline.run(archive.path, out)
    set_back(out, tmp_path, name, "restore" if how == "compacted" else how, version)
    pipeline.run(archive.path, out, restored="refill")
    assert len(rows(out, name)) == 29
    assert done(out, name)[1] == (0, 10 * MESSAGE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", options.ON_RESTORE)
@pytest.mark.parametrize("is_purged", [False, True])
def test_rows_that_the_state_does_not_know_stay_single(archive, out, name, way, is_purged, monkeypatch):
    """A refill died before it read; then the user took back the RESTORE."""
    fill(archive, "log:y", 0, 10)
    fill(archive, "log:x", 0, 1)
    pipeline.run(archive.path, out)
    old = deltalake.DeltaTable(out / name).version()
    fill(archive, "log:x", 1, 9)
    pipeline.run(archive.path, out)
    new = deltalake.DeltaTable(out / name).version()
    deltalake.DeltaTable(out / name).restore(old)
    with monkeypatch.context() as patched:
        patched.setattr(pipeline.Pipeline, "_batch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pipeline.run(archive.path, out, restored="refill")
    deltalake.DeltaTable(out / name).restore(new)
    if is_purged:
        archive.purge(2, force=True)
    pipeline.run(archive.path, out, restored=way)
    found = rows(out, name)
    found = found.filter(found["stream"] == "log:x").select(["stream", *KEY]).rows()
    assert len(found) == len(set(found)) == 10
    if name == "streams/log_x":  # the other table has them, so nothing is lost
        pipeline.run(archive.path, out, rebuild=["log:x"])
        assert len(rows(out, name)) == 10


def test_a_refill_keeps_rows_that_are_damaged_in_the_archive(archive, out):
    fill(archive, "log:x", 0, 10)
    pipeline.run(archive.path, out)
    fill(archive, "log:x", 10, 2000)
    pipeline.run(archive.path, out)
    table = deltalake.DeltaTable(out / "messages")
    table.delete(f"position = {MESSAGE}")
    table.delete()
    table.restore(table.version() - 1)
    data = archive._files.folder(1).segments()[0].data
    flip(data, data.stat().st_size // 2)  # in the first block
    with pytest.raises(penstock.Corrupt, match=r"1 messages of log:x.* were not brought back: they are damaged"):
        pipeline.run(archive.path, out, restored="refill")
    assert len(rows(out, "messages")) == 2009


@pytest.mark.parametrize("way", options.ON_RESTORE)
def test_losses_of_a_purged_recording_are_named(archive, out, way):
    with penstock.publish("ring:r", capacity=1 << 16) as pub, archive.record("ring:r", extend=False) as recorder:
        for n in range(20_000):
            pub.send(b"%06d" % n)
        while recorder.progress()[0].position < pub.position:
            assert recorder.error is None
    lost = archive.list()[0].lost_bytes
    pipeline.run(archive.path, out)
    assert rows(out, "losses")["bytes"].sum() == lost > 0
    table = deltalake.DeltaTable(out / "losses")
    table.delete()
    table.alter.set_table_description("mine")
    table.restore(1)
    archive.purge(1, force=True)
    if way == "keep":
        pipeline.run(archive.path, out, restored=way)
    else:
        with pytest.raises(penstock.Corrupt, match=rf"losses: {lost} lost bytes of ring:r.*archive has them no more"):
            pipeline.run(archive.path, out, restored=way)
    assert pipeline.run(archive.path, out).rows == 0


@pytest.mark.parametrize("way", options.ON_RESTORE)
def test_losses_that_the_state_does_not_know_count_once(archive, out, way, monkeypatch):
    with penstock.publish("ring:r", capacity=1 << 16) as pub, archive.record("ring:r", extend=False) as recorder:
        for n in range(20_000):
            pub.send(b"%06d" % n)
        while recorder.progress()[0].position < pub.position:
            assert recorder.error is None
    pipeline.run(archive.path, out)
    table = deltalake.DeltaTable(out / "losses")
    table.delete()
    table.alter.set_table_description("mine")
    table.restore(1)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.tables.losses.bring", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pipeline.run(archive.path, out, restored="refill")
    deltalake.DeltaTable(out / "losses").restore(0)
    pipeline.run(archive.path, out, restored=way)
    assert rows(out, "losses")["bytes"].sum() == archive.list()[0].lost_bytes


def test_a_refill_that_a_rule_forbids_removes_nothing(archive, out):
    fill(archive, "log:x", 0, 50)
    pipeline.run(archive.path, out)
    table = deltalake.DeltaTable(out / "streams/log_x")
    table.alter.add_constraint({"c": "i < 60"})
    with_rule = table.version()
    table.alter.drop_constraint("c")
    fill(archive, "log:x", 50, 50)
    fill(archive, "log:y", 0, 10)
    pipeline.run(archive.path, out)
    deltalake.DeltaTable(out / "streams/log_x").restore(with_rule)
    fill(archive, "log:y", 10, 10)
    with pytest.raises(penstock.Corrupt, match=r"log_x has the constraint c"):
        pipeline.run(archive.path, out, restored="refill")
    assert len(rows(out, "streams/log_x")) == 50
    assert len(rows(out, "streams/log_y")) == 20
    deltalake.DeltaTable(out / "streams/log_x").alter.drop_constraint("c")
    pipeline.run(archive.path, out, restored="refill")
    is_whole(out, "log:x", "log_x", 100)
