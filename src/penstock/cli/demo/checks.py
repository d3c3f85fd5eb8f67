"""Compares the table *messages* with the messages that the demo's processes sent, read and counted, and with their input files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.demo.sources import drive_records, drive_streams


def rows_in_table(tables: Path) -> Counter[str]:
    """Rows per stream."""
    from penstock.tables.reading import open_table

    found: Counter[str] = Counter()
    for file in open_table(tables, "messages").files():
        found[file.low["stream"]] += file.rows
    return found


def every_message_is_accounted_for(recorded: list[Any], measured: dict[str, Any], tables: Path) -> None:
    """Each reader, the recorder and the table *messages* must have every message that the channel and its writers count."""
    in_table = rows_in_table(tables)
    if not recorded or {info.channel for info in recorded} != measured["sent"].keys():
        raise penstock.PenstockError(f"{sorted(info.channel for info in recorded)} were recorded")
    for info in recorded:
        sent, wrote = (measured[count][info.channel] for count in ("sent", "wrote"))
        if wrote != sent:
            raise penstock.PenstockError(f"{info.channel}: {wrote} written, {sent} counted as sent")
        for result in measured["subscribers"]:
            if (got := result[info.channel]["messages"]) != sent:
                raise penstock.PenstockError(f"{info.channel}: {sent} sent, {got} received")
        if info.messages != sent or in_table[info.channel] != sent or info.lost_bytes:
            raise penstock.PenstockError(
                f"{info.channel}: {sent} sent, {info.messages} recorded, {in_table[info.channel]} in the table, "
                f"{info.lost_bytes} bytes lost"
            )


def compare_drive(data: Path, tables: Path, channels: Mapping[str, str]) -> int:
    """Compares every row with the drive's files, in order: its payload, and each decoded column with NumPy's. Returns how many
    rows. Raises if one differs.

    channels: by stream.
    """
    from penstock.tables.reading import read

    total = 0
    for stream in drive_streams(data):
        channel = channels[stream]
        records, _ = drive_records(data, stream)
        messages = read(tables, "messages", stream=channel, columns=["stream", "position", "payload"])
        if b"".join(messages.sort_by("position")["payload"].to_pylist()) != records.tobytes():
            raise penstock.Corrupt(f"{channel}: the payloads in the table messages are not those of the file")
        _compare(channel, _columns_of(records), len(records), tables)
        total += len(records)
    return total


def compare_copies(copies: Mapping[str, list[Any]], codecs: Mapping[str, Any], tables: Path) -> int:
    """Compares every decoded column of each channel's table with the messages that its writer kept, in order. How many rows. Raises if
    one differs.

    codecs: by channel; a NumPy dtype, or the name of a codec whose messages are dicts.
    """
    for channel, messages in copies.items():
        codec = codecs[channel]
        if isinstance(codec, np.dtype):
            columns = _columns_of(np.array(messages, dtype=codec))
        else:
            names = dict.fromkeys(name for message in messages for name in message)
            columns = {name: [message.get(name) for message in messages] for name in names}
        _compare(channel, columns, len(messages), tables)
    return sum(map(len, copies.values()))


def _columns_of(records: Any) -> dict[str, list[Any]]:
    """The fields of a structured array, as lists. A field of more than one dimension becomes flat."""
    columns = {}
    for name in records.dtype.names:
        values = records[name]
        columns[name] = (values.reshape(len(records), -1) if values.ndim > 1 else values).tolist()
    return columns


def _compare(channel: str, expected: dict[str, list[Any]], count: int, tables: Path) -> None:
    """The columns of a channel's table against these. Raises if a value differs, or a row is missing or was not decoded."""
    from penstock.tables.reading import read

    rows = read(tables, channel).sort_by("position")
    if rows["decode_error"].null_count != rows.num_rows or rows.num_rows != count:
        raise penstock.Corrupt(f"{channel}: its table has rows that were not decoded, or lacks rows")
    for name, values in expected.items():
        # `time` is a column of the table's own
        column = rows[name if name in rows.column_names else f"{name}_"].to_pylist()
        different = [at for at, pair in enumerate(zip(column, values, strict=True)) if not _is_same(*pair)]
        if different:
            at = different[0]
            raise penstock.Corrupt(
                f"{channel}: {name} of row {at} in its table is {column[at]!r}, not {values[at]!r} as it was sent"
                f" ({len(different)} rows differ)"
            )


def _is_same(one: Any, other: Any) -> bool:
    """Equal, or both not a number."""
    if isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other or (one != one and other != other))
