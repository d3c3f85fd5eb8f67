"""Rows of tables against what was sent."""

import pyarrow as pa
from decoder import oracle

import penstock
from penstock import codecs, tables
from penstock._native import core
from penstock.columns import contract as contracts

ORDER = [("position", "ascending"), ("timestamp_ns", "ascending")]


def send(channel, codec, payloads, archive):
    """Records raw bytes on a channel with a codec, as a foreign writer would send them."""
    with penstock.publish(channel, codec=codec, term_length=1 << 16) as pub, archive.record(channel, extend=True):
        for payload in payloads:
            core.Publication.send(pub, payload)


def both(out, stream):
    """The rows of messages in order, and beside them the columns of the stream's own table, which must have the same rows."""
    rows = tables.read(out, "messages", stream=stream).sort_by(ORDER)
    if stream not in tables.streams(out):
        return rows
    own = tables.read(out, stream).sort_by(ORDER)
    for name in ("epoch", "position", "recording", "session", "timestamp_ns", "recorded_ns", "decode_error"):
        assert own[name].to_pylist() == rows[name].to_pylist(), (stream, name)
    for field, column in zip(own.schema, own.columns, strict=True):
        if field.name not in rows.column_names:
            rows = rows.append_column(field, column)
    return rows


def check_rows(table, codec, payloads):
    """Each row, in the order of sending, against the oracle; how many."""
    spec = codecs.resolve(codec).spec
    assert table["payload"].to_pylist() == payloads
    contract = contracts.from_schema(table.schema)
    check_cells(spec, contract, table, payloads)
    return table.num_rows


def check_cells(spec, contract, table, payloads):
    """The columns of a contract against the payloads."""
    names = [column.name for column in contract]
    oracle.check_names(names)
    rows = pa.Table.from_arrays([table[name] for name in names], names).to_pylist() if names else [{} for _ in payloads]
    errors, rescued = (
        table[name].to_pylist() if name in table.column_names else [None] * len(payloads)
        for name in ("decode_error", "_rescued")
    )
    for data, row, error, odd in zip(payloads, rows, errors, rescued, strict=True):
        if spec["kind"] in ("json", "msgpack"):
            oracle.check_message(spec["kind"], data, row, contract, error, odd)
        elif spec["kind"] == "struct":
            oracle.check_record(codecs.dtypes.dtype_of(spec["dtype"]), data, list(row.values()), error)
            assert odd is None
        else:
            assert not row
