"""Every decoded column of every row, for every codec and for the real drive, in Spark, DuckDB, Polars, delta-rs and pyarrow, against an independent
decode: the standard library's JSON, a MessagePack reader of our own, NumPy one scalar at a time, and what was sent."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from decoder import generate, oracle
from decoder.rows import both

import penstock
from penstock import codecs, columns
from penstock._native import core
from penstock.spark import pipeline, tables

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
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
    """(out, stream) → a stream's rows of messages by position, as this reader gives them."""
    if request.param == "pyarrow":
        found = lambda out, name, stream: tables.read(out, name, stream=stream)  # noqa: E731
    elif request.param == "spark":
        spark = request.getfixturevalue("spark")
        found = lambda out, name, stream: tables.table(spark, out, name, stream=stream).toArrow()  # noqa: E731
    else:
        pytest.importorskip(request.param, reason=f"{request.param} is not installed: pip install {request.param}")
        found = {"duckdb": by_duckdb, "polars": by_polars, "deltalake": by_deltalake}[request.param]
    return lambda out, stream: both(out, stream, found)


def by_duckdb(out, name, stream):
    import duckdb

    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        files = tables.uris(out, name, stream=stream)
        return db.sql("select * from read_parquet(?, union_by_name = true)", params=[files]).to_arrow_table()


def by_polars(out, name, stream):
    import polars

    opened = tables.open_table(out, name)
    rows = polars.scan_delta(str(opened.place))
    return (rows if stream is None else rows.filter(polars.col("stream") == stream)).collect().to_arrow()


def by_deltalake(out, name, stream):
    import deltalake

    rows = deltalake.DeltaTable(str(tables.open_table(out, name).place)).to_pyarrow_dataset()
    return rows.to_table(filter=None if stream is None else pa.compute.field("stream") == stream)


def send(archive, channel, codec, payloads, steps=2):
    """Records raw bytes in steps, as a foreign writer would send them, and brings the tables up to date after each."""
    out = archive.path.parent / "tables"
    for step in range(steps):
        part = payloads[len(payloads) * step // steps : len(payloads) * (step + 1) // steps]
        with penstock.publish(channel, codec=codec, term_length=1 << 20) as pub, archive.record(channel, extend=True):
            for payload in part:
                core.Publication.send(pub, payload)
        pipeline.run(None, archive.path, out, range_bytes=1 << 16)
    return out


def cells(table, names):
    """Rows of these columns; those that the files do not have were only ever null. Zones aside: a reader may have them or not."""
    found = [table[name].to_pylist() if name in table.column_names else [None] * table.num_rows for name in names]
    return [list(row) for row in zip(*found, strict=True)]


def own_names(codec, payloads):
    return columns.schema(codec, columns.learn(codec, (), pa.array(payloads, pa.binary())))


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_messages_with_keys(rng, archive, reader, kind, tally):
    payloads = getattr(generate, f"{kind}_messages")(rng, 300)
    out = send(archive, "log:k", kind, payloads)
    codec = {"kind": kind}
    # Names are given in the order in which keys came, step by step.
    found = columns.keys_from_json(next(iter(tables.open_table(out, "messages").state()["keys"].values())))
    own = columns.schema(codec, found)
    table = reader(out, "log:k")
    assert table["payload"].to_pylist() == payloads
    for data, row, error in zip(payloads, cells(table, own.names), table["decode_error"].to_pylist(), strict=True):
        named = {name: zoned(cell, own.field(name).type) for name, cell in zip(own.names, row, strict=True)}
        oracle.check_objects(kind, data, named, own, error)
    tally("rows compared", len(payloads))


def zoned(cell, kind):
    return cell.replace(tzinfo=oracle.EPOCH.tzinfo) if pa.types.is_timestamp(kind) and cell is not None else cell


def test_structured_dtypes(rng, archive, reader, tally):
    payloads = generate.records(rng, WIDE, 200)
    out = send(archive, "log:s", WIDE, payloads)
    spec = codecs.resolve(WIDE).spec
    packed = codecs.dtypes.dtype_of(spec["dtype"])
    table = reader(out, "log:s")
    assert table["payload"].to_pylist() == payloads
    rows = cells(table, columns.schema(spec).names)
    for data, row, error in zip(payloads, rows, table["decode_error"].to_pylist(), strict=True):
        oracle.check_record(packed, data, row, error)
    tally("rows compared", len(payloads))


@pytest.mark.parametrize("dtype", ARRAYS)
@pytest.mark.parametrize("reader", ["duckdb", "polars", "deltalake", "pyarrow"], indirect=True)
def test_arrays(rng, archive, reader, dtype, tally):
    made, payloads = np.dtype(dtype), arrays(rng, dtype)
    out = send(archive, "log:a", penstock.array(made, (-1,)), payloads)
    check_arrays(made, payloads, reader(out, "log:a"))
    tally("rows compared", len(payloads))


@pytest.mark.parametrize("reader", ["spark"], indirect=True)
def test_arrays_by_spark(rng, archive, reader, tally):
    """All of them in one archive: a session's job takes longer than its rows."""
    sent = {f"log:a{number}": (np.dtype(dtype), arrays(rng, dtype)) for number, dtype in enumerate(ARRAYS)}
    for channel, (made, payloads) in sent.items():
        out = send(archive, channel, penstock.array(made, (-1,)), payloads, steps=1)
    for channel, (made, payloads) in sent.items():
        check_arrays(made, payloads, reader(out, channel))
        tally("rows compared", len(payloads))


def arrays(rng, dtype):
    """Payloads of arrays of any length; some are no whole array."""
    size = np.dtype(dtype).itemsize
    return [bytes(size), *(rng.randbytes(size * rng.randrange(5) + (rng.random() < 0.1)) for _ in range(79))]


def check_arrays(made, payloads, table):
    """A table's column `value`, element by element."""
    for data, (values,), error in zip(
        payloads, cells(table, ["value"]), table["decode_error"].to_pylist(), strict=True
    ):
        if len(data) % made.itemsize:
            assert values is None
            assert error
            continue
        array = np.frombuffer(data, made)
        assert len(values) == len(array)
        whole = [oracle.check_scalar(array[at : at + 1], made, cell) for at, cell in enumerate(values)]
        assert bool(error) != all(whole)


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
        pipeline.run(None, archive.path, out)
    numbers = range(30)
    assert reader(out, "log:b")["payload"].to_pylist() == [b"\0%d\0" % i for i in numbers]
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
    pipeline.run(None, archive.path, folder / "t")
    return folder / "t", records


def test_the_drive(drive_tables, reader, tally):
    out, streams = drive_tables
    for stream, records in streams.items():
        table = reader(out, f"log:{stream}")
        assert table["payload"].to_pylist() == [record.tobytes() for record in records]
        assert table["decode_error"].null_count == len(records)
        for name in records.dtype.names:
            column = table[name if name in columns.schema(codecs.resolve(records.dtype).spec).names else f"{name}_"]
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
