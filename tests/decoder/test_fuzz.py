"""Any value that codecs can carry, chosen by Hypothesis, through recording, pipeline and the readers of its tables."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import LONG
from decoder import generate, oracle
from decoder.rows import both
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import codecs, columns
from penstock._native import core
from penstock.spark import pipeline, tables

EXAMPLES = 500 if LONG else 25
keys = st.sampled_from(generate.KEYS) | st.text(max_size=8)
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([2**53 + 1, 2**63, -(2**63), 0, 1])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
whatever = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)
as_json = st.dictionaries(keys, whatever, max_size=5).map(lambda value: json.dumps(value).encode()) | whatever.map(
    lambda value: json.dumps(value).encode()
)
as_msgpack = st.randoms(use_true_random=False).map(lambda rng: rng.choice(generate.msgpack_messages(rng, 3)))
payloads = {
    "json": as_json | st.binary(max_size=40),
    "msgpack": as_msgpack | st.binary(max_size=40),
    "bytes": st.binary(max_size=200),
}


@st.composite
def streams(draw):
    """(codec, messages): of any kind; messages that are none of it, too."""
    kind = draw(st.sampled_from(["json", "json", "msgpack", "bytes", "struct", "array"]))
    if kind in payloads:
        return codecs.resolve(kind), draw(st.lists(payloads[kind], min_size=1, max_size=30))
    rng = draw(st.randoms(use_true_random=False))
    if kind == "array":
        dtype = generate.plain_dtype(rng)
        codec = penstock.array(dtype, draw(st.sampled_from([(-1,), (2,), (2, -1), (0,)])))
        return codec, draw(st.lists(st.binary(max_size=4 * dtype.itemsize), min_size=1, max_size=20))
    dtype = generate.record_dtype(rng)
    while dtype.itemsize == 0 or len(json.dumps(codecs.resolve(dtype).spec)) > 1000:
        dtype = generate.record_dtype(rng)
    return codecs.resolve(dtype), generate.records(rng, dtype, draw(st.integers(1, 20)))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(stream=streams(), steps=st.integers(1, 3), size=st.sampled_from([64, 1024, 1 << 20]))
def test_whatever_a_codec_carries_gets_its_row(stream, steps, size):
    codec, sent = stream
    with tempfile.TemporaryDirectory() as folder:
        archive, out = penstock.Archive(Path(folder) / "archive"), Path(folder) / "tables"
        for step in range(steps):
            part = sent[len(sent) * step // steps : len(sent) * (step + 1) // steps]
            with (
                penstock.publish("log:f", codec=codec, term_length=1 << 16) as pub,
                archive.record("log:f", extend=True),
            ):
                for payload in part:
                    core.Publication.send(pub, payload)
            pipeline.run(None, archive.path, out, range_bytes=size)
        penstock.remove("log:f")
        _check(codec.spec, sent, both(out, "log:f"), out)


def _check(spec, sent, table, out):
    assert table["payload"].to_pylist() == sent
    assert table["interval_ns"].is_null().to_pylist() == [True] + [False] * (len(sent) - 1)
    errors = table["decode_error"].to_pylist()
    keys = tables.open_table(out, "messages").state().get("keys", {})
    own = columns.schema(spec, columns.keys_from_json(next(iter(keys.values()), [])))
    oracle.check_names(own, columns.RESERVED)
    rows = table.select([name for name in own.names if name in table.column_names]).to_pylist()
    for data, row, error in zip(sent, rows, errors, strict=True):
        if spec["kind"] in ("json", "msgpack"):
            oracle.check_objects(spec["kind"], data, row, own, error)
        elif spec["kind"] == "struct":
            oracle.check_record(codecs.dtypes.dtype_of(spec["dtype"]), data, list(row.values()), error)
    for name, reader in (("duckdb", _duckdb), ("polars", _polars)):
        try:
            found = reader(tables.uris(out, "messages"))
        except ImportError:
            print(f"{name} is not installed")
            continue
        assert found == sorted(zip(table["position"].to_pylist(), sent, errors, strict=True)), name


def _duckdb(paths):
    import duckdb

    query = "select position, payload, decode_error from read_parquet(?, union_by_name = true) order by position"
    with duckdb.connect() as db:
        return db.sql(query, params=[paths]).fetchall()


def _polars(paths):
    import polars

    files = [polars.read_parquet(path) for path in paths]
    return polars.concat(files, how="diagonal").sort("position").select("position", "payload", "decode_error").rows()


ENVELOPED = [
    {"kind": kind, **({"of": {"kind": of}} if of else {})}
    for kind in ("sync", "pipe")
    for of in ("", "bytes", "json", "msgpack")
    if of or kind == "sync"
] + [{"kind": "frame", "dtype": "|u1", "shape": [2, 2], **({"pixels": True} if pixels else {})} for pixels in (0, 1)]


@pytest.mark.parametrize("codec", ENVELOPED, ids=lambda codec: f"{codec['kind']}-{codec.get('of', {}).get('kind', '')}")
@settings(max_examples=EXAMPLES * 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.lists(
        st.binary(max_size=60) | st.binary(min_size=12, max_size=12).map(lambda head: head + b"{}"), max_size=8
    )
)
def test_no_bytes_at_all_stop_the_decoder(codec, data):
    payload = pa.array(data, pa.binary())
    keys = columns.learn(codec, (), payload)
    made = columns.decode(codec, keys, payload)
    assert len(made.errors) == len(data)
    assert all(len(array) == len(data) for array in made.arrays)
    assert made.schema == columns.schema(codec, keys)
    oracle.check_names(made.schema, columns.RESERVED)
