"""The pipeline is a consumer of its archive: a purge keeps what its tables lack. Without a JVM: tasks run in this process."""

import pytest

import penstock
from penstock import tables
from penstock.tables.consumer import Consuming, name_of
from penstock.tables.folder.state import Stored


def record(archive, channel, count, *, codec=None, **options):
    with penstock.publish(channel, codec=codec) as pub, archive.record(channel, **options):
        for number in range(count):
            pub.send({"n": number} if codec else b"%d" % number)
    return archive.find(channel)


def test_a_purge_keeps_what_the_tables_lack(archive, tmp_path):
    out = tmp_path / "tables"
    first = record(archive, "log:a", 10)
    reading = Consuming(archive, str(out))  # a pipeline that has begun, and has committed nothing
    assert [one.name for one in archive.consumers()] == [reading.name]
    with pytest.raises(penstock.Busy, match=f"the consumer {reading.name} has yet to read recording 1"):
        archive.purge(first.id)
    tables.run(archive.path, out)
    (ledger,) = archive.consumers()
    assert ledger.channels is None
    assert ledger.done == {("log:a", first.epoch): [(0, first.end_position)]}
    second = record(archive, "log:a", 5)
    other = record(archive, "log:b", 5)
    archive.purge(first.id)
    for one in (second, other):
        with pytest.raises(penstock.Busy, match="has yet to read"):
            archive.purge(one.id)
    Consuming(archive, str(out))  # a pipeline that is started again has read what it had read
    assert archive.consumers() == [ledger]
    tables.run(archive.path, out)
    archive.purge(second.id)
    archive.purge(other.id)
    assert archive.list() == []


def test_a_table_that_lags_holds_messages_back(archive, tmp_path, monkeypatch):
    """What one table could not get, another's rows do not make up for."""
    out = tmp_path / "tables"
    record(archive, "log:j", 5, codec="json")
    tables.run(archive.path, out)
    second = record(archive, "log:j", 5, codec="json")
    commit, dead = Stored.commit, penstock.SystemFailure(28, "no room")

    def failing(stored, *given, **named):
        if stored.name == "log:j":
            raise dead
        return commit(stored, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Stored, "commit", failing)
        with pytest.raises(penstock.Corrupt, match="the table of log:j"):
            tables.run(archive.path, out)
    assert tables.read(out, "messages").num_rows == 10
    assert tables.read(out, "log:j").num_rows == 5
    with pytest.raises(penstock.Busy, match="has yet to read"):
        archive.purge(second.id)
    tables.run(archive.path, out)
    assert sorted(tables.read(out, "log:j")["n"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    live = {one.removeprefix("file://") for one in tables.uris(out, "log:j")}
    assert {str(path) for path in (out / "streams/log_j").glob("*.parquet")} == live, (
        "files of the failed commit are gone"
    )
    archive.purge(second.id)


def test_recordings_that_count_by_themselves(archive, tmp_path):
    """After a cut they are other streams: those messages were not read."""
    out = tmp_path / "tables"
    info = record(archive, "pipe:p", 20)
    tables.run(archive.path, out)
    archive.truncate(info.id, 0)
    again = record(archive, "pipe:p", 5, extend=True)
    assert again.id == info.id
    with pytest.raises(penstock.Busy):
        archive.purge(info.id)
    tables.run(archive.path, out)
    archive.purge(info.id)


def test_an_archive_that_may_only_be_read_is_told_once(archive, tmp_path, monkeypatch, caplog):
    record(archive, "log:a", 3)

    def refuse(*_):
        raise penstock.SystemFailure(30, "read-only file system")

    monkeypatch.setattr(penstock.Archive, "note_consumer", refuse)
    tables.run(archive.path, tmp_path / "tables")
    said = f"{archive.path}: Read-only file system. Nothing keeps the archive's messages for the pipeline"
    assert caplog.text.count(said) == 1


def test_names():
    assert name_of("/data/my tables/").startswith("pipeline-my-tables-")
    assert name_of("s3://bucket/tables").startswith("pipeline-tables-")
    assert name_of("/a/t") != name_of("/b/t")
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
    from penstock.spark.source import options

    for place in ("/", "/…", "/" + "x" * 300):
        options.consumer_name(name_of(place))


def test_a_commit_that_failed_is_made_up_for_by_the_next_step(archive, tmp_path, monkeypatch):
    """In a pipeline that goes on, also where one step has several commits of the stream."""
    from penstock.tables.pipeline import Options, Pipeline

    out, commit, left = tmp_path / "tables", Stored.commit, [1]

    def failing(stored, *given, **named):
        if stored.name == "log:j" and left[0] == 0:
            left[0] = -1
            raise penstock.SystemFailure(28, "no room")
        left[0] -= stored.name == "log:j" and left[0] > 0
        return commit(stored, *given, **named)

    monkeypatch.setattr(Stored, "commit", failing)
    archive.append("log:j", [{"n": number} for number in range(20_000)], codec="json")
    with Pipeline(archive.path, out, Options(range_bytes=1 << 16, commit_bytes=1 << 17)) as pipeline:
        pipeline.step()
        assert pipeline.left_out()
        assert tables.read(out, "messages").num_rows == 20_000
        assert tables.read(out, "log:j").num_rows < 20_000
        pipeline.step()
        assert not pipeline.left_out()
    assert sorted(tables.read(out, "log:j")["n"].to_pylist()) == list(range(20_000))
