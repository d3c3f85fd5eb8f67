"""Every decoded column of every row, for every codec and for the real drive, in Spark, DuckDB, Polars, delta-rs and pyarrow, against an
independent decode: the standard library's JSON, a MessagePack reader of our own, NumPy one scalar at a time, and what was sent."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from decoder import generate, oracle

import penstock
from penstock import codecs, tables
from penstock._native import core
from penstock.columns import contract as contracts
from penstock.tables import schemas

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ORDER = [("timestamp_ns", "ascending"), ("position", "ascending")]
WIDE = np.dtype(
    [(f"f{n}", name) for n, name in enumerate(generate.PLAIN)]
    + [(f"t{n}", f"M8[{unit}]") for n, unit in enumerate(generate.UNITS)]
    + [
        ("d", "m8[ns]"),
        ("big", ">i4"),
        ("xyz", "f4", (3,)),
        ("grid", "u2", (2, 2)),
        ("names", "S3", (2,)),
        ("time", "i8"),
    ]
    + [("pos", [("x", "f8"), ("tag", "S4")], (2,)), ("in", [("a", "u1"), ("b", "U2")])]
)
ARRAYS = ("<f8", ">i2", "S4", "U3", "M8[ms]", "u8", "c8", "?", "V3", "f2")
READERS = ("pyarrow", "spark", "duckdb", "polars", "deltalake")


@pytest.fixture(params=READERS)
def reader(request):
    """(out, table, stream) → rows in their order, as this reader gives them."""
    if request.param == "pyarrow":
        found = lambda out, name, stream: tables.read(out, name, stream=stream)  # noqa: E731
    elif request.param == "spark":
        from penstock.spark import table

        spark = request.getfixturevalue("spark")
        found = lambda out, name, stream: table(spark, out, name, stream=stream).toArrow()  # noqa: E731
    else:
        pytest.importorskip(request.param, reason=f"{request.param} is not installed: pip install {request.param}")
        found = {"duckdb": by_duckdb, "polars": by_polars, "deltalake": by_deltalake}[request.param]
    return lambda out, name, stream=None: found(out, name, stream).sort_by(ORDER)


def by_duckdb(out, name, stream):
    import re

    import duckdb

    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        files = [re.sub(r"([*?\[\]])", r"[\1]", uri) for uri in tables.uris(out, name, stream=stream)]
        rows = db.sql("select * from read_parquet(?, union_by_name = true)", params=[files])
        return (rows if stream is None else rows.filter(f"stream = '{stream}'")).to_arrow_table()


def by_polars(out, name, stream):
    """Of a snapshot's files where Polars takes the folder's name for a pattern."""
    import polars

    opened = tables.open_table(out, name)
    rows = polars.scan_delta(str(opened.place))
    return (rows if stream is None else rows.filter(polars.col("stream") == stream)).collect().to_arrow()


def by_deltalake(out, name, stream):
    import deltalake

    rows = deltalake.DeltaTable(str(tables.open_table(out, name).place)).to_pyarrow_dataset()
    return rows.to_table(filter=None if stream is None else pa.compute.field("stream") == stream)


def arrays(rng, dtype):
    """Payloads of arrays of any length; some are no whole array."""
    size = np.dtype(dtype).itemsize
    return [bytes(size), *(rng.randbytes(size * rng.randrange(5) + (rng.random() < 0.1)) for _ in range(79))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder of tables, channel → (codec, payloads)): recorded and brought in steps, as a foreign writer would send them."""
    import os
    import random

    rng = random.Random(int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(1 << 32)))
    folder = tmp_path_factory.mktemp("readers")
    archive, out = penstock.Archive(folder / "archive"), folder / "tables"
    streams = {
        "log:json": ("json", generate.json_messages(rng, 300)),
        "log:pack": ("msgpack", generate.msgpack_messages(rng, 300)),
        "log:wide": (WIDE, generate.records(rng, WIDE, 200)),
    }
    streams |= {f"log:a{n}": (penstock.array(np.dtype(one), (-1,)), arrays(rng, one)) for n, one in enumerate(ARRAYS)}
    for step in range(2):
        for channel, (codec, payloads) in streams.items():
            part = payloads[len(payloads) * step // 2 : len(payloads) * (step + 1) // 2]
            with (
                penstock.publish(channel, codec=codec, term_length=1 << 20) as pub,
                archive.record(channel, extend=True),
            ):
                for payload in part:
                    core.Publication.send(pub, payload)
            penstock.remove(channel)
        tables.run(archive.path, out, range_bytes=1 << 16)
    return out, streams


def plain(cell, kind):
    """A cell as Arrow has it: maps are pairs, times have the column's zone."""
    if cell is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(cell[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [plain(one, kind.value_type) for one in cell]
    if pa.types.is_map(kind):
        pairs = (
            cell.items() if isinstance(cell, dict) else [one.values() if isinstance(one, dict) else one for one in cell]
        )
        return [(key, plain(value, kind.item_type)) for key, value in pairs]
    if pa.types.is_timestamp(kind):
        return cell.replace(tzinfo=None if kind.tz is None else oracle.EPOCH.tzinfo)
    return cell


def rows_of(reader, out, channel):
    """(contract, [(name → cell, error, rescued)]) of a stream's own table."""
    found = contracts.from_schema(tables.open_table(out, channel).schema)
    table = reader(out, channel)
    cells = [
        [plain(cell, one.type) for cell in table[one.name].to_pylist()]
        if one.name in table.column_names
        else [None] * table.num_rows
        for one in found
    ]
    rows = [dict(zip((one.name for one in found), row, strict=True)) for row in zip(*cells, strict=True)]
    errors, rescued = (table[name].to_pylist() for name in ("decode_error", "_rescued"))
    return found, list(zip(rows, errors, rescued, strict=True))


@pytest.mark.parametrize(("kind", "channel"), [("json", "log:json"), ("msgpack", "log:pack")])
def test_objects(made, reader, tally, kind, channel):
    out, streams = made
    payloads = streams[channel][1]
    assert reader(out, "messages", channel)["payload"].to_pylist() == payloads
    contract, rows = rows_of(reader, out, channel)
    whole = 0
    for data, (row, error, rescued) in zip(payloads, rows, strict=True):
        whole += oracle.check_message(kind, data, row, contract, error, rescued)
    assert whole > len(payloads) / 3
    tally("rows compared", len(payloads))


def test_structured_dtypes(made, reader, tally):
    out, streams = made
    payloads = streams["log:wide"][1]
    packed = codecs.dtypes.dtype_of(codecs.resolve(WIDE).spec["dtype"])
    assert reader(out, "messages", "log:wide")["payload"].to_pylist() == payloads
    _, rows = rows_of(reader, out, "log:wide")
    for data, (row, error, _) in zip(payloads, rows, strict=True):
        oracle.check_record(packed, data, list(row.values()), error)
    tally("rows compared", len(payloads))


@pytest.mark.slow
def test_arrays(made, reader, tally):
    """A table's column `value`, element by element."""
    out, streams = made
    for number, dtype in enumerate(map(np.dtype, ARRAYS)):
        payloads = streams[f"log:a{number}"][1]
        _, rows = rows_of(reader, out, f"log:a{number}")
        for data, (row, error, _) in zip(payloads, rows, strict=True):
            (values,) = row.values()
            if len(data) % dtype.itemsize:
                assert values is None
                assert error
                continue
            array = np.frombuffer(data, dtype)
            assert len(values) == len(array)
            whole = [oracle.check_scalar(array[at : at + 1], dtype, cell) for at, cell in enumerate(values)]
            assert bool(error) != all(whole)
        tally("rows compared", len(payloads))


def test_a_folder_whose_name_is_a_pattern(spark, recorded, tmp_path):
    """Spark and DuckDB take paths for patterns."""
    from penstock.spark import queries, table

    out = tmp_path / "t {a,b} *"
    tables.run(recorded.path, out)
    wanted = tables.read(out, "log:j").sort_by("position")["i"].to_pylist()
    assert [row["i"] for row in table(spark, out, "log:j").orderBy("position").collect()] == wanted
    query = "select i from log_j order by position"
    assert queries.by_duckdb(out, query, None)["i"].to_pylist() == wanted
    assert queries.by_spark(spark, out, query, None)["i"].to_pylist() == wanted


def cells(table, names):
    """Rows of these columns."""
    return [list(row) for row in zip(*(table[name].to_pylist() for name in names), strict=True)]


def test_bytes_frames_sync_queues_and_pipes(archive, reader):
    out = archive.path.parent / "tables"
    point = np.dtype([("x", "f8"), ("tag", "S4"), ("type", "i2")])
    with (
        penstock.publish("frames:f", shape=(2, 2), buffers=64) as frames,
        penstock.publish("log:b") as plain,
        penstock.join("sync:s", name="é") as one,
        penstock.join("sync:j", name="b", codec="json") as two,
        penstock.publish("pipe:p", codec=point, name="boss") as push,
    ):
        channels = ["log:b", "sync:s", "sync:j", "pipe:p"]
        with archive.record(channels), archive.record("frames:f", pixels=True):
            for i in range(30):
                plain.send(b"\0%d\0" % i)
                frames.send(
                    np.full((2, 2), i, "u1"), id=2**63 + i, start_ns=i, end_ns=2 * i, meta={"i": i} if i % 2 else None
                )
                one.send(b"\0\xff%d" % i, type=f"t{i % 3}")
                two.send({"n": i, "sender": i / 2, "text": "ü" * i})
                push.send((i / 3, b"a\0b", i))
        tables.run(archive.path, out)
    numbers = range(30)
    assert reader(out, "messages", "log:b")["payload"].to_pylist() == [b"\0%d\0" % i for i in numbers]
    found = cells(reader(out, "sync:s"), ["sender", "type", "body", "decode_error"])
    assert found == [["é", f"t{i % 3}", b"\0\xff%d" % i, None] for i in numbers]
    found = cells(reader(out, "sync:j"), ["sender", "n", "sender_", "text", "decode_error"])
    assert found == [["b", i, i / 2, "ü" * i, None] for i in numbers]
    found = cells(reader(out, "pipe:p"), ["sender", "type", "x", "tag", "type_", "parts", "decode_error"])
    assert found == [["boss", "push", i / 3, b"a\0b", i, None, None] for i in numbers]
    bodies = reader(out, "pipe:p")["body"].to_pylist()
    assert bodies == [struct.pack("<d4sh", i / 3, b"a\0b", i) for i in numbers]
    names = ["frame_id", "exposure_start_ns", "exposure_end_ns", "pixels", "decode_error"]
    table = reader(out, "frames:f")
    assert cells(table, names) == [[2**63 + i, i, 2 * i, bytes([i] * 4), None] for i in numbers]
    assert [meta and json.loads(meta) for meta in table["meta"].to_pylist()] == [
        {"i": i} if i % 2 else None for i in numbers
    ]


@pytest.fixture(scope="module")
def drive_tables(drive, tmp_path_factory):
    """The drive's tables; (folder, stream → records)."""
    from penstock.cli.demo.sources import drive_records, drive_streams

    folder = tmp_path_factory.mktemp("drive")
    archive = penstock.Archive(folder / "archive")
    records = {name: drive_records(drive, name)[0] for name in drive_streams(drive)}
    pubs = {name: penstock.publish(f"log:{name}", codec=found.dtype) for name, found in records.items()}
    with archive.record([f"log:{name}" for name in records]):
        for name, pub in pubs.items():
            for record in records[name]:
                pub.send(record)
            pub.close()
    tables.run(archive.path, folder / "t")
    return folder / "t", records


@pytest.mark.slow
def test_the_drive(drive_tables, reader, tally):
    out, streams = drive_tables
    for stream, records in streams.items():
        payloads, table = reader(out, "messages", f"log:{stream}"), reader(out, f"log:{stream}")
        assert payloads["payload"].to_pylist() == [record.tobytes() for record in records]
        assert table["decode_error"].null_count == len(records)
        for name in records.dtype.names:
            column = table[name if name not in schemas.STREAM.names else f"{name}_"]
            kind = records.dtype[name].base.kind
            if kind == "S":  # NumPy's own scalars: NULs inside are kept, those at the end are padding
                assert column.to_pylist() == records[name].tolist(), (stream, name)
                continue
            expected = (
                records[name].reshape(len(records), -1).tolist() if records[name].ndim > 1 else records[name].tolist()
            )
            same = np.array_equal(np.array(column.to_pylist(), float), np.array(expected, float), equal_nan=True)
            assert same if kind == "f" else column.to_pylist() == expected, (stream, name)
        tally("rows compared", len(records))
