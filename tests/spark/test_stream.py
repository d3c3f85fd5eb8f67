"""The streaming source: every message once, in any triggers, over restarts; offsets, limits, lag, and wrong options."""

import json

import pytest

import penstock

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Query:
    """Runs a query until it has read everything, again and again, with one checkpoint."""

    def __init__(self, spark, archive, place):
        self.spark, self.path, self.place = spark, str(archive.path), str(place)
        self.rows, self.batches = [], []

    def _batch(self, frame, number):
        rows = [(row.stream, row.position, bytes(row.payload)) for row in frame.collect()]
        assert number not in [one for one, _ in self.batches], "a batch that was done is not done again"
        self.batches.append((number, len(rows)))
        self.rows += rows

    def start(self, trigger, **options):
        frame = self.spark.readStream.format("penstock").options(**options).load(self.path)
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", self.place)
        return writer.trigger(**trigger).start()

    def once(self, **options):
        """How many rows came."""
        before = len(self.rows)
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        self.last = query.lastProgress
        return len(self.rows) - before


def sent(archive, stream):
    return [(stream, message.position, message.data) for message in archive.replay(stream, decode=False)]


@pytest.fixture
def two(archive):
    """An archive of two streams that are being recorded, and a function that sends to both and waits until they are recorded."""
    pubs = [penstock.publish(name, term_length=1 << 16) for name in ("log:one", "log:two")]
    recorder = archive.record([pub.channel for pub in pubs])

    def send(count, size=0):
        for number in range(count):
            for pub in pubs:
                pub.send(b"%d " % number + bytes(size))
        ends = {pub.channel: pub.position for pub in pubs}
        while any(one.position < ends[one.channel] for one in recorder.progress()):
            assert recorder.error is None

    yield archive, send
    recorder.stop()


@pytest.mark.slow
def test_every_message_once_over_restarts(spark, two, tmp_path):
    archive, send = two
    query = Query(spark, archive, tmp_path / "checkpoint")
    send(50)
    assert query.once(maxMessagesPerTrigger=30) == 100
    assert [rows for _, rows in query.batches] == [30, 30, 30, 10]
    assert query.once() == 0
    send(20, size=30_000)
    assert query.once(maxBytesPerTrigger="500k", minPartitions=3) == 40
    assert len(query.batches) > 5
    running = query.start({"processingTime": "0 seconds"})
    send(5)
    running.processAllAvailable()
    send(5)
    running.processAllAvailable()
    running.stop()
    assert sorted(query.rows) == sorted(sent(archive, "log:one") + sent(archive, "log:two"))
    assert len(query.rows) == 160


@pytest.mark.slow
def test_progress_tells_offsets_and_lag(spark, two, tmp_path):
    archive, send = two
    send(40)
    query = Query(spark, archive, tmp_path / "checkpoint")
    frame = spark.readStream.format("penstock").option("maxMessagesPerTrigger", 10).load(str(archive.path))
    running = (
        frame.writeStream.format("noop").option("checkpointLocation", query.place).trigger(availableNow=True).start()
    )
    running.awaitTermination()
    progress = [json.loads(one["sources"][0]["latestOffset"]) for one in running.recentProgress if one["numInputRows"]]
    assert [one["lag"]["messages"] for one in progress] == [70, 60, 50, 40, 30, 20, 10, 0]
    assert progress[-1]["lag"] == {"bytes": 0, "messages": 0, "streams": {}}
    end = json.loads(running.lastProgress["sources"][0]["endOffset"])
    assert end["archive"] == archive.id
    assert end["streams"].keys() == {"log:one", "log:two"}
    assert end["streams"]["log:one"] == {str(archive.find("log:one").epoch): archive.find("log:one").end_position}


@pytest.mark.slow
def test_where_a_query_begins(spark, two, tmp_path):
    archive, send = two
    send(10)
    everything = sent(archive, "log:one")
    middle, offset = everything[4][1], json.dumps({"log:one": everything[4][1], "log:two": -1})
    epoch = str(archive.find("log:one").epoch)
    since = list(archive.replay("log:one"))[7].time_ns
    cases = [
        ({"startingOffsets": "earliest"}, 20),
        ({"startingOffsets": "latest"}, 0),
        ({"startingOffsets": offset}, 6),
        ({"startingOffsets": json.dumps({"log:one": {epoch: middle}}), "stream": "log:one"}, 6),
        ({"startingTimestamp": str(since), "stream": "log:one"}, 3),
        ({"stream": "log:two"}, 10),
    ]
    for number, (options, rows) in enumerate(cases):
        assert Query(spark, archive, tmp_path / str(number)).once(**options) == rows, options
        assert spark.read.format("penstock").options(**options).load(str(archive.path)).count() == rows, options
    until = json.dumps({"log:one": middle, "log:two": everything[2][1]})
    batch = spark.read.format("penstock").option("endingOffsets", until).option("startingOffsets", "earliest")
    assert batch.load(str(archive.path)).count() == 4 + 2


WRONG = [
    ({"since": "1"}, r"since: only with read\)"),
    ({"sinse": "1"}, "no option sinse"),
    ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is '0'"),
    ({"maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger is 'many'"),
    ({"failOnDataLoss": "perhaps"}, "true, false or mark"),
    ({"startingOffsets": "oldest"}, "startingOffsets is 'oldest'"),
    ({"startingOffsets": '{"log:one": -3}'}, "startingOffsets is"),
    ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "leave one of them out"),
    ({"consumer": "../x"}, "consumer is '../x'"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_options_are_errors(archive, options, text):
    from penstock.spark.source.options import Request

    with pytest.raises(penstock.Invalid, match=text) as caught:
        Request.of({"path": str(archive.path), **options}, streaming=True)
    assert "\n" not in str(caught.value)


def test_offsets_are_canonical():
    from penstock.spark.source.offsets import Offset, positions_of, positions_to_json

    done = {("log:b", 7): [(0, 64)], ("log:a", 9): [(32, 64), (96, 128)], ("log:a", 10): []}
    text = json.dumps(positions_to_json(done))
    assert text == '{"log:a": {"9": "32-64 96-128", "10": 0}, "log:b": {"7": 64}}'
    assert positions_of(json.loads(text)) == done
    offset = Offset("id", "q", "me", {("log:a", 10): [(0, 32)]}, done)
    assert Offset.of(json.loads(json.dumps(offset.to_json()))) == offset


def test_where_a_query_begins_is_asked_again(two):
    """Spark asks for the first offset again when a query that planned one batch is started again; by then there is more."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from penstock.spark.source.options import Request
    from penstock.spark.source.streaming import StreamReader

    archive, send = two
    send(10)

    def reader():
        options = {"path": str(archive.path), "startingOffsets": "latest", "consumer": "me"}
        return StreamReader(Request.of(options, streaming=True), {"position": False})

    first = reader()
    begin = first.initialOffset()
    send(5)
    assert first.initialOffset() == begin
    end = first.latestOffset(begin, ReadAllAvailable())
    send(7)
    second = reader()
    later = second.initialOffset()
    assert later != begin
    for one in (first.ranges(begin, end), second.ranges(later, end)):
        assert sum(batch.num_rows for planned in one for batch in planned.rows(["position"])) == 10


@pytest.mark.slow
def test_another_archive_is_refused(spark, two, tmp_path):
    archive, send = two
    send(3)
    query = Query(spark, archive, tmp_path / "checkpoint")
    assert query.once() == 6
    other = penstock.Archive(tmp_path / "other")
    query.path = str(other.path)
    with pytest.raises(Exception, match="is another archive than the one"):
        query.once()


@pytest.mark.slow
def test_the_ledger_keeps_unread_messages(spark, two, tmp_path):
    archive, send = two
    send(10)
    query = Query(spark, archive, tmp_path / "checkpoint")
    assert query.once(consumer="me", stream="log:one") == 10
    (ledger,) = archive.consumers()
    one, other = archive.find("log:one"), archive.find("log:two")
    assert (ledger.name, ledger.channels) == ("me", ("log:one",))
    assert ledger.done == {("log:one", one.epoch): [(0, one.end_position)]}
    assert other.messages
    send(1)
    assert query.once(consumer="me", stream="log:one") == 1
    (ledger,) = archive.consumers()
    assert ledger.done == {("log:one", one.epoch): [(0, archive.find("log:one").end_position)]}


@pytest.fixture
def ended(archive):
    """An archive of one stream with two recordings, and how many messages each has."""
    pub = penstock.publish("log:e", term_length=1 << 16)
    for count in (30, 20):
        with archive.record("log:e"):
            for number in range(count):
                pub.send(b"%d" % number)
    return archive


@pytest.mark.slow
def test_purge_respects_consumers(spark, ended, tmp_path):
    query = Query(spark, ended, tmp_path / "checkpoint")
    assert query.once(maxMessagesPerTrigger=30, consumer="slow") == 50
    first, second = ended.list()
    assert [one.name for one in ended.consumers()] == ["slow"]
    ended.purge(first.id)  # it was read
    with penstock.publish("log:e") as pub, ended.record("log:e"):
        pub.send(b"more")
    with pytest.raises(penstock.Busy, match="the consumer slow has yet to read recording 3 of log:e"):
        ended.purge(3)
    with pytest.raises(penstock.Busy, match="slow"):
        ended.truncate(3, 0)
    ended.purge(3, force=True)
    with pytest.raises(Exception, match="before this query read them"):
        query.once()
    assert query.once(failOnDataLoss="false") == 0
    with pytest.raises(penstock.NotFound, match="no consumer fast; it has slow"):
        ended.forget_consumer("fast")
    ended.forget_consumer("slow")
    ended.purge(second.id)
    assert not ended.verify()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["false", "mark"])
def test_messages_that_went_are_told(spark, ended, tmp_path, mode):
    query = Query(spark, ended, tmp_path / "checkpoint")
    assert query.once(maxMessagesPerTrigger=50) == 50
    pub = penstock.publish("log:e")
    for _ in range(2):
        with ended.record("log:e"):
            for _ in range(10):
                pub.send(bytes(100))
    gone = ended.list()[2]
    ended.purge(3, force=True)
    rows = []
    frame = spark.readStream.format("penstock").option("failOnDataLoss", mode).load(str(ended.path))
    writer = frame.writeStream.foreachBatch(lambda frame, number: rows.extend(frame.collect()))
    writer.option("checkpointLocation", query.place).trigger(availableNow=True).start().awaitTermination()
    assert len(rows) == 10
    lost = [row.lost for row in sorted(rows, key=lambda row: row.position)]
    assert lost == [gone.end_position - gone.start_position if mode == "mark" else 0] + [0] * 9
    assert query.once() == 0


@pytest.mark.slow
def test_pipes_positions_are_a_recordings_own(spark, archive, tmp_path):
    """Two recordings of an open pipe, one of them cut back and extended: every message once, and none for another."""
    pub = penstock.publish("pipe:p")
    query = Query(spark, archive, tmp_path / "checkpoint")
    for round_ in range(2):
        with archive.record("pipe:p"):
            for number in range(40):
                pub.send(b"%d.%d" % (round_, number))
    assert query.once() == 80
    archive.truncate(2, 0)
    with archive.record("pipe:p", extend=True):
        for number in range(7):
            pub.send(b"again %d" % number)
    assert query.once() == 7
    archive.truncate(2, 0, force=True)
    with archive.record("pipe:p", extend=True):
        for number in range(3):
            pub.send(b"unread %d" % number)
    archive.truncate(2, 0, force=True)
    with pytest.raises(Exception, match="of pipe:p from position 32 on were purged, or cut off"):
        query.once()
    with archive.record("pipe:p", extend=True):
        pub.send(b"last")
    assert query.once(failOnDataLoss="false") == 1
    expected = (
        [b"%d.%d" % (a, b) for a in range(2) for b in range(40)] + [b"again %d" % n for n in range(7)] + [b"last"]
    )
    bodies = [payload.rpartition(b"push")[2] for _, _, payload in query.rows]  # behind the sender and "push"
    assert sorted(bodies) == sorted(expected)
    assert spark.read.format("penstock").load(str(archive.path)).count() == 41
