"""Damaged MCAP files: every checksum is compared, an error names the place, and a recovery gives what is sound and counts the rest."""

import bz2
import gzip
import random
import struct
import zlib

import pytest

import penstock
from penstock.cli import run

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

from mcap_files import held, topic, write

from evidence import mcap as suite
from penstock.export.mcap import import_mcap
from penstock.export.mcap_reading.records import (
    ATTACHMENT,
    CHUNK,
    DATA_END,
    FOOTER,
    HEAD,
    MAGIC,
    MESSAGE,
    MESSAGE_INDEX,
)

COUNT = 40


def made(path, **options):
    messages = [("t", 1000 + number, b'{"i": %d, "v": "abcdef"}' % number) for number in range(COUNT)]
    return write(path, {"t": topic("/t")}, messages, **{"chunk_size": 300, "enable_data_crcs": True, **options})


def records(data):
    """(opcode, where it begins, where it ends) of each record of a file."""
    at, found = len(MAGIC), []
    while at < len(data) - len(MAGIC):
        opcode, length = HEAD.unpack_from(data, at)
        found.append((opcode, at, at + HEAD.size + length))
        at += HEAD.size + length
    return found


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.parametrize("name", suite.files())
def test_no_change_of_a_file_gives_other_messages(name):
    """A seeded part of the suite's changes; the suite has them all."""
    data = suite.files()[name]
    truth, _ = suite.outcome(data, recover=False)
    ways = random.Random(name).sample(list(suite.changes(len(data))), 60)
    assert [(at, what) for what, at, change in ways if suite.judge(truth, change(data))] == []


@pytest.mark.parametrize(
    ("opcode", "places"),
    [(CHUNK, (9, 20, 30, 37, 60, -1)), (DATA_END, (9, 12)), (FOOTER, (9, 17, 25)), (ATTACHMENT, (9, 20, -8, -2))],
    ids=["chunk", "data end", "footer", "attachment"],
)
def test_damage_is_named_with_its_place(opcode, places, tmp_path):
    path = made(tmp_path / "a.mcap", finish=lambda w: w.add_attachment(1, 2, "map", "text/plain", b"x" * 99))
    data = path.read_bytes()
    begin, end = next((begin, end) for found, begin, end in records(data) if found == opcode)
    for place in places:
        path.write_bytes(flipped(data, begin + place if place >= 0 else end + place))
        with pytest.raises(penstock.Corrupt, match=r"is damaged at byte [\d,]+: .*--recover"):
            import_mcap(tmp_path / "archive", path)
        assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("compression", ["NONE", "ZSTD", "LZ4"])
def test_a_recovery_gives_what_is_sound_and_counts_the_rest(compression, tmp_path, capfd):
    """The advice in the error is followed: one damaged chunk costs its own messages."""
    from mcap.writer import CompressionType

    path = made(tmp_path / "a.mcap", compression=CompressionType[compression])
    data = path.read_bytes()
    whole = penstock.Archive(tmp_path / "whole")
    import_mcap(whole, path)
    chunks = [(begin, end) for opcode, begin, end in records(data) if opcode == CHUNK]
    begin, end = chunks[1]
    path.write_bytes(flipped(data, end - 20))
    assert run(["import", str(tmp_path / "archive"), str(path)]) == 1
    assert "--recover" in capfd.readouterr().err
    assert run(["import", str(tmp_path / "archive"), str(path), "--recover"]) == 0
    shown = capfd.readouterr().err
    got, had = held(penstock.Archive(tmp_path / "archive"))["log:t"], held(whole)["log:t"]
    lost = [one for one in had if one not in got]
    assert [one for one in had if one in got] == got
    assert 0 < len(lost) < COUNT / 2
    assert f"bytes {begin:,} to {end:,}: in a chunk" in shown
    assert f"{end - begin:,} bytes in all, 1 chunk, {len(lost)} messages by the file's own count" in shown


@pytest.mark.parametrize("chunked", [True, False])
def test_a_file_that_was_cut_off_gives_what_is_there(chunked, tmp_path):
    path = made(tmp_path / "a.mcap", use_chunking=chunked)
    data = path.read_bytes()
    (checked,) = [end for opcode, _, end in records(data) if opcode == DATA_END]
    counts = []
    for size in range(len(MAGIC) + 1, len(data), 37):
        path.write_bytes(data[:size])
        with pytest.raises(penstock.Corrupt, match=r"cut off|damaged"):
            import_mcap(tmp_path / "none", path)
        done = import_mcap(tmp_path / f"{size}", path, recover=True)
        counts.append(done.rows)
        assert done.damaged
        assert done.rows == 0 or bool(done.unchecked) == (not chunked and size < checked)
    assert counts == sorted(counts)
    assert counts[-1] == COUNT


def test_a_hole_between_chunks_is_passed(tmp_path):
    """The length of a record is damaged: what follows is found again."""
    path = made(tmp_path / "a.mcap")
    data = path.read_bytes()
    begin = [begin for opcode, begin, _ in records(data) if opcode == CHUNK][1]
    for wrong in (
        data[: begin + 2] + b"\xff" + data[begin + 3 :],
        data[:begin] + bytes(60) + data[begin + 60 :],
        data[:begin] + b"??" + data[begin:],
    ):
        path.write_bytes(wrong)
        done = import_mcap(tmp_path / f"{len(wrong)}{wrong[begin]}", path, recover=True)
        assert COUNT / 2 < done.rows <= COUNT
        assert done.damaged


def test_a_file_without_checksums_says_so(tmp_path, capfd):
    for number, options in enumerate(
        ({"use_chunking": False, "enable_data_crcs": False}, {"enable_crcs": False, "enable_data_crcs": False})
    ):
        path = made(tmp_path / f"{number}.mcap", **options)
        done = import_mcap(tmp_path / f"a{number}", path)
        assert f"no checksum of the file covers {COUNT} of {COUNT} messages" in done.unchecked
        assert run(["import", str(tmp_path / f"b{number}"), str(path)]) == 0
        assert capfd.readouterr().err.count("no checksum of the file covers") == 1


def record(opcode, body):
    return HEAD.pack(opcode, len(body)) + body


def text(value):
    return struct.pack("<I", len(value)) + value


def built(*parts):
    """A file of these records, with an empty summary and right checksums."""
    data = MAGIC + record(1, text(b"") + text(b"")) + b"".join(parts)
    data += record(DATA_END, struct.pack("<I", zlib.crc32(data)))
    footer = HEAD.pack(FOOTER, 20) + bytes(16)
    return data + footer + struct.pack("<I", zlib.crc32(footer)) + MAGIC


def channel(number=1, schema=0, name=b"/t"):
    return record(4, struct.pack("<HH", number, schema) + text(name) + text(b"json") + text(b""))


def message(number=1, time=5, body=b"1"):
    return record(MESSAGE, struct.pack("<HIQQ", number, 0, time, time) + body)


def chunk(content, compression=b"", size=None, data=None, crc=None):
    crc = zlib.crc32(content) if crc is None else crc
    data = content if data is None else data
    size = len(content) if size is None else size
    return record(
        CHUNK, struct.pack("<QQQI", 0, 0, size, crc) + text(compression) + struct.pack("<Q", len(data)) + data
    )


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (built(), 0),
        (built(channel(), message()), 1),
        (built(chunk(channel() + message())), 1),
        (built(chunk(b""), chunk(b"", b"zstd"), chunk(b"", b"lz4"), chunk(channel()), chunk(message())), 1),
        (built(channel(), chunk(message(body=b""))), 1),
        (built(channel(), channel(), chunk(channel() + message())), 1),
    ],
    ids=["nothing", "no chunk", "chunk", "empty chunks", "empty message", "channel again"],
)
def test_odd_but_sound_files_are_read(data, rows, tmp_path):
    (tmp_path / "a.mcap").write_bytes(data)
    done = import_mcap(tmp_path / "a", tmp_path / "a.mcap", strict=True)
    assert (done.rows, done.left_out, done.unchecked) == (rows, (), "")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (built(message(), channel()), "of channel 1, and no record before it"),
        (built(chunk(message() + channel())), "channel 1 is before that channel's record"),
        (built(chunk(message())), "of channel 1, and no record before it"),
        (built(channel(schema=3), message()), "names schema 3, and no record"),
        (built(record(3, struct.pack("<H", 0) + text(b"") * 3)), "number 0, which means none"),
        (built(channel(), channel(name=b"/u")), "channel 1 is repeated with other content"),
        (built(chunk(channel(), b"snappy")), "compression is 'snappy': MCAP has zstd and lz4"),
        (built(chunk(channel(), size=1 << 50)), "header states 1,125,899,906,842,624"),
        (built(chunk(channel(), b"zstd", data=b"junk")), "cannot be decompressed"),
        (built(chunk(channel(), b"lz4", data=b"junk")), "cannot be decompressed"),
        (built(chunk(chunk(b""))), "opcode 6, which no chunk has"),
        (built(record(0, b"")), "opcode 0, which there is not"),
        (built(record(MESSAGE, b"short")), "no room for its fields"),
        (built(record(FOOTER, bytes(20))), "no DataEnd before it"),
        (built(record(11, bytes(46))), "does not belong to the data section"),
        (built(channel(name=b"\xff")), "not UTF-8"),
        (built()[:-1], "does not end as an MCAP file"),
        (built() + b"x", "does not end as an MCAP file"),
        (built() + built(), "a second MCAP file follows at byte"),
        (MAGIC + MAGIC, "cut off, or its writer died"),
        (MAGIC, "cut off, or its writer died"),
        (b"", "it is empty"),
        (gzip.compress(built(), mtime=0), "compressed by gzip: decompress it first"),
        (bz2.compress(built()), "compressed by bzip2: decompress it first"),
        (b"#ROSBAG V2.0\n" + bytes(99), "it is a ROS 1 bag: convert it"),
        (b"SQLite format 3\0" + bytes(99), "SQLite database"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "file",
)
def test_files_that_are_wrong_get_a_clear_error(data, says, tmp_path):
    (tmp_path / "a.mcap").write_bytes(data)
    with pytest.raises(penstock.Corrupt, match=says):
        import_mcap(tmp_path / "a", tmp_path / "a.mcap")
    assert not (tmp_path / "a").exists()


def test_unknown_records_are_counted(tmp_path):
    """Those of other programs, and those of later versions of the format, in chunks and outside."""
    more = record(0x80, b"abc") + record(0xFE, b"") + record(0x10, b"later")
    path = tmp_path / "a.mcap"
    path.write_bytes(built(more, channel(), chunk(message() + record(0x80, b"de"))))
    done = import_mcap(tmp_path / "a", path)
    assert done.rows == 1
    assert done.left_out == (
        "1 record with the opcode 0x10, which MCAP does not have: 5 bytes",
        "2 records with the opcode 0x80, which MCAP does not have: 5 bytes",
        "1 record with the opcode 0xfe, which MCAP does not have: 0 bytes",
    )
    with pytest.raises(penstock.Unsupported, match="opcode 0x80"):
        import_mcap(tmp_path / "b", path, strict=True)


def put(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1 :]


def recovered(tmp_path, data):
    (tmp_path / "bad.mcap").write_bytes(data)
    with pytest.raises(penstock.Corrupt):
        import_mcap(tmp_path / "none", tmp_path / "bad.mcap")
    archive = penstock.Archive(tmp_path / "recovered")
    done = import_mcap(archive, tmp_path / "bad.mcap", recover=True)
    return done, held(archive).get("log:t", [])


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("data_crc", [True, False])
def test_another_record_does_not_become_a_message(summary, data_crc, tmp_path):
    """One bit makes a Message of a MessageIndex: nobody sent it."""
    options = {} if summary else {"use_statistics": False}
    path = made(tmp_path / "a.mcap", enable_data_crcs=data_crc, **options)
    data = path.read_bytes()
    begin, end = [(begin, end) for opcode, begin, end in records(data) if opcode == MESSAGE_INDEX][2]
    if not summary and not data_crc:
        (tmp_path / "a.mcap").write_bytes(put(data, begin, MESSAGE))
        assert "1 of 41 messages" in import_mcap(tmp_path / "none", path).unchecked
        return
    done, rows = recovered(tmp_path, put(data, begin, MESSAGE))
    assert len(rows) == COUNT
    assert f"bytes {begin:,} to {end:,}: a message outside of chunks" in done.damaged[0]


@pytest.mark.parametrize("place", [0, 1, 3], ids=["opcode", "length", "more length"])
@pytest.mark.parametrize("summary", [True, False])
def test_a_chunk_is_known_by_its_checksum(place, summary, tmp_path):
    """Its opcode or its length is wrong, and nothing is lost."""
    data = made(tmp_path / "a.mcap", **({} if summary else {"use_statistics": False})).read_bytes()
    begin = [begin for opcode, begin, _ in records(data) if opcode == CHUNK][2]
    done, rows = recovered(tmp_path, put(data, begin + place, data[begin + place] ^ 0x10))
    assert len(rows) == COUNT
    assert done.damaged


@pytest.mark.parametrize("bit", range(8, 20))
@pytest.mark.parametrize("summary", [True, False])
def test_a_wrong_length_costs_its_own_record(bit, summary, tmp_path):
    """That of a record without messages: every chunk whose checksum is right is imported."""
    data = made(tmp_path / "a.mcap").read_bytes()
    data = data if summary else data[: -len(MAGIC) - 1]
    begin, end = [(begin, end) for opcode, begin, end in records(data[:-9]) if opcode == MESSAGE_INDEX][1]
    at = begin + 1 + bit // 8
    done, rows = recovered(tmp_path, put(data, at, data[at] ^ 1 << bit % 8))
    assert len(rows) == COUNT
    assert not summary or f"bytes {begin:,} to {end:,}: " in done.damaged[0]


def test_a_recovery_that_loses_messages_is_not_strict(tmp_path):
    path = made(tmp_path / "a.mcap")
    data = path.read_bytes()
    end = [end for opcode, _, end in records(data) if opcode == CHUNK][1]
    path.write_bytes(flipped(data, end - 20))
    with pytest.raises(penstock.Unsupported, match=r"1 chunk, \d+ messages by the file's own count"):
        import_mcap(tmp_path / "none", path, recover=True, strict=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", [name for name in suite.files() if "summary" in name])
def test_one_wrong_bit_costs_one_record(name):
    """A seeded part of the suite's bits."""
    data = suite.files()[name]
    truth, _ = suite.outcome(data, recover=False)
    cost, chance = suite.costs(data), random.Random(name)
    places = [(chance.randrange(len(data)), chance.randrange(8)) for _ in range(60)]
    wrong = [suite.judge_cost(truth, put(data, at, data[at] ^ 1 << bit), cost[at]) for at, bit in places]
    assert [text for text in wrong if text] == []
