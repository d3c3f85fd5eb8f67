"""The pipeline is a consumer of its archive: a purge keeps what its tables lack. Without a JVM: tasks run in this process."""

import pytest

import penstock
import penstock.spark.options

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")

from penstock.spark.pipeline import Options, Pipeline
from penstock.spark.reading import Reading, name_of


def bring(archive, out, **options):
    """One step of a pipeline that notes what it has read."""
    with Pipeline(None, archive.path, out, Options(**options)) as pipeline:
        pipeline.consumer = Reading(pipeline.archive, str(pipeline.folder))
        pipeline.step()
        return pipeline


def record(archive, channel, count, **options):
    with penstock.publish(channel) as pub, archive.record(channel, **options):
        for number in range(count):
            pub.send(b"%d" % number)
    return archive.find(channel)


def test_a_purge_keeps_what_the_tables_lack(archive, tmp_path):
    out = tmp_path / "tables"
    first = record(archive, "log:a", 10)
    reading = Reading(archive, str(out))  # a query that has begun, and has committed nothing
    assert [one.name for one in archive.consumers()] == [reading.name]
    with pytest.raises(penstock.Busy, match=f"the consumer {reading.name} has yet to read recording 1"):
        archive.purge(first.id)
    bring(archive, out)
    (ledger,) = archive.consumers()
    assert ledger.channels is None
    assert ledger.done == {("log:a", first.epoch): [(0, first.end_position)]}
    second = record(archive, "log:a", 5)
    other = record(archive, "log:b", 5)
    archive.purge(first.id)
    for one in (second, other):
        with pytest.raises(penstock.Busy, match="has yet to read"):
            archive.purge(one.id)
    Reading(archive, str(out))  # a query that is started again has read what it had read
    assert archive.consumers() == [ledger]
    bring(archive, out)
    archive.purge(second.id)
    archive.purge(other.id)
    assert archive.list() == []


def test_a_table_that_lags_holds_messages_back(archive, tmp_path):
    from penstock.spark import tables

    out = tmp_path / "tables"
    info = record(archive, "log:a", 10)
    bring(archive, out, tables=("messages",))
    assert archive.consumers()[0].done
    with Pipeline(None, archive.path, out, Options(tables=("raw", "messages"))) as pipeline:
        noted = []
        pipeline.consumer = Reading(pipeline.archive, str(out))
        pipeline.consumer.note = noted.append
        pipeline.step()
    assert noted == [{("log:a", info.epoch): [(0, info.end_position)]}]
    assert tables.read(out, "raw").num_rows == 10


def test_recordings_that_count_by_themselves(archive, tmp_path):
    """After a cut they are other streams: those messages were not read."""
    out = tmp_path / "tables"
    info = record(archive, "pipe:p", 20)
    bring(archive, out)
    archive.truncate(info.id, 0)
    again = record(archive, "pipe:p", 5, extend=True)
    assert again.id == info.id
    with pytest.raises(penstock.Busy):
        archive.purge(info.id)
    bring(archive, out)
    archive.purge(info.id)


def test_an_archive_that_may_only_be_read_is_told_once(archive, tmp_path, monkeypatch, caplog):
    record(archive, "log:a", 3)

    def refuse(*_):
        raise penstock.SystemFailure(30, "read-only file system")

    monkeypatch.setattr(penstock.Archive, "note_consumer", refuse)
    bring(archive, tmp_path / "tables")
    assert caplog.text.count("Nothing keeps the archive's messages for the pipeline") == 1


def test_names():
    assert name_of("/data/my tables/").startswith("pipeline-my-tables-")
    assert name_of("s3://bucket/tables").startswith("pipeline-tables-")
    assert name_of("/a/t") != name_of("/b/t")
    for place in ("/", "/…", "/" + "x" * 300):
        penstock.spark.options.consumer_name(name_of(place))
