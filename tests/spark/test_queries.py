"""`penstock sql` with both engines, and the example over a real drive: its table against NumPy, and its picture in the report."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli import run

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "drive.sql"


@pytest.fixture
def asked(spark, recorded, tmp_path, monkeypatch, capsys):
    """(query, options) → (status, output, errors), over the tables of four streams."""
    import penstock.spark
    from penstock import tables

    tables.run(recorded.path, tmp_path / "out")
    monkeypatch.setattr(penstock.spark, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def ask(query, *options):
        capsys.readouterr()
        status = run(["sql", str(tmp_path / "out"), query, *options])
        return status, *capsys.readouterr()

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_query_has_its_rows_in_every_form(asked, engine):
    if engine == "duckdb":
        pytest.importorskip("duckdb")
    query = "select i, f, text from `log:j` where i < 150 order by i"
    status, out, _ = asked(query, "--engine", engine, "--json")
    expected = [{"i": i, "f": i / 2 if i % 2 else float(i), "text": f"m{i}"} for i in range(150)]
    assert (status, [json.loads(line) for line in out.splitlines()]) == (0, expected)
    status, out, _ = asked(query, "--engine", engine, "--csv", "--limit", "3")
    assert list(csv.reader(out.splitlines())) == [
        ["i", "f", "text"],
        ["0", "0", "m0"],
        ["1", "0.5", "m1"],
        ["2", "2", "m2"],
    ]
    status, out, err = asked(query.replace("`log:j`", "log_j"), "--engine", engine)
    assert (status, len(out.splitlines()), err.strip()) == (0, 101, "the first 100 rows; --limit 0 prints all")
    assert out.splitlines()[2].split() == ["1", "0.5", "m1"]
    status, out, _ = asked("select count(*) as n, sum(s.messages) as m from stats s", "--engine", engine, "--json")
    assert json.loads(out)["m"] == 4001
    status, out, _ = asked(
        "select payload from messages where stream = 'log:b' and bytes = 1", "--engine", engine, "--csv"
    )
    assert sorted(out.split()) == sorted(['"payload"', *(f'"3{i}"' for i in range(10))])


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
@pytest.mark.parametrize(
    "query",
    ["select * from nope", "selec 1", "drop table messages", "select 1; select 2", "select nope from log_j", ""],
)
def test_an_error_is_one_line(asked, engine, query):
    if engine == "duckdb":
        pytest.importorskip("duckdb")
    status, out, err = asked(query, "--engine", engine)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1, err
    assert err.startswith("penstock: ")


def test_wrong_options(asked, tmp_path, capsys):
    for options in (["--engine", "x"], ["--json", "--csv"], ["--master", "nope"], ["--limit", "-1"]):
        status, _, err = asked("select 1", *options)
        assert (status, len(err.splitlines())) == (1, 1), options
    assert run(["sql", str(tmp_path / "none"), "select 1"]) == 1
    assert "holds no tables" in capsys.readouterr().err


@pytest.mark.slow
def test_the_drives_example(spark, archive, drive, tmp_path):
    """Its one table, row by row: each speed has the last value of everything else up to its time."""
    from penstock import tables
    from penstock.cli.demo.sources import drive_records
    from penstock.cli.report import drawing, pictures, sources
    from penstock.spark import pipeline

    names = ["can", "speed", "steering_angle"]
    found = {name: drive_records(drive, f"drive.{name}")[0] for name in names}
    with archive.record([f"log:drive.{name}" for name in names], start="earliest"):
        for name, records in found.items():
            with penstock.publish(f"log:drive.{name}", codec=records.dtype, term_length=1 << 23) as pub:
                for record in records:
                    pub.send(record)
    outcome = pipeline.run(spark, archive.path, tmp_path / "out", own=[EXAMPLE])
    assert [(one.name, one.error) for one in outcome.own] == [("drive", None), ("can_rates", None)]
    table = tables.read(tmp_path / "out", "drive").sort_by("t")
    speed, steering, can = (found[name] for name in ("speed", "steering_angle", "can"))
    assert table["t"].to_pylist() == speed["t"].tolist()
    assert table["speed_m_s"].to_pylist() == speed["value"][:, 0].tolist()

    def last(times, values):
        at = np.searchsorted(times, speed["t"], side="right") - 1
        return [None if place < 0 else values[place] for place in at.tolist()]

    def bus(address):
        rows = can[(can["bus"] == 0) & (can["address"] == address)]
        return rows["t"], np.frombuffer(rows["data"].tobytes(), "u1").reshape(-1, 8).astype(int)

    assert table["steering_deg"].to_pylist() == last(steering["t"], steering["value"].tolist())
    times, data = bus(0x25)
    angle = ((data[:, 0] & 15) << 8 | data[:, 1]) + 2048
    fraction = (data[:, 4] >> 4) + 8
    degrees = (angle % 4096 - 2048) * 1.5 + (fraction % 16 - 8) * 0.1
    assert table["can_steering_deg"].to_pylist() == last(times, degrees.tolist())
    assert abs(degrees - steering["value"]).max() < 1e-9, "the bus says what the stream of angles says"
    for name, address, values in (
        ("can_speed_m_s", 0xB4, lambda data: (data[:, 5] * 256 + data[:, 6]) * 0.01 / 3.6),
        ("engine_rpm", 0x1C4, lambda data: (data[:, 0] * 256 + data[:, 1]) * 0.78125),
        ("pedal_percent", 0x2C1, lambda data: data[:, 6] * 0.5),
    ):
        times, data = bus(address)
        assert table[name].to_pylist() == last(times, values(data).tolist()), name
    with drawing.styled():
        page = pictures.sections(sources.parts(tmp_path / "out", [], ["drive", "can_rates"]))
    assert page.count("<svg") == 2  # wide and narrow
    assert page.count("<tr>") == 11
    for text in ("Speed, steering and CAN at each message", "can steering", "m/s", "4,974 rows", "2E4"):
        assert text in page
