"""Records of MCAP files: their fields, the compressions, the checksums. Bytes that break the format raise `Malformed`.

Knows the format (https://mcap.dev/spec) and bytes in memory; opens no file.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = range(9, 16)
IN_CHUNKS = (SCHEMA, CHANNEL, MESSAGE)
IN_SUMMARY = (SCHEMA, CHANNEL, CHUNK_INDEX, ATTACHMENT_INDEX, STATISTICS, METADATA_INDEX, SUMMARY_OFFSET)
TYPED = (
    HEADER,
    SCHEMA,
    CHANNEL,
    MESSAGE_INDEX,
    ATTACHMENT,
    METADATA,
)  # of the data section, whose fields contain their length
HEAD = struct.Struct("<BQ")
FIELDS = np.dtype([("channel", "<u2"), ("sequence", "<u4"), ("log", "<u8"), ("publish", "<u8")])

OTHERS = (
    (b"\x1f\x8b", "it is compressed by gzip: decompress it first"),
    (b"BZh", "it is compressed by bzip2: decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd as a whole: decompress it first"),
    (b"\xfd7zXZ", "it is compressed by xz: decompress it first"),
    (b"PK\x03\x04", "it is a ZIP archive: unpack it first"),
    (b"#ROSBAG", "it is a ROS 1 bag: convert it to MCAP first"),
    (b"SQLite format 3", "it is an SQLite database, as ROS 2 bags of the kind sqlite3: convert it to MCAP first"),
)


class Malformed(ValueError):
    """A record that the format does not have."""


class Schema(NamedTuple):
    """A schema of the file."""

    name: str
    encoding: str
    data: bytes


class Channel(NamedTuple):
    """A channel of the file. schema: None for messages without one."""

    topic: str
    encoding: str
    schema: Schema | None
    metadata: tuple[tuple[str, str], ...]


class Statistics(NamedTuple):
    """The file's own counts and times of its messages and other records."""

    messages: int
    attachments: int
    metadata: int
    chunks: int
    first: int
    last: int
    by_channel: dict[int, int]


class Cursor:
    """Reads the fields of a record. `Malformed` if they are longer than it."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def take(self, size: int) -> bytes:
        """That number of bytes."""
        if size > self.end - self.at:
            raise Malformed("its fields are longer than it is")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """An unsigned number of `length` bytes."""
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        """A text with its length in front."""
        try:
            return self.take(self.number(4)).decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"it has a text that is not UTF-8: {error.reason}") from error

    def within(self) -> Cursor:
        """The bytes of an array or a map with their length in front."""
        size = self.number(4)
        start = self.at
        self.take(size)
        return Cursor(self.data, start, self.at)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """A map of texts."""
        found, inner = [], self.within()
        while inner.at < inner.end:
            found.append((inner.text(), inner.text()))
        if len(dict(found)) != len(found):
            raise Malformed("its metadata has a key twice")
        return tuple(found)

    def array(self, size: int) -> list[bytes]:
        """Elements of a given size in bytes."""
        inner = self.within()
        if (inner.end - inner.at) % size:
            raise Malformed(f"its array has no whole number of elements of {size} bytes")
        return [inner.take(size) for _ in range((inner.end - inner.at) // size)]


class ChunkFields(NamedTuple):
    """A chunk's fields. size: of its content; data: compressed."""

    size: int
    crc: int
    compression: str
    data: bytes


def chunk_of(body: bytes) -> ChunkFields:
    """The fields of a Chunk record."""
    cursor = Cursor(body)
    cursor.take(16)
    size, crc, compression = cursor.number(8), cursor.number(4), cursor.text()
    data = cursor.take(cursor.number(8))
    return ChunkFields(size, crc, compression, data)


def decompressed(chunk: ChunkFields) -> bytes:
    """A chunk's content."""
    if chunk.compression == "" or not (chunk.size or chunk.data):
        data = chunk.data
    elif chunk.compression not in ("zstd", "lz4"):
        raise Malformed(f"its compression is {chunk.compression!r}: MCAP has zstd and lz4")
    else:
        try:
            data = _unzstd(chunk) if chunk.compression == "zstd" else _unlz4(chunk)
        except Malformed:
            raise
        except Exception as error:  # each library has its own errors
            raise Malformed(f"it cannot be decompressed: {error}") from error
    if len(data) != chunk.size:
        raise Malformed(f"it has {len(data):,} bytes, and its header states {chunk.size:,}")
    return data


def checked_content(chunk: ChunkFields) -> bytes:
    """A chunk's content, compared with the chunk's checksum if it has one."""
    data = decompressed(chunk)
    compare_crc(chunk.crc, zlib.crc32(data), "the chunk")
    return data


def _unzstd(chunk: ChunkFields) -> bytes:
    import zstandard

    if zstandard.frame_content_size(chunk.data) not in (-1, chunk.size):
        raise Malformed("its compressed data state another size")
    made = zstandard.ZstdDecompressor().decompressobj()
    found: bytes = made.decompress(chunk.data)
    return found


def _unlz4(chunk: ChunkFields) -> bytes:
    import lz4.frame

    found: bytes = lz4.frame.decompress(chunk.data)
    return found


def is_sound(body: bytes) -> bool:
    """Whether a body is that of a chunk with a right checksum, or of one without whose content has the right size."""
    try:
        fields = chunk_of(body)
        data = checked_content(fields)
    except Malformed:
        return False
    return bool(data) and 40 + len(fields.compression) + len(fields.data) == len(body)


def is_checked_chunk(body: bytes) -> bool:
    """Whether a body is that of a chunk with a right checksum."""
    return len(body) >= 40 and body[24:28] != bytes(4) and is_sound(body)


def compare_crc(stated: int, found: int, what: str) -> None:
    """`Malformed` if a checksum is wrong. 0: there is none."""
    if stated and stated != found:
        raise Malformed(f"the checksum of {what} is wrong: {stated:08x} is written, {found:08x} is right")


def schema_of(cursor: Cursor) -> Schema:
    """A Schema record, after its number."""
    name, encoding = cursor.text(), cursor.text()
    return Schema(name, encoding, cursor.take(cursor.number(4)))


def attachment_of(cursor: Cursor) -> tuple[str, int]:
    """The name and the size of an Attachment record, whose checksum is compared."""
    cursor.take(16)
    name, _ = cursor.text(), cursor.text()
    size = cursor.number(8)
    cursor.take(size)
    covered = zlib.crc32(memoryview(cursor.data)[: cursor.at])
    compare_crc(cursor.number(4), covered, f"the attachment {name!r}")
    return name, size


def typed_end(opcode: int, body: bytes) -> int:
    """Where the fields of a record of `TYPED` end. `Malformed` if they do not fit."""
    cursor = Cursor(body)
    if opcode == HEADER:
        cursor.text()
        cursor.text()
    elif opcode == SCHEMA:
        cursor.take(2)
        schema_of(cursor)
    elif opcode == CHANNEL:
        cursor.take(4)
        cursor.text()
        cursor.text()
        cursor.texts()
    elif opcode == MESSAGE_INDEX:
        cursor.take(2)
        cursor.array(16)
    elif opcode == ATTACHMENT:
        attachment_of(cursor)
    else:
        cursor.text()
        cursor.texts()
    return cursor.at


def compare_channel(cursor: Cursor, schemas: dict[int, Schema], channels: dict[int, Channel]) -> None:
    """`Malformed` if a Channel record of the summary is another one than in the data. One that is new is taken."""
    number, of = cursor.number(2), cursor.number(2)
    topic, encoding, metadata = cursor.text(), cursor.text(), cursor.texts()
    if of and of not in schemas:
        raise Malformed(f"channel {number} names schema {of}, which the file does not have")
    channel = Channel(topic, encoding, schemas[of] if of else None, metadata)
    if channels.setdefault(number, channel) != channel:
        raise Malformed(f"channel {number} is another one than in the data")


def statistics_of(cursor: Cursor) -> Statistics:
    """A Statistics record."""
    messages, _, _ = cursor.number(8), cursor.number(2), cursor.number(4)
    attachments, metadata, chunks = cursor.number(4), cursor.number(4), cursor.number(4)
    first, last = cursor.number(8), cursor.number(8)
    counts = cursor.array(10)
    return Statistics(
        messages,
        attachments,
        metadata,
        chunks,
        first,
        last,
        {int.from_bytes(one[:2], "little"): int.from_bytes(one[2:], "little") for one in counts},
    )


def summary_of(
    data: bytes, at: int, schemas: dict[int, Schema], channels: dict[int, Channel]
) -> tuple[Statistics | None, set[int]]:
    """Checks the summary and the footer, from an offset to the file's end: the statistics, if there are any, and where the chunk index has
    chunks. schemas, channels: the file's; copies must agree."""
    found: Statistics | None = None
    indexed: set[int] = set()
    here = 0
    while True:
        if len(data) - here < HEAD.size:
            raise Malformed("the file ends without a Footer")
        opcode, length = HEAD.unpack_from(data, here)
        if length > len(data) - here - HEAD.size:
            raise Malformed(f"the record at byte {at + here:,} is longer than the rest of the file")
        cursor = Cursor(data, here + HEAD.size, here + HEAD.size + length)
        if opcode == FOOTER:
            break
        if opcode == 0 or (opcode <= DATA_END and opcode not in IN_SUMMARY):
            raise Malformed(f"the record at byte {at + here:,} has the opcode {opcode}, which no summary has")
        if opcode == STATISTICS:
            found = statistics_of(cursor)
        elif opcode == CHUNK_INDEX:
            cursor.take(16)
            indexed.add(cursor.number(8))
        elif opcode == SCHEMA:
            number, schema = cursor.number(2), schema_of(cursor)
            if schemas.setdefault(number, schema) != schema:
                raise Malformed(f"schema {number} is another one than in the data")
        elif opcode == CHANNEL:
            compare_channel(cursor, schemas, channels)
        here += HEAD.size + length
    if length != 20:
        raise Malformed(f"a Footer of {length} bytes: it has 20")
    start, _, crc = cursor.number(8), cursor.number(8), cursor.number(4)
    if data[cursor.at : cursor.at + 2 * len(MAGIC)] == 2 * MAGIC:
        second = at + cursor.at + len(MAGIC)
        raise Malformed(f"a second MCAP file follows at byte {second:,}: cut the file there, and import each part")
    if data[cursor.at :] != MAGIC:
        raise Malformed(f"after its Footer at byte {at + here:,} the file does not end as an MCAP file")
    if start not in (0, at) or (start == 0 and here):
        raise Malformed(f"the Footer names a summary at byte {start:,}, and it is at byte {at:,}")
    covered = zlib.crc32(memoryview(data)[: cursor.at - 4])
    compare_crc(crc, covered, "the summary")
    return found, indexed


def beginning_of(begins: bytes) -> str:
    """The kind of a file with this beginning that is not an MCAP file."""
    found = [what for magic, what in OTHERS if begins.startswith(magic)]
    return found[0] if found else f"it begins with {begins[:8]!r}"
