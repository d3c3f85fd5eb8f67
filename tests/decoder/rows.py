"""A stream's rows from two tables: messages, and the stream's own with its decoded columns."""

from penstock.spark import tables

ORDER = [("position", "ascending"), ("timestamp_ns", "ascending")]


def both(out, stream, read=lambda out, name, stream: tables.read(out, name, stream=stream)):
    """The rows of messages in order, and beside them the columns of the stream's own table, which must have the same rows."""
    rows = read(out, "messages", stream).sort_by(ORDER)
    if stream not in tables.streams(out):
        return rows
    own = read(out, stream, None).sort_by(ORDER)
    for name in ("position", "session", "timestamp_ns", "recorded_ns", "decode_error"):
        assert own[name].to_pylist() == rows[name].to_pylist(), (stream, name)
    for field, column in zip(own.schema, own.columns, strict=True):
        if field.name not in rows.column_names:
            rows = rows.append_column(field, column)
    return rows
