"""Which streams a query reads: patterns, streams that come later, and streams whose recordings are gone. When a batch waits for more."""

import time

import pytest

import penstock

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def add(archive, channel, count, first=0):
    archive.append(channel, [b"%d" % number for number in range(first, first + count)])


@pytest.fixture
def read_all(spark, archive, tmp_path):
    """A function that reads what is new with these options, by one checkpoint. Rows by stream."""

    def once(**options):
        found = []
        frame = spark.readStream.format("penstock").options(**options).load(str(archive.path))
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(row.stream for row in batch.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return {stream: found.count(stream) for stream in sorted(set(found))}

    return once


@pytest.mark.slow
def test_a_pattern_takes_streams_that_come_later(archive, read_all):
    add(archive, "log:robot/imu", 3)
    add(archive, "log:other", 5)
    assert read_all(stream="robot/*") == {"log:robot/imu": 3}
    add(archive, "log:robot/gps", 2)
    add(archive, "log:robot/imu", 1, first=3)
    add(archive, "log:other", 1, first=5)
    assert read_all(stream="robot/*") == {"log:robot/gps": 2, "log:robot/imu": 1}


@pytest.mark.slow
def test_a_batch_read_takes_patterns_and_refuses_typos(spark, archive):
    from penstock.spark import load

    add(archive, "log:robot/imu", 3)
    add(archive, "ring:robot/gps", 2)
    add(archive, "log:other", 5)
    assert load(spark, archive.path, stream="robot/*").count() == 5
    assert load(spark, archive.path, stream=["log:robot/*", "log:other"]).count() == 8
    assert load(spark, archive.path, stream="log:*", columns=["stream"]).distinct().count() == 2
    for wrong in ("log:nope", "nope/*", ["log:other", "log:othr"]):
        with pytest.raises(penstock.NotFound, match="has no recording of"):
            load(spark, archive.path, stream=wrong)
    with pytest.raises(penstock.Invalid, match="lgo"):
        load(spark, archive.path, stream="lgo:*")


@pytest.mark.slow
def test_a_stream_may_be_awaited(archive, read_all):
    add(archive, "log:a", 2)
    assert read_all(stream="log:a,log:b") == {"log:a": 2}
    add(archive, "log:b", 4)
    assert read_all(stream="log:a,log:b") == {"log:b": 4}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["true", "false", "mark"])
def test_a_stream_goes_on_without_its_last_recording(archive, read_all, loss):
    add(archive, "log:a", 2)
    assert read_all(stream="log:a", failOnDataLoss=loss) == {"log:a": 2}
    archive.purge(archive.find("log:a").id, force=True)
    assert read_all(stream="log:a", failOnDataLoss=loss) == {}
    add(archive, "log:a", 3, first=2)
    assert read_all(stream="log:a", failOnDataLoss=loss) == {"log:a": 3}


@pytest.mark.slow
def test_a_pattern_holds_back_a_purge_of_its_streams(archive, read_all):
    add(archive, "log:robot/imu", 3)
    assert read_all(stream="robot/*", consumer="mine") == {"log:robot/imu": 3}
    add(archive, "log:robot/gps", 2)
    add(archive, "log:other", 2)
    archive.purge(archive.find("log:other").id)
    with pytest.raises(penstock.PenstockError, match="mine"):
        archive.purge(archive.find("log:robot/gps").id)


def test_a_batch_waits_for_enough_messages(archive):
    """As Kafka's minOffsetsPerTrigger: the first batch comes at once, a later one when there is enough, or after maxTriggerDelay."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from penstock.spark.source.options import Request
    from penstock.spark.source.streaming import StreamReader

    options = {"path": str(archive.path), "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1s"}
    add(archive, "log:a", 3)
    reader = StreamReader(Request.of(options, streaming=True), {"position": False})
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first != start
    begun = time.monotonic()
    add(archive, "log:a", 9, first=3)
    waited = reader.latestOffset(first, ReadAllAvailable())
    assert waited == first or time.monotonic() - begun >= 1
    add(archive, "log:a", 1, first=12)
    enough = reader.latestOffset(first, ReadAllAvailable())
    assert enough != first
    add(archive, "log:a", 1, first=13)
    time.sleep(1.1)
    assert reader.latestOffset(enough, ReadAllAvailable()) != enough, "the delay is over"
    add(archive, "log:a", 1, first=14)
    reader.prepareForTriggerAvailableNow()
    last = reader.latestOffset(enough, ReadAllAvailable())
    assert last != enough, "what is there when a query is to end waits for nothing"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxTriggerDelay": "1s"}, "goes with minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger is '0'"),
        ({"minOffsetsPerTrigger": "5", "maxMessagesPerTrigger": "4"}, "more than maxMessagesPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
    ],
)
def test_limits_that_contradict_are_refused(archive, options, text):
    from penstock.spark.source.options import Request

    with pytest.raises(penstock.Invalid, match=text):
        Request.of({"path": str(archive.path), **options}, streaming=True)


@pytest.mark.parametrize("cut", [False, True])
def test_the_loss_of_an_epochs_end_is_marked(archive, cut):
    """The next row of the stream is of another epoch then, as after each purge or cut of all that programs appended."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from penstock.spark.source.options import Request
    from penstock.spark.source.streaming import StreamReader

    options = {"path": str(archive.path), "failOnDataLoss": "mark"}
    add(archive, "log:a", 3)
    reader = StreamReader(Request.of(options, streaming=True), {"position": False, "lost": False})
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    add(archive, "log:a", 2, first=3)
    info = archive.find("log:a")
    unread = info.end_position - sum(one.end - one.start for one in reader.ranges(reader.initialOffset(), first))
    if cut:
        archive.truncate(info.id, info.end_position - unread, force=True)
    else:
        archive.purge(info.id, force=True)
    assert reader.latestOffset(first, ReadAllAvailable()) == first, "there is no row yet"
    add(archive, "log:a", 4, first=5)
    add(archive, "log:b", 1)
    again = StreamReader(Request.of(options, streaming=True), {"position": False, "lost": False})  # after a restart
    second = again.latestOffset(first, ReadAllAvailable())
    for one in (again, StreamReader(again.request, {"position": False, "lost": False})):
        lost = {planned.channel: [lost for _, lost in planned.lost] for planned in one.ranges(first, second)}
        assert lost == {"log:a": [unread], "log:b": []}
    add(archive, "log:a", 1, first=9)
    third = again.latestOffset(second, ReadAllAvailable())
    assert [list(planned.lost) for planned in again.ranges(second, third)] == [[]], "it is told once"
