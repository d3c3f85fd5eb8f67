"""`align`: the rows of a stream, each with the last row of others before it, in Python and in SQL."""

import datetime
import random
import time

import pytest

import penstock

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def lake(tmp_path):
    """Sixty messages of three streams in turn, half of them recorded."""
    archive, rng = penstock.Archive(tmp_path / "archive"), random.Random(1)
    with (
        penstock.publish("log:cam", codec="json") as cam,
        penstock.publish("log:robot/imu", codec="json") as imu,
        penstock.publish("log:can", codec="json") as can,
    ):
        with archive.record(["log:cam", "log:robot/imu", "log:can"]):
            for number in range(30):
                rng.choice((cam, imu, can)).send({"i": number})
        for number in range(30, 60):
            rng.choice((cam, imu, can)).send({"i": number})
        yield penstock.lake(archive=archive)


def test_streams_are_aligned_by_time(tmp_path):
    """Each row with the last one of the other stream before it, if that is near enough; as a loop over all pairs finds it."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:cam", codec="json") as cam, penstock.publish("log:robot/imu", codec="json") as imu:
        with archive.record(["log:cam", "log:robot/imu"]):
            for number in range(30):
                time.sleep(0.01 if number == 4 else 0)  # one row of the camera is far from the last of the other stream
                (cam if number % 3 == 1 else imu).send({"i": number, "time": number})
        for number in range(30, 60):
            (cam if number % 3 == 1 else imu).send({"i": number, "time": number})
    lake = penstock.lake(archive=archive)
    rows = lake.align("cam", ["log:robot/imu"]).to_pylist()
    assert [row["i"] for row in rows] == list(range(1, 60, 3))
    assert [row["robot_imu"]["i"] for row in rows] == list(range(0, 60, 3))
    assert all(row["robot_imu"]["time_"] == row["i"] - 1 for row in rows)
    gaps = [row["timestamp_ns"] - row["robot_imu"]["timestamp_ns"] for row in rows]
    limit = max(gaps) // 1000 - 1  # in whole microseconds, as a timedelta has them
    near = lake.align("cam", ["log:robot/imu"], tolerance=datetime.timedelta(microseconds=limit)).to_pylist()
    assert [row["robot_imu"] is not None for row in near] == [gap <= limit * 1000 for gap in gaps]
    assert any(row["robot_imu"] for row in near)
    with pytest.raises(penstock.Invalid, match="tolerance is 'soon'"):
        lake.align("cam", ["robot/imu"], tolerance="soon")


def test_align_in_sql_is_that_of_python(lake):
    expected = lake.align("cam", ["log:robot/imu", "can"], tolerance="1ms")
    others = "['log:robot/imu', 'log:' || 'can']"
    for tolerance in ("tolerance => '1ms'", "tolerance := 0.001", "tolerance = interval 1 millisecond", "'1ms'"):
        assert lake.sql(f"select * from align('log:cam', {others}, {tolerance})").equals(expected)
    every = lake.align("cam", ["can"])
    for call in ("align('cam', ['can'])", "ALIGN('cam', ['can'], null)", "align('cam', array['can']) as a"):
        assert lake.sql(f"from {call}").equals(every)


def test_align_in_sql_is_a_table_among_others(lake):
    found = lake.sql(
        "with found as (select align.i as i, align.robot_imu.i as j from align('log:cam', ['log:robot/imu']))"
        " select found.i, j, a.can.i as k, m.i as same from found join align('cam', ['can']) a using (i) join 'log:cam' m using (i)"
        " order by i desc"
    ).to_pylist()
    imu, can = ({row["i"] for row in lake.sql(f"select i from '{name}'").to_pylist()} for name in ("robot/imu", "can"))
    assert len(found) > 10
    assert [row["i"] for row in found] == sorted((row["same"] for row in found), reverse=True)
    for row in found:
        for name, sent in (("j", imu), ("k", can)):
            assert row[name] == max((i for i in sent if i < row["i"]), default=None)


def test_align_is_an_asof_join_of_what_is_recorded(lake, tmp_path):
    """As DuckDB alone joins the rows of the archive; the tolerance leaves out the farthest."""
    lake = penstock.lake(archive=tmp_path / "archive", live=False)
    session = duckdb.connect()
    for name in ("cam", "can"):
        session.register(name, lake.reader(name).read_all())
    joined = "from cam asof left join can on cam.timestamp_ns >= can.timestamp_ns order by cam.i"
    gap = "cam.timestamp_ns - can.timestamp_ns"
    near = max(filter(None, session.sql(f"select {gap} as gap {joined}").to_arrow_table()["gap"].to_pylist())) - 1
    expected = session.sql(f"select cam.i, case when {gap} <= {near} then can.i end as j {joined}").to_arrow_table()
    assert 0 < expected["j"].null_count < expected.num_rows
    call = f"align('log:cam', ['log:can'], tolerance => {near} / 1e9)"
    assert lake.sql(f"select i, can.i as j from {call} order by i").equals(expected)
    every = session.sql(f"select cam.i, can.i as j {joined}").to_arrow_table()
    assert lake.sql("select i, can.i as j from align('log:cam', ['log:can']) order by i").equals(every)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ("align('log:cam', ['log:cam2'])", penstock.NotFound, "there is no stream log:cam2; there is log:cam"),
        ("align('log:cam', ['can'], tolerance => 'soon')", penstock.Invalid, "tolerance is 'soon'"),
        ("align('log:cam', ['can'], -1)", penstock.Invalid, "tolerance is -1"),
        ("align('log:cam')", penstock.Invalid, "align takes a stream, a list of streams, and a tolerance or none"),
        ("align('log:cam', ['can'], '1s', '2s')", penstock.Invalid, "align takes a stream, a list of streams"),
        ("align('log:cam', ['can'], within => '1s')", penstock.Invalid, "align takes a stream, a list of streams"),
        ("align('log:cam', 'can')", penstock.Invalid, "as texts"),
        ("align(cam, ['can'])", penstock.Invalid, "no constant"),
        ("'log:cam', align('can', ['cam']) where nope", penstock.Invalid, '"nope" not found'),
    ],
)
def test_a_wrong_align_is_one_line(lake, call, error, text):
    with pytest.raises(error) as caught:
        lake.sql(f"select * from {call}")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
