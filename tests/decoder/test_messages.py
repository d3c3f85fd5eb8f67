"""Records, arrays, envelopes and frames against oracles: whatever a message holds, its row has it or says why not; never an exception."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from conftest import LONG
from decoder import generate, oracle

from penstock import codecs
from penstock._native import core as _native
from penstock.codecs import multipart
from penstock.columns import envelopes
from penstock.columns.contract.declared import begun, declared, is_open
from penstock.columns.contract.decoding import decode

SMALL = 1 if not LONG else 40


def decoded(codec, payloads):
    """(contract, rows, errors, rescued), of columns that are valid in every detail."""
    found = decode(codec, begun(codec), pa.array(payloads, pa.binary()))
    names = [column.name for column in found.contract]
    oracle.check_names(names)
    for array, column in zip(found.arrays, found.contract, strict=True):
        array.validate(full=True)
        assert (array.type, len(array)) == (column.type, len(payloads))
    rows = pa.RecordBatch.from_arrays(found.arrays, names).to_pylist() if names else [{} for _ in payloads]
    return found.contract, rows, found.errors.to_pylist(), found.rescued.to_pylist()


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
        _, rows, errors, rescued = decoded(spec, payloads)
        for data, row, error in zip(payloads, rows, errors, strict=True):
            oracle.check_record(dtype, data, list(row.values()), error)
        assert set(rescued) <= {None}
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
        _, rows, errors, _ = decoded(spec, payloads)
        for data, row, error in zip(payloads, rows, errors, strict=True):
            try:
                values = np.frombuffer(data, dtype).reshape(shape).reshape(-1)
            except ValueError:
                assert error
                assert row["value"] is None
                continue
            checks = [oracle.check_scalar(values[at : at + 1], dtype, cell) for at, cell in enumerate(row["value"])]
            assert len(checks) == len(values)
            assert bool(error) != all(checks)
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
        contract, rows, errors, rescued = decoded(codec, payloads)
        assert contract[: len(declared(codec))] == declared(codec)
        inside = [column for column in contract if not column.label.startswith("o:")]
        for (names, body, parts), row, error, odd in zip(sent, rows, errors, rescued, strict=True):
            if names is None:
                continue
            for name, cell in zip(names, (row["sender"], row["type"]), strict=True):
                assert cell == (name.decode() if name != b"\xff\xfe" else None)
                assert cell is not None or error
            assert (row["body"], row["parts"] if outer == "pipe" else None) == (body, parts)
            utf = all(name != b"\xff\xfe" for name in names)
            own = error if utf else error.partition("; ")[2]
            if inner == "struct" and body is not None:
                oracle.check_record(dtype, body, [row["type_"], row["Sender_"]], own)
            elif is_open(codec) and body is not None:
                cells = {column.name: row[column.name] for column in inside}
                oracle.check_message(inner, body, cells, inside, own or None, odd)
        tried += len(payloads)
    tally("messages fuzzed", tried)


def test_sync_messages_and_frames(rng, tally):
    tried = 0
    header = struct.Struct(_native.FRAME_NOTE)
    for _ in range(20 * SMALL):
        sent = [envelope(rng, rng.randbytes(rng.randrange(9))) for _ in range(20)]
        payloads = [data if rng.random() < 0.8 else generate.mutated(rng, data) for _, data in sent]
        _, rows, errors, _ = decoded({"kind": "sync"}, payloads)
        for data, row, error in zip(payloads, rows, errors, strict=True):
            if error is None:
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
            note = header.pack(1, 0, 0, len(meta), rng.choice([0, 2**64 - 1]), -1, 2**63 - 1) + meta + rng.randbytes(4)
            frames.append(note if rng.random() < 0.8 else generate.mutated(rng, note))
        _, rows, errors, _ = decoded(codec, frames)
        for data, row, error in zip(frames, rows, errors, strict=True):
            if error is None:
                _, _, dimensions, length, number, start, end = header.unpack_from(data)
                if dimensions:  # mutated, and yet a frame
                    continue
                assert (row["frame_id"], row["exposure_start_ns"], row["exposure_end_ns"]) == (number, start, end)
                assert (row["meta"] or "").encode() == data[32 : 32 + length]
                assert row.get("pixels", data[32 + length :]) == data[32 + length :]
                assert (row["shape"], row["dtype"], row["header"]) == ([2, 2], "|u1", None)
        tried += 40
    tally("messages fuzzed", tried)


@pytest.mark.parametrize("kind", ["sync", "pipe"])
def test_envelopes_are_opened_together_as_one_by_one(rng, kind):
    together = 0
    for _ in range(60):
        names = [rng.choice(["", "a", "b\0", "sender", "é" * 40, "x" * rng.randrange(300)]) for _ in range(6)]
        messages = []
        for _ in range(rng.randrange(1, 60)):
            first, second = rng.choice(names).encode(), rng.choice(names).encode()
            head = multipart.SYNC_HEADER.pack(len(first), len(second), rng.choice([0, 1, 7]))
            messages.append(head + first + second + rng.randbytes(rng.randrange(9)))
        if rng.random() < 0.4:  # cut, with several parts, or with a name that is no text
            odd = [messages[0][:5], messages[0][:9], multipart.SYNC_HEADER.pack(1, 1, 0) + b"\xffa", b""]
            parts = multipart.SYNC_HEADER.pack(1, 1, multipart.PARTS) + b"ab" + multipart.join_parts([b"1", b"2"])
            messages[rng.randrange(len(messages))] = rng.choice([*odd, parts])
        payload = pa.array([b"xx", *messages], pa.binary()).slice(1)
        slow, fast = envelopes._one_by_one(kind, payload), envelopes._open_together(kind, payload)
        together += fast is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(envelopes, "PIECE", rng.choice([1, 3, 4096]))
            made = envelopes.open_envelopes(kind, payload)
        for one in [fast, made] if fast is not None else [made]:
            assert [array.to_pylist() for array in one.arrays] == [array.to_pylist() for array in slow.arrays]
            assert [array.type for array in one.arrays] == [array.type for array in slow.arrays]
            assert one.errors.to_pylist() == slow.errors.to_pylist()
            assert one.whole.tolist() == slow.whole.tolist()
            assert one.inner.to_pylist() == slow.inner.to_pylist()
    assert together > 20


ENVELOPED = [
    {"kind": kind, **({"of": {"kind": of}} if of else {})}
    for kind in ("sync", "pipe")
    for of in ("", "bytes", "json", "msgpack")
    if of or kind == "sync"
] + [{"kind": "frame", "dtype": "|u1", "shape": [2, 2], **({"pixels": True} if pixels else {})} for pixels in (0, 1)]


@pytest.mark.parametrize("codec", ENVELOPED, ids=lambda codec: f"{codec['kind']}-{codec.get('of', {}).get('kind', '')}")
def test_no_bytes_at_all_stop_the_decoder(codec, rng):
    for _ in range(50 * SMALL):
        data = [rng.randbytes(rng.randrange(60)) for _ in range(4)] + [rng.randbytes(12) + b"{}"]
        decoded(codec, data)
