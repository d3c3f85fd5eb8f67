"""Recoveries of MCAP files that define a channel or a schema twice: no message gets the wrong one of the two."""

import struct
import zlib

import pytest

import penstock

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

from mcap_files import held

from penstock.export.mcap import import_mcap
from penstock.export.mcap_reading.records import DATA_END, FOOTER, HEAD, MAGIC


def text(value):
    return struct.pack("<I", len(value)) + value


def record(opcode, *parts):
    body = b"".join(parts)
    return HEAD.pack(opcode, len(body)) + body


def schema(definition):
    return record(3, struct.pack("<H", 1), text(b"S"), text(b"ros2msg"), text(definition))


def channel(number, topic, of=1):
    return record(4, struct.pack("<HH", number, of), text(topic), text(b"cdr"), text(b""))


def said(number, value):
    return record(5, struct.pack("<HIQQ", number, value, value, value), struct.pack("<4Bi", 0, 1, 0, 0, value))


def chunk(*inner):
    data = b"".join(inner)
    return record(
        6, struct.pack("<QQQI", 1, 9, len(data), zlib.crc32(data)), text(b""), struct.pack("<Q", len(data)), data
    )


def by_hand(data, summary, has_crc):
    """A file of these records. summary: records after them."""
    data = MAGIC + record(1, text(b""), text(b"")) + data
    end = record(DATA_END, struct.pack("<I", zlib.crc32(data) if has_crc else 0))
    start = len(data + end) if summary else 0
    return data + end + summary + record(FOOTER, struct.pack("<QQI", start, 0, 0)) + MAGIC


FIRST = schema(b"int32 a") + channel(1, b"/a") + channel(2, b"/c")
AGAIN = {
    "channel": (channel(1, b"/b"), {"log:a": [1], "log:c": [2, 4]}),
    "schema": (schema(b"float32 a"), {"log:a": [1], "log:c": [2]}),
}


@pytest.mark.parametrize("has_crc", [True, False], ids=["checksum", "none"])
@pytest.mark.parametrize("summary", ["no summary", "the first", "the second"])
@pytest.mark.parametrize("what", AGAIN)
@pytest.mark.parametrize("form", ["plain", "chunks"])
def test_a_second_definition_gives_no_message_another_topic(form, what, summary, has_crc, tmp_path):
    """Which of the two later messages belong to is not known: they are left out and counted, and the text names both topics."""
    again, expected = AGAIN[what]
    copies = {"no summary": b"", "the first": FIRST, "the second": FIRST.replace(FIRST[: len(again)], again)}
    if what == "channel":
        copies["the second"] = schema(b"int32 a") + again + channel(2, b"/c")
    parts = [FIRST + said(1, 1) + said(2, 2), again + said(1, 3), said(2, 4), said(1, 5)]
    if form == "chunks":
        parts = [chunk(part) for part in parts]
    path = tmp_path / "r.mcap"
    path.write_bytes(by_hand(b"".join(parts), copies[summary], has_crc))
    with pytest.raises(penstock.Corrupt):
        import_mcap(tmp_path / "archive", path)
    done = import_mcap(tmp_path / "archive", path, recover=True)
    archive = penstock.Archive(tmp_path / "archive")
    found = {name: [struct.unpack_from("<i", data, 4)[0] for _, data in rows] for name, rows in held(archive).items()}
    assert found == expected
    told = "\n".join(done.damaged)
    assert "is repeated with other content" in told
    assert "second, other definition of channel 1, topic '/a'" in told
    assert what == "schema" or ("'/a'" in told and "'/b'" in told)
