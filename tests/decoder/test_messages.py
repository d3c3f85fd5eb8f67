"""The decoder against oracles: whatever a message holds, its row has it or says why not; never an exception."""

import io
import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LONG
from decoder import generate, oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import codecs, columns
from penstock._native import core as _native
from penstock.codecs import multipart

SMALL = 1 if not LONG else 40
RESERVED = {*columns.RESERVED}


def batch_of(decoded):
    """The columns as a batch that is valid in every detail."""
    batch = pa.RecordBatch.from_arrays(
        [*decoded.arrays, decoded.errors],
        schema=decoded.schema.append(pa.field("decode_error", pa.string())),
    )
    batch.validate(full=True)
    return batch


def read_back(batch):
    """Through Parquet and back: the same types, the same values."""
    kept = batch.select([field.name for field in batch.schema if not pa.types.is_null(field.type)])
    file = io.BytesIO()
    pq.write_table(pa.table(kept), file)
    table = pq.ParquetFile(file).read()
    assert [field.type for field in table.schema] == [field.type for field in kept.schema]
    assert repr(table.to_pylist()) == repr(kept.to_pylist())


def check_objects(kind, payloads, taken=()):
    payload = pa.array(payloads, pa.binary())
    found = columns.decode({"kind": kind}, (), payload)
    assert found.schema == columns.schema({"kind": kind}, found.keys)
    batch = batch_of(found)
    oracle.check_names(found.schema, RESERVED)
    whole = 0
    for data, row in zip(payloads, batch.to_pylist(), strict=True):
        error = row.pop("decode_error")
        whole += oracle.check_objects(kind, data, row, found.schema, error)
    again = columns.decode({"kind": kind}, found.keys, payload)
    assert again.keys is found.keys, "decoding adds nothing to keys that are complete"
    assert repr(batch_of(again).to_pylist()) == repr(batch.to_pylist())
    read_back(batch)
    return found.keys, whole


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_any_object_is_in_its_row_or_its_error(rng, tally, kind):
    make = getattr(generate, f"{kind}_messages")
    tried = whole = 0
    for _ in range(60 * SMALL):
        payloads = make(rng, rng.randrange(60))
        keys, good = check_objects(kind, payloads)
        tried, whole = tried + len(payloads), whole + good
        at, steps = 0, ()
        while at < len(payloads):  # in pieces: the same keys, names, and kinds
            size = rng.randrange(1, 20)
            steps = columns.learn({"kind": kind}, steps, pa.array(payloads[at : at + size], pa.binary()))
            at += size
        assert columns.keys_to_json(steps) == columns.keys_to_json(keys)
        assert columns.keys_from_json(columns.keys_to_json(keys)) == keys
    assert whole > tried / 4
    tally("messages fuzzed", tried)


def test_any_record_is_in_its_row_or_its_error(rng, tally):
    tried = 0
    for _ in range(150 * SMALL):
        dtype = generate.record_dtype(rng)
        if dtype.itemsize == 0:
            continue
        spec = codecs.resolve(dtype).spec
        packed = codecs.dtypes.dtype_of(spec["dtype"])
        assert packed.itemsize == dtype.itemsize
        payloads = generate.records(rng, dtype, rng.randrange(30))
        found = columns.decode(spec, (), pa.array(payloads, pa.binary()))
        batch = batch_of(found)
        oracle.check_names(found.schema, RESERVED)
        for data, row in zip(payloads, batch.to_pylist(), strict=True):
            error = row.pop("decode_error")
            oracle.check_record(dtype, data, list(row.values()), error)
        read_back(batch)
        tried += len(payloads)
    tally("messages fuzzed", tried)


def test_any_array_is_in_its_row_or_its_error(rng, tally):
    tried = 0
    for _ in range(100 * SMALL):
        dtype = generate.plain_dtype(rng)
        shape = rng.choice([(-1,), (3,), (2, 2), (2, -1), (0,), ()])
        spec = codecs.array(dtype, shape).spec
        payloads = [
            rng.randbytes(dtype.itemsize * rng.choice([0, 1, 2, 3, 4, 6]) + rng.choice([0, 0, 0, 1])) for _ in range(20)
        ]
        found = columns.decode(spec, (), pa.array(payloads, pa.binary()))
        batch = batch_of(found)
        for data, row in zip(payloads, batch.to_pylist(), strict=True):
            try:
                values = np.frombuffer(data, dtype).reshape(shape).reshape(-1)
            except ValueError:
                assert row["decode_error"]
                assert row["value"] is None
                continue
            checks = [oracle.check_scalar(values[at : at + 1], dtype, cell) for at, cell in enumerate(row["value"])]
            assert len(checks) == len(values)
            assert bool(row["decode_error"]) != all(checks)
        read_back(batch)
        tried += len(payloads)
    tally("messages fuzzed", tried)


def envelope(rng, body, parts=False):
    """A sync queue's or a pipe's message, its names not always UTF-8."""
    names = [rng.choice([b"", b"me", "é".encode(), b"\xff\xfe"]) for _ in range(2)]
    kind = multipart.PARTS if parts else rng.randrange(3)
    return names, multipart.SYNC_HEADER.pack(len(names[0]), len(names[1]), kind) + b"".join(names) + body


@pytest.mark.parametrize("inner", ["json", "msgpack", "bytes", "struct"])
@pytest.mark.parametrize("outer", ["pipe", "sync"])
def test_an_envelopes_columns_come_before_the_bodys(rng, tally, outer, inner):
    dtype = np.dtype([("type", "i4"), ("Sender", "S4")])
    spec = codecs.resolve(dtype).spec if inner == "struct" else {"kind": inner}
    codec = {"kind": outer, "of": spec}
    columns_outside = len(columns.schema({"kind": outer, "of": {"kind": "bytes"}}))
    tried = 0
    for _ in range(20 * SMALL):
        make = {"json": generate.json_messages, "msgpack": generate.msgpack_messages}.get(inner)
        bodies = make(rng, 20) if make else generate.records(rng, dtype, 20)
        sent, payloads = [], []
        for body in bodies:
            chance = rng.random()
            parts = [body, b"", b"two"] if chance < 0.1 and outer == "pipe" else None
            names, data = envelope(rng, multipart.join_parts(parts) if parts else body, bool(parts))
            if chance > 0.9:
                parts, names, data = None, None, rng.randbytes(rng.randrange(12))
            sent.append((names, body if not parts else None, parts))
            payloads.append(data)
        found = columns.decode(codec, (), pa.array(payloads, pa.binary()))
        batch = batch_of(found)
        oracle.check_names(found.schema, RESERVED)
        alone = columns.decode(spec, (), pa.array([b or b"" for _, b, _ in sent], pa.binary()))
        assert len(found.schema) == columns_outside + len(columns.schema(spec, alone.keys)) or columns.is_open(spec)
        for (names, body, parts), row in zip(sent, batch.to_pylist(), strict=True):
            if names is None:
                continue
            for name, cell in zip(names, (row["sender"], row["type"]), strict=True):
                assert cell == (name.decode() if name != b"\xff\xfe" else None)
                assert cell is not None or row["decode_error"]
            assert (row["body"], row["parts"] if outer == "pipe" else None) == (body, parts)
            if inner == "struct" and body is not None:
                utf = all(name != b"\xff\xfe" for name in names)
                error = row["decode_error"] if utf else row["decode_error"].partition("; ")[2]
                oracle.check_record(dtype, body, [row["type_"], row["Sender_"]], error)
            elif columns.is_open(spec) and body is not None and all(name != b"\xff\xfe" for name in names):
                own = pa.schema([field for field in found.schema if (field.metadata or {}).get(b"key")])
                oracle.check_objects(inner, body, {name: row[name] for name in own.names}, own, row["decode_error"])
        read_back(batch)
        tried += len(payloads)
    tally("messages fuzzed", tried)


def test_sync_messages_and_frames(rng, tally):
    tried = 0
    header = struct.Struct(_native.FRAME_NOTE)
    for _ in range(20 * SMALL):
        sent = [envelope(rng, rng.randbytes(rng.randrange(9))) for _ in range(20)]
        payloads = [data if rng.random() < 0.8 else generate.mutated(rng, data) for _, data in sent]
        batch = batch_of(columns.decode({"kind": "sync"}, (), pa.array(payloads, pa.binary())))
        for data, row in zip(payloads, batch.to_pylist(), strict=True):
            if row["decode_error"] is None:
                a, b, _kind = struct.unpack_from("<HHI", data)
                assert (row["sender"].encode(), row["type"].encode(), row["body"]) == (
                    data[8 : 8 + a],
                    data[8 + a : 8 + a + b],
                    data[8 + a + b :],
                )
        codec = {"kind": "frame", "dtype": "|u1", "shape": [2, 2], **({"pixels": True} if rng.random() < 0.5 else {})}
        frames = []
        for _ in range(20):
            meta = rng.choice([b"", b'{"a":1}', b"\xff"])
            note = header.pack(1, len(meta), rng.choice([0, 2**64 - 1]), -1, 2**63 - 1) + meta + rng.randbytes(4)
            frames.append(note if rng.random() < 0.8 else generate.mutated(rng, note))
        batch = batch_of(columns.decode(codec, (), pa.array(frames, pa.binary())))
        for data, row in zip(frames, batch.to_pylist(), strict=True):
            if row["decode_error"] is None:
                _, length, number, start, end = header.unpack_from(data)
                assert (row["frame_id"], row["exposure_start_ns"], row["exposure_end_ns"]) == (number, start, end)
                assert (row["meta"] or "").encode() == data[32 : 32 + length]
                assert row.get("pixels", data[32 + length :]) == data[32 + length :]
        tried += 40
    tally("messages fuzzed", tried)


simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
objects = st.recursive(
    simple, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


@settings(max_examples=150 * SMALL, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(st.dictionaries(st.text(max_size=5), objects, max_size=4) | objects, max_size=6))
def test_any_json_that_hypothesis_thinks_of(messages):
    check_objects("json", [json.dumps(message).encode("utf-8", "replace") for message in messages])


@settings(max_examples=150 * SMALL, deadline=None, suppress_health_check=list(HealthCheck))
@given(payloads=st.lists(st.binary(max_size=40), max_size=5))
@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_any_bytes_that_hypothesis_thinks_of(kind, payloads):
    check_objects(kind, payloads)


def test_more_keys_than_columns_are_named(rng):
    from penstock.columns.objects import KEYS_MAX

    payloads = [b'{"k%d": %d}' % (i, i) for i in range(KEYS_MAX + 5)]
    found = columns.decode({"kind": "json"}, (), pa.array(payloads, pa.binary()))
    assert len(found.schema) == KEYS_MAX
    assert found.errors.null_count == KEYS_MAX
    assert "at most" in found.errors[KEYS_MAX].as_py()
